"""``fedpriv figure FILE.yaml``: runs, baselines, what a second call adds, the forecast of a dry run."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pandas as pd
import pytest
import yaml

from fedpriv import cli
from fedpriv.study.figures.reading import read_own
from fedpriv.tools.report.privacy_paragraph import privacy_paragraph

QUIET = ("runtime.progress=none",)
BASE = (
    "algorithm=ldp_fedsgd dataset=digits rounds=4 evaluation_interval=2 noise_schedule=calibrated "
    "noise_schedule.epsilon_per_draw=null"
)
OWN = {
    "base": BASE,
    "x": {"epsilon": [1, 4]},
    "curves": {"algorithm.learning_rate": [0.1]},
    "seeds": 2,
    "metric": "accuracy",
    "baselines": [
        {"label": "no privacy", "run": "algorithm=fedsgd"},
        {"label": "theirs", "csv": "theirs.csv", "source": "table 2", "as": "line"},
        {"label": "guessing", "value": 10},
    ],
}


def write_own(folder: Path, **changes: object) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "own.yaml").write_text(yaml.safe_dump({**OWN, **changes}))
    (folder / "theirs.csv").write_text("x,y,low,high\n1,50,45,55\n4,70,65,75\n")


@pytest.fixture(scope="session")
def made_own(tmp_path_factory) -> Path:
    """A folder with the file and its six finished runs: copy to change."""
    folder = tmp_path_factory.mktemp("own")
    write_own(folder)
    words = [str(folder / "own.yaml"), *QUIET, f"runtime.output_dir={folder / 'outputs'}"]
    assert cli.run(["figure", *words]) == 0
    return folder


@pytest.fixture
def here(made_own, tmp_path) -> Path:
    return Path(shutil.copytree(made_own, tmp_path, dirs_exist_ok=True))


@pytest.fixture
def figure_of(tmp_path):
    """(changes) → the figure of the file, composed by fedpriv."""
    from fedpriv.common.config import compose

    def run(settings=(), **changes: object):
        write_own(tmp_path, **changes)
        return read_own({"file": str(tmp_path / "own.yaml"), **dict(settings)}, compose)

    return run


def test_the_files_of_the_figure_are_those_of_any_figure(made_own):
    files = {path.name for path in (made_own / "outputs" / "figures" / "own").iterdir()}
    assert {"figure.csv", "figure.png", "figure.pdf", "comparison.md", "figure.yaml"} <= files


def test_the_csv_has_curves_runs_without_privacy_and_numbers_from_elsewhere(made_own):
    table = pd.read_csv(made_own / "outputs" / "figures" / "own" / "figure.csv")
    counts = table.groupby("curve", sort=False)["n"].first().to_dict()
    assert counts == {
        "learning rate = 0.1": 2, "no privacy": 2, "theirs": 0, "guessing": 0,
    }  # fmt: skip
    theirs = table[table["curve"] == "theirs"]
    assert theirs[["x", "mean", "low", "high"]].to_numpy().tolist() == [
        [1, 50, 45, 55],
        [4, 70, 65, 75],
    ]
    assert table[table["curve"] == "guessing"]["x"].tolist() == [1, 4]


def test_runs_without_privacy_are_made_once_a_seed_without_the_keys_of_noise(figure_of):
    group = figure_of().groups[0]
    curve = group.curves[-1]
    assert curve.points is False
    assert "epsilon=null" in curve.overrides
    assert not any(o.startswith("noise_schedule") for o in curve.overrides)


def test_runs_without_privacy_are_made_at_every_x_that_is_about_something_else(figure_of):
    figure = figure_of(x={"algorithm.clients_per_round": [5, 10]})
    assert figure.groups[0].curves[-1].points is True


def test_panels_have_their_own_overrides_and_baselines(figure_of):
    panels = {"A": "partition=fixed_size", "B": "partition=shards40"}
    baselines = [{"label": "theirs", "csv": "theirs.csv", "panel": "B"}]
    figure = figure_of(panels=panels, baselines=baselines)
    assert [g.title for g in figure.groups] == ["A", "B"]
    assert "partition=shards40" in figure.groups[1].curves[0].overrides
    assert {mark.group for mark in figure.marks} == {"B"}


def test_a_curve_wins_over_base(figure_of):
    curve = figure_of(curves={"long": "rounds=9"}).groups[0].curves[0]
    assert [o for o in curve.overrides if o.startswith("rounds=")] == ["rounds=9"]


def test_the_only_curve_of_a_file_without_curves_has_the_title_for_a_name(figure_of):
    assert figure_of(curves=None, title="Digits").groups[0].curves[0].label == "Digits"


def test_seeds_and_scale_of_the_command_replace_those_of_the_file(figure_of):
    assert figure_of({"seeds": [5]}).groups[0].seeds == (5,)
    quick = figure_of({"scale": "quick"}, quick="rounds=2")
    assert (quick.groups[0].seeds, quick.quick) == ((0,), ("rounds=2",))


@pytest.mark.thorough
def test_an_extended_file_runs_only_what_is_missing(here, command):
    before = {path.name for path in (here / "outputs" / "runs").iterdir()}
    write_own(here, x={"epsilon": [1, 2, 4]})
    said = command("figure", "own.yaml", *QUIET)
    assert said.status == 0, said.err
    assert "own: 8 runs, 6 done" in said.out
    assert len({path.name for path in (here / "outputs" / "runs").iterdir()} - before) == 2


def test_a_dry_run_shows_epsilon_and_rounds_of_every_job(tmp_path, command, wide_cells):
    write_own(tmp_path, curves=None, seeds=1)
    said = command("figure", "own.yaml", "--dry-run", *QUIET)
    assert said.status == 0, said.err
    rows = [line for line in said.out.splitlines() if "0: not run" in line]
    assert len(rows) == 3
    for cell in ("1.000", "4.000", "none"):
        assert sum(f" {cell} " in row for row in rows) == 1
    assert "goes to outputs/figures/own: figure.png, figure.pdf, figure.csv, ends.csv" in said.out
    for heading in ("σ", "sound ε"):
        assert heading in said.out
    assert not (tmp_path / "outputs").exists()


def test_a_dry_run_states_the_joint_epsilon_that_the_runs_have(here, command):
    said = command("figure", "own.yaml", "--dry-run", *QUIET)
    text = (here / "outputs/figures/own/comparison.md").read_text()
    (joint,) = [line[2:] for line in text.splitlines() if "Joint ε" in line]
    assert joint in said.out


def test_a_list_shows_the_state_of_the_runs(here, command):
    said = command("figure", "own.yaml", "--list")
    assert said.status == 0, said.err
    assert "6 runs, 6 done" in said.out


@pytest.mark.thorough
def test_one_cell_that_cannot_run_is_named_before_anything_runs(tmp_path, command):
    write_own(tmp_path, x={"algorithm.clients_per_round": [0, 5]})
    said = command("figure", "own.yaml", *QUIET)
    assert said.status == 2
    assert "learning rate = 0.1/at 0/seed 0: algorithm.clients_per_round must be" in said.sentence
    assert not (tmp_path / "outputs").exists()


def test_a_warning_about_the_choice_of_runs_is_a_comment_of_the_paragraph():
    lines = privacy_paragraph([], "Warning: chosen on the test records.").splitlines()
    assert [line for line in lines if "chosen" in line] == [
        "% Warning: chosen on the test records."
    ]


@pytest.mark.thorough
def test_a_cell_that_fails_while_it_runs_is_shown_and_tried_again(here, command):
    failed = here / "outputs" / "runs"
    run = next(path for path in failed.iterdir() if "_fedsgd" not in path.name)
    shutil.rmtree(run)
    run.write_text("in the way")
    said = command("figure", "own.yaml", *QUIET)
    assert said.status == 1
    assert "no privacy/seed" in said.err
    text = (here / "outputs/figures/own/comparison.md").read_text()
    assert "Not finished: all/no privacy/seed" in text
    run.unlink()
    assert command("figure", "own.yaml", *QUIET).status == 0


def test_an_unknown_key_of_the_command_is_refused(here, command):
    said = command("figure", "own.yaml", "figure.titel=x", *QUIET)
    assert said.status == 2
    assert "figure.titel" in said.sentence


def test_the_joint_epsilon_stands_below_the_tables(made_own):
    text = (made_own / "outputs" / "figures" / "own" / "comparison.md").read_text()
    assert "Joint ε of 4 private runs together on digits" in text
    assert "2 runs without privacy" in text


@pytest.mark.parametrize("given", ["outputs/figures/own", "own"])
def test_the_means_of_a_figure_are_a_table(given, here, command):
    said = command("runs", given, "--means", "--best", "test_accuracy", "--table", "latex")
    assert said.status == 0, said.err
    rows = [line.strip() for line in said.out.splitlines() if "&" in line]
    head = "curve & asked epsilon & seeds & n & rounds & epsilon enforced & epsilon published"
    assert rows[0].startswith(head)
    own = [row for row in rows if " 0 1 & 2 &" in row]
    assert [row.split(" & ")[:2] for row in own] == [
        ["learning rate = 0.1", "1"],
        ["learning rate = 0.1", "4"],
        ["no privacy", "-"],
    ]
    best = [row for row in rows if "textbf" in row]
    assert (
        best == own[:2]
    )  # one for each epsilon; no privacy is more accurate, but without a guarantee
    assert r"theirs & 4 & - & - & - & - & - & - & 70.00 (65.00 to 75.00) \%" in rows[-2]
    assert rows[-1].startswith("guessing & - &")


def test_the_paragraph_for_a_paper_is_printed(here, command):
    said = command("report", "outputs/figures/own", "--latex")
    assert said.status == 0, said.err
    assert said.out == command("report", "own", "--latex").out
    assert "neither which runs were made nor when they stopped" in said.out
    assert said.out.startswith("% from the privacy statements of 6 runs")
    for word in (
        r"\paragraph{Privacy.}",
        "one client",
        r"$\delta$ = $10^{-5}$",
        "GDP",
        "of 4 private runs together",
    ):
        assert word in said.out


@pytest.mark.thorough
def test_a_packed_figure_is_drawn_again_from_the_archive(here, command, monkeypatch):
    said = command("figure", "pack", "own.yaml", "--out", "own.zip")
    assert said.status == 0, said.err
    assert "no epsilon covers" in said.out
    first = (here / "own.zip").read_bytes()
    assert "--force" in command("figure", "pack", "own.yaml", "--out", "own.zip").sentence
    assert command("figure", "pack", "own.yaml", "--out", "own.zip", "--force").status == 0
    assert (here / "own.zip").read_bytes() == first
    with zipfile.ZipFile(here / "own.zip") as archive:
        archive.extractall(here / "review")
        names = set(archive.namelist())
        readme = archive.read("README.md").decode()
    assert "no epsilon covers" in readme
    assert "pip install .\n" in readme
    assert {"README.md", "own.yaml", "theirs.csv", "figure.png"} <= names
    assert sum(name.startswith("statements/") for name in names) == 6
    monkeypatch.chdir(here / "review")
    (again,) = [line for line in readme.splitlines() if line.startswith("fedpriv figure")]
    said = command(*again.split()[1:], *QUIET)
    assert said.status == 0, said.err
    drawn = (here / "review" / "outputs" / "figures" / "own" / "figure.csv").read_text()
    assert drawn == (here / "review" / "figure.csv").read_text()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["pack"], "needs one figure"),
        (["pack", "own.yaml"], "has no figure yet"),
        (["pack", "own.yaml", "rounds=3"], "rounds=3"),
        (["own.yaml", "--out", "x.zip"], "--out"),
    ],
)
def test_what_cannot_be_packed_is_refused(arguments, word, tmp_path, command):
    write_own(tmp_path)
    said = command("figure", *arguments)
    assert said.status == 2
    assert word in said.sentence


def test_baselines_take_no_keys_of_noise_from_panels(figure_of):
    panels = {"noise_schedule.epsilon_per_draw": [1, 2]}
    base = "algorithm=ldp_fedsgd dataset=digits rounds=4 epsilon=null"
    figure = figure_of(x="round", base=base, panels=panels, baselines=OWN["baselines"][:1])
    private, baseline = figure.groups[0].curves
    assert "noise_schedule.epsilon_per_draw=1" in private.overrides
    assert "noise_schedule.epsilon_per_draw=1" not in baseline.overrides


def test_a_link_in_the_folder_of_a_figure_is_not_followed(here, command):
    paragraph = here / "outputs" / "figures" / "own" / "privacy.tex"
    paragraph.unlink()
    paragraph.symlink_to(here / "theirs.csv")
    said = command("report", "outputs/figures/own", "--latex")
    assert said.status == 2
    assert "privacy.tex" in said.sentence


@pytest.mark.parametrize("arguments", [("own",), ("own", "--list"), ("pack", "own")])
def test_a_file_named_without_its_ending_is_found(arguments, tmp_path, command):
    write_own(tmp_path)
    assert "fedpriv figure own.yaml" in command("figure", *arguments).sentence


def test_a_misspelt_key_of_a_group_is_suggested_with_its_group(tmp_path, command):
    write_own(tmp_path, base=f"{BASE} lerning=3", curves=None)
    assert "did you mean algorithm.learning_rate?" in command("figure", "own.yaml").sentence
