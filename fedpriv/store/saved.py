"""Readers of single files of a run folder, which may be somebody else's.

No reader executes anything in a file, and each raises ConfigError with one sentence for a file that it cannot
read.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from omegaconf import DictConfig, OmegaConf

from fedpriv.common.config import flatten
from fedpriv.common.errors import ConfigError
from fedpriv.common.groups import GROUPS, OF_NOTHING

if TYPE_CHECKING:
    import pandas as pd
    import torch


def unreadable(path: Path, reason: str) -> ConfigError:
    """Return the error for a stored file that is not what fedpriv writes there."""
    return ConfigError(f"{path} cannot be read: {reason}")


def refuse_no_file(path: Path) -> None:
    """Raise ConfigError for a path that is absent or no regular file. Reading a pipe could block for ever."""
    if not path.is_file():
        raise unreadable(path, "it is not a file" if path.exists() else "it is not there")


def saved_text(path: Path) -> str:
    """Return the content of a text file. Raise ConfigError if it cannot be read or is not UTF-8."""
    refuse_no_file(path)
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise unreadable(path, f"{error.strerror or error}") from None
    except UnicodeDecodeError:
        raise unreadable(path, "it is not text") from None


def saved_rows(path: Path) -> list[list[str]]:
    """Return the cells of a CSV as text, the names of the columns first. Raise ConfigError for no CSV."""
    text = saved_text(path)
    try:
        return [row for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error:
        raise unreadable(path, "it is not a table") from None


def saved_records(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV by the names of their columns. Raise ConfigError for no CSV."""
    names, *rows = saved_rows(path) or [[]]
    return [dict(zip(names, row, strict=False)) for row in rows]


def saved_table(path: Path) -> pd.DataFrame:
    """Return a CSV of numbers; an empty cell is NaN.

    Raises:
        ConfigError: The file cannot be read, or is no table of numbers.
    """
    import pandas as pd  # imported late: ``fedpriv runs`` does without it

    text = saved_text(path)
    try:
        # As text first: pandas below 3 rounds the last digit of some numbers. A process that is writing, or
        # was killed, leaves half a row.
        whole = io.StringIO(text[: text.rfind("\n") + 1])
        return pd.read_csv(whole, dtype=str).astype(float)
    except ValueError:
        raise unreadable(path, "it is not a table of numbers") from None


def saved_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raise ConfigError if there is none."""
    try:
        value = json.loads(saved_text(path))
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

    fedpriv writes no interpolations there, so they are refused: one can read the reader's environment
    variables.

    Raises:
        ConfigError: The file is no run's configuration.
    """
    return _resolved_values(path, _parsed_yaml(path))


def _parsed_yaml(path: Path) -> dict[str, Any]:
    """Return the content of a YAML as OmegaConf would read it, in a tenth of the time."""
    text = saved_text(path)
    try:
        values = yaml.load(text, YamlLoader)
    except Exception:  # a broken YAML can make the parser raise almost anything
        raise unreadable(path, "it is not YAML") from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise unreadable(path, "it is no run's configuration")
    return values


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

    torch does not compare the checksums of its archives when it reads them, so they are compared first.

    Args:
        path: The file.
        device: The device of the tensors.

    Raises:
        ConfigError: The file is damaged, or holds other objects than tensors and plain values.
    """
    import torch

    refuse_no_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            # torch reads a member that is marked as a folder as empty, and no checksum covers the mark.
            marked = any(member.external_attr for member in archive.infolist())
            if marked or archive.testzip() is not None:
                raise zipfile.BadZipFile("its checksum is another")
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # reading a damaged file can raise anything
        reason = str(error) if isinstance(error, zipfile.BadZipFile) else type(error).__name__
        raise ConfigError(
            f"{path} cannot be read ({reason}): it is damaged, or holds more than tensors and plain values"
        ) from None


def saved_picture(path: Path, largest: int) -> bytes | None:
    """Return a PNG; None if there is none, or one with more than ``largest`` bytes."""
    try:
        if not path.is_file() or path.is_symlink() or path.stat().st_size > largest:
            return None
        content = path.read_bytes()
    except OSError:
        return None
    return content if content.startswith(b"\x89PNG\r\n\x1a\n") else None
