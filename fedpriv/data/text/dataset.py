"""What data sets of text share: keys, the vocabulary, records of fixed length, the cache."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError, DataError, show
from fedpriv.data import downloads, encoded
from fedpriv.data.records import (
    CLASSIFICATION,
    LANGUAGE_MODEL,
    DataStatus,
    LoadedDataset,
    Records,
)
from fedpriv.data.storage import PATH_KEY, DataFolder, StoredFile, data_folder, md5, unreadable
from fedpriv.data.text import vocabulary as vocabularies
from fedpriv.data.text.corpus import PUBLIC, TEST, TRAIN, Corpus
from fedpriv.data.text.tokens import CHARACTER, LEVELS, tokenise
from fedpriv.data.text.vocabulary import CHARACTERS, SPECIAL, Vocabulary
from fedpriv.data.text.windows import LONG_TEXTS, WINDOWS, TokenIds, next_tokens, sequences

FROM_PUBLIC, FROM_FILE, FIXED, FROM_PRIVATE = "public", "file", "fixed", "private"
SOURCES = (FROM_PUBLIC, FROM_FILE, FIXED, FROM_PRIVATE)
PRIVATE_VOCABULARY = (
    "The vocabulary was built from the clients' private training texts (dataset.vocabulary=private): "
    "which words it holds is released without noise, so no finite epsilon is sound."
)
WINDOWED = (
    "A text longer than {length} tokens is several records (dataset.long_texts=windows): a guarantee "
    "for one record holds for {length} tokens of a text, not for all of it."
)
_LARGE_FILE = 2**21  # bytes; reading it takes seconds


class TextDataset(ABC):
    """Texts of many authors as sequences of ``length`` token ids.

    ``path``: the folder that holds the file; null means the environment variable FEDPRIV_DATA and,
    without it, the cache. ``file``: its name in that folder, or an absolute one; null: the usual
    names. ``level``: word or character. ``long_texts``: a text longer than ``length`` is cut into
    ``windows``, each a record, or ``truncate`` keeps its beginning.

    ``vocabulary`` says where it comes from: ``public`` text that no client wrote, a ``file`` with one
    token a line (``vocabulary_file``), ``fixed`` (printable ASCII, for characters), or ``private``,
    the clients' training texts: a release without noise, which no finite epsilon covers. It has
    ``vocabulary_size`` ids at most, id 0 to pad and id 1 for unknown tokens among them; an id without
    a token is never used. ``vocabulary_words`` are tokens it holds in any case (for an attack's
    sentence, say).

    Authors with fewer than ``min_records_per_client`` training records are left out.
    ``validation_records``: size of the public validation split.

    The records of a ``language_model`` have the next token at each position as targets, int64
    [n, L], 0 where there is none; those for ``classification`` one label each. Token ids are kept in
    the cache, known by the checksum of the file and all these settings.
    """

    name: ClassVar[str]
    task: ClassVar[str]
    labels: ClassVar[int] = 2  # of a classification
    usual_files: ClassVar[tuple[str, ...]]
    contents: ClassVar[str]  # what to put into a data folder, in words
    published: ClassVar[StoredFile | None] = None  # a file with a known checksum
    site: ClassVar[str] = ""  # where that one is downloaded from
    assumed_records: ClassVar[tuple[int, int]]  # for a plan made without the file

    def __init__(
        self,
        *,
        path: str | None,
        file: str | None,
        level: str,
        length: int,
        long_texts: str,
        vocabulary: str,
        vocabulary_size: int,
        vocabulary_file: str | None,
        vocabulary_words: Iterable[str],
        min_records_per_client: int,
        validation_records: int,
        has_public_texts: bool,
    ):
        self.path = None if path is None else checks.text("path", path)
        self.file = None if file is None else checks.text("file", file)
        self.level = checks.one_of("level", level, LEVELS)
        self.length = checks.whole("length", length, at_least=1, at_most=10_000)
        self.long_texts = checks.one_of("long_texts", long_texts, LONG_TEXTS)
        self.vocabulary_from = _vocabulary_source(vocabulary, self.level, has_public_texts)
        self.vocabulary_file = _vocabulary_file(self.vocabulary_from, vocabulary_file)
        self.vocabulary_words = _words(vocabulary_words, self.level)
        size = checks.whole("vocabulary_size", vocabulary_size, at_least=3, at_most=2**31 - 1)
        if self.vocabulary_from == FIXED:
            size = len(SPECIAL) + len({*CHARACTERS, *self.vocabulary_words})
        elif size < len(SPECIAL) + len(self.vocabulary_words):
            allowed = f">= {len(SPECIAL) + len(self.vocabulary_words)}, for the vocabulary_words"
            raise ArgumentError("vocabulary_size", size, allowed)
        self.vocabulary_size = size
        self.min_records_per_client = checks.whole(
            "min_records_per_client", min_records_per_client, at_least=1
        )
        self.validation_records = checks.whole("validation_records", validation_records, at_least=1)

    @property
    def classes(self) -> int:
        """Labels of a classification; ids a language model chooses from."""
        return self.labels if self.task == CLASSIFICATION else self.vocabulary_size

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(L,)"""
        return (self.length,)

    @property
    def train_records(self) -> int:
        """After cutting and leaving out; ``assumed_records`` where the file is not here."""
        return self._counts[0]

    @property
    def test_records(self) -> int:
        """As ``train_records``."""
        return self._counts[1]

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a reader of the privacy numbers must know about these data."""
        private = [PRIVATE_VOCABULARY] if self.vocabulary_from == FROM_PRIVATE else []
        windowed = [self._windows_caveat()] if self.long_texts == WINDOWS else []
        return (*private, *windowed)

    def _windows_caveat(self) -> str:
        return WINDOWED.format(length=self.length)

    @property
    def unprotected(self) -> dict[str, str]:
        """Keys, with their values, by which something of every client is known without noise."""
        return {"vocabulary": FROM_PRIVATE} if self.vocabulary_from == FROM_PRIVATE else {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What a plan says about the data."""
        reason = self._absence()
        assumed = f"{self.assumed_records[0]:,} training records assumed"
        return () if reason is None else (f"{reason}: {assumed}",)

    @property
    def folder(self) -> DataFolder:
        """The folder this data set is looked for in."""
        return data_folder(self.path)

    @property
    def vocabulary(self) -> Vocabulary:
        """Token ↔ id; reads the file. Raises DataError."""
        return Vocabulary(tuple(self._arrays["tokens"].tolist()), self.level)

    def prepare(self) -> None:
        """Make sure the file is there and its token ids are kept; DataError if that is not possible."""
        if reason := self._absence():
            raise DataError(self._not_here(reason))
        _ = self._arrays

    def load(self) -> LoadedDataset:
        """Read the file, or its token ids from the cache; DataError or ConfigError in one sentence."""
        import torch

        def tensor(key: str) -> torch.Tensor:
            return torch.from_numpy(arrays[key].astype(np.int64))

        self.prepare()
        arrays = self._arrays
        return LoadedDataset(
            train=Records(tensor("train_inputs"), tensor("train_targets")),
            test=Records(tensor("test_inputs"), tensor("test_targets")),
            client_ids=arrays["train_authors"].astype(np.int64),
            vocabulary=self.vocabulary,
        )

    def present(self) -> DataStatus:
        """Look for the file and read it; nothing is raised."""
        note, found, checksums, counts = "", False, "not checked", (None, None)
        try:
            note = self._absence() or ""
            found = not note
            if found:
                checksums = "damaged"
                counts = self._counts
                known = self.published is not None and self._checksum == self.published.md5
                checksums = "ok" if known else "own file"
        except (DataError, ConfigError) as error:
            note = str(error)
        where = str(self._found or self.folder.path)
        return DataStatus(self.name, *counts, where, found, checksums, note)

    def download(self, destination: str | Path) -> None:
        """Fetch the published file below ``destination``; DataError where that is not possible."""
        if self.published is None:
            raise DataError(
                f"{self.name} cannot be downloaded by fedpriv; put {self.contents} into a folder and "
                "name it with dataset.path or FEDPRIV_DATA"
            )
        destination = Path(destination).expanduser()
        try:
            downloads.fetch_files(self.site, destination, [self.published])
        except downloads.REASONS as error:
            raise downloads.failure(self.name, destination, self.contents, error) from error

    # ---- the file ----

    @property
    def _candidates(self) -> tuple[Path, ...]:
        """Where the file may lie, best first."""
        names = self.usual_files if self.file is None else (self.file,)
        return tuple(self.folder.path / Path(name).expanduser() for name in names)

    @property
    def _found(self) -> Path | None:
        try:
            return next((path for path in self._candidates if path.is_file()), None)
        except OSError as error:
            raise unreadable(self._candidates[0], error) from error

    def _absence(self) -> str | None:
        """Why the file is not there (a clause); None if it is."""
        if self._found is not None:
            return None
        names = " or ".join((self.file,) if self.file is not None else self.usual_files)
        if self.file is not None and Path(self.file).expanduser().is_absolute():
            return f"there is no {names}"
        folder = self.folder
        if not folder.path.is_dir():
            return f"{folder} " + ("is not a folder" if folder.path.exists() else "does not exist")
        return f"{folder} has no {names}"

    def _not_here(self, reason: str) -> str:
        command = ""
        if self.published is not None:
            command = f", or run `fedpriv data download {self.name}`"
            if self.folder.origin == PATH_KEY:
                command += " and leave dataset.path out"
        return (
            f"{self.name} not found: {reason}; put {self.contents} there, name another folder with "
            f"dataset.path or FEDPRIV_DATA, or another file with dataset.file{command}"
        )

    @cached_property
    def _content(self) -> bytes:
        try:
            return self._found.read_bytes()
        except OSError as error:
            raise unreadable(self._found, error) from error

    @cached_property
    def _checksum(self) -> str:
        return md5(self._content)

    # ---- what is made of it ----

    @abstractmethod
    def _read(self, content: bytes, path: Path) -> Corpus:
        """The texts of the file; DataError with ``path`` and the line for one that is none."""

    @property
    def _counts(self) -> tuple[int, int]:
        if self._absence() is not None:
            return self.assumed_records
        return len(self._arrays["train_inputs"]), len(self._arrays["test_inputs"])

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        """Ids, targets and authors of all records, and the tokens; from the cache if they are there."""
        made_from = (self._checksum, self._vocabulary_checksum(), self._settings())
        if len(self._content) > _LARGE_FILE and not encoded.is_kept(self.name, made_from):
            sys.stderr.write(f"reading {self._found} (once: its token ids are kept)\n")
        arrays = encoded.kept(self.name, made_from, self._encode)
        self.__dict__.pop("_content", None)
        return arrays

    def _settings(self) -> dict[str, Any]:
        """Every setting that changes the records."""
        left_out = ("path", "file", "vocabulary_file", "validation_records")
        settings = {k: v for k, v in vars(self).items() if k[0] != "_" and k not in left_out}
        return dict(sorted(settings.items()))

    def _vocabulary_checksum(self) -> str:
        if self.vocabulary_file is None:
            return ""
        try:
            return md5(self._vocabulary_path.read_bytes())
        except OSError as error:
            raise unreadable(self._vocabulary_path, error) from error

    @property
    def _vocabulary_path(self) -> Path:
        return Path(self.vocabulary_file).expanduser()

    def _encode(self) -> dict[str, np.ndarray]:
        corpus = self._read(self._content, self._found)
        vocabulary = self._make_vocabulary(corpus)
        train = self._records(corpus, vocabulary, corpus.of(TRAIN))
        test = self._records(corpus, vocabulary, corpus.of(TEST))
        names, authors = np.unique(
            np.array(corpus.authors, dtype=np.str_)[train[2]], return_inverse=True
        )
        kept = self._kept(np.bincount(authors, minlength=len(names)))[authors]
        if not len(test[0]):
            raise DataError(f"{self._found} has no texts for testing")
        small = np.uint16 if len(vocabulary) <= 2**16 else np.int32
        labels = np.int64 if self.task == CLASSIFICATION else small
        return {
            "train_inputs": train[0][kept].astype(small),
            "train_targets": train[1][kept].astype(labels),
            "train_authors": np.unique(authors[kept], return_inverse=True)[1].astype(np.int32),
            "test_inputs": test[0].astype(small),
            "test_targets": test[1].astype(labels),
            "tokens": np.array(vocabulary.tokens, dtype=np.str_),
        }

    def _records(
        self, corpus: Corpus, vocabulary: Vocabulary, chosen: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Inputs, targets and the text each record is from, of the ``chosen`` texts."""
        texts = TokenIds.of(vocabulary.encode(corpus.texts[i]) for i in chosen)
        if self.task == LANGUAGE_MODEL:
            inputs, targets, source = next_tokens(texts, self.length, self.long_texts)
            return inputs, targets, chosen[source]
        inputs, source = sequences(texts, self.length, self.long_texts)
        return inputs, corpus.labels[chosen[source]], chosen[source]

    def _kept(self, counts: np.ndarray) -> np.ndarray:
        """Which authors have enough records, bool [authors]."""
        if not len(counts):
            raise DataError(f"{self._found} has no texts to train on")
        if counts.max() < self.min_records_per_client:
            allowed = f"<= {counts.max()} (the most records anyone made)"
            raise ConfigError(
                "dataset.min_records_per_client", self.min_records_per_client, allowed
            )
        return counts >= self.min_records_per_client

    def _make_vocabulary(self, corpus: Corpus) -> Vocabulary:
        level, size, first = self.level, self.vocabulary_size, self.vocabulary_words
        if self.vocabulary_from == FIXED:
            return vocabularies.of_list((*CHARACTERS, *first), level, size)
        if self.vocabulary_from == FROM_FILE:
            return vocabularies.of_file(self._vocabulary_path, level, size, first)
        role = PUBLIC if self.vocabulary_from == FROM_PUBLIC else TRAIN
        chosen = corpus.of(role)
        if not len(chosen):
            raise DataError(
                f"{self._found} has no {'public' if role == PUBLIC else 'training'} texts to build "
                "the vocabulary from; name a list with dataset.vocabulary=file"
            )
        texts = (tokenise(corpus.texts[i], level) for i in chosen)
        return vocabularies.of_texts(texts, level, size, first)


def share(name: str, value: Any) -> float:
    """A share of a corpus: 0 <= share < 1."""
    return checks.number(name, value, at_least=0, below=1)


def shares(public: Any, test: Any) -> tuple[float, float]:
    """The shares of authors set aside; together they leave somebody to train on."""
    public, test = (
        share("public_share", public),
        checks.number("test_share", test, above=0, below=1),
    )
    if public + test >= 1:
        raise ArgumentError("test_share", test, f"< {1 - public:g}, 1 less dataset.public_share")
    return public, test


def _vocabulary_source(source: Any, level: str, has_public_texts: bool) -> str:
    source = checks.one_of("vocabulary", source, SOURCES)
    if source == FIXED and level != CHARACTER:
        allowed = "public, file or private with level=word (fixed is a list of characters)"
        raise ArgumentError("vocabulary", source, allowed)
    if source == FROM_PUBLIC and not has_public_texts:
        allowed = "file, fixed or private where no text is public (public_share=0)"
        raise ArgumentError("vocabulary", source, allowed)
    return source


def _vocabulary_file(source: str, file: Any) -> str | None:
    if source == FROM_FILE:
        if file is None:
            raise ArgumentError("vocabulary_file", None, "a file, one token a line")
        return checks.text("vocabulary_file", file)
    if file is not None:
        raise ArgumentError("vocabulary_file", file, f"null with vocabulary={source}")
    return None


def _words(words: Any, level: str) -> tuple[str, ...]:
    allowed = (
        f"a list of tokens ({'single characters' if level == CHARACTER else 'lower-case words'})"
    )
    given = checks.sequence("vocabulary_words", words, allowed)
    for word in given:
        if not isinstance(word, str) or tokenise(word, level) != [word]:
            raise ArgumentError("vocabulary_words", show(word), allowed)
    return tuple(dict.fromkeys(given))
