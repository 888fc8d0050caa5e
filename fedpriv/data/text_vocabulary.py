"""Which tokens have an id, and the way there and back.

Id 0 pads, id 1 stands for every token that is not in the vocabulary. Which words are in a vocabulary
tells of the text it was built from, so it is built from public text, taken from a list, or fixed;
from private text only where that was asked for, and then the ledger has a release without noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedpriv.common.errors import DataError
from fedpriv.data.storage import unreadable
from fedpriv.data.text_tokens import join, tokenise

PAD, UNKNOWN = 0, 1
SPECIAL = ("<pad>", "<unknown>")
CHARACTERS = ("\n", *map(chr, range(32, 127)))  # printable ASCII: LEAF's 80 letters and 16 more


@dataclass(frozen=True)
class Vocabulary:
    """``tokens[i]`` is the token with id i; the first two are ``SPECIAL``."""

    tokens: tuple[str, ...]
    level: str

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token → id, without the special ones: no text can spell them."""
        return {token: i for i, token in enumerate(self.tokens) if i > UNKNOWN}

    def encode(self, text: str) -> list[int]:
        """The ids of the tokens of ``text``; ``UNKNOWN`` for those without one."""
        ids = self.ids
        return [ids.get(token, UNKNOWN) for token in tokenise(text, self.level)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids, padding left out."""
        return join([self.tokens[int(i)] for i in ids if int(i) != PAD], self.level)


def of_list(tokens: Iterable[str], level: str, size: int) -> Vocabulary:
    """The first distinct tokens of a list, ``size`` ids at most, the special ones among them."""
    distinct = dict.fromkeys(tokens)
    for special in SPECIAL:
        distinct.pop(special, None)
    return Vocabulary((*SPECIAL, *list(distinct)[: size - len(SPECIAL)]), level)


def of_texts(
    texts: Iterable[Sequence[str]], level: str, size: int, first: Iterable[str] = ()
) -> Vocabulary:
    """``first``, then the most frequent tokens of tokenised texts; ties in alphabetical order."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    frequent = sorted(counts, key=lambda token: (-counts[token], token))
    return of_list((*first, *frequent), level, size)


def of_file(path: Path, level: str, size: int, first: Iterable[str] = ()) -> Vocabulary:
    """A list in UTF-8, one token a line, empty lines passed over; DataError for any other line."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    tokens = []
    for number, line in enumerate(lines, start=1):
        token = line.removesuffix("\r")
        if not token or token in SPECIAL:
            continue
        if tokenise(token, level) != [token]:
            raise DataError(
                f"{path}, line {number}: one {level} as the tokeniser writes it is expected "
                f"(dataset.level={level}), got {token[:60]!r}"
            )
        tokens.append(token)
    if not tokens:
        raise DataError(f"{path} has no tokens; one a line is expected")
    return of_list((*first, *tokens), level, size)
