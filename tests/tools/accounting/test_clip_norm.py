"""``fedpriv calibrate clip-norm``: quantiles of norms on public data, the suggestion, bad input."""

from __future__ import annotations

import pytest

QUICK = ("clip-norm", "--public", "digits", "--steps", "2")


def test_the_suggestion_is_the_median_of_all_steps(answer):
    found = answer("calibrate", *QUICK)
    assert found["clip_norm"] == found["quantiles"]["all steps"]["0.5"]
    assert (found["unit"], found["public_dataset"]) == ("gradient of a record", "digits")
    assert found["steps"] == 2
    assert 400 < found["norms"] <= 512


def test_quantiles_rise(answer):
    for column in answer("calibrate", *QUICK)["quantiles"].values():
        assert list(column.values()) == sorted(column.values())


def test_clients_are_measured_where_clients_are_protected(answer):
    found = answer("calibrate", *QUICK, "algorithm=cdp_fedavg", "algorithm.client_rate=0.2")
    assert found["unit"] == "upload of a client"
    assert 0 < found["norms"] < 100


def test_an_algorithm_that_clips_while_it_trains_is_measured_unclipped(answer):
    tight = ("algorithm=naseri_cdp", "clipper.clip_norm=1e-3", "algorithm.local_epochs=1")
    assert answer("calibrate", *QUICK, *tight)["clip_norm"] > 1e-3


def test_the_same_seed_gives_the_same_answer(answer):
    assert answer("calibrate", *QUICK) == answer("calibrate", *QUICK)


def test_the_answer_says_what_was_read_and_when_it_is_free(command):
    said = command("calibrate", *QUICK)
    assert said.status == 0
    for words in ("suggested clip norm", "digits", "public", "no charge"):
        assert words in said.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("clip-norm",), ("--public",)),
        (("clip-norm", "--public", "digit"), ("digit", "digits")),
        (("clip-norm", "--public", "digits", "dataset=mnist"), ("dataset=", "--public")),
        (("clip-norm", "--public", "digits", "--steps", "0"), ("--steps", "0", ">= 1")),
        (("clip-norm", "--public", "digits", "algorithm.learning_rate=-1"), ("learning_rate", "-1")),
        (("--epsilon", "2", "clip-norm", "--public", "digits"), ("--epsilon", "clip-norm")),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(arguments, words, command):
    said = command("calibrate", *arguments)
    assert said.status == 2
    assert said.err.count("\n") == 1
    for word in words:
        assert word in said.err
