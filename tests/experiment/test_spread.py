"""A run over several processes: the same bits for any number of them, and no secrets to the others."""

from __future__ import annotations

import socket
import threading

import pytest
import torch
from chunk_runs import RUNS
from spread_runs import ThreadMember, results, thread_workers

import fedpriv
from fedpriv.common.errors import ConfigError, FedprivError, WorkerError
from fedpriv.experiment import spread
from fedpriv.store.folder import RunFolder
from fedpriv.workers.link import Link, LostError

QUIET = ("runtime.progress=none", "runtime.plots=false")

FIVE_CHUNKS = ("algorithm=dp_fl", "partition=dirichlet", "partition.alpha=0.5", "partition.clients=9",
               "chunk=2", "epsilon=null", "rounds=3", "algorithm.local_steps=2",
               "runtime.threads=1")  # fmt: skip
CLIENT_LEVEL = ("algorithm=cdp_fedavg", "partition.clients=20", "algorithm.client_rate=0.9", "chunk=4",
                "algorithm.batch_size=20", "epsilon=null", "rounds=3", "runtime.threads=1")  # fmt: skip


def in_processes(train, workers: int, *overrides: str, name: str = ""):
    """The results of a run with this many processes, all but the first in threads, and its team."""
    with thread_workers() as teams:
        result = train(f"runtime.workers={workers}", *overrides, name=f"of{workers}{name}")
    return results(result.folder), teams


@pytest.mark.parametrize("overrides", [FIVE_CHUNKS, CLIENT_LEVEL], ids=["records", "clients"])
def test_any_number_of_processes_gives_the_same_bits(train, overrides):
    alone, no_team = in_processes(train, 1, *overrides)
    assert no_team == []
    for workers in (3,):
        shared, (team,) = in_processes(train, workers, *overrides)
        assert shared == alone
        assert (team._crew.effort.busy > 0).all()  # every rank has computed
        assert team._crew.effort.repeated == 1


@pytest.mark.cluster
@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("name", RUNS)
def test_every_computation_gives_the_same_bits(train, name, workers):
    overrides = (*RUNS[name], "chunk=2", "runtime.threads=1")
    alone, _ = in_processes(train, 1, *overrides)
    shared, (team,) = in_processes(train, workers, *overrides)
    assert shared == alone
    assert (team._crew.effort.busy > 0).sum() >= 2  # some cohorts have fewer chunks than processes


def test_a_run_begun_by_several_processes_goes_on_in_one(train, tmp_path):
    alone, _ = in_processes(train, 1, *FIVE_CHUNKS)
    stop = tmp_path / "stop"
    folder = tmp_path / "begun"
    words = [*QUIET, *FIVE_CHUNKS, f"runtime.run_dir={folder}", f"runtime.stop_file={stop}"]
    with thread_workers():
        config = fedpriv.compose([*words, "runtime.workers=3"])
        begun = fedpriv.run(config, on_round=lambda row: row["round"] == 1 and stop.touch())
    assert begun.stop_reason == "interrupted"
    stop.unlink()
    resumed = fedpriv.run(fedpriv.compose([*words, f"resume={folder}"]))
    assert results(resumed.folder) == alone


def test_a_run_goes_on_with_the_threads_it_began_with(train, tmp_path, monkeypatch):
    monkeypatch.setattr("fedpriv.experiment.machine.cores", lambda: 4)
    stop, folder = tmp_path / "stop", tmp_path / "begun"
    words = [*QUIET, *FIVE_CHUNKS, f"runtime.run_dir={folder}", f"runtime.stop_file={stop}"]
    stop.touch()
    fedpriv.run(fedpriv.compose([*words, "runtime.threads=2"]))
    stop.unlink()
    threads = []
    fedpriv.run(
        fedpriv.compose([*words, f"resume={folder}", "runtime.threads=null"]),
        on_round=lambda row: threads.append(torch.get_num_threads()),
    )
    assert set(threads) == {2}


def test_workers_get_no_key_of_noise_and_no_later_weights_than_the_round_s(train):
    _, (team,) = in_processes(train, 2, *FIVE_CHUNKS)
    setup, *others = team._members[0].seen
    assert set(setup["setup"]) == {
        "config", "rounds", "threads", "device", "sampling_key", "path", "records",
    }  # fmt: skip
    assert {key for message in others for key in message} <= {
        *("round", "weights", "clipper", "attack", "own", "statistics"), "task", "over",
    }  # fmt: skip


def test_a_published_run_sends_nothing_that_noise_could_be_drawn_from(train, tmp_path):
    words = (
        "publish=true",
        "algorithm=dp_fl",
        "partition=iid",
        "partition.clients=8",
        "chunk=2",
        "rounds=2",
    )
    with thread_workers() as teams:
        result = train(*words, "runtime.workers=2", name="published")
    key = RunFolder(result.folder).secret_key.read_text().strip()
    sent = repr(teams[0]._members[0].seen)
    assert key not in sent
    assert "noise_key" not in sent


def test_a_worker_whose_code_fails_is_named_and_the_run_says_how_to_go_on(train, monkeypatch):
    from fedpriv.experiment import worker

    def broken(self, task):
        raise ValueError("no such layer")

    monkeypatch.setattr(worker._Chunks, "answer", broken)
    with thread_workers(), pytest.raises(FedprivError, match="rank 1: ValueError: no such layer"):
        train(*FIVE_CHUNKS, "runtime.workers=2")


def test_a_worker_that_cannot_take_over_a_round_s_state_says_so(train, monkeypatch):
    from fedpriv.experiment import worker

    def broken(self, state):
        raise KeyError("bounds")

    monkeypatch.setattr(worker._Chunks, "begin_round", broken)
    with thread_workers(), pytest.raises(FedprivError, match="rank 1: KeyError"):
        train(*FIVE_CHUNKS, "runtime.workers=2")


def test_a_lost_worker_is_named_with_the_command_that_goes_on(train, monkeypatch):
    lose_first_worker(monkeypatch)
    with (
        thread_workers(),
        pytest.raises(WorkerError, match=r"rank 1 is lost.*; continue with") as said,
    ):
        train(*FIVE_CHUNKS, "runtime.workers=3")
    assert "resume=" in str(said.value)


def test_a_run_that_may_lose_workers_goes_on_without_them(train, monkeypatch):
    alone, _ = in_processes(train, 1, *FIVE_CHUNKS)
    lose_first_worker(monkeypatch)
    monkeypatch.setattr(ThreadMember, "begin_again", lambda self: None)
    shared, (team,) = in_processes(train, 3, *FIVE_CHUNKS, "runtime.worker_restarts=1")
    assert [member.link is None for member in team._members] == [True, False]
    assert shared == alone


def test_a_worker_in_the_place_of_a_lost_one_must_have_built_the_same_run():
    """Code or data may have been edited since the run began."""

    class EditedMeanwhile(ThreadMember):
        def connect(self, device):
            here, there = socket.socketpair()
            self.link = Link(here, {})
            self.other_end = Link(there, {})
            self.other_end.send({"source": "edited"})

        begin_again = spread._Member.begin_again

    member = EditedMeanwhile(1)
    member._seconds, member._expected = 1.0, {"source": "as it was"}
    with pytest.raises(FedprivError, match="rank 1 differs from rank 0: source of fedpriv"):
        member.begin_again()


def test_a_time_that_no_clock_holds_is_refused(train):
    with pytest.raises(ConfigError, match=r"runtime\.worker_timeout must be .*1e\+09.*got 1e\+300"):
        train(*FIVE_CHUNKS, "runtime.workers=2", "runtime.worker_timeout=1e300")


def lose_first_worker(monkeypatch):
    """Let rank 1 break its link in the middle of round 2."""
    from fedpriv.experiment import worker

    begin = worker._Chunks.begin_round

    def gone(self, state):
        if state["round"] == 1 and threading.current_thread().name == "rank 1":
            raise LostError("gone")
        begin(self, state)

    monkeypatch.setattr(worker._Chunks, "begin_round", gone)


@pytest.mark.parametrize("key", ["seed=1", "dataset.validation_records=100"])
def test_workers_with_another_run_are_refused(train, monkeypatch, key):
    from fedpriv.experiment import worker

    setup = worker._Chunks.__init__

    def of_another_run(self, message, *others):
        name, value = key.split("=")
        config = message["config"]
        for part in name.split(".")[:-1]:
            config = config[part]
        config[name.split(".")[-1]] = int(value)
        setup(self, message, *others)

    monkeypatch.setattr(worker._Chunks, "__init__", of_another_run)
    with thread_workers(), pytest.raises(FedprivError, match="data, initial weights"):
        train(*FIVE_CHUNKS, "runtime.workers=2")


def test_a_worker_that_computes_other_bits_is_found(train, monkeypatch):
    from fedpriv.experiment import worker

    answer = worker._Chunks.answer

    def other(self, task):
        computed = answer(self, task)
        computed["answer"].sums[0, 0] += 1e-12 if computed["answer"].partial else 1e-6
        return computed

    monkeypatch.setattr(worker._Chunks, "answer", other)
    with (
        thread_workers(),
        pytest.raises(FedprivError, match="rank 1 computes other bits than rank 0"),
    ):
        train(*CLIENT_LEVEL, "runtime.workers=2")


@pytest.mark.few(1)
@pytest.mark.parametrize(("chunk", "idle"), [("null", 2), ("5", 1)])
def test_more_processes_than_chunks_are_noted(train, capsys, chunk, idle):
    words = [*FIVE_CHUNKS, f"chunk={chunk}", "runtime.workers=3", "runtime.progress=lines"]
    with thread_workers() as teams:
        train(*words)
    said = " ".join(capsys.readouterr().out.split())
    assert f"{idle} of the 3 processes have nothing to do (chunk=N" in said
    assert (
        "3 processes of 1 thread each; one process gives the same bits with runtime.threads=1"
        in said
    )
    assert (teams[0]._crew.effort.busy == 0).sum() == (3 if chunk == "null" else 1)


@pytest.mark.parametrize("value", [0, -1, 1.5, "all"])
def test_workers_that_cannot_be(value):
    with pytest.raises(ConfigError, match=r"runtime\.workers must be .*>= 1, got"):
        fedpriv.run(fedpriv.compose([*QUIET, f"runtime.workers={value}", "dry_run=true"]))
