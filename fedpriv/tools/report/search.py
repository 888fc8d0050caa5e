"""The section of a search that was paid for: its statement, and a table of its trials."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedpriv.common.errors import show
from fedpriv.common.words import counted
from fedpriv.store.folder import RunFolder
from fedpriv.store.searches import StoredSearch, is_search, read_search
from fedpriv.tools.report.gather import as_number
from fedpriv.tools.report.markup import Markup, listed, table, tag
from fedpriv.tools.report.page import Page


def search_of(given: Sequence[str]) -> StoredSearch | None:
    """The search whose folder is asked for; None where it is not that of one. Raises ConfigError for links,
    which may lead anywhere."""
    if len(given) != 1 or not is_search(given[0]):
        return None
    RunFolder(given[0]).refuse_links()
    return read_search(Path(given[0]))


def add_search(page: Page, search: StoredSearch) -> None:
    """Its statement covers all trials; those of its runs are each about one."""
    if search.problem:
        page.add("Search", tag("div", listed([search.problem]), class_="warning", role="note"))
        return
    page.add("Search", tag("pre", search.statement.strip()), _trials(search))


def _trials(search: StoredSearch) -> Markup:
    rows = search.trials
    if not rows:
        return Markup("")
    values = [row["values"] if isinstance(row.get("values"), dict) else {} for row in rows]
    keys = list(dict.fromkeys(key for own in values for key in own))
    definition = (search.facts or {}).get("search")
    objective = definition.get("objective") if isinstance(definition, dict) else None
    head = ("trial", *keys, "ended", "score" if objective is None else show(objective))
    cells = []
    for number, (row, own) in enumerate(zip(rows, values, strict=True)):
        score = as_number(row.get("score"))
        shown = "–" if score is None else f"{score:.4f}"
        cells.append((number, *(show(own.get(key)) for key in keys), show(row.get("state")), shown))
    return table(counted(len(rows), "trial"), head, cells)
