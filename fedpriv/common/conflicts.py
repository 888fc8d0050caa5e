"""What the parts of a run refuse in one another."""

from __future__ import annotations

from typing import Any, Protocol

RELEASED_ONCE = (
    "with features.normalization=released every client releases once, before the first round"
)
"""Why parts that count on other clients, or other noise, do not go with that release."""


class Combination(Protocol):
    """All parts of a run, as a part's method ``conflicts(parts)`` sees them.

    A part asks the others for attributes that their base classes declare (``algorithm.trust``,
    ``clipper.transforms``, ``noise_schedule.adaptive``), never for their class.
    """

    @property
    def settings(self) -> Any:
        """The root keys."""

    @property
    def dataset(self) -> Any:
        """The data set as the model reads it, with features in the place of images."""

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
    def trackers(self) -> Any:
        """The trackers by name."""

    @property
    def without_noise(self) -> bool:
        """True where nothing is private: by the algorithm, or because its noise is 0."""

    @property
    def released_statistics(self) -> Any:
        """The release of clients by which features are normalized, or None."""

    @property
    def even_share(self) -> int:
        """Records of a client, if they were dealt out evenly."""

    @property
    def shares_known(self) -> bool:
        """False where the privacy cost depends on numbers of records that only the data tell."""

    @property
    def other_accountants(self) -> Any:
        """Accountants that a refused one may be replaced by."""

    def release_of(self, sampling: Any) -> Any:
        """Return what a participant that samples so releases in a round. Raises ConfigError."""
