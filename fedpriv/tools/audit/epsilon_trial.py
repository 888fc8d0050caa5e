"""Trainings with canaries, and the scores of the canaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from omegaconf import DictConfig

from fedpriv.algorithms.client_computation import ClientComputation
from fedpriv.algorithms.run_context import RunContext
from fedpriv.attacks.canaries import PlantedCanaries
from fedpriv.attacks.canary_scores import Kind, WatchedComputation
from fedpriv.attacks.crafted import HOME, CraftedRecord, NeighboursSeen
from fedpriv.common.errors import ConfigError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.data.names import DIRECTION
from fedpriv.experiment.assemble import make_context
from fedpriv.experiment.build import build_parts, without_rule
from fedpriv.experiment.canaries import watch_canaries, watched_computation
from fedpriv.experiment.combinations import NO_STATISTICS
from fedpriv.experiment.interrupts import Interrupts
from fedpriv.experiment.loop import Loop
from fedpriv.experiment.machine import resolve_device
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.warm_start import NOT_AUDITED, begin_warm
from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.store.canary_file import RELEASES, SIZES
from fedpriv.tools.audit.epsilon_guesses import Scores

_STREAMS = "audit of epsilon"  # the name of the secret streams, part of what they are derived from


@dataclass(frozen=True)
class CanaryTrial:
    """The scores of canaries from one or several trainings.

    Attributes:
        scores: Scores by observer (:mod:`fedpriv.store.canary_file`).
        released: Kinds of the releases that a canary was part of, each with its count.
        rounds: Number of rounds of each training.
        independent: Whether each canary was in a run of its own.
        canary: Kind of the canaries.
    """

    scores: dict[str, Scores]
    released: Counter[Kind]
    rounds: int
    independent: bool
    canary: str = DIRECTION


def train_with_canaries(
    config: DictConfig,
    canaries: int,
    rounds: int,
    seed: int,
    fewer: bool = False,
    canary: str = DIRECTION,
) -> CanaryTrial:
    """Train the configured run again with canaries in it, and return their scores.

    A coin decides for each canary whether it is in the training; all are scored. The budget is not checked
    again, because ``rounds`` are those that it allowed the audited run. The aggregation is the mean.

    Args:
        config: Configuration of the audited run.
        canaries: Number of canaries.
        rounds: Number of rounds.
        seed: Seed of canaries and noise.
        fewer: True: plant as many as fit where ``canaries`` is too large. False: raise instead.
        canary: Kind of the canaries.

    Raises:
        ConfigError: So many canaries do not fit, or the run releases statistics before the first round.
    """
    parts = build_parts(without_rule(config))
    context = context_of(parts, canaries, seed, fewer, canary)
    context.streams = _streams(parts, seed)
    loop = Loop(parts, context, None)
    loop.settings = replace(loop.settings, rounds=rounds, evaluation_interval=rounds)
    watched = watch_canaries(loop)
    before = context.model.flat.clone()
    loop.run([], Interrupts(None))
    scores = watched.scores_by_observer(before)
    coins = _planted(context).canaries.coins
    scored = {observer: Scores(values, coins) for observer, values in scores.items()}
    return CanaryTrial(scored, watched.released, loop.rounds_done, independent=False, canary=canary)


def _planted(context: RunContext) -> PlantedCanaries:
    """Return the canaries of a context that has some."""
    return cast("PlantedCanaries", context.canaries)


def must_be_apart(parts: Parts) -> bool:
    """Return whether canaries of one run cannot be told apart, so that each needs a run of its own.

    This is so where each upload is seen and noised, but a run draws only the noise of their sum. A cohort of
    one client shows its upload with its own noise.
    """
    return parts.algorithm.unit == "client" and parts.algorithm.trust.sees_each_upload


def train_apart(
    config: DictConfig, runs: int, rounds: int, seed: int, canary: str = DIRECTION
) -> CanaryTrial:
    """Train runs with one canary each and noise of their own, and return their scores as independent trials.

    Where the server sees each upload, no other client takes part. Noise follows the schedule's plan, whatever
    the schedule would observe.

    Args:
        config: Configuration of the audited run.
        runs: Number of runs.
        rounds: Number of rounds of each run.
        seed: Seed of canaries, coins and noise.
        canary: Kind of the canaries.
    """
    parts = build_parts(without_rule(config))
    context = context_of(parts, 1, seed, canary=canary)
    planted, weights = _planted(context), context.model.flat.clone()
    coins = numpy_stream(seed, "canary_coins_of_runs").random(runs) < 0.5
    scores_by_observer: dict[str, list[float]] = {}
    for number, coin in enumerate(coins):
        planted.toss(np.array([coin]))
        context.model.set(weights)
        context.streams = _streams(parts, seed, number)
        watched = _one_run(parts, context, rounds)
        for observer, (score,) in watched.scores_by_observer(weights).items():
            scores_by_observer.setdefault(observer, []).append(score)
        if watched.size is not None:
            scores_by_observer.setdefault(SIZES, []).append(watched.size)
    scored = {
        observer: Scores(np.array(values), coins) for observer, values in scores_by_observer.items()
    }
    return CanaryTrial(scored, watched.released, rounds, independent=True, canary=canary)


def _one_run(parts: Parts, context: RunContext, rounds: int) -> WatchedComputation:
    """Train one run with the canary of the context, and return the computation that watched it."""
    mechanism, algorithm, planted = context.mechanism, parts.algorithm, _planted(context)
    seen = algorithm.trust.sees_each_upload
    trainer = algorithm.start(context)
    alone = seen and algorithm.unit == "client"
    watched = watched_computation(trainer.computation, context, alone)
    # The watched computation passes everything else on to the algorithm's own.
    trainer.computation = cast("ClientComputation", watched)
    cohort, everyone = planted.canaries.homes, np.ones(context.data.client_count, dtype=bool)
    for t in range(rounds):
        if not seen:
            sampled = algorithm.cohort(context.streams, t, everyone)
            cohort = context.joined_by_attackers(t, sampled)
        trainer.round(mechanism.open(mechanism.announce(t), cohort, context.streams))
    return watched


def train_on_neighbours(config: DictConfig, runs: int, rounds: int, seed: int) -> CanaryTrial:
    """Train runs of one client on whole data, with or without a crafted record by a coin of each run.

    Args:
        config: Configuration of the audited run.
        runs: Number of runs.
        rounds: Number of rounds of each run.
        seed: Seed of coins and noise.

    Returns:
        The scores of :class:`fedpriv.attacks.crafted.NeighboursSeen`, as independent trials.

    Raises:
        ConfigError: Lots are sampled, or the server does not see each upload.
    """
    parts = build_parts(without_rule(config))
    context = context_of(parts)
    mechanism, cohort = context.mechanism, np.array([HOME])
    sampling = mechanism.announce(0).groups[0].upload.joint.sampling
    if not (sampling.whole and parts.algorithm.trust.sees_each_upload):
        raise ConfigError(
            "a crafted record needs uploads on whole data that the server sees: sampling must be off, and "
            "algorithm.trust local"
        )
    record = CraftedRecord(context.data, sampling.neighbours == REPLACE_ONE)
    context.data, context.canaries = record.data, record
    weights, scores = context.model.flat.clone(), []
    coins = numpy_stream(seed, "canary_coins_of_runs").random(runs) < 0.5
    for number, coin in enumerate(coins):
        record.coin = bool(coin)
        context.model.set(weights)
        context.streams = _streams(parts, seed, number)
        trainer = parts.algorithm.start(context)
        watched = NeighboursSeen(trainer.computation, context, record)
        trainer.computation = cast("ClientComputation", watched)
        for t in range(rounds):
            trainer.round(mechanism.open(mechanism.announce(t), cohort, context.streams))
        scores.append(watched.score)
    return CanaryTrial(
        {RELEASES: Scores(np.array(scores), coins)}, Counter(), rounds, independent=True
    )


def context_of(
    parts: Parts, canaries: int = 0, seed: int = 0, fewer: bool = False, canary: str = DIRECTION
) -> RunContext:
    """Return the context of a run to train, with canaries if asked for.

    Args:
        parts: The parts that the configuration names.
        canaries: Number of canaries.
        seed: Seed of the canaries.
        fewer: Whether to plant as many canaries as there is room for, if there is no room for all.
        canary: Kind of the canaries.

    Raises:
        ConfigError: The run releases statistics before the first round, where no canary is looked for, or its
            warm start reads the clients' records.
    """
    if parts.released_statistics is not None:
        raise ConfigError(NO_STATISTICS)
    warm_start = parts.settings.warm_start
    if warm_start is not None and warm_start.on_clients:
        allowed = "public or null for an audit of epsilon"
        raise ConfigError("warm_start.records", warm_start.records, allowed, NOT_AUDITED)
    device = resolve_device(parts.settings.runtime.device)
    context = make_context(parts, device, canaries, seed, fewer, canary)
    begin_warm(warm_start, context)
    return context


def _streams(parts: Parts, seed: int, run: int | None = None) -> SecretStreams:
    """Return the simulated secret streams of a training, or of one of several runs."""
    name = _STREAMS if run is None else f"{_STREAMS}, run {run}"
    return SecretStreams.simulated(seed, parts.settings.noise_seed, name)


def pooled(trials: Iterable[CanaryTrial]) -> CanaryTrial:
    """Return several trials of the same kind as one, with the scores of all their canaries.

    Each canary is in one of the trainings only, so together they are a run of all canaries with the same
    guarantee for each. Releases, rounds and kind of canary are those of the first trial.

    Args:
        trials: At least one trial, all with the same observers.
    """
    trials = list(trials)
    scores = {}
    for observer in trials[0].scores:
        parts = [trial.scores[observer] for trial in trials]
        scores[observer] = Scores(
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.included for part in parts]),
        )
    return replace(trials[0], scores=scores)
