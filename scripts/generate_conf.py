"""Write the values and comments of conf/ from the fields that the classes declare.

    python scripts/generate_conf.py            write
    python scripts/generate_conf.py --check    show what would change; exit status 1 if anything would

A key of a class with declared fields (``fedpriv/common/fields.py``) gets its field's default and, as its
comment, the field's description. What stays as it is written:

- the keys themselves, their order, and the leading comments;
- interpolations; only the default inside ``${oc.select:protocol.key, default}`` is the field's;
- values of arguments without a default, and values of an option that extends another;
- values whose comment begins with ``own value``: there an option differs from its class on purpose.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import yaml
from hydra.utils import get_object

from fedpriv.algorithms.augmentation import Augmented
from fedpriv.algorithms.server_optimizer import ServerOptimizerKeys
from fedpriv.common.fields import describe
from fedpriv.common.groups import GROUPS
from fedpriv.common.option_keys import Key, extended_by, keys_of_text

ROOT = Path(__file__).resolve().parents[1]
CONF = ROOT / "conf"  # of the checkout, also where another fedpriv is installed
OWN_VALUE = "own value"
SHARED = {"server_optimizer": ServerOptimizerKeys, "augmentation": Augmented}
"""Files of ``conf/keys`` with the arguments of one class."""

Place = tuple[str, ...]
"""The names that lead to a mapping of a YAML."""


def main(arguments: list[str] | None = None) -> int:
    """Write, or check, all files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing, show what would change"
    )
    check = parser.parse_args(arguments).check
    outdated = 0
    for path, text in generated():
        name = path.relative_to(ROOT).as_posix()
        old = path.read_text("utf-8")
        if old == text:
            continue
        if check:
            outdated = 1
            lines = difflib.unified_diff(old.splitlines(), text.splitlines(), name, name, "", "", 0)
            print("\n".join(lines))
        else:
            path.write_text(text, "utf-8")
            print(f"wrote {name}")
    return outdated


def generated() -> Iterator[tuple[Path, str]]:
    """Yield each file with the text that it should have."""
    for group in GROUPS:
        for path in sorted((CONF / group).rglob("*.yaml")):
            text = path.read_text("utf-8")
            yield path, with_fields(text, classes_of(path), own=_targets(text))
    for name, kind in SHARED.items():
        path = CONF / "keys" / f"{name}.yaml"
        yield path, with_fields(path.read_text("utf-8"), {(): kind}, own=[()])


def classes_of(path: Path) -> dict[Place, Any]:
    """Return where the arguments of a class stand → the class, which an option that is extended may name."""
    text = path.read_text("utf-8")
    classes: dict[Place, Any] = {}
    for extended in extended_by(path):
        classes |= classes_of(extended)
    return classes | {place: get_object(target) for place, target in _targets(text).items()}


def _targets(text: str) -> dict[Place, str]:
    return {key.path[:-1]: key.value for key in keys_of_text(text) if key.path[-1] == "_target_"}


def with_fields(text: str, classes: Mapping[Place, Any], own: Collection[Place]) -> str:
    """Return the text of a YAML with the defaults and descriptions of fields.

    Args:
        text: What it is now.
        classes: Where the arguments of a class stand, and the class.
        own: Where the YAML names the class itself; elsewhere it changes values of an option that it extends.
    """
    for key in reversed(list(keys_of_text(text))):
        place, name = key.path[:-1], key.path[-1]
        kind = classes.get(place)
        field = _fields(kind).get(name)
        if field is None or isinstance(key.node, yaml.MappingNode):
            continue
        value, comment = key.value, describe(kind, field)
        if place in own and _differs(key, field):
            if key.comment.startswith(OWN_VALUE):
                comment = f"{OWN_VALUE}; {comment}"
            else:
                before, _, after = value.rpartition(key.written)
                value = f"{before}{_dumped(_default(field))}{after}"
        text = f"{text[: key.start]}{value}  # {comment}{text[key.end :]}"
    return text


def _fields(kind: Any) -> dict[str, attrs.Attribute]:
    if not (isinstance(kind, type) and attrs.has(kind)):
        return {}
    return {field.alias: field for field in attrs.fields(kind) if field.init}


def _differs(key: Key, field: attrs.Attribute) -> bool:
    """Return whether a field has a default and the YAML writes another."""
    if not key.written or "${" in key.written or field.default is attrs.NOTHING:
        return False
    default, written = _default(field), yaml.safe_load(key.written)
    if isinstance(default, float) and isinstance(written, str):
        written = float(written)  # YAML takes 1e-6 for a text
    return written != default or isinstance(written, bool) != isinstance(default, bool)


def _default(field: attrs.Attribute) -> Any:
    default = field.default.factory() if isinstance(field.default, attrs.Factory) else field.default
    return list(default) if isinstance(default, tuple) else default


def _dumped(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()


if __name__ == "__main__":
    sys.exit(main())
