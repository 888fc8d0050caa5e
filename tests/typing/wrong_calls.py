"""Five wrong calls, each of which mypy must report (test_wrong_calls.py). Nothing here is ever run."""

from __future__ import annotations

import numpy as np

from fedpriv.algorithms.server_steps import AddChange
from fedpriv.models.cnn import Cnn
from fedpriv.privacy.accountants.rdp import RdpAccountant
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.calibration import RepeatedRelease, calibrate_noise_multiplier
from fedpriv.privacy.clippers.quantile import QuantileClipper
from fedpriv.privacy.mechanisms.announcement import Announcement
from fedpriv.privacy.mechanisms.bounded import Bounded


def move_the_weights_by_what_no_noise_hides(server: AddChange, clipped: Bounded) -> None:
    server.apply(np.arange(3), clipped)  # wrong: not Visible


def charge_what_was_not_released(budget: Budget, clipped: Bounded, t: Announcement) -> None:
    budget.charge([clipped], t)  # wrong: no Release


def clip_at_a_norm_of_another_name() -> QuantileClipper:
    return QuantileClipper(initial_clip_norm=1.0, quantile=0.5)  # wrong: target_quantile


def calibrate_to_no_budget(rdp: RdpAccountant, lots: RepeatedRelease) -> float:
    return calibrate_noise_multiplier(rdp, lots, epsilon=None, delta=1e-5, steps=9)  # wrong


def build_a_model_without_classes() -> object:
    return Cnn(seed=0).build((1, 28, 28))  # wrong: no number of classes
