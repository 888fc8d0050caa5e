"""The ``fedpriv`` command: its parts, their help, and how each ends."""

from __future__ import annotations

import pytest

from fedpriv.cli import fedpriv
from fedpriv.groups import GROUPS

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
     ["list", "--config-dir", "nowhere"], ["list", "--colour"], ["bench", "--repeats", "0"]],
)  # fmt: skip
def test_wrong_usage_ends_with_status_2(arguments, command):
    said = command(*arguments)
    assert said.status == 2
    assert "Traceback" not in said.err


def test_an_unknown_data_set_to_download_comes_with_the_nearest_name(command):
    assert "did you mean mnist?" in command("data", "download", "mnits").sentence


def test_the_configuration_can_be_shown_without_running(command, tmp_path):
    said = command("train", "--cfg", "job", "algorithm=dp_fl")
    assert said.status == 0
    assert "name: dp_fl" in said.out
    assert list(tmp_path.iterdir()) == []


def test_a_run_shows_plan_result_privacy_and_folder(command, tmp_path):
    said = command("train", "rounds=3", "runtime.plots=false")
    words = " ".join(said.out.split())
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


def test_the_paper_on_real_data_starts_with_its_parameters(command, mnist_folder):
    said = command(
        "train", "dataset=mnist", f"dataset.path={mnist_folder}", "rounds=1", "runtime.plots=false"
    )
    words = " ".join(said.out.replace("│", " ").split())
    assert said.status == 0
    assert "58000 training records over 10 clients, 5800 each" in words
    assert "2000 public validation" in words
    assert "26,010 parameters" in words
    assert "noise multiplier 6 at first" in words


def test_the_speed_of_accounting_is_shown(command):
    said = command("bench", "--accounting", "--repeats", "1")
    assert said.status == 0
    assert "15,000 rounds, 6,800 noise multipliers" in said.out
    assert "PLD" in said.out
