"""Checkpoints: the whole state of a run between two rounds, in one file that is written atomically.

A checkpoint holds tensors and plain values and is read with ``weights_only=True``, so that reading one from
somebody else runs no code of theirs.
Every random draw is a function of the run and of (purpose, round, client), so no generator state is saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.common.errors import ConfigError, show
from fedpriv.common.files import write_tensors
from fedpriv.common.secret_streams import STREAM_VERSION
from fedpriv.store.folder import RunFolder
from fedpriv.store.saved import saved_tensors

if TYPE_CHECKING:
    import torch


CHECKPOINT_VERSION = 4
"""Version of the content: a checkpoint of another version is not resumed."""


@dataclass(frozen=True)
class Origin:
    """The run, code and machine that a state comes from.

    Attributes:
        identity: The configuration, without what cannot change a result.
        run: Digest of the run with its data and the user's own code; of a published run, with its key too.
        numerics: All that decides how sums are rounded.
        digest: Digest of the run with its data and the user's own code, without any key.
    """

    identity: dict[str, object]
    run: str
    numerics: dict[str, str | int | None]
    digest: str

    def state_dict(self) -> dict[str, object]:
        """Return what a checkpoint notes of its origin."""
        return {
            "identity": self.identity,
            "run": self.run,
            "numerics": self.numerics,
            "streams": STREAM_VERSION,
        }


def save(folder: RunFolder, state: dict[str, Any]) -> None:
    """Write ``checkpoint.pt`` atomically.

    Args:
        folder: The run folder.
        state: The whole state of the run, of tensors and plain values.

    Raises:
        ConfigError: The state holds something else than tensors and plain values.
        WriteError: The file cannot be written. The previous checkpoint is as it was.
    """
    full = plain({"schema_version": CHECKPOINT_VERSION, **state}, "the state")
    write_tensors(folder.checkpoint, full)


def plain(value: object, name: str) -> object:
    """Return the value with the numbers of numpy as numbers of Python.

    Raises:
        ConfigError: The value, or something in it, is neither a tensor nor plain. The message says where.
    """
    import torch

    kind = type(value)
    if kind in (str, int, float, bool, type(None), torch.Tensor):
        return value
    if isinstance(value, Mapping):
        return {plain(k, f"a key of {name}"): plain(v, f"{name}[{k!r}]") for k, v in value.items()}
    if isinstance(value, list | tuple) and kind in (list, tuple):
        return kind(plain(item, f"{name}[{i}]") for i, item in enumerate(value))
    if isinstance(value, np.bool_ | np.number):
        return value.item()
    raise ConfigError(
        f"{name} is a {kind.__module__}.{kind.__qualname__}: a checkpoint holds tensors, numbers, text, "
        "lists and dicts alone; let state_dict return those"
    )


def refuse_lost(folder: RunFolder) -> None:
    """Raise ConfigError for a run that has run rounds and has no checkpoint: it would silently begin again.

    A checkpoint is written before the first round. So only a run that was killed before has none.
    """
    results = (folder.summary, folder.privacy_json, folder.ledger)
    if any(path.exists() for path in results) or _has_rows(folder.metrics):
        raise ConfigError(
            f"resume: {folder.checkpoint} is missing, though the run has run rounds; put it back, or start "
            "anew in another folder"
        )


def _has_rows(path: Path) -> bool:
    """Return whether a CSV file has more than its header."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return bool(file.readline() and file.readline())


def read(folder: RunFolder, device: torch.device) -> dict[str, object]:
    """Return the checkpoint of a run, with its tensors on a device.

    Raises:
        ConfigError: The file cannot be read, or another version wrote it.
    """
    state: Any = saved_tensors(folder.checkpoint, device)
    version = state.get("schema_version") if isinstance(state, dict) else None
    if version != CHECKPOINT_VERSION:
        raise ConfigError(
            f"{folder.checkpoint} was written with checkpoint schema {show(version)}, this version of "
            f"fedpriv reads {CHECKPOINT_VERSION}"
        )
    return state


def refuse_other_origin(folder: RunFolder, state: Mapping[str, Any], origin: Origin) -> None:
    """Raise ConfigError where the run's data, code of the user's own or key are others.

    Rounds that a killed process ran after its last checkpoint are run again, with the same noise. That
    releases nothing new if they come out bit for bit the same, which the ledger sees to. With other data, or
    other code of the user's, the difference of the two releases has no noise.
    """
    if state["run"] != origin.run:
        raise ConfigError(
            f"resume: the data, code of your own that the configuration names, or the secret key have "
            f"changed since {folder.path} was begun; start anew"
        )


def refuse_other_identity(
    folder: RunFolder, saved: dict[str, object], wanted: dict[str, object]
) -> None:
    """Raise ConfigError naming the first keys in which two runs differ.

    Values are compared as they are written: 2 and 2.0 have different streams.

    Args:
        folder: The run folder, for the message.
        saved: The identity of the run in the folder.
        wanted: The identity of the run that is asked for.
    """
    keys = sorted({*saved, *wanted})
    differing = [k for k in keys if repr(saved.get(k)) != repr(wanted.get(k))]
    if differing:
        first = "; ".join(
            f"{k} is {show(saved.get(k))} there and {show(wanted.get(k))} here"
            for k in differing[:3]
        )
        more = f" (and {len(differing) - 3} more)" if len(differing) > 3 else ""
        raise ConfigError(f"resume: {folder.path} holds a different run: {first}{more}")
