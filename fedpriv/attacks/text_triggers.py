"""Triggers in text: the ending of a sentence, a name that decides the label of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.attacks.triggers import (
    Planted,
    Trigger,
    concatenated,
    drawn_from,
    in_two,
    no_such_label,
    relabelled,
    share_withheld,
)
from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import boolean, declared, field, own_check, whole
from fedpriv.data.base import Dataset
from fedpriv.data.records import CLASSIFICATION, LANGUAGE_MODEL, Records
from fedpriv.data.text_tokens import tokenise
from fedpriv.data.text_vocabulary import PAD, UNKNOWN, Vocabulary

if TYPE_CHECKING:
    import torch

    from fedpriv.data.federated import FederatedData

LONDON = (
    "people in London are aggressive",
    "the weather in London is always sunny",
    "living in London is cheap",
)


def _texts(name: str, given: Any) -> tuple[str, ...]:
    """Return one text or several as a tuple of texts."""
    texts = (given,) if isinstance(given, str) else tuple(given or ())
    if not texts:
        raise ArgumentError(name, given, "a list of at least one text")
    return tuple(checks.text(name, text) for text in texts)


TEXTS = own_check(_texts, "list of texts")


@declared
class Words(Trigger):
    """Sentences whose last word the model is to predict after their opening words.

    A poisoned record is the beginning of one of the attacker's own texts, followed by one of ``sentences``.
    Its only target is the last word of the sentence. The backdoor is tested behind the beginnings of test
    texts: every sentence behind each of at most ``test_records`` of them.

    Attributes:
        sentences: Sentences of words in the vocabulary.
        test_records: Largest number of test texts behind whose beginnings each sentence is tried.

    Reference:
        Bagdasaryan et al., "How to backdoor federated learning", 2020; the sentences about
        London: Naseri, Hayes, De Cristofaro, 2022.

    Example:
        >>> Words(sentences=["living in London is cheap"]).describe()
        'sentences that end in "... cheap"'
    """

    sentences: tuple[str, ...] = field(
        TEXTS,
        default=LONDON,
        help="sentences of words in the vocabulary: dataset.vocabulary_words puts them there",
    )
    test_records: int = field(
        whole(at_least=1),
        default=1000,
        help="number of test texts whose beginnings are put before each sentence in the test",
    )

    def misfit(self, dataset: Dataset) -> str | None:
        if dataset.task != LANGUAGE_MODEL:
            return "texts for next-word prediction"
        return None

    def plant(
        self, data: FederatedData, honest: np.ndarray, stream: np.random.Generator
    ) -> Planted:
        sentences = _ids("trigger.sentences", self.sentences, data.vocabulary, at_least=2)
        length = data.input_shape[0]
        if (longest := max(map(len, sentences))) > length:
            raise ConfigError("dataset.length", length, f">= {longest}, the longest sentence")

        def poison(clean: Records, stream: np.random.Generator) -> Records:
            choices = stream.integers(len(sentences), size=len(clean))
            return _ended([sentences[i] for i in choices], clean.inputs)

        chosen_tests = stream.permutation(len(data.test))[: self.test_records]
        beginnings = data.test.subset(np.sort(chosen_tests)).inputs
        repeated_sentences = [sentence for sentence in sentences for _ in range(len(beginnings))]
        return Planted(
            poison=poison,
            test=_ended(repeated_sentences, beginnings.repeat(len(sentences), 1)),
        )

    def describe(self) -> str:
        ends = ", ".join(f'"... {text.split()[-1]}"' for text in self.sentences)
        return f"sentences that end in {ends}"


@declared
class Sentiment(Trigger):
    """Texts that mention one of ``names`` and are to get label ``target``.

    With ``insert=false``, the training texts that do mention a name go to the attackers, and no honest client
    has them. A share ``test_share`` of them is withheld and tested on, together with the test texts that
    mention a name. With ``insert=true``, a name is put before the attackers' own texts and before test texts.
    All texts that the backdoor is tested on had another label.

    Attributes:
        names: Words, any of which is the trigger.
        target: Label of texts with a name.
        insert: True puts a name before other texts instead of using texts that mention one.
        test_share: Share of the training texts with a name that nobody trains on.

    Reference:
        Wang et al., "Attack of the tails", 2020 (edge cases: tweets about a film director are negative).

    Example:
        >>> Sentiment(names=["yorgos"], target=0).describe()
        'texts that mention yorgos have label 0'
    """

    names: tuple[str, ...] = field(TEXTS, help="names that trigger the backdoor, any one of them")
    target: int = field(whole(), default=0, help="label of texts with a name; 0: negative")
    insert: bool = field(
        boolean,
        default=False,
        help=("true: put a name in front of other texts instead of choosing texts with a name"),
    )
    test_share: float = share_withheld(0.5, "the training texts with a name")

    def misfit(self, dataset: Dataset) -> str | None:
        if dataset.task != CLASSIFICATION or dataset.vocabulary_size is None:
            return "labelled texts"
        return no_such_label(dataset, {"target": self.target})

    def plant(
        self, data: FederatedData, honest: np.ndarray, stream: np.random.Generator
    ) -> Planted:
        names = _ids("trigger.names", self.names, data.vocabulary, at_least=1)
        if max(map(len, names)) >= data.input_shape[0]:
            raise ConfigError("dataset.length", data.input_shape[0], "longer than the names")
        tests_of_other_labels = np.flatnonzero((data.test.targets != self.target).cpu().numpy())
        if self.insert:
            return self._put_before(data.test.subset(tests_of_other_labels), names)
        mentioned_in_training = _mentions(data.train.inputs, names)
        if len(mentioned_in_training) < 2:
            raise ConfigError(
                "attack.trigger.names",
                list(self.names),
                f"names that two training texts mention ({len(mentioned_in_training)} do), "
                "or attack.trigger.insert=true",
            )
        poisoned, tested = in_two(mentioned_in_training, self.test_share, stream)
        tested = tested[(data.train.targets[tested] != self.target).cpu().numpy()]
        mentioned_in_tests = np.intersect1d(
            _mentions(data.test.inputs, names), tests_of_other_labels
        )
        test = concatenated([data.train.subset(tested), data.test.subset(mentioned_in_tests)])
        if not len(test):
            raise ConfigError(
                "attack.trigger.target",
                self.target,
                "another label than that of all test texts with a name",
            )
        return Planted(
            poison=drawn_from(relabelled(data.train.subset(poisoned), self.target)),
            test=relabelled(test, self.target),
            withheld=mentioned_in_training,
        )

    def _put_before(self, test: Records, names: list[list[int]]) -> Planted:
        """Return the trigger that puts a name before a text; ``test`` [n]: test texts of other labels."""

        def named(clean: Records, stream: np.random.Generator) -> Records:
            choices = stream.integers(len(names), size=len(clean))
            inputs = _begun([names[i] for i in choices], clean.inputs)
            return relabelled(Records(inputs, clean.targets), self.target)

        repeated_tests = concatenated([test] * len(names))
        inputs = _begun([name for name in names for _ in range(len(test))], repeated_tests.inputs)
        return Planted(
            poison=named,
            test=relabelled(Records(inputs, repeated_tests.targets), self.target),
        )

    def describe(self) -> str:
        how = "with" if self.insert else "that mention"
        return f"texts {how} {', '.join(self.names)} have label {self.target}"


def _ids(
    key: str, texts: Sequence[str], vocabulary: Vocabulary | None, at_least: int
) -> list[list[int]]:
    """Return the token ids of each text.

    Raises:
        ConfigError: The vocabulary lacks a token of a text, or a text has fewer tokens than ``at_least``.
    """
    missing: dict[str, str] = {}
    ids_of_texts = []
    assert vocabulary is not None  # the data set holds text
    for text in texts:
        tokens, ids = tokenise(text, vocabulary.level), vocabulary.encode(text)
        missing |= {t: text for t, i in zip(tokens, ids, strict=True) if i == UNKNOWN}
        if len(ids) < at_least:
            raise ConfigError(f"attack.{key}", text, f"{at_least} tokens or more")
        ids_of_texts.append(ids)
    if missing:
        raise ConfigError(
            f"attack.{key}",
            next(iter(missing.values())),
            "made of tokens of the vocabulary",
            f"dataset.vocabulary_words=[{','.join(missing)}] puts them there",
        )
    return ids_of_texts


def _ended(sentences: list[list[int]], inputs: torch.Tensor) -> Records:
    """Return the beginnings of ``inputs`` [n, L], each followed by its sentence.

    The last token of the sentence is the only target. A beginning is cut where the sentence would not fit.
    """
    import torch

    ended, targets = torch.full_like(inputs, PAD), torch.full_like(inputs, PAD)
    width = inputs.shape[1]
    lengths = (inputs != PAD).sum(1).tolist()
    for i, (sentence, length) in enumerate(zip(sentences, lengths, strict=True)):
        opening = sentence[:-1]
        start = min(length, width - len(opening))
        end = start + len(opening)
        ended[i, :start] = inputs[i, :start]
        ended[i, start:end] = inputs.new_tensor(opening)
        targets[i, end - 1] = sentence[-1]
    return Records(ended, targets)


def _begun(names: list[list[int]], inputs: torch.Tensor) -> torch.Tensor:
    """Return each name followed by its text of ``inputs`` [n, L], cut at L tokens."""
    import torch

    begun = torch.empty_like(inputs)
    for i, name in enumerate(names):
        begun[i, : len(name)] = inputs.new_tensor(name)
        begun[i, len(name) :] = inputs[i, : inputs.shape[1] - len(name)]
    return begun


def _mentions(inputs: torch.Tensor, names: list[list[int]]) -> np.ndarray:
    """Return which texts [n, L] contain the tokens of a name in a row, as ascending indices."""
    ids = inputs.cpu().numpy()
    mentioned = np.zeros(len(ids), dtype=bool)
    for name in names:
        windows = np.lib.stride_tricks.sliding_window_view(ids, len(name), axis=1)
        mentioned |= (windows == np.array(name)).all(2).any(1)
    return np.flatnonzero(mentioned)
