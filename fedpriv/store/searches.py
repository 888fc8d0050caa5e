"""What a search has left in its folder: read back, though it may be damaged or somebody else's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpriv.common.errors import ConfigError, show
from fedpriv.common.words import round_up
from fedpriv.store.saved import LARGEST_CONFIG, LARGEST_SUMMARY, saved_json, saved_text

RECORD, STATEMENT = "search.json", "privacy.txt"


@dataclass(frozen=True)
class StoredSearch:
    """``statement``: privacy.txt; ``facts``: search.json; ``problem``: what cannot be read."""

    folder: Path
    statement: str = ""
    facts: dict[str, Any] | None = None
    problem: str = ""

    @property
    def stopped(self) -> bool:
        """Whether its trials were secret (random stopping)."""
        return "number_of_trials" in (self.facts or {})

    @property
    def trials(self) -> list[dict[str, Any]]:
        """The rows of its trials, as far as they are ones."""
        rows = (self.facts or {}).get("trials")
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    def line(self) -> str:
        """What it costs, in a line."""
        if self.problem:
            return f"search {self.folder}: {self.problem}"
        epsilon, delta = ((self.facts or {}).get(name) for name in ("epsilon", "delta"))
        known = isinstance(epsilon, int | float) and not isinstance(epsilon, bool)
        value = round_up(float(epsilon)) if known else "not known"  # type: ignore[arg-type]
        whose = "the best of a secret number" if self.stopped else "all of its trials together"
        return f"search {self.folder}: epsilon {value} at delta {show(delta)}, of {whose}"


def is_search(folder: str | Path) -> bool:
    return os.path.lexists(Path(folder) / RECORD)


def read_search(folder: Path) -> StoredSearch:
    """What there is of a search."""
    try:
        facts = saved_json(folder / RECORD, LARGEST_SUMMARY)
        return StoredSearch(folder, saved_text(folder / STATEMENT, LARGEST_CONFIG), facts)
    except ConfigError as error:
        return StoredSearch(folder, problem=str(error))
