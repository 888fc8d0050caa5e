"""Groups of the configuration: the option that a part comes from, options that are rows of a table."""

from __future__ import annotations

import re

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

import fedpriv
from fedpriv.common.groups import (
    GROUPS,
    IN_TABLES,
    conf_dir,
    option_of,
    options,
    table_options,
    table_rows,
)

MADE = [
    (path.parent.name, path.stem)
    for group in GROUPS
    for path in sorted((conf_dir() / group).glob("*.yaml"))
    if re.search(r"^_target_:", path.read_text("utf-8"), re.M)
    and not path.stem.startswith("shards")
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


@pytest.mark.parametrize("group", IN_TABLES)
def test_rows_of_a_table_are_options_with_a_description(group):
    found = dict(options(group))
    assert list(found) == list(table_options(conf_dir(), group))
    assert list(found) == sorted(found)
    assert all(10 < len(about) <= 120 and "\n" not in about for about in found.values())


@pytest.mark.parametrize("group", IN_TABLES)
def test_names_of_rows_need_no_quotes_on_the_command_line(group):
    assert all(name.replace("_", "").isalnum() for name, _ in options(group))


def test_every_protocol_is_that_of_an_algorithm_and_a_data_set():
    algorithms = {name for name, _ in options("algorithm")}
    datasets = {name for name, _ in options("dataset")}
    rows = table_rows(conf_dir(), "protocol")
    assert set(rows) <= algorithms
    assert all(set(row) <= datasets for row in rows.values())


@pytest.mark.parametrize("name", ["dp_fl_mnist", "naseri_ldp_ubuntu_irc"])
def test_a_row_is_the_protocol_of_its_algorithm_and_data_set(name):
    algorithm, dataset = next(
        (row, cell)
        for row, cells in table_rows(conf_dir(), "protocol").items()
        for cell in cells
        if f"{row}_{cell}" == name
    )
    config = fedpriv.compose([f"algorithm={algorithm}", f"dataset={dataset}"])
    content = table_options(conf_dir(), "protocol")[name].content
    assert content.items() <= config.protocol.items()
    assert config.algorithm.sample_rate == content["sample_rate"]


def test_a_group_without_a_table_has_no_rows(tmp_path):
    assert table_options(conf_dir(), "clipper") == {}
    assert table_options(tmp_path, "protocol") == {}
