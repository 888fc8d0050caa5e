"""The plan before a run has at most ten lines, and all that concerns privacy; ``--plan`` shows the whole."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fedpriv.experiment.brief_plan import show_brief

QUIET = ("rounds=1", "runtime.plots=false", "runtime.progress=lines", "runtime.run_dir=run")


@pytest.fixture
def plan(command):
    """(arguments) → the lines of the plan that a run shows."""

    def run(*arguments: str) -> list[str]:
        said = command("train", *QUIET, *arguments)
        assert said.status == 0, said
        lines = said.out.splitlines()
        end = next(i for i, line in enumerate(lines) if line.startswith(("round 1", "Result")))
        return lines[:end]

    return run


@pytest.mark.few(5)
@pytest.mark.parametrize(
    "arguments",
    [
        ("algorithm=adap_dpfl",),
        ("algorithm=cdp_fedavg", "delta=0.5", "epsilon=null"),
        ("algorithm=ddp_fedavg", "epsilon=50"),
        ("algorithm=fedavg",),
        ("algorithm=dp_fl", "noise_schedule=calibrated", "delta=0.01"),
        ("algorithm=dp_fl", "algorithm.sampling=fixed_size", "attack=pixel_pattern", "delta=0.01"),
    ],
)
def test_the_plan_has_at_most_ten_lines(arguments, plan):
    lines = plan(*arguments)
    assert 5 <= len(lines) <= 10


def test_long_rows_are_cut_in_a_narrow_terminal():
    out = Console(width=60, record=True, file=io.StringIO())
    rows = [(name, "word " * 40) for name in ("training", "data", "protects", "caveats", "epsilon")]
    show_brief(out, rows)
    lines = out.export_text().splitlines()
    assert len(lines) == 10
    assert max(map(len, lines)) <= 60
    assert sum(line.endswith("…") for line in lines) == len(rows) - 1  # caveats have six lines


def test_the_brief_plan_says_what_is_trained_and_who_is_protected(plan):
    words = {line[:12].strip(): line[12:].strip() for line in plan("algorithm=dp_fl")}
    assert words["training"] == "dp_fl with logistic (650 parameters) on digits, seed 0"
    assert words["data"] == "1,437 records, 10 clients (shards) of 143 to 144"
    assert words["protects"] == "one record (add/remove adjacency; local trust)"
    assert words["noise"].startswith("noise multiplier 12; 1 round (the budget allows ")
    assert words["budget"] == "epsilon 2 at delta 1e-05 (budget_view=sound, accountant rdp)"
    assert "enforced; sound: that at most" in words["epsilon"]
    assert "--plan" in str(words)


def test_caveats_of_the_guarantee_come_first(plan):
    (caveats,) = (line for line in plan("delta=0.01") if "caveats" in line)
    assert "delta is not below 1/n" in caveats
    assert caveats.index("delta") < caveats.index("validation")


def test_the_whole_plan_is_shown_on_request(command):
    said = command("train", *QUIET, "--plan")
    for name in ("algorithm", "clipping", "released per lot", "guarantee", "run folder"):
        assert f"│ {name} " in said.out
    assert "note: The validation records" in " ".join(said.out.split())
    dry = command("train", "rounds=1", "dry_run=true")
    assert "│ guarantee " in dry.out


@pytest.mark.parametrize(
    ("overrides", "n"), [(("algorithm=dp_fl",), "n"), (("algorithm=cdp_fedavg",), "K")]
)
def test_a_dry_run_warns_of_a_large_delta(overrides, n, command):
    said = command("train", *overrides, "rounds=1", "delta=0.2", "epsilon=null", "dry_run=true")
    assert f"delta is not below 1/{n}: delta 0.2 for " in " ".join(said.out.split())
    small = command("train", *overrides, "rounds=1", "delta=1e-5", "epsilon=null", "dry_run=true")
    assert "delta is not below" not in small.out


# ---- a budget that is not spent


def test_a_calibrated_run_says_beforehand_and_at_its_end_which_accountant_spends_its_budget(
    command,
):
    calibrated = ("algorithm=dp_fl", "noise_schedule=calibrated", "epsilon=2")
    said = command("train", *QUIET, *calibrated, "rounds=3")
    words = " ".join(said.out.replace("│", " ").split())
    for moment in (words.partition("Result")[0], words.partition("Result")[2]):
        assert " of 2: accountant=pld needs less noise" in moment
    spent = command(
        "train", *QUIET, *calibrated, "rounds=3", "accountant=pld", "runtime.run_dir=pld"
    )
    assert "unspent" not in spent.out


def test_constant_noise_says_which_number_of_rounds_spends_the_budget(command):
    said = command("train", "algorithm=dp_fl", "rounds=2", "dry_run=true")
    words = " ".join(said.out.replace("│", " ").split())
    allowed = words.partition("rounds allowed ")[2].split()[0]
    assert f"the budget pays for {allowed} rounds, not 2: rounds={allowed} spends it" in words


# ---- a run that diverges


def test_a_loss_far_above_guessing_is_told_in_the_run_and_in_its_result(command):
    said = command(
        "train", *QUIET, "algorithm=fedavg", "rounds=2", "algorithm.learning_rate=3000",
        "evaluation_interval=1",
    )  # fmt: skip
    assert said.err.count("diverges") == 1
    assert "algorithm.learning_rate" in said.err
    assert "times that of guessing" in " ".join(said.out.partition("Result")[2].split())
