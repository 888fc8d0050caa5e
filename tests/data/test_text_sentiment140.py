from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedpriv.common.errors import ArgumentError, ConfigError, DataError
from fedpriv.data.federated import federate
from fedpriv.data.partitions import Dirichlet, Natural
from fedpriv.data.text_corpus import PUBLIC, TEST, TRAIN, deal
from fedpriv.data.text_sentiment140 import Sentiment140, parse_tweets

USERS = [f"user{i:02}" for i in range(40)]
ROLES = dict(zip(USERS, deal(USERS, 0.1, 0.1), strict=True))
FILE = "sentiment140/sentiment140.subset.csv"


def row(text: str, user: str = "user00", polarity: str = "0") -> str:
    quoted = text.replace('"', '""')
    return f'"{polarity}","1","Mon Apr 06 22:19:45 PDT 2009","NO_QUERY","{user}","{quoted}"\n'


def write(folder: Path, content: str, file: str = FILE) -> Path:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(content.encode("latin-1"))
    return folder


@pytest.fixture
def tweets(tmp_path) -> Path:
    """Three tweets of each of 40 users; each spells its user's role."""
    names = {TRAIN: "train", TEST: "test", PUBLIC: "public"}
    texts = [
        row(f"common {names[ROLES[user]]}word{i} @{user} http://x.y/{user}", user, "04"[i % 2] * 1)
        for user in USERS
        for i in range(3)
    ]
    return write(tmp_path, "".join(texts))


def test_the_forty_users_have_every_role():
    assert set(ROLES.values()) == {TRAIN, TEST, PUBLIC}


def test_rows_are_read_as_latin_1_with_entities_users_and_addresses_replaced(tmp_path):
    content = (
        row('@one caf\xe9 &amp; "tea" at http://t.co/x', "me", "4")
        + "\n"
        + row("two\nlines, one tweet", "you")
    ).encode("latin-1")
    texts, users, labels = parse_tweets(content, Path("f.csv"))
    assert [text.split() for text in texts] == [
        ["<user>", "café", "&", '"tea"', "at", "<url>"],
        ["two", "lines,", "one", "tweet"],
    ]
    assert (users, labels.tolist(), labels.dtype) == (["me", "you"], [1, 0], np.int64)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (row("x", polarity="2"), "the polarity must be 0 or 4, got 2"),
        ('"0","1","x"\n', "6 columns (polarity, id, date, query, user, text) are expected, got 3"),
    ],
)
def test_a_row_that_is_no_tweet_is_named_by_file_and_line(line, message):
    with pytest.raises(DataError) as caught:
        parse_tweets((row("two\nlines") + line).encode(), Path("f.csv"))
    assert str(caught.value) == f"f.csv, line 3: {message}"


def test_a_record_is_a_padded_sequence_of_ids_with_one_label(tweets):
    loaded = Sentiment140(path=str(tweets), length=6, min_records_per_client=1).load()
    train = loaded.train
    assert train.inputs.dtype == train.targets.dtype == torch.int64
    assert train.inputs.shape[1:] == (6,)
    assert train.targets.tolist()[:3] == [0, 1, 0]
    assert loaded.vocabulary.decode(train.inputs[0]) == "common <unknown> <user> <url>"
    assert train.inputs[0, 4:].tolist() == [0, 0]


def test_the_vocabulary_has_words_of_public_users_alone(tweets):
    tokens = Sentiment140(path=str(tweets), min_records_per_client=1).vocabulary.tokens
    assert sorted(tokens[2:]) == [
        "<url>",
        "<user>",
        "common",
        *(f"publicword{i}" for i in range(3)),
    ]


def test_the_vocabulary_of_private_text_is_asked_for_and_known_without_noise(tweets):
    dataset = Sentiment140(path=str(tweets), vocabulary="private", min_records_per_client=1)
    assert {"trainword0", "common"} <= set(dataset.vocabulary.tokens)
    assert not any("public" in t or "test" in t for t in dataset.vocabulary.tokens)
    assert "private training texts" in " ".join(dataset.caveats)
    assert dataset.unprotected == {"vocabulary": "private"}
    public = Sentiment140(path=str(tweets))
    assert (public.caveats, public.unprotected) == ((), {})


def test_the_vocabulary_of_a_file(tweets, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("common\ntrainword1\n")
    keys = {"vocabulary": "file", "vocabulary_file": str(words), "min_records_per_client": 1}
    dataset = Sentiment140(path=str(tweets), vocabulary_words=["sunny"], **keys)
    assert dataset.vocabulary.tokens[2:] == ("sunny", "common", "trainword1")
    words.write_text("common\n")  # other content, other records
    assert Sentiment140(path=str(tweets), **keys).vocabulary.tokens[2:] == ("common",)


def test_clients_are_users_of_whom_no_tweet_is_public_or_for_testing(tweets):
    dataset = Sentiment140(path=str(tweets), min_records_per_client=1)
    roles = list(ROLES.values())
    assert dataset.train_records == 3 * roles.count(TRAIN)
    assert dataset.test_records == 3 * roles.count(TEST)
    data = federate(dataset, Natural(), validation=False, seed=0)
    assert data.records_per_client.tolist() == [3] * roles.count(TRAIN)
    assert (data.task, data.classes, data.input_shape) == ("classification", 2, (40,))
    assert data.vocabulary.tokens == dataset.vocabulary.tokens
    assert data.labels_per_client.tolist() == [[2, 1]] * roles.count(TRAIN)


def test_tweets_can_be_dealt_out_by_label(tweets):
    dataset = Sentiment140(path=str(tweets), min_records_per_client=1)
    partition = Dirichlet(clients=3, min_records=1)
    assert federate(dataset, partition, validation=False, seed=0).client_count == 3


def test_users_with_few_tweets_are_left_out(tmp_path):
    trained = [user for user in USERS if ROLES[user] == TRAIN]
    counts = dict(zip(trained, [1, 2, 3], strict=False))
    others = [row("x", user) for user in USERS if ROLES[user] != TRAIN]
    own = [row("y", user) for user, count in counts.items() for _ in range(count)]
    write(tmp_path, "".join(others + own))
    loaded = Sentiment140(path=str(tmp_path), min_records_per_client=2).load()
    assert np.bincount(loaded.client_ids).tolist() == [2, 3]
    with pytest.raises(ConfigError) as caught:
        Sentiment140(path=str(tmp_path), min_records_per_client=4).load()
    assert str(caught.value) == (
        "dataset.min_records_per_client must be <= 3 (the largest number of records of an author), got 4"
    )


def test_long_tweets_are_truncated_or_cut_into_windows(tweets):
    def records(how):
        keys = {"length": 3, "long_texts": how, "min_records_per_client": 1}
        return Sentiment140(path=str(tweets), **keys)

    cut, whole = records("windows"), records("truncate")
    assert cut.train_records == 2 * whole.train_records
    assert "is several records" in " ".join(cut.caveats)


def test_the_full_file_is_preferred_to_a_subset_and_any_other_can_be_named(tweets):
    full = "sentiment140/training.1600000.processed.noemoticon.csv"
    write(tweets, (tweets / FILE).read_text() * 2, full)
    keys = {"path": str(tweets), "min_records_per_client": 1}
    subset = Sentiment140(file=FILE, **keys)
    assert Sentiment140(**keys).train_records == 2 * subset.train_records
    absolute = Sentiment140(file=str(tweets / FILE), min_records_per_client=1)
    assert absolute.train_records == subset.train_records


def test_an_absent_file_says_where_it_was_looked_for(tmp_path, cache):
    with pytest.raises(DataError) as caught:
        Sentiment140(path=str(tmp_path)).load()
    assert str(caught.value) == (
        f"sentiment140 not found: dataset.path={tmp_path} has no sentiment140/training.1600000."
        "processed.noemoticon.csv or sentiment140/sentiment140.subset.csv; put sentiment140/"
        "training.1600000.processed.noemoticon.csv there, name another folder with dataset.path or "
        "FEDPRIV_DATA, or another file with dataset.file"
    )
    with pytest.raises(DataError, match=f"the cache {cache} does not exist"):
        Sentiment140().prepare()
    with pytest.raises(DataError, match=r"not found: there is no /none\.csv;"):
        Sentiment140(file="/none.csv").prepare()


def test_a_plan_without_the_file_says_what_it_assumes(tmp_path):
    dataset = Sentiment140(path=str(tmp_path))
    assert (dataset.train_records, dataset.test_records) == Sentiment140.assumed_records
    assert dataset.notes[0].endswith(": 600,000 training records assumed")
    assert dataset.present().train_records is None


def test_the_status_says_what_is_wrong_with_a_file(tweets):
    dataset = Sentiment140(path=str(tweets), min_records_per_client=1)
    status = dataset.present()
    assert (status.usable, status.checksums, status.note) == (True, "own file", "")
    assert status.where == str(tweets / FILE)
    write(tweets, "nothing\n")
    status = Sentiment140(path=str(tweets)).present()
    assert not status.usable
    assert "line 1: 6 columns" in status.note


def test_the_second_reading_is_from_the_cache(tweets, monkeypatch):
    keys = {"path": str(tweets), "min_records_per_client": 1}
    first = Sentiment140(**keys).load()
    monkeypatch.setattr(Sentiment140, "_read", lambda *_: pytest.fail("read again"))
    again = Sentiment140(**keys, validation_records=7).load()
    assert torch.equal(first.train.inputs, again.train.inputs)
    assert torch.equal(first.test.targets, again.test.targets)
    assert np.array_equal(first.client_ids, again.client_ids)
    assert first.vocabulary == again.vocabulary


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"level": "letter"}, "level must be one of word, character, got letter"),
        ({"length": 0}, "length must be a whole number >= 1 and <= 10000, got 0"),
        ({"long_texts": "cut"}, "long_texts must be one of windows, truncate, got cut"),
        (
            {"vocabulary": "fixed"},
            "vocabulary must be public, file or private with level=word (fixed is a list of "
            "characters), got fixed",
        ),
        (
            {"public_share": 0},
            "vocabulary must be file, fixed or private where no text is public (public_share=0), got public",
        ),
        ({"vocabulary": "file"}, "vocabulary_file must be a file, one token a line, got null"),
        (
            {"vocabulary_file": "x"},
            "vocabulary_file must be null with vocabulary=public, got x",
        ),
        ({"vocabulary_size": 2}, "vocabulary_size must be a whole number >= 3 and <= "),
        (
            {"vocabulary_size": 3, "vocabulary_words": ["a", "b"]},
            "vocabulary_size must be >= 4, for the vocabulary_words, got 3",
        ),
        (
            {"vocabulary_words": ["London"]},
            "vocabulary_words must be a list of tokens (lower-case words), got London",
        ),
        ({"vocabulary_words": "a"}, "vocabulary_words must be a list of tokens (lower-case words), "),
        ({"public_share": 1}, "public_share must be >= 0 and < 1, got 1"),
        ({"test_share": 0}, "test_share must be > 0 and < 1, got 0"),
        (
            {"public_share": 0.5, "test_share": 0.5},
            "test_share must be < 0.5, 1 less dataset.public_share, got 0.5",
        ),
        ({"min_records_per_client": 0}, "min_records_per_client must be a whole number >= 1, got 0"),
        ({"validation_records": 0}, "validation_records must be a whole number >= 1, got 0"),
        ({"path": ""}, "path must be a text, got "),
        ({"file": 3}, "file must be a text, got 3"),
    ],
)  # fmt: skip
def test_a_constructor_names_the_argument_and_what_is_allowed(keys, message):
    with pytest.raises(ArgumentError) as caught:
        Sentiment140(**keys)
    assert str(caught.value).startswith(message)


def test_a_file_without_public_training_or_test_tweets_is_refused(tmp_path):
    for role, words in ((PUBLIC, "no public texts"), (TRAIN, "no texts to train on")):
        users = [user for user in USERS if ROLES[user] != role]
        write(tmp_path, "".join(row("x", user) for user in users))
        with pytest.raises(DataError, match=words):
            Sentiment140(path=str(tmp_path)).load()
    users = [user for user in USERS if ROLES[user] != TEST]
    write(tmp_path, "".join(row("x", user) for user in users))
    with pytest.raises(DataError, match="no texts for testing"):
        Sentiment140(path=str(tmp_path), min_records_per_client=1).load()


@pytest.mark.thorough
def test_the_real_subset_has_the_known_counts(real_file):
    path = real_file(FILE)
    texts, users, labels = parse_tweets((Path(path) / FILE).read_bytes(), Path(FILE))
    assert (len(texts), len(set(users)), labels.sum()) == (45_721, 29_091, 24_614)
    dataset = Sentiment140(path=path)
    data = federate(dataset, Natural(), validation=False, seed=0)
    assert data.client_count == 1587
    assert data.records_per_client.min() == 5
    assert len(data.train) == dataset.train_records == 11_896
    assert len(data.vocabulary) == 5000
    assert (data.train.inputs < 5000).all()
