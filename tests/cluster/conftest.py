"""A figure of two runs that can be held, the Slurm of scripts/one_node_slurm.sh, and Ray.

A run is held between rounds while the file ``hold`` lies in the folder of the test. Tests are skipped, with a
reason, where Slurm or a launcher cannot be had.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
from omegaconf import OmegaConf

SCRIPT = Path(__file__).parents[2] / "scripts" / "one_node_slurm.sh"
SLURM = Path("/tmp/fedpriv-slurm")  # the folder of the script
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd")
ROUNDS, RUNS = 40, 2
FIGURE = ("figure", "own/tiny", "--config-dir", "mine", "runtime.checkpoint_interval=2")
QUIET = ("runtime.progress=none",)
HELD = """\
import os, time
from fedpriv.privacy.clippers import ConstantClipper

HERE = os.path.dirname(os.path.abspath(__file__))

class Held(ConstantClipper):
    def observe(self, *released):
        with open(os.path.join(HERE, "rounds.log"), "a") as file:
            file.write(str(os.getpid()) + chr(10))
        if os.path.exists(os.path.join(HERE, "hold")):
            time.sleep(0.5)
"""
TINY = f"""\
# @package _global_
# digits: two noise multipliers
defaults:
  - /work: base
  - _self_
figure:
  work: ours
  title: Tiny
  quick: [rounds=2]
  panels:
    digits:
      title: Digits
      overrides:
        [dataset=digits, epsilon=null, rounds={ROUNDS}, algorithm=dp_fl, clipper._target_=held_clipper.Held]
      seeds: [0]
  curves:
    loud: {{label: loud, colour: blue, overrides: [noise_schedule.noise_multiplier=16]}}
    quiet: {{label: quiet, colour: orange, overrides: [noise_schedule.noise_multiplier=8]}}
  show: {{digits: [loud, quiet]}}
  x: round
  metric: {{accuracy: test_accuracy}}
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = str(Path(__file__).parent) + os.sep
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def slurm() -> Iterator[None]:
    """Slurm runs, and SLURM_CONF names it. Processes share one, and the last one that needs it stops it."""
    if find_spec("hydra_plugins.hydra_submitit_launcher") is None:
        pytest.skip("needs the launcher submitit_slurm: pip install '.[slurm]'")
    if os.geteuid() != 0:
        pytest.skip("needs root, to start a Slurm of one node")
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if any(shutil.which(program, path=path) is None for program in PROGRAMS):
        pytest.skip("needs apt-get install slurm-wlm slurmdbd munge mariadb-server")
    ours = SLURM / "started_by_a_test"
    with open(SLURM.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not SLURM.exists():
            subprocess.run([SCRIPT, "start", SLURM], check=True, stdout=subprocess.DEVNULL)
            ours.touch()
        fcntl.flock(lock, fcntl.LOCK_SH)
        before = os.environ.get("SLURM_CONF")
        os.environ["SLURM_CONF"] = str(SLURM / "slurm.conf")
        yield
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if ours.exists():
                subprocess.run([SCRIPT, "stop", SLURM], check=True)
        except BlockingIOError:
            pass  # another process goes on
        os.environ.pop("SLURM_CONF")
        if before is not None:
            os.environ["SLURM_CONF"] = before


@pytest.fixture(scope="session")
def ray() -> None:
    """Ray can be started on this machine."""
    if find_spec("hydra_plugins.hydra_ray_launcher") is None:
        pytest.skip("needs the launcher ray: pip install '.[ray]'")


def write_figure(folder: Path) -> None:
    path = folder / "mine" / "figure" / "own" / "tiny.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(TINY)
    (folder / "held_clipper.py").write_text(HELD)


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> Path:
    """The folder ``outputs`` of the figure made in one process, uninterrupted."""
    folder = tmp_path_factory.mktemp("whole")
    write_figure(folder)
    command = [sys.executable, "-m", "fedpriv", *FIGURE, *QUIET]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / "outputs"


class Place:
    """The folder of a test, which is the working directory of its commands.

    Args:
        whole: The outputs of the same figure, uninterrupted.
        start: (arguments) → a started ``fedpriv <arguments>``.
    """

    def __init__(self, folder: Path, whole: Path, start: Callable[..., subprocess.Popen]):
        self.folder, self.outputs, self.hold = folder, folder / "outputs", folder / "hold"
        self._whole, self._start = whole, start

    @property
    def rounds_run(self) -> int:
        """Rounds that were run by all processes together; none twice: ``whole_rounds``."""
        return len((self.folder / "rounds.log").read_text().splitlines())

    whole_rounds = ROUNDS * RUNS

    def begin(self, *arguments: str, runs: int = RUNS) -> subprocess.Popen:
        """The figure is being made; ``runs`` runs are held between their first checkpoint and their end."""
        return self.begin_command(
            *FIGURE, *arguments, checkpoints="runs/*/checkpoint.pt", runs=runs
        )

    def begin_command(
        self, *arguments: str, checkpoints: str, runs: int = RUNS
    ) -> subprocess.Popen:
        """A command of which so many runs are held, each with a checkpoint at that place below outputs."""
        self.hold.touch()
        child = self._start(*arguments, *QUIET)
        self.wait(lambda: len(list(self.outputs.glob(checkpoints))) == runs, child)
        return child

    def end(self, child: subprocess.Popen) -> tuple[int, str]:
        """Hold the runs no longer; (exit status, standard error) of the command."""
        self.hold.unlink(missing_ok=True)
        _, err = child.communicate()
        return child.returncode, err

    def make(self, *arguments: str) -> tuple[int, str]:
        """The figure, made without anything happening: (exit status, standard output and error)."""
        child = self._start(*FIGURE, *arguments, *QUIET)
        out, err = child.communicate()
        return child.returncode, out + err

    def wait(self, happened: Callable[[], object], child: subprocess.Popen | None = None) -> None:
        """Until something happened; an error if ``child`` ends before."""
        while not happened():
            if child is not None:
                assert child.poll() is None, child.communicate()
            time.sleep(0.1)

    def assert_whole(self) -> None:
        """The figure and its runs are bit for bit those of an uninterrupted process."""
        runs, expected = (
            sorted((place / "runs").iterdir()) for place in (self.outputs, self._whole)
        )
        assert [run.name for run in runs] == [run.name for run in expected]
        for name in ("figure.csv", "ends.csv"):
            path = Path("figures") / "own" / "tiny" / name
            assert (self.outputs / path).read_bytes() == (self._whole / path).read_bytes()
        for run, other in zip(runs, expected, strict=True):
            assert_same_run(run, other)

    def assert_whole_runs(self, runs: Iterable[Path]) -> None:
        """These are, bit for bit, the runs of the figure: of loud noise first."""
        by_noise = {noise_of(run): run for run in (self._whole / "runs").iterdir()}
        for run in runs:
            assert_same_run(run, by_noise[noise_of(run)])


def noise_of(run: Path) -> float:
    return OmegaConf.load(run / "config.yaml").noise_schedule.noise_multiplier


def assert_same_run(run: Path, other: Path) -> None:
    """All that a run computes is bit for bit the same."""
    tables = [
        pd.read_csv(folder / "metrics.csv").drop(columns="seconds") for folder in (run, other)
    ]
    pd.testing.assert_frame_equal(*tables, check_exact=True)
    for name in ("model.pt", "ledger.csv", "clients.csv"):
        assert (run / name).read_bytes() == (other / name).read_bytes(), name


@pytest.fixture
def place(tmp_path, whole, start) -> Iterator[Place]:
    write_figure(tmp_path)
    with open(SLURM.with_suffix(".test"), "w") as lock:  # one such test at a time on a machine
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Place(tmp_path, whole, start)
