"""Statistics of how well scores tell two groups apart, with 95 % intervals.

    AUC   P(score of a member > that of a non-member) + P(equal)/2
    TPR   share of members above the lowest threshold that at most a share α of non-members exceed

Reference:
    E. DeLong et al. (Biometrics 1988) and X. Sun, W. Xu (IEEE SPL 2014) for the variance of AUC; M. Pepe
    (2003) for its logit. C. Clopper, E. Pearson (Biometrika 1934). TPR at a low FPR: Carlini et al.,
    "Membership inference attacks from first principles" (S&P 2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, norm, rankdata
from sklearn.metrics import roc_curve

LEVEL = 0.95
RESAMPLES = 1000
INTERVALS = (
    "95 % intervals: of AUC by DeLong's variance on the logit scale; of TPR by a stratified bootstrap of "
    f"{RESAMPLES} resamples, widened to the Clopper-Pearson interval at the threshold."
)
_TAIL = (1.0 - LEVEL) / 2.0


@dataclass(frozen=True)
class Estimate:
    """A value and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def auc(members: np.ndarray, others: np.ndarray) -> Estimate:
    """Return the AUC of scores, with its interval.

    If all pairs are in order (or none), the interval is that of min(m, n) disjoint pairs.

    Args:
        members: Scores of members [m], at least two.
        others: Scores of non-members [n], at least two.

    Example:
        >>> auc(np.array([2.0, 3.0, 4.0]), np.array([0.0, 1.0, 2.5])).value.__round__(3)
        0.889
    """
    m, n = len(members), len(others)
    among_all = rankdata(np.concatenate([members, others]))
    above_members = (among_all[:m] - rankdata(members)) / n  # share of others below each member
    above_others = 1.0 - (among_all[m:] - rankdata(others)) / m
    value = float(above_members.mean())
    if value in (0.0, 1.0):
        edge = _TAIL ** (1.0 / min(m, n))
        return Estimate(value, edge, 1.0) if value else Estimate(value, 0.0, 1.0 - edge)
    sd = math.sqrt(above_members.var(ddof=1) / m + above_others.var(ddof=1) / n)
    logit, reach = math.log(value / (1 - value)), -norm.ppf(_TAIL) * sd / (value * (1 - value))
    return Estimate(value, *(1 / (1 + math.exp(-x)) for x in (logit - reach, logit + reach)))


def tpr_at(
    members: np.ndarray, others: np.ndarray, fpr: float, stream: np.random.Generator
) -> Estimate | None:
    """Return the TPR at a false positive rate of at most ``fpr``, with its interval.

    Args:
        members: Scores of members [m].
        others: Scores of non-members [n].
        fpr: The false positive rate.
        stream: Random stream of the bootstrap.

    Returns:
        The TPR, or None with fewer than 1/fpr non-members: it would then say only how many members exceed all
        of these.
    """
    if len(others) * fpr < 1 - 1e-9:
        return None
    value = float(_tpr(members[None], others[None], fpr)[0])
    above, m = round(value * len(members)), len(members)
    exact = (
        float(beta.ppf(_TAIL, above, m - above + 1)) if above else 0.0,
        float(beta.ppf(1 - _TAIL, above + 1, m - above)) if above < m else 1.0,
    )
    piece = max(1, 4_000_000 // (len(members) + len(others)))  # resamples in memory at a time
    resampled = [
        _tpr(_resample(members, count, stream), _resample(others, count, stream), fpr)
        for count in (min(piece, RESAMPLES - done) for done in range(0, RESAMPLES, piece))
    ]
    low, high = np.quantile(np.concatenate(resampled), [_TAIL, 1 - _TAIL])
    return Estimate(value, min(exact[0], float(low)), max(exact[1], float(high)))


def roc(members: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ROC curve of scores.

    Args:
        members: Scores of members [m].
        others: Scores of non-members [n].

    Returns:
        (FPR, TPR) at every threshold, from (0, 0) to (1, 1).
    """
    is_member = np.arange(len(members) + len(others)) < len(members)
    scores = np.concatenate([members, others])
    return roc_curve(is_member, scores, drop_intermediate=False)[:2]


def _tpr(members: np.ndarray, others: np.ndarray, fpr: float) -> np.ndarray:
    """Return the TPR of each resample [r], from scores of members [r, m] and others [r, n]."""
    allowed = math.floor(others.shape[1] * fpr + 1e-9)
    if allowed >= others.shape[1]:
        return np.ones(len(members))
    index = others.shape[1] - 1 - allowed
    threshold = np.partition(others, index, axis=1)[:, index]
    return (members > threshold[:, None]).mean(1)


def _resample(scores: np.ndarray, count: int, stream: np.random.Generator) -> np.ndarray:
    return scores[stream.integers(len(scores), size=(count, len(scores)))]
