"""Shadow runs: the audited run's configuration, with other seeds, on halves of a pool of its records and
others.

They are ordinary runs, found by their identity: a second audit reads those that are there, an interrupted one
goes on. They train on the private data of the run's clients, so they are as private as these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from omegaconf import DictConfig, open_dict

from fedpriv import config as configuration
from fedpriv.audit.records import Candidates, log_odds
from fedpriv.audit.request import MembershipOptions
from fedpriv.audit.shadow_attacks import Signals
from fedpriv.audit.subject import Subject, participants, weights_of
from fedpriv.common.errors import ConfigError, FedprivError, Interrupted
from fedpriv.common.random_streams import numpy_stream
from fedpriv.data.names import Shadow
from fedpriv.data.shadow import outside_pool, records_at, shadow_clients
from fedpriv.experiment.consent import refuse_strangers
from fedpriv.experiment.run import run
from fedpriv.results.folder import RunFolder

_FIRST_SEED = 1_000_000
_FEWEST_OF_POPULATION = 100


@dataclass(frozen=True)
class Training:
    """How shadow runs are trained; nothing here changes a result. ``say`` is told which are done;
    ``threads``, ``stop_file``: see ``runtime``; ``allowed``: modules outside fedpriv that the configuration
    may name."""

    say: Callable[[str], None] = lambda _: None
    threads: int | None = None
    stop_file: str | None = None
    allowed: Collection[str] = ()


@dataclass(frozen=True)
class ShadowRun:
    """A finished one; ``clients``: which records each of its clients has."""

    folder: RunFolder
    shadow: Shadow
    clients: list[np.ndarray]

    def trained_on(self) -> np.ndarray:
        """The numbers of the records that clients had which took part."""
        came = participants(self.folder, len(self.clients))
        chosen = range(len(self.clients)) if came is None else came
        return np.concatenate([np.empty(0, dtype=np.int64), *(self.clients[k] for k in chosen)])


def refuse_without_shadows(subject: Subject) -> None:
    """Raise ConfigError for a run that can have no shadow runs."""
    if subject.parts.attack is not None:
        raise ConfigError("--shadows is for a run without an attack: attackers have no shadows")
    if not subject.folder.finished:
        raise ConfigError(
            f"{subject.folder.path} is not finished, and --shadows trains runs like it to their end; finish "
            "it first"
        )


def shadow_runs(
    subject: Subject, options: MembershipOptions, training: Training
) -> list[ShadowRun]:
    """Find them, train those that are missing. Raises FedprivError where one cannot be trained, Interrupted
    after Ctrl-C: its checkpoint is there."""
    found = []
    for half in range(options.shadows):
        shadow = Shadow(half, options.nonmembers, options.seed)
        config = shadow_configuration(subject, shadow)
        name = configuration.run_name(config, configuration.identity(config))
        folder = RunFolder(Path(options.shadow_runs) / name)
        config.runtime.run_dir = str(folder.path)
        config.runtime.threads, config.runtime.stop_file = training.threads, training.stop_file
        done = folder.finished
        _train(folder, config, subject, training.allowed)
        training.say(
            f"shadow run {half + 1} of {options.shadows}: {'found' if done else 'trained'}"
        )
        found.append(ShadowRun(folder, shadow, shadow_clients(subject.problem.data, shadow)))
    return found


def shadow_configuration(subject: Subject, shadow: Shadow) -> DictConfig:
    """The run's own, but for seeds, data, and where it goes; whose clients it has stays as it is."""
    config = subject.config.copy()
    with open_dict(config):
        config.shadow = asdict(shadow)
        config.audit = config.publish = config.publish_test_metrics = config.tracker = None
        config.seed = config.noise_seed = _FIRST_SEED + shadow.half
        if "seed" in config.model:
            config.model.seed = config.seed
        config.runtime.reuse, config.runtime.progress, config.runtime.plots = True, "none", False
    return config


def _train(
    folder: RunFolder, config: DictConfig, subject: Subject, allowed: Collection[str]
) -> None:
    refuse_strangers(config, allowed, subject.folder.config)
    if folder.path.exists():
        folder.refuse_links()
    result = run(config)
    if result.stop_reason == "interrupted":
        raise Interrupted(
            f"interrupted in the shadow run {folder.path}; the same command goes on with it"
        )
    if result.stop_reason == "diverged":
        raise FedprivError(
            f"the shadow run {folder.path} diverged: there is nothing to learn from it"
        )


def pool_outside(subject: Subject, options: MembershipOptions) -> np.ndarray:
    """The numbers of the pool's records that no client has."""
    return outside_pool(subject.problem.data, options.nonmembers, options.seed)


def signals_of(
    subject: Subject, candidates: Candidates, runs: list[ShadowRun], options: MembershipOptions
) -> Signals:
    """What the audited model and the shadow models say of the candidates and of the population."""
    data, model = subject.problem.data, subject.problem.model
    z = _population(subject, candidates, options)
    asked = records_at(data, np.concatenate([candidates.numbers, z]))
    n = len(candidates.numbers)
    target = log_odds(model, subject.final, asked)
    seen, inside = [], []
    for one in runs:
        seen.append(log_odds(model, weights_of(one.folder, subject.problem), asked))
        inside.append(np.isin(candidates.numbers, one.trained_on()))
    shadows = np.stack(seen)
    return Signals(target[:n], shadows[:, :n], np.stack(inside), target[n:], shadows[:, n:])


def _population(subject: Subject, candidates: Candidates, options: MembershipOptions) -> np.ndarray:
    """The numbers of RMIA's z: as many as candidates from outside the pool; of too few, the candidates."""
    data = subject.problem.data
    pool = np.concatenate([*data.clients, pool_outside(subject, options)])
    rest = np.setdiff1d(np.arange(len(data.train) + len(data.test)), pool)
    if len(rest) < _FEWEST_OF_POPULATION:
        return candidates.numbers
    drawn = numpy_stream(options.seed, "audit_population").permutation(rest)
    return drawn[: len(candidates.numbers)]
