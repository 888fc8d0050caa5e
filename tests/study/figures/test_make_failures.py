"""Jobs of a figure that fail, diverge or cannot be: named, and the others run."""

from __future__ import annotations

import shutil

import pytest
from made_figures import FAILING, comparison, runs, tiny_folder

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
    tiny["panels"]["digits"]["seeds"] = [0]


def test_a_job_that_fails_does_not_stop_the_others(make, tiny, tmp_path, wide_cells):
    add(tiny, FAILS_WHEN_RUN)
    said = make()
    assert said.status == 1
    assert "digits/bad/seed 0: " in said.err
    assert "epsilon must be >= " in said.err
    assert "1 of 3 runs of own/tiny failed" in said.err
    assert "Traceback" not in said.err
    assert len(runs(tmp_path / "outputs")) == 2
    assert "Not finished: digits/bad/seed 0." in comparison(tmp_path)


@pytest.mark.thorough
def test_what_failed_is_said_every_time(make, tiny, tmp_path):
    add(tiny, FAILS_WHEN_RUN)
    first = make()
    for again in (make("--draw"), make()):
        assert again.status == 1
        assert again.err.splitlines()[0] == first.err.splitlines()[0]
        assert "digits/bad/seed 0: " in again.err
        assert "1 of 3 runs of own/tiny failed" in again.err
    (why,) = [line for line in comparison(tmp_path).splitlines() if line.startswith("- digits/bad")]
    assert "epsilon must be >= " in why


@pytest.mark.thorough
def test_what_failed_and_runs_then_is_forgotten(make, there, tiny, tmp_path):
    record = tiny_folder(tmp_path) / "runs.csv"
    failed = record.read_text().replace(",done,,", ",not run,no room,", 1)
    record.write_text(failed)
    shutil.rmtree(there / "runs" / failed.splitlines()[1].rpartition("/")[2])
    assert "digits/loud/seed 0: no room" in make("--draw").err
    said = make()
    assert (said.status, said.err) == (0, "")
    assert "no room" not in record.read_text()


def test_a_budget_that_allows_no_round_is_refused_before_any_run(make, tiny, tmp_path):
    add(tiny, IMPOSSIBLE)
    said = make()
    assert said.status == 2
    assert "epsilon must be >= " in said.sentence
    assert not (tmp_path / "outputs").exists()


@pytest.mark.thorough
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


@pytest.mark.thorough
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


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("clipper.clip_nrm=1", "did you mean clipper.clip_norm?"),
        ("clipper=constnt", "did you mean constant?"),
        ("noise_schedule.noise_multiplier=-1", "noise_schedule.noise_multiplier must be > 0"),
        ("algorithm.sample_rate=2", "algorithm.sample_rate must be "),
        ("seed=1", "must be without seed"),
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


def test_a_folder_that_holds_another_run_is_refused(make, there):
    config = runs(there)[0] / "config.yaml"
    config.write_text(config.read_text().replace("rounds: 4", "rounds: 5"))
    said = make()
    assert said.status == 2
    assert "holds another run than its name says" in said.sentence
