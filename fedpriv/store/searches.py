"""Stored hyper-parameter searches."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpriv.common.checks import is_number
from fedpriv.common.errors import show
from fedpriv.common.words import round_up
from fedpriv.store.saved import saved_json, saved_text

RECORD, STATEMENT = "search.json", "privacy.txt"


@dataclass(frozen=True)
class StoredSearch:
    """The files of one search.

    Attributes:
        folder: The folder of the search.
        statement: Content of ``privacy.txt``.
        facts: Content of ``search.json``.
    """

    folder: Path
    statement: str
    facts: dict[str, Any]

    @property
    def stopped(self) -> bool:
        """True if the number of trials was secret (random stopping)."""
        return "number_of_trials" in self.facts

    @property
    def trials(self) -> list[dict[str, Any]]:
        """The rows of the trials; entries of another type are left out."""
        rows = self.facts.get("trials")
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    def line(self) -> str:
        """Return the privacy cost of the search in one line."""
        epsilon, delta = (self.facts.get(name) for name in ("epsilon", "delta"))
        cost = round_up(float(epsilon)) if is_number(epsilon) else "not known"
        scope = "the best of a secret number" if self.stopped else "all of its trials together"
        return f"search {self.folder}: epsilon {cost} at delta {show(delta)}, of {scope}"


def is_search(folder: str | Path) -> bool:
    """Return whether a folder is that of a search."""
    return os.path.lexists(Path(folder) / RECORD)


def read_search(folder: Path) -> StoredSearch:
    """Read a search. Raise ConfigError for a file that cannot be read."""
    return StoredSearch(folder, saved_text(folder / STATEMENT), saved_json(folder / RECORD))
