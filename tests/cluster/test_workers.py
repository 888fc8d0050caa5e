"""One run over the tasks of a Slurm job step, by srun and as jobs of a sweep."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("slurm")

RUN = (
    "train", "algorithm=dp_fl", "dataset=digits", "epsilon=null", "rounds=4", "chunk=2", "runtime.threads=1",
    "runtime.plots=false", "runtime.progress=none",
)  # fmt: skip
OVER_TASKS = ("runtime.workers=slurm",)


def said(folder: Path, *before: str, words: tuple[str, ...]) -> tuple[int, str]:
    """The exit status and all that a command says."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*before, sys.executable, "-m", "fedpriv", *words],
        cwd=folder, capture_output=True, text=True, timeout=180, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def weights(folder: Path) -> str:
    return hashlib.sha256((folder / "model.pt").read_bytes()).hexdigest()


@pytest.fixture
def alone(tmp_path):
    """The weights of the run in one process."""
    status, text = said(tmp_path, words=(*RUN, "runtime.run_dir=alone"))
    assert status == 0, text
    return weights(tmp_path / "alone")


def test_the_tasks_of_srun_share_a_run(tmp_path, alone):
    srun = ("srun", "--ntasks=2", "--overcommit")
    status, text = said(tmp_path, *srun, words=(*RUN, *OVER_TASKS, "runtime.run_dir=run"))
    assert status == 0, text
    assert weights(tmp_path / "run") == alone
    status, text = said(tmp_path, *srun, words=(*RUN, *OVER_TASKS, "dry_run=true"))
    assert status == 0, text
    assert text.count("accountant") == 1


def test_jobs_of_a_sweep_share_their_tasks(tmp_path, alone):
    launcher = ("hydra/launcher=submitit_slurm", "hydra.launcher.tasks_per_node=2",
                "hydra.launcher.cpus_per_task=1", "hydra.sweep.dir=sweep")  # fmt: skip
    status, text = said(tmp_path, words=(*RUN, "-m", "seed=0,1", *OVER_TASKS, *launcher))
    assert status == 0, text
    assert weights(tmp_path / "sweep" / "0") == alone
    assert (tmp_path / "sweep" / "1" / "summary.json").exists()
