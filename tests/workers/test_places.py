"""The place of a process, from the variables of torchrun and Slurm."""

from __future__ import annotations

import pytest

from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.workers import places
from fedpriv.workers.places import place_of, processes_here

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none", "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "node1", "MASTER_PORT": "29400",
}  # fmt: skip
SLURM = {
    "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "5", "SLURM_NODEID": "1",
    "SLURM_STEP_NODELIST": "node7", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_JOB_ID": "77",
}  # fmt: skip


def test_torchrun_always_counts():
    place = place_of(1, TORCHRUN)
    assert (place.rank, place.size, place.local_rank, place.local_size) == (5, 8, 1, 4)
    assert (place.host, place.port, place.launcher) == ("node1", 29400, "torchrun")
    assert not place.one_machine
    assert place_of(8, TORCHRUN) == place


def test_a_single_process_of_torchrun_computes_alone():
    assert place_of(1, {**TORCHRUN, "WORLD_SIZE": "1", "RANK": "0"}) is None


@pytest.mark.parametrize("workers", [4, "slurm"])
def test_another_number_than_torchrun_s_is_refused(workers):
    with pytest.raises(
        ConfigError, match=r"runtime\.workers must be 8, the processes that torchrun"
    ):
        place_of(workers, TORCHRUN)


@pytest.mark.parametrize("workers", [1, 4])
def test_slurm_s_variables_count_only_where_they_are_asked_for(workers):
    assert place_of(workers, SLURM) is None


def test_tasks_of_slurm():
    place = place_of("slurm", SLURM)
    assert (place.rank, place.size, place.local_rank, place.local_size) == (3, 5, 1, 2)
    assert (place.host, place.launcher) == ("node7", "slurm")
    assert place.port == place_of("slurm", {**SLURM, "SLURM_PROCID": "0"}).port
    assert place.port != place_of("slurm", {**SLURM, "SLURM_JOB_ID": "78"}).port
    chosen = {**SLURM, "MASTER_PORT": "1234", "MASTER_ADDR": "there"}
    assert (place_of("slurm", chosen).host, place_of("slurm", chosen).port) == ("there", 1234)


def test_one_task_of_slurm_computes_alone():
    assert place_of("slurm", {**SLURM, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}) is None


def test_without_srun_slurm_is_refused():
    with pytest.raises(ConfigError, match=r"runtime\.workers must be a number.*SLURM_PROCID.*srun"):
        place_of("slurm", {"SLURM_JOB_ID": "77"})


def test_a_list_of_nodes_needs_scontrol(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FedprivError, match="MASTER_ADDR"):
        place_of("slurm", {**SLURM, "SLURM_STEP_NODELIST": "node[1-3]"})


@pytest.mark.parametrize(
    ("text", "counts"), [("2(x2),1", [2, 2, 1, None]), ("4", [4, None]), ("", [None])]
)
def test_tasks_of_a_node(text, counts):
    assert [places._tasks_on_node(text, node) for node in range(len(counts))] == counts


def test_processes_on_this_machine(monkeypatch):
    assert processes_here(3) == 3
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    assert processes_here(1) == 4
