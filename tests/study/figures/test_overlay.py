"""``fedpriv plot``: any runs in one picture."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from fedpriv.study.figures import overlay

NUMBERS = ["x", "mean", "low", "high", "n"]


def drawn(tmp_path: Path, name: str = "plot.csv") -> pd.DataFrame:
    return pd.read_csv(tmp_path / name)


def evaluated(run: Path) -> pd.DataFrame:
    return pd.read_csv(run / "metrics.csv").dropna(subset="test_accuracy")


def refused(said) -> str:
    assert said.status == 2
    return said.sentence


def test_a_picture_and_what_is_drawn_are_written(grid, command, tmp_path):
    said = command("plot", str(grid))
    assert (said.status, said.err) == (0, "")
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"
    assert drawn(tmp_path).columns.tolist() == ["label", *NUMBERS]
    assert "4 runs, 2 lines" in said.out


def test_runs_that_differ_in_their_seeds_only_are_one_line_with_a_band(grid, command, tmp_path):
    command("plot", str(grid))
    table = drawn(tmp_path)
    assert sorted(set(table["label"])) == ["noise_multiplier=16", "noise_multiplier=8"]
    assert set(table["n"]) == {2}
    loud = table[table["label"] == "noise_multiplier=16"]
    both = pd.concat([evaluated(grid / f"noise16-seed{n}") for n in (0, 1)])
    ends = 100 * both[both["round"] == 4]["test_accuracy"]
    last = loud.iloc[-1]
    assert last["x"] == 4
    assert [last["low"], last["mean"], last["high"]] == pytest.approx(
        [ends.min(), ends.mean(), ends.max()]
    )


def test_runs_of_one_kind_are_one_line_for_all(grid, command, tmp_path):
    command("plot", str(grid / "noise8-seed0"), str(grid / "noise8-seed1"))
    assert set(drawn(tmp_path)["label"]) == {"all"}


def test_one_run_is_labelled_by_its_folder_and_unchanged(grid, command, tmp_path):
    command("plot", str(grid / "noise8-seed0"))
    table, run = drawn(tmp_path), evaluated(grid / "noise8-seed0")
    assert set(table["label"]) == {"noise8-seed0"}
    assert table["mean"].tolist() == pytest.approx((100 * run["test_accuracy"]).tolist())


def test_each_run_can_have_a_line_of_its_own(grid, command, tmp_path):
    command("plot", str(grid), "--each")
    assert sorted(set(drawn(tmp_path)["label"])) == [
        "noise_multiplier=16 (noise16-seed0)", "noise_multiplier=16 (noise16-seed1)",
        "noise_multiplier=8 (noise8-seed0)", "noise_multiplier=8 (noise8-seed1)",
    ]  # fmt: skip
    assert set(drawn(tmp_path)["n"]) == {1}


def test_each_of_the_runs_of_one_kind_is_labelled_by_its_folder(grid, command, tmp_path):
    command("plot", str(grid / "noise8-seed0"), str(grid / "noise8-seed1"), "--each")
    assert sorted(set(drawn(tmp_path)["label"])) == ["noise8-seed0", "noise8-seed1"]


def test_runs_from_python_are_told_apart_by_their_configuration(train, command, tmp_path):
    for noise in (8, 16):
        train("algorithm=dp_fl", "rounds=2", f"noise_schedule.noise_multiplier={noise}",
              name=f"runs/{noise}")  # fmt: skip
    assert command("plot", "runs").status == 0
    assert sorted(set(drawn(tmp_path)["label"])) == ["noise_multiplier=16", "noise_multiplier=8"]


def recorded(run: Path, overrides: list[str]) -> None:
    facts = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**facts, "overrides": overrides}))


def test_keys_of_different_groups_with_one_name_are_told_apart(grid, command, tmp_path):
    """``clipper.alpha`` and ``partition.alpha`` are different keys."""
    for name, override in (("a", "clipper.alpha=0.5"), ("b", "partition.alpha=0.5")):
        shutil.copytree(grid / "noise8-seed0", tmp_path / "runs" / name)
        recorded(tmp_path / "runs" / name, [override])
    command("plot", "runs")
    assert drawn(tmp_path)["label"].nunique() == 2


def test_what_changes_no_result_does_not_tell_runs_apart(grid, command, tmp_path):
    for name, override in (("a", "runtime.threads=1"), ("b", "runtime.threads=2")):
        shutil.copytree(grid / "noise8-seed0", tmp_path / "runs" / name)
        recorded(tmp_path / "runs" / name, ["algorithm=dp_fl", override])
    command("plot", "runs")
    assert set(drawn(tmp_path)["label"]) == {"all"}


@pytest.mark.parametrize("y", ["test_loss", "gradient_norm", "epsilon_published"])
def test_any_column_can_be_drawn(y, grid, command, tmp_path):
    command("plot", str(grid / "noise8-seed0"), "--y", y)
    metrics = pd.read_csv(grid / "noise8-seed0" / "metrics.csv").dropna(subset=y)
    assert drawn(tmp_path)["mean"].tolist() == pytest.approx(metrics[y].tolist())


@pytest.mark.parametrize("x", ["test_loss", "gradient_norm", "noise_multiplier"])
def test_any_column_can_be_the_x_axis(x, grid, command, tmp_path):
    """Also one that falls, or stays what it is: every point of the run is drawn as it is."""
    command("plot", str(grid / "noise8-seed0"), "--x", x)
    metrics = evaluated(grid / "noise8-seed0")
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
    assert "validation_loss" in sentence


def test_a_run_that_has_not_the_column_is_left_out_and_named(grid, command, tmp_path):
    shutil.copytree(grid, tmp_path / "runs")
    metrics = tmp_path / "runs" / "noise8-seed1" / "metrics.csv"
    pd.read_csv(metrics).drop(columns="test_loss").to_csv(metrics, index=False)
    said = command("plot", "runs", "--y", "test_loss")
    assert (said.status, said.err) == (0, "")
    assert "left out, no finite round or test_loss: noise8-seed1" in " ".join(said.out.split())


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
    assert "not finished, drawn as far as they are: noise16-seed0, noise8-seed1" in " ".join(
        said.out.split()
    )
    assert "Not finished" in (tmp_path / "plot.svg").read_text()


def test_nothing_is_said_of_runs_that_are_finished(grid, command, tmp_path):
    said = command("plot", str(grid), "--out", "plot.svg")
    assert "not finished" not in said.out + (tmp_path / "plot.svg").read_text().lower()


def test_a_folder_that_is_not_there_is_refused(command):
    assert "no folder nowhere" in refused(command("plot", "nowhere"))


def test_a_folder_without_runs_is_refused(command, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "empty: no run folder" in refused(command("plot", "empty"))


def test_no_folder_at_all_is_refused(command):
    assert "FOLDER" in refused(command("plot"))


def test_a_run_without_a_round_is_refused(grid, command, tmp_path):
    shutil.copytree(grid / "noise8-seed0", tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.csv"
    metrics.write_text(metrics.read_text().splitlines()[0] + "\n")
    assert "run has no round yet" in refused(command("plot", "run"))


def test_a_run_without_a_round_does_not_hide_the_others(grid, command, tmp_path):
    shutil.copytree(grid, tmp_path / "runs")
    metrics = tmp_path / "runs" / "noise8-seed0" / "metrics.csv"
    metrics.write_text(metrics.read_text().splitlines()[0] + "\n")
    said = command("plot", "runs")
    assert said.status == 0
    assert "left out, no finite round or test_accuracy: noise8-seed0" in " ".join(said.out.split())


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("environment.json", "{"),
        ("environment.json", "[]"),
        ("config.yaml", "a: [1"),
        ("config.yaml", "- 1"),
        ("metrics.csv", ""),
    ],
)
def test_a_broken_file_of_a_run_is_refused(file, content, grid, command, tmp_path):
    shutil.copytree(grid / "noise8-seed0", tmp_path / "run")
    (tmp_path / "run" / file).write_text(content)
    assert "fedpriv: run/" in refused(command("plot", "run"))


@pytest.mark.parametrize("file", ["metrics.csv", "config.yaml"])
def test_a_run_that_lacks_a_file_is_refused(file, grid, command, tmp_path):
    shutil.copytree(grid / "noise8-seed0", tmp_path / "run")
    (tmp_path / "run" / file).unlink()
    assert "fedpriv: run" in refused(command("plot", "run"))


@pytest.mark.parametrize("out", ["plot", "plot.txt", "plot.csv", "plot.jpeg"])
def test_an_unknown_kind_of_picture_is_refused(out, grid, command, tmp_path):
    sentence = refused(command("plot", str(grid), "--out", out))
    assert sentence == f"fedpriv: --out must be a file that ends in .png, .pdf, .svg, got {out}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["pdf", "svg"])
def test_other_kinds_of_picture_are_written(suffix, grid, command, tmp_path):
    assert command("plot", str(grid), "--out", f"mine.{suffix}").status == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        f"mine.{suffix}", "mine.csv", "mine.txt",
    }  # fmt: skip


def test_a_picture_in_a_folder_that_is_not_there_is_refused(grid, command):
    assert "--out must be a file in an existing folder" in refused(
        command("plot", str(grid), "--out", "nowhere/plot.png")
    )


def test_the_runs_of_a_figure_can_be_overlaid(made, command, tmp_path):
    assert command("plot", str(made / "runs")).status == 0
    assert sorted(set(drawn(tmp_path)["label"])) == ["noise_multiplier=16", "noise_multiplier=8"]


def test_of_very_many_lines_the_first_are_drawn_and_the_table_has_all(
    grid, command, tmp_path, monkeypatch
):
    """What a run needs thousands of times is read without OmegaConf."""
    monkeypatch.setattr(overlay, "MOST_LINES", 3)
    monkeypatch.setattr("omegaconf.OmegaConf.create", None)
    said = command("plot", str(grid), "--each", "--out", "plot.svg")
    assert said.status == 0
    assert "Drawn are the first 3 of 4 lines. plot.csv has all." in " ".join(said.out.split())
    assert "Drawn are the first 3 of 4 lines." in (tmp_path / "plot.svg").read_text()
    monkeypatch.undo()
    assert drawn(tmp_path)["label"].nunique() == 4


def test_lines_and_axes_can_be_named_and_the_command_stands_beside(grid, command, tmp_path):
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
    caption = (tmp_path / "a.txt").read_text()
    assert caption.startswith(f"fedpriv plot {grid} ")
    assert "--label 'noise_multiplier=8:σ = 8' --log x --width one" in caption
    assert "Student's t" in caption


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--band", "bootstrap"], "--band must be t, range or sd below 5 seeds; a curve has 2"),
        (["--band", "se"], "--band must be one of t, sd, range, bootstrap, none, got se"),
        (["--label", "noise=8:a"], "--label must be OLD:NEW, OLD being one of noise_multiplier=8; "),
        (["--label", "noise_multiplier=8:noise_multiplier=16"], "a different label for each line"),
        (["--font-size", "100"], "--font-size must be a number of points from 4 to 24, got 100"),
        (["--width", "three"], "--width must be one of one, two, got three"),
        (["--log", "z"], "--log must be one of x, y, xy, got z"),
        (["--along", "epsilon"], "takes --along with --points only"),
    ],
)  # fmt: skip
def test_a_wrong_look_is_refused_before_anything_is_written(flags, named, grid, command, tmp_path):
    assert named in refused(command("plot", str(grid), *flags))
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_there_are_not_written_over_without_force(grid, command, tmp_path):
    (tmp_path / "plot.txt").write_text("notes")
    assert "--force writes over it" in refused(command("plot", str(grid)))
    assert command("plot", str(grid), "--force").status == 0


def test_lines_are_ordered_by_the_numbers_in_their_labels():
    lines = {
        label: pd.DataFrame({"mean": [end]})
        for label, end in (("σ=10", 1), ("σ=2", 3), ("σ=2.5", 2))
    }
    assert list(overlay._ordered(lines, "setting")) == ["σ=2", "σ=2.5", "σ=10"]
    assert list(overlay._ordered(lines, "end")) == ["σ=2", "σ=2.5", "σ=10"]
