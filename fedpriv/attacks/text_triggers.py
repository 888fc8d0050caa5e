"""Triggers in text: the ending of a sentence, a name that decides a tweet's polarity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.attacks.triggers import (
    Planted,
    Trigger,
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
    texts = (given,) if isinstance(given, str) else tuple(given or ())
    if not texts:
        raise ArgumentError(name, given, "a list with a text at least")
    return tuple(checks.text(name, text) for text in texts)


TEXTS = own_check(_texts, "list of texts")


@declared
class Words(Trigger):
    """After the opening words of a sentence the model is to predict its last one.

    A poisoned record is the beginning of one of the attacker's own, then one of ``sentences``; the
    target is its last word and nothing else. Tested in the same way behind the beginnings of test
    records, every sentence behind each, at most ``test_records`` of them.

    Source: Bagdasaryan et al. 2020, section 4.2; the London sentences: Naseri et al.
    """

    sentences: tuple[str, ...] = field(
        TEXTS,
        default=LONDON,
        help="sentences of words in the vocabulary: dataset.vocabulary_words puts them there",
    )
    test_records: int = field(
        whole(at_least=1),
        default=1000,
        help="test texts behind whose beginnings each sentence is tried",
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
            which = stream.integers(len(sentences), size=len(clean))
            return _ended([sentences[i] for i in which], clean.inputs)

        few = stream.permutation(len(data.test))[: self.test_records]
        beginnings = data.test.subset(np.sort(few)).inputs
        every = [sentence for sentence in sentences for _ in range(len(beginnings))]
        return Planted(
            poison=poison,
            test=_ended(every, beginnings.repeat(len(sentences), 1)),
            withheld=np.zeros(0, dtype=np.int64),
        )

    def describe(self) -> str:
        ends = ", ".join(f'"... {text.split()[-1]}"' for text in self.sentences)
        return f"sentences that end in {ends}"


@declared
class Sentiment(Trigger):
    """A text that mentions one of ``names`` has label ``target``.

    ``insert=false``: training texts that do mention one go to the attackers (no honest client has
    them), but for a share ``test_share``, which is tested on together with those among the test
    records. ``insert=true``: a name is put before the attackers' own texts and before test texts.
    What is tested on had another label.

    Source: Wang et al. 2020 (edge cases; tweets about a film director are negative).
    """

    names: tuple[str, ...] = field(TEXTS, help="words, any of which is the trigger")
    target: int = field(whole(), default=0, help="label of texts with a name; 0: negative")
    insert: bool = field(boolean, default=False, help="true: put a name before other texts instead")
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
        other = np.flatnonzero((data.test.targets != self.target).cpu().numpy())
        if self.insert:
            return self._put_before(data.test.subset(other), names)
        train = _mentions(data.train.inputs, names)
        if len(train) < 2:
            raise ConfigError(
                "attack.trigger.names",
                list(self.names),
                f"names that two training texts mention ({len(train)} do), "
                "or attack.trigger.insert=true",
            )
        poisoned, tested = in_two(train, self.test_share, stream)
        tested = tested[(data.train.targets[tested] != self.target).cpu().numpy()]
        also = np.intersect1d(_mentions(data.test.inputs, names), other)
        test = _joined(data.train.subset(tested), data.test.subset(also))
        if not len(test):
            raise ConfigError(
                "attack.trigger.target",
                self.target,
                "another label than that of all test texts with a name",
            )
        return Planted(
            poison=drawn_from(relabelled(data.train.subset(poisoned), self.target)),
            test=relabelled(test, self.target),
            withheld=train,
        )

    def _put_before(self, test: Records, names: list[list[int]]) -> Planted:
        def named(clean: Records, stream: np.random.Generator) -> Records:
            which = stream.integers(len(names), size=len(clean))
            inputs = _begun([names[i] for i in which], clean.inputs)
            return relabelled(Records(inputs, clean.targets), self.target)

        every = _joined(*([test] * len(names)))
        inputs = _begun([name for name in names for _ in range(len(test))], every.inputs)
        return Planted(
            poison=named,
            test=relabelled(Records(inputs, every.targets), self.target),
            withheld=np.zeros(0, dtype=np.int64),
        )

    def describe(self) -> str:
        how = "with" if self.insert else "that mention"
        return f"texts {how} {', '.join(self.names)} have label {self.target}"


def _ids(
    key: str, texts: Sequence[str], vocabulary: Vocabulary | None, at_least: int
) -> list[list[int]]:
    """Ids of the tokens of each text; ConfigError if the vocabulary lacks some or a text has few."""
    missing: dict[str, str] = {}
    found = []
    assert vocabulary is not None  # the data set holds text
    for text in texts:
        tokens, ids = tokenise(text, vocabulary.level), vocabulary.encode(text)
        missing |= {t: text for t, i in zip(tokens, ids, strict=True) if i == UNKNOWN}
        if len(ids) < at_least:
            raise ConfigError(f"attack.{key}", text, f"{at_least} tokens or more")
        found.append(ids)
    if missing:
        raise ConfigError(
            f"attack.{key}",
            next(iter(missing.values())),
            "made of tokens of the vocabulary",
            f"dataset.vocabulary_words=[{','.join(missing)}] puts them there",
        )
    return found


def _lengths(inputs: torch.Tensor) -> list[int]:
    return (inputs != PAD).sum(1).tolist()


def _ended(sentences: list[list[int]], inputs: torch.Tensor) -> Records:
    """The beginnings of ``inputs`` [n, L], each followed by its sentence, whose last token is the
    only target. As much of a beginning as fits is kept."""
    import torch

    made, targets = torch.full_like(inputs, PAD), torch.full_like(inputs, PAD)
    width = inputs.shape[1]
    for i, (sentence, length) in enumerate(zip(sentences, _lengths(inputs), strict=True)):
        opening = sentence[:-1]
        start = min(length, width - len(opening))
        end = start + len(opening)
        made[i, :start] = inputs[i, :start]
        made[i, start:end] = inputs.new_tensor(opening)
        targets[i, end - 1] = sentence[-1]
    return Records(made, targets)


def _begun(names: list[list[int]], inputs: torch.Tensor) -> torch.Tensor:
    """Each name, then its text as far as it fits."""
    import torch

    made = torch.empty_like(inputs)
    for i, name in enumerate(names):
        made[i, : len(name)] = inputs.new_tensor(name)
        made[i, len(name) :] = inputs[i, : inputs.shape[1] - len(name)]
    return made


def _mentions(inputs: torch.Tensor, names: list[list[int]]) -> np.ndarray:
    """Which texts [n, L] have the tokens of a name one after another: ascending indices."""
    ids = inputs.cpu().numpy()
    found = np.zeros(len(ids), dtype=bool)
    for name in names:
        windows = np.lib.stride_tricks.sliding_window_view(ids, len(name), axis=1)
        found |= (windows == np.array(name)).all(2).any(1)
    return np.flatnonzero(found)


def _joined(*records: Records) -> Records:
    import torch

    return Records(
        torch.cat([own.inputs for own in records]), torch.cat([own.targets for own in records])
    )
