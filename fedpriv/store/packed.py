"""Finished runs in one file, ``runs.zip``: what ``fedpriv figure --reuse`` draws from.

It may come from somebody else: nothing is taken out of it but files of run folders, of a bounded size in all.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import saying_where, write_atomically
from fedpriv.store.saved import refuse_no_file
from fedpriv.store.stored_run import StoredRun

FILES = (
    "config.yaml", "summary.json", "metrics.csv", "clients.csv", "privacy.txt", "privacy.json",
    "environment.json",
)  # fmt: skip
LARGEST = 1 << 28  # bytes, of the file and of what is in it
_ENTRY = re.compile(rf"(?!\.)[\w.,=+-]+/({'|'.join(map(re.escape, FILES))})")
_TIME = (1980, 1, 1, 0, 0, 0)


def pack_runs(folders: Iterable[Path], archive: Path) -> None:
    """Write the runs in these folders, which have different names: the same runs give the same bytes."""

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w") as packed:
            for run in map(StoredRun, sorted(folders, key=lambda folder: folder.name)):
                for path in (run.path / name for name in FILES):
                    if path.exists():
                        entry = zipfile.ZipInfo(f"{run.path.name}/{path.name}", _TIME)
                        run.check(path)
                        packed.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED, 9)

    write_atomically(archive, write, "wb")


def unpack_runs(archive: Path, into: Path) -> Path:
    """The folder, below ``into``, of the runs that ``archive`` holds; unpacked once. Raises ConfigError."""
    refuse_no_file(archive, LARGEST)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:12]
    target = into / f"{archive.resolve().parent.name}-{digest}"
    if not target.is_dir():
        with saying_where(target):
            into.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=into, prefix=".") as half:
                _extract(archive, Path(half) / "runs")
                _move(Path(half) / "runs", target)
    return target


def _extract(archive: Path, folder: Path) -> None:
    folder.mkdir()
    try:
        with zipfile.ZipFile(archive) as packed:
            entries = packed.infolist()
            if sum(entry.file_size for entry in entries) > LARGEST:
                raise _unreadable(archive, f"its files have more than {LARGEST:,} bytes")
            for entry in entries:
                if not _ENTRY.fullmatch(entry.filename):
                    raise _unreadable(archive, f"{entry.filename!r} is no file of a run")
                (folder / entry.filename).parent.mkdir(exist_ok=True)
                (folder / entry.filename).write_bytes(packed.read(entry))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
        raise _unreadable(archive, str(error)) from None


def _unreadable(archive: Path, reason: str) -> ConfigError:
    return ConfigError(f"{archive} cannot be read: {reason}")


def _move(made: Path, target: Path) -> None:
    try:
        made.rename(target)
    except OSError:
        if not target.is_dir():  # else another process was first
            raise
        shutil.rmtree(made)
