"""Stamps: notes of the configurations that have passed ``fedpriv verify`` on this machine.

A published run with code outside fedpriv needs a stamp. A stamp is a file in the user's cache, named by a
digest of fedpriv's own source, of the user's files with what they import, and of the configuration's keys.
The digest leaves out what a mechanism does not depend on: a model of fedpriv's own, the sizes of its
partition, T, seeds, and keys that only look at a run. So a verification may be small, and on made-up
records.

A stamp reminds of a forgotten verification. It is no protection against forging.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

import fedpriv
from fedpriv.common import config as configuration
from fedpriv.common.errors import ConfigError
from fedpriv.common.files import write_json
from fedpriv.data.storage import cache_folder
from fedpriv.experiment.consent import command_again
from fedpriv.experiment.own_code import digest_of_targets, own_targets

VERSION = 1
_LEFT_OUT = frozenset(
    (
        *("seed", "noise_seed", "rounds", "publish", "publish_test_metrics"),
        *("evaluation_interval", "audit", "dataset.path", "shadow", "dry_run", "resume"),
    )
)
_SIZES = ("model", "partition")
"""Groups whose keys only say how large a run is where the option is fedpriv's."""


def stamp_of(config: DictConfig) -> Path | None:
    """Return the path that the stamp of a configuration has or would have; None if all code is fedpriv's."""
    chosen = config.copy()
    OmegaConf.set_struct(chosen, False)
    chosen.rounds, chosen.seed = (
        1,
        0,
    )  # so that keys which follow from T or a seed do not count either
    values = configuration.identity(chosen)
    targets = own_targets(values)
    if not targets:
        return None
    counted = {key: value for key, value in values.items() if key not in _LEFT_OUT}
    for group in _SIZES:
        if group in values:  # an option of fedpriv
            counted = {k: value for k, value in counted.items() if not k.startswith(f"{group}.")}
    if "model" in values:
        del counted["model"]
    facts = (VERSION, _source_digest(), digest_of_targets(targets.values()), counted)
    text = json.dumps(facts, sort_keys=True, default=str)
    name = hashlib.sha256(text.encode()).hexdigest()[:32]
    return cache_folder() / "verified" / f"{name}.json"


def write_stamp(path: Path, facts: dict[str, object]) -> None:
    """Write the stamp of a configuration that has passed all checks.

    Args:
        path: Path of the stamp, by :func:`stamp_of`.
        facts: Further entries of the file, for readers.

    Raises:
        WriteError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    when = datetime.now(UTC).isoformat(timespec="seconds")
    stamp = {"schema_version": VERSION, "stamp": path.stem, "verified": when, **facts}
    write_json(path, stamp)


def refuse_without_stamp(config: DictConfig, overrides: Sequence[str] | None = None) -> None:
    """Raise ConfigError for a published run whose code outside fedpriv was not verified.

    Args:
        config: The configuration.
        overrides: The overrides of the command, for the commands that the message names; None if unknown.
    """
    path = stamp_of(config)
    if path is None or _is_stamp(path):
        return
    targets = own_targets(configuration.identity(config))
    named = ", ".join(f"{key} is {target}" for key, target in targets.items())
    given = ["OVERRIDES"] if overrides is None else overrides
    hint = (
        f"run {command_again('verify', given)} (only rounds, seeds, a model of fedpriv's and the sizes of "
        "its partition may be others, and the records may be made up, --synthetic), then run "
        f"{command_again('train', given, 'publish=true')}"
    )
    allowed = f"false with code outside fedpriv ({named}) that has not passed fedpriv verify as it stands now"
    raise ConfigError("publish", True, allowed, hint)


def _is_stamp(path: Path) -> bool:
    """Return whether the file is a whole stamp."""
    try:
        stamp = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(stamp, dict) and stamp.get("stamp") == path.stem


@functools.cache
def _source_digest() -> str:
    """Return a digest of the files of fedpriv, which unlike a version tells working copies apart."""
    root = Path(fedpriv.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
