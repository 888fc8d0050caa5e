"""Readers of single files of a run folder, which may be damaged or untrusted.

No reader executes anything in a file, none takes unbounded memory, and each raises ConfigError with one
sentence for a file that it cannot read.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from omegaconf import DictConfig, OmegaConf

from fedpriv.common.config import flatten
from fedpriv.common.errors import ConfigError, show
from fedpriv.common.files import sealed_digest
from fedpriv.common.groups import GROUPS, OF_NOTHING

if TYPE_CHECKING:
    import torch

# Limits in bytes. Files of fedpriv are far smaller: a configuration has a few thousand bytes.
LARGEST_CONFIG = 1 << 20
LARGEST_JSON = LARGEST_TABLE = 1 << 28
LARGEST_SUMMARY = 1 << 20  # small, because some commands read the summaries of many runs
LARGEST_HASHED = 1 << 18  # small, because some commands hash the files of many runs


def unreadable(path: Path, reason: str) -> ConfigError:
    """Return the error for a stored file that is not what fedpriv writes there."""
    return ConfigError(f"{path} cannot be read: {reason}")


def refuse_no_file(path: Path, largest: int | None = None) -> None:
    """Raise ConfigError for a path that is absent, no regular file, or larger than ``largest`` bytes.

    Reading a pipe could block for ever.
    """
    try:
        if not path.is_file():
            reason = "it is not a file" if path.exists() else "it is not there"
        elif largest is not None and path.stat().st_size > largest:
            reason = f"it has more than {largest:,} bytes"
        else:
            return
    except OSError as error:
        reason = error.strerror or str(error)
    raise unreadable(path, f"{reason}")


def saved_text(path: Path, largest: int) -> str:
    """Return the content of a text file.

    Args:
        path: The file.
        largest: Largest size in bytes that is read.

    Raises:
        ConfigError: The file cannot be read, is too large, or is not UTF-8.
    """
    refuse_no_file(path, largest)
    try:
        with readable(path):
            return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise unreadable(path, "it is not text") from None


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn an OSError in the block into a ConfigError about ``path``."""
    try:
        yield
    except OSError as error:
        raise unreadable(path, f"{error.strerror or error}") from None


def saved_rows(path: Path) -> list[list[str]]:
    """Return the cells of a CSV as text, the names of the columns first. Raise ConfigError for no CSV."""
    text = saved_text(path, LARGEST_TABLE)
    try:
        return [row for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error:
        raise unreadable(path, "it is not a table") from None


def saved_json(path: Path, largest: int = LARGEST_JSON) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        ConfigError: The file cannot be read, is larger than ``largest`` bytes, or is no JSON object.
    """
    return parsed_json(path, saved_text(path, largest))


def parsed_json(path: Path, text: str) -> dict[str, Any]:
    """Return the JSON object in the text of a file; ``path`` is for the message.

    Raises:
        ConfigError: The text is no JSON object, or an object holds a key twice.
    """

    def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # A repeated key is refused, because readers disagree about which of its values counts.
        values = dict(pairs)
        if len(values) < len(pairs):
            names = [name for name, _ in pairs]
            repeated = next(name for name in names if names.count(name) > 1)
            raise unreadable(path, f"the key {show(repeated)} is there twice")
        return values

    try:
        value = json.loads(text, object_pairs_hook=once_each)
    except (ValueError, RecursionError):
        raise unreadable(path, "it is not JSON") from None
    if not isinstance(value, dict):
        raise unreadable(path, "it is not a JSON object")
    return value


def saved_config(path: Path) -> DictConfig:
    """Return a run's ``config.yaml`` without its trackers, which a reader of the run must not start.

    Raises:
        ConfigError: The file is no run's configuration; see :func:`saved_values`.
    """
    values = _parsed_yaml(path)
    _resolved_values(path, values)
    values.pop("tracker", None)
    return OmegaConf.create(values)


def saved_values(path: Path) -> dict[str, object]:
    """Return the values of a run's ``config.yaml`` by dotted key.

    fedpriv writes neither aliases nor interpolations there, so both are refused. An alias can expand to more
    than fits into memory. An interpolation can read the reader's environment variables.

    Raises:
        ConfigError: The file is no run's configuration.
    """
    return _resolved_values(path, _parsed_yaml(path))


def _parsed_yaml(path: Path) -> dict[str, Any]:
    """Return the content of a YAML as OmegaConf would read it, in a tenth of the time."""
    text = yaml_text(path)
    try:
        # Only a text with an asterisk can hold an alias. Looking for the asterisk first saves the parsing.
        events = yaml.parse(text, YamlLoader) if "*" in text else ()
        has_alias = any(isinstance(event, yaml.AliasEvent) for event in events)
        values = None if has_alias else yaml.load(text, YamlLoader)
    except Exception:  # a broken YAML can make the parser raise almost anything
        raise unreadable(path, "it is not YAML") from None
    if has_alias:
        raise unreadable(path, "it has aliases, which fedpriv never writes")
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise unreadable(path, "it is no run's configuration")
    return values


_DEEPEST = 50
"""Largest depth of nested brackets. On thousands of nested brackets the YAML parsers do not finish."""


def yaml_text(path: Path) -> str:
    """Return the text of a small YAML on which a parser ends. Raise ConfigError for any other file."""
    text, depth = saved_text(path, LARGEST_CONFIG), 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = max(0, depth + (1 if bracket in "[{" else -1))
        if depth > _DEEPEST:
            raise unreadable(path, "it is not YAML")
    return text


def yaml_mistake(path: Path, error: yaml.YAMLError) -> ConfigError:
    """Return the error for a YAML of the user's with a mistake, in one line with its place."""
    words = " ".join(str(error).split()).replace(' in "<unicode string>",', " in")
    return ConfigError(f"{path} is not YAML: {words}")


class YamlLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # in C where available
    """A loader of plain values with OmegaConf's rules: 1e-5 is a number, a date is text, keys are unique."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping as a dictionary. Raises ConstructorError for a key that is there twice."""
        keys = [key.value for key, _ in node.value]
        if len(set(map(str, keys))) < len(keys):
            raise yaml.constructor.ConstructorError(None, None, "a key twice", node.start_mark)
        return super().construct_mapping(node, deep)


YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if tag != "tag:yaml.org,2002:timestamp"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
YamlLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def _resolved_values(path: Path, values: dict[str, Any]) -> dict[str, object]:
    """Return the values of a resolved configuration by dotted key. Raise ConfigError for anything else."""
    for key in GROUPS:
        option = values.get(key)
        usable = isinstance(option, dict) and isinstance(option.get("_target_"), str)
        if key not in OF_NOTHING and not usable:
            raise unreadable(path, f"it is no run's configuration, it has no usable {key}")
    if not isinstance(values["algorithm"].get("name"), str):
        raise unreadable(path, "it is no run's configuration, it has no algorithm.name")
    flat = flatten(values)
    for key, value in flat.items():
        if "${" in f"{key}{value}":
            raise unreadable(path, f"{key} is an interpolation, which fedpriv always resolves")
    return flat


def saved_tensors(path: Path, device: str | torch.device) -> object:
    """Return the tensors and plain values that ``torch.save`` wrote to a file.

    torch does not compare the checksums of its archives, so they are compared here. A file of fedpriv holds
    a SHA-256 of all its bytes; a file of torch alone has a CRC for each member of its ZIP archive.

    Args:
        path: The file.
        device: The device of the tensors.

    Raises:
        ConfigError: The file is damaged, or holds other objects than tensors and plain values.
    """
    import torch

    refuse_no_file(path)
    try:
        content = path.read_bytes()
        _refuse_flipped_bits(content)
        return torch.load(io.BytesIO(content), map_location=device, weights_only=True)
    except Exception as error:  # reading a damaged file can raise anything
        reason = str(error) if isinstance(error, _Damaged) else type(error).__name__
        raise ConfigError(
            f"{path} cannot be read ({reason}): it is damaged, or holds more than tensors and plain values"
        ) from None


class _Damaged(ValueError):
    """Error for an archive with other bytes than were written."""


def _refuse_flipped_bits(content: bytes) -> None:
    """Raise ValueError for a file that is no archive, or one that is compressed or damaged."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise _Damaged("its archive is broken")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > len(content):
            raise ValueError(
                "compressed"
            )  # torch never compresses; expanding could fill the memory
        if not archive.comment:  # the file was written by torch, not by fedpriv
            # torch reads a member that is marked as a folder as empty, and no checksum covers that mark
            if archive.testzip() is not None or any(member.external_attr for member in members):
                raise _Damaged("its checksum is another")
            return
        stated, computed = sealed_digest(content, archive.comment)
    if stated != computed:
        raise _Damaged("its SHA-256 is another")


def saved_picture(path: Path, largest: int) -> bytes | None:
    """Return a PNG; None if there is none, or one with more than ``largest`` bytes."""
    try:
        if not path.is_file() or path.is_symlink() or path.stat().st_size > largest:
            return None
        content = path.read_bytes()
    except OSError:
        return None
    return content if content.startswith(b"\x89PNG\r\n\x1a\n") else None
