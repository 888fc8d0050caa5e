"""``fedpriv verify --adapter`` as it is called: status, table, JSON, badge."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import mutants
import pytest

MUTANTS = Path(mutants.__file__)
EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "adapters"


@pytest.fixture
def few(monkeypatch):
    """Fewer trials and rounds: what is found is tested elsewhere."""
    monkeypatch.setattr("fedpriv.tools.adapters.charge._TRIALS", 20)
    monkeypatch.setattr("fedpriv.tools.adapters.members._SEEDS", 60)
    monkeypatch.setattr("fedpriv.tools.adapters.members._LATER", 20)


def test_a_correct_adapter_passes_with_a_table_a_file_and_a_badge(command, tmp_path, few):
    outcome = command("verify", "--adapter", f"{MUTANTS}:FedAvg", "--json", "table.json")
    assert outcome.status == 0, outcome.out + outcome.err
    table = json.loads((tmp_path / "table.json").read_text("utf-8"))
    assert table["passed"]
    assert {check["about"] for check in table["checks"]} == {
        "noise", "independence", "sensitivity", "sampling", "charge",
    }  # fmt: skip
    assert sum(check["level"] or 0.0 for check in table["checks"]) <= 5e-4 * (1 + 1e-9)
    assert table["false_alarm"] <= 1e-3
    told = [check for check in table["checks"] if check["passed"] is not None]
    assert table["badge"].startswith(f"{len(told)} of {len(told)} checks passed, client level, ")
    assert table["sha256"][:16] in table["badge"]
    assert table["badge"].endswith("not a proof of DP")
    assert table["badge"] in outcome.out.replace("\n", "")


@pytest.mark.thorough
def test_the_lines_of_the_guide_pass(command, tmp_path, few):
    guide = EXAMPLES.parents[1] / "guide" / "verify.md"
    code = guide.read_text("utf-8").partition("```python\n")[2].partition("```")[0]
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    outcome = command("verify", "--adapter", "mine.py")
    assert outcome.status == 0, outcome.out + outcome.err
    assert len(code.strip().splitlines()) <= 20


@pytest.mark.thorough
def test_a_fault_is_status_1(command, few):
    outcome = command("verify", "--adapter", f"{MUTANTS}:HalfSensitivity")
    assert outcome.status == 1
    assert "FAIL noise, std of update" in outcome.out


@pytest.mark.thorough
def test_noise_that_is_not_gaussian_is_refused_where_epsilon_alone_is_claimed(
    command, few, monkeypatch
):
    more = MUTANTS.with_name("more_mutants.py")
    monkeypatch.setenv("PYTHONPATH", str(MUTANTS.parent))
    outcome = command("verify", "--adapter", f"{more}:LaplaceByEpsilon")
    assert outcome.status == 2
    assert "the noise of update is not Gaussian" in outcome.sentence


@pytest.mark.thorough
def test_a_fault_is_told_although_the_noise_is_not_gaussian(command, few, monkeypatch):
    more = MUTANTS.with_name("more_mutants.py")
    monkeypatch.setenv("PYTHONPATH", str(MUTANTS.parent))
    outcome = command("verify", "--adapter", f"{more}:LaplaceWithoutClipping")
    assert outcome.status == 1
    assert "a client huge" in outcome.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--adapter", "no.py"], "--adapter must be FILE or FILE:make, with an existing Python file"),
        (["--adapter", f"{MUTANTS}:Nothing"], "it has no function Nothing"),
        (["--adapter", str(MUTANTS)], "the adapter has no claim"),
        (["--adapter", f"{MUTANTS}:FedAvg", "--time-limit", "0"], "--time-limit must be a number of seconds"),
        (["--adapter", f"{MUTANTS}:FedAvg", "--seed", "x"], "--seed must be"),
        (["--adapter", f"{MUTANTS}:FedAvg", "seed=3"], "an override does not go with --adapter"),
        (["--adapter", f"{MUTANTS}:FedAvg", "--rounds", "3"], "--rounds does not go with --adapter"),
        (["--python", "python3"], "--python needs --adapter"),
        (["--adapter", f"{MUTANTS}:FedAvg", "--python", "/bin/true"], "--python /bin/true must be Python"),
    ],
)  # fmt: skip
def test_wrong_usage_is_a_sentence_with_status_2_and_nothing_is_written(
    command, tmp_path, words, sentence
):
    outcome = command("verify", *words, "--json", "table.json")
    assert outcome.status == 2
    assert sentence in outcome.sentence
    assert not (tmp_path / "table.json").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "python"),
    [("numpy_fedavg.py", ""), ("opacus_loop.py", ""), ("flower_fedavg.py:make", "FLOWER_PYTHON")],
)  # fmt: skip
def test_an_example_passes(command, few, name, python):
    interpreter = os.environ.get(python) if python else None
    if python and not (interpreter and shutil.which(interpreter)):
        pytest.skip(f"{python} names no interpreter with the package of {name}")
    words = ["--python", interpreter] if interpreter else []
    outcome = command("verify", "--adapter", str(EXAMPLES / name), *words)
    assert outcome.status == 0, outcome.out + outcome.err
