"""The option ``accountant=published``: whatever accountant the work's own theorem prescribes."""

from __future__ import annotations

from collections.abc import Iterator

from fedpriv.common.conflicts import Combination
from fedpriv.common.errors import ConfigError


class PublishedAccountant:
    """Stands for the accountant of the algorithm's claim (``budget_view=published``)."""

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        """Refuse an algorithm without a claim, and a view that is not the claim's."""
        algorithm, view = parts.algorithm, parts.settings.budget_view
        if algorithm.claim is None:
            yield ConfigError(
                f"accountant=published needs an algorithm with a published claim, which {algorithm.name} "
                "has not"
            )
        if parts.settings.sound:
            yield ConfigError("budget_view", view, "published with accountant=published")
