"""The jobs of a sweep: all are checked before the first one runs, and found again by their configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common import checks
from fedpriv.common import config as configuration
from fedpriv.common.config import explain, with_protocol
from fedpriv.common.errors import ArgumentError, ConfigError, FedprivError
from fedpriv.common.notices import complain
from fedpriv.common.words import counted, in_short
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.instantiate import instantiate
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import make_plan
from fedpriv.experiment.settings import read_settings
from fedpriv.privacy.noise_schedules import ConstantNoise, ExponentialNoise, StepNoise

_EPSILON = "epsilon="
_NO_EPSILON = "epsilon=null"
SEEDS = ("seed", "noise_seed")
_OF_PRIVATE = ("noise_schedule.", "clipper.")
Overrides = Sequence[str]
Compose = Callable[[Overrides], DictConfig]
Identity = tuple[str, ...]
"""The fingerprint of a run and, where the jobs of a sweep differ in keys of ``runtime``, their values."""


@dataclass
class SweepJob:
    """One job of a sweep.

    Attributes:
        overrides: The overrides with which ``fedpriv train`` would make the same run.
        config: The composed configuration; None if it cannot be composed.
        error: The reason why the job cannot run; None if it can.
        identity: What tells the job from the other jobs.
        values: The resolved configuration by dotted keys.
        run: Name of the job's run below the folder of the sweep, if it exists already.
        done: The run exists and has nothing left to do.
    """

    overrides: tuple[str, ...]
    config: DictConfig | None = field(default=None, repr=False)
    error: FedprivError | None = None
    identity: Identity = ()
    values: Mapping[str, object] = field(default_factory=dict, repr=False)
    run: str | None = None
    done: bool = False

    @property
    def composed(self) -> DictConfig:
        """The composed configuration of a job without an error."""
        assert self.config is not None
        return self.config


class JobComposer:
    """A composer of the jobs of a sweep. Jobs that differ only in plain values share one composition.

    Hydra sets plain values after it has composed the options, so setting other ones in a copy gives the
    same configuration in a fraction of the time.

    Args:
        compose: Returns the configuration with some overrides.
        is_group: Returns whether a key is a group of options.
    """

    def __init__(self, compose: Compose, is_group: Callable[[str], bool]):
        self._compose, self._is_group = compose, cache(is_group)
        self._bases: dict[tuple[str, ...], DictConfig | ConfigError] = {}
        self._plain = cache(self._read_plain)

    def job(self, overrides: Overrides) -> SweepJob:
        """Return the job with its configuration, or with the reason why it has no configuration.

        Nothing is raised for overrides that do not fit: a baseline is composed again without those of noise.
        """
        job = SweepJob(tuple(overrides))
        try:
            job.config = with_protocol(self._configured(job.overrides))
            job.values = configuration.flatten(configuration.as_tree(job.config))
        except FedprivError as error:
            job.error = error
        except (HydraException, OmegaConfBaseException) as error:
            job.error = explain(error, overrides)
        return job

    def _configured(self, overrides: tuple[str, ...]) -> DictConfig:
        # Jobs whose overrides differ only in plain values have the same keys, and share one composition.
        plain = {text: self._plain(text) for text in overrides}
        keys = tuple(text if pair is None else f"{pair[0]}=" for text, pair in plain.items())
        if keys not in self._bases:
            try:
                self._bases[keys] = self._compose(overrides)
            except (HydraException, OmegaConfBaseException) as error:
                self._bases[keys] = explain(error, overrides)
        base = self._bases[keys]
        if isinstance(base, ConfigError):
            raise base
        if self._overlap(plain):
            return self._compose(overrides)
        config = base.copy()
        for key, value in filter(None, plain.values()):
            OmegaConf.update(config, key, value, merge=True)
        return config

    def _read_plain(self, text: str) -> tuple[str, object] | None:
        """Return key and value of an override that sets a plain value; None for any other override."""
        (parsed,) = OverridesParser.create().parse_overrides([text])
        if parsed.type != OverrideType.CHANGE or parsed.package is not None:
            return None
        value = parsed.value()
        if not isinstance(value, str | int | float | None) or self._is_group(parsed.key_or_group):
            return None
        return parsed.key_or_group, value

    def _overlap(self, plain: Mapping[str, tuple[str, object] | None]) -> bool:
        """Return whether the order of overrides may matter: one sets a key inside what another sets."""
        others = [t.lstrip("+~").partition("=")[0] for t, pair in plain.items() if pair is None]
        others = [key for key in others if not self._is_group(key)]
        keys = [pair[0] for pair in plain.values() if pair is not None]
        return any(key == outer or key.startswith(f"{outer}.") for key in keys for outer in others)


def sweep_jobs(
    batch: Sequence[Overrides], composer: JobComposer, say: Callable[[str], object]
) -> list[SweepJob]:
    """Return the jobs of a sweep, each different run once.

    Baselines that are swept together with private algorithms are run without the epsilon of the sweep, and
    without keys of noise and clipping that they do not have. The user gets a line about each such change.

    Args:
        batch: The overrides of each job.
        composer: Composes the jobs.
        say: Tells the user one line about the sweep.
    """
    jobs = [composer.job(overrides) for overrides in batch]
    # Noise first: with its keys a baseline does not compose, and whether it is private is known only then.
    jobs = _baselines_without_noise(jobs, composer, say)
    jobs = _baselines_without_epsilon(jobs, composer, say)
    swept = swept_runtime(jobs)
    distinct: dict[object, SweepJob] = {}
    for number, job in enumerate(jobs):
        if job.error is None:
            job.identity = identity_of_job(job.values, swept)
        distinct.setdefault(job.identity or number, job)
    if len(distinct) < len(jobs):
        say(
            f"note: {counted(len(jobs), 'job')} of the sweep, {counted(len(distinct), 'different run')}: "
            "each is made once"
        )
    return list(distinct.values())


def _baselines_without_noise(
    jobs: list[SweepJob], composer: JobComposer, say: Callable[[str], object]
) -> list[SweepJob]:
    """Remove keys of noise and clipping from baselines that are swept together with private algorithms."""
    if not any(job.config is not None and is_private(job.config) for job in jobs):
        return jobs
    result = []
    names: dict[str, None] = {}
    keys: dict[str, None] = {}
    for job in jobs:
        rest = tuple(o for o in job.overrides if not o.startswith(_OF_PRIVATE))
        bare = composer.job(rest) if job.error is not None and rest != job.overrides else job
        if bare is not job and bare.error is None and not is_private(bare.composed):
            names[str(bare.composed.algorithm.name)] = None
            keys |= {o.partition("=")[0]: None for o in job.overrides if o not in rest}
            job = bare
        result.append(job)
    if names:
        say(f"note: algorithm={','.join(names)} has no privacy and takes no {', '.join(keys)}")
    return result


def _baselines_without_epsilon(
    jobs: list[SweepJob], composer: JobComposer, say: Callable[[str], object]
) -> list[SweepJob]:
    """Remove epsilon from baselines that are swept together with private algorithms."""
    # Whether an algorithm is private does not depend on epsilon: asked once for the other overrides.
    private: dict[tuple[str, ...], bool] = {}
    for job in jobs:
        rest = _without_epsilon(job.overrides)
        if job.config is not None and rest not in private:
            private[rest] = is_private(job.config)
    if len(set(private.values())) < 2:
        return jobs
    result = []
    names: dict[str, None] = {}
    for job in jobs:
        rest, given = _without_epsilon(job.overrides), any(map(_gives_epsilon, job.overrides))
        if given and not private.get(rest, True):
            names[str(job.composed.algorithm.name)] = None
            job = composer.job(
                tuple(_NO_EPSILON if _gives_epsilon(o) else o for o in job.overrides)
            )
        result.append(job)
    if names:
        say(
            f"note: algorithm={','.join(names)} has no privacy and takes no epsilon; it runs once for each "
            "seed and other setting"
        )
    return result


def _gives_epsilon(override: str) -> bool:
    return override.startswith(_EPSILON) and override != _NO_EPSILON


def _without_epsilon(overrides: Overrides) -> tuple[str, ...]:
    return tuple(override for override in overrides if not override.startswith(_EPSILON))


def is_private(config: DictConfig) -> bool:
    """Return whether the algorithm of a configuration is private; True where it cannot be made."""
    try:
        return bool(instantiate(config, "algorithm").private)
    except FedprivError:  # the check of the job will say what is wrong
        return True


def swept_runtime(jobs: Sequence[SweepJob]) -> list[str]:
    """Return the keys of ``runtime`` in which the jobs differ: a sweep over them wants each of the runs."""
    known = [job.values for job in jobs if job.error is None]
    keys = sorted({key for values in known for key in values if key.startswith("runtime.")})
    return [key for key in keys if len({str(values.get(key)) for values in known}) > 1]


def identity_of_job(values: Mapping[str, object], swept: Sequence[str]) -> Identity:
    """Return what tells a job from others: its fingerprint, and the values of the ``swept`` runtime keys."""
    fingerprint = configuration.fingerprint(configuration.identity_of_values(values))
    return (fingerprint, *(str(values.get(key)) for key in swept))


def check_jobs(jobs: Sequence[SweepJob], check: Callable[[DictConfig], object]) -> None:
    """Check every job that is not done. Of jobs that differ only in seeds one is checked.

    Args:
        jobs: The jobs.
        check: Raises FedprivError for a configuration that cannot run.

    Raises:
        FedprivError: The first job that cannot run, with the reason.
    """
    checked: set[str] = set()
    for job in jobs:
        if (given := job.values.get("runtime.run_dir")) is not None:
            hint = "hydra.sweep.dir is the folder of a sweep: its joint ε counts the runs that it holds"
            raise ConfigError("runtime.run_dir", given, "null in a sweep", hint)
        if job.error is None and not job.done:
            # Root keys are checked for every job, as this is quick; the rest once for all seeds.
            key = configuration.fingerprint(
                {k: v for k, v in job.values.items() if not _is_seed(k, v)}
            )
            try:
                read_settings(OmegaConf.create(configuration.as_tree(job.composed)))
                if key not in checked:
                    check(job.composed)
            except FedprivError as error:
                job.error = error
            checked.add(key)
        if job.error is not None:
            told = FedprivError(": ".join(filter(None, (label(job, jobs), str(job.error)))))
            told.exit_status = job.error.exit_status
            raise told


def refuse_crowd(jobs: Sequence[SweepJob], at_once: int, cores: int) -> None:
    """Refuse a sweep whose runs over several processes need more processor cores than there are.

    Args:
        jobs: The jobs of the sweep.
        at_once: Number of jobs that run at the same time on this machine; negative, as joblib has it: all
            cores but -1 - ``at_once``.
        cores: Number of processor cores.

    Raises:
        ConfigError: The processes would wait for one another.
    """
    at_once = at_once if at_once > 0 else max(1, cores + 1 + at_once)
    for job in jobs:
        workers = job.values.get("runtime.workers", 1)
        if job.error is not None or job.done or not isinstance(workers, int) or workers == 1:
            continue
        threads = job.values.get("runtime.threads") or max(1, cores // workers)
        together = min(at_once, len(jobs))
        if isinstance(threads, int) and together * workers * threads > cores:
            raise ConfigError(
                "runtime.workers",
                workers,
                f"at most {max(1, cores // (together * threads))} in this sweep",
                f"{counted(together, 'job')} at a time × {workers} workers × {counted(threads, 'thread')} is "
                f"{together * workers * threads}, and there are {counted(cores, 'core')} "
                "(runtime.threads, hydra.launcher.n_jobs)",
            )


def _is_seed(key: str, value: object) -> bool:
    """Return whether a key holds a valid seed, which has no influence on whether a run can begin."""
    if key.rpartition(".")[2] not in SEEDS:
        return False
    try:
        checks.seed(key, value)
    except ArgumentError:
        return False
    return True


def raise_failures(
    jobs: Sequence[SweepJob], failures: Sequence[tuple[SweepJob, FedprivError]]
) -> None:
    """Raise the failures of jobs: the one reason, or a summary after each reason on standard error.

    Args:
        jobs: All jobs of the sweep.
        failures: Jobs that failed, with the reason; nothing is raised if there are none.
    """
    if not failures:
        return
    if len({str(error) for _, error in failures}) == 1 and len(failures) == len(jobs):
        raise failures[0][1]
    reasons: dict[str, list[str]] = {}
    for job, error in failures:
        reasons.setdefault(str(error), []).append(label(job, jobs))
    for reason, labels in reasons.items():
        complain(f"{in_short(labels)}: {reason}")
    failed = f"{len(failures)} of {counted(len(jobs), 'job')} of the sweep failed, see above"
    error = FedprivError(f"{failed}; the first reason: {failures[0][1]}")
    error.exit_status = max(failure.exit_status for _, failure in failures)
    raise error


def label(job: SweepJob, jobs: Sequence[SweepJob]) -> str:
    """Return the overrides of a job, without those that all jobs share."""
    shared = set(jobs[0].overrides).intersection(*(other.overrides for other in jobs))
    return " ".join(override for override in job.overrides if override not in shared)


def only_moves_the_end(jobs: Sequence[SweepJob]) -> str | None:
    """Return a note that epsilon sets only the length of the runs, not their noise; None if it sets both.

    The jobs that differ from the first job in epsilon alone are compared.
    """
    if not jobs or len({o for job in jobs for o in job.overrides if _gives_epsilon(o)}) < 2:
        return None
    first = _without_epsilon(jobs[0].overrides)
    alike = [job for job in jobs if _without_epsilon(job.overrides) == first]
    values = [o.removeprefix(_EPSILON) for job in alike for o in job.overrides if _gives_epsilon(o)]
    given = f"epsilon={','.join(dict.fromkeys(values))}"
    try:
        ends = [_planned_rounds(build_parts(job.composed)) for job in alike]
    except FedprivError:  # the check of the job will say what is wrong
        return None
    last = ends[0]
    if len(set(values)) < 2 or last is None or None in ends:
        return None
    if len(set(ends)) < 2:
        paired = all(job.values.get("paired") is not None for job in alike)
        rows = (
            "such rows are equal, as they are paired"
            if paired
            else "such rows differ by chance alone"
        )
        return (
            f"{given} changes nothing: all of these runs end after {counted(last, 'round')}, within the "
            f"smallest of these budgets, with the same noise multiplier; {rows}; "
            "noise_schedule=calibrated calibrates it to each epsilon"
        )
    return (
        f"{given} moves only the end of the runs, as the noise multiplier "
        "does not depend on it; noise_schedule=calibrated rounds=T calibrates it to each epsilon"
    )


def _planned_rounds(parts: Parts) -> int | None:
    """Return the number of planned rounds; None if the noise depends on epsilon, or there is no noise."""
    fixed = isinstance(parts.noise_schedule, ConstantNoise | ExponentialNoise | StepNoise)
    return make_plan(parts).rounds if parts.algorithm.private and fixed else None
