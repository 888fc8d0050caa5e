"""Stamps: which configurations with code outside fedpriv have passed ``fedpriv verify`` on this machine.

A published run whose code is not all fedpriv's needs one. A stamp is a file in the user's cache, named by a
digest of fedpriv's own source, of the user's files with what they import, and of the configuration's keys.
What a mechanism does not depend on is left out: a model of fedpriv's own, the sizes of its partition, T,
seeds, and keys that only look at a run. So a verification may be small, and on made-up records.

A stamp finds what was forgotten; who wants to forge one can.
"""

from __future__ import annotations

import functools
import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

import fedpriv
from fedpriv import config as configuration
from fedpriv.common.attributes import PACKAGE
from fedpriv.common.errors import ConfigError
from fedpriv.common.files import write_text
from fedpriv.data.storage import cache_folder
from fedpriv.experiment.own_code import digest_of_targets, own_targets

VERSION = 1
_LEFT_OUT = frozenset(
    (
        *("seed", "noise_seed", "rounds", "publish", "publish_test_metrics"),
        *("evaluation_interval", "audit", "dataset.path", "shadow", "dry_run", "resume"),
    )
)
_SIZES = ("model", "partition")
"""Groups whose keys, but for a ``_target_``, only say how large a run is where the class is fedpriv's."""


def stamp_of(config: DictConfig) -> Path | None:
    """Return where the stamp of a configuration lies, or would; None where all of its code is fedpriv's."""
    chosen = config.copy()
    OmegaConf.set_struct(chosen, False)
    chosen.rounds, chosen.seed = 1, 0  # keys that follow from T or a seed are the same for all
    values = configuration.identity(chosen)
    targets = own_targets(values)
    if not targets:
        return None
    kept = {
        key: value for key, value in values.items() if value is not None and key not in _LEFT_OUT
    }
    for group in _SIZES:
        target = str(values.get(f"{group}._target_"))
        if target.startswith(PACKAGE):
            kept = {key: value for key, value in kept.items() if not key.startswith(f"{group}.")}
            if group != "model":
                kept[f"{group}._target_"] = target
    facts = (VERSION, _source(), digest_of_targets(targets.values()), kept)
    text = json.dumps(facts, sort_keys=True, default=str)
    name = hashlib.sha256(text.encode()).hexdigest()[:32]
    return cache_folder() / "verified" / f"{name}.json"


def write_stamp(path: Path, facts: dict[str, object]) -> None:
    """Note that the configuration of this stamp has passed all checks. Raises WriteError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    when = datetime.now(UTC).isoformat(timespec="seconds")
    stamp = {"schema_version": VERSION, "stamp": path.stem, "verified": when, **facts}
    write_text(path, json.dumps(stamp, indent=2) + "\n")


def refuse_without_stamp(config: DictConfig) -> None:
    """Raise ConfigError for a run with ``publish=true`` and code outside fedpriv that was not verified."""
    path = stamp_of(config)
    if path is None or _is_stamp(path):
        return
    targets = own_targets(configuration.identity(config))
    named = ", ".join(f"{key} is {target}" for key, target in targets.items())
    raise ConfigError(
        "publish",
        True,
        f"false with code outside fedpriv ({named}) that has not passed fedpriv verify as it stands now",
        "run fedpriv verify with the same overrides first; only rounds, seeds, a model of fedpriv's and the "
        "sizes of its partition may be others, and the records may be made up (--synthetic)",
    )


def _is_stamp(path: Path) -> bool:
    """Whether there is such a stamp, and it is whole."""
    try:
        stamp = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(stamp, dict) and stamp.get("stamp") == path.stem


@functools.cache
def _source() -> str:
    """Return a digest of the files of fedpriv: a version that tells working copies apart as well."""
    root = Path(fedpriv.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
