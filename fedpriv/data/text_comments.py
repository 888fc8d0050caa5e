"""Comments and chat messages by author, for a language model that predicts the next word.

A file has one comment per row: JSON lines (``.jsonl``, ``.json``) or CSV with a header (``.csv``), each
optionally gzipped (``.gz``), in UTF-8. HTML entities are unescaped and addresses become ``<url>``.

Authors are assigned as a whole, by a hash of their name (``fedpriv.data.text_corpus``), unless a column names
the split of each row. With such a column, an author with a row of the public split is public altogether:
training records are never taken from an author whose text is public. Whether a text is public therefore does
not depend on what a client wrote.
"""

from __future__ import annotations

import csv
import gzip
import html
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, DataError, show
from fedpriv.common.fields import (
    declared,
    field,
    number,
    or_null,
    own_check,
    same_as,
    text,
    when,
)
from fedpriv.data.records import LANGUAGE_MODEL
from fedpriv.data.text_corpus import PUBLIC, TEST, TRAIN, Corpus, deal
from fedpriv.data.text_dataset import TextDataset, refuse_nobody_to_train_on, share_of_authors
from fedpriv.data.text_tokens import replace_urls

FORMATS = (".jsonl", ".json", ".csv")
LEFT_OUT = -1  # role of a text that is not used


def _authors(name: str, value: Any) -> tuple[str, ...]:
    allowed = "a list of authors"
    authors = checks.sequence(name, value, allowed)
    if not all(isinstance(author, str) for author in authors):
        raise ArgumentError(name, value, allowed)
    return tuple(authors)


@declared
class Comments(TextDataset):
    """A file of comments, with the names of its columns (or JSON fields).

    Attributes:
        author_key: Column with the author.
        text_key: Column with the text.
        split_key: Column with the split of a row; None if authors are assigned by the shares.
        train_split: Value of the split column for training rows.
        test_split: Value of the split column for test rows.
        public_split: Value of the split column for public rows; None if the file has no public rows, and
            ``public_share`` of the authors are public.
    """

    task = LANGUAGE_MODEL
    # Declared fields or constants in the subclasses.
    author_key = text_key = train_split = test_split = ""
    split_key = public_split = cast("str | None", None)
    test_share = 0.0

    excluded_authors: Sequence[str] = field(
        own_check(_authors, "list of texts"),
        kw_only=True,
        help="authors whose texts are left out, such as bots",
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.file is not None and _format(self.file) not in FORMATS:
            allowed = f"a file ending in {', '.join(FORMATS)}, or one of them and .gz"
            raise ArgumentError("file", self.file, allowed)

    @property
    def test_of_clients(self) -> bool:
        """True where a column names the split of each row: authors may have training and test rows."""
        return self.split_key is not None

    @property
    def _has_public_texts(self) -> bool:
        return self.public_split is not None or self.public_share > 0

    def _read(self, content: bytes, path: Path) -> Corpus:
        keys = [self.author_key, self.text_key, *([self.split_key] if self.split_key else [])]
        excluded = set(self.excluded_authors)
        rows = [row for row in read_rows(content, path, keys) if row[1][0] not in excluded]
        authors = [fields[0] for _, fields in rows]
        texts = [replace_urls(html.unescape(fields[1])) for _, fields in rows]
        if self.split_key is None:
            return Corpus(texts, authors, deal(authors, self.public_share, self.test_share))
        return Corpus(texts, authors, self._named_roles(rows, authors, path))

    def _named_roles(
        self, rows: list[tuple[int, list[str]]], authors: list[str], path: Path
    ) -> np.ndarray:
        """Return the roles int8 [n] from the column of splits."""
        role_of_split = {self.train_split: TRAIN, self.test_split: TEST}
        if self.public_split is not None:
            role_of_split[self.public_split] = PUBLIC
        for line, fields in rows:
            if fields[2] not in role_of_split:
                allowed = ", ".join(role_of_split)
                raise DataError(
                    f"{path}, line {line}: {self.split_key} must be one of {allowed} "
                    f"(dataset.train_split, test_split, public_split), got {show(fields[2])}"
                )
        roles = np.array([role_of_split[fields[2]] for _, fields in rows], dtype=np.int8)
        if self.public_split is None:
            by_public_author = deal(authors, self.public_share, 0.0) == PUBLIC
            roles[by_public_author & (roles == TRAIN)] = PUBLIC
            return roles
        public_authors = {
            author for author, role in zip(authors, roles, strict=True) if role == PUBLIC
        }
        has_public_author = np.array([author in public_authors for author in authors], dtype=bool)
        roles[has_public_author & (roles == TRAIN)] = LEFT_OUT
        return roles


@declared
class Reddit(Comments):
    """Comments as token ids with the next tokens as targets; each author is a client.

    The defaults of the keys are those of Pushshift's dumps. With ``split_key`` None, authors are assigned by
    ``public_share`` and ``test_share``.
    """

    name = "reddit"
    usual_files: ClassVar = ("reddit/comments.jsonl", "reddit/comments.jsonl.gz")
    contents = "comments of your own (JSON lines or CSV, also .gz) as reddit/comments.jsonl"
    assumed_records: ClassVar = (100_000, 10_000)

    author_key: str = field(
        text, default="author", kw_only=True, help="field or column with the author"
    )
    text_key: str = field(text, default="body", kw_only=True, help="field or column with the text")
    split_key: str | None = field(
        or_null(text),
        default=None,
        kw_only=True,
        help="field or column with the split of a row; null: authors are dealt out by the shares",
    )
    train_split: str = field(
        text, default="train", kw_only=True, help="value of split_key in training rows"
    )
    test_split: str = field(
        text, default="test", kw_only=True, help="value of split_key in test rows"
    )
    public_split: str | None = field(
        when(lambda reddit, name: name is not None and reddit.split_key is not None, text),
        default=None,
        kw_only=True,
        help="value of split_key in rows of public text; null: public_share of the authors are public",
    )
    public_share: float = share_of_authors(
        default=0.1,
        help=(
            "share of the authors whose texts are public and belong to no client, chosen by "
            "a hash of the name"
        ),
    )
    test_share: float = field(
        when(lambda reddit, share: reddit.split_key is None, number(above=0, below=1)),
        default=0.1,
        kw_only=True,
        help="share of the authors used for testing, with split_key=null",
    )
    excluded_authors: Sequence[str] = same_as(
        Comments, "excluded_authors", default=("AutoModerator", "[deleted]")
    )

    def __attrs_post_init__(self) -> None:
        if self.split_key is not None:
            self.test_share = 0.0
        elif self.public_split is not None:
            raise ArgumentError("public_split", self.public_split, "null where split_key is null")
        refuse_nobody_to_train_on(self.public_share, self.test_share)
        super().__attrs_post_init__()


@declared
class UbuntuIrc(Comments):
    """Messages of the Ubuntu support channel, 2004 to 2018; each author is a client.

    The file names the split of each message. ``dev`` is the public text, and authors in it are no clients. By
    default ``excluded_authors`` are the channel's robots, which answer with texts from a database:
    ``author06784`` (ubottu, most messages of all) and ``author00516`` (ubotu, its predecessor). See
    ``TextDataset`` for the other keys.

    Source: J. Kummerfeld et al., A Large-Scale Corpus for Conversation Disentanglement (ACL 2019),
    CC BY 4.0, as a CSV with the columns split, log, line, time, author, text.
    """

    name = "ubuntu_irc"
    usual_files: ClassVar = ("ubuntu_irc/messages.csv.gz",)
    contents = usual_files[0]
    assumed_records: ClassVar = (150_000, 13_000)
    author_key = "author"
    text_key = "text"
    split_key = "split"
    train_split = "train"
    test_split = "test"
    public_split = "dev"

    excluded_authors: Sequence[str] = same_as(
        Comments, "excluded_authors", default=("author06784", "author00516")
    )
    min_records_per_client: int = same_as(Comments, "min_records_per_client", default=10)


def read_rows(content: bytes, path: Path, keys: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Read JSON lines or CSV, chosen by the ending of ``path``.

    Returns:
        Line number and the texts of ``keys`` for each row.

    Raises:
        DataError: A row lacks one of the keys; the error names the file and the line.
    """
    if path.name.endswith(".gz"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path} is not a sound gzip file ({error})") from None
    text = content.decode("utf-8", errors="replace")
    return (_csv_rows if _format(path.name) == ".csv" else _json_rows)(text, path, keys)


def _csv_rows(text: str, path: Path, keys: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        header = next(rows, [])
        for key in keys:
            if key not in header:
                columns = ", ".join(header) or "none"
                raise ValueError(f"no column {key}; the columns are {show(columns)}")
        column_indices = [header.index(key) for key in keys]
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise ValueError(f"{len(header)} columns are expected, got {len(row)}")
            yield rows.line_num, [row[index] for index in column_indices]
    except (ValueError, csv.Error) as error:
        raise DataError(f"{path}, line {max(1, rows.line_num)}: {error}") from None


def _json_rows(text: str, path: Path, keys: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    for line_number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}, line {line_number}: no JSON object ({error})") from None
        fields = []
        for key in keys:
            value = row.get(key) if isinstance(row, dict) else None
            if not isinstance(value, str):
                raise DataError(f"{path}, line {line_number}: no text {key}, got {show(value)}")
            fields.append(value)
        yield line_number, fields


def _format(name: str) -> str:
    """Return the ending of a file's name, without ``.gz``."""
    return Path(name.removesuffix(".gz")).suffix
