"""What is released and how it is noised: one description, from which the noise and the charge both follow.

Begin with ``mechanism`` (announces and opens a round) and ``round`` (releases, and keeps the record).
``query`` is a value with its kind of noise: ``gaussian``, ``discrete``, ``randomized_response``, ``matrix``.
``bounded`` and ``visible`` are the values before and after the noise. ``claims`` are the theorems of
published works. Nothing here needs torch until a value is noised: a plan needs none.
"""

from fedpriv.privacy.mechanisms.announcement import Announcement, Group
from fedpriv.privacy.mechanisms.bounded import DOUBLED, ONE_HOT, Bounded
from fedpriv.privacy.mechanisms.gaussian import GaussianQuery
from fedpriv.privacy.mechanisms.joint import (
    CLIP_STATISTIC,
    FEATURE_STATISTICS,
    GRADIENT,
    TRAINING_LOSS,
    JointQuery,
    joint_noise_multiplier,
)
from fedpriv.privacy.mechanisms.mechanism import Mechanism
from fedpriv.privacy.mechanisms.query import Query
from fedpriv.privacy.mechanisms.randomized_response import RandomizedBit
from fedpriv.privacy.mechanisms.release import Release
from fedpriv.privacy.mechanisms.round import OpenRound
from fedpriv.privacy.mechanisms.visible import Foreign, Public, Released, Unprotected, Visible

__all__ = [
    "CLIP_STATISTIC",
    "DOUBLED",
    "FEATURE_STATISTICS",
    "GRADIENT",
    "ONE_HOT",
    "TRAINING_LOSS",
    "Announcement",
    "Bounded",
    "Foreign",
    "GaussianQuery",
    "Group",
    "JointQuery",
    "Mechanism",
    "OpenRound",
    "Public",
    "Query",
    "RandomizedBit",
    "Release",
    "Released",
    "Unprotected",
    "Visible",
    "joint_noise_multiplier",
]
