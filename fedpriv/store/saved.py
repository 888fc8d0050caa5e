"""What is read back from a run folder.

It may be damaged, or come from somebody else. So nothing in it is run, nothing takes memory without end, and
what cannot be read is one sentence.
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

from fedpriv.common import config as configuration
from fedpriv.common.errors import ConfigError, show
from fedpriv.common.files import sealed_digest
from fedpriv.common.groups import GROUPS, OF_NOTHING

if TYPE_CHECKING:
    import torch

    pass

LARGEST_CONFIG = 1 << 20  # bytes; one of ours has a few thousand
LARGEST_JSON = LARGEST_TABLE = 1 << 28
LARGEST_SUMMARY = 1 << 20  # where many runs are read
LARGEST_HASHED = 1 << 18  # where many runs are compared with their digests


def refuse_no_file(path: Path, largest: int | None = None) -> None:
    """Raise ConfigError for what is absent, not a file (a pipe would be waited for) or has more bytes."""
    try:
        if not path.is_file():
            reason = "it is not a file" if path.exists() else "it is not there"
        elif largest is not None and path.stat().st_size > largest:
            reason = f"it has more than {largest:,} bytes"
        else:
            return
    except OSError as error:
        reason = error.strerror or str(error)
    raise ConfigError(f"{path} cannot be read: {reason}")


def saved_text(path: Path, largest: int) -> str:
    """A text file of at most so many bytes. Raises ConfigError."""
    refuse_no_file(path, largest)
    try:
        with readable(path):
            return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} cannot be read: it is not text") from None


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn an OSError in the block into a ConfigError about ``path``."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None


def saved_rows(path: Path) -> list[list[str]]:
    """Return the rows of a CSV as texts, the names of its columns first. Raises ConfigError."""
    text = saved_text(path, LARGEST_TABLE)
    try:
        return [row for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error:
        raise ConfigError(f"{path} cannot be read: it is not a table") from None


def saved_json(path: Path, largest: int = LARGEST_JSON) -> dict[str, Any]:
    """A JSON object. Raises ConfigError."""
    return parsed_json(path, saved_text(path, largest))


def parsed_json(path: Path, text: str) -> dict[str, Any]:
    """Return the JSON object that a file with this text holds. Raises ConfigError."""
    try:
        value = json.loads(text, object_pairs_hook=_once_each)
    except _KeyTwice as error:
        raise ConfigError(f"{path} cannot be read: the key {show(error)} is there twice") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{path} cannot be read: it is not JSON") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path} cannot be read: it is not a JSON object")
    return value


class _KeyTwice(ValueError):
    """A key that a JSON object has twice: which of its values holds is anybody's guess."""


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dict. Raises _KeyTwice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise _KeyTwice(next(name for name in names if names.count(name) > 1))
    return values


def saved_config(path: Path) -> DictConfig:
    """Read a run's ``config.yaml``, without its trackers: who reads a run does not track it.

    Raises ConfigError for anything else, as :func:`saved_values`.
    """
    values = _parsed_yaml(path)
    _written_out(path, values)
    values.pop("tracker", None)
    return OmegaConf.create(values)


def saved_values(path: Path) -> dict[str, object]:
    """Read the values of a run's ``config.yaml`` by their dotted keys. Raises ConfigError for anything else.

    Aliases and interpolations, which fedpriv never writes there, are refused: the first can stand for more
    than fits into memory, the second read the environment of who opens it.
    """
    return _written_out(path, _parsed_yaml(path))


def _parsed_yaml(path: Path) -> dict[str, Any]:
    """Return what OmegaConf reads in a YAML, in a tenth of its time. Raises ConfigError."""
    text = yaml_text(path)
    try:
        # only a text with an asterisk can have an alias
        if "*" in text and any(isinstance(e, yaml.AliasEvent) for e in yaml.parse(text, _Loader)):
            raise ConfigError(f"{path} cannot be read: it has aliases, which fedpriv never writes")
        values = yaml.load(text, _Loader)
    except ConfigError:
        raise
    except Exception:  # YAML of any kind
        raise _not_yaml(path) from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(f"{path} cannot be read: it is no run's configuration")
    return values


_DEEPEST = 50  # brackets in brackets: of thousands, YAML's readers never come back


def yaml_text(path: Path) -> str:
    """The text of a small YAML that a reader of YAML comes back from. Raises ConfigError."""
    text, depth = saved_text(path, LARGEST_CONFIG), 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = max(0, depth + (1 if bracket in "[{" else -1))
        if depth > _DEEPEST:
            raise _not_yaml(path)
    return text


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # C's where it is built
    """YAML's plain values; as for OmegaConf, 1e-5 is a number, a date is text, and no key is there twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        if len(set(map(str, keys))) < len(keys):
            raise yaml.constructor.ConstructorError(None, None, "a key twice", node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if tag != "tag:yaml.org,2002:timestamp"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def _not_yaml(path: Path) -> ConfigError:
    return ConfigError(f"{path} cannot be read: it is not YAML")


def _written_out(path: Path, values: dict[str, Any]) -> dict[str, object]:
    """The values of a configuration by their dotted keys. Raises ConfigError where it is not a run's or
    not written out."""
    for key in GROUPS:
        if key not in OF_NOTHING and not _is_option(values.get(key)):
            raise ConfigError(
                f"{path} cannot be read: it is no run's configuration, it has no usable {key}"
            )
    if not isinstance(values["algorithm"].get("name"), str):
        raise ConfigError(
            f"{path} cannot be read: it is no run's configuration, it has no algorithm.name"
        )
    flat = configuration.flatten(values)
    for key, value in flat.items():
        if "${" in f"{key}{value}":
            raise ConfigError(
                f"{path} cannot be read: {key} is not written out, which fedpriv always does"
            )
    return flat


def _is_option(node: object) -> bool:
    return isinstance(node, dict) and isinstance(node.get("_target_"), str)


def saved_tensors(path: Path, device: str | torch.device) -> object:
    """What ``torch.save`` wrote there, of tensors and plain values alone. Raises ConfigError.

    A flipped bit is noticed: by the SHA-256 that fedpriv's own files hold, else by the checksums of the
    archive's members, which torch itself does not compare.
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
            f"{path} cannot be read ({reason}): it is damaged, of an older version of "
            "fedpriv, or holds more than tensors and plain values"
        ) from None


class _Damaged(ValueError):
    """An archive whose bytes are not those that were written."""


def _refuse_flipped_bits(content: bytes) -> None:
    """Raise for an archive that is compressed or damaged; files of torch's older format have no checksums."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        if content[:2] == b"PK":
            raise _Damaged("its archive is broken")
        return
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > len(content):
            raise ValueError("compressed")  # torch compresses nothing
        if not archive.comment:  # written by torch alone
            # torch takes a member with the attribute of a folder for an empty one
            if archive.testzip() is not None or any(member.external_attr for member in members):
                raise _Damaged("its checksum is another")
            return
        stated, found = sealed_digest(content, archive.comment)
    if stated != found:
        raise _Damaged("its SHA-256 is another")


def saved_picture(path: Path, largest: int) -> bytes | None:
    """Return a PNG of at most so many bytes, if there is one."""
    try:
        if not path.is_file() or path.is_symlink() or path.stat().st_size > largest:
            return None
        content = path.read_bytes()
    except OSError:
        return None
    return content if content.startswith(b"\x89PNG\r\n\x1a\n") else None
