"""Origins of a vocabulary: public text, a list, printable characters, or private text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, DataError, show
from fedpriv.data.storage import md5, unreadable
from fedpriv.data.text_corpus import PUBLIC, TRAIN, Corpus
from fedpriv.data.text_tokens import CHARACTER, tokenise
from fedpriv.data.text_vocabulary import CHARACTERS, SPECIAL, Vocabulary, of_file, of_list, of_texts

FROM_PUBLIC, FROM_FILE, FIXED, FROM_PRIVATE = "public", "file", "fixed", "private"
KINDS = (FROM_PUBLIC, FROM_FILE, FIXED, FROM_PRIVATE)
FROM_PRIVATE_TEXTS = (
    "The vocabulary was built from the clients' private training texts (dataset.vocabulary=private): "
    "which words it holds is released without noise, so no finite epsilon is sound."
)


@dataclass(frozen=True)
class VocabularySource:
    """Origin and size of a vocabulary.

    Attributes:
        kind: One of ``KINDS``.
        level: ``word`` or ``character``.
        size: Largest number of ids.
        file: File with one token per line, for ``kind="file"``.
        words: Tokens that the vocabulary holds in any case.
    """

    kind: str
    level: str
    size: int
    file: str | None
    words: tuple[str, ...]

    @classmethod
    def checked(
        cls,
        kind: str,
        level: str,
        size: int,
        file: str | None,
        words: Any,
        has_public_texts: bool,
    ) -> VocabularySource:
        """Return the source for the keys of a data set.

        Raises:
            ArgumentError: The keys do not fit together.
        """
        if kind == FIXED and level != CHARACTER:
            allowed = "public, file or private with level=word (fixed is a list of characters)"
            raise ArgumentError("vocabulary", kind, allowed)
        if kind == FROM_PUBLIC and not has_public_texts:
            allowed = "file, fixed or private where no text is public (public_share=0)"
            raise ArgumentError("vocabulary", kind, allowed)
        words = _words(words, level)
        if kind == FROM_FILE and file is None:
            raise ArgumentError("vocabulary_file", None, "a file, one token a line")
        if kind != FROM_FILE and file is not None:
            raise ArgumentError("vocabulary_file", file, f"null with vocabulary={kind}")
        if kind == FIXED:
            size = len(SPECIAL) + len({*CHARACTERS, *words})
        elif size < len(SPECIAL) + len(words):
            allowed = f">= {len(SPECIAL) + len(words)}, for the vocabulary_words"
            raise ArgumentError("vocabulary_size", size, allowed)
        return cls(kind, level, size, file, words)

    @property
    def private(self) -> bool:
        """True if the vocabulary publishes, without noise, words that the clients wrote."""
        return self.kind == FROM_PRIVATE

    def checksum(self) -> str:
        """Return the MD5 sum of the list of tokens, or an empty text if there is no list.

        Raises:
            DataError: The list cannot be read.
        """
        if self.file is None:
            return ""
        try:
            return md5(self._path.read_bytes())
        except OSError as error:
            raise unreadable(self._path, error) from error

    def make(self, corpus: Corpus, path: Path) -> Vocabulary:
        """Return the vocabulary for the texts of ``path``.

        Raises:
            DataError: There are no texts, or no list, to build the vocabulary from.
        """
        if self.kind == FIXED:
            return of_list((*CHARACTERS, *self.words), self.level, self.size)
        if self.kind == FROM_FILE:
            return of_file(self._path, self.level, self.size, self.words)
        chosen = corpus.of(TRAIN if self.private else PUBLIC)
        if not len(chosen):
            raise DataError(
                f"{path} has no {'training' if self.private else 'public'} texts to build the "
                "vocabulary from; name a list with dataset.vocabulary=file"
            )
        texts = (tokenise(corpus.texts[i], self.level) for i in chosen)
        return of_texts(texts, self.level, self.size, self.words)

    @property
    def _path(self) -> Path:
        assert self.file is not None
        return Path(self.file).expanduser()


def _words(words: Any, level: str) -> tuple[str, ...]:
    allowed = (
        f"a list of tokens ({'single characters' if level == CHARACTER else 'lower-case words'})"
    )
    tokens = checks.sequence("vocabulary_words", words, allowed)
    for word in tokens:
        if not isinstance(word, str) or tokenise(word, level) != [word]:
            raise ArgumentError("vocabulary_words", show(word), allowed)
    return tuple(dict.fromkeys(tokens))
