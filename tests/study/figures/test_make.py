"""``fedpriv figure``: runs what is missing, draws, compares; never runs what is there."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
from joblib.externals.loky import get_reusable_executor

import fedpriv
from fedpriv.experiment.run import run as run_config
from fedpriv.store.packed import pack_runs

SLIM = ("config.yaml", "summary.json", "metrics.csv", "environment.json", "privacy.json")
FAILING = """
from fedpriv.privacy.clippers import ConstantClipper

class Failing(ConstantClipper):
    def observe(self, *released):
        raise RuntimeError("a defect of the clipper")
"""


def tiny_folder(tmp_path: Path) -> Path:
    return tmp_path / "outputs" / "figures" / "own" / "tiny"


def changed_folder(tmp_path: Path) -> Path:
    return tmp_path / "outputs" / "figures" / "own" / "tiny_changed"


def comparison(tmp_path: Path) -> str:
    return (tiny_folder(tmp_path) / "comparison.md").read_text()


def runs(outputs: Path) -> list[Path]:
    return sorted((outputs / "runs").iterdir()) if (outputs / "runs").is_dir() else []


def names(outputs: Path) -> list[str]:
    return [path.name for path in runs(outputs)]


def without_seconds(run: Path) -> pd.DataFrame:
    return pd.read_csv(run / "metrics.csv").drop(columns="seconds")


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def there(made, tmp_path) -> Path:
    """The output folder of a figure that is made already."""
    return Path(shutil.copytree(made, tmp_path / "outputs"))


def test_the_first_call_leaves_the_files_of_the_figure(made):
    files = {path.name for path in (made / "figures" / "own" / "tiny").iterdir()}
    assert files == {
        "figure.csv",
        "ends.csv",
        "runs.csv",
        "figure.png",
        "figure.pdf",
        "comparison.md",
        "report.html",
    }


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
    expected = both.assign(y=100 * both["test_accuracy"]).groupby("round")["y"]
    assert drawn["mean"].tolist() == pytest.approx(expected.mean().tolist(), rel=1e-5)
    assert drawn["low"].tolist() == pytest.approx(expected.min().tolist(), rel=1e-5)
    assert drawn["high"].tolist() == pytest.approx(expected.max().tolist(), rel=1e-5)


def test_a_second_call_runs_nothing(make, there):
    before = snapshot(there / "runs")
    said = make()
    assert (said.status, said.err) == (0, "")
    assert snapshot(there / "runs") == before


def test_a_second_call_draws_the_same_picture(make, there, tmp_path):
    before = {n: (tiny_folder(tmp_path) / n).read_bytes() for n in ("figure.csv", "figure.png")}
    shutil.rmtree(tiny_folder(tmp_path))
    make()
    assert {n: (tiny_folder(tmp_path) / n).read_bytes() for n in before} == before


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


def test_only_the_missing_run_is_made(make, there, made):
    gone, *kept = runs(there)
    shutil.rmtree(gone)
    before = {run.name: snapshot(run) for run in kept}
    assert make().status == 0
    assert {run.name: snapshot(run) for run in kept} == before
    pd.testing.assert_frame_equal(
        without_seconds(gone), without_seconds(made / "runs" / gone.name), check_exact=True
    )


@pytest.mark.parametrize("recorded", [pytest.param(True, marks=pytest.mark.slow), False])
def test_an_interrupted_run_goes_on_to_what_it_would_have_been(
    recorded, make, command, train, figure, jobs_of, made, tmp_path
):
    job = jobs_of(figure)[0]
    (tmp_path / "stop").touch()
    place = f"runtime.run_dir={job.folder.path}"
    stop = f"runtime.stop_file={tmp_path / 'stop'}"
    quiet = ("runtime.progress=none", "runtime.plots=false")
    config = fedpriv.compose([*job.overrides, place, stop, *quiet])
    run_config(config, overrides=[*job.overrides, place, stop] if recorded else None)
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


def test_a_run_that_lost_its_end_goes_on_to_what_it_was(make, there, made):
    lost = runs(there)[0]
    (lost / "summary.json").unlink()
    assert make().status == 0
    assert (lost / "summary.json").exists()
    pd.testing.assert_frame_equal(
        without_seconds(lost), without_seconds(made / "runs" / lost.name), check_exact=True
    )


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again(make, there, made):
    lost = runs(there)[0]
    (lost / "summary.json").unlink()
    (lost / "checkpoint.pt").unlink()
    assert make().status == 0
    pd.testing.assert_frame_equal(
        without_seconds(lost), without_seconds(made / "runs" / lost.name), check_exact=True
    )


IMPOSSIBLE = {
    "label": "impossible", "colour": "red",
    "overrides": ["algorithm=dp_fl", "epsilon=0.001"],
}  # fmt: skip
FAILS_WHEN_RUN = {  # what lots of fixed size cost is known once the data are there
    **IMPOSSIBLE,
    "overrides": [*IMPOSSIBLE["overrides"], "algorithm.sampling=fixed_size"],
}
DIVERGING = {
    "label": "diverging", "colour": "red",
    "overrides": ["algorithm=fedavg", "algorithm.learning_rate=1e38", "evaluation_interval=1"],
}  # fmt: skip


def add(tiny: dict, curve: dict) -> None:
    """Put a curve before the others, with one seed."""
    tiny["curves"]["bad"] = curve
    tiny["show"]["digits"] = ["bad", *tiny["show"]["digits"]]
    tiny["groups"]["digits"]["seeds"] = [0]


def test_a_job_that_fails_does_not_stop_the_others(make, tiny, tmp_path):
    add(tiny, FAILS_WHEN_RUN)
    said = make()
    assert said.status == 1
    assert "digits/bad/seed 0: " in said.err
    assert "epsilon must be >= " in said.err
    assert "1 of 3 runs of own/tiny failed" in said.err
    assert "Traceback" not in said.err
    assert len(runs(tmp_path / "outputs")) == 2
    assert "Not finished: digits/bad/seed 0." in comparison(tmp_path)


def test_what_failed_is_said_every_time(make, tiny, tmp_path):
    add(tiny, FAILS_WHEN_RUN)
    first = make()
    for again in (make("--draw"), make()):
        assert again.status == 1
        assert again.err.splitlines()[0] == first.err.splitlines()[0]
        assert "digits/bad/seed 0: " in again.err
        assert "1 of 3 runs of own/tiny failed, see above; " in again.err
    (why,) = [line for line in comparison(tmp_path).splitlines() if line.startswith("- digits/bad")]
    assert "epsilon must be >= " in why


def test_what_failed_and_runs_then_is_forgotten(make, there, tiny, tmp_path):
    record = tiny_folder(tmp_path) / "runs.csv"
    failed = record.read_text().replace(",done,,", ",not run,no room,", 1)
    record.write_text(failed)
    shutil.rmtree(there / "runs" / failed.splitlines()[1].rpartition("/")[2])
    assert "digits/loud/seed 0: no room" in make("--draw").err
    said = make()
    assert (said.status, said.err) == (0, "")
    assert "no room" not in record.read_text()


@pytest.mark.slow
def test_a_run_that_is_in_two_groups_fails_in_both(make, tiny):
    add(tiny, FAILS_WHEN_RUN)
    tiny["groups"]["again"] = tiny["groups"]["digits"]
    tiny["show"]["again"] = ["bad"]
    for said in (make(), make("--draw")):
        failed, _ = said.err.splitlines()
        assert "digits/bad/seed 0" in failed
        assert "again/bad/seed 0" in failed
        assert "2 of 4 runs of own/tiny failed" in said.err


def test_a_budget_that_allows_no_round_is_refused_before_any_run(make, tiny, tmp_path):
    add(tiny, IMPOSSIBLE)
    said = make()
    assert said.status == 2
    assert "epsilon must be >= " in said.sentence
    assert not (tmp_path / "outputs").exists()


def test_a_defect_in_a_job_shows_where_and_does_not_stop_the_others(make, tiny, tmp_path):
    (tmp_path / "failing_clipper_of_a_figure.py").write_text(FAILING)
    add(tiny, {
        "label": "failing", "colour": "red",
        "overrides": ["algorithm=dp_fl", "clipper._target_=failing_clipper_of_a_figure.Failing"],
    })  # fmt: skip
    said = make()
    assert said.status == 1
    assert "Traceback" in said.err
    assert "fedpriv: digits/bad/seed 0: RuntimeError: a defect of the clipper" in said.err
    assert "Not finished: digits/bad/seed 0." in comparison(tmp_path)


def test_a_run_that_diverges_does_not_stop_the_others_and_is_named(make, tiny, tmp_path):
    add(tiny, DIVERGING)
    said = make()
    assert said.status == 1
    assert "digits/bad/seed 0: diverged in round" in said.err
    assert "Diverged (a loss was no longer finite): digits/bad/seed 0." in comparison(tmp_path)
    assert "Diverged runs, drawn to where they did: 1." in comparison(tmp_path)
    again = make()
    assert again.status == 1
    assert "digits/bad/seed 0: diverged in round" in again.err
    assert (
        "digits,bad,,0,done,diverged in round" in (tiny_folder(tmp_path) / "runs.csv").read_text()
    )


def test_a_diverged_run_is_not_promised_another_try(make, tiny):
    """It has ended, so the same command does not run it again."""
    add(tiny, DIVERGING)
    assert "tries them again" not in make().err


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("clipper.clip_nrm=1", "did you mean clipper.clip_norm?"),
        ("clipper=constnt", "did you mean constant?"),
        ("noise_schedule.noise_multiplier=-1", "noise_schedule.noise_multiplier must be > 0"),
        ("algorithm.sample_rate=2", "algorithm.sample_rate must be "),
        ("seed=1", "use --seeds "),
        ("rounds", "rounds"),
    ],
)
def test_a_configuration_that_cannot_run_is_refused_before_any_run(
    override, words, make, tiny, tmp_path
):
    tiny["curves"]["quiet"]["overrides"].append(override)  # the last curve
    said = make()
    assert said.status == 2
    assert words in said.sentence
    assert not (tmp_path / "outputs").exists()


def test_an_override_that_cannot_be_is_refused_before_any_run(make, tmp_path):
    said = make("roundz=3")
    assert said.status == 2
    assert "did you mean rounds?" in said.sentence
    assert not (tmp_path / "outputs").exists()


def test_a_folder_that_holds_another_run_is_refused(make, there):
    config = runs(there)[0] / "config.yaml"
    config.write_text(config.read_text().replace("rounds: 4", "rounds: 5"))
    said = make()
    assert said.status == 2
    assert "holds another run than its name says" in said.sentence


def test_a_dry_run_shows_the_jobs_and_writes_nothing(make, tmp_path):
    said = make("--dry-run")
    assert (said.status, said.err) == (0, "")
    assert "0: not run, 1: not run" in " ".join(said.out.split())
    assert not (tmp_path / "outputs").exists()


def test_lists_are_shown_as_they_are_written(make):
    words = ("dataset.vocabulary=public", "dataset.vocabulary_words=[people,in]")
    said = make("dataset=ubuntu_irc", "model=lstm_lm", *words, "--dry-run")
    assert "dataset.vocabulary_words=[people,in]" in "".join(said.out.split())


def test_the_quick_scale_goes_elsewhere_and_is_stamped(make, tmp_path):
    assert make("--quick").status == 0
    outputs = tmp_path / "outputs"
    text = (outputs / "figures" / "own" / "tiny_quick" / "comparison.md").read_text()
    assert "**quick** (rounds=2)" in text
    assert "Changed: rounds=2." in text
    assert not tiny_folder(tmp_path).exists()
    assert [len(without_seconds(run)) for run in runs(outputs)] == [2, 2]


def test_a_figure_at_the_papers_scale_is_not_stamped(made):
    assert "quick" not in (made / "figures/own/tiny/comparison.md").read_text().lower().replace(
        "quiet", ""
    )


def test_draw_runs_nothing(make, there, tmp_path):
    shutil.rmtree(runs(there)[0])
    before = snapshot(there / "runs")
    said = make("--draw")
    assert said.status == 1
    assert "1 of 4 runs of own/tiny is not finished: digits/" in said.sentence
    assert snapshot(there / "runs") == before
    assert "Missing runs: 1." in comparison(tmp_path)
    assert "Not finished: digits/" in comparison(tmp_path)


def test_draw_without_any_run_says_so(make, tmp_path):
    said = make("--draw")
    assert said.status == 1
    assert "no run of own/tiny is finished" in said.sentence
    assert runs(tmp_path / "outputs") == []


def test_the_seeds_are_those_asked_for(make, tmp_path):
    assert make("--seeds", "5").status == 0
    summaries = [json.loads((r / "summary.json").read_text()) for r in runs(tmp_path / "outputs")]
    assert [s["seed"] for s in summaries] == [5, 5]
    assert "Digits: 1 seed)" in comparison(tmp_path)


def test_further_seeds_use_the_runs_that_are_there(make, there):
    before = {run.name: snapshot(run) for run in runs(there)}
    assert make("--seeds", "0,1,2").status == 0
    assert len(runs(there)) == 6
    assert {name: snapshot(there / "runs" / name) for name in before} == before


def test_overrides_are_noted_in_the_comparison(make, tmp_path):
    assert make("rounds=2", "--seeds", "0", "runtime.threads=1").status == 0
    text = (changed_folder(tmp_path) / "comparison.md").read_text()
    assert "Scale: **changed** (rounds=2)." in text
    assert "Changed: rounds=2." in text
    assert not tiny_folder(tmp_path).exists()


def test_what_changes_no_result_is_not_noted_as_a_change(make, there, tmp_path):
    assert make("runtime.threads=1").status == 0
    assert "hanged" not in comparison(tmp_path)


def test_an_override_applies_to_every_run(make, tmp_path):
    assert make("rounds=2", "--seeds", "0").status == 0
    assert [len(without_seconds(run)) for run in runs(tmp_path / "outputs")] == [2, 2]


def test_the_figure_can_be_made_again_with_the_command_it_names(make, there, tmp_path, command):
    make()
    (line,) = [ln for ln in comparison(tmp_path).splitlines() if ln.startswith("- command: ")]
    arguments = line.removeprefix("- command: `fedpriv ").removesuffix("`").split()
    assert command(*arguments).status == 0


def test_the_time_that_was_measured_is_not_that_of_changed_runs(make, tiny):
    for curve in tiny["curves"].values():
        curve["minutes"] = {"digits": 2}
    assert "(paper scale): 4 runs, 0 done; the rest takes about 8:00" in make("--dry-run").out
    for changed in (["epsilon=1"], ["--quick"]):
        said = make(*changed, "--dry-run")
        assert said.status == 0
        assert "takes about" not in said.out


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


def test_the_same_run_in_two_figures_is_made_once(make, there, command, write, tiny):
    tiny |= {"title": "Other", "show": {"digits": ["loud"]}}
    write("other")
    before = snapshot(there / "runs")
    said = command("figure", "own/other", "--config-dir", "mine", "runtime.progress=none")
    assert said.status == 0
    assert snapshot(there / "runs") == before
    assert (there / "figures" / "own" / "other" / "figure.png").exists()


def test_a_line_for_each_client_is_drawn(make, there, tiny, tmp_path):
    tiny["axes"] = {"norm": {"x": "round", "y": "gradient_norm", "lines": "clients"}}
    assert make("rounds=2", "--seeds", "0").status == 0
    table = pd.read_csv(changed_folder(tmp_path) / "figure.csv")
    assert table["client"].nunique() == 10
    assert set(table["n"]) == {1}


@pytest.mark.slow
def test_two_processes_make_the_same_figure_as_one(make, made, there, tmp_path):
    for run in runs(there):
        if json.loads((run / "summary.json").read_text())["seed"] == 1:
            shutil.rmtree(run)
    shutil.rmtree(tiny_folder(tmp_path))
    said = make("--jobs", "2")
    get_reusable_executor().shutdown(wait=True)
    assert (said.status, said.err) == (0, "")
    assert names(tmp_path / "outputs") == names(made)
    whole = (made / "figures" / "own" / "tiny" / "figure.csv").read_text()
    assert (tiny_folder(tmp_path) / "figure.csv").read_text() == whole


STOPPING = """
import os, signal
from fedpriv.privacy.clippers import ConstantClipper

class Stopping(ConstantClipper):
    seen = 0

    def observe(self, *released):
        self.seen += 1
        if self.seen == 3 and os.environ.get("STOP_WITH"):
            os.kill(os.getpid(), getattr(signal, os.environ["STOP_WITH"]))
"""


@pytest.mark.parametrize("signal", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.slow)])
def test_a_figure_that_was_interrupted_goes_on_to_what_it_would_have_been(
    signal, make, tiny, tmp_path, monkeypatch
):
    (tmp_path / "stopping_clipper_of_a_figure.py").write_text(STOPPING)
    tiny["curves"]["loud"]["overrides"].append(
        "clipper._target_=stopping_clipper_of_a_figure.Stopping"
    )
    monkeypatch.setenv("STOP_WITH", signal)
    said = make("--seeds", "0")
    assert said.status == 130
    assert "interrupted with 0 of 2 runs done; the same command finishes the others" in said.err
    assert "Traceback" not in said.err
    (begun,) = runs(tmp_path / "outputs")  # the second did not begin
    assert len(without_seconds(begun)) == 3
    assert not list(tmp_path.rglob(".stop-*"))
    monkeypatch.delenv("STOP_WITH")
    assert make("--seeds", "0").status == 0
    assert make("--seeds", "0", "runtime.output_dir=whole").status == 0
    assert names(tmp_path / "outputs") == names(tmp_path / "whole")
    for run in runs(tmp_path / "outputs"):
        pd.testing.assert_frame_equal(
            without_seconds(run),
            without_seconds(tmp_path / "whole" / "runs" / run.name),
            check_exact=True,
        )


def test_ctrl_c_stops_the_workers_with_checkpoints(start, write, tiny, tmp_path):
    tiny["groups"]["digits"]["overrides"][2] = "rounds=1000000"
    tiny["groups"]["digits"]["seeds"] = [0]
    write()
    child = start(
        "figure", "own/tiny", "--config-dir", "mine", "--jobs", "2", "runtime.progress=none"
    )
    while not list(tmp_path.glob("outputs/runs/*/metrics.csv")):
        assert child.poll() is None, child.communicate()
        time.sleep(0.02)
    child.send_signal(2)
    _, err = child.communicate()
    assert child.returncode == 130
    assert "interrupted with 0 of 2 runs done; the same command finishes the others" in err
    assert "Traceback" not in err
    for run in runs(tmp_path / "outputs"):
        assert json.loads((run / "summary.json").read_text())["stop_reason"] == "interrupted"
        assert (run / "checkpoint.pt").exists()
    assert not list(tmp_path.rglob(".stop-*"))


@pytest.mark.slow
@pytest.mark.parametrize("quiet", [400, 2])  # with 2 one of the workers waits for a next job
def test_workers_end_with_a_figure_that_was_killed(quiet, start, make, write, tiny, tmp_path):
    tiny["groups"]["digits"]["overrides"][2] = "rounds=400"
    tiny["groups"]["digits"]["seeds"] = [0]
    tiny["curves"]["quiet"]["overrides"].append(f"rounds={quiet}")
    write()
    child = start(
        "figure", "own/tiny", "--config-dir", "mine", "--jobs", "2", "runtime.progress=none"
    )
    while len(list(tmp_path.glob("outputs/runs/*/metrics.csv"))) < 2:
        assert child.poll() is None, child.communicate()
        time.sleep(0.02)
    while quiet == 2 and not list(tmp_path.glob("outputs/runs/*/summary.json")):
        time.sleep(0.02)
    workers = psutil.Process(child.pid).children(recursive=True)
    assert len(workers) >= 2
    child.kill()
    child.communicate()
    _, alive = psutil.wait_procs(workers, timeout=120)
    assert alive == []
    ends = [json.loads((r / "summary.json").read_text()) for r in runs(tmp_path / "outputs")]
    expected = ["interrupted", "interrupted" if quiet == 400 else "rounds"]
    assert sorted(end["stop_reason"] for end in ends) == expected
    assert list(tmp_path.rglob(".stop-*"))
    assert make().status == 0
    assert not list(tmp_path.rglob(".stop-*"))
    ends = [json.loads((r / "summary.json").read_text()) for r in runs(tmp_path / "outputs")]
    assert sorted(end["rounds"] for end in ends) == sorted([400, quiet])
    if quiet == 2:
        return
    assert make("runtime.output_dir=whole").status == 0
    for run in runs(tmp_path / "outputs"):
        pd.testing.assert_frame_equal(
            without_seconds(run),
            without_seconds(tmp_path / "whole" / "runs" / run.name),
            check_exact=True,
        )
