"""The table class of all commands: for a terminal, as CSV, as Markdown or as LaTeX.

The text of a cell may come from an untrusted run folder. So each format has one function that escapes every
text: :func:`printable` for terminals, :func:`csv_text`, :func:`markdown_text` and :func:`latex_text`. HTML
has its own in :mod:`fedpriv.tools.report.markup`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.common.errors import ConfigError, did_you_mean, show
from fedpriv.common.files import csv_text
from fedpriv.common.words import printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Name in CSV.
        heading: Name for readers; None: ``name``.
        right: True for cells that are flush right.
        shown: Function that formats a value for readers; CSV has the value itself.
        code: True for commands and the like, which Markdown and LaTeX set in typewriter type.
        style: Colour on a terminal.
        wrap: True if cells may be broken into lines on a terminal.
        width: Width on a terminal in characters; None: as many as needed.
        least: Smallest width on a terminal in characters.
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
        """The name for readers."""
        return self.name if self.heading is None else self.heading

    def text(self, value: object) -> str:
        """Return a value formatted for readers; None gives an empty cell."""
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
        self._bold: set[tuple[int, int]] = set()  # (row, column)

    def add(self, *cells: object, style: str = "") -> None:
        """Add a row.

        Args:
            cells: One value for each column; None gives an empty cell.
            style: Colour of the row on a terminal.

        Raises:
            ValueError: The number of cells is not the number of columns.
        """
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append(cells)
        self._styles.append(style)

    def end_section(self) -> None:
        """Draw a line below the last row."""
        self._ends.add(len(self.rows) - 1)

    def embolden(
        self,
        column: str,
        values: Sequence[float],
        highest: bool,
        among: Sequence[object] | None = None,
        within: Sequence[float] | None = None,
    ) -> None:
        """Set the best cells of a column in bold, and those within the interval of the best one.

        Args:
            column: Name of the column.
            values: Number of each row [rows]; NaN is never the best.
            highest: True if the highest number is the best, False for the lowest.
            among: What the rows that compete with one another share [rows]; None: all rows compete.
            within: Half the width of the interval around each number [rows]; None: no intervals.

        Raises:
            ValueError: There is no such column.
        """
        index = [c.name for c in self.columns].index(column)
        rows_of: dict[object, list[int]] = {}
        for row, value in enumerate(values):
            if not math.isnan(value):
                rows_of.setdefault(among[row] if among else None, []).append(row)
        for rows in rows_of.values():
            best = (max if highest else min)(rows, key=lambda row: values[row])
            half = 0.0 if within is None else within[best]
            self._bold |= {(r, index) for r in rows if abs(values[r] - values[best]) <= half}

    def only(self, flag: str, names: Sequence[str], always: Sequence[str]) -> None:
        """Keep the columns of these names, in this order, after those that are always there.

        Raises:
            ConfigError: There is no column of a name; the error names the flag.
        """
        known = [column.name for column in self.columns]
        for name in names:
            if name not in known:
                allowed = f"one of {', '.join(n for n in known if n not in always)}"
                raise ConfigError(flag, name or "nothing", allowed, did_you_mean(name, known))
        kept = [known.index(name) for name in dict.fromkeys((*always, *names))]
        self.columns = [self.columns[i] for i in kept]
        self.rows = [tuple(row[i] for i in kept) for row in self.rows]
        self._bold = {(row, kept.index(i)) for row, i in self._bold if i in kept}

    def formatted(self, form: str) -> str:
        """Return the table as ``markdown``, ``latex`` or ``csv``."""
        return {"markdown": self.markdown, "latex": self.latex, "csv": self.csv}[form]()

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
        for index, (texts, style) in enumerate(zip(self._texts(), self._styles, strict=True)):
            cells = (
                Text(printable(text), style="bold" if (index, column) in self._bold else "")
                for column, text in enumerate(texts)
            )
            table.add_row(*cells, style=style or None, end_section=index in self._ends)
        return table

    def csv(self) -> str:
        """Return the table as CSV with unformatted values; a text with line breaks becomes one line."""
        rows = ([_plain(value) for value in row] for row in self.rows)
        return csv_text([[column.name for column in self.columns], *rows])

    def markdown(self) -> str:
        """Return the table in GitHub's Markdown, without the title."""
        rows = [[markdown_text(column.title if self.header else "") for column in self.columns]]
        rows.append(["---:" if column.right else "---" for column in self.columns])
        for index, texts in enumerate(self._texts()):
            cells = [
                markdown_text(text, c.code) for c, text in zip(self.columns, texts, strict=True)
            ]
            rows.append(
                [f"**{t}**" if (index, i) in self._bold else t for i, t in enumerate(cells)]
            )
        return "\n".join("".join(f"| {cell} " if cell else "| " for cell in r) + "|" for r in rows)

    def latex(self) -> str:
        """Return the table as a LaTeX ``tabular`` for the package booktabs, without the title."""
        alignment = "".join("r" if column.right else "l" for column in self.columns)
        lines = [r"% \usepackage{booktabs}", rf"\begin{{tabular}}{{{alignment}}}", r"  \toprule"]
        if self.header:
            lines += [
                _latex_row(latex_text(column.title) for column in self.columns),
                r"  \midrule",
            ]
        for index, texts in enumerate(self._texts()):
            cells = [latex_text(text, c.code) for c, text in zip(self.columns, texts, strict=True)]
            lines.append(
                _latex_row(
                    rf"\textbf{{{t}}}" if (index, i) in self._bold else t
                    for i, t in enumerate(cells)
                )
            )
            if index in self._ends and index < len(self.rows) - 1:
                lines.append(r"  \midrule")
        return "\n".join([*lines, r"  \bottomrule", r"\end{tabular}"])


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Return key → its last part where no other key ends with it, else the whole key."""
    last = {key: key.rpartition(".")[2] for key in keys}
    counts = Counter(last.values())
    return {key: part if counts[part] == 1 else key for key, part in last.items()}


def pairs(title: str, lines: Iterable[tuple[str, object]]) -> Table:
    """Return a table without header, with a row for each (name, value)."""
    table = Table(title, (Column("name", style="cyan", wrap=False), "value"), header=False)
    for name, value in lines:
        table.add(name, str(value))
    return table


def _plain(value: object) -> object:
    """Return the value of a CSV cell: a number unchanged, a text in one line."""
    if value is None or isinstance(value, bool):
        return "" if value is None else show(value)
    return value if isinstance(value, int | float) else str(value).replace("\n", " ")


_MARKUP = re.compile(r"[\\`*\[<|~]|&(?=#?\w+;)|(?<!\w)_|_(?!\w)")


def markdown_text(text: str, code: bool = False) -> str:
    """Return a text escaped for a cell of a Markdown table; with ``code`` in typewriter type."""
    text = printable(text).replace("\n", " ")
    if not code or not text:
        return _MARKUP.sub(r"\\\g<0>", text)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence, blank = "`" * (longest + 1), " " * bool(longest)
    # In a table a pipe ends the cell even inside code. A backslash prevents that and is not shown.
    return f"{fence}{blank}{text}{blank}{fence}".replace("|", r"\|")


_LATEX = str.maketrans(
    {c: rf"\{c}" for c in "&%$#_{}"}
    | {c: f"{{{c}}}" for c in "[]*"}  # after \\ LaTeX would take these for its arguments
    | {
        "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
        "<": r"\textless{}", ">": r"\textgreater{}", '"': "''", "`": r"\textasciigrave{}",
        "|": r"\textbar{}", "\n": " ", "\t": " ",
        "ε": r"$\varepsilon$", "δ": r"$\delta$", "σ": r"$\sigma$", "±": r"$\pm$", "≥": r"$\geq$",
        "≤": r"$\leq$", "×": r"$\times$", "∞": r"$\infty$", "−": "$-$", "–": "--", "…": r"\dots{}",
    }
)  # fmt: skip


def latex_text(text: str, code: bool = False) -> str:
    """Return a text escaped for LaTeX; with ``code`` in typewriter type."""
    escaped = printable(text).translate(_LATEX)
    return rf"\texttt{{{escaped}}}" if code and escaped else escaped


def _latex_row(cells: Iterable[str]) -> str:
    return f"  {' & '.join(cells)} \\\\"
