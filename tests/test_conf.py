"""conf/: every option of every group composes, and its parts can be made."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import yaml
from hydra.utils import get_object
from loops import for_each
from omegaconf import DictConfig, OmegaConf

import fedpriv
from fedpriv.common.groups import ADDED, GROUPS, IN_TABLES, OF_NOTHING, conf_dir, options
from fedpriv.experiment import starting_point
from fedpriv.experiment.instantiate import instantiate

FILES = {path.relative_to(conf_dir()).as_posix(): path for path in conf_dir().rglob("*.yaml")}
ROOTS = ("config.yaml", *(f"{group}s.yaml" for group in IN_TABLES))
SHARED = ("keys", "work")
"""Folders of what several options or figures have in common."""
GIVEN = {
    "dataset=csv": ("dataset.path=table.csv", "dataset.label=y", "dataset.ranges={x: [0, 9]}"),
    "dataset=ipums": ("dataset.path=census.txt",),
    "clipper=median_histogram": ("rounds=10",),
    "clipper=poly": ("rounds=10",),
    "noise_schedule=recalculated": ("rounds=10",),
    "noise_schedule=uniform_budget": ("rounds=10",),
    "noise_schedule=none": ("algorithm=fedavg",),
    "algorithm=dp_ftrl": ("rounds=10",),
    "attack=backdoor": ("attack.trigger={_target_: fedpriv.attacks.PixelPattern}",),
    "attack=semantic": ("attack.trigger.indices=[1,2,3]",),
}
"""What an option cannot do without, or does not go with."""
PROJECTED, NO_KEYS = ("naseri_cdp", "norm_bounding", "weak_dp"), ("proximal",)
"""Options of a class with an argument that is no key of theirs."""


@pytest.fixture(autouse=True)
def records_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("census.txt").write_text("1 2 0\n3 4 1\n" * 50)
    Path("table.csv").write_text("x,y\n" + "1,a\n2,b\n" * 50)


def composed(*overrides: str) -> DictConfig:
    return fedpriv.compose([*overrides, *GIVEN.get(overrides[0], ())])


def made(config: DictConfig) -> dict[str, object]:
    """Every part of a configuration by its key, None for a group that is nothing."""
    OmegaConf.resolve(config)
    parts = {}
    for group in GROUPS:
        if group == "tracker" and config.tracker is not None:
            parts |= {
                key: instantiate(config, key) for key in (f"tracker.{n}" for n in config.tracker)
            }
        else:
            parts[group] = None if config[group] is None else instantiate(config, group)
    return parts


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("group", "option"), [(group, option) for group in GROUPS for option, _ in options(group)]
)
def test_every_option_makes_its_part(group, option):
    config = composed(f"{group}={option}")
    key = f"tracker.{option}" if group == "tracker" and option != "none" else group
    part = made(config)[key]
    if OF_NOTHING.get(group) == option:
        assert part is None  # runs from before there was the group keep their identity
        return
    node = OmegaConf.select(config, key)
    kind = get_object(node._target_)
    if isinstance(kind, type):
        assert type(part) is kind
        fields = attrs.fields(kind) if attrs.has(kind) else ()
        without_key = NO_KEYS if option in PROJECTED else ()
        arguments = {field.alias for field in fields if field.init}.difference(without_key)
        of_the_run = {"population"} if group == "dataset" else set()
        of_the_run |= {"_option_"} if group != "tracker" else set()
        of_the_run |= set(starting_point.KEYS) if group == "model" else set()
        assert set(node) == {"_target_", *arguments, *of_the_run}


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("group", "option"),
    [(group, option) for group in ("experiment", "recipe") for option, _ in options(group)],
)
def test_the_parts_of_every_ready_made_configuration_can_be_made(group, option):
    parts = made(composed(f"+{group}={option}"))
    assert all(parts[key] is not None for key in GROUPS if key not in OF_NOTHING)


@pytest.mark.few(3)
@pytest.mark.parametrize("protocol", [name for name, _ in options("protocol")])
def test_the_parts_of_every_protocol_can_be_made(protocol):
    names = sorted((name for name, _ in options("dataset")), key=len, reverse=True)
    dataset = next(name for name in names if protocol.endswith(f"_{name}"))
    config = composed(f"algorithm={protocol.removesuffix(f'_{dataset}')}", f"dataset={dataset}")
    assert config.protocol
    if dataset == "csv":  # a table of the user's own
        config.dataset = composed("dataset=digits").dataset
    made(config)


@for_each("figure", [name for name, _ in options("figure")])
def test_every_figure_composes(figure):
    """What its curves run is tested with the figures."""
    assert composed(f"+figure={figure}").figure.title


def named_by(path: Path) -> Iterator[str]:
    """Files that a YAML names in its defaults."""
    for default in (yaml.safe_load(path.read_text("utf-8")) or {}).get("defaults", ()):
        for group, option in default.items() if isinstance(default, dict) else [(None, default)]:
            folder = path.parent if group is None else conf_dir() / group.split()[-1].strip("/")
            name = str(option).partition("@")[0]
            place = conf_dir() / name[1:] if name.startswith("/") else folder / name
            yield f"{place}.yaml".removeprefix(f"{conf_dir()}/")


@functools.cache
def named() -> set[str]:
    return {name for path in FILES.values() for name in named_by(path)}


@for_each("name", FILES)
def test_every_file_is_an_option_or_named_by_one(name):
    group = name.partition("/")[0]
    if group in SHARED:
        assert name in named()
    else:
        assert group in (*GROUPS, *ADDED) or name in ROOTS or name.startswith("hydra/sweeper/")


@pytest.mark.parametrize("sweeper", ["curves", "search"])
def test_every_sweeper_composes(sweeper):
    assert composed(f"hydra/sweeper={sweeper}").dataset
