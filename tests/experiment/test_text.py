"""Runs on text: plans without files, and what the privacy statement says about the data."""

from __future__ import annotations

import json
import math

import pytest

import fedpriv
from fedpriv.common.errors import ConfigError
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.plan import make_plan

SMALL = ("model.hidden=4", "model.embedding=4", "runtime.plots=false", "rounds=1")
PRIVATE = (
    "algorithm=dp_fl", "clipper=constant", "noise_schedule=constant", "clipper.clip_norm=1",
    "noise_schedule.noise_multiplier=2",
)  # fmt: skip


@pytest.fixture
def play(tmp_path) -> str:
    """A folder with a play of six roles."""
    file = tmp_path / "tinyshakespeare" / "input.txt"
    file.parent.mkdir()
    file.write_text("\n\n".join(f"ROLE{i}:\n{'to be or not to be. ' * 9}" for i in range(6)))
    return str(tmp_path)


@pytest.mark.few(2)
@pytest.mark.parametrize("dataset", ["sentiment140", "ubuntu_irc", "reddit", "shakespeare"])
def test_a_plan_without_files_says_what_it_assumes_and_what_is_missing(dataset, command, tmp_path):
    said = command("train", f"dataset={dataset}", f"dataset.path={tmp_path}", "dry_run=true")
    assert "training records assumed" in " ".join(said.out.replace("│", " ").split())
    assert said.status == 2
    assert f"{dataset} not found: dataset.path={tmp_path} has no " in said.sentence


def test_a_run_without_the_file_ends_before_the_first_round(command, tmp_path):
    said = command("train", "dataset=sentiment140", f"dataset.path={tmp_path}")
    assert said.status == 2
    assert f"sentiment140 not found: dataset.path={tmp_path} has no " in said.err


@pytest.mark.parametrize(
    ("dataset", "key", "hint"),
    [
        ("shakespeare", "vocabulary_sise", "; did you mean dataset.vocabulary_size?"),
        (
            "ubuntu_irc",
            "public_share",
            "; it is a key of dataset=reddit, dataset=sentiment140, dataset=shakespeare",
        ),
    ],
)
def test_a_key_that_a_corpus_does_not_have_is_refused(dataset, key, hint):
    with pytest.raises(ConfigError) as caught:
        build_parts(fedpriv.compose([f"dataset={dataset}", f"+dataset.{key}=1"]))
    sentence = str(caught.value)
    assert sentence.startswith(f"unknown key dataset.{key}{hint} (dataset has: path, file, ")
    assert sentence.endswith("validation_records)")


# ---- a vocabulary of private text is a release without noise


@pytest.fixture
def exposing(play) -> tuple[str, ...]:
    """A private run of one round that builds its vocabulary from the clients' texts."""
    keys = ("dataset=shakespeare", f"dataset.path={play}", "dataset.level=word", "dataset.length=5")
    return (*PRIVATE, *SMALL, *keys, "dataset.vocabulary=private")


VIEWS = {"published": ("budget_view=published",), "no budget": ("epsilon=null",)}


@pytest.mark.few(1)
@pytest.mark.parametrize("view", VIEWS)
def test_the_statement_says_that_a_private_vocabulary_leaves_no_sound_epsilon(
    view, train, exposing
):
    result = train(*exposing, *VIEWS[view])
    facts = json.loads((result.folder / "privacy.json").read_text())
    assert facts["epsilon_sound"] == facts["spread"]["epsilon_sound"]["lowest"] == math.inf
    assert facts["reasons"]["epsilon_sound"] == "released without noise: vocabulary"
    assert math.isfinite(facts["epsilon_published"])
    assert math.isfinite(facts["epsilon"]) == (view == "published")
    assert facts["clients"] == {"total": 6, "took_part": 6, "draws_fewest": 1, "draws_most": 1}
    assert facts["caveats"][0].startswith("The vocabulary was built from the clients' private")
    assert "not for a speech" in facts["caveats"][1]
    assert "NOT differentially private" in (result.folder / "privacy.txt").read_text()


def test_the_ledger_has_the_private_vocabulary_once_for_every_client(train, exposing, ledger):
    first, second = ledger(train(*exposing, *VIEWS["published"]).folder)
    assert (first["queries"], first["event_sound"]) == ("vocabulary=0", "NonPrivate")
    assert (first["clients"], first["draws_per_client"]) == ("0-5", "1")
    assert first["claimed_of_everyone"] == "0"
    assert second["queries"] == "gradient_sum=2"


@pytest.mark.few(1)
@pytest.mark.parametrize("view", VIEWS)
def test_the_ledger_of_a_private_vocabulary_gives_the_numbers_of_the_run(
    view, train, exposing, command
):
    result = train(*exposing, *VIEWS[view])
    delta = f"{result.privacy['delta']:g}"

    def price(accountant: str, view: str):  # type: ignore[no-untyped-def]
        said = command("account", "--run", str(result.folder), "--view", view, "--json")
        return json.loads(said.out)["accountants"][accountant]["epsilon"][delta]

    assert price("pld", "sound") == price("rdp", "sound") == "inf"
    published = price("published", "published")
    assert published == pytest.approx(result.privacy["epsilon_published"])


def test_a_resumed_run_enters_its_private_vocabulary_once(
    train, exposing, tmp_path, assert_same_run
):
    settings = (*exposing, *VIEWS["no budget"], "rounds=3", "evaluation_interval=2")
    whole, stop = train(*settings, name="whole"), tmp_path / "stop"
    stop.touch()
    stopped = train(*settings, f"runtime.stop_file={stop}", name="stopped")
    assert stopped.stop_reason == "interrupted"
    resumed = train(*settings, f"resume={stopped.folder}", name="stopped")
    assert_same_run(resumed.folder, whole.folder)


@pytest.mark.parametrize(("view", "finite"), [("published", True), ("no budget", False)])
def test_a_plan_says_that_a_private_vocabulary_is_released(view, finite, exposing):
    plan = make_plan(build_parts(fedpriv.compose([*exposing, *VIEWS[view]])))
    said = "without noise, of every client: vocabulary, so the sound epsilon is infinite"
    assert said in str(plan.lines)
    assert math.isfinite(plan.epsilon) == finite


def test_a_run_without_privacy_may_take_any_vocabulary(train, exposing):
    vocabulary = [key for key in exposing if key not in PRIVATE]
    result = train(*vocabulary, "algorithm=fedavg", "clipper=none", "noise_schedule=none",
                   "epsilon=null")  # fmt: skip
    assert not result.privacy["private"]
    assert "without noise, of every client" not in str(result.plan.lines)


def test_a_plan_says_that_images_are_lossy():
    parts = build_parts(
        fedpriv.compose([*PRIVATE, "dataset=cifar10", "dataset.source=jpeg", "partition=iid"])
    )
    assert "no CIFAR-10 accuracy" in dict(make_plan(parts).lines)["training"]
