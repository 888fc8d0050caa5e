"""What fixed features of images offer: they read no training data, so they cost no privacy.

Statistics of the training data that normalize them are another thing (``normalization=released``): clients
release them, with noise, and pay for that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import Allowed, declared, field, one_of, or_null, whole
from fedpriv.common.groups import option_of
from fedpriv.common.words import counted
from fedpriv.data.records import ReleasedStatistics
from fedpriv.features import public_statistics

if TYPE_CHECKING:
    import torch

    from fedpriv.common.conflicts import Combination

GROUPS, STATISTICS, RELEASED, NONE = "groups", "statistics", "released", "none"
EPSILON = 1e-5
"""Added to variances."""


def _statistics(name: str, value: Any, part: Features) -> str | None:
    """Check whose statistics normalize the features. Raises ArgumentError."""
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
    """Check an argument of ``normalization=released`` alone. Raises ArgumentError."""
    if part.normalization == RELEASED:
        return checks.number(name, value, above=0, at_most=1e6)
    if value is not None:
        raise ArgumentError(name, value, "null unless normalization=released")
    return None


@declared
class Features(ABC):
    """Coefficients [C', H', W'] of an image [C, H, W], each number a function of that image alone.

    ``normalization`` says what is done to them:

    - ``groups``: in each record the numbers of each group of channels get mean 0 and variance 1 (Wu, He
      2018), which needs no statistics;
    - ``statistics``: each channel has the mean subtracted and is divided by the standard deviation that it
      has on the public images named by ``statistics``;
    - ``released``: the same with statistics of the training records, which clients release with noise before
      the first round. The model's first layer does it: records stay as they are. With ``statistics`` records
      are normalized by these first, so that channels of little variance do not drown in the noise that all
      share;
    - ``none``.
    """

    name: ClassVar[str]

    normalization: str = field(
        one_of((GROUPS, STATISTICS, RELEASED, NONE)),
        default=GROUPS,
        help="by groups of each record's channels, public statistics, or statistics that clients release",
    )
    groups: int = field(
        or_null(whole(at_least=1)),
        default=None,
        help="normalization=groups: groups of channels, a divisor of their number; null: 1",
    )
    statistics: str | None = field(
        _statistics,
        default=None,
        help="normalization=statistics or released: whose, mnist or fashion_mnist, taken as public",
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

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        """Refuse what needs images, and a release of statistics by clients that cannot make one."""
        algorithm, attack = parts.algorithm, parts.attack
        if algorithm.augmentation is not None:
            allowed = "none with algorithm.augmentation_multiplicity"
            hint = "flips and crops need images, which such features are not"
            yield ConfigError("features", self.name, allowed, hint)
        if parts.released_statistics is not None and not algorithm.releases_feature_statistics:
            yield ConfigError(
                "features.normalization",
                RELEASED,
                f"groups, statistics or none with algorithm={algorithm.name}",
                "the clients of dp_fl_server and dp_fl release statistics of features",
            )
        misfit = (lambda dataset: None) if attack is None else attack.trigger.misfit
        if misfit(parts.dataset) and not misfit(parts.dataset.without_features()):
            hint = f"attack={option_of('attack', attack.trigger)} changes pixels"
            yield ConfigError("features", self.name, "none with this attack", hint)

    def released_statistics(self, channels: int) -> ReleasedStatistics | None:
        """What clients release to normalize so many channels; None: nothing."""
        if self.statistics_noise_multiplier is None or self.statistics_clip_norm is None:
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
