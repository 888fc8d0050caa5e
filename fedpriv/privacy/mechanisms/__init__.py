"""Releases: which values leave the clients, how each value is noised, and what each release is charged.

One description, a :class:`Query`, gives both the noise that is added and the event that is charged, so the
two cannot disagree. Begin with ``mechanism``, which announces and opens a round, and ``round``, which noises
the answers and keeps the record. The families of noise are in ``gaussian``, ``discrete``,
``randomized_response`` and ``matrix``. ``bounded`` holds values before the noise, and ``visible`` holds
values after the noise. ``claims`` states the theorems of published works. No module here imports torch before
a value is noised, so that a plan needs no torch.
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
