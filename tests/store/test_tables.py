"""Tables that grow with a run and are cut back when it is resumed."""

from __future__ import annotations

import pytest

from fedpriv.store.tables import GrowingTable, ParticipationTable, ranges


@pytest.fixture
def path(tmp_path):
    return tmp_path / "table.csv"


def test_a_table_begins_with_its_columns(path):
    GrowingTable(path, ("a", "b"))
    assert path.read_text() == "a,b\n"


def test_rows_reach_the_file_when_flushed(path):
    table = GrowingTable(path, ("a", "b"))
    table.append({"a": 1, "b": 0.1})
    assert path.read_text() == "a,b\n"
    table.flush()
    assert path.read_text() == "a,b\n1,0.1\n"


def test_what_is_absent_or_none_stays_empty_and_zero_does_not(path):
    table = GrowingTable(path, ("a", "b", "c"))
    table.append({"a": 0, "b": None})
    table.flush()
    assert path.read_text() == "a,b,c\n0,,\n"


def test_a_table_is_cut_back_to_the_position_of_the_checkpoint(path):
    table = GrowingTable(path, ("a",))
    table.append({"a": 1})
    position = table.flush()
    table.append({"a": 2})
    table.flush()
    again = GrowingTable(path, ("a",), position)
    again.append({"a": 3})
    again.flush()
    assert path.read_text() == "a\n1\n3\n"


def test_numbers_survive_the_table_exactly(path):
    value = 0.1 + 0.2
    table = GrowingTable(path, ("a",))
    table.append({"a": value})
    table.flush()
    assert float(path.read_text().splitlines()[1]) == value


def test_participation_has_a_row_for_each_stretch_with_the_same_cohort(path):
    table = ParticipationTable(path)
    for round_number, cohort in enumerate([[0, 1, 2], [0, 1, 2], [0, 2], [0, 1, 2]], start=1):
        table.enter(round_number, cohort)
    table.finish()
    assert path.read_text().splitlines()[1:] == ["1,2,0-2", "3,3,0 2", "4,4,0-2"]


def test_participation_goes_on_within_a_stretch_after_a_checkpoint(path):
    table = ParticipationTable(path)
    table.enter(1, [0, 1])
    again = ParticipationTable(path, table.state_dict())
    again.enter(2, [0, 1])
    again.finish()
    assert path.read_text().splitlines()[1:] == ["1,2,0-1"]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([4], "4"), ([0, 1, 2, 5], "0-2 5"), ([1, 3, 5], "1 3 5"), ([8, 9], "8-9")],
)
def test_runs_of_numbers_are_written_as_ranges(numbers, text):
    assert ranges(numbers) == text
