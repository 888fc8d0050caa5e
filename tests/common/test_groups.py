"""Groups of the configuration: the option that a part comes from."""

from __future__ import annotations

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from fedpriv.common.groups import GROUPS, conf_dir, option_of

MADE = [
    (path.parent.name, path.stem)
    for group in GROUPS
    for path in sorted((conf_dir() / group).glob("*.yaml"))
    if OmegaConf.load(path).get("_target_") and not path.stem.startswith("shards")
]


@pytest.mark.parametrize(("group", "name"), MADE)
def test_a_part_is_named_as_its_option(group, name):
    kind = get_class(OmegaConf.load(conf_dir() / group / f"{name}.yaml")._target_)
    assert option_of(group, object.__new__(kind)) == name


def test_a_part_that_several_options_make_is_named_by_its_class():
    from fedpriv.data.partitions import Shards

    assert option_of("partition", object.__new__(Shards)) == "Shards"


def test_a_part_of_ones_own_is_named_by_its_class():
    class Clipper:
        pass

    assert option_of("clipper", Clipper()) == "Clipper"
