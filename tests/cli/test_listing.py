"""``fedpriv list``: groups, options, one line each."""

from __future__ import annotations

import pytest

from fedpriv.common.groups import GROUPS, options


@pytest.fixture(scope="module")
def listed():
    import contextlib
    import io

    from fedpriv import cli

    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert cli.run(["list"]) == 0
    return out.getvalue()


@pytest.mark.parametrize("group", GROUPS)
def test_every_option_is_listed_with_its_line(group, command):
    rows = [" ".join(row.split()) for row in command("list", group).out.splitlines()]
    for name, words in options(group):
        assert any(row.startswith(f"{name} {' '.join(words.split()[:4])}") for row in rows)


def test_every_group_is_listed(listed):
    rows = [row.strip() for row in listed.splitlines()]
    assert all(group in rows for group in GROUPS)


def test_the_ready_made_experiments_are_listed(listed):
    assert "adap_dpfl/published_mnist" in listed
    assert "+experiment=" in listed


def test_one_group_can_be_listed_alone(command):
    said = command("list", "clipper")
    assert said.status == 0
    assert "automatic" in said.out
    assert "validation_decay" not in said.out


def test_an_unknown_group_comes_with_the_nearest_name(command):
    assert "did you mean clipper?" in command("list", "cliper").sentence


def test_options_of_the_users_own_are_listed_too(command, tmp_path):
    folder = tmp_path / "mine" / "clipper"
    folder.mkdir(parents=True)
    (folder / "gentle.yaml").write_text("# clips with care\n_target_: gentle.Clipper\n")
    said = command("list", "clipper", "--config-dir", str(tmp_path / "mine"))
    assert "gentle" in said.out
    assert "clips with care" in said.out


def test_the_help_of_train_is_what_hydra_would_say(command):
    said = command("train", "--help").out
    assert said == command("train", "--help", "--config-dir", ".").out
    assert "figure/wei: " in said


def test_of_very_many_groups_of_ones_own_the_first_are_named(command, tmp_path):
    for i in range(200):
        (tmp_path / "yamls" / f"group{i:03}").mkdir(parents=True)
    said = command("list", "nowhere", "--config-dir", "yamls")
    assert said.status == 2
    assert "more, got nowhere" in said.sentence
    assert len(said.err) < 1000
