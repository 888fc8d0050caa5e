"""``fedpriv figure --list``: a line for every figure; with a name, the runs of one."""

from __future__ import annotations

import re

import pytest

from fedpriv.common import config
from fedpriv.common.config import options


@pytest.fixture
def listed(command, monkeypatch):
    """(arguments) → the lines of ``fedpriv figure … --list``, without Hydra."""

    def refuse(*arguments):
        raise AssertionError("composed by Hydra")

    def run(*arguments: str) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setattr(config, "compose", refuse)
            said = command("figure", *arguments, "--list")
        assert (said.status, said.err) == (0, "")
        return [line.rstrip() for line in said.out.splitlines()]

    return run


def rows(lines: list[str]) -> list[list[str]]:
    cells = [re.split(r"[│┃| ]+", line.strip("│┃| ")) for line in lines]
    return [row for row in cells if "/" in row[0]]


@pytest.mark.thorough
def test_every_figure_has_a_line(listed):
    assert sorted(row[0] for row in rows(listed())) == sorted(name for name, _ in options("figure"))


def test_figures_stand_in_the_order_of_their_numbers(listed):
    names = [row[0] for row in rows(listed("wei"))]
    assert names.index("wei/fig5") < names.index("wei/fig10")


def test_the_list_has_the_figures_of_the_users_own_alone_where_asked(listed, write):
    write()
    assert [row[0] for row in rows(listed("own", "--config-dir", "mine"))] == ["own/tiny"]


def test_the_list_refuses_what_it_does_not_show(command):
    said = command("figure", "--list", "epsilon=1")
    assert said.status == 2
    assert "does not show what epsilon=1 changes" in said.sentence


def test_of_one_figure_its_runs_are_shown(command, write, wide_cells):
    write()
    said = command("figure", "own/tiny", "--list", "--config-dir", "mine", "--seeds", "0,1,2")
    assert (said.status, said.err) == (0, "")
    assert "own/tiny: 6 runs, 0 done" in said.out
    (loud,) = [line for line in said.out.splitlines() if " loud " in line]
    assert "0: not run, 1: not run, 2: not run" in loud


@pytest.mark.thorough
def test_of_one_figure_it_is_said_what_failed(command, make, write, tiny):
    tiny["curves"]["quiet"]["overrides"] += ["epsilon=0.001", "algorithm.sampling=fixed_size"]
    assert make("--seeds", "0").status == 1
    said = command("figure", "own/tiny", "--list", "--config-dir", "mine", "--seeds", "0")
    assert "failed: digits/quiet/seed 0: epsilon must be >= " in " ".join(said.out.split())
