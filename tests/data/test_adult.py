from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from fedpriv.common.errors import ArgumentError, DataError
from fedpriv.data.adult import CATEGORICAL, INPUTS, NUMERIC, Adult, parse_adult
from fedpriv.data.storage import StoredFile

FIRST = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, "
    "2174, 0, 40, United-States, <=50K"
)
UNKNOWN = (
    "54, ?, 180211, Some-college, 10, Married-civ-spouse, ?, Husband, Asian-Pac-Islander, Male, 0, "
    "0, 60, South, >50K."
)
FILE = Path("adult.data")


def parse(*lines: str, **keys):
    return parse_adult("\n".join(lines).encode(), FILE, **keys)


def words_of(record: np.ndarray) -> dict[str, str | None]:
    """The categorical columns of a record, back from one-hot."""
    start, words = len(NUMERIC), {}
    for column in CATEGORICAL:
        part = record[start : start + len(column.words)]
        assert part.sum() in (0, 1)
        words[column.name] = column.words[part.argmax()] if part.any() else None
        start += len(column.words)
    return words


FIRST_NUMBERS = [
    -1 / 15,  # (39 - 40) / 15
    math.log(77517) - 12,
    4 / 3,  # (13 - 9) / 3
    math.log(2175) / 5,
    0,  # log(1 + 0) / 5
    0,  # (40 - 40) / 10
]
FIRST_WORDS = {
    "workclass": "State-gov",
    "education": "Bachelors",
    "marital-status": "Never-married",
    "occupation": "Adm-clerical",
    "relationship": "Not-in-family",
    "race": "White",
    "sex": "Male",
    "native-country": "United-States",
}


def test_a_record_becomes_numbers_by_public_constants_and_words_one_hot():
    inputs, targets = parse(FIRST)
    assert inputs.shape == (1, INPUTS)
    assert (inputs.dtype, targets.dtype) == (np.float32, np.int64)
    assert inputs[0, :6] == pytest.approx(FIRST_NUMBERS, abs=1e-6)
    assert words_of(inputs[0]) == FIRST_WORDS
    assert targets.tolist() == [0]


def test_there_are_as_many_inputs_as_published_words_and_numbers():
    counts = {column.name: len(set(column.words)) for column in CATEGORICAL}
    assert counts == {
        "workclass": 8, "education": 16, "marital-status": 7, "occupation": 14, "relationship": 6,
        "race": 5, "sex": 2, "native-country": 41,
    }  # fmt: skip
    assert INPUTS == 6 + sum(counts.values()) == 105


def test_a_missing_value_is_all_zeros():
    inputs, targets = parse(UNKNOWN)
    words = words_of(inputs[0])
    assert words["workclass"] is None
    assert words["occupation"] is None
    assert words["native-country"] == "South"
    assert targets.tolist() == [1]


def test_remarks_empty_lines_and_the_full_stop_of_labels_are_passed_over():
    inputs, targets = parse("|1x3 Cross validator", UNKNOWN, FIRST + ".\r", "", "")
    assert len(inputs) == 2
    assert targets.tolist() == [1, 0]


def test_records_with_a_missing_value_can_be_dropped():
    inputs, targets = parse(UNKNOWN, FIRST, UNKNOWN, drop_missing=True)
    assert (len(inputs), targets.tolist()) == (1, [0])


def test_a_file_without_records_has_none():
    inputs, targets = parse("|remark", "")
    assert (inputs.shape, targets.shape) == ((0, INPUTS), (0,))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("State-gov", "Pirate", "workclass Pirate is not one of the published categories"),
        ("United-States", "Utopia", "native-country Utopia is not one of the published categories"),
        ("39", "?", "age must be a whole number >= 0, got ?"),
        ("77516", "-3", "fnlwgt must be a whole number >= 0, got -3"),
        ("77516", "1e5", "fnlwgt must be a whole number >= 0, got 1e5"),
        ("<=50K", "50K", "the label must be one of <=50K, >50K, got 50K"),
        ("39, ", "", "15 fields are expected, got 14"),
        ("39, ", "39, 39, ", "15 fields are expected, got 16"),
    ],
)
def test_a_record_that_is_none_of_adult_is_named_by_file_and_line(old, new, message):
    with pytest.raises(DataError) as caught:
        parse("|remark", FIRST, "", FIRST.replace(old, new, 1))
    assert str(caught.value) == f"adult.data, line 4: {message}"


def test_a_field_that_is_no_text_is_refused_in_a_sentence():
    with pytest.raises(DataError, match=r"^adult\.data, line 1: workclass "):
        parse_adult(FIRST.encode().replace(b"State-gov", b"\xff\x00"), FILE)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"drop_missing": 1}, "drop_missing must be true or false, got 1"),
        ({"path": ""}, "path must be a text, got nothing"),
        (
            {"validation_records": 32_561},
            "validation_records must be a whole number >= 1 and <= 32560, got 32561",
        ),
        (
            {"validation_records": 30_162, "drop_missing": True},
            "validation_records must be a whole number >= 1 and <= 30161, got 30162",
        ),
    ],
)
def test_a_constructor_names_the_argument_and_what_is_allowed(keys, message):
    with pytest.raises(ArgumentError) as caught:
        Adult(**keys)
    assert str(caught.value) == message


def test_absent_files_say_what_to_put_where(tmp_path):
    with pytest.raises(DataError) as caught:
        Adult(path=str(tmp_path)).load()
    assert str(caught.value) == (
        f"adult not found: dataset.path={tmp_path} has no adult/adult.data; put adult/adult.data "
        "and adult/adult.test there, name another folder with dataset.path or FEDPRIV_DATA, or run "
        "`fedpriv data download adult` and leave dataset.path out"
    )


def test_the_two_files_are_training_and_test_records(tmp_path):
    contents, files = {"data": [FIRST, FIRST, UNKNOWN, ""], "test": ["|x", UNKNOWN, "", ""]}, []
    (tmp_path / "adult").mkdir()
    for kind, lines in contents.items():
        content = "\n".join(lines).encode()
        (tmp_path / "adult" / f"adult.{kind}").write_bytes(content)
        files.append(StoredFile(f"adult/adult.{kind}", hashlib.md5(content).hexdigest()))

    class TinyAdult(Adult):
        pass

    TinyAdult.files = tuple(files)
    loaded = TinyAdult(path=str(tmp_path)).load()
    assert loaded.train.targets.tolist() == [0, 0, 1]
    assert loaded.test.targets.tolist() == [1]
    assert loaded.train.inputs.dtype == torch.float32
    assert loaded.train.targets.dtype == torch.int64
    (tmp_path / "adult" / "adult.test").write_text("|x")
    with pytest.raises(DataError, match=r"adult\.test is damaged or cut short \(2 bytes"):
        TinyAdult(path=str(tmp_path)).load()


@pytest.mark.thorough
def test_the_real_files_have_the_known_counts(real_adult):
    dataset = Adult(path=real_adult)
    loaded = dataset.load()
    assert (len(loaded.train), len(loaded.test)) == (32_561, 16_281)
    assert (len(loaded.train), len(loaded.test)) == (dataset.train_records, dataset.test_records)
    assert (loaded.train.targets.sum(), loaded.test.targets.sum()) == (7_841, 3_846)
    assert loaded.train.inputs.shape[1:] == dataset.input_shape == (105,)
    assert loaded.train.inputs.dtype == torch.float32
    for records in (loaded.train, loaded.test):
        assert torch.isfinite(records.inputs).all()
        assert records.inputs.abs().max() < 10


def test_the_first_real_record_is_the_one_read_by_hand(real_adult):
    record = Adult(path=real_adult).load().train.inputs[0].numpy()
    assert record[:6] == pytest.approx(FIRST_NUMBERS, abs=1e-6)
    assert words_of(record) == FIRST_WORDS


@pytest.mark.thorough
def test_the_real_files_without_missing_values(real_adult):
    dataset = Adult(path=real_adult, drop_missing=True)
    loaded = dataset.load()
    assert (len(loaded.train), len(loaded.test)) == (30_162, 15_060)
    assert (dataset.train_records, dataset.test_records) == (30_162, 15_060)
    assert (loaded.train.inputs[:, 6:].sum(dim=1) == 8).all()
