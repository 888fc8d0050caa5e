"""Rows of a data set of the user's own: each is encoded by itself, or the run is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpriv.common.base_classes import completed
from fedpriv.common.errors import ConfigError, DataError
from fedpriv.data.base import Dataset, untested
from fedpriv.data.own_rows import _at_end, from_torch

RANDOM = np.random.default_rng(0)
ROWS = [(RANDOM.normal(size=3) + 5, int(label)) for label in RANDOM.integers(0, 2, 60)]
WIDEST = max(range(60), key=lambda i: ROWS[i][0][0])


class Mine:
    name, train_records, input_shape, classes = "mine", 50, (3,), 2

    def read(self):
        return ROWS

    def encode(self, rows):
        return self.scaled(np.array([x for x, _ in rows])), [label for _, label in rows]

    def scaled(self, x):
        return x / 10


def made(scaled=Mine.scaled, **methods) -> Dataset:
    return completed(type("Own", (Mine,), {"scaled": scaled, **methods})(), Dataset)


def first_fit(self, x):
    self.mean = getattr(self, "mean", x.mean(0))
    return x - self.mean


def test_the_first_rows_train_and_the_others_are_test_records():
    loaded = made().load()
    assert (len(loaded.train), len(loaded.test)) == (50, 10)
    assert loaded.train.inputs.dtype == torch.float32
    assert loaded.test.targets.tolist() == [label for _, label in ROWS[50:]]
    assert loaded.client_ids is None


@pytest.mark.parametrize(
    ("scaled", "how"),
    {
        lambda self, x: (x - x.mean(0)) / (x.std(0) + 1): "alone",
        lambda self, x: x / x.max(): "alone",
        lambda self, x: x if len(x) < 25 else x - x.mean(0): "alone",
        lambda self, x: x - (x[0] if len(x) > 1 else 0): "alone",
        first_fit: "alone",
        lambda self, x: np.random.default_rng().normal(size=x.shape): "alone",
        lambda self, x: np.pad(x, ((0, 0), (0, len(x) % 2))): "alone",
        lambda self, x: x + (len(x) == 30): "among few rows",
        lambda self, x: x + (len(x) == 31 and x[0, 0] not in (0, 1e30)): "beside another row",
        lambda self, x: x * (1 + (np.abs(x).max() > 1e9)): "beside an extreme row",
        lambda self, x: np.c_[x[:, :2] - x[:, :2].mean(0), x[:, 2] * 1e5]: "alone",
    }.items(),
)
def test_a_row_that_depends_on_other_rows_is_refused(scaled, how):
    with pytest.raises(ConfigError, match=f"Own.encode gives a row other numbers {how} than"):
        made(scaled).load()


def test_whole_numbers_are_compared_exactly_and_users_too():
    def encode(self, rows):
        return torch.ones(len(rows), 3, dtype=torch.long), [0] * len(rows), range(len(rows))

    with pytest.raises(ConfigError, match="encode"):
        made(encode=encode).load()


def test_rounding_is_no_difference():
    assert made(lambda self, x: x * (1 + 1e-6 * len(x))).load()


def test_what_read_and_encode_return_is_said():
    with pytest.raises(DataError, match="read must return rows"):
        made(read=lambda self: 3).load()
    with pytest.raises(DataError, match="encode must return"):
        made(encode=lambda self, rows: rows[:1]).load()
    with pytest.raises(DataError, match="no length or no index"):
        from_torch(iter(()))


def test_ends_are_those_of_the_range_or_of_the_type():
    row = {"a": np.uint8(3), "b": np.array([1.0, 2.0]), "c": "text", "d": (torch.ones(2),)}
    ranges = {"b": [0, 9]}
    low, high = (_at_end(row, ranges, end) for end in (0, 1))
    assert (low["a"], high["a"], high["c"]) == (0, 255, "text")
    assert (low["b"].tolist(), high["b"].tolist()) == ([0, 0], [9, 9])
    assert float(high["d"][0][0]) > 1e29
    assert _at_end((3, True), [0, 7], 1) == (7, True)


def test_a_load_of_ones_own_is_not_tested():
    assert untested(made()) is None
    assert untested(made(load=lambda self: None)).endswith("Own")
