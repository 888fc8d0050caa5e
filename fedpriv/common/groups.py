"""The groups of the configuration and their options; imports nothing heavy.

An option is a YAML in the folder of its group. The options of ``recipe`` and ``protocol`` are rows of
``conf/recipes.yaml`` and ``conf/protocols.yaml``; ``hydra_plugins/fedpriv.py`` serves them to Hydra as if
each were a YAML. ``conf/`` stands at the top level of a checkout; a wheel carries it inside the package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

GROUPS = (
    "dataset",
    "features",
    "partition",
    "model",
    "clipper",
    "noise_schedule",
    "accountant",
    "algorithm",
    "aggregation",
    "attack",
    "tracker",
)
OF_NOTHING = {"features": "none", "aggregation": "mean", "attack": "none", "tracker": "none"}
"""The groups that a run may be without, and the option that says so."""
ADDED = ("experiment", "recipe", "figure")
"""Folders of ready-made configurations, which are added with a plus."""
LISTED = (*GROUPS, *ADDED, "protocol")
"""What ``fedpriv list`` shows."""
IN_TABLES = ("protocol", "recipe")
"""The groups whose options are rows of a table."""


@dataclass(frozen=True)
class TableOption:
    """An option of a group that is a row of a table.

    Attributes:
        about: A line for ``fedpriv list``.
        content: What a YAML of this option would hold; not to be changed.
        package: Where the content goes: ``_global_``, the root; None, below the name of the group.
    """

    about: str
    content: dict[str, Any]
    package: str | None = None


def conf_dir() -> Path:
    """The folder of the YAML groups: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def options(group: str, folder: Path | None = None) -> Iterator[tuple[str, str]]:
    """Yield (name, one-line description) of each option of a group, sorted: fedpriv's, or those in a folder.

    The description of a YAML is its leading comment, that of a row of a table stands there.
    """
    folder = folder or conf_dir()
    base = folder / group
    found = [
        (path.relative_to(base).with_suffix("").as_posix(), describe(path))
        for path in base.rglob("*.yaml")
    ]
    if folder == conf_dir():
        found += [(name, row.about) for name, row in table_options(folder, group).items()]
    yield from sorted(found)


@cache
def table_options(conf: Path, group: str) -> dict[str, TableOption]:
    """Return the options by name that the tables in the folder ``conf`` have for a group."""
    rows = table_rows(conf, group).items()
    if group == "protocol":
        found = {
            f"{algorithm}_{dataset}": TableOption(
                cell["about"], {key: value for key, value in cell.items() if key != "about"}
            )
            for algorithm, cells in rows
            for dataset, cell in cells.items()
        }
    else:
        found = {
            f"{name}_eps{epsilon}": _recipe(row, epsilon)
            for name, row in rows
            for epsilon in row["algorithm.learning_rate"]
        }
    return dict(sorted(found.items()))


@cache
def table_rows(conf: Path, group: str) -> dict[str, dict[str, Any]]:
    """Return a group's table as it is written, without its shared parts; empty where there is no table."""
    path = conf / f"{group}s.yaml"
    if group not in IN_TABLES or not path.is_file():
        return {}
    import yaml

    rows = yaml.load(path.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {name: row for name, row in rows.items() if name != "shared"}


def _recipe(row: dict[str, Any], epsilon: float) -> TableOption:
    """Return the recipe of a row for one ε; what is a mapping in the row depends on ε."""
    chosen = [{f"override /{group}": row[group]} for group in GROUPS if group in row]
    content: dict[str, Any] = {"defaults": [*chosen, "_self_"], "epsilon": epsilon}
    for key, value in row.items():
        if key not in (*GROUPS, "about"):
            *parents, leaf = key.split(".")
            section = content
            for parent in parents:
                section = section.setdefault(parent, {})
            section[leaf] = value[epsilon] if isinstance(value, dict) else value
    return TableOption(f"{row['about']}, epsilon {epsilon}", content, package="_global_")


def option_of(group: str, part: object) -> str:
    """The one option of a group that makes parts of this class; else the name of the class."""
    name = type(part).__name__
    target = re.compile(rf"^ *_target_: fedpriv\.[\w.]+\.{name}$", re.MULTILINE)
    paths = (conf_dir() / group).glob("*.yaml")
    found = [path.stem for path in paths if target.search(path.read_text(encoding="utf-8"))]
    return found[0] if len(found) == 1 else name


def option_of_target(group: str, target: object) -> str:
    """The option of a group with this ``_target_``; the name of the class where several options have it."""
    if target is None:
        return OF_NOTHING.get(group, "none")
    names = _options_by_target(group).get(str(target), [])
    return names[0] if len(names) == 1 else str(target).rpartition(".")[2]


@cache
def _options_by_target(group: str) -> dict[str, list[str]]:
    """``_target_`` → the options of a group that name it."""
    found: dict[str, list[str]] = {}
    for path in sorted((conf_dir() / group).glob("*.yaml")):
        match = re.search(r"^ *_target_: *(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if match:
            found.setdefault(match[1], []).append(path.stem)
    return found


def describe(path: Path) -> str:
    """The first comment line of a YAML that says something."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line.lstrip("# ").strip()
        if text and not text.startswith("@package"):
            return text
    return ""


def train_help() -> str:
    """Return what ``fedpriv train --help`` says: the template of Hydra's help, filled in as Hydra does."""
    import yaml

    conf = conf_dir()
    template = yaml.safe_load((conf / "config.yaml").read_text("utf-8"))["hydra"]["help"][
        "template"
    ]
    names = {group: list(table_options(conf, group)) for group in IN_TABLES}
    for path in conf.rglob("*.yaml"):
        group = path.parent.relative_to(conf).as_posix()
        if group.partition("/")[0] not in (".", "hydra"):
            names.setdefault(group, []).append(path.stem)
    lines = (f"{group}: {', '.join(sorted(names[group]))}\n" for group in sorted(names))
    return template.replace("$APP_CONFIG_GROUPS", "".join(lines))
