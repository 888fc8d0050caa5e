"""Where the configuration lives, and how it is composed.

``conf/`` stands at the top level of a checkout; a wheel carries it inside the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

GROUPS = (
    "dataset",
    "partition",
    "model",
    "clipper",
    "noise_schedule",
    "accountant",
    "algorithm",
)


def conf_dir() -> Path:
    """The folder of the YAML groups: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def compose(overrides: Sequence[str] = ()) -> DictConfig:
    """The configuration that ``fedpriv train <overrides>`` would run; for notebooks and tests.

    >>> compose(["algorithm=dp_fl", "dataset=mnist"]).algorithm.sample_rate
    0.013
    """
    if GlobalHydra.instance().is_initialized():
        return hydra_compose(config_name="config", overrides=list(overrides))
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        return hydra_compose(config_name="config", overrides=list(overrides))


def options(group: str, folder: Path | None = None) -> Iterator[tuple[str, str]]:
    """(name, one-line description) of each option of a group, from the YAML's leading comment."""
    base = (folder or conf_dir()) / group
    for path in sorted(base.rglob("*.yaml")):
        yield path.relative_to(base).with_suffix("").as_posix(), describe(path)


def describe(path: Path) -> str:
    """The first comment line of a YAML that says something."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line.lstrip("# ").strip()
        if text and not text.startswith("@package"):
            return text
    return ""


NOT_IDENTITY = ("runtime", "dry_run", "resume", "dataset.path", "dataset.download")
"""Keys that cannot change a result."""


def identity(config: DictConfig) -> dict[str, object]:
    """What makes a run that run: the resolved values of all keys that can change a result."""
    values = flatten(OmegaConf.to_container(config, resolve=True))
    return {
        key: value
        for key, value in values.items()
        if not any(key == out or key.startswith(out + ".") for out in NOT_IDENTITY)
    }


def flatten(tree: dict, prefix: str = "") -> dict[str, object]:
    """``{"a": {"b": 1}}`` → ``{"a.b": 1}``."""
    flat: dict[str, object] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def dump(config: DictConfig) -> str:
    """The resolved configuration as YAML."""
    return yaml.safe_dump(OmegaConf.to_container(config, resolve=True), sort_keys=False)
