"""Downloading a data set, with torchvision or file by file: quick to give up, whole files or none.

Addresses and the published MD5 sums of the archives of images come from torchvision's own data set
classes (``MNIST.mirrors``, ``MNIST.resources``, ``CIFAR10.url``, ``CIFAR10.tgz_md5``); the sums of
the unpacked files are ours. Files are fetched into a temporary folder and renamed into place, so that
an interrupted download leaves nothing that looks complete, and two runs do not disturb each other.
"""

from __future__ import annotations

import http.client
import os
import queue
import shutil
import socket
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedpriv.common.errors import DataError
from fedpriv.common.torchvision_shim import import_torchvision
from fedpriv.data.storage import StoredFile, md5

ANSWER_SECONDS = 5.0  # for a server to answer at all
STALL_SECONDS = 30.0  # for the next bytes of a download under way
REASONS = (OSError, RuntimeError, http.client.HTTPException)  # what a failed download raises


def fetch(
    torchvision_class: str, destination: Path, files: Sequence[StoredFile], **keys: Any
) -> None:
    """Download by ``torchvision.datasets.<torchvision_class>``, verify, put into ``destination``.

    ``keys``: further arguments of that class. Raises one of ``REASONS``: no network, a full or closed
    disk, a file that is not the right one.
    """
    source = getattr(import_torchvision().datasets, torchvision_class)
    wait_for_answer(addresses(source))
    with _verified_into(destination, files) as folder, _socket_timeout(STALL_SECONDS):
        source(folder, download=True, **keys)


def fetch_files(site: str, destination: Path, files: Sequence[StoredFile]) -> None:
    """Download ``site`` + the file's own name for each file, verify, put into ``destination``.

    Raises one of ``REASONS``, as ``fetch`` does.
    """
    urls = [site + Path(file.path).name for file in files]
    wait_for_answer(urls[:1])
    with _verified_into(destination, files) as folder:
        for url, file in zip(urls, files, strict=True):
            (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
            with (
                urllib.request.urlopen(url, timeout=STALL_SECONDS) as answer,
                open(folder / file.path, "wb") as target,
            ):
                shutil.copyfileobj(answer, target)


@contextmanager
def _verified_into(destination: Path, files: Sequence[StoredFile]) -> Iterator[Path]:
    """A temporary folder to download into; at the end its ``files`` are verified and moved."""
    destination.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination, prefix=".download-") as folder:
        yield Path(folder)
        for file in files:
            content = (Path(folder) / file.path).read_bytes()
            if file.md5 is not None and md5(content) != file.md5:
                raise RuntimeError(f"the {file.path} that came has a wrong MD5")
        for file in files:
            target = destination / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(Path(folder) / file.path, target)


def addresses(source: Any) -> list[str]:
    """One address per server that a torchvision data set class would try."""
    if hasattr(source, "url"):  # first: EMNIST inherits the mirrors of MNIST and does not use them
        return [source.url]
    return [mirror + source.resources[0][0] for mirror in source.mirrors]


def wait_for_answer(urls: Sequence[str], seconds: float = ANSWER_SECONDS) -> None:
    """Return as soon as one address answers; ConnectionError if none does within ``seconds``.

    The question is asked in threads: looking up a name without a network can block for far longer
    than any socket timeout.
    """
    answers: queue.Queue[str | None] = queue.Queue()
    for url in urls:
        threading.Thread(target=_ask, args=(url, seconds, answers), daemon=True).start()
    deadline, reasons = time.monotonic() + seconds, []
    while len(reasons) < len(urls):
        try:
            reason = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise ConnectionError(f"no answer within {seconds:g} seconds") from None
        if reason is None:
            return
        reasons.append(reason)
    raise ConnectionError(reasons[0])


def _ask(url: str, seconds: float, answers: queue.Queue[str | None]) -> None:
    try:
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=seconds):
            answers.put(None)
    except (*REASONS, ValueError) as error:
        answers.put(f"{url}: {getattr(error, 'reason', error)}")


@contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    """torchvision passes no timeout to urllib, so a stalled server would hang the run."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def failure(dataset: str, destination: Path, contents: str, error: Exception) -> DataError:
    """The one sentence for a download that did not work."""
    reason = " ".join(str(error).split())
    return DataError(
        f"{dataset} could not be downloaded into {destination} ({reason}); put {contents} into a "
        f"folder and name it with dataset.path or FEDPRIV_DATA, or run "
        f"`fedpriv data download {dataset}` when that is solved"
    )
