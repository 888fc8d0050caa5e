"""Vocabularies: the mapping between tokens and ids.

Id 0 is padding, and id 1 stands for every token outside the vocabulary. The words of a vocabulary reveal
something about the text it was built from. A vocabulary is therefore built from public text, read from a
list, or fixed. It is built from private text only on request, and then the ledger has a release without
noise.
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
    """Mapping between tokens and ids.

    Attributes:
        tokens: Token of each id; the first two are ``SPECIAL``.
        level: ``word`` or ``character``.
    """

    tokens: tuple[str, ...]
    level: str

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Id of each token. Special tokens are left out, because no text can spell them."""
        return {token: i for i, token in enumerate(self.tokens) if i > UNKNOWN}

    def encode(self, text: str) -> list[int]:
        """Return the ids of the tokens of ``text``, with ``UNKNOWN`` for tokens outside the vocabulary."""
        ids = self.ids
        return [ids.get(token, UNKNOWN) for token in tokenise(text, self.level)]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids, without padding."""
        return join([self.tokens[int(i)] for i in ids if int(i) != PAD], self.level)


def of_list(tokens: Iterable[str], level: str, size: int) -> Vocabulary:
    """Return the vocabulary of the first distinct tokens: at most ``size`` ids, special ones included."""
    distinct = dict.fromkeys(tokens)
    for special in SPECIAL:
        distinct.pop(special, None)
    return Vocabulary((*SPECIAL, *list(distinct)[: size - len(SPECIAL)]), level)


def of_texts(
    texts: Iterable[Sequence[str]], level: str, size: int, first: Iterable[str] = ()
) -> Vocabulary:
    """Return the vocabulary of tokenised texts.

    Args:
        texts: Tokens of each text.
        level: ``word`` or ``character``.
        size: Largest number of ids.
        first: Tokens that come before the most frequent ones. Equally frequent tokens are sorted by alphabet.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    frequent = sorted(counts, key=lambda token: (-counts[token], token))
    return of_list((*first, *frequent), level, size)


def of_file(path: Path, level: str, size: int, first: Iterable[str] = ()) -> Vocabulary:
    """Return the vocabulary of a UTF-8 list with one token per line. Empty lines are skipped.

    Args:
        path: The file.
        level: ``word`` or ``character``.
        size: Largest number of ids; tokens beyond it are left out.
        first: Tokens that come before those of the file.

    Raises:
        DataError: The file cannot be read, has no tokens, or a line is not exactly one token.
    """
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
