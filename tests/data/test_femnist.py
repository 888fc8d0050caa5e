from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedpriv.common.errors import ArgumentError, DataError
from fedpriv.data.federated import federate
from fedpriv.data.femnist import Femnist, read_users
from fedpriv.data.partitions import Natural

WHITE = [1.0] * 784


def leaf(**users) -> dict:
    """A file of LEAF: each user's labels; the first pixel is label / 255."""
    data = {
        user: {"x": [[label / 255, *WHITE[1:]] for label in labels], "y": labels}
        for user, labels in users.items()
    }
    return {"users": list(users), "num_samples": list(map(len, users.values())), "user_data": data}


def write(folder: Path, name: str, content) -> None:
    path = folder / "femnist/data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.fixture
def files(tmp_path) -> Path:
    write(tmp_path, "train/b.json", leaf(f0=[61], f2=[9, 10]))
    write(tmp_path, "train/a.json", leaf(f1=[1, 36, 3]))
    write(tmp_path, "test/a.json", leaf(f1=[5, 40]))
    return tmp_path


def test_images_labels_and_writers_are_read_in_the_order_of_the_files(files):
    loaded = Femnist(path=str(files)).load()
    assert loaded.train.targets.tolist() == [1, 36, 3, 61, 9, 10]
    assert loaded.client_ids.tolist() == [1, 1, 1, 0, 2, 2]
    assert loaded.train.inputs.shape == (6, 1, 28, 28)
    assert (loaded.train.inputs[:, 0, 0, 0] * 255).round().tolist() == [1, 36, 3, 61, 9, 10]
    assert (loaded.train.inputs[:, 0, 0, 1:] == 1).all()
    assert loaded.test.targets.tolist() == [5, 40]


def test_clients_are_writers(files):
    dataset = Femnist(path=str(files))
    data = federate(dataset, Natural(), validation=False, seed=0)
    assert data.records_per_client.tolist() == [1, 3, 2]
    assert (data.classes, dataset.train_records, dataset.test_records) == (62, 6, 2)


def test_test_images_are_those_of_the_writers_who_train(files):
    write(files, "test/b.json", leaf(f0=[7], stranger=[8]))
    data = federate(Femnist(path=str(files)), Natural(), validation=False, seed=0)
    assert data.test_clients.tolist() == [1, 1, 0, -1]


def test_letters_can_be_left_out(files):
    dataset = Femnist(path=str(files), only_digits=True)
    loaded = dataset.load()
    assert dataset.classes == 10
    assert loaded.train.targets.tolist() == [1, 3, 9]
    assert loaded.client_ids.tolist() == [0, 0, 1]
    assert loaded.test.targets.tolist() == [5]


def test_the_second_reading_is_from_the_cache_until_a_file_changes(files, monkeypatch):
    first = Femnist(path=str(files)).load()
    with monkeypatch.context() as patch:
        patch.setattr("fedpriv.data.femnist.read_users", lambda *_: pytest.fail("read again"))
        again = Femnist(path=str(files)).load()
    assert (first.train.inputs == again.train.inputs).all()
    assert np.array_equal(first.client_ids, again.client_ids)
    write(files, "test/a.json", leaf(f1=[5]))
    assert len(Femnist(path=str(files)).load().test) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("no json", "cannot read "),
        ("[]", "must hold users and user_data as LEAF writes them"),
        ({"users": ["a"], "user_data": {}}, "must hold users and user_data as LEAF writes them"),
        (leaf(a=[62]), ", user a: x must be rows of 784 numbers"),
        (
            {"users": ["a"], "user_data": {"a": {"x": [[1, 2]], "y": [0]}}},
            ", user a: x must be rows",
        ),
        ({"users": ["a"], "user_data": {"a": {"x": [WHITE], "y": [0, 1]}}}, ", user a: x must be"),
        ({"users": ["a"], "user_data": {"a": {"x": [[2.0] * 784], "y": [0]}}}, ", user a: x must"),
        ({"users": ["a"], "user_data": {"a": {"x": [WHITE]}}}, ", user a: x must be rows"),
    ],
)
def test_what_is_none_of_femnist_is_named_by_file_and_user(tmp_path, content, message):
    write(tmp_path, "train/a.json", content)
    path = tmp_path / "femnist/data/train/a.json"
    with pytest.raises(DataError) as caught:
        read_users(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_absent_files_say_where_they_were_looked_for(tmp_path, cache):
    with pytest.raises(DataError) as caught:
        Femnist(path=str(tmp_path)).load()
    assert str(caught.value) == (
        f"femnist not found: dataset.path={tmp_path} has no femnist/data/train/*.json; put the JSON "
        "files of LEAF as femnist/data/train/*.json and femnist/data/test/*.json there, or name "
        "another folder with dataset.path or FEDPRIV_DATA"
    )
    status = Femnist().present()
    assert (status.present, status.train_records) == (False, None)
    assert status.note == f"the cache {cache} does not exist"
    assert "700,000 training records assumed" in Femnist().notes[0]
    with pytest.raises(DataError, match=r"^femnist cannot be downloaded by fedpriv; put "):
        Femnist().download(tmp_path)


def test_the_status_says_what_is_wrong_with_a_file(files):
    assert Femnist(path=str(files)).present().usable
    write(files, "train/a.json", "{}")
    status = Femnist(path=str(files)).present()
    assert (status.usable, status.checksums) == (False, "damaged")
    assert "must hold users" in status.note


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"only_digits": 1}, "only_digits must be true or false, got 1"),
        ({"validation_records": 0}, "validation_records must be a whole number >= 1, got 0"),
        ({"path": ""}, "path must be a text, got nothing"),
    ],
)
def test_a_constructor_names_the_argument_and_what_is_allowed(keys, message):
    with pytest.raises(ArgumentError) as caught:
        Femnist(**keys)
    assert str(caught.value) == message
