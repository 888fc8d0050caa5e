"""The runs in the folder of a sweep: the jobs that they belong to, and names for runs still to come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fedpriv.common import config as configuration
from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.words import quoted
from fedpriv.experiment.sweeps import SEEDS, Identity, SweepJob, identity_of_job, swept_runtime
from fedpriv.store.folder import RunFolder
from fedpriv.store.run_folders import runs_below
from fedpriv.store.stored_run import StoredRun


def refuse_sweep_folder(folder: Path) -> None:
    """Raise ConfigError where the folder of a sweep is that of a run, or cannot be a folder."""
    key = "hydra.sweep.dir"
    if RunFolder(folder).config.exists():
        hint = f"resume={quoted(folder)} continues the run there"
        raise ConfigError(key, str(folder), "a folder without a run of its own", hint)
    for path in (folder, *folder.parents):
        if path.is_file():
            raise ConfigError(key, str(folder), "a folder", f"{path} is a file")


def make_sweep_folder(folder: Path) -> None:
    """Make the folder of a sweep. Raise ConfigError where it cannot be made or written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            "hydra.sweep.dir", str(folder), "a folder that can be written", reason
        ) from None


def find_runs(
    jobs: Sequence[SweepJob],
    folder: Path,
    to_audit: Callable[[SweepJob, StoredRun], bool],
    say: Callable[[str], object],
) -> None:
    """Note in each job its run in ``folder``, if there is one, and whether that run is done.

    A run that diverged, or lacks an audit, is not done. A run whose configuration or summary cannot be
    read is passed over.

    Args:
        jobs: The jobs of the sweep; their ``run``, ``done`` and ``error`` are set.
        folder: The folder of the sweep.
        to_audit: Returns whether a finished run lacks an audit that its job asks for.
        say: Tells the user one line.

    Raises:
        ConfigError: Finished runs withhold their seeds, so nothing tells which jobs they are.
    """
    swept = swept_runtime(jobs)
    stored: dict[Identity, str] = {}
    settings = {_setting(job.values) for job in jobs if job.error is None}
    for name, path in runs_below(folder):
        run = StoredRun(path)
        try:
            values, _ = run.values, run.summary
        except ConfigError as error:
            say(f"note: run {name} counts as not run: {error}")
            continue
        # A finished run without diagnostics withholds its seeds, so it could be a job with any seed.
        if values.get("seed") is None and _setting(values) in settings:
            raise ConfigError(
                "hydra.sweep.dir",
                str(folder),
                "a new folder for runs that withhold their seeds",
                "nothing tells which of its runs are those of this sweep",
            )
        # Of equal runs the first in the order of names stands for the job.
        stored.setdefault(identity_of_job(values, swept), name)
    for job in jobs:
        if job.error is not None:
            continue
        job.run = stored.get(job.identity)
        if job.run is not None:
            run = StoredRun(folder / job.run)
            try:
                finished = run.finished and run.summary["stop_reason"] != "diverged"
                job.done = finished and not to_audit(job, run)
            except FedprivError as error:
                job.error = error


def _setting(values: Mapping[str, object]) -> str:
    """Return the fingerprint of a configuration without its seeds."""
    without_seeds = {k: v for k, v in values.items() if k.rpartition(".")[2] not in SEEDS}
    return configuration.fingerprint(configuration.identity_of_values(without_seeds))


def count_runs(folder: Path) -> int:
    """Return the number of runs that ``folder`` holds."""
    return len(runs_below(folder))


def new_names(folder: Path, jobs: Sequence[SweepJob]) -> list[str]:
    """Return names for new runs of the jobs: the first numbers that are free in ``folder``.

    An empty folder counts as free: a job that was refused may have left it.
    """
    taken = {job.run for job in jobs}
    names: list[str] = []
    number = 0
    while len(names) < len(jobs):
        if str(number) not in taken and not _is_used(folder / str(number)):
            names.append(str(number))
        number += 1
    return names


def _is_used(path: Path) -> bool:
    return path.is_file() or (path.is_dir() and any(path.iterdir()))
