"""``fedpriv runs``: every run below a folder in a table, by any key."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ALL = ["multirun/today/noise16-seed1", "noise16-seed0", "noise8-seed0", "runs/noise8-seed1"]


def rows(said) -> list[dict[str, str]]:
    assert (said.status, said.err) == (0, "")
    return list(csv.DictReader(io.StringIO(said.out)))


@pytest.fixture
def table(several, command):
    """(arguments) → the rows of ``fedpriv runs --csv``."""
    return lambda *arguments: rows(command("runs", *arguments, "--csv"))


def names(table: list[dict[str, str]]) -> list[str]:
    return [row["run"] for row in table]


def test_runs_anywhere_below_outputs_are_a_row_each(table):
    assert names(table()) == ALL


def test_the_columns_are_the_results_and_the_keys_that_differ(table):
    assert list(table()[0]) == [
        "run", "algorithm", "dataset", "seed", "rounds", "state", "test_accuracy", "epsilon",
        "epsilon_published", "epsilon_sound", "noise_schedule.noise_multiplier", "problem",
    ]  # fmt: skip


def test_the_console_says_how_many_and_shows_shares_in_percent(several, command):
    said = command("runs")
    assert (said.status, said.err) == (0, "")
    assert "4 runs" in said.out
    assert "90.00" in said.out
    assert "noise_multiplier" in said.out


def test_the_epsilon_shown_is_never_below_the_one_spent(copy, command):
    copy("a", {"epsilon_sound": 1.23401})
    assert "1.235" in command("runs").out


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["noise_schedule.noise_multiplier=8"], ["noise8-seed0", "runs/noise8-seed1"]),
        (["noise_schedule.noise_multiplier=8.0", "seed=1"], ["runs/noise8-seed1"]),
        (["test_accuracy>0.7"], ["noise8-seed0", "runs/noise8-seed1"]),
        (["test_accuracy>=0.7", "test_accuracy<0.9"], ["noise16-seed0", "runs/noise8-seed1"]),
        (["seed!=0"], ["multirun/today/noise16-seed1", "runs/noise8-seed1"]),
        (["config.epsilon=null"], ALL),
        (["clipper=constant", "partition=shards"], ALL),
        (["dataset=mnist"], []),
    ],
)
def test_filters_take_any_key(filters, expected, table):
    assert names(table(*(word for f in filters for word in ("--filter", f)))) == expected


@pytest.mark.parametrize(
    ("flags", "first"),
    [
        (["--sort", "test_accuracy"], "multirun/today/noise16-seed1"),
        (["--sort", "-test_accuracy"], "noise8-seed0"),
        (["--sort", "test_accuracy", "--reverse"], "noise8-seed0"),
        (["--sort", "-noise_schedule.noise_multiplier,-seed"], "multirun/today/noise16-seed1"),
    ],
)
def test_any_key_sorts(flags, first, table):
    assert names(table(*flags))[0] == first


def test_what_is_absent_comes_last_either_way(copy, table):
    copy("none", {"test_accuracy": None})
    for key in ("test_accuracy", "-test_accuracy"):
        assert names(table("--sort", key))[-1] == "none"


def test_columns_are_any_keys(table):
    shown = table("--columns", "run,clipper.clip_norm,best_test_accuracy,config.rounds")
    assert list(shown[0]) == ["run", "clipper.clip_norm", "best_test_accuracy", "config.rounds"]
    assert shown[0]["config.rounds"] == "2"


def test_the_table_is_written_to_a_file(several, command, tmp_path):
    said = command("runs", "--csv", "all.csv")
    assert said.status == 0
    assert names(list(csv.DictReader((tmp_path / "all.csv").read_text().splitlines()))) == ALL


def test_json_has_the_values_themselves(several, command):
    told = json.loads(command("runs", "--json", "--filter", "seed=0", "--sort", "run").out)
    assert [row["test_accuracy"] for row in told] == [0.7, 0.9]
    assert [row["noise_schedule.noise_multiplier"] for row in told] == [16.0, 8.0]


def test_one_run_can_be_named_itself(several, command):
    assert names(rows(command("runs", "outputs/noise8-seed0", "--csv"))) == ["noise8-seed0"]


def test_several_folders_make_one_table_without_doubles(several, command):
    shown = rows(command("runs", "outputs/runs", "outputs/multirun", "outputs/runs", "--csv"))
    assert names(shown) == [f"outputs/{ALL[3]}", f"outputs/{ALL[0]}"]


def test_a_folder_inside_a_run_is_no_run(several, copy, table):
    copy("noise8-seed0/public")
    assert names(table()) == ALL


REFUSED = {
    ("--sort", "test_acuracy"): "--sort must be a key of config.yaml or summary.json, got "
    "test_acuracy; did you mean test_accuracy?",
    ("--filter", "clipper.clipnorm=1"): "--filter must be a key of config.yaml or summary.json, got "
    "clipper.clipnorm; did you mean clipper.clip_norm?",
    ("--columns", "run,sed"): "--columns must be a key of config.yaml or summary.json, got sed; "
    "did you mean seed?",
    ("--filter", "seed"): "--filter must be KEY=VALUE, KEY!=VALUE, KEY>NUMBER or KEY<NUMBER, got seed",
    ("--filter", "algorithm=dpfl"): "--filter must be a value that a run has: dp_fl, got "
    "algorithm=dpfl; did you mean dp_fl?",
    ("--filter", "seed>x"): "--filter must be a number after seed>, got seed>x",
    ("nowhere",): "there is no folder nowhere",
    ("--csv", "runs.txt"): "--csv must be a file that ends in .csv, got runs.txt",
}  # fmt: skip


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_what_cannot_be_is_refused_in_a_sentence(arguments, several, command):
    said = command("runs", *arguments)
    assert said.status == 2
    assert said.sentence == f"fedpriv: {REFUSED[arguments]}"


def test_a_folder_without_runs_is_refused(command, tmp_path):
    (tmp_path / "outputs").mkdir()
    assert command("runs").sentence == "fedpriv: outputs: no run folder is there or below it"


# ---- damaged and foreign folders


def test_a_run_without_an_end_is_unfinished(several, table):
    (several / "noise8-seed0" / "summary.json").unlink()
    row = table("--filter", "state=unfinished")[0]
    assert (row["run"], row["algorithm"], row["dataset"]) == ("noise8-seed0", "dp_fl", "digits")


def test_an_unfinished_run_has_the_results_of_its_last_round_and_not_its_settings(
    ran, command, tmp_path
):
    folder = tmp_path / "outputs" / "killed"
    shutil.copytree(
        ran("algorithm=dp_fl", "epsilon=2", "rounds=3", "evaluation_interval=2").folder, folder
    )
    spent = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").unlink()
    (row,) = rows(command("runs", "--csv"))
    assert row["state"] == "unfinished"
    for key in ("epsilon", "epsilon_published", "epsilon_sound", "test_accuracy"):
        assert float(row[key]) == pytest.approx(spent[key]), key
    assert row["rounds"] == "3"
    lines = (folder / "metrics.csv").read_text().splitlines()
    (folder / "metrics.csv").write_text("\n".join(lines[:2]) + "\n3,0.9")  # half a row
    (row,) = rows(command("runs", "--csv"))
    assert (row["rounds"], row["epsilon_sound"], row["test_accuracy"]) == ("1", "", "")
    assert 0 < float(row["epsilon"]) < spent["epsilon"]
    assert "rounds run since" in command("runs").out
    (folder / "metrics.csv").unlink()
    (row,) = rows(command("runs", "--csv"))
    assert (row["rounds"], row["epsilon"]) == ("", "")


def test_a_run_with_an_unreadable_summary_shows_no_setting_as_a_result(copy, command):
    (copy("a", epsilon=2.0) / "summary.json").write_text("{")
    (row,) = rows(command("runs", "--csv"))
    assert (row["state"], row["rounds"], row["epsilon"]) == ("damaged", "", "")


def test_an_interrupted_run_that_went_on_has_no_results_of_before(copy, command):
    folder = copy("a", {"stop_reason": "interrupted", "epsilon": 0.1})
    (row,) = rows(command("runs", "--csv"))
    assert (row["state"], row["epsilon"]) == ("interrupted", "0.1")
    lines = (folder / "metrics.csv").read_text().splitlines()
    further = lines[-1].replace("2,", "3,", 1)
    (folder / "metrics.csv").write_text("\n".join([*lines, further]) + "\n")
    (row,) = rows(command("runs", "--csv"))
    assert (row["state"], row["rounds"]) == ("unfinished", "3")
    assert row["epsilon"] == further.split(",")[1]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("config.yaml", "a: [", "it is not YAML"),
        ("config.yaml", "a: 1", "it has no usable dataset"),
        ("summary.json", '{"rounds": 3', "it is not JSON"),
        ("summary.json", '{"rounds": 3}', "it has no stop_reason"),
        ("summary.json", '{"stop_reason": ["budget"], "rounds": {}}', "it has no stop_reason"),
        ("summary.json", "[" * 50_000, "it is not JSON"),
    ],
)
def test_a_damaged_run_is_a_row_that_says_so(file, content, words, several, command, table):
    (several / "noise8-seed0" / file).write_text(content)
    damaged = [row for row in table() if row["state"] == "damaged"]
    assert names(damaged) == ["noise8-seed0"]
    assert words in damaged[0]["problem"]
    said = command("runs", "--sort", "rounds")
    assert said.status == 0
    assert f"damaged: outputs/noise8-seed0/{file}" in said.out


def test_a_pipe_is_not_waited_for(several, table):
    (several / "noise8-seed0" / "config.yaml").unlink()
    os.mkfifo(several / "noise8-seed0" / "config.yaml")
    assert [row["state"] for row in table()].count("damaged") == 1


def test_links_that_go_round_are_not_followed(several, table):
    (several / "runs" / "again").symlink_to(several)
    assert names(table()) == ALL


def test_values_of_any_kind_are_shown_and_obeyed_by_no_terminal(copy, command):
    copy(
        "a", {"test_accuracy": "\x1b[31mred", "rounds": {"a": [1]}, "epsilon": True, "seed": 1e400}
    )
    said = command("runs", "--sort", "rounds")
    assert said.status == 0
    assert "\x1b" not in said.out
    assert "\N{REPLACEMENT CHARACTER}[31mred" in said.out


def test_neither_torch_nor_pandas_is_imported(several, tmp_path):
    program = (
        "import sys; from fedpriv import cli; status = cli.run(['runs', 'outputs']); "
        "assert not {'torch', 'pandas', 'matplotlib'} & set(sys.modules); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_configuration_is_read_the_same_way_fast(several):
    from omegaconf import OmegaConf

    from fedpriv.common.config import flatten
    from fedpriv.store.saved import saved_config, saved_values

    path = Path(several) / "noise8-seed0" / "config.yaml"
    path.write_text(path.read_text().replace("rounds: 2", "rounds: 1e-5\nday: 2020-01-01"))
    assert saved_values(path) == flatten(OmegaConf.to_container(OmegaConf.load(path)))
    assert "tracker" not in saved_config(path)


def test_a_key_that_is_there_twice_is_no_configuration(several, table):
    path = several / "noise8-seed0" / "config.yaml"
    path.write_text(path.read_text() + "rounds: 3\n")
    (damaged,) = [row for row in table() if row["state"] == "damaged"]
    assert "config.yaml cannot be read: it is not YAML" in damaged["problem"]
