"""Flags of commands: their help, the values they refuse, the completions that TAB offers."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click import Context, Parameter
from click.shell_completion import CompletionItem

from fedpriv.common.errors import ConfigError, did_you_mean
from fedpriv.common.files import refuse_foreign
from fedpriv.common.words import TABLE_FORMAT

_Function = TypeVar("_Function", bound=Callable[..., object])


def flag(
    name: str, metavar: str, words: str, type: click.ParamType | type[str] = str, **more: object
) -> Callable[[_Function], _Function]:
    """Return a decorator that adds a flag with a value, such as ``--steps T``, to a command.

    Args:
        name: The flag; after a space the name of the command's argument, where that is another.
        metavar: Name of the value in the help.
        words: The help.
        type: Type of the value.
        more: Further arguments of :func:`click.option`.
    """
    settings: dict[str, Any] = more
    return click.option(*name.split(), metavar=metavar, help=words, type=type, **settings)


def switch(name: str, words: str) -> Callable[[_Function], _Function]:
    """Return a decorator that adds a flag without a value to a command."""
    return click.option(name, is_flag=True, help=words)


def table_flag(function: _Function) -> _Function:
    """Add the flag --table, which chooses the form of the tables that a command prints."""
    return click.option(
        "--table", metavar="FORM", type=OneOf(("text", "markdown", "latex", "csv")), default="text",
        expose_value=False, callback=_choose_form,
        help="tables as text, markdown, latex (booktabs) or csv; other lines go to standard error.",
    )(function)  # fmt: skip


def _choose_form(context: click.Context, param: click.Parameter, form: str) -> str:
    token = TABLE_FORMAT.set(form)
    context.call_on_close(lambda: TABLE_FORMAT.reset(token))
    return form


def together(
    *flags: Callable[[_Function], _Function],
) -> Callable[[_Function], _Function]:
    """Return one decorator that adds several flags, in this order."""

    def add(function: _Function) -> _Function:
        for add_flag in reversed(flags):
            function = add_flag(function)
        return function

    return add


class Command(click.Command):
    """A command for which TAB offers the flags if there is nothing else to offer."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return super().shell_complete(ctx, incomplete or "--")


class CommandGroup(click.Group):
    """Commands in the order in which they were added. An unknown command is refused with the nearest name."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return what click asks for. Raises ConfigError for an unknown command, with the nearest one."""
        known = [name for name, command in self.commands.items() if not command.hidden]
        if args[0] not in self.commands:
            raise unknown("the command", args[0], known)
        return super().resolve_command(ctx, args)


MOST = 30
"""Largest number of names in a message. A user's own folder may hold very many."""


def unknown(what: str, name: str, known: Sequence[str]) -> ConfigError:
    """Return the error for an unknown name, with the known names and the nearest of them.

    Args:
        what: The flag or argument that holds the name.
        name: The unknown name.
        known: The known names.
    """
    hint = did_you_mean(name, known)
    rest = [f"{len(known) - MOST} more"] if len(known) > MOST else []
    return ConfigError(what, name or "nothing", "one of " + ", ".join([*known[:MOST], *rest]), hint)


class Names(click.ParamType):
    """A name, or a list of names with commas, that TAB completes. The value itself is not checked here.

    Args:
        names: The names, or a function that returns them when they are needed.
    """

    name = "name"

    def __init__(self, names: Callable[[], Iterable[str]] | Sequence[str]):
        self.names = names

    def known(self) -> list[str]:
        """Return the names that TAB offers."""
        return list(self.names() if callable(self.names) else self.names)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        head = incomplete[: incomplete.rfind(",") + 1]
        candidates = (head + name for name in self.known())
        return [CompletionItem(name) for name in candidates if name.startswith(incomplete)]


class OneOf(Names):
    """One of the names; any other value is refused."""

    def convert(self, value: str, param: Parameter | None, ctx: Context | None) -> str:
        if value not in self.known():
            raise unknown(written(param), value, self.known())
        return value


class Whole(click.ParamType):
    """A whole number from 1 to 999999."""

    name = "number"

    def convert(self, value: object, param: Parameter | None, ctx: Context | None) -> int:
        text = str(value)
        if not (text.isascii() and text.isdigit() and int(text[:10]) >= 1):
            raise ConfigError(written(param), text or "nothing", "a whole number >= 1")
        if len(text) > 6:
            raise ConfigError(written(param), text, "a whole number < 1000000")
        return int(text)


class PathParam(click.ParamType):
    """The path of a file or folder.

    Args:
        folder: True: the path must be that of an existing folder.
    """

    name = "path"

    def __init__(self, folder: bool = False):
        self.folder = folder

    def convert(self, value: str, param: Parameter | None, ctx: Context | None) -> str:
        if not _is_possible_path(value) or (self.folder and not os.path.isdir(value)):
            allowed = "an existing folder" if self.folder else "the path of a file or folder"
            raise ConfigError(written(param), value or "nothing", allowed)
        return value


class NewFile(click.ParamType):
    """A file to be written, in an existing folder.

    Args:
        endings: The allowed endings of the name; none: any name is allowed.
        mark: Mark of the files that may be written over; see :func:`refuse_foreign`.
        of_a_run: Names of files that may be written inside a run folder; see :func:`refuse_foreign`.
    """

    name = "file"

    def __init__(self, *endings: str, mark: bytes | None = None, of_a_run: Collection[str] = ()):
        self.endings, self.mark, self.of_a_run = endings, mark, of_a_run

    def convert(self, value: str | Path, param: Parameter | None, ctx: Context | None) -> Path:
        path, folder = Path(value), Path(value).parent
        if self.endings and path.suffix not in self.endings:
            allowed = f"a file that ends in {', '.join(self.endings)}"
            raise ConfigError(written(param), value or "nothing", allowed)
        # The file is written to a temporary sibling first, whose longer name must be possible, too.
        sibling = str(path.with_name(f".{path.name}.1234567.tmp")) if path.name else ""
        writable = _is_possible_path(sibling) and folder.is_dir() and os.access(folder, os.W_OK)
        if writable and path.is_dir():
            raise ConfigError(written(param), value, "a file", "a folder of that name is there")
        if not writable:
            raise ConfigError(written(param), value or "nothing", "a file in an existing folder")
        refuse_foreign(written(param), path, self.mark, self.of_a_run)
        return path


def _is_possible_path(path: str) -> bool:
    """Return whether a file system could have such a path."""
    try:
        os.stat(path)
        return True
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return path != ""
    except (OSError, ValueError):  # too long, a null byte
        return False


def written(param: click.Parameter | None) -> str:
    """Return a flag as the user types it, ``--json``; for an argument its name, ``the shell``."""
    assert param is not None  # values are read of flags and arguments alone
    return f"the {param.name}" if isinstance(param, click.Argument) else param.opts[0]
