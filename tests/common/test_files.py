from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fedpriv.common.errors import WriteError
from fedpriv.common.files import locked, write_atomically, write_text


def names(folder) -> list[str]:  # type: ignore[no-untyped-def]
    return sorted(path.name for path in folder.iterdir())


def fail_after_writing(file) -> None:  # type: ignore[no-untyped-def]
    file.write("half")
    raise RuntimeError("interrupted")


def test_a_text_is_written_as_utf8(tmp_path):
    write_text(tmp_path / "a.txt", "ε = 2\n")
    assert (tmp_path / "a.txt").read_bytes() == "ε = 2\n".encode()


def test_a_path_may_be_a_text(tmp_path):
    write_text(str(tmp_path / "a.txt"), "new")
    assert (tmp_path / "a.txt").read_text() == "new"


def test_bytes_are_written_in_binary_mode(tmp_path):
    write_atomically(tmp_path / "a.bin", lambda file: file.write(b"\x00\xff"), mode="wb")
    assert (tmp_path / "a.bin").read_bytes() == b"\x00\xff"


def test_a_new_file_replaces_the_old_one_whole(tmp_path):
    write_text(tmp_path / "a.txt", "a long old text")
    write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new"


def test_only_the_file_is_left_behind(tmp_path):
    write_text(tmp_path / "a.txt", "new")
    assert names(tmp_path) == ["a.txt"]


def test_the_old_file_stays_when_the_writer_fails(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    with pytest.raises(RuntimeError, match="interrupted"):
        write_atomically(tmp_path / "a.txt", fail_after_writing)
    assert (tmp_path / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_no_file_appears_when_the_first_writer_fails(tmp_path):
    with pytest.raises(RuntimeError, match="interrupted"):
        write_atomically(tmp_path / "a.txt", fail_after_writing)
    assert names(tmp_path) == []


def test_the_old_file_is_there_until_the_new_one_is_whole(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    seen = []

    def write(file) -> None:  # type: ignore[no-untyped-def]
        file.write("new")
        file.flush()
        seen.append((tmp_path / "a.txt").read_text())

    write_atomically(tmp_path / "a.txt", write)
    assert seen == ["old"]


def test_the_old_contents_are_never_written_over(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    os.link(tmp_path / "a.txt", tmp_path / "same.txt")
    write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "same.txt").read_text() == "old"


def test_a_process_killed_while_writing_leaves_the_old_file(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    code = (
        "import os, sys; from fedpriv.common.files import write_atomically\n"
        "write_atomically(sys.argv[1], lambda file: (file.write('half'), os._exit(9)))"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.txt")], check=False)
    assert killed.returncode == 9
    assert (tmp_path / "a.txt").read_text() == "old"


def test_a_missing_folder_is_said_with_the_file(tmp_path):
    with pytest.raises(WriteError, match=r"a\.txt cannot be written: No such file"):
        write_text(tmp_path / "absent" / "a.txt", "new")


HOLDING = """
import sys
from fedpriv.common.files import locked
with locked(sys.argv[1]) as free:
    print(free, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def hold():
    """(folder) → a process that holds its lock until its standard input is closed."""
    started = []

    def run(folder) -> subprocess.Popen:  # type: ignore[no-untyped-def]
        child = subprocess.Popen(
            [sys.executable, "-c", HOLDING, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(child)
        assert child.stdout.readline() == "True\n"
        return child

    yield run
    for child in started:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def test_a_folder_that_nobody_holds_is_free(tmp_path):
    with locked(tmp_path) as free:
        assert free


def test_a_lock_leaves_no_file(tmp_path):
    with locked(tmp_path):
        assert names(tmp_path) == []
    assert names(tmp_path) == []


def test_a_folder_can_be_locked_again_and_again(tmp_path):
    for _ in range(2):
        with locked(tmp_path) as free:
            assert free


def test_a_folder_that_another_process_holds_is_not_free(tmp_path, hold):
    hold(tmp_path)
    with locked(tmp_path) as free:
        assert not free


def test_a_folder_that_was_not_free_stays_with_the_other_process(tmp_path, hold):
    hold(tmp_path)
    for _ in range(2):
        with locked(tmp_path) as free:
            assert not free


def test_other_folders_are_free(tmp_path, hold):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    hold(tmp_path / "one")
    with locked(tmp_path / "two") as free:
        assert free


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_folder_is_free_once_the_process_has_ended(end, tmp_path, hold):
    child = hold(tmp_path)
    child.kill() if end == "kill" else child.stdin.close()
    child.wait()
    with locked(tmp_path) as free:
        assert free


def test_a_folder_is_free_after_an_error(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path):
        raise KeyError
    with locked(tmp_path) as free:
        assert free


def test_an_error_inside_is_not_swallowed(tmp_path):
    with pytest.raises(BlockingIOError), locked(tmp_path):
        raise BlockingIOError
