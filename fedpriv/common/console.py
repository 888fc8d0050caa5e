"""The console of the process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fedpriv.common.words import TABLE_FORMAT, printable

_PIPED = 110  # columns of a line


class _SafeConsole(Console):
    """A console that replaces the control characters in every text, wherever the text comes from.

    With another table format than text, only tables go to standard output, so that a file may take them.
    Sentences around them go to standard error.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects, tables in the form that the flag --table chooses."""
        form = TABLE_FORMAT.get()
        if form == "text" or self.stderr:
            super().print(*objects, **options)
        elif objects and all(hasattr(table, "formatted") for table in objects):
            texts = [table.formatted(form).rstrip("\n") for table in objects]
            super().print(*texts, sep="\n", soft_wrap=True)
        else:
            _SafeConsole(highlight=False, markup=False, emoji=False, stderr=True).print(
                *objects, **options
            )

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def console(width: int | None = None) -> Console:
    """Return the console of standard output.

    Brackets are text, not markup: ``key=[a,b]`` is printed as it is.

    Args:
        width: Smallest number of columns if the output is piped; None: 110.
    """
    probe = _SafeConsole(highlight=False, markup=False, emoji=False)
    if probe.is_terminal:
        return probe
    return _SafeConsole(highlight=False, markup=False, emoji=False, width=max(_PIPED, width or 0))
