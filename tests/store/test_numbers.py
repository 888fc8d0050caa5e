"""Tables of numbers read row by row: the rows and columns that are asked for, in little memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.store.numbers import read_columns


def write_clients(path, rounds, clients=40):
    rows = (
        f"{n},{c},{n / 7 + c},1.0,\n"
        for n in range(1, rounds + 1)
        for c in reversed(range(clients))
    )
    path.write_text("round,client,gradient_norm,clip_norm,epsilon\n" + "".join(rows))
    return path


def test_rows_of_the_lowest_clients_are_those_of_the_whole_table(tmp_path):
    path = write_clients(tmp_path / "clients.csv", 5)
    whole = read_columns(path)
    part = read_columns(path, ("round", "client", "gradient_norm"), lowest=("client", 3))
    expected = whole.where(whole["client"] < 3)
    assert list(part) == ["round", "client", "gradient_norm"]
    assert part.rows == 15
    for name in part:
        np.testing.assert_array_equal(part[name], expected[name])


def test_empty_cells_are_nan_and_a_table_may_have_no_rows(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("round,test_loss\n1,\n2,.5\n")
    np.testing.assert_array_equal(read_columns(path)["test_loss"], [np.nan, 0.5])
    path.write_text("round,test_loss\n")
    assert read_columns(path).rows == 0


@pytest.mark.parametrize("text", ["", "a,b\n1\n", "a,b\n1,2,3\n", "a,b\n1,two\n", "a,b\n\n"])
def test_what_is_no_table_of_numbers_is_refused(tmp_path, text):
    path = tmp_path / "metrics.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match="not a table of numbers"):
        read_columns(path)


def test_a_longer_table_takes_only_its_numbers(tmp_path):
    """A row takes 40 times its three numbers if the file is first read into texts."""

    def peak(rounds):
        path = write_clients(tmp_path / "clients.csv", rounds)
        tracemalloc.start()
        read_columns(path, ("round", "client", "gradient_norm"), lowest=("client", 8))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    growth = (peak(400) - peak(200)) / 200
    assert growth < 3 * 8 * 3 * 8  # bytes a round: 8 clients of three numbers, and copies of them
