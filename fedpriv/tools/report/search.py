"""Section of a report about a search: its privacy statement, and a table of its trials."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedpriv.common.errors import show
from fedpriv.common.words import counted
from fedpriv.store.folder import RunFolder
from fedpriv.store.searches import StoredSearch, is_search, read_search
from fedpriv.tools.report.gather import as_number
from fedpriv.tools.report.markup import Markup, table, tag
from fedpriv.tools.report.page import Page


def search_of(given: Sequence[str]) -> StoredSearch | None:
    """Return the search that the only folder given holds, or None.

    Raises:
        ConfigError: The folder has links, which may lead anywhere, or a file cannot be read.
    """
    if len(given) != 1 or not is_search(given[0]):
        return None
    RunFolder(given[0]).refuse_links()
    return read_search(Path(given[0]))


def add_search(page: Page, search: StoredSearch) -> None:
    """Add the section of a search: its statement and a table of its trials.

    The statement covers all trials; the statement of a run covers one.
    """
    page.add("Search", tag("pre", search.statement.strip()), _trials(search))


def _trials(search: StoredSearch) -> Markup:
    """Return a table of the trials: values, state and score; empty where the record has none."""
    rows = search.trials
    if not rows:
        return Markup("")
    values = [row["values"] if isinstance(row.get("values"), dict) else {} for row in rows]
    keys = list(dict.fromkeys(key for settings in values for key in settings))
    definition = search.facts.get("search")
    objective = definition.get("objective") if isinstance(definition, dict) else None
    head = ("trial", *keys, "ended", "score" if objective is None else show(objective))
    cells = []
    for number, (row, settings) in enumerate(zip(rows, values, strict=True)):
        score = as_number(row.get("score"))
        ended = (show(row.get("state")), "–" if score is None else f"{score:.4f}")
        cells.append((number, *(show(settings.get(key)) for key in keys), *ended))
    return table(counted(len(rows), "trial"), head, cells)
