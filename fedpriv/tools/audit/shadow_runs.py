"""Shadow runs: the audited run's configuration with other seeds, on halves of a pool of records.

The pool has the records of the run and others. Shadow runs are ordinary runs, found by their identity. A
second audit reads those that exist, and an interrupted audit goes on. They train on the private data of the
run's clients, so they are as private as these data.
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
from fedpriv.data.client_records import ClientRecords
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
    """Settings of the training of shadow runs. Nothing here changes a result.

    Attributes:
        say: Function that is told about progress.
        jobs: Number of runs at a time, each in a process of its own.
        threads: Number of threads, as in ``runtime.threads``.
        stop_file: A file that interrupts the runs, as in ``runtime.stop_file``.
        allowed: Modules outside fedpriv that the configuration may name.
    """

    say: Callable[[str], None] = lambda _: None
    jobs: int = 1
    threads: int | None = None
    stop_file: str | None = None
    allowed: Collection[str] = ()


@dataclass(frozen=True)
class ShadowRun:
    """A shadow run.

    Attributes:
        folder: Its run folder.
        clients: Numbers of the records of each of its clients.
    """

    folder: RunFolder
    clients: ClientRecords

    def trained_on(self) -> np.ndarray:
        """Return the numbers of the records of the clients that took part."""
        participants = StoredRun(self.folder).participants(len(self.clients))
        return self.clients.indices if participants is None else self.clients.together(participants)


def refuse_without_shadows(subject: AuditedRun) -> None:
    """Raise ConfigError for a run that can have no shadow runs."""
    if subject.parts.attack is not None:
        raise ConfigError("--shadows needs a run without an attack (attack=none)")
    if not subject.run.finished:
        raise ConfigError(
            f"{subject.run.path} is not finished, and --shadows trains runs like it to their end; finish "
            "it first"
        )


def shadow_runs(
    subject: AuditedRun, options: MembershipOptions, training: Training
) -> list[ShadowRun]:
    """Return the shadow runs of a run; those that are missing are trained.

    Args:
        subject: The audited run.
        options: Options of the audit.
        training: Settings of the training.

    Returns:
        The shadow runs, all finished.

    Raises:
        FedprivError: A shadow run cannot be trained, or diverged.
        Interrupted: Ctrl-C was pressed; the interrupted run has a checkpoint.
    """
    shadows, missing = [], []
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
        shadows.append(ShadowRun(folder, shadow_clients(subject.context.data, shadow)))
    done = len(shadows) - len(missing)
    training.say(f"{counted(len(shadows), 'shadow run')}, {done} done, in {options.shadow_runs}")
    for number, _ in enumerate(_trained(missing, options.shadow_runs, training.jobs), done + 1):
        training.say(f"shadow run {number} of {len(shadows)} done")
    for shadow_run in shadows:
        if StoredRun(shadow_run.folder).summary.get("stop_reason") == "diverged":
            raise FedprivError(
                f"the shadow run {shadow_run.folder.path} diverged: there is nothing to learn from it"
            )
    return shadows


def shadow_configuration(subject: AuditedRun, shadow: Shadow) -> DictConfig:
    """Return the configuration of a shadow run.

    The seeds of the run, of its noise and of its model change. The seed of the partition stays.

    Args:
        subject: The audited run.
        shadow: The half of the pool, and how the pool is made.
    """
    config = subject.config.copy()
    with open_dict(config):
        config.shadow = asdict(shadow)
        config.audit = config.publish = config.publish_test_metrics = config.tracker = None
        # Shadow runs have noise of their own, even if the audited run shares its noise with others.
        config.paired = None
        config.seed = config.noise_seed = _FIRST_SEED + shadow.half
        if "seed" in config.model:
            config.model.seed = config.seed
        config.runtime.reuse, config.runtime.progress, config.runtime.plots = True, "none", False
    return config


def _trained(configs: list[DictConfig], place: str, jobs: int) -> Iterator[None]:
    """Train the runs, and yield after each."""
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
                stop.path.touch()  # the other runs stop with a checkpoint
                failures.append(error)
    if failures:
        raise failures[0]


def _in_worker(config: dict[str, Any]) -> FedprivError | None:
    """Train a run in a worker process, and return the error if there was one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launching process makes the stop file
    try:
        with job_of_a_worker():
            _train(OmegaConf.create(config))
    except FedprivError as error:  # raising the error would end the other workers at once
        return error
    return None


def _train(config: DictConfig) -> None:
    """Train a run; Interrupted if it is stopped before its end."""
    stop_file, where = config.runtime.stop_file, config.runtime.run_dir
    stopped = stop_file is not None and Path(stop_file).exists()
    if stopped or run(config).stop_reason == "interrupted":
        raise Interrupted(
            f"interrupted in the shadow run {where}; the same command goes on with it"
        )


def pool_outside(subject: AuditedRun, options: MembershipOptions) -> np.ndarray:
    """Return the numbers of the pool's records that no client has."""
    return outside_pool(subject.context.data, options.nonmembers, options.seed)


def signals_of(
    subject: AuditedRun, candidates: Candidates, runs: list[ShadowRun], options: MembershipOptions
) -> Signals:
    """Return what the audited model and the shadow models say of the candidates and of the population.

    Args:
        subject: The audited run.
        candidates: Members and non-members.
        runs: The shadow runs.
        options: Options of the audit.
    """
    data, model = subject.context.data, subject.context.model
    z = _population(subject, candidates, options)
    records = records_at(data, np.concatenate([candidates.numbers, z]))
    n = len(candidates.numbers)
    target = log_odds(model, subject.final, records)
    phis, inside = [], []
    buffers = {name: values.clone() for name, values in model.module.named_buffers()}
    for shadow in runs:
        weights = weights_of(StoredRun(shadow.folder), subject.context)
        phis.append(log_odds(model, weights, records))
        inside.append(np.isin(candidates.numbers, shadow.trained_on()))
    # Loading a shadow run's weights also loaded the statistics that it released.
    model.module.load_state_dict(buffers, strict=False)
    shadows = np.stack(phis)
    return Signals(target[:n], shadows[:, :n], np.stack(inside), target[n:], shadows[:, n:])


def _population(
    subject: AuditedRun, candidates: Candidates, options: MembershipOptions
) -> np.ndarray:
    """Return the numbers of RMIA's records z.

    These are as many records as candidates from outside the pool, or the candidates if there are too few.
    """
    data = subject.context.data
    pool = np.concatenate([data.clients.indices, pool_outside(subject, options)])
    rest = np.setdiff1d(np.arange(len(data.train) + len(data.test)), pool)
    if len(rest) < _FEWEST_OF_POPULATION:
        return candidates.numbers
    drawn = numpy_stream(options.seed, "audit_population").permutation(rest)
    return drawn[: len(candidates.numbers)]
