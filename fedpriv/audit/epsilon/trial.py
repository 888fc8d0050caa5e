"""Trainings with canaries, and their scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
from omegaconf import DictConfig

from fedpriv.algorithms.problem import Problem
from fedpriv.attacks.canaries import Planted
from fedpriv.attacks.canary_scores import Kind, WatchedWork
from fedpriv.audit.epsilon.guesses import Scores
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.experiment.assemble import make_problem
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.canaries import watch_canaries
from fedpriv.experiment.interrupts import Interrupts
from fedpriv.experiment.loop import Loop
from fedpriv.experiment.machine import resolve_device
from fedpriv.experiment.parts import Parts
from fedpriv.results.canary_file import FINAL, RELEASES

_STREAMS = "audit of epsilon"


@dataclass(frozen=True)
class Trial:
    """``scores``: by observer: of every release, and of the last model alone; ``released``: what a canary was
    part of, and how often; ``independent``: whether each canary was in a run of its own."""

    scores: dict[str, Scores]
    released: Counter[Kind]
    rounds: int
    independent: bool


def train_with_canaries(
    config: DictConfig, canaries: int, rounds: int, seed: int, fewer: bool = False
) -> Trial:
    """Train what ``config`` says once more for so many rounds, with canaries in it and fresh noise of
    ``seed``; ``fewer``: where the model has no room for so many, as many as there is room for. The budget
    is not asked: the rounds are those that it allowed."""
    parts = build_parts(config)
    device = resolve_device(parts.settings.runtime.device)
    problem = make_problem(parts, device, canaries, seed, fewer)
    planted = problem.canaries
    if alone(parts):
        return _one_by_one(parts, problem, planted, rounds, seed)
    problem.streams = _streams(parts, seed)
    loop = Loop(parts, problem, None)
    loop.settings = replace(loop.settings, rounds=rounds, evaluation_interval=rounds)
    watched = watch_canaries(loop)
    before = problem.model.flat.clone()
    loop.run([], Interrupts(None))
    moved = (problem.model.flat - before).double().cpu().numpy()
    towards = -1.0 if planted.canaries.unit == "record" else 1.0
    coins, places = planted.canaries.coins, planted.canaries.coordinates
    scores = {
        RELEASES: Scores(watched.scores, coins),
        FINAL: Scores(towards * moved[places], coins),
    }
    return Trial(scores, watched.released, loop.rounds_done, independent=False)


def alone(parts: Parts) -> bool:
    """Whether each canary takes part alone: where every upload is seen and noised, but only the noise of
    their sum is drawn in a run, an upload is seen by itself in a cohort of one."""
    return parts.algorithm.unit == "client" and parts.algorithm.trust.sees_each_upload


def _one_by_one(parts: Parts, problem: Problem, planted: Planted, rounds: int, seed: int) -> Trial:
    mechanism = problem.mechanism
    trainer = parts.algorithm.start(problem)
    watched = WatchedWork(trainer.work, problem, planted, alone=True)
    trainer.work = watched
    weights = problem.model.flat.clone()
    start = deepcopy(trainer.state_dict())
    for home in planted.canaries.homes:
        trainer.load_state_dict(start)
        problem.model.set(weights)
        problem.streams = _streams(parts, seed, int(home))
        cohort = np.array([home])
        for t in range(rounds):
            trainer.round(mechanism.open(mechanism.announce(t), cohort, problem.streams, cohort))
    scores = {RELEASES: Scores(watched.scores, planted.canaries.coins)}
    return Trial(scores, watched.released, rounds, independent=True)


def _streams(parts: Parts, seed: int, canary: int | None = None) -> SecretStreams:
    name = _STREAMS if canary is None else f"{_STREAMS}, client {canary}"
    return SecretStreams.simulated(seed, parts.settings.noise_seed, name)


def pooled(trials: Iterable[Trial]) -> Trial:
    """Several trials as one: each canary is in one of them alone, so that together they are a run of all
    canaries with the same guarantee for each."""
    trials = list(trials)
    first = trials[0]

    def together(observer: str) -> Scores:
        found = [trial.scores[observer] for trial in trials]
        return Scores(
            np.concatenate([s.values for s in found]), np.concatenate([s.included for s in found])
        )

    scores = {observer: together(observer) for observer in first.scores}
    return Trial(scores, first.released, first.rounds, first.independent)
