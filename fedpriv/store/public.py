"""``public/``: the part of a run with ``publish=true`` that may be given away."""

from __future__ import annotations

import shutil
from typing import Any

import yaml

from fedpriv.common.files import write_json, write_text
from fedpriv.store.folder import RunFolder
from fedpriv.store.statement import privacy_words, publishable

_LEFT_OUT = ("seed", "noise_seed", "runtime", "resume", "dry_run", "audit", "tracker")
"""Keys of the configuration that are secret, or describe the machine of the run."""


def write_public(folder: RunFolder, privacy: dict[str, Any], test_metrics: bool) -> None:
    """Write ``public/`` anew; a run that may not be published has no such folder.

    The folder holds the model, the privacy statement and the configuration without seeds. Whatever was in it
    before is deleted.

    Args:
        folder: The run folder.
        privacy: The facts of the privacy statement.
        test_metrics: True adds ``metrics.csv``. Its test columns read the test records; all other columns
            follow from released values.

    Raises:
        WriteError: The model or the metrics cannot be copied, or a text cannot be written.
    """
    # First, so that a run which may no longer be published does not keep what it published before.
    shutil.rmtree(folder.public, ignore_errors=True)
    if publishable(privacy) is not None:
        return
    folder.public.mkdir()
    shutil.copyfile(folder.model, folder.public / folder.model.name)
    write_json(folder.public / folder.privacy_json.name, privacy)
    statement = privacy_words(privacy)
    write_text(
        folder.public / folder.privacy_text.name, statement + "\nThis folder may be published.\n"
    )
    config = _without_secrets(yaml.safe_load(folder.config.read_text(encoding="utf-8")))
    write_text(folder.public / folder.config.name, yaml.safe_dump(config, sort_keys=False))
    if test_metrics:
        shutil.copyfile(folder.metrics, folder.public / folder.metrics.name)


def _without_secrets(config: Any, top: bool = True) -> Any:
    """Return the configuration without seeds, those of groups included, and without paths of data."""
    if not isinstance(config, dict):
        return config
    left_out = _LEFT_OUT if top else ("seed", "path")
    return {
        key: _without_secrets(value, False) for key, value in config.items() if key not in left_out
    }
