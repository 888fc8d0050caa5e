"""Certificates against backdoors: how many malicious clients cannot change what a majority of models says.

M independent trainings of a client-level private algorithm vote on a record. Were k of the clients' data
other data, each class' expected share of votes would move by no more than the trade-off curve F of k clients
allows (its largest TPR at each FPR):

    p'_A ≥ 1 - F(1 - p_A),    p'_B ≤ F(p_B)

so the majority for A stands where 1 - F(1 - p_A) > F(p_B) for every other class B. The shares are known from
M votes: Clopper-Pearson bounds, all records and classes together. Only where the server clips: a client that
clips its own upload may not.
Source: for DP and certified robustness Ma, Zhu, Hsu 2019; for client level and FL Xie et al. 2023 (CCS).
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
"""FPR → the largest TPR."""


def certified(votes: np.ndarray, curve: Curve, significance: float) -> np.ndarray:
    """Which records' majority stands, with confidence for all of them together.

    Args:
        votes: How many of the M models say each class [n, classes].
        curve: F of the clients that may be malicious.
        significance: Of all records and classes together.

    Returns:
        [n] (bool).
    """
    votes = np.asarray(votes)
    models = votes.sum(axis=1)
    each = significance / votes.size
    winner = votes.argmax(axis=1)
    rows = np.arange(len(votes))
    least = lower(votes[rows, winner], models, each)
    most = upper(votes, models[:, None], each)
    most[rows, winner] = 0.0
    rival = np.minimum(most.max(axis=1), 1.0 - least)
    return 1.0 - curve(1.0 - least) > curve(rival)


def lower(count: np.ndarray, trials: np.ndarray, significance: float) -> np.ndarray:
    """The Clopper-Pearson bound of a probability from below."""
    count, trials = np.broadcast_arrays(np.asarray(count, float), np.asarray(trials, float))
    found = np.zeros(count.shape)
    some = count > 0
    found[some] = special.betaincinv(count[some], trials[some] - count[some] + 1.0, significance)
    return found


def upper(count: np.ndarray, trials: np.ndarray, significance: float) -> np.ndarray:
    """The same from above."""
    return 1.0 - lower(np.asarray(trials, float) - count, trials, significance)


def votes_of_trainings(config: DictConfig, trainings: int, inputs: Tensor) -> np.ndarray:
    """How many of so many independent trainings (with the same initial weights) say each class of each of the
    ``inputs`` [n, …] → [n, classes]."""
    parts = build_parts(config)
    context = context_of(parts)
    weights, votes = context.model.flat.clone(), None
    for number in range(trainings):
        context.model.set(weights)
        context.streams = SecretStreams.simulated(
            parts.settings.seed, number, "a training that votes"
        )
        loop = Loop(parts, context, None)
        loop.settings = replace(loop.settings, evaluation_interval=10**9)
        loop.run([], Interrupts(None))
        context.model.module.eval()
        with torch.no_grad():
            outputs = context.model(inputs)
        said = torch.nn.functional.one_hot(outputs.argmax(1), outputs.shape[1])
        votes = said if votes is None else votes + said
    assert votes is not None  # there is one training at least
    return votes.cpu().numpy()
