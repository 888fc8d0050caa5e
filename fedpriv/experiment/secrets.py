"""Where the secret randomness of a run comes from: seeds of its configuration, or the operating system.

Either way the streams also depend on what the run is: its identity, its number of rounds, digests of its
data, of its initial weights and of the user's own code. So two runs never share lots, cohorts or noise, but
for simulations that ask for it (``paired``) so that they can be compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from fedpriv.common import config as configuration
from fedpriv.common.errors import ConfigError
from fedpriv.common.secret_streams import KEY_BYTES, SecretStreams, derived_key
from fedpriv.experiment.own_code import digest_of_parts, digest_of_targets, own_targets

if TYPE_CHECKING:
    from fedpriv.algorithms.run_context import RunContext
    from fedpriv.experiment.settings import Settings
    from fedpriv.store.folder import RunFolder


_LEFT_OUT = (
    *("evaluation_interval", "audit", "publish_test_metrics", "dataset.path"),
    *("averaging", "averaging_decay", "averaging_start"),
    "chunk",  # as threads do, it changes the rounding of sums alone
)
_LATER = frozenset(
    f"{group}.{key}"
    for group, keys in {
        "algorithm": (
            *("momentum", "beta1", "beta2", "optimizer_epsilon", "initial_accumulator"),
            *("second_moment_floor", "proximal", "warm_start", "learning_rate_decay"),
            *("augmentation_multiplicity", "random_flip", "random_crop", "crop_fill"),
        ),
        "model": ("activation", "tempering", "weight_standardization"),
        "features": ("statistics_noise_multiplier", "statistics_clip_norm"),
    }.items()
    for key in keys
)
"""Keys of groups that came once streams of runs had been drawn: null is the same as absent."""


def run_digest(config: DictConfig, rounds: int | None, context: RunContext) -> str:
    """What the run is, in 64 hexadecimal digits: its identity with its T, its data, its initial weights and
    engine, and code of the user's own with what its objects hold.

    Device, threads and versions are left out: the same seed is the same run on a colleague's machine. So
    are where the data lie, for the digest is of what they are, and keys that only look at the run: however
    often it is evaluated, it releases the same. The engine counts, for engines differ by more than rounding
    where the terms of a gradient cancel.
    """
    identity = {**configuration.identity(config), "rounds": rounds}
    # of the root's keys null is the same as absent, so that a later one leaves the streams alone
    kept = {
        k: v
        for k, v in identity.items()
        if k not in _LEFT_OUT and (v is not None or ("." in k and k not in _LATER))
    }
    targets = own_targets(kept).values()
    parts = [
        json.dumps(kept, sort_keys=True, default=str),
        context.data.digest,
        context.model.digest,
        context.engine.name,
        digest_of_targets(targets),
    ]
    if targets:
        parts.append(digest_of_parts(context, targets))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def streams_of_run(
    settings: Settings, run: str, folder: RunFolder | None
) -> tuple[SecretStreams, str]:
    """(the streams of the run with this digest, what tells this run from others): a published one needs the
    key in its folder, and is not another one with the same configuration and another key. Paired runs have
    the streams of their name and seeds, by purpose, round and client, whatever else they are."""
    if settings.publish:
        assert folder is not None
        key = read_key(folder)
        return SecretStreams.of_run(key, run), derived_key(key, "name of the run", run).hex()
    whose = run if settings.paired is None else f"paired {settings.paired}"
    return SecretStreams.simulated(settings.seed, settings.noise_seed, whose), run


def streams_of_search() -> SecretStreams:
    """Those of one search, from the operating system; nobody can have them again."""
    return SecretStreams.of_run(secrets.token_bytes(KEY_BYTES), "search")


def create_key(folder: RunFolder) -> None:
    """Write 256 bits from the operating system's entropy to a file that its owner alone may read."""
    folder.secret_key.unlink(missing_ok=True)  # of a run that was killed before it was one
    descriptor = os.open(folder.secret_key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(KEY_BYTES) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_key(folder: RunFolder) -> bytes:
    """The key of a published run. Raises ConfigError where it is not there or is not one."""
    try:
        key = bytes.fromhex(folder.secret_key.read_text(encoding="ascii"))
    except (OSError, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"resume: {folder.path} is a run with publish=true, which goes on only with its key; "
            f"{folder.secret_key} is missing or damaged"
        )
    return key
