"""The groups of the configuration and their options. The module imports nothing heavy.

An option is a YAML file in the folder of its group. The options of ``recipe`` and ``protocol`` are rows of
``conf/recipes.yaml`` and ``conf/protocols.yaml`` instead; ``hydra_plugins/fedpriv.py`` serves them to Hydra
as if each were a YAML file. In a checkout ``conf/`` is at the top level, in a wheel inside the package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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
"""Groups that a run may do without → the option for that."""
ADDED = ("experiment", "recipe", "figure")
"""Folders of ready-made configurations, which are added with a plus: ``+recipe=…``."""
LISTED = (*GROUPS, *ADDED, "protocol")
"""Groups that ``fedpriv list`` shows."""
TARGET, OPTION = "_target_", "_option_"
"""Keys of a part: the class that runs, and the name that the part has in keys of streams and fingerprints."""
IN_TABLES = ("protocol", "recipe")
"""Groups whose options are rows of a table."""


@dataclass(frozen=True)
class TableOption:
    """An option of a group that is a row of a table.

    Attributes:
        about: Description in one line, for ``fedpriv list``.
        content: The content that a YAML file of this option would have. It is cached and must not be changed.
        package: ``_global_`` puts the content at the root of the configuration, None below the group's name.
    """

    about: str
    content: dict[str, Any]
    package: str | None = None


def conf_dir() -> Path:
    """Return the folder of the YAML groups: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def options(group: str, folder: Path | None = None) -> Iterator[tuple[str, str]]:
    """Yield (name, one-line description) of each option of a group, sorted by name.

    The description of a YAML file is its leading comment; a row of a table has its own.

    Args:
        group: The group.
        folder: Folder of groups; None: that of fedpriv, with the options of its tables.
    """
    folder = folder or conf_dir()
    group_folder = folder / group
    described = [
        (path.relative_to(group_folder).with_suffix("").as_posix(), describe(path))
        for path in group_folder.rglob("*.yaml")
    ]
    if folder == conf_dir():
        described += [(name, row.about) for name, row in table_options(folder, group).items()]
    yield from sorted(described)


@cache
def table_options(conf: Path, group: str) -> dict[str, TableOption]:
    """Return the options of a group, by name, from the tables in the folder ``conf``."""
    rows = table_rows(conf, group).items()
    if group == "protocol":
        by_name = {
            f"{algorithm}_{dataset}": TableOption(
                numbers["about"], {key: value for key, value in numbers.items() if key != "about"}
            )
            for algorithm, cells in rows
            for dataset, numbers in cells.items()
        }
    else:
        by_name = {
            f"{name}_eps{epsilon}": _recipe(row, epsilon)
            for name, row in rows
            for epsilon in row["algorithm.learning_rate"]
        }
    return dict(sorted(by_name.items()))


@cache
def table_rows(conf: Path, group: str) -> dict[str, dict[str, Any]]:
    """Return the rows of a group's table without its shared parts; empty for a group without a table."""
    path = conf / f"{group}s.yaml"
    if group not in IN_TABLES or not path.is_file():
        return {}
    import yaml

    rows = yaml.load(path.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {name: row for name, row in rows.items() if name != "shared"}


def _recipe(row: dict[str, Any], epsilon: float) -> TableOption:
    """Return the recipe of a row for one ε. A mapping in the row holds one value for each ε."""
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
    """Return the only option of a group for the class of a part; else the name of the class."""
    name = type(part).__name__
    # The module of the class may have moved since its path was written to the YAML file.
    target = re.compile(rf"^ *_target_: fedpriv\.[\w.]+\.{name}$", re.MULTILINE)
    paths = (conf_dir() / group).glob("*.yaml")
    matches = [path.stem for path in paths if target.search(path.read_text(encoding="utf-8"))]
    return matches[0] if len(matches) == 1 else name


def stated_option(values: Mapping[str, object], part: str) -> str | None:
    """Return the name of the option that a part of fedpriv is; None for a part of the user's own.

    Args:
        values: A configuration by dotted key.
        part: A group, or the key of a part in a group, such as ``attack.trigger``.
    """
    target, option = values.get(f"{part}.{TARGET}"), values.get(f"{part}.{OPTION}")
    return str(option) if option and str(target).startswith("fedpriv.") else None


def option_name(values: Mapping[str, object], group: str) -> str:
    """Return the name of a group's option in a configuration; of a part of the user's own that of its class.

    Args:
        values: A configuration by dotted key.
        group: The group.
    """
    target = values.get(f"{group}.{TARGET}")
    if target is None:
        return OF_NOTHING.get(group, "none")
    return stated_option(values, group) or str(target).rpartition(".")[2]


def options_of_target(group: str, target: object) -> list[str]:
    """Return all options of a group with a ``_target_``."""
    return _options_by_target(group).get(str(target), [])


@cache
def _options_by_target(group: str) -> dict[str, list[str]]:
    """Return the options of a group by their ``_target_``."""
    by_target: dict[str, list[str]] = {}
    for path in sorted((conf_dir() / group).glob("*.yaml")):
        match = re.search(r"^ *_target_: *(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if match:
            by_target.setdefault(match[1], []).append(path.stem)
    return by_target


def describe(path: Path) -> str:
    """Return the first comment line of a YAML file that is neither empty nor ``@package``."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line.lstrip("# ").strip()
        if text and not text.startswith("@package"):
            return text
    return ""


_NOT_IN_HELP = ("hydra", "keys", "work", "protocol", "figure")
"""Folders of ``conf/`` that other YAMLs are made of, or that other commands read."""


def train_help(extra: Path | None = None) -> str:
    """Return the text of ``fedpriv train --help``: the template of Hydra's help, filled in without Hydra.

    Args:
        extra: A folder with YAMLs of the user's own, whose options are shown too.
    """
    import yaml

    conf = conf_dir()
    template = yaml.safe_load((conf / "config.yaml").read_text("utf-8"))["hydra"]["help"][
        "template"
    ]
    lines = []
    for group in (*GROUPS, *ADDED):
        if group not in _NOT_IN_HELP:
            names = [name for name, _ in options(group)]
            names += [name for name, _ in options(group, extra)] if extra else []
            plus = "+" if group in ADDED else ""
            lines.append(f"{plus}{group}: {in_short(group, sorted(set(names)))}\n")
    return template.replace("$APP_CONFIG_GROUPS", "".join(lines))


def in_short(group: str, names: Sequence[str]) -> str:
    """Return the names of a group's options in a few words.

    Figures are counted by the folder of their work, recipes of several ε are one name.

    >>> in_short("recipe", ["mnist_eps1", "mnist_eps8"]), in_short("figure", ["wei/fig3", "wei/fig5"])
    ('mnist_eps1|8', 'wei/... (2)')
    """
    if group == "protocol":
        return f"{len(names)} pairs of algorithm and data set: fedpriv list protocol"
    together: dict[str, list[str]] = {}
    for name in names:
        folder, slash, _ = name.partition("/")
        head, eps, epsilon = name.rpartition("_eps")
        if group == "figure" and slash:
            together.setdefault(f"{folder}/...", []).append(name)
        elif group == "recipe" and eps:
            together.setdefault(f"{head}_eps", []).append(epsilon)
        else:
            together[name] = []
    words = []
    for name, members in together.items():
        more = f" ({len(members)})" if group == "figure" and members else "|".join(members)
        words.append(f"{name}{more}")
    return ", ".join(words)
