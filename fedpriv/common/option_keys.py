"""The keys of an option with value and comment, read from its YAML file. The module imports nothing heavy.

``scripts/generate_conf.py`` writes the comments of ``conf/`` from the declared fields of the classes:
meaning, unit and allowed values of a key. ``fedpriv list GROUP`` shows the comments.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from fedpriv.common.groups import OPTION, TARGET, conf_dir

_BY_PROTOCOL = re.compile(r"\$\{oc\.select:protocol\.\w+, *(.*)\}")
_BY_RESOLVER = re.compile(r"\$\{\w+:(\w+)\}")
_BY_KEY = re.compile(r"\$\{oc\.select:([\w.]+), *")
_MORE_KEYS = re.compile(r"/(keys/\w+)@_global_\.(\w+)")


@dataclass(frozen=True)
class Key:
    """A key of a YAML file.

    Attributes:
        path: The names from the root to the key.
        value: Text of the value; empty if the value is a block below the key.
        comment: Comment after the value.
        start: Position of the value in the text of the file.
        end: Position of the end of the line.
        node: The parsed value.
    """

    path: tuple[str, ...]
    value: str
    comment: str
    start: int
    end: int
    node: yaml.Node

    @property
    def name(self) -> str:
        """The dotted key."""
        return ".".join(self.path)

    @property
    def by_protocol(self) -> bool:
        """True if a protocol may set the key, to the number that a work states for a data set."""
        return _BY_PROTOCOL.fullmatch(self.value) is not None

    @property
    def written(self) -> str:
        """The text of the value for a run without a protocol; empty if the value is a block below the key."""
        match = _BY_PROTOCOL.fullmatch(self.value)
        return match[1] if match else self.value

    @property
    def default(self) -> str:
        """The value for a run without a protocol, in one line."""
        line = _BY_RESOLVER.sub(r"\1", self.written)
        if "oc.select" in line:
            line = _BY_KEY.sub(r"\1, else ", line).rstrip("}")
        if not line and isinstance(self.node, yaml.SequenceNode):
            line = f"[{', '.join(item.value for item in self.node.value)}]"
        return textwrap.shorten(line, 80, placeholder=" …")


def keys_of_text(text: str) -> Iterator[Key]:
    """Yield all keys of a YAML text in their order, each key before the keys below it."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if isinstance(root, yaml.MappingNode):
        yield from _keys(text, root, ())


def _keys(text: str, mapping: yaml.MappingNode, above: tuple[str, ...]) -> Iterator[Key]:
    for name, value in mapping.value:
        path = (*above, name.value)
        block = isinstance(value, yaml.CollectionNode) and not value.flow_style
        start = name.end_mark.index + 1 if block else value.start_mark.index
        stop = start if block else value.end_mark.index
        end = text.find("\n", stop) % (len(text) + 1)  # the last line may lack a line break
        comment = text[stop:end].strip().removeprefix("#").strip()
        yield Key(path, text[start:stop], comment, start, end, value)
        if block and isinstance(value, yaml.MappingNode):
            yield from _keys(text, value, path)


def keys_of_option(group: str, option: str, folder: Path | None = None) -> list[Key]:
    """Return the keys of an option as a user types them, with the keys of options that it extends."""
    path = (folder or conf_dir()) / group / f"{option}.yaml"
    comments = {key.path: key.comment for key in keys_of_text(_text(conf_dir() / "config.yaml"))}
    keys: dict[tuple[str, ...], Key] = {}
    for key in _keys_of_path(path, (group,)):
        comments[key.path] = key.comment or comments.get(key.path, "")
        keys[key.path] = replace(key, comment=comments[key.path])
    above = {key[:-1] for key in keys}
    return [key for key in keys.values() if key.path not in (*above, (group,))]


def extended_by(path: Path) -> list[Path]:
    """Return the YAML files of the options that an option extends, all in its own group."""
    candidates = (path.parent / f"{default}.yaml" for default in _defaults(path))
    return [candidate for candidate in candidates if candidate.exists()]


def _defaults(path: Path) -> list[str]:
    listed = (yaml.safe_load(_text(path)) or {}).get("defaults", ())
    return [default for default in listed if isinstance(default, str)]


def _keys_of_path(path: Path, package: tuple[str, ...]) -> Iterator[Key]:
    for extended in extended_by(path):
        yield from _keys_of_path(extended, package)
    text = _text(path)
    below = () if text.startswith("# @package _global_") else package
    for key in keys_of_text(text):
        is_key = key.path[0] not in ("defaults", "protocol") and key.path[-1] not in (
            TARGET,
            OPTION,
        )
        if is_key and not isinstance(key.node, yaml.MappingNode):
            yield replace(key, path=(*below, *key.path))
    # Some options share keys with others by a default of the form /keys/NAME@_global_.GROUP.
    for match in filter(None, map(_MORE_KEYS.fullmatch, _defaults(path))):
        yield from _keys_of_path(conf_dir() / f"{match[1]}.yaml", (match[2],))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
