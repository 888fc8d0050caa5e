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
from fedpriv.common.attributes import PACKAGE
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
"""Groups whose keys, but for a ``_target_``, only say how large a run is where the class is fedpriv's."""


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
    counted = {
        key: value for key, value in values.items() if value is not None and key not in _LEFT_OUT
    }
    for group in _SIZES:
        target = str(values.get(f"{group}._target_"))
        if target.startswith(PACKAGE):
            counted = {k: value for k, value in counted.items() if not k.startswith(f"{group}.")}
            if group != "model":
                counted[f"{group}._target_"] = target
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


def lacks_isolation(config: DictConfig) -> bool:
    """Return whether a configuration has a model of the user's own whose records are not computed alone."""
    return "model" in own_targets(configuration.identity(config)) and not config.isolate_records


def refuse_without_stamp(config: DictConfig, overrides: Sequence[str] | None = None) -> None:
    """Raise ConfigError for a published run whose code outside fedpriv was not verified.

    A model of the user's own must also compute each record alone. The message names all that is missing.

    Args:
        config: The configuration.
        overrides: The overrides of the command, for the commands that the message names; None if unknown.
    """
    isolate = lacks_isolation(config)
    isolated = config
    if isolate:
        # The stamp of the run that will be published is needed, which isolates records.
        isolated = config.copy()
        isolated.isolate_records = True
    path = stamp_of(isolated)
    verified = path is None or _is_stamp(path)
    if verified and not isolate:
        return
    targets = own_targets(configuration.identity(config))
    named = ", ".join(f"{key} is {target}" for key, target in targets.items())
    more = ("isolate_records=true",) if isolate else ()
    given = ["OVERRIDES"] if overrides is None else overrides
    missing = []
    if isolate:
        missing.append(
            "isolate_records must be true with publish=true and a model of your own: whether its code lets "
            "one record reach another can be probed, but not proven"
        )
    if not verified:
        missing.append(
            f"it has not passed fedpriv verify as it stands now: run {command_again('verify', given, *more)} "
            "(only rounds, seeds, a model of fedpriv's and the sizes of its partition may be others, and the "
            "records may be made up, --synthetic)"
        )
    missing.append(f"then run {command_again('train', given, *more, 'publish=true')}")
    # All that is missing is named at once: a verification may take minutes.
    steps = "; ".join(f"({number}) {step}" for number, step in enumerate(missing, 1))
    allowed = f"false with code outside fedpriv ({named}) while something is missing"
    raise ConfigError("publish", True, allowed, steps)


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
