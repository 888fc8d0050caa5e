"""The run folder: names of its files, its creation, and the files written once."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import (
    json_text,
    saying_where,
    sealed_tensors,
    write_atomically,
    write_text,
)
from fedpriv.store.digests import FileDigests, sealed

SCHEMA_VERSION = 2
CANARIES = "canaries.json"
"""In ``audit/``: what was seen of the canaries of a run; the input of an audit, not its result."""
FINISHED = ("budget", "rounds", "schedule", "diverged")
"""Stop reasons after which there is nothing left to run."""
COVERED = ["config.yaml", "environment.json", "search.csv", "trackers.json"]
"""What a run writes before its first round, of which a checkpoint of an older version has no digest."""
PACKAGES = ("fedpriv", "torch", "torchvision", "opacus", "dp-accounting", "hydra-core", "numpy")


class RunFolder:
    """The files of one run, by name, and the writing of them. ``StoredRun`` reads them back.

    Attributes:
        digests: Of what this process wrote.
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
        self.checkpoint_before = self.path / "checkpoint_before.pt"
        self.model = self.path / "model.pt"
        self.environment = self.path / "environment.json"
        self.search = self.path / "search.csv"
        self.trackers = self.path / "trackers.json"
        self.log = self.path / "run.log"
        self.plots = self.path / "plots"
        self.snapshots = self.path / "snapshots"
        self.audit = self.path / "audit"
        self.canaries = self.audit / CANARIES
        self.secret_key = self.path / "secret_key"
        self.public = self.path / "public"
        self.digests = FileDigests(self.path)

    def create(self, key: str = "runtime.run_dir") -> RunFolder:
        """Make the folder, which must not hold a run already. Raises ConfigError if it cannot.

        ``key``: the key that says where it lies.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if self.config.exists():
                raise ConfigError(
                    "runtime.run_dir",
                    str(self.path),
                    "a folder without a run",
                    f"resume={self.path} continues the one there",
                )
            for path in self._results():
                if path.exists():
                    raise ConfigError(
                        "runtime.run_dir",
                        str(self.path),
                        f"a folder without a {path.name}",
                        "a run would write over it",
                    )
            probe = self.path / ".writable"
            probe.touch()
            probe.unlink()
            self.plots.mkdir(exist_ok=True)
        except OSError as error:
            raise ConfigError(
                key,
                str(self.path),
                "a folder that can be written",
                error.strerror or str(error),
            ) from None
        return self

    def _results(self) -> tuple[Path, ...]:
        """Return the files that a run writes once it has written its configuration."""
        return (
            self.metrics, self.clients, self.participation, self.ledger, self.privacy_json, self.privacy_text,
            self.summary, self.checkpoint, self.checkpoint_before, self.model, self.log,
        )  # fmt: skip

    def refuse_odd(self, path: Path) -> None:
        """Raise ConfigError where a file of the run is anything but a file, or lies behind a link.

        What is written to a link goes elsewhere, and a pipe is waited for.
        """
        below = path.relative_to(self.path)
        for name in (*list(below.parents)[-2::-1], below):
            try:
                mode = (self.path / name).lstat().st_mode
            except FileNotFoundError:
                return  # another process that runs it writes a file of its own and renames it
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise ConfigError(
                    f"{self.path} holds {name}, which is neither a file nor a folder; fedpriv makes no links "
                    "and no pipes: put the files themselves there"
                )
        if stat.S_ISDIR(mode) and path in self._files:
            raise ConfigError(f"{path} is a folder where a file belongs; move it away")

    @property
    def _files(self) -> list[Path]:
        """The paths of all files that have a name of their own."""
        folders = (self.path, self.plots, self.snapshots, self.audit, self.public)
        paths = (path for path in vars(self).values() if isinstance(path, Path))
        return [path for path in paths if path not in folders]

    def refuse_links(self) -> None:
        """Raise ConfigError if the folder holds anything but files and folders where they belong."""
        for path in self.path.rglob("*"):
            self.refuse_odd(path)

    def remove_leftovers(self) -> None:
        """Delete what a process that was killed while it wrote has left half written."""
        for path in self.path.glob(".*.tmp"):
            path.unlink(missing_ok=True)

    def write_text(self, path: Path, text: str) -> None:
        """Write a file of the run atomically, and note its digest."""
        write_text(path, text)
        self.digests.note_content(path, text.encode())

    def write_tensors(self, path: Path, state: object) -> None:
        """Write tensors of the run atomically, and note the digest of the file."""
        content = sealed_tensors(state)
        write_atomically(path, lambda file: file.write(content), "wb")
        self.digests.note_content(path, content)

    def copy(self, path: Path, to: Path) -> None:
        """Copy a file of the run; the copy has the digest that was noted of it."""
        with saying_where(to):
            shutil.copyfile(path, to)
        name = path.relative_to(self.path).as_posix()
        if name in self.digests.written:
            self.digests.note(to, *self.digests.written[name].values())

    def write_json(self, path: Path, value: Mapping[str, object]) -> None:
        self.write_text(path, json_text(value))

    def write_summary(self, summary: dict[str, object]) -> dict[str, object]:
        """Write ``summary.json`` with the digests of all files of the run; return what it holds."""
        self.digests.add_missing(COVERED)
        full, text = sealed(summary, self.digests.written)
        write_text(self.summary, text)
        return full


def not_resumable(folder: object) -> ConfigError:
    """The error for ``resume=`` something that is not a run folder."""
    hint = ""
    if (Path(str(folder)) / "multirun.yaml").is_file():
        hint = (
            "it is the folder of a sweep, which goes on with the sweep's own command and "
            f"hydra.sweep.dir={folder}"
        )
    allowed = "an existing run folder, with its environment.json and checkpoint.pt"
    return ConfigError("resume", folder, allowed, hint)


def new_folder(output_dir: str, name: str) -> RunFolder:
    """A fresh folder ``<output_dir>/<name>``, or ``…-2``, ``…-3`` if others were faster."""
    base = Path(output_dir)
    try:
        base.mkdir(parents=True, exist_ok=True)
        attempt, path = 1, base / name
        while True:
            try:
                path.mkdir()
                return RunFolder(path).create("runtime.output_dir")
            except FileExistsError:
                attempt += 1
                path = base / f"{name}-{attempt}"
    except OSError as error:
        raise ConfigError(
            "runtime.output_dir",
            output_dir,
            "a folder that can be written",
            error.strerror or str(error),
        ) from None


def environment(
    overrides: Sequence[str] | None, device: str, threads: int, streams: int
) -> dict[str, object]:
    """Versions, machine and command: what someone needs to repeat the run; ``streams``: the version of
    its random streams."""
    return {
        "schema_version": SCHEMA_VERSION,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["fedpriv", "train", *(overrides or [])]),
        "overrides": None if overrides is None else list(overrides),
        "commit": commit(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "device": device,
        "threads": threads,
        "cores": os.cpu_count(),
        "stream_version": streams,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit_words(commit: str | None, release: str | None) -> str:
    """The code that did something: its commit, or the version of an installed package."""
    if commit is not None:
        return f"commit {commit}"
    return f"installed package, fedpriv {release or 'of unknown version'}, commit unknown"


def own_commit_words() -> str:
    """The code that runs now."""
    return commit_words(commit(), _version("fedpriv"))


def commit() -> str | None:
    """The git commit of the checkout fedpriv runs from, if it is one."""
    here = Path(__file__).resolve().parents[2]
    if not (here / ".git").exists():
        return None
    answer = subprocess.run(
        ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or None
