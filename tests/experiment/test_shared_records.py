"""Records that the processes of a run share: loaded once, the same data, the same bits."""

from __future__ import annotations

import errno
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
from spread_runs import results, thread_workers

from fedpriv.data.digits import Digits
from fedpriv.data.federated import FederatedData, federate
from fedpriv.data.partitions import Iid
from fedpriv.data.text_vocabulary import Vocabulary
from fedpriv.experiment.shared_records import SharedRecords, found_at
from fedpriv.workers import shared_memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="files in memory")


@pytest.fixture
def shared():
    records = SharedRecords()
    yield records
    records.close()


def digits() -> FederatedData:
    data = federate(Digits(), Iid(clients=7), validation=True, seed=0)
    return replace(data, vocabulary=Vocabulary(("<pad>", "<unknown>", "a"), "word"))


def test_shared_data_are_the_loaded_ones(shared):
    loaded = digits()
    for data in (shared.loaded(lambda: loaded), found_at(shared.place())(digits)):
        assert data.digest == loaded.digest
        assert np.array_equal(data.numbers, loaded.numbers)
        assert [records.tolist() for records in data.clients] == [
            records.tolist() for records in loaded.clients
        ]
        for part in ("classes", "input_shape", "task", "vocabulary"):
            assert getattr(data, part) == getattr(loaded, part)
        assert data.train.inputs.data_ptr() % 64 == 0
        assert data.train.inputs.data_ptr() != loaded.train.inputs.data_ptr()


def test_a_process_reads_for_itself_where_the_records_are_not_found(shared):
    assert found_at(shared.place()) is None
    shared.loaded(digits)
    assert found_at({**shared.place(), "inode": 0}) is None


@dataclass(frozen=True)
class OwnVocabulary(Vocabulary):
    """A class of the user's own, which cannot be shared."""


def test_data_that_cannot_be_shared_are_returned_as_loaded(shared, monkeypatch):
    own = replace(digits(), vocabulary=OwnVocabulary(("<pad>", "<unknown>"), "word"))
    assert shared.loaded(lambda: own) is own
    assert shared.place() is None

    def full(*_):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(shared_memory.os, "posix_fallocate", full)
    loaded = digits()
    assert shared.loaded(lambda: loaded) is loaded


def test_workers_load_nothing_where_records_are_shared(train, monkeypatch):
    loads: list[str] = []
    load = Digits.load
    monkeypatch.setattr(Digits, "load", lambda dataset: (loads.append(""), load(dataset))[1])
    keys = ("algorithm=dp_fl", "partition.clients=8", "chunk=2", "rounds=2", "epsilon=null",
            "runtime.workers=3", "runtime.threads=1")  # fmt: skip

    def ran(name: str) -> tuple[object, int]:
        loads.clear()
        with thread_workers():
            run = train(*keys, name=name)
        return results(run.folder), len(loads)

    def refused(*_):
        raise OSError(errno.EACCES, "Permission denied")

    together, loads_together = ran("together")
    monkeypatch.setattr(shared_memory, "read", refused)
    apart, loads_apart = ran("apart")
    assert together == apart
    assert (loads_together, loads_apart) == (1, 3)
