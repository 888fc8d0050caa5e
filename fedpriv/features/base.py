"""What fixed features of images offer: they read no training data, so they cost no privacy.

Statistics of the training data that normalize them are another thing (``normalization=released``): clients
release them, with noise, and pay for that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.common.words import counted
from fedpriv.data.records import ReleasedStatistics
from fedpriv.features import public_statistics

if TYPE_CHECKING:
    import torch

GROUPS, STATISTICS, RELEASED, NONE = "groups", "statistics", "released", "none"
EPSILON = 1e-5
"""Added to variances."""


class Features(ABC):
    """Coefficients [C', H', W'] of an image [C, H, W], each number a function of that image alone.

    Args:
        normalization: ``groups``: in each record the numbers of each group of channels get mean 0 and
            variance 1 (Wu, He 2018), which needs no statistics; ``statistics``: each channel has the mean
            subtracted and is divided by the standard deviation that it has on the public images named by
            ``statistics``; ``released``: the same with statistics of the training records, which clients
            release with noise before the first round (the model's first layer does it: records stay as they
            are); ``none``.
        groups: How many groups; a divisor of the number of channels.
        statistics: Whose; one of those that fedpriv brings for these features. With ``released`` records are
            normalized by these first, so that channels of little variance do not drown in the noise that all
            share; None: by nothing.
        statistics_noise_multiplier: Of the release, noise std ÷ ``statistics_clip_norm``.
        statistics_clip_norm: To which L2 norm each record's statistics are shortened.

    Raises:
        ArgumentError: An argument is not allowed.
    """

    name: ClassVar[str]

    def __init__(
        self,
        normalization: str = GROUPS,
        groups: int | None = None,
        statistics: str | None = None,
        statistics_noise_multiplier: float | None = None,
        statistics_clip_norm: float | None = None,
    ):
        self.normalization = checks.one_of(
            "normalization", normalization, (GROUPS, STATISTICS, RELEASED, NONE)
        )
        self.groups = 1 if groups is None else checks.whole("groups", groups, at_least=1)
        self.statistics = None
        if self.normalization == STATISTICS or (
            self.normalization == RELEASED and statistics is not None
        ):
            known = public_statistics.names(self.key())
            if statistics not in known:
                none = "null: there are statistics of the default sizes of scattering and hog alone"
                allowed = "one of " + ", ".join(known) if known else none
                raise ArgumentError("statistics", statistics, allowed)
            self.statistics = statistics
        elif statistics is not None:
            allowed = "null unless normalization=statistics or released"
            raise ArgumentError("statistics", statistics, allowed)
        self.statistics_noise_multiplier = self._of_released(
            "statistics_noise_multiplier", statistics_noise_multiplier
        )
        self.statistics_clip_norm = self._of_released("statistics_clip_norm", statistics_clip_norm)

    def _of_released(self, name: str, value: float | None) -> float | None:
        """An argument of ``normalization=released`` alone, checked. Raises ArgumentError."""
        if self.normalization == RELEASED:
            return checks.number(name, value, above=0, at_most=1e6)
        if value is not None:
            raise ArgumentError(name, value, "null unless normalization=released")
        return None

    def released_statistics(self, channels: int) -> ReleasedStatistics | None:
        """What clients release to normalize so many channels; None: nothing."""
        if self.normalization != RELEASED:
            return None
        return ReleasedStatistics(
            self.statistics_noise_multiplier, self.statistics_clip_norm, channels
        )

    @abstractmethod
    def key(self) -> str:
        """What the coefficients are before they are normalized, in letters, digits and hyphens."""

    @abstractmethod
    def shape(self, image: tuple[int, int, int]) -> tuple[int, int, int]:
        """The shape of what an image of this shape becomes.

        Raises:
            ArgumentError: No image of this shape has these features; the argument is the features' own.
        """

    @abstractmethod
    def coefficients(self, images: torch.Tensor) -> torch.Tensor:
        """[n, *shape] of images [n, C, H, W] with pixels in [0, 1]; torch's random state is not read."""

    def output_shape(self, image: tuple[int, int, int]) -> tuple[int, int, int]:
        """As ``shape``, and fit to be normalized. Raises ArgumentError."""
        found = self.shape(image)
        if self.normalization == GROUPS and found[0] % self.groups:
            raise ArgumentError("groups", self.groups, f"a divisor of the {found[0]} channels")
        return found

    def normalize(self, coefficients: torch.Tensor) -> torch.Tensor:
        """Coefficients [n, C', H', W'] as records hold them, float32."""
        import torch

        found = coefficients.float()
        if self.normalization == GROUPS:
            return torch.nn.functional.group_norm(found, self.groups, eps=EPSILON)
        if self.statistics is not None:
            mean, variance = public_statistics.of(self.key(), self.statistics, found.shape[1])
            scale = (torch.tensor(variance) + EPSILON).rsqrt()
            return (found - torch.tensor(mean)[:, None, None]) * scale[:, None, None]
        return found

    def describe(self) -> str:
        """How the coefficients are normalized, in words."""
        if self.normalization == GROUPS:
            return f"normalized in each record in {counted(self.groups, 'group')} of channels"
        by = (
            []
            if self.statistics is None
            else [f"the statistics of {self.statistics}, taken as public"]
        )
        if self.normalization == RELEASED:
            by.append("statistics that the clients release before the first round")
        return "normalized by " + ", then by ".join(by) if by else "not normalized"
