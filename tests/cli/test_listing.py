"""``fedpriv list``: groups, options, one line each."""

from __future__ import annotations

import re

import pytest

from fedpriv.common.groups import GROUPS, options


@pytest.fixture(scope="module")
def listed():
    import contextlib
    import io

    from fedpriv import cli

    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert cli.run(["list", "--all"]) == 0
    return out.getvalue()


@pytest.mark.few(3)
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
    assert "mnist_distributed_eps2" in listed
    assert "dp_fl_mnist" in listed


def test_the_names_of_all_options_fit_on_a_screen(command):
    said = command("list")
    names = {word.strip(",") for word in said.out.split()}
    assert len(said.out.splitlines()) <= 32
    for group in GROUPS:
        assert {group, *(name for name, _ in options(group))} <= names
    assert "mnist_local_eps1|2|3|8" in names
    assert "fedpriv list GROUP" in said.out


def test_the_help_of_train_hides_groups_that_nobody_chooses(command):
    said = command("train", "--help").out
    assert not re.search(r"^(keys|work|protocol|figure|hydra)\b", said, re.MULTILINE)


def test_one_group_can_be_listed_alone(command):
    said = command("list", "clipper")
    assert said.status == 0
    assert "automatic" in said.out
    assert "validation_decay" not in said.out


def test_a_group_is_listed_with_all_keys_of_its_options(command):
    said = " ".join(command("list", "clipper").out.split())
    assert "clipper.target_quantile 0.5 * fraction of norms that are not clipped [γ]" in said
    assert "(number > 0 and < 1)" in said
    assert "clipper.update geometric rule by which the clip norm moves (geometric, linear)" in said


def test_one_option_can_be_listed_alone(command):
    said = command("list", "clipper", "poly")
    assert said.status == 0
    assert "clipper.power" in said.out
    assert "clipper.bit_noise" not in said.out


def test_an_unknown_option_comes_with_the_nearest_name(command):
    assert "did you mean quantile?" in command("list", "clipper", "quantil").sentence


def test_ready_made_configurations_have_no_keys_to_list(command):
    said = command("list", "figure", "wei/fig5")
    assert said.status == 2
    assert "the option must be left out" in said.sentence


def test_a_recipe_is_shown_with_what_it_sets(command):
    said = " ".join(command("list", "recipe", "mnist_local_eps1").out.split())
    for setting in (
        "algorithm dp_fl_server",
        "algorithm.learning_rate 1.75",
        "epsilon 1",
        "rounds 300",
    ):
        assert setting in said
    assert "did you mean mnist_local_eps1?" in command("list", "recipe", "mnist_locl_eps1").sentence


def test_a_recipe_of_ones_own_is_shown_too(command, tmp_path):
    (tmp_path / "mine" / "recipe").mkdir(parents=True)
    (tmp_path / "mine" / "recipe" / "own.yaml").write_text(
        "# @package _global_\n# mine\ndefaults:\n  - override /model: cnn\nclipper:\n  clip_norm: 3\n"
    )
    said = " ".join(command("list", "--config-dir", "mine", "recipe", "own").out.split())
    assert "own mine model cnn clipper.clip_norm 3" in said


def test_an_unknown_group_comes_with_the_nearest_name(command):
    assert "did you mean clipper?" in command("list", "cliper").sentence


def test_options_of_the_users_own_are_listed_too(command, tmp_path):
    folder = tmp_path / "mine" / "clipper"
    folder.mkdir(parents=True)
    (folder / "gentle.yaml").write_text(
        "# clips with care\n_target_: gentle.Clipper\nforce: 0.5  # how hard\n"
    )
    said = command("list", "clipper", "--config-dir", str(tmp_path / "mine"))
    assert "gentle" in said.out
    assert "clips with care" in said.out
    assert "clipper.force  0.5  how hard" in re.sub(" {2,}", "  ", said.out)


def test_the_help_of_train_shows_options_of_a_folder_of_ones_own(command, tmp_path):
    (tmp_path / "clipper").mkdir()
    (tmp_path / "clipper" / "gentle.yaml").write_text("# clips with care\n")
    assert "gentle" not in command("train", "--help").out
    assert "gentle" in command("train", "--help", "--config-dir", ".").out


def test_of_very_many_groups_of_ones_own_the_first_are_named(command, tmp_path):
    for i in range(200):
        (tmp_path / "yamls" / f"group{i:03}").mkdir(parents=True)
    said = command("list", "nowhere", "--config-dir", "yamls")
    assert said.status == 2
    assert "more, got nowhere" in said.sentence
    assert len(said.err) < 1000
