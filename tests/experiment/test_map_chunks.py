"""A run over several processes: the same bits for any number of them, and no key to the others."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from chunk_runs import RUNS
from pools import in_this_process, results

import fedpriv
from fedpriv.algorithms import CdpFedAvg, DpFl
from fedpriv.algorithms.uploads import LocalChanges
from fedpriv.common.errors import ConfigError, FedprivError, WorkerError
from fedpriv.experiment import map_chunks
from fedpriv.store.folder import RunFolder

QUIET = ("runtime.progress=none", "runtime.plots=false")

FIVE_CHUNKS = ("algorithm=dp_fl", "partition=dirichlet", "partition.alpha=0.5", "partition.clients=9",
               "chunk=2", "epsilon=null", "rounds=3", "algorithm.local_steps=2",
               "runtime.threads=1")  # fmt: skip
CLIENT_LEVEL = ("algorithm=cdp_fedavg", "partition.clients=20", "algorithm.client_rate=0.9", "chunk=4",
                "algorithm.batch_size=20", "epsilon=null", "rounds=3", "runtime.threads=1")  # fmt: skip


def shared(train, *overrides: str, name: str = "shared"):
    """The results of a run whose chunks travel, and what shared them."""
    with in_this_process() as made:
        result = train("runtime.workers=2", *overrides, name=name)
    return results(result.folder), made[0]


@pytest.mark.parametrize("overrides", [FIVE_CHUNKS, CLIENT_LEVEL], ids=["records", "clients"])
def test_chunks_that_travel_give_the_same_bits(train, overrides):
    alone = results(train(*overrides, name="alone").folder)
    found, shares = shared(train, *overrides)
    assert found == alone
    assert shares.repeated == (2 if overrides is FIVE_CHUNKS else 1)  # of round 1, in each step
    assert shares.cpu_seconds > 0


@pytest.mark.thorough
@pytest.mark.parametrize("name", RUNS)
def test_every_computation_gives_the_same_bits(train, name):
    overrides = (*RUNS[name], "chunk=2", "runtime.threads=1")
    assert shared(train, *overrides)[0] == results(train(*overrides, name="alone").folder)


def test_a_run_begun_by_several_processes_goes_on_in_one(train, tmp_path):
    alone = results(train(*FIVE_CHUNKS, name="alone").folder)
    stop, folder = tmp_path / "stop", tmp_path / "begun"
    words = [*QUIET, *FIVE_CHUNKS, f"runtime.run_dir={folder}", f"runtime.stop_file={stop}"]
    with in_this_process():
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


@pytest.mark.parametrize("publish", [False, True])
def test_no_key_travels(train, publish):
    words = ("algorithm=dp_fl", "partition=iid", "partition.clients=8", "chunk=2", "rounds=2",
             "algorithm.augmentation_multiplicity=2", "algorithm.random_crop=1", "seed=123456789012",
             "noise_seed=987654321098", "partition.seed=1", "model.seed=1")  # fmt: skip
    seen = []
    with in_this_process() as made, pytest.MonkeyPatch.context() as patch:
        join = map_chunks.SharedChunks.join
        patch.setattr(
            map_chunks.SharedChunks,
            "join",
            lambda self, running: (seen.append(running.loop.context.streams), join(self, running))[
                1
            ],
        )
        result = train(*words, "runtime.workers=2", *["publish=true"] * publish, name="run")
    sent = b"".join(part for job in made[0].sent for part in job if isinstance(part, bytes))
    keys = [seen[0].sampling_key, seen[0].noise_key]
    if publish:
        keys.append(bytes.fromhex(RunFolder(result.folder).secret_key.read_text().strip()))
    assert seen[0].sampling_key != seen[0].noise_key
    for key in keys:
        assert key not in sent
        assert key.hex().encode() not in sent
    for seed in (123456789012, 987654321098):
        assert pickle.dumps(seed)[-8:-1] not in sent
    assert b"SecretStreams" not in sent
    assert all(type(part) in (bytes, int) for job in made[0].sent[1:] for part in job)


def test_a_defect_where_chunks_are_computed_shows_its_own_traceback_once(train, monkeypatch, capfd):
    def broken(self, task, notes):
        raise ValueError("no such layer")

    monkeypatch.setattr(map_chunks.ChunkWork, "compute", broken)
    with pytest.raises(FedprivError, match="a worker failed: ValueError: no such layer"):
        shared(train, *FIVE_CHUNKS)
    assert capfd.readouterr().err.count("in broken") == 1


def test_a_sentence_stays_one_where_chunks_are_computed(train, monkeypatch, capfd):
    def refused(self, state):
        raise ConfigError("model", "mine", "another one")

    monkeypatch.setattr(map_chunks.ChunkWork, "load", refused)
    with pytest.raises(FedprivError, match=r"^model must be another one, got mine"):
        shared(train, *FIVE_CHUNKS)
    assert capfd.readouterr().err == ""


def lose(monkeypatch, times: int, error: Exception) -> None:
    """Let a pool lose its processes, in the middle of steps."""
    result, losses = map_chunks._Pool.result, iter([0, 1, 0, 1, 0, 1][: 2 * times])

    def lost(self, job, seconds):
        if next(losses, 0):
            raise error
        return result(self, job, seconds)

    monkeypatch.setattr(map_chunks._Pool, "result", lost)


def killed() -> Exception:
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    return TerminatedWorkerError("The exit codes of the workers are {SIGKILL(-9)}")


@pytest.mark.parametrize(
    ("error", "words"),
    [(killed(), r"was ended by SIGKILL"), (TimeoutError(), r"gave no answer within 1800 s")],
    ids=["killed", "silent"],
)
def test_a_lost_worker_is_one_sentence_with_the_command_that_goes_on(train, error, words):
    with in_this_process(), pytest.MonkeyPatch.context() as patch:
        lose(patch, 1, error)
        with pytest.raises(WorkerError, match=words + ".*; continue with .*resume="):
            train(*FIVE_CHUNKS, "runtime.workers=3")


def test_the_chunks_of_a_lost_worker_are_computed_again(train, capsys):
    alone = results(train(*FIVE_CHUNKS, name="alone").folder)
    with in_this_process(), pytest.MonkeyPatch.context() as patch:
        lose(patch, 2, killed())
        result = train(
            *FIVE_CHUNKS, "runtime.workers=3", "runtime.worker_restarts=2", "runtime.progress=lines"
        )
    assert results(result.folder) == alone
    assert " ".join(capsys.readouterr().out.split()).count("its chunks are computed again") == 2


def test_a_time_that_no_clock_holds_is_refused(train):
    with pytest.raises(ConfigError, match=r"runtime\.worker_timeout must be .*1e\+09.*got 1e\+300"):
        train(*FIVE_CHUNKS, "runtime.workers=2", "runtime.worker_timeout=1e300")


def test_a_worker_that_computes_other_bits_is_found(train, monkeypatch):
    compute = map_chunks.ChunkWork.compute

    def other(self, task, notes):
        answer, read = compute(self, task, notes)
        answer.sums[0, 0] += 1e-12
        return answer, read

    monkeypatch.setattr(map_chunks.ChunkWork, "compute", other)
    with pytest.raises(FedprivError, match=r"other bits than this process .*\(sums\)"):
        shared(train, *CLIENT_LEVEL)


class OwnDraws(LocalChanges):
    """Uploads that draw what nobody has drawn before."""

    def draw(self, round_index, clients):
        """Draw nothing."""


class WithOwnDraws(CdpFedAvg):
    def uploads(self, context):
        return OwnDraws(context, *self._local)


def test_uploads_that_draw_without_saying_so_are_refused(train):
    own = f"algorithm._target_={WithOwnDraws.__module__}.WithOwnDraws"
    with pytest.raises(FedprivError, match=r"need a method draw\(round_index, clients\)"):
        shared(train, *CLIENT_LEVEL, own)


class OwnAlgorithm(DpFl):
    """An algorithm whose lots are drawn a second time and compared."""


def test_records_that_were_read_elsewhere_are_compared_with_the_lots(train):
    own = f"algorithm._target_={OwnAlgorithm.__module__}.OwnAlgorithm"
    alone = results(train(*FIVE_CHUNKS, own, name="alone").folder)
    assert shared(train, *FIVE_CHUNKS, own)[0] == alone


@pytest.mark.few(1)
@pytest.mark.parametrize(("chunk", "idle"), [("null", True), ("5", True), ("3", False)])
def test_a_run_says_how_many_processes_it_has_and_whether_all_have_chunks(
    train, capsys, chunk, idle
):
    words = [*FIVE_CHUNKS, f"chunk={chunk}", "runtime.workers=3", "runtime.progress=lines"]
    with in_this_process():
        train(*words)
    said = " ".join(capsys.readouterr().out.split())
    assert ("for 3 processes (chunk=N" in said) == idle
    assert (
        "3 processes of 1 thread each; one process gives the same bits with runtime.threads=1"
        in said
    )


@pytest.mark.parametrize("value", [0, -1, 1.5, "all"])
def test_workers_that_cannot_be(value):
    with pytest.raises(ConfigError, match=r"runtime\.workers must be .*>= 1, got"):
        fedpriv.run(fedpriv.compose([*QUIET, f"runtime.workers={value}", "dry_run=true"]))


def test_a_cluster_that_fedpriv_does_not_know_is_refused():
    with pytest.raises(ConfigError, match=r"runtime\.cluster must be one of ray, got dask"):
        fedpriv.run(fedpriv.compose([*QUIET, "runtime.cluster=dask", "dry_run=true"]))


def test_draws_travel_without_streams():
    from fedpriv.common.secret_streams import SecretStreams
    from fedpriv.privacy.core import sampling

    streams, records = SecretStreams.simulated(0, 0), np.arange(20)
    noting = sampling.ChunkDraws(streams, {})
    noted = sampling.ChunkDraws(None, noting.notes)
    rate = sampling.PoissonSampling(0.5)
    for draw, arguments in {
        sampling.sample_lot: (rate, records, 3, 1, 7),
        sampling.poisson_lots: (rate, [records, records], 3, 1, np.array([4, 5])),
        sampling.draws_of_copies: (records, records[:4], 2, 3, 1, 7),
        sampling.sample_buckets: (5, 3, 1, np.array([4, 5])),
        sampling.shuffle: (records, 3, 1, 7),
    }.items():
        drawn = draw(streams, *arguments)
        with pytest.raises(FedprivError, match="no key is there"):
            draw(noted, *arguments)
        for place in (noting, noted):
            assert pickle.dumps(draw(place, *arguments)) == pickle.dumps(drawn)
