"""``fedpriv plot``: any runs in one picture."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from fedpriv.tools.report import plot

NUMBERS = ["x", "mean", "low", "high", "n"]


def drawn(tmp_path: Path, name: str = "plot.csv") -> pd.DataFrame:
    return pd.read_csv(tmp_path / name)


def evaluated(run: Path) -> pd.DataFrame:
    return pd.read_csv(run / "metrics.csv").dropna(subset="test_accuracy")


def refused(said) -> str:
    assert said.status == 2
    return said.sentence


def test_runs_that_differ_in_their_seeds_only_are_one_line_with_a_band(grid, command, tmp_path):
    said = command("plot", str(grid))
    assert (said.status, said.err) == (0, "")
    assert "4 runs, 2 lines" in said.out
    assert "not finished" not in said.out.lower()
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"
    table = drawn(tmp_path)
    assert table.columns.tolist() == ["label", *NUMBERS]
    assert sorted(set(table["label"])) == ["noise_multiplier=16", "noise_multiplier=8"]
    assert set(table["n"]) == {2}
    both = pd.concat([evaluated(grid / f"noise16-seed{n}") for n in (0, 1)])
    ends = 100 * both[both["round"] == 4]["test_accuracy"]
    last = table[table["label"] == "noise_multiplier=16"].iloc[-1]
    assert last["x"] == 4
    assert [last["low"], last["mean"], last["high"]] == pytest.approx(
        [ends.min(), ends.mean(), ends.max()]
    )


@pytest.mark.parametrize(
    ("runs", "flags", "labels"),
    [
        (("noise8-seed0",), (), {"noise8-seed0"}),
        (("noise8-seed0", "noise8-seed1"), (), {"all runs"}),
        (("noise8-seed0", "noise8-seed1"), ("--each",), {"noise8-seed0", "noise8-seed1"}),
        (("noise8-seed0", "noise16-seed1"), ("--each",),
         {"noise_multiplier=8 (noise8-seed0)", "noise_multiplier=16 (noise16-seed1)"}),
        (("noise8-seed0", "noise8-seed1"), ("--x", "test_loss"), {"all runs"}),
    ],
)  # fmt: skip
def test_lines_are_labelled_by_settings_or_folders(runs, flags, labels, grid, command, tmp_path):
    command("plot", *(str(grid / run) for run in runs), *flags)
    assert set(drawn(tmp_path)["label"]) == labels


def test_runs_of_one_name_in_two_folders_are_two_lines(grid, command, tmp_path):
    for folder in ("a", "b"):
        shutil.copytree(grid / "noise8-seed0", tmp_path / folder / "0")
    command("plot", "a", "b", "--each")
    assert set(drawn(tmp_path)["label"]) == {"a/0", "b/0"}


@pytest.mark.thorough
def test_runs_from_python_are_told_apart_by_their_configuration(train, command, tmp_path):
    for noise in (8, 16):
        train("algorithm=dp_fl", "rounds=2", f"noise_schedule.noise_multiplier={noise}",
              name=f"runs/{noise}")  # fmt: skip
    assert command("plot", "runs").status == 0
    assert sorted(set(drawn(tmp_path)["label"])) == ["noise_multiplier=16", "noise_multiplier=8"]


def recorded(run: Path, overrides: list[str]) -> None:
    facts = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**facts, "overrides": overrides}))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("overrides", "lines"),
    [
        (("clipper.alpha=0.5", "partition.alpha=0.5"), 2),  # different keys
        (("runtime.threads=1", "runtime.threads=2"), 1),  # a key that changes no result
    ],
)
def test_overrides_tell_runs_apart(overrides, lines, grid, command, tmp_path):
    for name, override in zip("ab", overrides, strict=True):
        shutil.copytree(grid / "noise8-seed0", tmp_path / "runs" / name)
        recorded(tmp_path / "runs" / name, ["algorithm=dp_fl", override])
    command("plot", "runs")
    assert drawn(tmp_path)["label"].nunique() == lines


@pytest.mark.parametrize("y", ["test_loss", "gradient_norm", "epsilon_published"])
def test_any_column_can_be_drawn(y, grid, command, tmp_path):
    command("plot", str(grid / "noise8-seed0"), "--y", y)
    metrics = pd.read_csv(grid / "noise8-seed0" / "metrics.csv").dropna(subset=y)
    assert drawn(tmp_path)["mean"].tolist() == pytest.approx(metrics[y].tolist())


@pytest.mark.parametrize("x", ["test_loss", "gradient_norm", "noise_multiplier"])
def test_any_column_can_be_the_x_axis(x, grid, command, tmp_path):
    """Also one that falls, or stays what it is: then the last point is drawn."""
    command("plot", str(grid / "noise8-seed0"), "--x", x)
    metrics = evaluated(grid / "noise8-seed0").drop_duplicates(x, keep="last")
    table = drawn(tmp_path)
    points = sorted(zip(table["x"], table["mean"], strict=True))
    expected = sorted(zip(metrics[x], 100 * metrics["test_accuracy"], strict=True))
    assert [p[0] for p in points] == pytest.approx([p[0] for p in expected])
    assert [p[1] for p in points] == pytest.approx([p[1] for p in expected])


@pytest.mark.parametrize("flag", ["--x", "--y"])
def test_an_unknown_column_is_refused_with_those_that_are_there(flag, grid, command, tmp_path):
    sentence = refused(command("plot", str(grid / "noise8-seed0"), flag, "accuracy"))
    assert f"{flag} must be one of the columns round, epsilon" in sentence
    assert sentence.endswith("got accuracy; did you mean test_accuracy?")
    assert not (tmp_path / "plot.png").exists()


def test_a_column_without_a_value_is_refused(grid, command):
    sentence = refused(command("plot", str(grid / "noise8-seed0"), "--y", "validation_loss"))
    assert "no run has finite values of both round and validation_loss" in sentence


def test_a_run_without_the_column_or_a_round_is_left_out_and_named(grid, command, tmp_path):
    shutil.copytree(grid, tmp_path / "runs")
    metrics = tmp_path / "runs" / "noise8-seed1" / "metrics.csv"
    pd.read_csv(metrics).drop(columns="test_loss").to_csv(metrics, index=False)
    metrics = tmp_path / "runs" / "noise8-seed0" / "metrics.csv"
    metrics.write_text(metrics.read_text().splitlines()[0] + "\n")
    said = command("plot", "runs", "--y", "test_loss")
    assert (said.status, said.err) == (0, "")
    assert said.out.startswith("left out, without values or not finished: noise8-seed0, noise8-")


def test_runs_that_are_not_finished_are_named_on_the_console_and_the_picture(
    grid, command, tmp_path
):
    shutil.copytree(grid, tmp_path / "runs")
    summary = tmp_path / "runs" / "noise8-seed1" / "summary.json"
    summary.write_text(
        json.dumps({**json.loads(summary.read_text()), "stop_reason": "interrupted"})
    )
    (tmp_path / "runs" / "noise16-seed0" / "summary.json").unlink()  # killed
    said = command("plot", "runs", "--out", "plot.svg")
    assert "Not finished, drawn as far as they are: noise16-seed0, noise8-seed1" in " ".join(
        said.out.split()
    )
    assert "Not finished" in (tmp_path / "plot.svg").read_text()


def test_folders_without_runs_are_refused(command, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "there is no folder nowhere" in refused(command("plot", "nowhere"))
    assert "empty: no run folder" in refused(command("plot", "empty"))
    assert "FOLDER" in refused(command("plot"))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("environment.json", "{"),
        ("environment.json", "[]"),
        ("config.yaml", "a: [1"),
        ("config.yaml", "- 1"),
        ("metrics.csv", ""),
        ("metrics.csv", None),
        ("config.yaml", None),
    ],
)
def test_a_broken_or_absent_file_of_a_run_is_refused(file, content, grid, command, tmp_path):
    shutil.copytree(grid / "noise8-seed0", tmp_path / "run")
    (tmp_path / "run" / file).unlink()
    if content is not None:
        (tmp_path / "run" / file).write_text(content)
    assert "fedpriv: run" in refused(command("plot", "run"))


@pytest.mark.thorough
@pytest.mark.parametrize("suffix", ["pdf", "svg"])
def test_other_kinds_of_picture_are_written(suffix, grid, command, tmp_path):
    assert command("plot", str(grid), "--out", f"mine.{suffix}").status == 0
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {f"mine.{suffix}", "mine.csv"}


def test_of_very_many_lines_the_first_are_drawn_and_the_table_has_all(
    grid, command, tmp_path, monkeypatch
):
    """What a run needs thousands of times is read without OmegaConf."""
    monkeypatch.setattr(plot, "MOST_LINES", 3)
    monkeypatch.setattr("omegaconf.OmegaConf.create", None)
    said = command("plot", str(grid), "--each", "--out", "plot.svg")
    assert said.status == 0
    assert "Drawn are the first 3 of 4 lines." in said.out
    assert "Drawn are the first 3 of 4 lines." in (tmp_path / "plot.svg").read_text()
    monkeypatch.undo()
    assert drawn(tmp_path)["label"].nunique() == 4


@pytest.mark.thorough
def test_lines_and_axes_can_be_named(grid, command, tmp_path):
    given = ("--title", "Noise", "--y-label", "accuracy in %", "--label", "noise_multiplier=8:σ = 8",
             "--log", "x", "--width", "one", "--font-size", "9",
             "--out", "a.svg", "--out", "a.pdf")  # fmt: skip
    said = command("plot", str(grid), *given)
    assert (said.status, said.err) == (0, "")
    assert list(dict.fromkeys(drawn(tmp_path, "a.csv")["label"])) == [
        "σ = 8",
        "noise_multiplier=16",
    ]
    picture = (tmp_path / "a.svg").read_text()
    for text in ("Noise", "accuracy in %", "σ = 8"):
        assert f"<!-- {text} -->" in picture
    assert "Student's t" in " ".join(said.out.split())


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--band", "se"], "--band must be one of t, sd, range, none, got se"),
        (["--label", "noise=8:a"], "--label must be OLD:NEW, OLD being one of noise_multiplier=8; "),
        (["--label", "noise_multiplier=8:noise_multiplier=16"], "NEW none of them"),
        (["--font-size", "100"], "'--font-size': 100.0 is not in the range 4<=x<=24"),
        (["--width", "three"], "--width must be one of one, two, got three"),
        (["--log", "z"], "--log must be one of x, y, xy, got z"),
        (["--out", "plot.csv"], "--out must be a file that ends in .png, .pdf, .svg, got plot.csv"),
        (["--out", "nowhere/plot.png"], "--out must be a file in an existing folder"),
    ],
)  # fmt: skip
def test_a_wrong_look_is_refused_before_anything_is_written(flags, named, grid, command, tmp_path):
    assert named in refused(command("plot", str(grid), *flags))
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_there_are_not_written_over_without_force(grid, command, tmp_path):
    (tmp_path / "plot.csv").write_text("notes")
    assert "--force writes over it" in refused(command("plot", str(grid)))
    assert command("plot", str(grid), "--force").status == 0


def test_lines_are_ordered_by_the_numbers_in_their_labels():
    lines = {
        label: pd.DataFrame({"mean": [end]})
        for label, end in (("σ=10", 1), ("σ=2", 3), ("σ=2.5", 2))
    }
    assert list(plot._ordered(lines)) == ["σ=2", "σ=2.5", "σ=10"]


def test_clients_are_sorted_by_their_accuracy(grid, command, tmp_path):
    said = command("plot", str(grid), "--x", "clients")
    assert said.status == 0, said.err
    table = drawn(tmp_path)
    ends = [pd.read_csv(grid / f"noise16-seed{n}" / "clients.csv") for n in (0, 1)]
    ends = [100 * rows[rows["round"] == 4]["accuracy_by_labels"].sort_values() for rows in ends]
    line = table[table["label"] == "noise_multiplier=16"]
    assert line["x"].tolist() == [10 * k for k in range(1, 11)]
    assert line["mean"].tolist() == pytest.approx([(a + b) / 2 for a, b in zip(*ends, strict=True)])
    assert command("plot", str(grid), "--x", "clients", "--y", "epsilon", "--force").status == 0
    said = command("plot", str(grid), "--x", "clients", "--y", "test_los", "--force")
    assert "accuracy_by_labels" in refused(said)
