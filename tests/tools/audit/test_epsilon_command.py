"""``fedpriv audit epsilon`` and ``audit=epsilon``: what is written, printed, refused."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

RUN = (
    "train", "algorithm=dp_fl", "dataset=digits", "epsilon=null", "algorithm.sample_rate=1",
    "noise_schedule.noise_multiplier=2", "rounds=4", "runtime.progress=none", "runtime.plots=false",
    "runtime.run_dir=run", "accountant=gdp",
)  # fmt: skip


def read(tmp_path, name: str) -> dict:
    return json.loads((tmp_path / "run" / name).read_text())


def test_a_run_without_canaries_is_trained_again_with_them(command, tmp_path):
    assert command(*RUN).status == 0
    model = (tmp_path / "run" / "model.pt").read_bytes()
    outcome = command("audit", "epsilon", "run", "--canaries", "200", "--csv", "all.csv")
    assert outcome.status == 0, outcome.err
    words = " ".join(outcome.out.split())
    assert "200 canary records in 1 training like it" in words
    assert "it refutes no claim of (ε, δ)" in words
    found = read(tmp_path, "audit/epsilon.json")
    assert found["canaries"] == 200
    assert not found["planted_in_the_run"]
    kinds = {one["kind"] for one in found["found"]}
    assert kinds == {"bound", "bound within a family", "estimate"}
    head = next(one for one in found["found"] if one["observer"] == "releases")
    assert head["method"] == "one_run"
    assert 0 < head["epsilon"] < found["epsilon_sound"]
    assert (tmp_path / "run" / "model.pt").read_bytes() == model
    with (tmp_path / "all.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["releases_one_run"]) == head["epsilon"]


@pytest.mark.thorough
def test_a_run_may_plant_its_own(command, tmp_path):
    outcome = command(*RUN, "audit=epsilon:150")
    assert outcome.status == 0, outcome.err
    assert read(tmp_path, "summary.json")["epsilon_audited"] >= 0
    assert len(read(tmp_path, "audit/canaries.json")["coins"]) == 150
    assert "Canaries were planted" in (tmp_path / "run" / "privacy.txt").read_text()
    before = read(tmp_path, "audit/epsilon.json")["found"]
    outcome = command("audit", "epsilon", "run")
    assert "150 canary records planted in it" in " ".join(outcome.out.split())
    assert read(tmp_path, "audit/epsilon.json")["found"] == before


@pytest.mark.thorough
@pytest.mark.parametrize("canaries", ["audit=epsilon:60", "audit=epsilon:60:mislabelled"])
def test_scores_go_on_where_they_were(command, tmp_path, canaries):
    assert command(*RUN, canaries).status == 0
    whole = read(tmp_path, "audit/canaries.json")
    (tmp_path / "run").rename(tmp_path / "whole")
    stop = tmp_path / "stop"
    stop.touch()
    # stops after its first round: the file is there when it looks
    outcome = command(*RUN, canaries, f"runtime.stop_file={stop}")
    assert outcome.status != 0
    stop.unlink()
    if (tmp_path / "run").exists():
        outcome = command("train", "resume=run", "runtime.progress=none", "runtime.plots=false")
    else:
        outcome = command(*RUN, canaries)
    assert outcome.status == 0, outcome.err
    assert read(tmp_path, "audit/canaries.json") == whole


@pytest.mark.thorough
def test_a_run_may_plant_wrong_labels(command, tmp_path):
    outcome = command(*RUN, "audit=epsilon:50:mislabelled")
    assert outcome.status == 0, outcome.err
    planted = read(tmp_path, "audit/canaries.json")
    assert planted["canary"] == "mislabelled"
    assert set(planted["scores"]) == {"black_box"}
    statement = " ".join((tmp_path / "run" / "privacy.txt").read_text().split())
    assert "Canaries were planted" in statement
    assert "copies of training inputs with wrong labels" in statement
    found = read(tmp_path, "audit/epsilon.json")
    assert found["canary"] == "mislabelled"
    assert {one["observer"] for one in found["found"]} == {"black_box"}
    head = next(one for one in found["found"] if one["method"] == "one_run")
    assert read(tmp_path, "summary.json")["epsilon_audited"] == head["epsilon"]
    assert head["epsilon"] <= found["epsilon_sound"]
    with (tmp_path / "run" / "audit" / "epsilon.csv").open() as file:
        assert {row["canary"] for row in csv.DictReader(file)} == {"mislabelled"}
    assert command("report", "run").status == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "ε from below: 50 canaries (one record), wrong labels" in page
    # again: those planted, or others where others are asked for
    outcome = command("audit", "epsilon", "run")
    assert "50 mislabelled canary records planted in it" in " ".join(outcome.out.split())
    assert read(tmp_path, "audit/epsilon.json")["found"] == found["found"]
    flags = ("--canary", "direction", "--canaries", "30", "--csv", "all.csv")
    outcome = command("audit", "epsilon", "run", *flags)
    assert outcome.status == 0, outcome.err
    other = read(tmp_path, "audit/epsilon.json")
    assert (other["canary"], other["planted_in_the_run"]) == ("direction", False)
    with (tmp_path / "all.csv").open() as file:
        assert [row["canary"] for row in csv.DictReader(file)] == ["direction"]


@pytest.mark.thorough
def test_each_wrong_label_may_have_a_run_of_its_own(command, tmp_path):
    assert command(*RUN, "rounds=1").status == 0
    flags = ("--canary", "mislabelled", "--canaries", "12", "--independent")
    outcome = command("audit", "epsilon", "run", *flags)
    assert outcome.status == 0, outcome.err
    found = read(tmp_path, "audit/epsilon.json")
    assert {one["observer"] for one in found["found"]} == {"black_box"}
    assert "clopper_pearson" in {one["method"] for one in found["found"]}


@pytest.mark.few(8)
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("audit=epsilon:1",), "audit=epsilon:M must be a whole number >= 2"),
        (("audit=epsilon:many",), "audit=epsilon:M must be a whole number"),
        (("audit=epsilon:9999999",), "audit=epsilon:M must be <="),
        (
            ("audit=epsilon:9999:mislabelled",),
            "audit=epsilon:M must be <= 1437, the training records, got 9999",
        ),
        (("audit=epsilon:50:wrong",), "KIND must be one of direction, mislabelled, got wrong"),
        (
            ("dataset=shakespeare", "audit=epsilon:50:mislabelled"),
            "its records have no label that could be wrong",
        ),
        (
            ("dataset=adult", "algorithm.sampling=fixed_size", "audit=epsilon:50:mislabelled"),
            "no two for replace-one adjacency",
        ),
        (
            ("algorithm=ldp_fedsgd", "audit=epsilon"),
            "audit the finished run with fedpriv audit epsilon",
        ),
        (
            ("algorithm=fedavg", "noise_schedule=none", "clipper=none", "audit=epsilon"),
            "without privacy",
        ),
        (("audit=epsilon", "publish=true"), "null with publish=true"),
    ],
)
def test_what_has_no_canaries_is_refused_before_the_run(command, tmp_path, overrides, words):
    base = [
        o
        for o in RUN
        if "noise_multiplier" not in o and "sample_rate" not in o and "accountant" not in o
    ]
    outcome = command(*base, *overrides)
    assert outcome.status == 2
    assert words in outcome.sentence
    assert not (tmp_path / "run" / "metrics.csv").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "missing argument"),
        (("run", "--canaries", "0"), "--canaries must be a whole number >= 2"),
        (("run", "--confidence", "2"), "--confidence must be"),
        (("run", "--canary", "wrong"), "--canary"),
        (
            ("--scores", "s.csv", "--delta", "1e-5", "--canary", "mislabelled"),
            "--scores takes no --canary",
        ),
        (("run", "--repetitions", "x"), "--repetitions must be a whole number"),
        (("nowhere",), "nowhere is no run folder"),
        (("--scores", "s.csv"), "--scores needs --delta"),
        (("run", "--scores", "s.csv", "--delta", "1e-5"), "takes no run folder"),
        (("run", "--delta", "1e-5"), "--delta goes with --scores"),
        (("--scores", "s.csv", "--delta", "1e-5", "--canaries", "5"), "takes no --canaries"),
        (("--scores", "s.csv", "--delta", "1e-5", "--repetitions", "3"), "takes no --repetitions"),
        (("--scores", "s.csv", "--delta", "1e-5", "--allow", "mine"), "takes no --allow"),
    ],
)
def test_bad_flags_are_one_sentence(command, flags, words):
    outcome = command("audit", "epsilon", *flags)
    assert outcome.status == 2
    assert words in outcome.err
    assert "Traceback" not in outcome.err


def scores_file(tmp_path, count: int = 400, mu: float = 2.0) -> None:
    stream = np.random.default_rng(0)
    coins = stream.random(count) < 0.5
    values = stream.normal(size=count) + mu * coins
    rows = [f"{value},{int(coin)}" for value, coin in zip(values, coins, strict=True)]
    (tmp_path / "s.csv").write_text("score,included\n" + "\n".join(rows) + "\n")


def test_scores_of_another_framework(command, tmp_path):
    scores_file(tmp_path)
    outcome = command(
        "audit", "epsilon", "--scores", "s.csv", "--delta", "1e-5", "--csv", "found.csv"
    )
    assert outcome.status == 0, outcome.err
    with (tmp_path / "found.csv").open() as file:
        found = {row["method"]: row for row in csv.DictReader(file)}
    assert "clopper_pearson" not in found
    assert "it refutes no claim" in outcome.out
    assert 0.5 < float(found["one_run"]["epsilon"]) < 10
    outcome = command(
        "audit",
        "epsilon",
        "--scores",
        "s.csv",
        "--delta",
        "1e-5",
        "--independent",
        "--csv",
        "found.csv",
    )
    with (tmp_path / "found.csv").open() as file:
        assert "clopper_pearson" in {row["method"] for row in csv.DictReader(file)}


@pytest.mark.parametrize("independent", [[], ["--independent"]])
def test_the_order_of_a_file_of_scores_changes_no_number(command, tmp_path, independent):
    """Rounded scores, sorted by coin, by score and shuffled: every method says the same."""
    stream = np.random.default_rng(0)
    coins = stream.random(300) < 0.5
    rows = [
        f"{v:.1f},{int(c)}" for v, c in zip(stream.normal(size=300) + coins, coins, strict=True)
    ]
    tables = []
    for lines in (rows, sorted(rows), sorted(rows, key=lambda row: row[-1])):
        (tmp_path / "s.csv").write_text("score,included\n" + "\n".join(lines) + "\n")
        flags = ["--scores", "s.csv", "--delta", "1e-5", "--csv", "found.csv", *independent]
        outcome = command("audit", "epsilon", *flags)
        assert outcome.status == 0, outcome.err
        tables.append((tmp_path / "found.csv").read_text())
    assert tables[0] == tables[1] == tables[2]


def test_constant_scores_refute_nothing_and_an_estimate_is_not_called_a_bound(command, tmp_path):
    rows = "\n".join(f"1.0,{int(i >= 500)}" for i in range(1000))
    (tmp_path / "s.csv").write_text(f"score,included\n{rows}\n")
    flags = ["--scores", "s.csv", "--delta", "1e-5", "--csv", "found.csv"]
    outcome = command("audit", "epsilon", *flags)
    with (tmp_path / "found.csv").open() as file:
        assert {float(row["epsilon"]) for row in csv.DictReader(file)} == {0.0}
    printed = " ".join(outcome.out.split())
    assert "1000 canaries of 1000 share their score" in printed
    assert "90 % of Gaussian trials: it refutes nothing" in printed


def test_no_gaussian_is_pure(command, tmp_path):
    scores_file(tmp_path)
    command("audit", "epsilon", "--scores", "s.csv", "--delta", "0", "--csv", "found.csv")
    with (tmp_path / "found.csv").open() as file:
        assert {row["method"] for row in csv.DictReader(file)} == {"one_run"}


@pytest.mark.filterwarnings("error")
def test_the_unit_of_the_scores_does_not_matter(command, tmp_path):
    scores_file(tmp_path)
    lines = (tmp_path / "s.csv").read_text().splitlines()[1:]
    rows = [line.split(",") for line in lines]
    large = "\n".join(f"{float(score) * 1e306!r},{coin}" for score, coin in rows)
    (tmp_path / "large.csv").write_text(f"score,included\n{large}\n")
    flags = ("--delta", "1e-5", "--independent")
    found = [command("audit", "epsilon", "--scores", f, *flags).out for f in ("s.csv", "large.csv")]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "has no column score"),
        ("score,included\n1,1\nx,0\n", "row 3: score must be a finite number"),
        ("score,included\n1,1\n2,maybe\n", "row 3: included must be 0 or 1"),
        ("score,included\n1,1\n2,1\n", "needs canaries that were included and others"),
        ("score,included\n1,1\ninf,0\n", "row 3: score must be a finite number"),
        ("score,included\n1,1,0\n2,0,1\n", "has rows with more values than its first row"),
        ("", "is not a table"),
    ],
)
def test_a_damaged_file_of_scores_is_one_sentence(command, tmp_path, text, words):
    (tmp_path / "s.csv").write_text(text)
    outcome = command("audit", "epsilon", "--scores", "s.csv", "--delta", "1e-5")
    assert outcome.status == 2
    assert words in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"coins": [true, false], "scores": {"releases": [1, 2]}, "released": [], "rounds": 1, '
        '"canary": "mislabelled"}',
        '{"coins": [true, false], "scores": {"releases": [1]}, "released": []}',
    ],
)
def test_a_damaged_file_of_canaries_is_one_sentence(command, tmp_path, text):
    command(*RUN, "audit=epsilon:20")
    (tmp_path / "run" / "audit" / "canaries.json").write_text(text)
    outcome = command("audit", "epsilon", "run")
    assert outcome.status == 2
    assert "canaries.json cannot be read" in outcome.err


@pytest.mark.thorough
def test_a_report_shows_the_bounds_and_no_list_of_canaries(command, tmp_path):
    assert command(*RUN, "audit=epsilon:40").status == 0
    assert command("report", "run").status == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "ε from below: 40 canaries (one record)" in page
    assert "one_run" in page
    assert "Property inference" not in page


@pytest.mark.thorough
def test_a_run_plants_as_many_as_there_is_room_for(command, tmp_path):
    """650 weights of digits' logistic regression: as many directions for clients of one sum."""
    outcome = command(
        "train", "algorithm=cdp_fedavg", "dataset=digits", "epsilon=null", "rounds=1", "accountant=rdp",
        "noise_schedule=constant", "noise_schedule.noise_multiplier=2", "runtime.progress=none",
        "runtime.plots=false", "runtime.run_dir=run", "audit=epsilon",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    assert len(read(tmp_path, "audit/canaries.json")["coins"]) == 650
