"""The one table: rows under named columns, for a terminal, as CSV, as Markdown or as LaTeX.

What a cell holds may come from a run folder that is somebody else's. Each form therefore has one function
through which all text goes: :func:`printable` for terminals, :func:`csv_text`, :func:`markdown_text` and
:func:`latex_text`. HTML has its own in :mod:`fedpriv.tools.report.markup`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.common.errors import show
from fedpriv.common.files import csv_text
from fedpriv.common.words import printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its name in CSV.
        heading: Its name for readers; None: ``name``.
        right: Whether its cells are flush right.
        shown: Formats a value for readers; CSV has the value itself.
        code: Whether its cells are commands and the like: set in typewriter type in Markdown and LaTeX.
        style: Its colour on a terminal.
        wrap: Whether its cells may be broken into lines on a terminal.
        width: Characters on a terminal; None: as many as needed.
        least: Least number of characters on a terminal.
    """

    name: str
    heading: str | None = None
    right: bool = False
    shown: Callable[[Any], str] = str
    code: bool = False
    style: str = ""
    wrap: bool = True
    width: int | None = None
    least: int | None = None

    @property
    def title(self) -> str:
        return self.name if self.heading is None else self.heading

    def text(self, value: object) -> str:
        """Return a value as readers see it."""
        return "" if value is None else self.shown(value)


class Table:
    """Rows under columns. ``console().print(table)`` prints it.

    Args:
        title: Stands above the table on a terminal.
        columns: Columns, or their names.
        header: Whether readers see the names of the columns.
        padding: Blanks (above, right, below, left) of a cell on a terminal; None: cells in boxes.
    """

    def __init__(
        self,
        title: str,
        columns: Iterable[Column | str],
        header: bool = True,
        padding: tuple[int, int, int, int] | None = None,
    ):
        self.title, self.header, self.padding = title, header, padding
        self.columns = [Column(c) if isinstance(c, str) else c for c in columns]
        self.rows: list[tuple[object, ...]] = []
        self._styles: list[str] = []
        self._ends: set[int] = set()  # rows below which a line is drawn

    def add(self, *cells: object, style: str = "") -> None:
        """Add a row; a cell that is None is empty. ``style``: its colour on a terminal."""
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append(cells)
        self._styles.append(style)

    def end_section(self) -> None:
        """Draw a line below the last row."""
        self._ends.add(len(self.rows) - 1)

    def _texts(self) -> list[list[str]]:
        return [[c.text(v) for c, v in zip(self.columns, row, strict=True)] for row in self.rows]

    def __rich__(self) -> RichTable:
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        boxed = self.padding is None
        table = RichTable(
            title=Text(printable(self.title), style="bold") if self.title else None,
            title_justify="left",
            show_header=self.header,
            box=box.HEAVY_HEAD if boxed else None,
            padding=(0, 1) if self.padding is None else self.padding,
        )
        for column in self.columns:
            table.add_column(
                Text(printable(column.title)), justify="right" if column.right else "left",
                style=column.style, no_wrap=not column.wrap, width=column.width, min_width=column.least,
                overflow="fold" if column.wrap else "ellipsis",
            )  # fmt: skip
        for place, (texts, style) in enumerate(zip(self._texts(), self._styles, strict=True)):
            cells = (Text(printable(text)) for text in texts)
            table.add_row(*cells, style=style or None, end_section=place in self._ends)
        return table

    def csv(self) -> str:
        """Return the table as CSV: values as they are, in one line each."""
        rows = ([_plain(value) for value in row] for row in self.rows)
        return csv_text([[column.name for column in self.columns], *rows])

    def markdown(self) -> str:
        """Return the table in GitHub's Markdown, without its title."""
        rows = [[markdown_text(c.title if self.header else "") for c in self.columns]]
        rows.append(["---:" if c.right else "---" for c in self.columns])
        for texts in self._texts():
            cells = zip(self.columns, texts, strict=True)
            rows.append([markdown_text(text, column.code) for column, text in cells])
        return "\n".join("".join(f"| {cell} " if cell else "| " for cell in r) + "|" for r in rows)

    def latex(self) -> str:
        """Return the table as a ``tabular`` of the package booktabs, without its title."""
        sides = "".join("r" if column.right else "l" for column in self.columns)
        lines = [r"% \usepackage{booktabs}", rf"\begin{{tabular}}{{{sides}}}", r"  \toprule"]
        if self.header:
            lines += [_latex_row(latex_text(c.title) for c in self.columns), r"  \midrule"]
        for place, texts in enumerate(self._texts()):
            cells = zip(self.columns, texts, strict=True)
            lines.append(_latex_row(latex_text(text, column.code) for column, text in cells))
            if place in self._ends and place < len(self.rows) - 1:
                lines.append(r"  \midrule")
        return "\n".join([*lines, r"  \bottomrule", r"\end{tabular}"])


def pairs(title: str, lines: Iterable[tuple[str, object]]) -> Table:
    """Return a table of names and values."""
    table = Table(title, (Column("name", style="cyan", wrap=False), "value"), header=False)
    for name, value in lines:
        table.add(name, str(value))
    return table


def _plain(value: object) -> object:
    """Return a value of a CSV cell: numbers as they are, text in one line."""
    if value is None or isinstance(value, bool):
        return "" if value is None else show(value)
    return value if isinstance(value, int | float) else str(value).replace("\n", " ")


_MARKUP = re.compile(r"[\\`*\[<|~]|&(?=#?\w+;)|(?<!\w)_|_(?!\w)")


def markdown_text(text: str, code: bool = False) -> str:
    """Return text that stands in a cell of a Markdown table as it is; ``code``: in typewriter type."""
    text = printable(text).replace("\n", " ")
    if not code or not text:
        return _MARKUP.sub(r"\\\g<0>", text)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence, blank = "`" * (longest + 1), " " * bool(longest)
    # in a table a pipe ends a cell even in code, unless it has a backslash, which is then not shown
    return f"{fence}{blank}{text}{blank}{fence}".replace("|", r"\|")


_LATEX = str.maketrans(
    {c: rf"\{c}" for c in "&%$#_{}"}
    | {c: f"{{{c}}}" for c in "[]*"}  # after \\ they would be its arguments
    | {
        "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
        "<": r"\textless{}", ">": r"\textgreater{}", '"': "''", "`": r"\textasciigrave{}",
        "|": r"\textbar{}", "\n": " ", "\t": " ",
        "ε": r"$\varepsilon$", "δ": r"$\delta$", "σ": r"$\sigma$", "±": r"$\pm$", "≥": r"$\geq$",
        "≤": r"$\leq$", "×": r"$\times$", "∞": r"$\infty$", "−": "$-$", "–": "--", "…": r"\dots{}",
    }
)  # fmt: skip


def latex_text(text: str, code: bool = False) -> str:
    """Return text that LaTeX sets as it is; ``code``: in typewriter type."""
    escaped = printable(text).translate(_LATEX)
    return rf"\texttt{{{escaped}}}" if code and escaped else escaped


def _latex_row(cells: Iterable[str]) -> str:
    return f"  {' & '.join(cells)} \\\\"
