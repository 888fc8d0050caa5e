"""``fedpriv figure``: runs what is missing, draws, compares; never runs what is there."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest
from made_figures import (
    SLIM,
    changed_folder,
    comparison,
    names,
    runs,
    snapshot,
    tiny_folder,
    without_seconds,
)

import fedpriv
from fedpriv.experiment.run import run as run_config
from fedpriv.store.packed import pack_runs


def test_the_first_call_runs_every_job_to_its_end(made):
    summaries = [json.loads((run / "summary.json").read_text()) for run in runs(made)]
    assert [s["stop_reason"] for s in summaries] == ["rounds"] * 4


def test_a_job_of_a_figure_is_the_run_alone(made, train, figure, jobs_of):
    job = jobs_of(figure, stores=(made / "runs",))[3]
    alone = train(*job.overrides, name="alone")
    pd.testing.assert_frame_equal(
        without_seconds(job.folder.path), without_seconds(alone.folder), check_exact=True
    )


def test_the_csv_holds_mean_and_range_over_the_seeds(made, figure, jobs_of):
    table = pd.read_csv(made / "figures" / "own" / "tiny" / "figure.csv")
    drawn = table[table["curve"] == "loud"]
    jobs = [j for j in jobs_of(figure, stores=(made / "runs",)) if j.curve.name == "loud"]
    both = pd.concat([pd.read_csv(job.folder.metrics) for job in jobs]).dropna(
        subset="test_accuracy"
    )
    assert drawn["x"].tolist() == [2, 4]
    assert drawn["n"].tolist() == [2, 2]
    assert drawn["band"].tolist() == ["range", "range"]  # two seeds are too few for an interval
    expected = both.assign(y=100 * both["test_accuracy"]).groupby("round")["y"]
    assert drawn["mean"].tolist() == pytest.approx(expected.mean().tolist(), rel=1e-5)
    assert drawn["low"].tolist() == pytest.approx(expected.min().tolist(), rel=1e-5)
    assert drawn["high"].tolist() == pytest.approx(expected.max().tolist(), rel=1e-5)


@pytest.mark.thorough
def test_a_second_call_draws_the_same_picture(make, there, tmp_path):
    before = {n: (tiny_folder(tmp_path) / n).read_bytes() for n in ("figure.csv", "figure.png")}
    shutil.rmtree(tiny_folder(tmp_path))
    make()
    assert {n: (tiny_folder(tmp_path) / n).read_bytes() for n in before} == before


@pytest.mark.thorough
def test_the_same_is_drawn_from_packed_runs(make, made, tmp_path):
    pack_runs((made / "runs").iterdir(), tmp_path / "runs.zip")
    said = make("--reuse", "runs.zip", "--draw")
    assert (said.status, said.err) == (0, "")
    assert runs(tmp_path / "outputs") == []
    whole = (made / "figures" / "own" / "tiny" / "figure.csv").read_text()
    assert (tiny_folder(tmp_path) / "figure.csv").read_text() == whole
    assert "--reuse runs.zip" in comparison(tmp_path)


def test_a_file_that_holds_no_runs_is_refused(make, tmp_path):
    (tmp_path / "runs.zip").write_text("nonsense")
    said = make("--reuse", "runs.zip")
    assert said.status == 2
    assert "runs.zip cannot be read" in said.sentence


@pytest.mark.thorough
def test_only_the_missing_run_is_made(make, there, made):
    gone, *kept = runs(there)
    shutil.rmtree(gone)
    before = {run.name: snapshot(run) for run in kept}
    assert make().status == 0
    assert {run.name: snapshot(run) for run in kept} == before
    pd.testing.assert_frame_equal(
        without_seconds(gone), without_seconds(made / "runs" / gone.name), check_exact=True
    )


@pytest.mark.thorough
def test_an_interrupted_run_goes_on_to_what_it_would_have_been(
    make, command, train, figure, jobs_of, made, tmp_path
):
    job = jobs_of(figure)[0]
    (tmp_path / "stop").touch()
    place = f"runtime.run_dir={job.folder.path}"
    stop = f"runtime.stop_file={tmp_path / 'stop'}"
    quiet = ("runtime.progress=none", "runtime.plots=false")
    config = fedpriv.compose([*job.overrides, place, stop, *quiet])
    run_config(config)
    assert (job.state, len(without_seconds(job.folder.path))) == ("partly", 1)
    said = make()
    assert (said.status, said.err) == (0, "")
    assert "1 to be resumed" in said.out
    pd.testing.assert_frame_equal(
        without_seconds(job.folder.path),
        without_seconds(made / "runs" / job.folder.path.name),
        check_exact=True,
    )
    whole = (made / "figures" / "own" / "tiny" / "figure.csv").read_text()
    assert (tiny_folder(tmp_path) / "figure.csv").read_text() == whole


@pytest.mark.thorough
def test_a_run_that_lost_its_end_goes_on_to_what_it_was(make, there, made):
    lost = runs(there)[0]
    (lost / "summary.json").unlink()
    assert make().status == 0
    assert (lost / "summary.json").exists()
    pd.testing.assert_frame_equal(
        without_seconds(lost), without_seconds(made / "runs" / lost.name), check_exact=True
    )


def test_a_dry_run_shows_the_jobs_and_writes_nothing(make, tmp_path):
    said = make("--dry-run")
    assert (said.status, said.err) == (0, "")
    assert "0: not run, 1: not run" in " ".join(said.out.split())
    assert not (tmp_path / "outputs").exists()


@pytest.mark.thorough
def test_the_quick_scale_goes_elsewhere_and_is_stamped(make, tmp_path):
    assert make("--quick").status == 0
    outputs = tmp_path / "outputs"
    text = (outputs / "figures" / "own" / "tiny_quick" / "comparison.md").read_text()
    assert "**quick** (rounds=2)" in text
    assert "Changed: rounds=2." in text
    assert not tiny_folder(tmp_path).exists()
    assert [len(without_seconds(run)) for run in runs(outputs)] == [2, 2]


def test_draw_runs_nothing(make, there, tmp_path):
    shutil.rmtree(runs(there)[0])
    before = snapshot(there / "runs")
    said = make("--draw")
    assert said.status == 1
    assert "1 of 4 runs of own/tiny not finished: digits/" in said.sentence
    assert snapshot(there / "runs") == before
    assert "Missing runs: 1." in comparison(tmp_path)
    assert "Not finished: digits/" in comparison(tmp_path)


@pytest.mark.thorough
def test_the_joint_epsilon_counts_runs_that_did_not_end(make, there, tmp_path):
    (runs(there)[0] / "summary.json").unlink()  # killed
    make("--draw")
    assert "Joint ε of all 4 private runs together on digits" in comparison(tmp_path)


def test_draw_without_any_run_says_so(make, tmp_path):
    said = make("--draw")
    assert said.status == 1
    assert "no run of own/tiny is finished" in said.sentence
    assert runs(tmp_path / "outputs") == []


@pytest.mark.thorough
def test_overrides_are_noted_in_the_comparison(make, tmp_path):
    assert make("rounds=2", "--seeds", "0", "runtime.threads=1").status == 0
    text = (changed_folder(tmp_path) / "comparison.md").read_text()
    assert "Scale: **changed** (rounds=2)." in text
    assert "Changed: rounds=2." in text
    assert not tiny_folder(tmp_path).exists()


@pytest.mark.thorough
def test_the_figure_can_be_made_again_with_the_command_it_names(make, there, tmp_path, command):
    make()
    (line,) = [ln for ln in comparison(tmp_path).splitlines() if ln.startswith("- command: ")]
    arguments = line.removeprefix("- command: `fedpriv ").removesuffix("`").split()
    assert command(*arguments).status == 0


@pytest.mark.thorough
def test_the_time_that_was_measured_is_not_that_of_changed_runs(make, tiny):
    for curve in tiny["curves"].values():
        curve["minutes"] = {"digits": 2}
    assert ": 4 runs, 0 done; the rest takes about 8:00" in make("--dry-run").out
    for changed in (["epsilon=1"], ["--quick"]):
        said = make(*changed, "--dry-run")
        assert said.status == 0
        assert "takes about" not in said.out


@pytest.mark.thorough
def test_train_with_a_figure_is_the_same(command, write, made, tmp_path):
    write()
    said = command(
        "train", "-m", "--config-dir", "mine", "+figure=own/tiny", "runtime.progress=none"
    )
    assert (said.status, said.err) == (0, "")
    assert names(tmp_path / "outputs") == names(made)
    whole = (made / "figures" / "own" / "tiny" / "figure.csv").read_text()
    assert (tiny_folder(tmp_path) / "figure.csv").read_text() == whole


def test_train_with_a_figure_but_no_sweep_is_refused(command, write, tmp_path):
    write()
    said = command("train", "--config-dir", "mine", "+figure=own/tiny")
    assert said.status == 2
    assert "add -m" in said.sentence
    assert not (tmp_path / "outputs").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("slim", [False, True])
def test_runs_that_are_kept_elsewhere_are_reused(slim, make, made, tmp_path):
    def ignore(folder: str, files: list[str]) -> list[str]:
        inside_a_run = "config.yaml" in files
        return [f for f in files if f not in SLIM] if slim and inside_a_run else []

    shutil.copytree(made / "runs", tmp_path / "kept", ignore=ignore)
    before = snapshot(tmp_path / "kept")
    said = make("--reuse", "kept")
    assert (said.status, said.err) == (0, "")
    assert runs(tmp_path / "outputs") == []
    assert snapshot(tmp_path / "kept") == before
    assert "--reuse kept`" in comparison(tmp_path)
    whole = (made / "figures" / "own" / "tiny" / "figure.csv").read_text()
    assert (tiny_folder(tmp_path) / "figure.csv").read_text() == whole


def test_a_folder_to_reuse_must_be_there(make):
    said = make("--reuse", "nowhere")
    assert said.status == 2
    assert (
        "--reuse (figure.reuse) must be an existing folder of runs, or a file runs.zip, got"
        in said.sentence
    )


@pytest.mark.thorough
def test_the_same_run_in_two_figures_is_made_once(make, there, command, write, tiny):
    tiny |= {"title": "Other", "show": {"digits": ["loud"]}}
    write("other")
    before = snapshot(there / "runs")
    said = command("figure", "own/other", "--config-dir", "mine", "runtime.progress=none")
    assert said.status == 0
    assert snapshot(there / "runs") == before
    assert (there / "figures" / "own" / "other" / "figure.png").exists()


@pytest.mark.thorough
def test_a_line_for_each_client_is_drawn(make, there, tiny, tmp_path):
    tiny["metric"] = {"norm": {"column": "gradient_norm", "kind": "clients"}}
    assert make("rounds=2", "--seeds", "0").status == 0
    table = pd.read_csv(changed_folder(tmp_path) / "figure.csv")
    assert table["client"].nunique() == 10
    assert table["x"].max() == 2
    assert set(table["n"]) == {1}
