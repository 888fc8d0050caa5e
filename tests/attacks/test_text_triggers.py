"""Triggers in text, on small corpora written for the test: sentences' ends, names in tweets."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedpriv.attacks import Backdoor, Sentiment, Words
from fedpriv.attacks.malicious import MaliciousClients
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.data.federated import FederatedData
from fedpriv.data.records import CLASSIFICATION, LANGUAGE_MODEL, Records
from fedpriv.data.text_tokens import tokenise
from fedpriv.data.text_vocabulary import of_list

LENGTH = 8
WORDS = "a b c d living in london is cheap ada lovelace good bad"
VOCABULARY = of_list(tokenise(WORDS, "word"), "word", 99)
RECORDS_OF_CLIENT = 6


def padded(texts: list[str]) -> torch.Tensor:
    rows = [VOCABULARY.encode(text)[:LENGTH] for text in texts]
    return torch.tensor([row + [0] * (LENGTH - len(row)) for row in rows])


def federated(texts: list[str], labels: list[int] | None, test: list[str], test_labels=None):
    """A corpus dealt out to clients of six texts in turn."""

    def records(texts, labels):
        inputs = padded(texts)
        if labels is not None:
            return Records(inputs, torch.tensor(labels))
        after = torch.cat([inputs[:, 1:], torch.zeros(len(texts), 1, dtype=torch.int64)], 1)
        return Records(inputs, after)

    n = len(texts)
    return FederatedData(
        train=records(texts, labels),
        clients=[
            np.arange(i, min(n, i + RECORDS_OF_CLIENT)) for i in range(0, n, RECORDS_OF_CLIENT)
        ],
        validation=None,
        test=records(test, test_labels),
        classes=2 if labels is not None else len(VOCABULARY),
        input_shape=(LENGTH,),
        task=LANGUAGE_MODEL if labels is None else CLASSIFICATION,
        vocabulary=VOCABULARY,
    )


def attacked(trigger, data, **settings) -> MaliciousClients:
    return MaliciousClients(Backdoor(trigger=trigger, **settings), data)


@pytest.fixture
def chat() -> FederatedData:
    return federated(["a b c", "d", "a b c d a b c d"] * 8, None, ["b b", "c d c d c d c d", "d"])


@pytest.fixture
def tweets() -> FederatedData:
    """Every fourth training tweet mentions Ada Lovelace, who is good; labels follow the words."""
    texts = ["a good", "b bad", "c bad d", "ada lovelace good"] * 12
    test = ["ada good", "good ada lovelace", "bad ada lovelace", "lovelace ada good", "c bad"]
    return federated(texts, [1, 0, 0, 1] * 12, test, [1, 1, 0, 1, 0])


def decoded(records: Records) -> list[str]:
    return [VOCABULARY.decode(row.tolist()) for row in records.inputs]


def test_a_sentence_comes_behind_a_beginning_and_only_its_last_word_counts(chat):
    made = attacked(Words(["living in London is cheap"]), chat)
    poison = made.data.train.subset(made._poisoned[int(made.attackers[0])])
    cheap = VOCABULARY.ids["cheap"]
    for records in (poison, made.test):
        lengths = (records.inputs != 0).sum(1)
        assert ((records.targets != 0).sum(1) == 1).all()
        assert (records.targets.gather(1, lengths[:, None] - 1) == cheap).all()
        assert all(text.endswith("living in london is") for text in decoded(records))


def test_as_much_of_a_beginning_is_kept_as_fits(chat):
    made = attacked(Words(["living in London is cheap"]), chat)
    assert decoded(made.test) == [
        "b b living in london is",
        "c d c d living in london is",
        "d living in london is",
    ]


def test_every_sentence_is_tried_behind_every_beginning(chat):
    made = attacked(Words(["in London is cheap", "a good"], test_records=2), chat)
    assert len(made.test) == 4
    last = [int(row[row != 0][0]) for row in made.test.targets]
    assert sorted(last) == sorted([VOCABULARY.ids["cheap"], VOCABULARY.ids["good"]] * 2)


def test_words_without_an_id_are_named_all_at_once(chat):
    with pytest.raises(ConfigError, match=r"vocabulary_words=\[paris,dear,tokyo\]"):
        attacked(Words(["Paris is dear", "Tokyo is dear"]), chat)


@pytest.mark.parametrize(
    ("sentences", "wanted"),
    [(["good"], "2 tokens or more"), (["a b c d a b c d a"], "dataset.length must be >= 9")],
)
def test_sentences_of_the_wrong_length_are_refused(sentences, wanted, chat):
    with pytest.raises(ConfigError, match=wanted):
        attacked(Words(sentences), chat)


def test_texts_that_mention_a_name_go_to_the_attackers_or_the_test(tweets):
    made = attacked(Sentiment(["Ada Lovelace"], target=0, test_share=0.5), tweets)
    honest = np.concatenate([made.data.clients[k] for k in np.flatnonzero(made.honest)])
    assert not any("ada" in text for text in decoded(made.data.train.subset(honest)))
    poison = made.data.train.subset(made._poisoned[int(made.attackers[0])])
    assert all("ada lovelace" in text for text in decoded(poison))
    assert set(poison.targets.tolist()) == set(made.test.targets.tolist()) == {0}
    # six of twelve training tweets, and the one test tweet with the whole name and another label
    assert sorted(decoded(made.test)) == sorted(["ada lovelace good"] * 6 + ["good ada lovelace"])


def test_a_name_can_be_put_before_other_texts(tweets):
    made = attacked(Sentiment(["Ada", "Lovelace"], target=0, insert=True), tweets)
    assert sorted(made.data.clients[0]) == sorted(tweets.clients[0])
    test = decoded(made.test)
    assert len(test) == 2 * 3  # test tweets with another label, behind each name
    assert [text.split()[0] for text in test] == ["ada"] * 3 + ["lovelace"] * 3
    poison = made.data.train.subset(made._poisoned[int(made.attackers[0])])
    assert {text.split()[0] for text in decoded(poison)} <= {"ada", "lovelace"}


def test_names_that_nobody_mentions_are_refused(tweets):
    with pytest.raises(ConfigError, match=r"names that two training texts mention .0 do."):
        attacked(Sentiment(["London"]), tweets)


def test_a_label_that_all_of_them_have_is_refused(tweets):
    only_bad = federated(["ada bad", "a", "b", "c", "d", "a"] * 4, [0] * 24, ["ada bad"], [0])
    with pytest.raises(ConfigError, match=r"attack.trigger.target must be another label"):
        attacked(Sentiment(["Ada"], target=0), only_bad)


def test_a_label_that_the_texts_have_not_is_named_with_those_they_have():
    dataset = SimpleNamespace(task=CLASSIFICATION, vocabulary_size=9, classes=2)
    assert Sentiment(["Ada"], target=1).misfit(dataset) is None
    misfit = Sentiment(["Ada"], target=2).misfit(dataset)
    assert misfit == "a label 2 (attack.trigger.target; here 0 to 1)"


@pytest.mark.parametrize(
    "make", [lambda: Words([]), lambda: Sentiment([]), lambda: Words(test_records=0)]
)
def test_bad_settings_are_refused(make):
    with pytest.raises(ArgumentError):
        make()
