"""Figures' YAMLs read without Hydra are what Hydra composes."""

from __future__ import annotations

import json

import pytest
from omegaconf import OmegaConf

from fedpriv.common import config
from fedpriv.common.config import compose, options
from fedpriv.study.figures.loading import load_section

PLAIN = """\
# @package _global_
# ours
defaults:
  - /work: base
  - override /hydra/sweeper: curves
  - _self_
figure:
  work: ours
  quick: [rounds=2]
  points: {key: delta, values: [1e-5, 1e-3]}
"""


def composed(name: str, folder=None) -> dict:
    return OmegaConf.to_container(compose([f"+figure={name}"], folder).figure, resolve=True)


@pytest.fixture
def alone(monkeypatch):
    """Hydra is not asked."""

    def refuse(*arguments):
        raise AssertionError("composed by Hydra")

    monkeypatch.setattr(config, "compose", refuse)


@pytest.fixture
def mine(tmp_path):
    """(text) → the folder with it as the figure own/tiny."""

    def write(text: str):
        path = tmp_path / "figure" / "own" / "tiny.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return tmp_path

    return write


@pytest.mark.few(3)
@pytest.mark.parametrize("name", [name for name, _ in options("figure")])
def test_every_figure_is_what_hydra_composes(name, request):
    expected = json.dumps(composed(name))  # the order too
    request.getfixturevalue("alone")
    assert json.dumps(load_section(name)) == expected


def test_a_figure_of_the_users_own_is_what_hydra_composes(mine, request):
    folder = mine(PLAIN)
    expected = composed("own/tiny", folder)
    request.getfixturevalue("alone")
    assert load_section("own/tiny", folder) == expected
    assert expected["points"]["values"] == [1e-5, 1e-3]


def test_a_figure_on_a_work_of_the_users_own_is_what_hydra_composes(mine, tmp_path, request):
    folder = mine(PLAIN.replace("/work: base", "/work: ours"))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "ours.yaml").write_text(
        "# @package figure\ndefaults:\n  - base\n  - _self_\nquick: [rounds=9]\nnotes: ours\n"
    )
    expected = composed("own/tiny", folder)
    request.getfixturevalue("alone")
    assert load_section("own/tiny", folder) == expected
    assert (expected["notes"], expected["quick"]) == ("ours", ["rounds=2"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("work: ours", "work: ${algorithm.name}"),
        ("  - override /hydra/sweeper: curves\n", ""),
        ("  - /work: base\n", "  - /work: base\n  - override /dataset: mnist\n"),
        ("figure:", "rounds: 3\nfigure:"),
    ],
)
def test_for_anything_else_hydra_is_asked(old, new, mine):
    folder = mine(PLAIN.replace(old, new))
    assert load_section("own/tiny", folder) == composed("own/tiny", folder)


def test_a_yaml_that_has_changed_is_read_again(mine):
    before = load_section("own/tiny", mine(PLAIN))
    after = load_section("own/tiny", mine(PLAIN.replace("rounds=2", "rounds=22")))
    assert (before["quick"], after["quick"]) == (["rounds=2"], ["rounds=22"])


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "figure: [",
        "figure: {a: 1, a: 2}",
        "- a",
        "\t",
        "figure: 3",
        "figure: []",
        "figure: a",
        "defaults: 3",
    ],
)
@pytest.mark.parametrize("flag", ["--list", "--draw"])
def test_a_yaml_that_is_no_figure_is_refused_in_a_sentence(flag, text, mine, command):
    mine(f"# @package _global_\n{text}")
    said = command("figure", "own/tiny", flag, "--config-dir", ".")
    assert said.status == 2
    assert "figure" in said.sentence
