"""All mistakes of a command line are told at once, each with key, value, range and remedy."""

from __future__ import annotations

import pytest

from fedpriv.common.errors import ConfigError, all_of


@pytest.fixture
def lines(command):
    """(arguments) → the lines with which the command refuses them, the number of mistakes first."""

    def run(*arguments: str) -> list[str]:
        said = command(*arguments, verbatim=True)
        assert said.status == 2, said
        assert "Traceback" not in said.err
        return [line.removeprefix("fedpriv: ").strip() for line in said.err.strip().splitlines()]

    return run


def test_one_mistake_stays_one_sentence():
    error = ConfigError("seed", -1, ">= 0")
    assert all_of([error, ConfigError("seed", -1, ">= 0")]) is error


def test_unknown_options_keys_and_values_are_told_together(lines):
    first, *mistakes = lines(
        "train", "dataset=mnsit", "clipper.clipnorm=3", "algorithm.sample_rate=4", "epsilon=-1"
    )
    assert first == "4 mistakes:"
    starts = (
        "unknown dataset option mnsit; did you mean mnist?",
        "unknown key clipper.clipnorm; did you mean clipper.initial_clip_norm?",
        "epsilon must be > 0, got -1",
        "algorithm.sample_rate must be > 0 and <= 1, got 4",
    )
    for mistake, start in zip(mistakes, starts, strict=True):
        assert mistake.startswith(start)


def test_conflicts_are_told_beside_values_that_are_out_of_range(lines):
    first, *mistakes = lines("train", "algorithm=fedavg", "epsilon=3", "publish=true", "seed=-1")
    assert first == "3 mistakes:"
    assert [mistake.split()[0] for mistake in mistakes] == ["seed", "epsilon", "publish"]


def test_what_a_wrong_value_leads_to_is_no_second_mistake(lines):
    (mistake,) = lines("train", "partition.shards=-40", "partition.clients=10")
    assert mistake.startswith("partition.shards must be a whole number >= 1, got -40")


def test_an_option_of_unknown_meaning_ends_the_list(lines):
    """It decides which keys there are."""
    (mistake,) = lines("train", "algorithm=xyz", "algorithm.momentum=3")
    assert mistake.startswith("unknown algorithm option xyz")


@pytest.mark.parametrize("action", ["dry_run=true", "dry_run=false"])
def test_dry_run_and_run_tell_the_same_mistakes(action, lines):
    wrong = ("epsilon=-1", "algorithm.sample_rate=4", "noise_schedule.beta=2", action)
    assert [line.split()[0] for line in lines("train", *wrong)] == [
        "3", "epsilon", "algorithm.sample_rate", "noise_schedule.beta",
    ]  # fmt: skip


def test_a_sweep_tells_all_mistakes_of_its_jobs(lines):
    first, *mistakes = lines("train", "-m", "seed=0,1", "epsilon=-1", "delta=2")
    assert (first, len(mistakes)) == ("2 mistakes:", 2)


WORDS = {
    ("-m", "seed=0", "1", "2"): "-m seed=0,1,2",
    ("-m", "seed=0,", "1"): "-m seed=0,1",
    ("dataset", "mnist"): "dataset=mnist",
    ("algorithm", "=", "dp_fl"): "algorithm=dp_fl",
    ("algorithm=", "dp_fl"): "algorithm=dp_fl",
    ("algorithm", "=dp_fl"): "algorithm=dp_fl",
    ("dp_fl",): "algorithm=dp_fl",
    ("dry_run",): "dry_run=true",
    ("dry-run",): "dry_run=true",
    ("rounds",): "rounds=VALUE",
    ("clipper",): "clipper=OPTION",
    ("resume",): "resume=FOLDER",
    ("mine.yaml",): "--config-dir FOLDER",
    ("nonsense",): "key=value",
}


@pytest.mark.parametrize("words", WORDS)
def test_words_without_an_equals_sign_are_told_what_was_meant(words, lines):
    (mistake,) = lines("train", *words)
    assert WORDS[words] in mistake
    assert all(word.strip("=") in mistake for word in words if not word.startswith("-"))


def test_a_folder_among_the_overrides_points_to_resume(lines, tmp_path):
    (tmp_path / "outputs").mkdir()
    (mistake,) = lines("train", "outputs")
    assert mistake.endswith("resume=outputs")


def test_mistakes_beside_lonely_words_are_told_too(lines):
    first, word, key = lines("train", "dataset", "mnist", "epochs=3")
    assert (first, "dataset=mnist" in word) == ("2 mistakes:", True)
    assert key == "unknown key epochs; did you mean rounds?"


SENTENCES = {
    ("train", "~seed"): ("seed was deleted (~)", "seed=VALUE"),
    ("train", "~noise_schedule.beta"): ("noise_schedule.beta is absent", "noise_schedule.beta=VALUE"),
    ("train", "~algorithm"): ("algorithm was deleted (~)", "algorithm=OPTION"),
    ("train", "~clipper"): ("clipper was deleted (~)", "clipper=none"),
    ("train", "~dataset.path"): ("~dataset.path deletes a key that does not exist", ""),
    ("train", "dataset=MNIST"): ("unknown dataset option MNIST", "did you mean mnist?"),
    ("train", "algorithm=DP-FL"): ("unknown algorithm option DP-FL", "did you mean dp_fl?"),
    ("train", "partition.clients=5000"): ("partition.clients must be <= 1437", "partition=iid"),
    ("train", "noise_schedule=calibrated"): ("rounds must be a whole number >= 1", "got null"),
    ("train", "noise_schedule=none"): ("epsilon must be null", "epsilon=null"),
    ("train", "epsilon=0.0001"): ("epsilon must be >= 0.1664", "noise_schedule=calibrated rounds=N"),
    ("train", "--config", "a.yaml"): ("fedpriv train does not know --config", "--config-dir"),
    ("figure", "fig4"): ("unknown figure option fig4", "did you mean adap_dpfl/fig4?"),
    ("account", "--epsilon", "2"): ("fedpriv account does not know --epsilon", "fedpriv calibrate"),
    ("account", "--sigma", "2"): ("fedpriv account does not know --sigma", "--noise-multiplier?"),
    ("account", "outputs/run"): ("fedpriv account: got unexpected", "--run FOLDER"),
    ("sweep",): ("the command must be one of train,", "fedpriv train -m seed=0,1,2"),
    ("search",): ("the command must be one of train,", "hydra/sweeper=search"),
    ("run",): ("the command must be one of train,", "fedpriv train runs an experiment"),
    ("help", "train"): ("the command must be one of train,", "fedpriv COMMAND --help"),
    ("download", "mnist"): ("the command must be one of train,", "fedpriv data download"),
    ("data", "mnist"): ("the command must be one of download", "fedpriv data download mnist"),
    ("audit", "."): ("the command must be one of membership", "fedpriv audit membership ."),
    ("list", "dp_fl"): ("the group must be one of dataset", "fedpriv list algorithm dp_fl"),
    ("verify", "dp_fl"): ("dp_fl is an option of algorithm", "algorithm=dp_fl"),
}  # fmt: skip


@pytest.mark.parametrize("arguments", SENTENCES)
def test_a_newcomers_mistake_names_the_remedy(arguments, lines):
    (sentence,) = lines(*arguments)
    start, remedy = SENTENCES[arguments]
    assert sentence.startswith(start)
    assert remedy in sentence


@pytest.mark.parametrize(
    ("name", "near"), [("sound", "epsilon_sound"), ("accuracy", "test_accuracy")]
)
def test_a_column_is_found_by_its_last_word(name, near, command, train):
    train("rounds=1")
    said = command("plot", "run", "--y", name)
    assert said.sentence.endswith(f"got {name}; did you mean {near}?")


def test_all_mistakes_of_a_sweep_over_options_are_told(lines):
    said = lines("train", "-m", "algorithm=dp_fl,fedavg", "clipnrom=3", "othr=4")
    mistakes = [line.partition(";")[0] for line in said if "unknown key" in line]
    assert mistakes == [
        "algorithm=dp_fl: unknown key clipnrom",
        "algorithm=dp_fl, algorithm=fedavg: unknown key othr",
        "algorithm=fedavg: unknown key clipnrom",  # with another hint
    ]


@pytest.fixture
def own_model(tmp_path, monkeypatch) -> None:
    """A module ``own_net_of_mistakes`` with the class Net, a made object and a number."""
    (tmp_path / "own_net_of_mistakes.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Sequential):\n"
        "    def __init__(self, inputs, classes, width=2):\n"
        "        super().__init__(nn.Flatten(), nn.Linear(inputs, classes))\n\n\n"
        "made = Net(64, 10)\nvalue = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


TARGETS = {
    ("Net", "model.width=8"): ["model.width", "Net takes it", "+model.width=8"],
    ("Net", "model.widht=8"): [
        "model.widht",
        "did you mean +model.width=8?",
        "inputs, classes, width",
    ],
    ("made",): [
        "model._target_ must be the class",
        "own_net_of_mistakes.made",
        "a Net",
        "made already",
    ],
    ("value",): [
        "model._target_ must be a class or a function",
        "own_net_of_mistakes.value, of type int",
    ],
    ("",): [
        "model._target_ must be a class or a function",
        "model._target_=own_net_of_mistakes.NAME",
    ],
}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: "_".join(target) or "module")
def test_a_model_of_ones_own_that_is_none_or_lacks_a_plus_is_one_sentence(target, own_model, lines):
    name = f"own_net_of_mistakes.{target[0]}".rstrip(".")
    (mistake,) = lines("train", f"model._target_={name}", *target[1:], "dry_run=true")
    for words in TARGETS[target]:
        assert words in mistake


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("partition.clients=5", ["<= 5, the number of clients, got 10", "10 is its default"]),
        ("rounds=5", ["<= 5, which is rounds, got 10", "10 is its default", "raise rounds"]),
    ],
)
def test_a_default_that_does_not_fit_is_said_to_be_one(override, words, lines):
    (mistake,) = lines("train", "algorithm=dp_ftrl", "dataset=digits", override, "dry_run=true")
    assert mistake.startswith("algorithm.min_separation must be ")
    for part in words:
        assert part in mistake


def test_plot_without_a_folder_says_which_folder(lines):
    (mistake,) = lines("plot", "--y", "sound")
    assert "FOLDER" in mistake
    assert "fedpriv plot outputs" in mistake
