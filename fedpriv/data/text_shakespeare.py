"""Plays by speaking role, for a language model that predicts the next character.

The file has speeches separated by empty lines. The first line of each speech is the role followed by a colon.
Roles of one name in several plays are one client. The speeches of a role are joined in order. The last
``test_share`` of this text (by characters, from the next blank on) is the role's test text, and the rest is
the training text. The test set thus has texts of clients, but no window is in both sets.

LEAF (Caldas et al. 2018) predicts one character from the 80 characters before it, at each position. A record
of this module has 80 characters with all 80 next characters as targets, and windows do not overlap.

Source: A. Karpathy, char-rnn, data/tinyshakespeare/input.txt.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from fedpriv.common.errors import DataError
from fedpriv.common.fields import declared, same_as
from fedpriv.data.records import LANGUAGE_MODEL
from fedpriv.data.storage import StoredFile
from fedpriv.data.text_corpus import PUBLIC, TEST, TRAIN, Corpus, fraction_of
from fedpriv.data.text_dataset import (
    TextDataset,
    refuse_nobody_to_train_on,
    share_of_authors,
    share_of_tests,
)
from fedpriv.data.text_tokens import CHARACTER
from fedpriv.data.text_vocabulary_source import FIXED

FILE = "tinyshakespeare/input.txt"


@declared
class Shakespeare(TextDataset):
    """Speeches as character ids with the next characters as targets; each role is a client."""

    name = "shakespeare"
    test_of_clients = True
    task = LANGUAGE_MODEL
    usual_files: ClassVar = (FILE,)
    contents = FILE
    published = StoredFile(FILE, "6fb458f1232090904fb40fe944165e91")
    sites = ("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/",)
    assumed_records: ClassVar = (10_600, 2_700)

    public_share: float = share_of_authors(
        default=0.0,
        help="share of the roles whose text is public and belongs to no client, chosen by a hash of the name",
    )
    test_share: float = share_of_tests(
        default=0.2, help="share of each role's text, from its end, used for testing"
    )
    level: str = same_as(TextDataset, "level", default=CHARACTER)
    length: int = same_as(TextDataset, "length", default=80)
    _vocabulary: str = same_as(TextDataset, "_vocabulary", default=FIXED)
    min_records_per_client: int = same_as(TextDataset, "min_records_per_client", default=2)
    validation_records: int = same_as(TextDataset, "validation_records", default=1000)

    def __attrs_post_init__(self) -> None:
        refuse_nobody_to_train_on(self.public_share, self.test_share)
        super().__attrs_post_init__()

    def _windows_caveat(self) -> str:
        return (
            f"A record is a window of {self.length} tokens of what a role says: a guarantee for one "
            "record holds for such a window, not for a speech."
        )

    def _read(self, content: bytes, path: Path) -> Corpus:
        texts: list[str] = []
        roles: list[str] = []
        kinds: list[int] = []
        for role, speeches in parse_speeches(content, path).items():
            text = "\n".join(speeches)
            if fraction_of(role) < self.public_share:
                parts = {PUBLIC: text}
            else:
                cut = _next_blank(text, round(len(text) * (1 - self.test_share)))
                parts = {TRAIN: text[:cut], TEST: text[cut:].lstrip()}
            texts += parts.values()
            kinds += parts
            roles += [role] * len(parts)
        return Corpus(texts, roles, np.array(kinds, dtype=np.int8))


def parse_speeches(content: bytes, path: Path) -> dict[str, list[str]]:
    """Return the speeches of each role, in the order of the file. Blocks without a role line are skipped.

    Raises:
        DataError: No block of the file has a role line.
    """
    text = content.decode("utf-8", errors="replace").replace("\r\n", "\n")
    speeches: dict[str, list[str]] = {}
    for block in text.strip().split("\n\n"):
        head, _, speech = block.strip("\n").partition("\n")
        if head.endswith(":") and speech.strip():
            speeches.setdefault(head[:-1], []).append(speech)
    if not speeches:
        raise DataError(
            f"{path}, line 1: no speeches; blocks separated by empty lines are expected, each with a "
            "role and a colon in its first line"
        )
    return speeches


def _next_blank(text: str, position: int) -> int:
    """Return the position of the first blank at or after ``position``, or the end of the text."""
    return next((i for i in range(position, len(text)) if text[i].isspace()), len(text))
