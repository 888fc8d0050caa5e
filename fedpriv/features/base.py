"""Base class of fixed features of images. They read no training data, so they cost no privacy.

Statistics of the training data that normalize features (``normalization=released``) do cost privacy: the
clients release them with noise, and the release is charged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import Allowed, declared, field, one_of, or_null, whole
from fedpriv.common.words import counted
from fedpriv.data.records import ReleasedStatistics
from fedpriv.features import public_statistics

if TYPE_CHECKING:
    import torch


GROUPS, STATISTICS, RELEASED, NONE = "groups", "statistics", "released", "none"
EPSILON = 1e-5
"""Added to variances."""


def _statistics(name: str, value: Any, part: Features) -> str | None:
    """Check the name of the public statistics. Raise ArgumentError for an unknown name."""
    if part.normalization not in (STATISTICS, RELEASED):
        if value is not None:
            allowed = "null unless normalization=statistics or released"
            raise ArgumentError(name, value, allowed)
    elif part.normalization == STATISTICS or value is not None:
        known = public_statistics.names(part.key())
        if value not in known:
            none = "null: there are statistics of the default sizes of scattering and hog alone"
            raise ArgumentError(name, value, "one of " + ", ".join(known) if known else none)
    return value


def _of_released(name: str, value: Any, part: Features) -> float | None:
    """Check an argument that must be null unless ``normalization=released``. Raise ArgumentError."""
    if part.normalization == RELEASED:
        return checks.number(name, value, above=0, at_most=1e6)
    if value is not None:
        raise ArgumentError(name, value, "null unless normalization=released")
    return None


@declared
class Features(ABC):
    """Coefficients [C', H', W'] of an image [C, H, W]; each number is a function of that image alone.

    The privacy guarantee depends on this independence: a coefficient that read other images would not be
    protected by the epsilon of any single record.

    Values of ``normalization``:

    - ``groups``: in each record, the numbers of each group of channels get mean 0 and variance 1 (Wu, He
    2018).
      This needs no statistics.
    - ``statistics``: each channel is shifted and scaled by its mean and standard deviation on the public
    images
      named by ``statistics``.
    - ``released``: each channel is shifted and scaled by statistics of the training records, which clients
      release with noise before the first round. The first layer of the model does this, and the records stay
      as they are. If ``statistics`` is also set, records are first normalized by the public statistics, so
      that channels of little variance do not drown in the noise, which is the same for all channels.
    - ``none``.

    Example:
        >>> from fedpriv.features import Hog
        >>> Hog().shape((1, 28, 28))
        (36, 6, 6)
    """

    name: ClassVar[str]

    normalization: str = field(
        one_of((GROUPS, STATISTICS, RELEASED, NONE)),
        default=GROUPS,
        help=(
            "how features are normalised: by groups of a record's channels, public "
            "statistics, or statistics that clients release"
        ),
    )
    groups: int = field(
        or_null(whole(at_least=1)),
        default=None,
        help="normalization=groups: groups of channels, a divisor of their number; null: 1",
    )
    statistics: str | None = field(
        _statistics,
        default=None,
        help=(
            "data set whose statistics are used and taken as public, mnist or fashion_mnist, "
            "with normalization=statistics or released"
        ),
    )
    statistics_noise_multiplier: float | None = field(
        Allowed(_of_released, "number > 0 and <= 1e+06"),
        default=None,
        help="normalization=released: noise std / clip norm of the one release, which is charged",
    )
    statistics_clip_norm: float | None = field(
        Allowed(_of_released, "number > 0 and <= 1e+06"),
        default=None,
        help="normalization=released: L2 norm to which each record's means and mean squares are clipped",
    )

    def __attrs_post_init__(self) -> None:
        if self.groups is None:
            self.groups = 1

    def released_statistics(self, channels: int) -> ReleasedStatistics | None:
        """Return the clients' release that normalizes ``channels`` channels, or None without a release."""
        if self.statistics_noise_multiplier is None or self.statistics_clip_norm is None:
            return None
        return ReleasedStatistics(
            self.statistics_noise_multiplier, self.statistics_clip_norm, channels
        )

    @abstractmethod
    def key(self) -> str:
        """Return a key of the coefficients before normalization, in letters, digits and hyphens.

        The cache and the public statistics are found by this key, so it must contain every setting that
        changes the coefficients.
        """

    @abstractmethod
    def shape(self, image: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return the shape of the features of an image.

        Args:
            image: Shape ``(C, H, W)`` of an image.

        Returns:
            The shape ``(C', H', W')``.

        Raises:
            ArgumentError: These features cannot be computed of such an image; the error names an argument of
                the features.
        """

    @abstractmethod
    def coefficients(self, images: torch.Tensor) -> torch.Tensor:
        """Compute the coefficients of images. Torch's random state is not read.

        Args:
            images: Images [n, C, H, W] with pixels in [0, 1].

        Returns:
            Coefficients [n, *shape], of each image by itself.
        """

    def output_shape(self, image: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return ``shape`` after checking that it can be normalized.

        Raises:
            ArgumentError: No such features of this image, or ``groups`` does not divide the channels.
        """
        shape = self.shape(image)
        if self.normalization == GROUPS and shape[0] % self.groups:
            raise ArgumentError("groups", self.groups, f"a divisor of the {shape[0]} channels")
        return shape

    def normalize(self, coefficients: torch.Tensor) -> torch.Tensor:
        """Normalize coefficients [n, C', H', W'] to float32, except by released statistics.

        Under ``released`` without ``statistics`` and under ``none`` the values stay as they are.
        """
        import torch

        values = coefficients.float()
        if self.normalization == GROUPS:
            return torch.nn.functional.group_norm(values, self.groups, eps=EPSILON)
        if self.statistics is not None:
            mean, variance = public_statistics.of(self.key(), self.statistics, values.shape[1])
            scale = (torch.tensor(variance) + EPSILON).rsqrt()
            return (values - torch.tensor(mean)[:, None, None]) * scale[:, None, None]
        return values

    def describe(self) -> str:
        """Describe the normalization for the plan."""
        if self.normalization == GROUPS:
            return f"normalized in each record in {counted(self.groups, 'group')} of channels"
        sources = (
            []
            if self.statistics is None
            else [f"the statistics of {self.statistics}, taken as public"]
        )
        if self.normalization == RELEASED:
            sources.append("statistics that the clients release before the first round")
        return "normalized by " + ", then by ".join(sources) if sources else "not normalized"
