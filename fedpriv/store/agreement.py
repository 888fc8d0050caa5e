"""Whether summary, statement and ledger of a run say the same: what is left to compare without digests."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedpriv.store.folder import RunFolder

_TWICE = ("epsilon", "epsilon_published", "epsilon_sound", "delta")
"""What ``summary.json`` and ``privacy.json`` both hold."""
_TOLERANCE, _SMALL = 0.05, 0.005
"""Relative, and absolute: accountants that are all valid differ by less, an edited ledger by more."""
_BOUND = (
    "an upper bound"  # how the statement's reason for a number begins that is no more than that
)


def stated_apart(
    folder: RunFolder, summary: Mapping[str, object], privacy: Mapping[str, object]
) -> str:
    """Return a sentence where summary and statement differ in an epsilon or delta; else nothing."""
    for key in _TWICE:
        one, other = summary.get(key), privacy.get(key)
        if key in summary and key in privacy and not _equal(one, other):
            return (
                f"{folder.summary} says {key} {one}, {folder.privacy_json.name} says {other}: one of them "
                "is damaged or was edited"
            )
    return ""


def ledger_apart(
    folder: RunFolder, privacy: Mapping[str, object], epsilon: float, tightest: bool
) -> str:
    """Return a sentence where a ledger has another epsilon than the statement's sound one; else nothing.

    Args:
        epsilon: Of the ledger, at the run's delta; noise must not have adapted.
        tightest: Whether ``epsilon`` is by the tightest accountant; another may have a larger one.
    """
    stated = privacy.get("epsilon_sound")
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return ""
    reasons = privacy.get("reasons")
    reason = str(reasons.get("epsilon_sound")) if isinstance(reasons, dict) else ""
    margin = _TOLERANCE * stated + _SMALL
    less = epsilon < stated - margin and not reason.startswith(_BOUND)
    if not less and not (tightest and epsilon > stated + margin):
        return ""
    return (
        f"{folder.ledger} has epsilon {epsilon:.4f} at delta {privacy.get('delta')}, "
        f"{folder.privacy_json.name} states {stated:.4f}: one of them is damaged or was edited"
    )


def _equal(one: object, other: object) -> bool:
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (one, other))
    return math.isclose(one, other, rel_tol=1e-9) if numbers else one == other  # type: ignore[arg-type]
