"""Base class of text data sets: keys, vocabulary, records of fixed length, and the cache."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedpriv.common.errors import ArgumentError, ConfigError, DataError
from fedpriv.common.fields import (
    declared,
    field,
    number,
    one_of,
    or_null,
    text,
    unchecked,
    when,
    whole,
)
from fedpriv.data import encoded
from fedpriv.data.own_files import OwnFiles
from fedpriv.data.records import CLASSIFICATION, LANGUAGE_MODEL, LoadedDataset, Records
from fedpriv.data.storage import PATH_KEY, StoredFile, md5, unreadable
from fedpriv.data.text_corpus import TEST, TRAIN, Corpus
from fedpriv.data.text_tokens import LEVELS, WORD
from fedpriv.data.text_vocabulary import Vocabulary
from fedpriv.data.text_vocabulary_source import (
    FROM_FILE,
    FROM_PRIVATE_TEXTS,
    FROM_PUBLIC,
    KINDS,
    VocabularySource,
)
from fedpriv.data.text_windows import LONG_TEXTS, WINDOWS, TokenIds, next_tokens, sequences

WINDOWED = (
    "A text longer than {length} tokens is several records (dataset.long_texts=windows): a guarantee "
    "for one record holds for {length} tokens of a text, not for all of it."
)
_LARGE_FILE = 2**21  # bytes; reading a larger file takes seconds, so the user is told

_PUBLISHED = {
    "6fb458f1232090904fb40fe944165e91": "tinyshakespeare/input.txt",
    "fe3ad267d8a8b52a9030f8e4a281b04b": "sentiment140/sentiment140.subset.csv",
    "e5748448414529c4731edde6f870d539": "ubuntu_irc/messages.csv.gz",
}
"""MD5 sums of texts that everybody has. Any other file is the user's own, and split by coins."""


@declared
class TextDataset(OwnFiles):
    """Texts of many authors as sequences of ``length`` token ids.

    If ``path`` is None, the folder is the environment variable FEDPRIV_DATA or else the cache.

    The key ``vocabulary`` chooses the origin of the vocabulary: ``public`` text that no client wrote; a
    ``file`` with one token per line (``vocabulary_file``); ``fixed`` (printable ASCII, for characters); or
    ``private``, the clients' training texts. The last is a release without noise, which no finite epsilon
    covers. The vocabulary has at most ``vocabulary_size`` ids; an id without a token is never used.

    Records of a ``language_model`` have the next token at each position as targets, int64 [n, L], or 0 where
    there is none. Records for ``classification`` have one label each. Token ids are kept in the cache,
    identified by the checksum of the file and by all these settings.

    Attributes:
        labels: Number of labels of a classification.
        usual_files: Files below the data folder that may hold the texts, best first.
        published: File with a known checksum that can be downloaded, or None.
        sites: Servers that have the published file.
        public_share: Share of the authors whose texts are public.
    """

    names_records = True
    task: ClassVar[str]
    labels: ClassVar[int] = 2
    usual_files: ClassVar[tuple[str, ...]]
    published: ClassVar[StoredFile | None] = None
    sites: ClassVar[tuple[str, ...]] = ()
    public_share = 0.0

    path: str | None = field(
        or_null(text),
        default=None,
        kw_only=True,
        help="folder that holds the file; null: FEDPRIV_DATA, then ~/.cache/fedpriv",
    )
    validation_records: int = field(
        whole(at_least=1),
        default=2000,
        kw_only=True,
        help="records held out of the training records as a public split, if a part of the run reads it",
    )
    file: str | None = field(
        or_null(text),
        default=None,
        kw_only=True,
        help="file in that folder, or an absolute path; null: {part.usual_files[0]}",
    )
    level: str = field(one_of(LEVELS), default=WORD, kw_only=True, help="what a token is")
    length: int = field(
        whole(at_least=1, at_most=10_000),
        default=30,
        unit="tokens",
        kw_only=True,
        help="length of a record",
    )
    long_texts: str = field(
        one_of(LONG_TEXTS),
        default=WINDOWS,
        kw_only=True,
        help="use of longer texts; windows: several records; truncate: only the beginning is a record",
    )
    _vocabulary: str = field(
        one_of(KINDS),
        default=FROM_PUBLIC,
        kw_only=True,
        help="origin of the vocabulary; private: built from the clients' texts, so the sound ε is infinite",
    )
    _vocabulary_size: int = field(
        whole(at_least=3, at_most=2**31 - 1),
        default=5000,
        kw_only=True,
        help="largest number of token ids, which include 0 (padding) and 1 (unknown tokens)",
    )
    _vocabulary_file: str | None = field(
        when(lambda dataset, file: dataset._vocabulary == FROM_FILE and file is not None, text),
        default=None,
        kw_only=True,
        help="vocabulary=file: the file, one token a line",
    )
    _vocabulary_words: Iterable[str] = field(
        unchecked("list of texts"),
        default=(),
        kw_only=True,
        help="tokens that the vocabulary always holds",
    )
    min_records_per_client: int = field(
        whole(at_least=1), default=1, kw_only=True, help="authors with fewer records are left out"
    )

    def __attrs_post_init__(self) -> None:
        self._source = VocabularySource.checked(
            self._vocabulary,
            self.level,
            self._vocabulary_size,
            self._vocabulary_file,
            self._vocabulary_words,
            self._has_public_texts,
        )

    @property
    def known(self) -> bool:
        """True if the file is a published one, whose split is that of its protocol."""
        return self._absence() is None and self._checksum in _PUBLISHED

    @property
    def _has_public_texts(self) -> bool:
        return self.public_share > 0

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids."""
        return self._source.size

    @property
    def classes(self) -> int:
        """Number of labels of a classification, or of token ids that a language model chooses from."""
        return self.labels if self.task == CLASSIFICATION else self.vocabulary_size

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape (L,) of a record."""
        return (self.length,)

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentences about the data for the privacy statement."""
        private = [FROM_PRIVATE_TEXTS] if self._source.private else []
        windowed = [self._windows_caveat()] if self.long_texts == WINDOWS else []
        return (*private, *windowed)

    def _windows_caveat(self) -> str:
        return WINDOWED.format(length=self.length)

    @property
    def unprotected(self) -> dict[str, str]:
        """Config keys, with their values, that publish something about clients without noise."""
        return {"vocabulary": self._source.kind} if self._source.private else {}

    @property
    def vocabulary(self) -> Vocabulary:
        """Mapping between tokens and ids; reads the file.

        Raises:
            DataError: The file cannot be read.
        """
        return Vocabulary(tuple(self._arrays["tokens"].tolist()), self.level)

    def prepare(self) -> None:
        """Make sure that the file is there and that its token ids are in the cache.

        Raises:
            DataError: The file is missing or damaged.
        """
        super().prepare()
        _ = self._arrays

    def load(self) -> LoadedDataset:
        """Read the file, or its token ids from the cache.

        Raises:
            DataError: The file is missing or damaged.
            ConfigError: No author has enough records.
        """
        import torch

        def tensor(key: str) -> torch.Tensor:
            return torch.from_numpy(arrays[key].astype(np.int64))

        self.prepare()
        arrays = self._arrays
        return LoadedDataset(
            train=Records(tensor("train_inputs"), tensor("train_targets")),
            test=Records(tensor("test_inputs"), tensor("test_targets")),
            client_ids=arrays["train_authors"].astype(np.int64),
            client_names=arrays["train_names"].tolist(),
            test_owners=arrays["test_authors"].tolist(),
            vocabulary=self.vocabulary,
        )

    def download(self, destination: str | Path) -> None:
        """Download the published file and put it below ``destination``.

        Raises:
            DataError: The file cannot be downloaded.
        """
        if self.published is None:
            return super().download(destination)
        from fedpriv.data import downloads  # imported late: seldom needed and slow

        downloads.fetch(
            self.name, destination, [self.published], self.contents, self.sites, archives={}
        )

    # ---- the file ----

    @property
    def _candidates(self) -> tuple[Path, ...]:
        """Paths at which the file may lie, best first."""
        names = self.usual_files if self.file is None else (self.file,)
        return tuple(self.folder.path / Path(name).expanduser() for name in names)

    @property
    def _found(self) -> Path | None:
        try:
            return next((path for path in self._candidates if path.is_file()), None)
        except OSError as error:
            raise unreadable(self._candidates[0], error) from error

    def _absence(self) -> str | None:
        if self._found is not None:
            return None
        if self.file is not None and Path(self.file).expanduser().is_absolute():
            return f"there is no {self.file}"
        return super()._absence()

    def _missing(self) -> str:
        names = self.usual_files if self.file is None else (self.file,)
        return f"{self.folder} has no {' or '.join(names)}"

    def _remedy(self) -> str:
        command = ""
        if self.published is not None:
            command = f", or run `fedpriv data download {self.name}`"
            if self.folder.origin == PATH_KEY:
                command += " and leave dataset.path out"
        return (
            "name another folder with dataset.path or FEDPRIV_DATA, or another file with "
            f"dataset.file{command}"
        )

    @property
    def _where(self) -> Path:
        path = self._found
        assert path is not None  # prepare() raises if there is no file
        return path

    @property
    def _published(self) -> bool:
        return self.published is not None and self._checksum == self.published.md5

    @cached_property
    def _content(self) -> bytes:
        try:
            return self._where.read_bytes()
        except OSError as error:
            raise unreadable(self._where, error) from error

    @cached_property
    def _checksum(self) -> str:
        return md5(self._content)

    # ---- the records ----

    @abstractmethod
    def _read(self, content: bytes, path: Path) -> Corpus:
        """Parse the texts of the file. Raise DataError, with ``path`` and line, for an invalid line."""

    @property
    def _sizes(self) -> tuple[int, int]:
        return len(self._arrays["train_inputs"]), len(self._arrays["test_inputs"])

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        """Ids, targets and authors of all records, and the tokens; from the cache if they are there."""
        made_from = (self._checksum, self._source.checksum(), self._settings(), "with authors")
        if len(self._content) > _LARGE_FILE and not encoded.is_kept(self.name, made_from):
            sys.stderr.write(f"reading {self._found} (once: its token ids are kept)\n")
        arrays = encoded.kept(self.name, made_from, self._encode)
        self.__dict__.pop("_content", None)
        return arrays

    def _settings(self) -> dict[str, Any]:
        """Return every setting that changes the records."""
        left_out = ("path", "file", "validation_records")
        settings = {k: v for k, v in vars(self).items() if k[0] != "_" and k not in left_out}
        source = self._source
        settings |= {
            "vocabulary_from": source.kind,
            "vocabulary_size": source.size,
            "vocabulary_words": source.words,
        }
        return dict(sorted(settings.items()))

    def _encode(self) -> dict[str, np.ndarray]:
        corpus = self._read(self._content, self._where)
        vocabulary = self._source.make(corpus, self._where)
        train = self._records(corpus, vocabulary, corpus.of(TRAIN))
        test = self._records(corpus, vocabulary, corpus.of(TEST))
        author_of_text = np.array(corpus.authors, dtype=np.str_)
        names, authors = np.unique(author_of_text[train[2]], return_inverse=True)
        has_large_author = self._kept(np.bincount(authors, minlength=len(names)))[authors]
        if not len(test[0]):
            raise DataError(f"{self._found} has no texts for testing")
        kept, authors_kept = np.unique(authors[has_large_author], return_inverse=True)
        id_type = np.uint16 if len(vocabulary) <= 2**16 else np.int32
        labels = np.int64 if self.task == CLASSIFICATION else id_type
        return {
            "train_inputs": train[0][has_large_author].astype(id_type),
            "train_targets": train[1][has_large_author].astype(labels),
            "train_authors": authors_kept.astype(np.int32),
            "train_names": names[kept],
            "test_inputs": test[0].astype(id_type),
            "test_targets": test[1].astype(labels),
            "test_authors": author_of_text[test[2]],
            "tokens": np.array(vocabulary.tokens, dtype=np.str_),
        }

    def _records(
        self, corpus: Corpus, vocabulary: Vocabulary, chosen: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return inputs, targets and the text index of each record of the ``chosen`` texts."""
        texts = TokenIds.of(vocabulary.encode(corpus.texts[i]) for i in chosen)
        if self.task == LANGUAGE_MODEL:
            inputs, targets, source = next_tokens(texts, self.length, self.long_texts)
            return inputs, targets, chosen[source]
        inputs, source = sequences(texts, self.length, self.long_texts)
        assert corpus.labels is not None
        return inputs, corpus.labels[chosen[source]], chosen[source]

    def _kept(self, counts: np.ndarray) -> np.ndarray:
        """Return the mask of authors with enough records, bool [authors]."""
        if not len(counts):
            raise DataError(f"{self._found} has no texts to train on")
        if counts.max() < self.min_records_per_client:
            allowed = f"<= {counts.max()} (the largest number of records of an author)"
            raise ConfigError(
                "dataset.min_records_per_client", self.min_records_per_client, allowed
            )
        return counts >= self.min_records_per_client


def share_of_authors(*, default: float, help: str) -> Any:
    """Return the field of a share of the authors whose texts are public: 0 <= share < 1."""
    return field(number(at_least=0, below=1), default=default, kw_only=True, help=help)


def share_of_tests(*, default: float, help: str) -> Any:
    """Return the field of a share of texts for testing: 0 < share < 1."""
    return field(number(above=0, below=1), default=default, kw_only=True, help=help)


def refuse_nobody_to_train_on(public_share: float, test_share: float) -> None:
    """Raise ArgumentError if the two shares together leave no author for training."""
    if public_share + test_share >= 1:
        allowed = f"< {1 - public_share:g}, 1 less dataset.public_share"
        raise ArgumentError("test_share", test_share, allowed)
