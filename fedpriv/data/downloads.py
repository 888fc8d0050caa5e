"""Download of a data set from its servers: fails early, and writes complete files or none.

Files are fetched and unpacked in a temporary folder and then renamed. An interrupted download therefore
leaves nothing that looks complete, and two runs do not disturb each other. Of an archive only the files of
the data set are unpacked.

The module does not use pooch. Pooch would save a dozen lines, but it brings eight packages and its own
certificates instead of the system's, and it unzips a gzip file if a server declares it as an encoding.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import queue
import shutil
import tarfile
import tempfile
import threading
import time
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from fedpriv.common.errors import DataError
from fedpriv.data.storage import StoredFile

ANSWER_SECONDS = 5.0  # longest wait for a server's first answer
STALL_SECONDS = 30.0  # longest wait for the next bytes of a running download
_REASONS = (OSError, RuntimeError, ValueError, http.client.HTTPException)


def fetch(
    dataset: str,
    destination: str | Path,
    files: Sequence[StoredFile],
    contents: str,
    sites: Sequence[str],
    archives: Mapping[str, str | None],
) -> None:
    """Download ``files`` from one of ``sites``, verify them and put them below ``destination``.

    Args:
        dataset: Name of the data set, for messages.
        destination: Data folder.
        files: Files with their paths below the data folder.
        contents: Description of the files, for the error message.
        sites: Servers that have the files.
        archives: Archives on the servers that contain the files, with MD5 sums. Empty if the servers have the
            files themselves.

    Raises:
        DataError: There is no network, the disk is full or write-protected, or a file has a wrong checksum.
    """
    destination = Path(destination).expanduser()
    archives = archives or {Path(file.path).name: file.md5 for file in files}
    try:
        first = wait_for_answer([site + next(iter(archives)) for site in sites])
        sites = sorted(sites, key=lambda site: not first.startswith(site))
        destination.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=destination, prefix=".download-") as folder:
            for name, md5 in archives.items():
                archive = Path(folder) / name
                _retrieve([site + name for site in sites], archive, md5)
                _unpack(archive, files, Path(folder) / "unpacked")
            for file in files:
                (destination / file.path).parent.mkdir(parents=True, exist_ok=True)
                os.replace(Path(folder) / "unpacked" / file.path, destination / file.path)
    except _REASONS as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{dataset} could not be downloaded into {destination} ({reason}); put {contents} into a "
            f"folder and name it with dataset.path or FEDPRIV_DATA, or run "
            f"`fedpriv data download {dataset}` when that is solved"
        ) from error


def _retrieve(urls: Sequence[str], path: Path, md5: str | None) -> None:
    """Write the content of the first of ``urls`` that works to ``path``.

    Raises:
        RuntimeError: Every address failed or sent a wrong file.
    """
    from rich.console import Console
    from rich.progress import wrap_file

    console, reasons = Console(stderr=True), []
    bar: dict[str, Any] = {
        "console": console,
        "transient": True,
        "disable": not console.is_terminal,
    }
    for url in urls:
        try:
            with (
                urllib.request.urlopen(url, timeout=STALL_SECONDS) as answer,
                wrap_file(answer, answer.length, description=path.name, **bar) as source,
                open(path, "wb") as target,
            ):
                shutil.copyfileobj(source, target)
            return _verify(path, md5)
        except _REASONS as error:
            reasons.append(f"{url}: {error}")
    raise RuntimeError("; ".join(reasons))


def _verify(path: Path, md5: str | None) -> None:
    with open(path, "rb") as file:
        checksum = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if md5 not in (None, checksum):
        raise RuntimeError(f"the {path.name} that came has a wrong MD5")


def _unpack(archive: Path, files: Sequence[StoredFile], folder: Path) -> None:
    """Put the ``files`` found in ``archive``, recognized by their own names, below ``folder``."""
    files_by_name = {Path(file.path).name: file for file in files}
    for member, content in _members(archive):
        if file := files_by_name.get(Path(member).name.removesuffix(".gz")):
            target = folder / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "wb") as unpacked:
                zipped = member.endswith(".gz")
                shutil.copyfileobj(gzip.GzipFile(fileobj=content) if zipped else content, unpacked)
            _verify(target, file.md5)


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield name and content of each file in a tar or zip file; another file is its own only member."""
    if archive.name.endswith(".tar.gz"):
        with tarfile.open(archive) as tar:
            for member in tar:
                if (content := tar.extractfile(member) if member.isfile() else None) is not None:
                    yield member.name, content
    elif archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            yield from ((name, packed.open(name)) for name in packed.namelist())
    else:
        with open(archive, "rb") as file:
            yield archive.name, file


def wait_for_answer(urls: Sequence[str], seconds: float = ANSWER_SECONDS) -> str:
    """Return the address that answers first.

    Each address is asked in a thread of its own: without a network, the look-up of a host name can block far
    longer than any socket timeout.

    Raises:
        ConnectionError: No address answers within ``seconds``.
    """
    answers: queue.Queue[tuple[str, Exception | None]] = queue.Queue()
    for url in urls:
        threading.Thread(target=_ask, args=(url, seconds, answers), daemon=True).start()
    deadline, reasons = time.monotonic() + seconds, []
    try:
        for _ in urls:
            url, error = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            if error is None:
                return url
            reasons.append(f"{url}: {getattr(error, 'reason', error)}")
    except queue.Empty:
        raise ConnectionError(f"no answer within {seconds:g} seconds") from None
    raise ConnectionError(reasons[0])


def _ask(url: str, seconds: float, answers: queue.Queue[tuple[str, Exception | None]]) -> None:
    try:
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=seconds):
            answers.put((url, None))
    except _REASONS as error:
        answers.put((url, error))
