"""Checkpoints: the whole state of a run between two rounds, in one file that is written atomically.

A checkpoint holds tensors and plain values and is read with ``weights_only=True``, so that reading one from
somebody else runs no code of theirs. The checkpoint before is kept, and serves if the newest cannot be read.
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
    """Write ``checkpoint.pt`` atomically; the previous one becomes ``checkpoint_before.pt``.

    Args:
        folder: The run folder.
        state: The whole state of the run, of tensors and plain values.

    Raises:
        ConfigError: The state holds something else than tensors and plain values.
        WriteError: The file cannot be written. Both checkpoints are as they were.
    """
    full = plain({"schema_version": CHECKPOINT_VERSION, **state}, "the state")

    # Called when the new file is complete under another name. At any moment there is one whole
    # checkpoint, under the one name or the other.
    def keep_previous() -> None:
        if folder.checkpoint.exists():
            folder.checkpoint.replace(folder.checkpoint_before)

    write_tensors(folder.checkpoint, full, keep_previous)


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


def exists(folder: RunFolder) -> bool:
    """Return whether the folder has a checkpoint, the newest or the one before."""
    return folder.checkpoint.exists() or folder.checkpoint_before.exists()


def remove(folder: RunFolder) -> None:
    """Delete both checkpoints, if there are any."""
    folder.checkpoint.unlink(missing_ok=True)
    folder.checkpoint_before.unlink(missing_ok=True)


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


def read(folder: RunFolder, device: torch.device) -> tuple[dict[str, object], str | None]:
    """Return the newest checkpoint that can be read, and why it is not the newest one (None: it is).

    Args:
        folder: The run folder, in which nothing is changed.
        device: Device of the tensors that are returned.

    Raises:
        ConfigError: No checkpoint can be read. The message is about the newest.
    """
    try:
        return _read(folder.checkpoint, device), None
    except ConfigError as newest:
        try:
            return _read(folder.checkpoint_before, device), str(newest)
        except ConfigError:
            raise newest from None


def _read(path: Path, device: torch.device) -> dict[str, Any]:
    state: Any = saved_tensors(path, device)
    version = state.get("schema_version") if isinstance(state, dict) else None
    if version != CHECKPOINT_VERSION:
        raise ConfigError(
            f"{path} was written with checkpoint schema {show(version)}, this version of fedpriv reads "
            f"{CHECKPOINT_VERSION}"
        )
    return state


def load(
    folder: RunFolder, identity: dict[str, object], device: torch.device
) -> tuple[dict[str, object], str | None]:
    """Return a checkpoint of the run with this identity, and why it is not the newest one (None: it is).

    Where the newest cannot be read, the one before is renamed to take its place.

    Args:
        folder: The run folder.
        identity: The identity of the run that is to go on.
        device: Device of the tensors that are returned.

    Raises:
        ConfigError: No checkpoint can be read, or it is of another run.
    """
    try:
        state, passed_over = read(folder, device)
    except ConfigError as error:
        raise ConfigError(f"resume: {error}; start anew") from None
    saved_identity: Any = state.get("identity", {})
    refuse_other_identity(folder, saved_identity, identity)
    if (
        passed_over is not None
    ):  # else the next checkpoint would replace the good one by the damaged one
        folder.checkpoint_before.replace(folder.checkpoint)
    return state, passed_over


def refuse_other_origin(
    folder: RunFolder, state: Mapping[str, Any], origin: Origin, published: bool
) -> None:
    """Raise ConfigError where rounds that are run again would differ from those that were run.

    Rounds that a killed process ran after its last checkpoint are run again, with the same noise. That
    releases nothing new if they come out bit for bit the same. With other data, or other code of the user's,
    the difference of the two releases has no noise. Another machine only rounds differently; this is refused
    for a ``published`` run.
    """
    if state["run"] != origin.run:
        raise ConfigError(
            f"resume: the data, code of your own that the configuration names, or the secret key have "
            f"changed since {folder.path} was begun; start anew"
        )
    if published and origin.numerics["kind"] != "cpu":
        raise ConfigError(
            f"resume: {folder.path} is a run with publish=true on a {origin.numerics['kind']} device, whose "
            "sums do not come out the same bit for bit: rounds run again would give the noise away; start "
            "anew"
        )
    # A simulation may go on anywhere: nobody takes its noise for secret.
    differing = [k for k, v in origin.numerics.items() if state["numerics"].get(k) != v]
    if published and differing:
        differences = "; ".join(
            f"{k} was {show(state['numerics'].get(k))} and is {show(origin.numerics[k])}"
            for k in differing
        )
        raise ConfigError(
            f"resume: {folder.path} is a run with publish=true and goes on only where its sums are rounded "
            f"as before: {differences}. Rounds run again with the same noise and other rounding would give "
            "the noise away; resume it there, or start anew"
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
