from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fedpriv.common.errors import ArgumentError, ConfigError, DataError
from fedpriv.data.federated import federate
from fedpriv.data.partitions import Dirichlet, Iid, Natural, Shards
from fedpriv.data.text_comments import Reddit, UbuntuIrc
from fedpriv.data.text_corpus import PUBLIC, TEST, TRAIN, deal

AUTHORS = [f"author{i:02}" for i in range(40)]
ROLES = dict(zip(AUTHORS, deal(AUTHORS, 0.1, 0.1), strict=True))
NAMES = {TRAIN: "train", TEST: "test", PUBLIC: "public"}


def lines(rows: list[dict]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


def write(folder: Path, name: str, content: bytes) -> str:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(folder)


@pytest.fixture
def comments(tmp_path) -> str:
    rows = [
        {"author": author, "body": f"the {NAMES[ROLES[author]]} text &gt; http://x.y number {i}"}
        for author in AUTHORS
        for i in range(2)
    ]
    robot = {"author": "AutoModerator", "body": "public robot train test"}
    return write(tmp_path, "reddit/comments.jsonl", lines([robot, *rows]))


def test_records_are_the_tokens_and_those_after_them(comments):
    loaded = Reddit(path=comments, length=5).load()
    words = loaded.vocabulary.decode
    assert loaded.train.inputs.dtype == loaded.train.targets.dtype == torch.int64
    assert words(loaded.train.inputs[0]) == "the <unknown> text > <url>"
    assert words(loaded.train.targets[0]) == "<unknown> text > <url> number"
    assert words(loaded.train.inputs[1]) == "number"
    assert words(loaded.train.targets[1]) == "0"
    assert loaded.train.targets[1].tolist()[1:] == [0] * 4


def test_classes_are_the_ids_of_the_vocabulary(comments):
    dataset = Reddit(path=comments, vocabulary_size=6)
    assert (dataset.classes, dataset.task, len(dataset.vocabulary)) == (6, "language_model", 6)


def test_authors_are_clients_public_or_for_testing(comments):
    dataset = Reddit(path=comments)
    data = federate(dataset, Natural(), validation=False, seed=0)
    roles = list(ROLES.values())
    assert data.records_per_client.tolist() == [2] * roles.count(TRAIN)
    assert len(data.test) == 2 * roles.count(TEST)
    assert "public" in data.vocabulary.tokens
    assert "train" not in data.vocabulary.tokens
    assert data.labels_per_client is None


def test_robots_are_not_used_at_all(comments):
    assert "robot" not in Reddit(path=comments).vocabulary.tokens
    assert "robot" in Reddit(path=comments, excluded_authors=[], public_share=0.95,
                             test_share=0.04).vocabulary.tokens  # fmt: skip


def test_a_partition_by_label_is_refused(comments):
    for partition, name in (
        (Dirichlet(clients=2, min_records=1), "dirichlet"),
        (Shards(clients=2, shards=4), "shards"),
    ):
        with pytest.raises(ConfigError) as caught:
            federate(Reddit(path=comments), partition, validation=False, seed=0)
        assert str(caught.value) == (
            f"partition={name} needs one label for each record, and the records of a language model "
            "have a sequence of targets; choose partition=natural, iid or fixed_size"
        )
    data = federate(
        Reddit(path=comments, validation_records=4), Iid(clients=3), validation=True, seed=0
    )
    assert (data.client_count, len(data.validation)) == (3, 4)


SPLIT = b"""split,who,words
dev,a,"public words, of a"
train,a,left out
train,b,private words
train,b,private words
test,a,public author tested
test,b,private author tested
"""
COLUMNS = {
    "author_key": "who", "text_key": "words", "split_key": "split", "public_split": "dev",
}  # fmt: skip


@pytest.mark.parametrize("file", ["x.csv", "x.csv.gz"])
def test_a_column_may_name_the_splits_and_public_authors_are_no_clients(tmp_path, file):
    dataset = Reddit(path=write(tmp_path, file, SPLIT), file=file, **COLUMNS)
    loaded = dataset.load()
    assert set(loaded.vocabulary.tokens[2:]) == {"public", "words", ",", "of", "a"}
    assert (len(loaded.train), len(loaded.test)) == (2, 2)
    assert loaded.client_ids.tolist() == [0, 0]


def test_without_a_public_split_a_share_of_the_authors_is_public(tmp_path):
    rows = [{"author": a, "body": f"{NAMES[ROLES[a]]} word", "s": "train"} for a in AUTHORS]
    rows += [{"author": a, "body": "for testing", "s": "test"} for a in AUTHORS]
    path = write(tmp_path, "reddit/comments.jsonl.gz", lines(rows))
    loaded = Reddit(path=path, split_key="s").load()
    assert set(loaded.vocabulary.tokens[2:]) == {"public", "word"}
    assert len(loaded.test) == 40
    assert len(loaded.train) == 40 - list(ROLES.values()).count(PUBLIC)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.jsonl", b'{"author": "a", "body": "b"}\n\n{"author": 3}', "line 3: no text author, got 3"),
        ("x.jsonl", b'{"author": "a"}', "line 1: no text body, got null"),
        ("x.jsonl", b"[1]", "line 1: no text author, got null"),
        ("x.json", b"{'a'}", "line 1: no JSON object"),
        ("x.csv", b"author,text\na,b\n", "line 1: no column body; the columns are author, text"),
        ("x.csv", b"", "line 1: no column author; the columns are none"),
        ("x.csv", b"author,body\na,b\n\na,b,c\n", "line 4: 2 columns are expected, got 3"),
    ],
)  # fmt: skip
def test_a_row_without_author_or_text_is_named_by_file_and_line(tmp_path, name, content, message):
    with pytest.raises(DataError) as caught:
        Reddit(path=write(tmp_path, name, content), file=name).load()
    assert str(caught.value).startswith(f"{tmp_path / name}, {message}")


def test_a_damaged_gzip_file_is_refused(tmp_path):
    path = write(tmp_path, "x.csv", gzip.compress(SPLIT)[:-9])
    (tmp_path / "x.csv").rename(tmp_path / "x.csv.gz")
    with pytest.raises(DataError, match=r"x\.csv\.gz is not a sound gzip file"):
        Reddit(path=path, file="x.csv.gz", **COLUMNS).load()


def test_an_unknown_split_is_refused(tmp_path):
    path = write(tmp_path, "x.csv", SPLIT + b"valid,c,what\n")
    with pytest.raises(
        DataError, match=r"line 8: split must be one of train, test, dev .* got valid"
    ):
        Reddit(path=path, file="x.csv", **COLUMNS).load()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"public_split": "dev"}, "public_split must be null where split_key is null, got dev"),
        ({"excluded_authors": "bot"}, "excluded_authors must be a list of authors, got bot"),
        ({"excluded_authors": [1]}, "excluded_authors must be a list of authors, got [1]"),
        (
            {"file": "x.txt"},
            "file must be a file ending in .jsonl, .json, .csv, or one of them and",
        ),
        ({"author_key": ""}, "author_key must be a text, got "),
        ({"split_key": 1}, "split_key must be a text, got 1"),
    ],
)
def test_a_constructor_names_the_argument_and_what_is_allowed(keys, message):
    with pytest.raises(ArgumentError) as caught:
        Reddit(**keys)
    assert str(caught.value).startswith(message)


def test_the_chat_is_read_with_its_own_columns(tmp_path):
    content = (
        b"split,log,line,time,author,text\n"
        b"dev,2004,0,09:14,a,public words\n"
        b"train,2004,1,09:14,author06784,factoid not found\n"
        b"train,2004,1,09:14,b,private words\n"
        b"test,2004,1,09:14,author00516,robot words\n"
        b"test,2004,2,09:15,b,more words\n"
    )
    path = write(tmp_path, "ubuntu_irc/messages.csv.gz", content)
    loaded = UbuntuIrc(path=path, min_records_per_client=1).load()
    assert (len(loaded.train), len(loaded.test)) == (1, 1)
    assert loaded.vocabulary.tokens[2:] == ("public", "words")


@pytest.mark.thorough
def test_the_real_chat_has_the_known_counts(real_file):
    path = real_file("ubuntu_irc/messages.csv.gz")
    dataset = UbuntuIrc(path=path, long_texts="truncate", min_records_per_client=1)
    loaded = dataset.load()
    assert len(loaded.vocabulary) == 5000
    assert ((loaded.train.targets != 0).sum(1) >= 1).all()
    assert ((loaded.train.inputs == 0) == (loaded.train.targets == 0)).all()
    authors, counts = np.unique(loaded.client_ids, return_counts=True)
    assert len(authors) <= 15_732 - 278
    assert counts.sum() == dataset.train_records < 196_146 - 29_194 + 2_376 + 1_531
    # an input's target is the next input
    assert torch.equal(loaded.train.inputs[:, 1:], torch.where(
        loaded.train.inputs[:, 1:] != 0, loaded.train.targets[:, :-1], 0))  # fmt: skip
