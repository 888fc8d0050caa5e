"""Files in memory: other processes of the user read them, nobody changes them, and they end with the last."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import astuple, dataclass

import numpy as np
import pytest
import torch

from fedpriv.workers import shared_memory
from fedpriv.workers.packing import UnsendableError
from fedpriv.workers.shared_memory import SharedFile

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="files in memory")
VALUE = {"inputs": torch.arange(5000.0), "numbers": np.arange(7), "task": "classification"}
READER = """
from fedpriv.workers import shared_memory
value = shared_memory.read(shared_memory.SharedFile({}, {}, {}), {{}})
value["inputs"][0] = -1
print(float(value["inputs"].sum()), value["numbers"].sum(), value["task"])
"""


@pytest.fixture
def file():
    written = shared_memory.write(VALUE, {})
    yield written
    shared_memory.close(written)


def read_elsewhere(file: SharedFile, **arguments) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", READER.format(*astuple(file))]
    return subprocess.run(command, capture_output=True, text=True, **arguments)


def test_another_process_reads_the_value_and_changes_it_for_itself_alone(file):
    assert read_elsewhere(file).stdout.split() == ["12497499.0", "21", "classification"]
    value = shared_memory.read(file, {})
    assert torch.equal(value["inputs"], VALUE["inputs"])
    value["inputs"][:] = 0
    assert torch.equal(shared_memory.read(file, {})["inputs"], VALUE["inputs"])


def test_nobody_can_write_to_the_file(file):
    for change in (
        lambda: os.pwrite(file.descriptor, b"x", 0),
        lambda: os.ftruncate(file.descriptor, 0),
    ):
        with pytest.raises(PermissionError):
            change()


def test_the_file_has_no_name_and_is_its_owner_s_alone(file):
    status = os.fstat(file.descriptor)
    assert status.st_nlink == 0
    assert status.st_mode & 0o777 == 0o400
    assert not os.get_inheritable(file.descriptor)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can be another user")
def test_another_user_cannot_open_the_file(file):
    path = f"/proc/{file.pid}/fd/{file.descriptor}"
    seen = subprocess.run(["cat", path], user=65534, group=65534, capture_output=True, text=True)
    assert seen.returncode != 0
    assert not seen.stdout
    assert "denied" in seen.stderr


def test_a_value_is_read_on_after_its_file_was_closed():
    file = shared_memory.write(VALUE, {})
    value = shared_memory.read(file, {})
    shared_memory.close(file)
    assert torch.equal(value["inputs"], VALUE["inputs"])


@pytest.mark.thorough
def test_a_closed_file_is_not_read_by_another_process():
    file = shared_memory.write(VALUE, {})
    shared_memory.close(file)
    said = read_elsewhere(file).stderr
    assert "OSError" in said or "FileNotFound" in said


def test_another_file_in_its_place_is_not_read(file):
    with pytest.raises(OSError, match="another file"):
        shared_memory.read(SharedFile(file.pid, file.descriptor, file.inode + 1), {})


@dataclass
class Unknown:
    """A class that messages do not know."""


def test_nothing_stays_open_of_what_could_not_be_written(monkeypatch):
    before = os.listdir("/proc/self/fd")
    with pytest.raises(UnsendableError):
        shared_memory.write(Unknown(), {})

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        shared_memory.write(VALUE, {})
    assert os.listdir("/proc/self/fd") == before
