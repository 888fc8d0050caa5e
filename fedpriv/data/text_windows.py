"""Sequences of equal length, cut from the token ids of many texts."""

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
    """Token ids of n texts end to end: text i is ``ids[starts[i]:starts[i + 1]]``.

    Attributes:
        ids: Token ids of all texts, int32.
        starts: Beginning of each text, and the end of the last text, int64 [n + 1].
    """

    ids: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, texts: Iterable[Sequence[int]]) -> TokenIds:
        """Collect the ids of texts, reading one text after another."""
        ids, starts = array("i"), [0]
        for text in texts:
            ids.extend(text)
            starts.append(len(ids))
        return cls(np.array(ids, dtype=np.int32), np.array(starts, dtype=np.int64))


def next_tokens(
    texts: TokenIds, length: int, long_texts: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut texts into windows for predicting the next token.

    A text of t tokens has t-1 inputs, because its last token is a target only. Windows do not overlap: the
    first input of a window is the last target of the window before. With ``truncate`` only the first window
    is used. A text of fewer than two tokens has no window.

    Args:
        texts: The texts.
        length: L, the number of inputs of a window.
        long_texts: ``windows`` or ``truncate``.

    Returns:
        Inputs [m, L]; targets [m, L], the token after each input, with ``PAD`` after the last; the index of
        the text of each window [m].
    """
    ends = texts.starts[1:] - 1  # the last token of a text is only a target
    position, inside, source = _windows(texts.starts[:-1], ends, length, long_texts)
    inputs = np.where(inside, texts.ids.take(position, mode="clip"), PAD)
    targets = np.where(inside, texts.ids.take(position + 1, mode="clip"), PAD)
    return inputs, targets, source


def sequences(texts: TokenIds, length: int, long_texts: str) -> tuple[np.ndarray, np.ndarray]:
    """Cut texts into windows for classification. A text without tokens has no window.

    Args:
        texts: The texts.
        length: L, the number of tokens of a window.
        long_texts: ``windows``, or ``truncate`` for the first window of a text alone.

    Returns:
        Inputs [m, L], padded on the right, and the index of the text of each window [m].
    """
    position, inside, source = _windows(texts.starts[:-1], texts.starts[1:], length, long_texts)
    return np.where(inside, texts.ids.take(position, mode="clip"), PAD), source


def _windows(
    starts: np.ndarray, ends: np.ndarray, length: int, long_texts: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions [m, L] of windows, a mask of the positions inside the text, and the text of each."""
    counts = -(-np.maximum(ends - starts, 0) // length)
    if long_texts == TRUNCATE:
        counts = np.minimum(counts, 1)
    source = np.repeat(np.arange(len(starts)), counts)
    number = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)
    position = (starts[source] + number * length)[:, None] + np.arange(length)
    return position, position < ends[source][:, None], source
