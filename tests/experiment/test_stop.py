"""The file by which the first signal asks every job to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from fedpriv.experiment.stop import StopFile

SIGNALS = [signal.SIGINT, signal.SIGTERM]


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_makes_the_file_and_no_more(number, tmp_path):
    with StopFile(tmp_path) as stop:
        before = (stop.requested, stop.path.exists())
        os.kill(os.getpid(), number)
        after = (stop.requested, stop.path.exists())
    assert (before, after) == ((False, False), (True, True))


@pytest.mark.parametrize("second", SIGNALS)
def test_the_second_signal_ends_everything(second, tmp_path):
    with StopFile(tmp_path):
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), second)


def test_the_first_signal_says_what_a_second_does(tmp_path, capsys):
    with StopFile(tmp_path):
        os.kill(os.getpid(), signal.SIGINT)
    assert capsys.readouterr().err == "fedpriv: stopping the runs; again to end at once\n"


def test_the_file_is_gone_afterwards(tmp_path):
    with StopFile(tmp_path) as stop:
        os.kill(os.getpid(), signal.SIGINT)
    assert list(tmp_path.iterdir()) == []
    assert stop.requested


def test_the_file_is_gone_after_an_error(tmp_path):
    stop = StopFile(tmp_path)

    def fail() -> None:
        with stop:
            stop.path.touch()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fails", [False, True])
def test_the_handlers_of_before_are_back_afterwards(fails, tmp_path):
    before = handlers()
    with StopFile(tmp_path):
        within = handlers()
    if fails:
        with pytest.raises(KeyError), StopFile(tmp_path):
            raise KeyError
    assert handlers() == before
    assert within != before


def test_a_file_left_by_a_process_that_was_killed_stops_nothing(tmp_path):
    StopFile(tmp_path).path.touch()
    with StopFile(tmp_path) as stop:
        assert not stop.path.exists()


def test_the_folder_is_made(tmp_path):
    with StopFile(tmp_path / "a" / "b") as stop:
        stop.path.touch()
    assert (tmp_path / "a" / "b").is_dir()


def test_the_path_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert StopFile(Path("here")).path.is_absolute()


def test_outside_the_main_thread_signals_stay_as_they_are(tmp_path):
    before, within = handlers(), []

    def body() -> None:
        with StopFile(tmp_path):
            within.extend(handlers())

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert within == before


WATCHED = """
import sys, time
from pathlib import Path
from fedpriv.experiment.stop import StopFile
with StopFile(Path("."), watched=True) as stop:
    print(stop.path, flush=True)
    time.sleep(float(sys.argv[1]))
"""


def watched(folder: Path, seconds: float) -> tuple[subprocess.Popen, Path]:
    """A process that has a stop file, and the file."""
    given = [sys.executable, "-c", WATCHED, str(seconds)]
    child = subprocess.Popen(given, cwd=folder, stdout=subprocess.PIPE, text=True)
    return child, Path(child.stdout.readline().strip())


def test_the_file_appears_when_its_process_is_killed_and_the_next_one_removes_it(tmp_path):
    child, path = watched(tmp_path, 600)
    assert not path.exists()
    child.kill()
    child.communicate()
    while not path.exists():
        time.sleep(0.01)
    with StopFile(tmp_path) as stop:
        assert stop.path != path
        assert path.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_ends_well_leaves_no_file_and_no_watcher(tmp_path):
    child, path = watched(tmp_path, 0)
    assert child.wait() == 0
    child.communicate()
    assert not path.exists()
    ours = [p for p in psutil.process_iter(["cmdline"]) if path.name in (p.info["cmdline"] or ())]
    assert ours == []


def test_the_file_of_another_process_that_lives_is_left_alone(tmp_path):
    child, path = watched(tmp_path, 600)
    path.touch()
    with StopFile(tmp_path):
        pass
    assert path.exists()
    child.kill()
    child.communicate()
