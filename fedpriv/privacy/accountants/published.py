"""The option ``accountant=published``: the accountant that the theorem of the published work prescribes."""

from __future__ import annotations

from collections.abc import Iterator

from fedpriv.common.conflicts import Combination
from fedpriv.common.errors import ConfigError


class PublishedAccountant:
    """Placeholder for the accountant of the algorithm's claim (``budget_view=published``).

    The claim of an algorithm names its own accountant; see :mod:`fedpriv.privacy.mechanisms.claims`.
    """

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        """Refuse an algorithm without a published claim, and a budget view that is not ``published``."""
        algorithm, view = parts.algorithm, parts.settings.budget_view
        if algorithm.claim is None:
            yield ConfigError(
                "accountant=published needs an algorithm with a published claim; "
                f"algorithm={algorithm.name} has none"
            )
        if parts.settings.sound:
            yield ConfigError("budget_view", view, "published with accountant=published")
