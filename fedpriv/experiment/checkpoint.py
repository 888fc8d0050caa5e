"""Checkpoints: the whole state of a run between two rounds, in one file that is whole or not there.

Every random draw is a function of the run and of (purpose, round, client), so no generator state is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.common.errors import ConfigError, show
from fedpriv.common.files import write_atomically
from fedpriv.common.secret_streams import STREAM_VERSION
from fedpriv.results.folder import RunFolder, not_resumable

if TYPE_CHECKING:
    import torch


CHECKPOINT_VERSION = 4
"""Of what a checkpoint holds: one of another version is not resumed."""


@dataclass(frozen=True)
class Origin:
    """Where a state comes from. ``identity``: the run; ``run``: its digest, with that of data and own
    code (of a published run, of its key too); ``numerics``: what decides how its sums are rounded."""

    identity: dict[str, object]
    run: str
    numerics: dict[str, str | int]

    def state_dict(self) -> dict[str, Any]:
        return {
            "identity": self.identity,
            "run": self.run,
            "numerics": self.numerics,
            "streams": STREAM_VERSION,
        }


def save(folder: RunFolder, state: dict[str, Any]) -> None:
    """Write ``checkpoint.pt`` atomically."""
    import torch

    full = {"schema_version": CHECKPOINT_VERSION, **state}
    write_atomically(folder.checkpoint, lambda file: torch.save(full, file), mode="wb")


def load(folder: RunFolder, identity: dict[str, object], device: torch.device) -> dict[str, Any]:
    """Read a checkpoint of the same identity and schema. Raises ConfigError otherwise.

    A checkpoint is a pickle: resume only folders you trust, as with any torch checkpoint.
    """
    import torch

    try:
        state = torch.load(folder.checkpoint, map_location=device, weights_only=False)
    except FileNotFoundError:
        raise not_resumable(str(folder.path)) from None
    except Exception as error:  # reading a damaged pickle can raise anything
        raise ConfigError(
            f"resume: {folder.checkpoint} cannot be read ({type(error).__name__}); start anew"
        ) from None
    if not isinstance(state, dict) or state.get("schema_version") != CHECKPOINT_VERSION:
        found = state.get("schema_version") if isinstance(state, dict) else None
        raise ConfigError(
            f"resume: {folder.path} was written with checkpoint schema {found}, this version of "
            f"fedpriv reads {CHECKPOINT_VERSION}"
        )
    refuse_other_identity(folder, state.get("identity", {}), identity)
    return state


def refuse_other_origin(
    folder: RunFolder, state: Mapping[str, Any], origin: Origin, published: bool
) -> None:
    """Raise ConfigError where the rounds since the checkpoint would not be those that were run.

    Rounds that a killed process ran after its last checkpoint are run again, with the same noise. That
    releases nothing new if they come out bit for bit the same. Other data or other code of the user's
    would release a difference without noise; another machine a difference of rounding, which is refused
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
    differing = [k for k, v in origin.numerics.items() if state["numerics"].get(k) != v]
    if published and differing:
        words = "; ".join(
            f"{k} was {show(state['numerics'].get(k))} and is {show(origin.numerics[k])}"
            for k in differing
        )
        raise ConfigError(
            f"resume: {folder.path} is a run with publish=true and goes on only where its sums are rounded "
            f"as before: {words}. Rounds run again with the same noise and other rounding would give the "
            "noise away; resume it there, or start anew"
        )


def refuse_other_identity(
    folder: RunFolder, saved: dict[str, object], wanted: dict[str, object]
) -> None:
    """Raise ConfigError naming the first keys in which two runs differ."""
    differing = [k for k in sorted({*saved, *wanted}) if saved.get(k) != wanted.get(k)]
    if differing:
        first = "; ".join(
            f"{k} is {show(saved.get(k))} there and {show(wanted.get(k))} here"
            for k in differing[:3]
        )
        more = f" (and {len(differing) - 3} more)" if len(differing) > 3 else ""
        raise ConfigError(f"resume: {folder.path} holds a different run: {first}{more}")
