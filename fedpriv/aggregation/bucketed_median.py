"""The median of the noised means of buckets of clients, for trust models that release only noised sums.

    each client draws its bucket      b_k uniform on 0 … B-1, whoever else takes part
    one release, all buckets          s_b = Σ_{k: b_k = b} u_k min(1, C/‖u_k‖) + N(0, (z C)² I),   b = 0 … B-1
    the upload of the server's step   median_b  s_b / (m/B),   coordinate by coordinate

m is the public denominator of the cohort's sum, such as qK. A client moves one of the B sums by at most C.
So the stacked vector (s_0, …, s_{B-1}) has the sensitivity of one sum: C where neighbours add or remove a
client, 2C where they replace one. All buckets together are one Gaussian release with noise multiplier z, and
ε is that of the mean. The median is post-processing.

The price is noise: the mean of a bucket has noise of standard deviation z C B/m, and their median about

    √(π B/2) z C/m

where no client attacks, against z C/m of the mean.
f attackers spoil at most f buckets, and the median stays between honest bucket means if B > 2f.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedpriv.aggregation.base import Aggregation, Rule
from fedpriv.aggregation.coordinate import CoordinateMedian
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import declared, field, whole
from fedpriv.common.words import counted

if TYPE_CHECKING:
    from fedpriv.engine import FlatModel


@declared
class BucketedMedian(Aggregation):
    """The coordinate-wise median of the noised means of B buckets of clients; formulas are in the module.

    Attributes:
        buckets: B.
        tolerated: f, the number of malicious clients in a round that the median withstands.

    Raises:
        ArgumentError: There are too few buckets for ``tolerated``: B ≤ 2f.

    Source:
        The release is that of McMahan et al., "Learning differentially private recurrent language models",
        ICLR 2018, for the stacked vector. Medians of means: Yin et al., "Byzantine-robust distributed
        learning: towards optimal statistical rates", ICML 2018; random buckets: Karimireddy, He, Jaggi,
        "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR 2022.

    Example:
        >>> rule = BucketedMedian(buckets=5, tolerated=2)
        >>> rule.describe()
        'median of 5 buckets (tolerates 2 malicious clients), about 2.8 times the noise of the mean'
        >>> BucketedMedian(buckets=4, tolerated=2)
        Traceback (most recent call last):
        ...
        fedpriv.common.errors.ArgumentError: buckets must be more than 2 tolerated = 4, got 4
    """

    buckets: int = field(
        whole(at_least=1),
        default=5,
        unit="B",
        help="number of buckets, of which each client draws one in each round; more than 2 tolerated",
    )
    tolerated: int = field(
        whole(at_least=0),
        default=2,
        unit="f",
        help="number of malicious clients in a round that the median withstands",
    )

    def __attrs_post_init__(self) -> None:
        """Refuse B ≤ 2f."""
        if self.buckets <= 2 * self.tolerated:
            allowed = f"more than 2 tolerated = {2 * self.tolerated}"
            hint = f"{counted(self.tolerated, 'attacker')} may spoil as many buckets"
            raise ArgumentError("buckets", self.buckets, allowed, hint)

    def start(self, model: FlatModel) -> Rule:
        return CoordinateMedian().start(model)

    def describe(self) -> str:
        noise = math.sqrt(math.pi * self.buckets / 2.0)
        return (
            f"median of {counted(self.buckets, 'bucket')} (tolerates "
            f"{counted(self.tolerated, 'malicious client')}), about {noise:.2g} times the noise of the mean"
        )
