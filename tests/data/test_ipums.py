from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.common.errors import ArgumentError, DataError
from fedpriv.data.ipums import FORMAT, Ipums

TEN = "".join(f"{i} {i}.5 {i % 2}\n" for i in range(10))


@pytest.fixture
def file(tmp_path):
    """(text or bytes) → the path of a file that holds it."""

    def write(content: str | bytes) -> str:
        path = tmp_path / "extract.txt"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


def test_the_facts_are_known_before_the_file_is_read(file):
    dataset = Ipums(path=file(TEN), test_records=2)
    assert (dataset.train_records, dataset.test_records) == (8, 2)
    assert (dataset.input_shape, dataset.classes) == ((2,), 2)
    assert dataset.validation_records == 0


def test_records_are_read_as_they_are(file):
    loaded = Ipums(path=file(TEN), test_records=2).load()
    assert loaded.test.inputs.tolist() == [[0, 0.5], [5, 5.5]]
    assert loaded.test.targets.tolist() == [0, 1]
    assert loaded.train.inputs[:, 0].tolist() == [1, 2, 3, 4, 6, 7, 8, 9]
    assert (loaded.train.inputs.dtype, loaded.train.targets.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize(
    "content",
    [
        "1 2 0\n3 4 1\n5 6 1",
        "1\t2  0\r\n\r\n 3 4.0 1.0 \r\n5 6e0 +1\r\n\r\n",
        "\n1 2 0\n3 4 1\n5 6 1\n",
    ],
)
def test_blanks_empty_lines_and_line_ends_do_not_matter(content, file):
    loaded = Ipums(path=file(content), test_records=1).load()
    assert loaded.test.inputs.tolist() == [[1, 2]]
    assert loaded.train.inputs.tolist() == [[3, 4], [5, 6]]
    assert loaded.train.targets.tolist() == [1, 1]


@given(records=st.integers(3, 200), data=st.data())
def test_test_records_are_spread_evenly_over_the_file(tmp_path_factory, records, data):
    count = data.draw(st.integers(1, records - 2))
    path = tmp_path_factory.mktemp("own") / "extract.txt"
    path.write_text("".join(f"{i} {i % 2}\n" for i in range(records)))
    dataset = Ipums(path=str(path), test_records=count)
    loaded = dataset.load()
    test = loaded.test.inputs[:, 0].numpy()
    everything = np.sort(np.concatenate([test, loaded.train.inputs[:, 0].numpy()]))
    assert (len(loaded.train), len(test)) == (dataset.train_records, dataset.test_records)
    assert everything.tolist() == list(range(records))
    gaps = np.diff([*test, test[0] + records])
    assert gaps.max() - gaps.min() <= 1


def test_a_file_sorted_by_class_keeps_its_class_shares(file):
    loaded = Ipums(path=file("1 0\n" * 300 + "2 1\n" * 100)).load()
    first, second = loaded.test.targets.bincount().tolist()
    assert 40 < first < 80
    assert 10 < second < 30


def test_a_list_of_divisors_scales_the_inputs(file):
    loaded = Ipums(path=file(TEN), test_records=2, scale=[10, 0.5]).load()
    assert loaded.test.inputs[1].tolist() == [0.5, 11]


def test_centre_and_width_scale_the_inputs(file):
    loaded = Ipums(
        path=file(TEN), test_records=2, scale={"centre": [1, 5.5], "width": [2, 1]}
    ).load()
    assert loaded.test.inputs[1].tolist() == [2, 0]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"path": None}, f"path must be the file with your records ({FORMAT}), got null"),
        ({"path": 3}, "path must be a text, got 3"),
        ({"test_records": 0}, "test_records must be a whole number >= 1 and <= 8, got 0"),
        ({"test_records": 9}, "test_records must be a whole number >= 1 and <= 8, got 9"),
        (
            {"test_records": 2, "validation_records": 8},
            "validation_records must be a whole number >= 1 and <= 7, got 8",
        ),
        ({"scale": 2}, "scale must be a list of 2 numbers, one per input column, got 2"),
        ({"scale": [1]}, "scale must be a list of 2 numbers, one per input column, got [1]"),
        ({"scale": [1, 0]}, "scale[1] must be > 0, got 0"),
        ({"scale": [1, "b"]}, "scale[1] must be a number > 0, got b"),
        (
            {"scale": {"width": [1, 1]}},
            "scale must be null, a list of divisors or {centre: [...], width: [...]}, "
            "got {'width': [1, 1]}",
        ),
        (
            {"scale": {"centre": [1], "width": [1, 1]}},
            "scale.centre must be a list of 2 numbers, one per input column, got [1]",
        ),
        (
            {"scale": {"centre": [0, 0], "width": [-1, 1]}},
            "scale.width[0] must be > 0, got -1",
        ),
    ],
)
def test_a_constructor_names_the_argument_and_what_is_allowed(keys, message, file):
    with pytest.raises(ArgumentError) as caught:
        Ipums(**{"path": file(TEN), **keys})
    assert str(caught.value) == message


@pytest.mark.parametrize(("name", "reason"), [("no", "No such file"), ("", "Is a directory")])
def test_a_path_that_is_no_file_is_named_with_the_reason(name, reason, tmp_path):
    with pytest.raises(ArgumentError) as caught:
        Ipums(path=str(tmp_path / name))
    assert str(caught.value).startswith("path must be the file with your records")
    assert reason in caught.value.hint


@pytest.mark.parametrize("content", ["", "\n \n", "1 0\n2 1\n"])
def test_too_few_records_are_refused(content, file):
    path = file(content)
    with pytest.raises(DataError) as caught:
        Ipums(path=path)
    found = len(content.split("\n")) - 1 if content.strip() else 0
    assert str(caught.value) == f"{path} must have at least 3 records ({FORMAT}), got {found}"


def test_a_file_of_one_column_is_refused(file):
    path = file("\n1\n0\n1\n")
    with pytest.raises(DataError) as caught:
        Ipums(path=path)
    assert str(caught.value) == f"{path}, line 2 has one column; expected are {FORMAT}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 x 0", "column 2 is not a number (x)"),
        ("1,2,0 0 0", "column 1 is not a number (1,2,0)"),
        (b"1 \xff 0", "column 2 is not a number (\ufffd)"),
        ("nan 2 0", "column 1 is not finite (nan)"),
        ("1 -inf 0", "column 2 is not finite (-inf)"),
        ("1 1e999 0", "column 2 is not finite (1e999)"),
        ("1 2 nan", "column 3 is not finite (nan)"),
        (
            "1 1e300 0",
            "column 2 is too large for a 32-bit number (1e300); divide it by dataset.scale",
        ),
        ("1 2 2", "the label (last column) must be 0 or 1, got 2"),
        ("1 2 0.5", "the label (last column) must be 0 or 1, got 0.5"),
        ("1 2 -1", "the label (last column) must be 0 or 1, got -1"),
        ("1 0", "2 columns where the first record has 3"),
        ("0", "1 column where the first record has 3"),
        ("1 2 3 0", "4 columns where the first record has 3"),
    ],
)
def test_a_line_that_is_not_as_it_should_be_is_named_by_its_number(line, message, file):
    line = line if isinstance(line, bytes) else line.encode()
    path = file(b"1 2 0\n\n3 4 1\n" + line + b"\n5 6 1\n")
    dataset = Ipums(path=path)
    with pytest.raises(DataError) as caught:
        dataset.load()
    assert str(caught.value) == f"{path}, line 4: {message}"
    status = dataset.present()
    assert (status.usable, status.note) == (False, str(caught.value))


def test_a_large_number_passes_if_the_scale_makes_it_small(file):
    path = file("1e300 0\n2e300 1\n3e300 1\n")
    assert Ipums(path=path, scale=[1e300]).load().test.inputs.tolist() == [[1]]


def test_a_file_that_went_away_is_told_in_one_sentence(file, tmp_path):
    path = file(TEN)
    dataset = Ipums(path=path)
    (tmp_path / "extract.txt").unlink()
    with pytest.raises(DataError, match=f"^cannot read {path}: No such file"):
        dataset.load()


def test_a_file_with_one_label_only_is_refused(file):
    with pytest.raises(DataError, match="every label is 1"):
        Ipums(path=file("1 2 1\n" * 10)).load()
