"""The ``fedpriv`` command: its parts, their help, and how each ends."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fedpriv.cli import fedpriv
from fedpriv.common.groups import GROUPS

SHOWN = {name: command for name, command in fedpriv.commands.items() if not command.hidden}


def test_without_arguments_it_shows_the_help(command):
    said = command()
    assert said.status == 0
    assert all(name in said.out for name in SHOWN)


def test_the_help_lists_every_command_with_a_line(command):
    said = command("--help")
    assert said.status == 0
    assert all(command.short_help in said.out for command in SHOWN.values())


def test_the_help_of_train_is_made_for_people(command):
    said = command("train", "--help")
    assert said.status == 0
    assert said.err == ""
    for group in GROUPS:
        assert group in said.out
    for words in ("resume=FOLDER", "dry_run=true", "--config-dir", "epsilon=2"):
        assert words in said.out


def test_the_version_is_told(command):
    said = command("--version")
    assert said.status == 0
    assert said.out.startswith("fedpriv ")


def test_an_unknown_command_comes_with_the_nearest_name(command):
    said = command("trian")
    assert said.status == 2
    assert "did you mean train?" in said.sentence


@pytest.mark.parametrize(
    "arguments",
    [["list", "clippper"], ["data", "download", "mnits"], ["completion", "tcsh"],
     ["list", "--colour"], ["verify", "--rounds", "0"]],
)  # fmt: skip
def test_wrong_usage_ends_with_status_2(arguments, command):
    said = command(*arguments)
    assert said.status == 2
    assert "Traceback" not in said.err


SENTENCES = {
    ("trian",): "the command must be one of train, runs, evaluate, figure, plot,",
    ("--colour",): "fedpriv does not know --colour; see fedpriv --help",
    ("list", "--confg-dir", "x"): "fedpriv list does not know --confg-dir; did you mean --config-dir?",
    ("list", "--config-dir", "nowhere"): "--config-dir must be an existing folder, got nowhere",
    ("list", "--config-dir", ""): "--config-dir must be an existing folder, got nothing",
    ("data", "--path", ""): "--path must be the path of a file or folder, got nothing",
    ("data", "--path", "x" * 5000): "--path must be the path of a file or folder, got xxx",
    ("data", "downlaod"): "the command must be one of download, got downlaod; did you mean download?",
    ("audit",): "fedpriv audit: missing command: membership, property",
    ("audit", "membership", "run", "--csv", "no/x.csv"): "--csv must be a file in an existing folder",
    ("account", "--plot", "no/x.png"): "--plot must be a file in an existing folder, got no/x.png",
    ("account", "--sampling", "pois"): "--sampling must be one of poisson, without_replacement, none",
    ("account", "--delta"): "option '--delta' requires an argument",
    ("account", "--steps", "1", "--delta", "1e-5", "--sample-rate", ".1", "--noise-multiplier", "1e308"):
    "--noise-multiplier must be > 0 and <= 1e+06, got 1e+308",
    ("account", "--steps", "1", "--delta", "1e-320", "--sample-rate", ".1", "--noise-multiplier", "1"):
    "--delta must be >= 1e-100 and < 1, got 1e-320",
    ("calibrate", "--steps", "1", "--delta", "1e-5", "--sample-rate", ".1", "--epsilon", "1e-310"):
    "--epsilon must be >= 1e-100, got 1e-310",
    ("plot", "x", "--out", "no/x.png"): "--out must be a file in an existing folder, got no/x.png",
    ("plot", "x", "--out", "x.gif"): "--out must be a file that ends in .png, .pdf, .svg, got x.gif",
    ("plot", "nowhere"): "there is no folder nowhere",
    ("report", "nowhere"): "there is no folder nowhere",
    ("report", "."): ".: no run (a folder with config.yaml) and no figure (one with comparison.md) is",
    ("report", "x", "--out", "x.pdf"): "--out must be a file that ends in .html, got x.pdf",
    ("figure", ""): "fedpriv figure needs a name",
    ("figure", "a", "b"): "fedpriv figure takes one name, got a and b",
    ("figure", "x", "--config-dir", "nowhere"): "--config-dir must be an existing folder, got nowhere",
    ("verify", "--rounds", "1" + 30 * "0"): "--rounds must be a whole number < 1000000, got 1000",
    ("completion", "tcsh"): "the shell must be one of bash, zsh, fish, got tcsh",
    ("train", "--dataset", "mnist"): "fedpriv train does not know --dataset: keys are written without "
    "dashes, dataset=mnist; see fedpriv train --help",
    ("train", "--rounds=5"): "fedpriv train does not know --rounds: keys are written without dashes, "
    "rounds=5; see fedpriv train --help",
    ("train", "--dry-run"): "fedpriv train does not know --dry-run: keys are written without dashes, "
    "dry_run=...; see fedpriv train --help",
    ("train", "--seed"): "fedpriv train does not know --seed: keys are written without dashes, seed=...; ",
    ("train", "-dataset", "mnist"): "fedpriv train does not know -dataset: keys are written without",
    ("train", "--mulitrun"): "fedpriv train does not know --mulitrun; did you mean --multirun?",
    ("train", "--config-dir"): "option '--config-dir' requires an argument",
    ("train", "--config-dir", "nowhere"): "--config-dir must be an existing folder, got nowhere",
}  # fmt: skip


@pytest.mark.parametrize("arguments", SENTENCES, ids=lambda words: " ".join(words)[:40])
def test_what_cannot_be_is_refused_in_a_sentence(arguments, command, tmp_path):
    said = command(*arguments)
    assert said.status == 2
    assert said.sentence.startswith(f"fedpriv: {SENTENCES[arguments]}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["account", "--help"], ["audit", "property", "--help"], ["figure", "--help"],
     ["report", "--help"], ["runs", "--help"], ["list"], ["completion", "bash"], ["_complete"]],
    ids=" ".join,
)  # fmt: skip
def test_nothing_heavy_is_imported_before_it_is_needed(arguments):
    program = (
        "import sys; from fedpriv import cli; status = cli.run(sys.argv[1:]); "
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr); sys.exit(status)"
    )
    line = {**os.environ, "COMP_LINE": "fedpriv train clipper="}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, env=line
    )
    assert done.returncode == 0
    heavy = {
        "torch",
        "pandas",
        "hydra",
        "matplotlib",
        "scipy",
        "numpy",
        "opacus",
        "dp_accounting.dp_event",
    }
    assert set(done.stderr.split()) & heavy == set()


def test_the_data_sets_are_looked_for_without_torch(tmp_path):
    program = "import sys; from fedpriv import cli; cli.run(sys.argv[1:]); assert 'torch' not in sys.modules"
    line = [sys.executable, "-c", program, "data", "--path", str(tmp_path)]
    assert subprocess.run(line, capture_output=True).returncode == 0


def test_hydra_gets_what_follows_train_as_it_was_written(command, monkeypatch):
    given = []
    monkeypatch.setattr("fedpriv.train.main", given.extend)
    line = ["-m", "seed=0,1", "-cd", "mine", "~attack", "--cfg=job", "+experiment=x", "--info"]
    assert command("train", *line).status == 0
    assert given == line


def test_a_folder_in_the_place_of_a_file_is_called_one(command, tmp_path):
    (tmp_path / "c.png").mkdir()
    said = command("plot", ".", "--out", "c.png")
    assert said.status == 2
    assert "--out must be a file, got c.png; a folder of that name is there" in said.sentence


def test_an_unknown_data_set_to_download_comes_with_the_nearest_name(command):
    assert "did you mean mnist?" in command("data", "download", "mnits").sentence


def test_the_configuration_can_be_shown_without_running(command, tmp_path):
    said = command("train", "--cfg", "job", "algorithm=dp_fl")
    assert said.status == 0
    assert "name: dp_fl" in said.out
    assert list(tmp_path.iterdir()) == []


def test_a_run_shows_plan_result_privacy_and_folder(command, tmp_path):
    said = command("train", "rounds=3", "runtime.plots=false")
    words = " ".join(said.out.replace("│", " ").split())
    assert (said.status, said.err) == (0, "")
    for part in ("Plan", "Result", "Privacy", "run folder: outputs/adap_dpfl_digits_seed0_"):
        assert part in words
    assert "(2.000, 1e-05)-differential privacy" in words
    folders = list((tmp_path / "outputs").iterdir())
    assert len(folders) == 1
    assert (folders[0] / "summary.json").exists()


def test_a_silent_run_prints_nothing(command):
    said = command("train", "rounds=1", "runtime.progress=none", "runtime.plots=false")
    assert (said.status, said.out, said.err) == (0, "", "")


def test_two_runs_in_the_same_second_get_folders_of_their_own(command, tmp_path):
    for _ in range(3):
        command("train", "rounds=1", "runtime.progress=none", "runtime.plots=false")
    assert len(list((tmp_path / "outputs").iterdir())) == 3


def test_the_data_sets_are_listed_with_their_state(command, tmp_path):
    said = command("data", "--path", str(tmp_path))
    assert said.status == 0
    for name in ("digits", "mnist", "fashion_mnist", "cifar10", "adult", "ipums"):
        assert name in said.out


def test_real_data_are_found_and_their_checksums_hold(command, mnist_folder):
    rows = command("data", "--path", mnist_folder).out.splitlines()
    row = next(line for line in rows if " mnist " in line)
    assert "yes" in row
    assert "ok" in row


@pytest.mark.thorough
def test_the_paper_on_real_data_starts_with_its_parameters(command, mnist_folder):
    said = command(
        "train", "dataset=mnist", f"dataset.path={mnist_folder}", "rounds=1", "runtime.plots=false"
    )
    words = " ".join(said.out.replace("│", " ").split())
    assert said.status == 0
    assert "58000 training records, 5800 for each of 10 clients" in words
    assert "2000 public validation" in words
    assert "26,010 parameters" in words
    assert "noise multiplier 6 in the first round" in words
