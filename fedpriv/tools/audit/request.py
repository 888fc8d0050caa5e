"""The audits that can be asked for, by name.

Nothing heavy is imported, so a run with a wrong request is refused before it begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.data.names import NONMEMBERS

if TYPE_CHECKING:
    from fedpriv.experiment.settings import Settings

MEMBERSHIP, PROPERTY, EPSILON = "membership", "property", "epsilon"
KINDS = (MEMBERSHIP, PROPERTY, EPSILON)
RESULTS = {MEMBERSHIP: "membership_auc", PROPERTY: "property_auc", EPSILON: "epsilon_audited"}
"""The key of a run's summary that shows that an audit of each kind was made."""
FEWEST_SHADOWS, MOST_SHADOWS = 4, 64
PROPERTIES = ("intensity", "length", "writer", "label:K", "file:PATH")
_ALLOWED = "one of " + ", ".join(PROPERTIES)


@dataclass(frozen=True)
class MembershipOptions:
    """Options of membership inference.

    Attributes:
        nonmembers: Where non-members come from, ``test`` or ``held_out``.
        records: Largest number of members, and of non-members.
        snapshots: Largest number of snapshots, spread evenly over the run.
        seed: Seed of every draw.
        shadows: Number of shadow runs.
        shadow_runs: Folder of the shadow runs.
    """

    nonmembers: str = "test"
    records: int = 2000
    snapshots: int = 10
    seed: int = 0
    shadows: int = 0
    shadow_runs: str = "outputs/shadows"


@dataclass(frozen=True)
class PropertyOptions:
    """Options of property inference.

    Attributes:
        choice: One of ``PROPERTIES``.
        clients: Largest number of clients to audit.
        snapshots: Largest number of snapshots, spread evenly over the run.
        seed: Seed of every draw.
    """

    choice: str
    clients: int = 200
    snapshots: int = 10
    seed: int = 0


@dataclass(frozen=True)
class EpsilonOptions:
    """Options of an audit of ε.

    Attributes:
        canaries: Number of canaries in each training; None for as many as fit, up to 1000.
        canary: Kind of the canaries; None for the kind that the run planted, or else ``direction``.
        repetitions: Number of trainings.
        independent: Whether each canary gets a run of its own.
        confidence: Confidence of all bounds together.
        seed: Seed of every draw.
    """

    canaries: int | None = None
    canary: str | None = None
    repetitions: int = 1
    independent: bool = False
    confidence: float = 0.95
    seed: int = 0


Options = MembershipOptions | PropertyOptions | EpsilonOptions


def parse_property(text: str, key: str = "--property") -> tuple[str, str]:
    """Split a choice of a property: ``label:3`` → (``label``, ``3``).

    Args:
        text: The choice.
        key: The key or flag of the choice, for messages.

    Raises:
        ConfigError: The choice is unknown.
    """
    name, _, argument = text.partition(":")
    takes_argument = {known.partition(":")[0]: ":" in known for known in PROPERTIES}
    if name not in takes_argument or takes_argument[name] != bool(argument):
        raise ConfigError(key, text, _ALLOWED)
    if name == "label" and not argument.isdigit():
        raise ConfigError(key, text, "label:K with a whole number K")
    return name, argument


def wanted(settings: Settings) -> dict[str, Options]:
    """Return the audits that the key ``audit`` asks for.

    Args:
        settings: Settings of the run.

    Returns:
        Options of each audit, by kind.

    Raises:
        ConfigError: An audit is unknown, or the run could not be audited.
    """
    options_of_kind: dict[str, Options] = {}
    for text in settings.audit:
        kind, _, choice = text.partition(":")
        nonmembers, _, shadows = choice.partition(":")
        if kind == MEMBERSHIP and nonmembers in ("", *NONMEMBERS):
            options: Any = MembershipOptions(
                nonmembers or NONMEMBERS[0],
                shadows=_parse_shadows(shadows) if shadows else 0,
                shadow_runs=f"{settings.runtime.output_dir}/shadows",
            )
        elif kind == PROPERTY and choice:
            parse_property(choice, "audit=property:CHOICE, CHOICE")
            options = PropertyOptions(choice)
        elif kind == EPSILON:  # with the canaries of the run: the settings have read M and KIND
            options = EpsilonOptions(seed=settings.seed)
        else:
            kinds = (
                "membership, membership:held_out, membership:held_out:SHADOWS, property:CHOICE, epsilon, "
                "epsilon:M or epsilon:M:mislabelled"
            )
            raise ConfigError("audit", text, kinds, f"CHOICE: {_ALLOWED}")
        if kind in options_of_kind:
            raise ConfigError(
                f"audit names two audits of the kind {kind}; a run has room for one of each kind"
            )
        options_of_kind[kind] = options
    runtime = settings.runtime
    if not options_of_kind:
        return options_of_kind
    if settings.publish:
        raise ConfigError(
            "audit", list(settings.audit), "null with publish=true: what an audit finds is private"
        )
    if not runtime.diagnostics:
        raise ConfigError(
            "runtime.diagnostics",
            False,
            "true with audit: what an audit finds is about private data",
        )
    if PROPERTY in options_of_kind and runtime.snapshot_interval is None:
        raise ConfigError(
            "runtime.snapshot_interval", None, "a whole number >= 1 with audit=property:CHOICE"
        )
    return options_of_kind


def _parse_shadows(text: str) -> int:
    try:
        return check_shadows("audit=membership:SET:SHADOWS", int(text) if text.isdigit() else text)
    except ArgumentError as error:
        raise error.within("") from None


def check_shadows(name: str, value: object) -> int:
    """Return a valid number of shadow runs.

    Half of the shadow runs train on a record and half do not, so the number is even.

    Args:
        name: The key or flag of the number, for messages.
        value: The number.

    Raises:
        ArgumentError: The number is neither 0 nor an even number in the allowed range.
    """
    if value == 0:
        return 0
    if type(value) is not int or not FEWEST_SHADOWS <= value <= MOST_SHADOWS or value % 2:
        allowed = f"0 (no LiRA, no RMIA) or an even number from {FEWEST_SHADOWS} to {MOST_SHADOWS}"
        raise ArgumentError(name, value, allowed)
    return value


def missing(audit: str | Sequence[str] | None, summary: Mapping[str, object]) -> list[str]:
    """Return the kinds of audit that a run was asked for and has no result of.

    Args:
        audit: The value of the key ``audit``.
        summary: The run's summary.
    """
    texts = [audit] if isinstance(audit, str) else audit or ()
    kinds = [text.partition(":")[0] for text in texts]
    return [kind for kind in kinds if summary.get(RESULTS[kind]) is None]
