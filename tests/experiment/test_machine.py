"""How many threads a run has: by its work, never against what the user has set, and not beyond its end."""

from __future__ import annotations

import multiprocessing
import time

import pytest
import torch

from fedpriv.common.errors import ConfigError
from fedpriv.engine import probe
from fedpriv.experiment import assemble, machine
from fedpriv.experiment.machine import choose_threads, threads_restored
from fedpriv.store.folder import RunFolder
from fedpriv.store.stored_run import StoredRun

SHORT = ("rounds=1", "epsilon=null", "algorithm=dp_fl", "noise_schedule.noise_multiplier=4")


@pytest.fixture
def four_cores(monkeypatch):
    """A machine of four cores, and nobody has set torch's threads."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(machine, "cores", lambda: 4)
    with threads_restored(within=4):
        yield


@pytest.mark.parametrize(
    ("work", "processes", "threads"),
    [(0, 1, 1), (9e8, 1, 1), (1e9, 1, 2), (1e12, 1, 4), (1e9, 2, 1), (1e12, 2, 2), (1e12, 8, 1)],
)
def test_each_thread_has_half_a_billion_multiply_adds_of_a_step(
    four_cores, work, processes, threads
):
    assert choose_threads(None, work, processes) == torch.get_num_threads() == threads


@pytest.mark.parametrize("work", [0, 1e12])
def test_threads_that_the_user_has_set_stay(four_cores, monkeypatch, work):
    assert choose_threads(3, work) == 3
    assert choose_threads(None, work) == 3  # as by torch.set_num_threads(3)
    torch.set_num_threads(4)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert choose_threads(None, work) == 4


def test_the_variable_that_joblib_sets_is_an_upper_limit(four_cores, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setattr(multiprocessing.current_process(), "_config", {})
    monkeypatch.setattr(multiprocessing.current_process(), "_name", "LokyProcess-1")
    assert choose_threads(None, 0) == 1


def threads_of(result) -> int:
    return StoredRun(RunFolder(result.folder)).environment["threads"]


def test_a_run_s_threads_end_with_it(train, monkeypatch):
    before = torch.get_num_threads()
    other = (*SHORT, f"runtime.threads={before + 1}", "runtime.engine=fast")
    assert threads_of(train(*other, name="other")) == before + 1
    assert torch.get_num_threads() == before
    assert threads_of(train(*SHORT, name="next")) == before
    seen = []

    def refused(*_: object) -> None:
        seen.append(torch.get_num_threads())
        raise ConfigError("no")

    monkeypatch.setattr(assemble, "make_budget", refused)
    for dry in ("false", "true"):
        with pytest.raises(ConfigError, match="no"):
            train(*other, f"dry_run={dry}", name=dry)
        assert torch.get_num_threads() == before
    assert seen == [before + 1, before + 1]


def test_the_probe_has_one_thread_and_lots_by_the_work_of_a_record(four_cores, train, monkeypatch):
    seen = []
    monkeypatch.setattr(
        probe,
        "refuse_record_mixing",
        lambda module, draw, sizes, per_record: seen.append((torch.get_num_threads(), sizes)),
    )
    train(*SHORT, "partition.clients=2", "runtime.threads=3", name="all")
    monkeypatch.setattr(probe, "LARGEST_WORK", 15 * 650)  # a logistic model of 64 pixels
    train(*SHORT, "partition.clients=2", "runtime.threads=3", name="few")
    (one, sizes), fewer = seen
    assert one == 1
    assert sizes[:2] == [2, 9]
    assert sizes[2] > 15
    assert fewer == (1, [2, 9, 15])


def test_the_time_of_a_run_counts_its_probe(train, monkeypatch):
    clock, late = time.perf_counter, []
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + sum(late))
    monkeypatch.setattr(assemble, "_probe_model", lambda *_: late.append(1000))
    assert train(*SHORT).summary["seconds"] > 1000
