"""What may be audited, by name; imports nothing heavy, so a run is refused before it begins."""

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
"""What tells in a summary that a run has been audited."""
FEWEST_SHADOWS, MOST_SHADOWS = 4, 64
PROPERTIES = ("intensity", "length", "writer", "label:K", "file:PATH")
_ALLOWED = "one of " + ", ".join(PROPERTIES)


@dataclass(frozen=True)
class MembershipOptions:
    """``records``: so many members and as many non-members, or as there are; ``snapshots``: at most so
    many, spread evenly; ``shadows``: so many shadow runs, in ``shadow_runs``."""

    nonmembers: str = "test"
    records: int = 2000
    snapshots: int = 10
    seed: int = 0
    shadows: int = 0
    shadow_runs: str = "outputs/shadows"


@dataclass(frozen=True)
class PropertyOptions:
    """``choice``: one of ``PROPERTIES``; ``clients``: at most so many are audited."""

    choice: str
    clients: int = 200
    snapshots: int = 10
    seed: int = 0


@dataclass(frozen=True)
class EpsilonOptions:
    """``canaries``: how many in each of ``repetitions`` trainings; None: as many as fit, up to 1000;
    ``canary``: of which kind; None: as those that the run planted, else of a direction; ``independent``: each
    in a run of its own."""

    canaries: int | None = None
    canary: str | None = None
    repetitions: int = 1
    independent: bool = False
    confidence: float = 0.95
    seed: int = 0


Options = MembershipOptions | PropertyOptions | EpsilonOptions


def parse_property(text: str, key: str = "--property") -> tuple[str, str]:
    """``label:3`` → (``label``, ``3``). Raises ConfigError naming ``key``."""
    name, _, argument = text.partition(":")
    takes_argument = {known.partition(":")[0]: ":" in known for known in PROPERTIES}
    if name not in takes_argument or takes_argument[name] != bool(argument):
        raise ConfigError(key, text, _ALLOWED)
    if name == "label" and not argument.isdigit():
        raise ConfigError(key, text, "label:K with a whole number K")
    return name, argument


def wanted(settings: Settings) -> dict[str, Options]:
    """The audits that the key ``audit`` asks for, by kind; refuses those that could not be made."""
    found: dict[str, Options] = {}
    for text in settings.audit:
        kind, _, choice = text.partition(":")
        nonmembers, _, shadows = choice.partition(":")
        if kind == MEMBERSHIP and nonmembers in ("", *NONMEMBERS):
            options: Any = MembershipOptions(
                nonmembers or NONMEMBERS[0],
                shadows=_shadows_of(shadows) if shadows else 0,
                shadow_runs=f"{settings.runtime.output_dir}/shadows",
            )
        elif kind == PROPERTY and choice:
            parse_property(choice, "audit=property:CHOICE, CHOICE")
            options = PropertyOptions(choice)
        elif kind == EPSILON:  # of those that the run plants; the settings have read M and KIND
            options = EpsilonOptions(seed=settings.seed)
        else:
            kinds = (
                "membership, membership:held_out, membership:held_out:SHADOWS, property:CHOICE, epsilon, "
                "epsilon:M or epsilon:M:mislabelled"
            )
            raise ConfigError("audit", text, kinds, f"CHOICE: {_ALLOWED}")
        if kind in found:
            raise ConfigError(f"audit names two audits of the kind {kind}; one run records one")
        found[kind] = options
    runtime = settings.runtime
    if not found:
        return found
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
    if PROPERTY in found and runtime.snapshot_interval is None:
        raise ConfigError(
            "runtime.snapshot_interval", None, "a whole number >= 1 with audit=property:CHOICE"
        )
    return found


def _shadows_of(text: str) -> int:
    try:
        return check_shadows("audit=membership:SET:SHADOWS", int(text) if text.isdigit() else text)
    except ArgumentError as error:
        raise error.within("") from None


def check_shadows(name: str, value: object) -> int:
    """How many shadow runs: two of each half at least. Raises ArgumentError."""
    if value == 0:
        return 0
    if type(value) is not int or not FEWEST_SHADOWS <= value <= MOST_SHADOWS or value % 2:
        allowed = f"0 (no LiRA, no RMIA) or an even number from {FEWEST_SHADOWS} to {MOST_SHADOWS}"
        raise ArgumentError(name, value, allowed)
    return value


def missing(audit: str | Sequence[str] | None, summary: Mapping[str, object]) -> list[str]:
    """The kinds of audit that the value of the key ``audit`` names and a run's summary has no result of."""
    texts = [audit] if isinstance(audit, str) else audit or ()
    kinds = [text.partition(":")[0] for text in texts]
    return [kind for kind in kinds if summary.get(RESULTS[kind]) is None]
