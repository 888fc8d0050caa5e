"""Labels, units and ranges with which the columns of metrics.csv and clients.csv are shown."""

from __future__ import annotations

from dataclasses import dataclass

OWN, BY_LABELS = "own_accuracy", "accuracy_by_labels"
"""Columns of clients.csv with the accuracy of each client: on its own test records, or by its labels."""
WORST = (f"worst_decile_{OWN}", f"worst_decile_{BY_LABELS}")
"""Results in summary.json: the mean of either over the tenth of the honest clients that has the lowest."""


@dataclass(frozen=True)
class Quantity:
    """The display of a column.

    Attributes:
        label: Label of an axis.
        scale: Factor from the stored value to the shown value; 100 for shares in percent.
        decimals: Number of decimals in tables.
        from_zero: True if an axis begins at zero.
    """

    label: str
    scale: float = 1.0
    decimals: int = 3
    from_zero: bool = True


AUDIT_COLUMNS: dict[str, Quantity] = {
    "membership_auc": Quantity("AUC of membership inference", from_zero=False),
    "membership_tpr_at_1_percent": Quantity("TPR of membership inference at 1 % FPR"),
    "membership_tpr_at_0.1_percent": Quantity("TPR of membership inference at 0.1 % FPR"),
    "property_auc": Quantity("AUC of property inference", from_zero=False),
}
"""Columns that only ``summary.json`` has, for runs with ``audit``; figures of points use them."""
COLUMNS: dict[str, Quantity] = {
    "round": Quantity("round", decimals=0),
    "epsilon": Quantity("ε enforced (worst client)"),
    "epsilon_published": Quantity("privacy budget ε (as published)"),
    "epsilon_sound": Quantity("ε sound (worst client)"),
    "noise_multiplier": Quantity("σ (noise multiplier)", decimals=2),
    "clip_norm": Quantity("C (clip norm)"),
    "gradient_norm": Quantity("gradient L2 norm (mean of the lots)"),
    "train_loss": Quantity("loss on private lots (exact)"),
    "validation_loss": Quantity("public validation loss"),
    "reported_loss": Quantity("loss reported by the clients"),
    "planned_rounds": Quantity("T, planned rounds", decimals=0),
    "test_loss": Quantity("test loss"),
    "test_accuracy": Quantity("test accuracy (%)", scale=100.0, decimals=2, from_zero=False),
    "backdoor_accuracy": Quantity(
        "backdoor accuracy (%)", scale=100.0, decimals=2, from_zero=False
    ),
    "update_norm_honest": Quantity("L2 norm of an honest update (mean)"),
    "update_norm_malicious": Quantity("L2 norm of a malicious update (mean)"),
    "dropped": Quantity("clients that dropped out", decimals=0),
    "aborted": Quantity("round aborted", decimals=0),
    "bits_per_coordinate": Quantity("bits of a coordinate", decimals=0),
    "bytes_per_client": Quantity("bytes from a client", decimals=0),
    "seconds": Quantity("seconds", decimals=0),
    "clients": Quantity("clients, the worst off first (%)"),
    OWN: Quantity("accuracy on the client's own test records (%)", 100.0, 2, False),
    BY_LABELS: Quantity("test accuracy by the client's labels (%)", 100.0, 2, False),
    **dict.fromkeys(WORST, Quantity("accuracy of the worst tenth of clients (%)", 100.0, 2, False)),
    **AUDIT_COLUMNS,
}
CLIENT_COLUMNS: dict[str, Quantity] = {
    "round": COLUMNS["round"],
    "gradient_norm": Quantity("gradient L2 norm (mean of a lot)"),
    "clip_norm": COLUMNS["clip_norm"],
    "epsilon": Quantity("ε of the client"),
}
STATED_COLUMNS: dict[str, Quantity] = {
    "test_accuracy": COLUMNS["test_accuracy"],
    "test_loss": COLUMNS["test_loss"],
    "backdoor_accuracy": COLUMNS["backdoor_accuracy"],
    "noise_multiplier": COLUMNS["noise_multiplier"],
    "noise_decays": Quantity("decays of σ", decimals=0),
    "rounds": Quantity("rounds", decimals=0),
    "epsilon_published": COLUMNS["epsilon_published"],
    "epsilon_sound": COLUMNS["epsilon_sound"],
    **AUDIT_COLUMNS,
}
"""Values of ``summary.json`` about the end of a run that a paper may state."""
