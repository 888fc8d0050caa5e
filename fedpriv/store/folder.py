"""The run folder: names of its files, its creation, and the files written once."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import stat
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fedpriv.common.errors import ConfigError
from fedpriv.common.words import quoted

SCHEMA_VERSION = 2
CANARIES = "canaries.json"
"""File in ``audit/`` with the observations of a run's canaries: the input of an audit, not its result."""
FINISHED = ("budget", "rounds", "schedule", "diverged")
"""Stop reasons after which a run cannot be resumed."""
PACKAGES = ("fedpriv", "torch", "torchvision", "opacus", "dp-accounting", "hydra-core", "numpy")


class RunFolder:
    """The paths of one run's files. ``StoredRun`` reads them back.

    Making the object touches nothing on disk; see :meth:`create`.

    Args:
        path: The run folder, which need not exist.

    Attributes:
        path: The run folder. Every other path is an attribute, too: ``config``, ``metrics``, ``ledger``, …
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.csv"
        self.clients = self.path / "clients.csv"
        self.participation = self.path / "participation.csv"
        self.ledger = self.path / "ledger.csv"
        self.privacy_json = self.path / "privacy.json"
        self.privacy_text = self.path / "privacy.txt"
        self.summary = self.path / "summary.json"
        self.checkpoint = self.path / "checkpoint.pt"
        self.model = self.path / "model.pt"
        self.environment = self.path / "environment.json"
        self.search = self.path / "search.csv"
        self.trackers = self.path / "trackers.json"
        self.log = self.path / "run.log"
        self.plots = self.path / "plots"
        self.snapshots = self.path / "snapshots"
        self.audit = self.path / "audit"
        self.canaries = self.audit / CANARIES
        # Of published runs only. public/ alone is meant to be given away.
        self.secret_key = self.path / "secret_key"
        self.public = self.path / "public"

    def create(self, key: str = "runtime.run_dir") -> RunFolder:
        """Make the folder on disk, with ``plots/`` in it. Other files in it are left alone.

        Args:
            key: The configuration key to name where the folder cannot be made.

        Returns:
            This object.

        Raises:
            ConfigError: The folder holds a run or results already, or cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if self.config.exists():
                raise ConfigError(
                    "runtime.run_dir",
                    str(self.path),
                    "a folder without a run",
                    f"resume={quoted(self.path)} continues the one there",
                )
            # A run writes these files after its configuration. Without one they are leftovers of a run.
            for path in (
                self.metrics, self.clients, self.participation, self.ledger, self.privacy_json,
                self.privacy_text, self.summary, self.checkpoint, self.model,
                self.log,
            ):  # fmt: skip
                if path.exists():
                    raise ConfigError(
                        "runtime.run_dir",
                        str(self.path),
                        f"a folder without a {path.name}",
                        "a run would write over it",
                    )
            # Only an attempt shows whether the folder can be written; permissions alone do not tell.
            probe = self.path / ".writable"
            probe.touch()
            probe.unlink()
            self.plots.mkdir(exist_ok=True)
        except OSError as error:
            raise _not_writable(key, self.path, error) from None
        return self

    def refuse_odd(self, path: Path) -> None:
        """Refuse to use a path of the run that is no regular file or folder, or lies behind a link.

        Writing to a link would change a file elsewhere, and reading a pipe could block for ever.

        Raises:
            ConfigError: A part of the path is a link, a pipe or a device, or a folder stands for a file.
        """
        below = path.relative_to(self.path)
        # From the outermost folder inwards, so that nothing behind a link is looked at.
        for name in (*list(below.parents)[-2::-1], below):
            try:
                mode = (self.path / name).lstat().st_mode
            except FileNotFoundError:
                return  # absent, or another process is just replacing it by an atomic rename
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise ConfigError(
                    f"{self.path} holds {name}, which is neither a file nor a folder; fedpriv makes no links "
                    "and no pipes: put the files themselves there"
                )
        folders = (self.path, self.plots, self.snapshots, self.audit, self.public)
        is_file = path not in folders and path in vars(self).values()
        if stat.S_ISDIR(mode) and is_file:
            raise ConfigError(f"{path} is a folder where a file belongs; move it away")

    def refuse_links(self) -> None:
        """Raise ConfigError if anything in the folder is no regular file or folder in its place."""
        for path in self.path.rglob("*"):
            self.refuse_odd(path)

    def remove_leftovers(self) -> None:
        """Delete the half-written temporary files of a process that was killed.

        Call it only with the folder locked: a file of a running process has the same kind of name.
        """
        for path in self.path.glob(".*.tmp"):
            path.unlink(missing_ok=True)


def not_resumable(folder: object) -> ConfigError:
    """Return the error for ``resume=`` with something that is no run folder."""
    hint = ""
    if (Path(str(folder)) / "multirun.yaml").is_file():
        hint = (
            "it is the folder of a sweep, which goes on with the sweep's own command and "
            f"hydra.sweep.dir={folder}"
        )
    allowed = "an existing run folder, with its environment.json and checkpoint.pt"
    return ConfigError("resume", folder, allowed, hint)


def new_folder(output_dir: str, name: str) -> RunFolder:
    """Make a new run folder below an output folder.

    Args:
        output_dir: The folder of many runs; made if it is absent.
        name: Name of the run. ``-2``, ``-3``, … is appended where another run has the name. ``mkdir`` decides
            that, so two processes never share a folder.

    Raises:
        ConfigError: The folder cannot be written.
    """
    base = Path(output_dir)
    try:
        base.mkdir(parents=True, exist_ok=True)
        # No look beforehand: between looking and making, another process could make the folder.
        attempt, path = 1, base / name
        while True:
            try:
                path.mkdir()
                return RunFolder(path).create("runtime.output_dir")
            except FileExistsError:
                attempt += 1
                path = base / f"{name}-{attempt}"
    except OSError as error:
        raise _not_writable("runtime.output_dir", output_dir, error) from None


def _not_writable(key: str, folder: object, error: OSError) -> ConfigError:
    reason = error.strerror or str(error)
    return ConfigError(key, str(folder), "a folder that can be written", reason)


def environment(
    overrides: Sequence[str] | None, device: str, threads: int, streams: int
) -> dict[str, object]:
    """Return versions, machine and command: what someone needs to repeat the run.

    Args:
        overrides: The arguments of the command; None: they are withheld, because they may hold seeds.
        device: Name of the device.
        threads: Number of threads of torch.
        streams: Version of the secret random streams.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["fedpriv", "train", *(overrides or [])]),
        "overrides": None if overrides is None else list(overrides),
        "commit": commit(),
        "python": platform.python_version(),
        "versions": {name: installed_version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "device": device,
        "threads": threads,
        "cores": os.cpu_count(),
        "stream_version": streams,
    }


@functools.cache
def installed_version(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit_words(commit: str | None, release: str | None) -> str:
    """Name the code that made a result: by its commit, or else by the version of the installed package."""
    if commit is not None:
        return f"commit {commit}"
    return f"installed package, fedpriv {release or 'of unknown version'}, commit unknown"


def own_commit_words() -> str:
    """Name the code that runs now, as :func:`commit_words` does."""
    return commit_words(commit(), installed_version("fedpriv"))


@functools.cache
def commit() -> str | None:
    """Return the git commit of the checkout that fedpriv runs from; None for an installed package.

    The answer is kept: a process goes on with the code that it has loaded, whatever is committed meanwhile.
    """
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():
        return None
    answer = subprocess.run(
        ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or None
