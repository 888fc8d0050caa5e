"""Certificates against backdoors: how many malicious clients cannot change a majority vote of models.

M independent trainings of a client-level private algorithm vote on a record. If the data of k clients were
different, the expected share of votes of each class would move by no more than the trade-off curve F of k
clients allows (its largest TPR at each FPR):

    p'_A ≥ 1 - F(1 - p_A),    p'_B ≤ F(p_B)

So the majority for A stands if 1 - F(1 - p_A) > F(p_B) for every other class B. Clopper-Pearson bounds
estimate the shares from M votes, for all records and classes together. The certificate holds only where the
server clips, because a malicious client need not clip its own upload.

Reference:
    Ma, Zhu, Hsu, 2019 (DP and certified robustness); Xie et al., CCS 2023 (client level and FL).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from omegaconf import DictConfig
from scipy import special
from torch import Tensor

from fedpriv.common.secret_streams import SecretStreams
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.interrupts import Interrupts
from fedpriv.experiment.loop import Loop
from fedpriv.tools.audit.epsilon_trial import context_of

Curve = Callable[[np.ndarray], np.ndarray]
"""A function from FPR to the largest TPR."""


def certified(votes: np.ndarray, curve: Curve, significance: float) -> np.ndarray:
    """Return which records' majority stands, with confidence for all of them together.

    Args:
        votes: Number of models that say each class, for each record [n, classes].
        curve: Trade-off curve F of the clients that may be malicious.
        significance: Probability that any of the returned certificates is wrong.

    Returns:
        Mask of the certified records [n] (bool).

    Example:
        >>> votes = np.array([[1000, 0], [510, 490]])
        >>> certified(votes, curve=lambda fpr: np.minimum(1.0, 2.0 * fpr), significance=0.05).tolist()
        [True, False]
    """
    votes = np.asarray(votes)
    models = votes.sum(axis=1)
    share_of_significance = significance / votes.size
    winner = votes.argmax(axis=1)
    rows = np.arange(len(votes))
    winner_low = lower(votes[rows, winner], models, share_of_significance)
    upper_bounds = upper(votes, models[:, None], share_of_significance)
    upper_bounds[rows, winner] = 0.0
    rival_high = np.minimum(upper_bounds.max(axis=1), 1.0 - winner_low)
    return 1.0 - curve(1.0 - winner_low) > curve(rival_high)


def lower(count: np.ndarray, trials: np.ndarray, significance: float) -> np.ndarray:
    """Return the Clopper-Pearson lower bound of a probability, after ``count`` of ``trials``.

    Args:
        count: Number of successes.
        trials: Number of trials; broadcast with ``count``.
        significance: Probability that a bound is above the truth.
    """
    count, trials = np.broadcast_arrays(np.asarray(count, float), np.asarray(trials, float))
    bounds = np.zeros(count.shape)
    positive = count > 0
    bounds[positive] = special.betaincinv(
        count[positive], trials[positive] - count[positive] + 1.0, significance
    )
    return bounds


def upper(count: np.ndarray, trials: np.ndarray, significance: float) -> np.ndarray:
    """Return the Clopper-Pearson upper bound of a probability; see :func:`lower`."""
    return 1.0 - lower(np.asarray(trials, float) - count, trials, significance)


def votes_of_trainings(config: DictConfig, trainings: int, inputs: Tensor) -> np.ndarray:
    """Return how many of several independent trainings say each class of each input.

    All trainings start from the same initial weights.

    Args:
        config: Configuration of the run to train.
        trainings: Number of trainings, at least one.
        inputs: Inputs to vote on [n, …].

    Returns:
        Votes [n, classes].
    """
    parts = build_parts(config)
    context = context_of(parts)
    weights = context.model.flat.clone()
    counts = []
    for number in range(trainings):
        context.model.set(weights)
        context.streams = SecretStreams.simulated(
            parts.settings.seed, number, "a training that votes"
        )
        loop = Loop(parts, context, None)
        loop.settings = replace(
            loop.settings, evaluation_interval=10**9
        )  # only the last model votes
        loop.run([], Interrupts(None))
        context.model.module.eval()
        with torch.no_grad():
            outputs = context.model(inputs)
        counts.append(torch.nn.functional.one_hot(outputs.argmax(1), outputs.shape[1]))
    return torch.stack(counts).sum(0).cpu().numpy()
