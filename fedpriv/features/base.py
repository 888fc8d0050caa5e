"""What fixed features of images offer: they read no training data, so they cost no privacy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.features import public_statistics

if TYPE_CHECKING:
    import torch

GROUPS, STATISTICS, NONE = "groups", "statistics", "none"
_EPSILON = 1e-5  # added to variances


class Features(ABC):
    """Coefficients [C', H', W'] of an image [C, H, W], each number a function of that image alone.

    Args:
        normalization: ``groups``: in each record the numbers of each group of channels get mean 0 and
            variance 1 (Wu, He 2018), which needs no statistics; ``statistics``: each channel has the mean
            subtracted and is divided by the standard deviation that it has on the public images named by
            ``statistics``; ``none``.
        groups: How many groups; a divisor of the number of channels.
        statistics: Whose; one of those that fedpriv brings for these features.

    Raises:
        ArgumentError: An argument is not allowed.
    """

    name: ClassVar[str]

    def __init__(
        self, normalization: str = GROUPS, groups: int | None = None, statistics: str | None = None
    ):
        self.normalization = checks.one_of(
            "normalization", normalization, (GROUPS, STATISTICS, NONE)
        )
        self.groups = 1 if groups is None else checks.whole("groups", groups, at_least=1)
        self.statistics = None
        if self.normalization == STATISTICS:
            known = public_statistics.names(self.key())
            if statistics not in known:
                raise ArgumentError("statistics", statistics, "one of " + ", ".join(known) if known
                                    else "that of other features: there are none of these")  # fmt: skip
            self.statistics = statistics
        elif statistics is not None:
            raise ArgumentError("statistics", statistics, "null unless normalization=statistics")

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
        """Coefficients [n, C', H', W'] as the model reads them, float32."""
        import torch

        found = coefficients.float()
        if self.normalization == GROUPS:
            return torch.nn.functional.group_norm(found, self.groups, eps=_EPSILON)
        if self.normalization == STATISTICS:
            mean, variance = public_statistics.of(self.key(), self.statistics, found.shape[1])
            scale = (torch.tensor(variance) + _EPSILON).rsqrt()
            return (found - torch.tensor(mean)[:, None, None]) * scale[:, None, None]
        return found

    def describe(self) -> str:
        """How the coefficients are normalized, in words."""
        if self.normalization == GROUPS:
            return f"normalized in each record in {self.groups} groups of channels"
        if self.normalization == STATISTICS:
            return f"normalized by the statistics of {self.statistics}, taken as public"
        return "not normalized"
