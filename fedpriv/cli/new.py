"""The command ``fedpriv new``, which writes the skeleton of a part of the user's own."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import shlex
import sys
from pathlib import Path

import click

from fedpriv.cli.skeletons import SKELETONS
from fedpriv.common.errors import ConfigError, WriteError
from fedpriv.common.flags import Command, Names, OneOf, PathParam, flag
from fedpriv.common.groups import options

YAMLS = "my_yamls"
_EXAMPLES = """\b
examples:
  fedpriv new clipper my_clipper
  fedpriv new dataset hospital --to study
"""


@click.command(
    cls=Command, short_help="the skeleton of a part of your own: fedpriv new clipper mine", epilog=_EXAMPLES
)  # fmt: skip
@click.argument("kind", type=OneOf(list(SKELETONS)))
@click.argument("name", type=Names(()))
@flag("--to", "DIR", "the folder; default: this one", PathParam(), default=".")
def new(kind: str, name: str, to: str) -> int:
    """Write the skeleton of a part: a module, a YAML and a test.

    KIND: algorithm, clipper, schedule, dataset, attack (a backdoor), untargeted_attack or aggregation (a rule
    against malicious clients). NAME: how the part is chosen, and the name of its module. The skeleton runs as
    it stands; nothing is written over. docs/extend.md has more kinds of parts, with examples.
    """
    folder = Path(to)
    files = files_of(kind, name, folder)
    write_new(files)
    for path in files:
        print(f"wrote {path}")
    skeleton = SKELETONS[kind]
    words = [word.replace("NAME", name) for word in skeleton.overrides]
    inside = "" if folder == Path() else f"cd {shlex.quote(str(folder))} && "
    print(f"run:  {inside}fedpriv train --config-dir {YAMLS} {shlex.join(words)}")
    print(f"test: {inside}pytest test_{name}.py")
    return 0


def files_of(kind: str, name: str, folder: Path) -> dict[Path, str]:
    """Return the files of a skeleton with their texts.

    Args:
        kind: A key of ``SKELETONS``.
        name: Name of the part.
        folder: The folder that gets the files.

    Raises:
        ConfigError: The name cannot be that of a module, or another module or option has it.
    """
    skeleton = SKELETONS[kind]
    _refuse_bad_name(name, skeleton.group)
    class_name = "".join(word.capitalize() for word in name.split("_"))
    words = ", ".join(f'"{word}"' for word in skeleton.overrides)
    texts = {
        f"{name}.py": skeleton.module,
        f"{YAMLS}/{skeleton.group}/{name}.yaml": skeleton.yaml,
        f"test_{name}.py": skeleton.test.replace(
            "OPTION", skeleton.group.replace("_", " ")
        ).replace("WORDS", words),
    }
    return {
        folder / path: text.replace("NAME", name).replace("CLASS", class_name)
        for path, text in texts.items()
    }


def write_new(files: dict[Path, str]) -> None:
    """Write files that must not exist.

    Raises:
        ConfigError: One of the files exists. Nothing was written.
        WriteError: A folder or file cannot be written.
    """
    for path in files:
        if os.path.lexists(path):
            raise ConfigError(
                f"{path} exists, and nothing is written over; choose another name or --to"
            )
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise WriteError(path, error) from None


def _refuse_bad_name(name: str, group: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or keyword.iskeyword(name):
        allowed = (
            "the name of a Python module: small letters, digits and single _, such as my_clipper"
        )
        raise ConfigError("NAME", name, allowed)
    if name in [option for option, _ in options(group)]:
        raise ConfigError("NAME", name, f"another name than those of fedpriv list {group}")
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise ConfigError("NAME", name, "a name that no installed module has", f"my_{name}, say")
