"""What ``fedpriv figure`` refuses, in one sentence."""

from __future__ import annotations

import shlex

import pytest

from fedpriv.study.figures.make import as_flag


def refused(said) -> str:
    assert said.status == 2
    return said.sentence


@pytest.mark.parametrize("jobs", ["0", "-1", "two", "1.5", "", "1,2", "²", "9999"])
def test_the_number_of_jobs_is_a_whole_number_that_the_machine_has_use_for(jobs, make, tmp_path):
    assert "--jobs" in refused(make(f"--jobs={jobs}"))
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize("seeds", ["x", "0,x", "0,,1", "", "1.5", "-1", "²"])
def test_seeds_are_whole_numbers(seeds, make, tmp_path):
    assert "--seeds must be whole numbers, such as 0,1,2, got" in refused(make(f"--seeds={seeds}"))
    assert not (tmp_path / "outputs").exists()


def test_a_seed_given_twice_is_refused(make):
    assert "at least one seed, all of them different" in refused(make("--seeds", "0,0"))


def test_a_name_is_needed(command):
    for words in ((), ("rounds=3",)):
        assert "needs a name, such as adap_dpfl/fig4" in refused(command("figure", *words))


@pytest.mark.parametrize("name", ["adap_dpfl/fig44", "adap_dpf/fig4"])
def test_an_unknown_figure_is_refused_with_the_nearest_name(name, command):
    sentence = refused(command("figure", name))
    assert f"unknown figure option {name}; did you mean adap_dpfl/fig4" in sentence


def test_an_unknown_figure_is_refused_with_the_nearest_name_of_the_users_own(command, write):
    write()
    assert "own/tiny" in refused(command("figure", "own/tyny", "--config-dir", "mine"))


def test_an_unknown_flag_is_refused_with_the_nearest_one(command):
    sentence = refused(command("figure", "adap_dpfl/fig4", "--dry-rum"))
    assert "did you mean --dry-run?" in sentence


def test_two_names_are_refused(command):
    assert "adap_dpfl/fig5" in refused(command("figure", "adap_dpfl/fig4", "adap_dpfl/fig5"))


def test_flags_may_stand_anywhere(command, write):
    write()
    said = command("figure", "--dry-run", "own/tiny", "rounds=3", "--config-dir", "mine")
    assert (said.status, said.err) == (0, "")


def test_a_list_of_no_figure_names_the_works(command):
    said = refused(command("figure", "wie", "--list"))
    assert (
        "must be a figure, or one of adap_dpfl, ldp_clipping, mechanisms, naseri, pfl, privacy, "
        "recipes, robust, wei, got wie" in said
    )


def test_folders_to_reuse_become_flags_again():
    said = as_flag(r"figure.reuse=['kept','my runs','it\'s']")
    assert shlex.split(said) == ["--reuse", "kept", "--reuse", "my runs", "--reuse", "it's"]
