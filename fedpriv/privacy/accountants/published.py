"""The option ``accountant=published``: whatever accountant the work's own theorem prescribes."""


class PublishedAccountant:
    """Stands for the accountant of the algorithm's claim (``budget_view=published``)."""
