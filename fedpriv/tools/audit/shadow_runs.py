"""Shadow runs: the audited run's configuration, with other seeds, on halves of a pool of its records and
others.

They are ordinary runs, found by their identity: a second audit reads those that are there, an interrupted one
goes on. They train on the private data of the run's clients, so they are as private as these.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf, open_dict

from fedpriv.common import config as configuration
from fedpriv.common.errors import ConfigError, FedprivError, Interrupted
from fedpriv.common.random_streams import numpy_stream
from fedpriv.common.words import counted
from fedpriv.common.workers import end_earlier_workers, job_of_a_worker
from fedpriv.data.names import Shadow
from fedpriv.data.shadow import outside_pool, records_at, shadow_clients
from fedpriv.experiment import checkpoint
from fedpriv.experiment.consent import refuse_strangers
from fedpriv.experiment.run import run
from fedpriv.experiment.stop import StopFile
from fedpriv.store.folder import RunFolder
from fedpriv.store.stored_run import StoredRun
from fedpriv.tools.audit.records import Candidates, log_odds
from fedpriv.tools.audit.request import MembershipOptions
from fedpriv.tools.audit.shadow_attacks import Signals
from fedpriv.tools.audit.subject import AuditedRun, weights_of

_FIRST_SEED = 1_000_000
_FEWEST_OF_POPULATION = 100


@dataclass(frozen=True)
class Training:
    """How shadow runs are trained; nothing here changes a result. ``say`` is told which are done; ``jobs``:
    so many at a time, each in a process; ``threads``, ``stop_file``: see ``runtime``; ``allowed``: modules
    outside fedpriv that the configuration may name."""

    say: Callable[[str], None] = lambda _: None
    jobs: int = 1
    threads: int | None = None
    stop_file: str | None = None
    allowed: Collection[str] = ()


@dataclass(frozen=True)
class ShadowRun:
    """A finished one; ``clients``: which records each of its clients has."""

    folder: RunFolder
    clients: list[np.ndarray]

    def trained_on(self) -> np.ndarray:
        """The numbers of the records that clients had which took part."""
        came = StoredRun(self.folder).participants(len(self.clients))
        chosen = range(len(self.clients)) if came is None else came
        return np.concatenate([np.empty(0, dtype=np.int64), *(self.clients[k] for k in chosen)])


def refuse_without_shadows(subject: AuditedRun) -> None:
    """Raise ConfigError for a run that can have no shadow runs."""
    if subject.parts.attack is not None:
        raise ConfigError("--shadows is for a run without an attack: attackers have no shadows")
    if not subject.run.finished:
        raise ConfigError(
            f"{subject.run.path} is not finished, and --shadows trains runs like it to their end; finish "
            "it first"
        )


def shadow_runs(
    subject: AuditedRun, options: MembershipOptions, training: Training
) -> list[ShadowRun]:
    """Find them, train those that are missing. Raises FedprivError where one cannot be trained, Interrupted
    after Ctrl-C: its checkpoint is there."""
    wanted, missing = [], []
    for half in range(options.shadows):
        shadow = Shadow(half, options.nonmembers, options.seed)
        config = shadow_configuration(subject, shadow)
        refuse_strangers(config, training.allowed, subject.run.files.config)
        identity = configuration.identity(config)
        folder = RunFolder(Path(options.shadow_runs) / configuration.run_name(config, identity))
        if folder.path.exists():
            folder.refuse_links()
        stored = StoredRun(folder)
        if folder.config.exists():
            checkpoint.refuse_other_identity(folder, stored.identity, identity)
        config.runtime.run_dir = str(folder.path)
        config.runtime.threads, config.runtime.stop_file = training.threads, training.stop_file
        if not stored.finished:
            missing.append(config)
        wanted.append(ShadowRun(folder, shadow_clients(subject.context.data, shadow)))
    done = len(wanted) - len(missing)
    training.say(f"{counted(len(wanted), 'shadow run')}, {done} done, in {options.shadow_runs}")
    for number, _ in enumerate(_trained(missing, options.shadow_runs, training.jobs), done + 1):
        training.say(f"shadow run {number} of {len(wanted)} done")
    for folder in (one.folder for one in wanted):
        if StoredRun(folder).summary.get("stop_reason") == "diverged":
            raise FedprivError(
                f"the shadow run {folder.path} diverged: there is nothing to learn from it"
            )
    return wanted


def shadow_configuration(subject: AuditedRun, shadow: Shadow) -> DictConfig:
    """The run's own, but for seeds, data, and where it goes; whose clients it has stays as it is."""
    config = subject.config.copy()
    with open_dict(config):
        config.shadow = asdict(shadow)
        config.audit = config.publish = config.publish_test_metrics = config.tracker = None
        config.paired = None  # noise of their own, even where that of the run is shared
        config.seed = config.noise_seed = _FIRST_SEED + shadow.half
        if "seed" in config.model:
            config.model.seed = config.seed
        config.runtime.reuse, config.runtime.progress, config.runtime.plots = True, "none", False
    return config


def _trained(configs: list[DictConfig], place: str, jobs: int) -> Iterator[None]:
    """Train them; gives something after each."""
    if jobs == 1 or len(configs) < 2:
        yield from map(_train, configs)
        return
    from joblib import Parallel, delayed

    failures: list[FedprivError] = []
    with StopFile(Path(place), watched=True) as stop:
        for config in configs:
            config.runtime.stop_file = str(stop.path)
        end_earlier_workers()
        workers = Parallel(n_jobs=min(jobs, len(configs)), return_as="generator_unordered")
        for error in workers(delayed(_in_worker)(OmegaConf.to_container(c)) for c in configs):
            if error is None:
                yield
            elif not failures:
                stop.path.touch()  # the others end with a checkpoint
                failures.append(error)
    if failures:
        raise failures[0]


def _in_worker(config: dict[str, Any]) -> FedprivError | None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that launched it makes the stop file
    try:
        with job_of_a_worker():
            _train(OmegaConf.create(config))
    except FedprivError as error:  # one that is raised ends the other workers at once
        return error
    return None


def _train(config: DictConfig) -> None:
    stop_file, where = config.runtime.stop_file, config.runtime.run_dir
    stopped = stop_file is not None and Path(stop_file).exists()
    if stopped or run(config).stop_reason == "interrupted":
        raise Interrupted(
            f"interrupted in the shadow run {where}; the same command goes on with it"
        )


def pool_outside(subject: AuditedRun, options: MembershipOptions) -> np.ndarray:
    """The numbers of the pool's records that no client has."""
    return outside_pool(subject.context.data, options.nonmembers, options.seed)


def signals_of(
    subject: AuditedRun, candidates: Candidates, runs: list[ShadowRun], options: MembershipOptions
) -> Signals:
    """What the audited model and the shadow models say of the candidates and of the population."""
    data, model = subject.context.data, subject.context.model
    z = _population(subject, candidates, options)
    asked = records_at(data, np.concatenate([candidates.numbers, z]))
    n = len(candidates.numbers)
    target = log_odds(model, subject.final, asked)
    seen, inside = [], []
    own = {name: values.clone() for name, values in model.module.named_buffers()}
    for one in runs:
        seen.append(log_odds(model, weights_of(StoredRun(one.folder), subject.context), asked))
        inside.append(np.isin(candidates.numbers, one.trained_on()))
    model.module.load_state_dict(own, strict=False)  # statistics that the shadow runs released
    shadows = np.stack(seen)
    return Signals(target[:n], shadows[:, :n], np.stack(inside), target[n:], shadows[:, n:])


def _population(
    subject: AuditedRun, candidates: Candidates, options: MembershipOptions
) -> np.ndarray:
    """The numbers of RMIA's z: as many as candidates from outside the pool; of too few, the candidates."""
    data = subject.context.data
    pool = np.concatenate([*data.clients, pool_outside(subject, options)])
    rest = np.setdiff1d(np.arange(len(data.train) + len(data.test)), pool)
    if len(rest) < _FEWEST_OF_POPULATION:
        return candidates.numbers
    drawn = numpy_stream(options.seed, "audit_population").permutation(rest)
    return drawn[: len(candidates.numbers)]
