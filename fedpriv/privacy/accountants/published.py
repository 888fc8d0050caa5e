"""The option ``accountant=published``: the accountant that the theorem of the published work prescribes."""

from __future__ import annotations


class PublishedAccountant:
    """Placeholder for the accountant of the algorithm's claim (``budget_view=published``).

    The claim of an algorithm names its own accountant; see :mod:`fedpriv.privacy.mechanisms.claims`.
    """
