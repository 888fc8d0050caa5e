"""The source of a run's secret randomness: seeds of its configuration, or the operating system.

Either way the streams also depend on the run itself: on its identity, its number of rounds, and digests of
its data, its initial weights and the user's own code. So two runs never share lots, cohorts or noise. The
exception are simulations that ask for it (``paired``), so that they can be compared.
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
from fedpriv.experiment.own_code import digest_of_targets, own_targets

if TYPE_CHECKING:
    from fedpriv.algorithms.run_context import RunContext
    from fedpriv.experiment.settings import Settings
    from fedpriv.store.folder import RunFolder


_LEFT_OUT = (
    *("evaluation_interval", "audit", "publish_test_metrics", "dataset.path"),
    *("averaging", "averaging_decay", "averaging_start"),
    "chunk",  # changes nothing but the rounding of sums, as threads do
)


def run_digest(config: DictConfig, rounds: int | None, context: RunContext) -> str:
    """Return the digest of a run, 64 hexadecimal digits, on which its streams depend.

    It covers the identity with T, the data, the initial weights, and files of the user's own code. Engine,
    device, threads and versions are left out: the same seed is the same run on a colleague's machine. So is
    the folder of the data, as their content counts. So are keys that only look at the run: however often it
    is evaluated, it releases the same.

    The initial weights are those before a warm start. Its keys and its records are covered, so that two warm
    starts with other records have other streams.

    Args:
        config: The configuration of the run.
        rounds: T; None if only the budget ends the run.
        context: Data and model.
    """
    identity = configuration.identity(config)
    counted = {key: value for key, value in identity.items() if key not in _LEFT_OUT}
    if rounds is not None:
        counted["rounds"] = rounds
    parts = [
        json.dumps(counted, sort_keys=True, default=str),
        context.data.digest,
        context.model.digest,
        digest_of_targets(own_targets(counted).values()),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def streams_of_run(
    settings: Settings, run: str, folder: RunFolder | None
) -> tuple[SecretStreams, str]:
    """Return the secret streams of a run, and the name that tells it from other runs.

    A published run needs the key in its folder; with another key, the same configuration is another run.
    Paired runs have the streams of their common name and seeds, whatever else they are.

    Args:
        settings: The root keys.
        run: The digest of the run, by :func:`run_digest`.
        folder: The run folder; None where the run is not published.

    Raises:
        ConfigError: The key of a published run is missing or damaged.
    """
    if settings.publish:
        assert folder is not None
        key = read_key(folder)
        return SecretStreams.of_run(key, run), derived_key(key, "name of the run", run).hex()
    owner = run if settings.paired is None else f"paired {settings.paired}"
    return SecretStreams.simulated(settings.seed, settings.noise_seed, owner), run


def streams_of_search() -> SecretStreams:
    """Return streams for one search, from the operating system's entropy. Nobody can draw them again."""
    return SecretStreams.of_run(secrets.token_bytes(KEY_BYTES), "search")


def create_key(folder: RunFolder) -> None:
    """Write 256 bits from the operating system's entropy to a file that its owner alone may read.

    A key that is there already is replaced, so call it for a new run only.
    """
    folder.secret_key.unlink(missing_ok=True)  # left by a run that was killed before it began
    # O_EXCL and the mode leave no moment at which another user could read or replace the key.
    descriptor = os.open(folder.secret_key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(KEY_BYTES) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_key(folder: RunFolder) -> bytes:
    """Return the key of a published run. Raise ConfigError where it is missing or damaged."""
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
