"""Finished runs in one file, ``runs.zip``, from which ``fedpriv figure --reuse`` draws.

The archive may be somebody else's: only files of run folders are unpacked.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from fedpriv.common.files import saying_where, write_atomically
from fedpriv.store.saved import refuse_no_file, unreadable

FILES = (
    "config.yaml", "summary.json", "metrics.csv", "clients.csv", "privacy.txt", "privacy.json",
    "environment.json",
)  # fmt: skip
LEDGER = "ledger.csv"  # in archives for the review of an artefact
_ENTRY = re.compile(rf"(?!\.)[\w.,=+-]+/({'|'.join(map(re.escape, (*FILES, LEDGER)))})")
_TIME = (1980, 1, 1, 0, 0, 0)  # a fixed date for all entries: the same runs give the same bytes


def pack_runs(folders: Iterable[Path], archive: Path, more: Sequence[str] = ()) -> None:
    """Write runs to an archive; the same runs give the same bytes.

    Of each run the files in :data:`FILES` that exist are packed.

    Args:
        folders: Run folders, each with a name of its own.
        archive: The file to write.
        more: Further files of each run, such as the ledger, from which the joint ε follows.

    Raises:
        WriteError: The archive cannot be written.
    """

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w") as packed:
            for folder in sorted(folders, key=lambda folder: folder.name):
                for path in (folder / name for name in (*FILES, *more)):
                    if path.exists():
                        entry = zipfile.ZipInfo(f"{folder.name}/{path.name}", _TIME)
                        packed.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED, 9)

    write_atomically(archive, write, "wb")


def unpack_runs(archive: Path, into: Path) -> Path:
    """Unpack an archive, unless that was done before.

    Args:
        archive: A file that :func:`pack_runs` wrote.
        into: The folder below which a folder is made for the archive, named after its digest.

    Returns:
        The folder of the unpacked runs.

    Raises:
        ConfigError: The archive is damaged, or holds other files than those of runs.
        WriteError: The folder cannot be written.
    """
    refuse_no_file(archive)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:12]
    target = into / f"{archive.resolve().parent.name}-{digest}"
    if not target.is_dir():
        with saying_where(target):
            into.mkdir(parents=True, exist_ok=True)
            # Unpacked elsewhere and then renamed, so that a folder with the name of the digest is always
            # whole.
            with tempfile.TemporaryDirectory(dir=into, prefix=".") as temporary:
                unpacked = Path(temporary) / "runs"
                _extract(archive, unpacked)
                try:
                    unpacked.rename(target)
                except OSError:
                    if not target.is_dir():  # else another process was first
                        raise
    return target


def _extract(archive: Path, folder: Path) -> None:
    folder.mkdir()
    try:
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                # No other name, and so no path that leads out of the folder.
                if not _ENTRY.fullmatch(entry.filename):
                    raise unreadable(archive, f"{entry.filename!r} is no file of a run")
                (folder / entry.filename).parent.mkdir(exist_ok=True)
                (folder / entry.filename).write_bytes(packed.read(entry))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
        raise unreadable(archive, str(error)) from None
