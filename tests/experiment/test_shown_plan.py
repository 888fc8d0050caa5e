"""The plan before a run has at most 14 rows, with all that a researcher needs before it starts."""

from __future__ import annotations

import pytest

QUIET = ("rounds=1", "runtime.plots=false", "runtime.progress=lines", "runtime.run_dir=run")


@pytest.fixture
def plan(command):
    """(arguments) → the rows of the plan that a run shows, by their names."""

    def run(*arguments: str) -> dict[str, str]:
        said = command("train", *QUIET, *arguments)
        assert said.status == 0, said
        table = said.out.partition("Plan")[2].partition("└")[0]
        rows: dict[str, str] = {}
        for line in table.splitlines():
            if line.startswith("│"):
                name, words = (cell.strip() for cell in line.strip("│").split("│", 1))
                name = name or list(rows)[-1]
                rows[name] = f"{rows.get(name, '')} {words}".strip()
        return rows

    return run


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "arguments",
    [
        ("algorithm=adap_dpfl", "attack=sign_flip", "aggregation=median"),
        ("algorithm=fedavg",),
        ("algorithm=cdp_fedavg", "delta=0.5", "epsilon=null"),
        ("algorithm=ddp_fedavg", "epsilon=50"),
        ("algorithm=dp_fl", "algorithm.sampling=fixed_size", "attack=pixel_pattern", "delta=0.01"),
    ],
)
def test_the_plan_has_at_most_14_rows(arguments, plan):
    assert 7 <= len(plan(*arguments)) <= 14


def test_the_plan_says_what_is_trained_and_who_is_protected(plan):
    rows = plan("algorithm=dp_fl")
    assert rows["training"] == "dp_fl with logistic on digits, seed 0"
    assert rows["data"].startswith(
        "1437 training records, 143 to 144 for each of 10 clients; 360 test"
    )
    assert rows["protects"].startswith("one record (record level, add/remove adjacency)")
    assert "(local trust)" in rows["protects"]
    assert rows["clipping"] == "constant, clip norm 1"
    assert rows["noise"] == "noise multiplier 12"
    assert rows["rounds"].startswith("1 (the budget allows ")
    assert rows["epsilon"].startswith("enforced: 0.")
    assert "budget 2 at delta 1e-05, by accountant rdp (budget_view=sound)" in rows["epsilon"]
    assert rows["run folder"] == "run"


def test_caveats_are_told_in_short(plan):
    caveats = plan("delta=0.01")["caveats"]
    assert "Delta is not smaller than 1/n for the smallest client" in caveats
    assert "The validation records that the noise schedule reads are treated as public" in caveats


@pytest.mark.parametrize(
    ("overrides", "n"), [(("algorithm=dp_fl",), "n"), (("algorithm=cdp_fedavg",), "K")]
)
def test_a_dry_run_warns_of_a_large_delta(overrides, n, command):
    said = command("train", *overrides, "rounds=1", "delta=0.2", "epsilon=null", "dry_run=true")
    assert f"Delta is not smaller than 1/{n}" in " ".join(said.out.split())
    small = command("train", *overrides, "rounds=1", "delta=1e-5", "epsilon=null", "dry_run=true")
    assert "Delta is not" not in small.out


# ---- a run that diverges


def test_a_loss_far_above_guessing_is_told_in_the_run_and_in_its_result(command):
    said = command(
        "train", *QUIET, "algorithm=fedavg", "rounds=2", "algorithm.learning_rate=3000",
        "evaluation_interval=1",
    )  # fmt: skip
    assert said.err.count("diverges") == 1
    assert "algorithm.learning_rate" in said.err
    assert "times that of guessing" in " ".join(said.out.partition("Result")[2].split())
