"""``public/``: what of a run with ``publish=true`` may be given away, and nothing else."""

from __future__ import annotations

import shutil
from typing import Any

import yaml

from fedpriv.store.folder import RunFolder
from fedpriv.store.statement import privacy_words, publishable

_LEFT_OUT = ("seed", "noise_seed", "runtime", "resume", "dry_run", "audit", "tracker")
"""Keys of the configuration that are secret, or tell of the machine the run was made on."""


def write_public(folder: RunFolder, privacy: dict[str, Any], test_metrics: bool) -> None:
    """Make ``public/`` anew; there is none of a run that may not be published.

    It holds the model, the statement and the configuration without seeds, and with ``test_metrics`` the
    metrics, whose other columns follow from released values.
    """
    shutil.rmtree(folder.public, ignore_errors=True)
    if publishable(privacy) is not None:
        return
    folder.public.mkdir()
    folder.copy(folder.model, folder.public / folder.model.name)
    folder.write_json(folder.public / folder.privacy_json.name, privacy)
    words = privacy_words(privacy)
    folder.write_text(
        folder.public / folder.privacy_text.name, words + "\nThis folder may be published.\n"
    )
    config = _without_secrets(yaml.safe_load(folder.config.read_text(encoding="utf-8")))
    folder.write_text(folder.public / folder.config.name, yaml.safe_dump(config, sort_keys=False))
    if test_metrics:
        folder.copy(folder.metrics, folder.public / folder.metrics.name)


def _without_secrets(config: Any, top: bool = True) -> Any:
    """The configuration without seeds, of groups too, and without where data lie."""
    if not isinstance(config, dict):
        return config
    left_out = _LEFT_OUT if top else ("seed", "path")
    return {k: _without_secrets(v, False) for k, v in config.items() if k not in left_out}
