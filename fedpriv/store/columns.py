"""The columns of metrics.csv and clients.csv as a reader sees them: label, unit, whole range."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """How a column is shown.

    Attributes:
        label: On an axis.
        scale: Factor from the stored value to the one shown (100 for shares shown in percent).
        decimals: In tables.
        from_zero: Whether its axis begins at zero.
    """

    label: str
    scale: float = 1.0
    decimals: int = 3
    from_zero: bool = True


AUDIT_COLUMNS: dict[str, Column] = {
    "membership_auc": Column("AUC of membership inference", from_zero=False),
    "membership_tpr_at_1_percent": Column("TPR of membership inference at 1 % FPR"),
    "membership_tpr_at_0.1_percent": Column("TPR of membership inference at 0.1 % FPR"),
    "property_auc": Column("AUC of property inference", from_zero=False),
}
"""What ``summary.json`` alone knows, of runs with ``audit``: for figures with points."""
COLUMNS: dict[str, Column] = {
    "round": Column("round", decimals=0),
    "epsilon": Column("ε enforced (worst client)"),
    "epsilon_published": Column("privacy budget ε (as published)"),
    "epsilon_sound": Column("ε sound (worst client)"),
    "noise_multiplier": Column("σ (noise multiplier)", decimals=2),
    "clip_norm": Column("C (clip norm)"),
    "gradient_norm": Column("gradient L2 norm (mean of the lots)"),
    "train_loss": Column("loss on private lots (exact)"),
    "validation_loss": Column("public validation loss"),
    "reported_loss": Column("loss reported by the clients"),
    "planned_rounds": Column("T, planned rounds", decimals=0),
    "test_loss": Column("test loss"),
    "test_accuracy": Column("test accuracy (%)", scale=100.0, decimals=2, from_zero=False),
    "backdoor_accuracy": Column("backdoor accuracy (%)", scale=100.0, decimals=2, from_zero=False),
    "update_norm_honest": Column("L2 norm of an honest update (mean)"),
    "update_norm_malicious": Column("L2 norm of a malicious update (mean)"),
    "dropped": Column("clients that dropped out", decimals=0),
    "aborted": Column("round aborted", decimals=0),
    "bits_per_coordinate": Column("bits of a coordinate", decimals=0),
    "bytes_per_client": Column("bytes from a client", decimals=0),
    "seconds": Column("seconds", decimals=0),
    **AUDIT_COLUMNS,
}
CLIENT_COLUMNS: dict[str, Column] = {
    "round": COLUMNS["round"],
    "gradient_norm": Column("gradient L2 norm (mean of a lot)"),
    "clip_norm": COLUMNS["clip_norm"],
    "epsilon": Column("ε of the client"),
}
STATED_COLUMNS: dict[str, Column] = {
    "test_accuracy": COLUMNS["test_accuracy"],
    "test_loss": COLUMNS["test_loss"],
    "backdoor_accuracy": COLUMNS["backdoor_accuracy"],
    "noise_multiplier": COLUMNS["noise_multiplier"],
    "noise_decays": Column("decays of σ", decimals=0),
    "rounds": Column("rounds", decimals=0),
    "epsilon_published": COLUMNS["epsilon_published"],
    "epsilon_sound": COLUMNS["epsilon_sound"],
    **AUDIT_COLUMNS,
}
"""What ``summary.json`` knows about the end of a run and a paper may state."""
