"""The groups of the configuration and their options, read from the YAMLs' names; imports nothing heavy.

``conf/`` stands at the top level of a checkout; a wheel carries it inside the package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

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


def conf_dir() -> Path:
    """The folder of the YAML groups: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def options(group: str, folder: Path | None = None) -> Iterator[tuple[str, str]]:
    """(name, one-line description) of each option of a group, from the YAML's leading comment."""
    base = (folder or conf_dir()) / group
    for path in sorted(base.rglob("*.yaml")):
        yield path.relative_to(base).with_suffix("").as_posix(), describe(path)


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
    """What ``fedpriv train --help`` says: the template of Hydra's help, filled in as Hydra does."""
    import yaml

    conf = conf_dir()
    template = yaml.safe_load((conf / "config.yaml").read_text("utf-8"))["hydra"]["help"][
        "template"
    ]
    folders = sorted({path.parent for path in conf.rglob("*.yaml")} - {conf})
    groups = (
        f"{folder.relative_to(conf).as_posix()}: {', '.join(sorted(p.stem for p in folder.glob('*.yaml')))}\n"
        for folder in folders
        if conf / "hydra" not in (folder, *folder.parents)
    )
    return template.replace("$APP_CONFIG_GROUPS", "".join(groups))
