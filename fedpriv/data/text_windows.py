"""Token ids of many texts cut into sequences of one length."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fedpriv.data.text_vocabulary import PAD

WINDOWS, TRUNCATE = "windows", "truncate"
LONG_TEXTS = (WINDOWS, TRUNCATE)


@dataclass(frozen=True)
class TokenIds:
    """The ids of n texts end to end: text i is ``ids[starts[i]:starts[i + 1]]``."""

    ids: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, texts: Iterable[Sequence[int]]) -> TokenIds:
        """From the ids of each text, taken one text after another."""
        ids, starts = array("i"), [0]
        for text in texts:
            ids.extend(text)
            starts.append(len(ids))
        return cls(np.array(ids, dtype=np.int32), np.array(starts, dtype=np.int64))


def next_tokens(
    texts: TokenIds, length: int, long_texts: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs [m, L], targets [m, L] (the token after each input, ``PAD`` after the last) and the text
    [m] each window is from.

    A text of t tokens has t-1 inputs: its last token is a target only. Windows do not overlap; the
    first input of a window is the last target of the one before. With ``truncate`` only the first
    window is kept. A text of fewer than two tokens has none.
    """
    ends = texts.starts[1:] - 1  # the last token of a text is no input
    position, inside, source = _windows(texts.starts[:-1], ends, length, long_texts)
    inputs = np.where(inside, texts.ids.take(position, mode="clip"), PAD)
    targets = np.where(inside, texts.ids.take(position + 1, mode="clip"), PAD)
    return inputs, targets, source


def sequences(texts: TokenIds, length: int, long_texts: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [m, L], padded on the right, and the text [m] each is from; a text without tokens has
    none."""
    position, inside, source = _windows(texts.starts[:-1], texts.starts[1:], length, long_texts)
    return np.where(inside, texts.ids.take(position, mode="clip"), PAD), source


def _windows(
    starts: np.ndarray, ends: np.ndarray, length: int, long_texts: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions [m, L] of non-overlapping windows, whether each lies inside its text, the text."""
    counts = -(-np.maximum(ends - starts, 0) // length)
    if long_texts == TRUNCATE:
        counts = np.minimum(counts, 1)
    source = np.repeat(np.arange(len(starts)), counts)
    number = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)
    position = (starts[source] + number * length)[:, None] + np.arange(length)
    return position, position < ends[source][:, None], source
