"""Sentiment140: positive and negative tweets with their authors.

The file is a CSV in latin-1 without header, six quoted columns: polarity (0 negative, 4 positive), id,
date, query, user, text. HTML entities are unescaped, ``@names`` become ``<user>`` and addresses become
``<url>``, as the authors of the data did for their features.

Users are assigned as a whole, by a hash of their name (``fedpriv.data.text_corpus``). The users of
``public_share`` wrote the public text, the users of ``test_share`` wrote the test records, and all other
users are the clients. No client's tweet is in the vocabulary or in the test set, and the test accuracy is
that for users whom the model never met.

Source: A. Go, R. Bhayani, L. Huang, Twitter Sentiment Classification using Distant Supervision (2009).
"""

from __future__ import annotations

import csv
import html
import io
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedpriv.common.errors import DataError, show
from fedpriv.common.fields import declared, same_as
from fedpriv.data.records import CLASSIFICATION
from fedpriv.data.text_corpus import Corpus, deal
from fedpriv.data.text_dataset import (
    TextDataset,
    refuse_nobody_to_train_on,
    share_of_authors,
    share_of_tests,
)
from fedpriv.data.text_tokens import replace_urls, replace_users
from fedpriv.data.text_windows import TRUNCATE

COLUMNS = ("polarity", "id", "date", "query", "user", "text")
POLARITIES = {"0": 0, "4": 1}


@declared
class Sentiment140(TextDataset):
    """Tweets as token ids, with target 1 for a positive tweet; each user is a client."""

    name = "sentiment140"
    task = CLASSIFICATION
    usual_files = (
        "sentiment140/training.1600000.processed.noemoticon.csv",
        "sentiment140/sentiment140.subset.csv",
    )
    contents = usual_files[0]
    assumed_records: ClassVar = (600_000, 160_000)  # roughly, of 1.6 million

    public_share: float = share_of_authors(
        default=0.1,
        help=(
            "share of the users whose texts are public and belong to no client, chosen by a "
            "hash of the name"
        ),
    )
    test_share: float = share_of_tests(default=0.1, help="share of the users used for testing")
    length: int = same_as(TextDataset, "length", default=40)
    long_texts: str = same_as(TextDataset, "long_texts", default=TRUNCATE)
    min_records_per_client: int = same_as(TextDataset, "min_records_per_client", default=5)

    def __attrs_post_init__(self) -> None:
        refuse_nobody_to_train_on(self.public_share, self.test_share)
        super().__attrs_post_init__()

    @property
    def known(self) -> bool:
        """True for the whole of Sentiment140, of which no checksum is published, and for its subset."""
        return super().known or (self.file is None and self._found == self._candidates[0])

    def _read(self, content: bytes, path: Path) -> Corpus:
        texts, users, labels = parse_tweets(content, path)
        roles = deal(users, self.public_share, self.test_share)
        return Corpus(texts, users, roles, labels)


def parse_tweets(content: bytes, path: Path) -> tuple[list[str], list[str], np.ndarray]:
    """Parse the file of Sentiment140.

    Returns:
        Texts, users and labels (int64 [n]), in the order of the file.

    Raises:
        DataError: A row is invalid; the error names the file and the line.
    """
    texts, users, labels = [], [], []
    rows = csv.reader(io.StringIO(content.decode("latin-1"), newline=""))
    try:
        for row in rows:
            if not row:
                continue
            if len(row) != len(COLUMNS):
                columns = ", ".join(COLUMNS)
                raise ValueError(f"6 columns ({columns}) are expected, got {len(row)}")
            polarity, user, text = row[0], row[4], row[5]
            if polarity not in POLARITIES:
                raise ValueError(f"the polarity must be 0 or 4, got {show(polarity)}")
            labels.append(POLARITIES[polarity])
            users.append(user)
            texts.append(replace_users(replace_urls(html.unescape(text))))
    except (ValueError, csv.Error) as error:
        raise DataError(f"{path}, line {rows.line_num}: {error}") from None
    return texts, users, np.array(labels, dtype=np.int64)
