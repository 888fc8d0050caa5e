"""Memory that one process writes and all processes of a machine read: a file without a name, never on a disk.

The file is there while a process has it open or mapped, so the system frees it at the end of a run, also of
one that is killed. Another process of the same user opens it as ``/proc/PID/fd/N``. Other users cannot:
the system lets nobody else look there, and the file is readable by its owner alone.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedpriv.workers.packing import Classes, pack, unpack


@dataclass(frozen=True)
class SharedFile:
    """A file in memory, as another process of the same machine finds it.

    Attributes:
        pid: Process that has the file open.
        descriptor: Its number for the file.
        inode: Number of the file, by which a reader knows that it opened this one.
    """

    pid: int
    descriptor: int
    inode: int


def write(value: object, classes: Classes) -> SharedFile:
    """Write a value into a new file in memory, which nobody can change from then on.

    This process keeps the file open until :func:`close`.

    Args:
        value: What :func:`fedpriv.workers.packing.pack` takes.
        classes: Data classes by name.

    Raises:
        OSError: The system has no such files, or no memory left.
        UnsendableError: The value holds an object of another class.
    """
    if sys.platform != "linux":
        raise OSError("files in memory are there on Linux alone")
    descriptor = os.memfd_create("fedpriv records", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.fchmod(descriptor, 0o400)

        def allocate(size: int) -> Tensor:
            # All of it at once: memory that is missing is told here, and not by a signal at a later write.
            os.posix_fallocate(descriptor, 0, size)
            return torch.from_numpy(np.frombuffer(mmap.mmap(descriptor, size), dtype=np.uint8))

        pack(value, classes, allocate)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        return SharedFile(os.getpid(), descriptor, os.fstat(descriptor).st_ino)
    except BaseException:
        os.close(descriptor)
        raise


def read(file: SharedFile, classes: Classes) -> object:
    """Return the value of a file. Its tensors and arrays are the file's memory, not copies.

    A process that writes to one of them gets a page of its own; no other process sees the change.

    Args:
        file: The file.
        classes: Data classes by name.

    Raises:
        OSError: The file cannot be opened, or it is another one.
    """
    descriptor, is_own = file.descriptor, file.pid == os.getpid()
    if not is_own:
        path = f"/proc/{file.pid}/fd/{file.descriptor}"
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_ino != file.inode:
            raise OSError(f"descriptor {file.descriptor} of process {file.pid} is another file")
        content = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_COPY)
    finally:
        if not is_own:
            os.close(descriptor)
    return unpack(torch.from_numpy(np.frombuffer(content, dtype=np.uint8)), classes)


def close(file: SharedFile) -> None:
    """Close the file in the process that wrote it. It stays while a process has it mapped."""
    os.close(file.descriptor)
