"""The view that the parts of a run have of one another, to refuse combinations that cannot work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

RELEASED_ONCE = (
    "with features.normalization=released every client releases once, before the first round"
)
"""Reason for which some parts do not go with that release: they need other cohorts or other noise."""


class Combination(Protocol):
    """All parts of a run, as a part's method ``conflicts(parts)`` sees them.

    A part reads attributes that the base classes of other parts declare (``algorithm.trust``,
    ``clipper.unbounded``, ``noise_schedule.adaptive``). It never tests their class, so that a user's own
    part is treated as one of fedpriv. The base classes are defined in rooms above this one, which must not be
    imported here; therefore most types are ``Any``. :class:`fedpriv.experiment.parts.Parts` has them all.
    """

    @property
    def settings(self) -> Any:
        """The keys at the root of the configuration."""

    @property
    def dataset(self) -> Any:
        """The data set as the model reads it: with features in place of images, if the run has features."""

    @property
    def partition(self) -> Any:
        """The partition."""

    @property
    def model(self) -> Any:
        """The factory of the model."""

    @property
    def clipper(self) -> Any:
        """The clipper."""

    @property
    def noise_schedule(self) -> Any:
        """The noise schedule."""

    @property
    def accountant(self) -> Any:
        """The accountant of the enforced view."""

    @property
    def algorithm(self) -> Any:
        """The algorithm."""

    @property
    def attack(self) -> Any:
        """The attack, or None."""

    @property
    def aggregation(self) -> Any:
        """The aggregation rule, or None."""

    @property
    def trackers(self) -> Mapping[str, Any]:
        """The trackers by name."""

    @property
    def reads_validation(self) -> bool:
        """True if noise schedule, aggregation rule or warm start reads the public validation split."""

    @property
    def without_noise(self) -> bool:
        """True if nothing is private, because of the algorithm or because its noise is 0."""

    @property
    def released_statistics(self) -> Any:
        """The release of statistics that normalizes the features, or None."""

    @property
    def even_share(self) -> int:
        """Number of records of a client if all clients had the same number."""

    @property
    def shares_known(self) -> bool:
        """False if the privacy cost depends on numbers of records that are known only from the data."""

    @property
    def other_accountants(self) -> Sequence[Any]:
        """Accountants that may replace a refused accountant."""

    def release_of(self, sampling: Any) -> Any:
        """Return the group of queries that a participant answers in a round.

        Args:
            sampling: The sampling of the participant's records.

        Raises:
            ConfigError: The parts do not fit together.
        """
