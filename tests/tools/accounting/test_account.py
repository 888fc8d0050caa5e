"""``fedpriv account``: published values through the command, files, and bad input."""

from __future__ import annotations

import math
from collections import Counter

import pandas as pd
import pytest
from baseline import BASELINE, DELTA

from fedpriv.privacy.accountants import PldAccountant, RdpAccountant
from fedpriv.privacy.core.sampling import PoissonSampling
from fedpriv.tools.accounting.releases import Releases


def test_the_baseline_of_adap_dpfl_by_its_own_orders_and_by_pld(answer):
    found = answer("account", *BASELINE, *DELTA, "--accountant", "rdp,pld",
                   "--orders", "2..64", "--conversion", "classical")  # fmt: skip
    rdp, pld = found["accountants"]["rdp"], found["accountants"]["pld"]
    assert 1.9999 < rdp["epsilon"]["1e-05"] <= 2.0
    assert rdp["order"]["1e-05"] == 13.0
    assert pld["epsilon"]["1e-05"] == pytest.approx(1.5516, abs=1e-3)
    assert set(found["tightest"].values()) == {"pld"}


def test_an_accountant_that_cannot_says_why(answer):
    found = answer("account", *BASELINE, *DELTA, "--accountant", "gdp,rdp")
    assert "Poisson lots" in found["accountants"]["gdp"]["reason"]


def test_several_deltas_give_the_privacy_profile(answer):
    found = answer("account", *BASELINE, "--delta", "1e-4,1e-5,1e-6", "--accountant", "rdp")
    profile = list(found["accountants"]["rdp"]["epsilon"].values())
    assert len(profile) == 3
    assert profile == sorted(profile)


@pytest.mark.thorough
def test_plain_gaussians_are_priced_exactly_by_gdp(answer):
    """Dong, Roth, Su: μ = 1, δ = 1e-5 is ε = 4.3771780957; replaced, μ = 2: 9.997."""
    one = ("--sampling", "none", "--noise-multiplier", "1", "--steps", "1", *DELTA)
    added = answer("account", *one)["accountants"]
    assert added["gdp"]["epsilon"]["1e-05"] == pytest.approx(4.3771780957, abs=1e-9)
    assert added["pld"]["epsilon"]["1e-05"] == pytest.approx(4.37718, abs=1e-4)
    replaced = answer("account", *one, "--neighbours", "replace_one")["accountants"]
    for name in ("gdp", "pld"):
        assert replaced[name]["epsilon"]["1e-05"] == pytest.approx(9.99726, abs=1e-4)


def test_lots_without_replacement_are_priced_by_pld_and_rdp(answer):
    found = answer("account", *BASELINE, *DELTA, "--sampling", "without_replacement",
                   "--records", "6000")  # fmt: skip
    assert found["accountants"]["rdp"]["epsilon"]["1e-05"] == pytest.approx(9.24, abs=5e-3)
    assert found["accountants"]["pld"]["epsilon"]["1e-05"] == pytest.approx(4.646, abs=2e-3)
    assert {n for n, a in found["accountants"].items() if "reason" in a} == {"prv", "gdp", "zcdp"}


def test_the_table_shows_every_accountant_and_rounds_up(command):
    said = command("account", *BASELINE, *DELTA)
    assert said.status == 0
    assert "1.552" in said.out  # 1.5516…
    assert "best order 12" in said.out
    assert "not accounted for: gdp is exact for Gaussians without sampling" in said.out


# ---- schedules


@pytest.fixture
def schedule(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "schedule.csv"
        path.write_text(text)
        return str(path)

    return write


def test_a_schedule_of_one_stretch_is_the_flags(answer, schedule):
    path = schedule("noise_multiplier,sample_rate,steps\n3,0.013,7921\n")
    by_file = answer("account", "--schedule", path, *DELTA, "--accountant", "rdp")
    by_flags = answer("account", *BASELINE, *DELTA, "--accountant", "rdp")
    assert by_file["accountants"] == by_flags["accountants"]


@pytest.mark.thorough
def test_a_heterogeneous_schedule_has_its_published_price(answer, schedule):
    """dp_accounting and Opacus: PLD .82368, RDP 1.28112."""
    path = schedule("noise_multiplier, sample_rate, steps\n1,.01,100\n2,.01,100\n\n1.5,.02,50\n")
    found = answer("account", "--schedule", path, *DELTA)["accountants"]
    assert found["pld"]["epsilon"]["1e-05"] == pytest.approx(0.82368, abs=2e-5)
    assert found["rdp"]["epsilon"]["1e-05"] == pytest.approx(1.28112, abs=5e-6)


def test_a_loop_of_ones_own_has_a_paragraph_and_a_ledger_as_declared(answer, command, schedule):
    given = (
        "account",
        "--statement",
        *DELTA,
        "--accountant",
        "rdp",
        "--schedule",
        schedule("noise_multiplier,sample_rate,steps\n1,.01,100\n2,.01,100\n1,.01,50\n"),
    )
    found = answer(*given)
    assert [row["draws"] for row in found["ledger"]] == [150, 100]
    assert found["ledger"][0]["event"] == "Poisson(q=0.01, Gaussian(z=1.0))"
    epsilon = math.ceil(1000 * found["accountants"]["rdp"]["epsilon"]["1e-05"]) / 1000
    said = command(*given)
    assert said.status == 0
    words = " ".join(said.out.split())
    assert found["statement"] in words
    for part in (
        f"epsilon = {epsilon} at delta = 1e-05 (RDP",
        "add/remove adjacency",
        "not seen",
        "code, clipping, sampling and secrets",
        "taken as fixed beforehand",
    ):
        assert part in found["statement"]
    assert "sound" not in words


def test_an_epsilon_that_protects_nobody_is_not_stated_as_protection(answer, schedule):
    path = schedule("noise_multiplier,sample_rate\n.01,.5\n")
    found = answer("account", "--schedule", path, "--statement", *DELTA, "--accountant", "rdp")
    assert "bounds no attack" in found["statement"]


@pytest.mark.thorough
def test_the_metrics_of_a_run_are_a_schedule(answer, train):
    result = train("algorithm=dp_fl", "noise_schedule=exponential", "rounds=6",
                   "noise_schedule.noise_multiplier=8")  # fmt: skip
    found = answer("account", "--schedule", str(result.folder / "metrics.csv"),
                   "--sample-rate", "0.5", *DELTA, "--accountant", "pld")  # fmt: skip
    assert found["steps"] == 6
    assert found["accountants"]["pld"]["epsilon"]["1e-05"] > 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("noise_multiplier\n3\n-1\n", "line 3: noise_multiplier must be > 0 and <= 1e+06, got -1"),
        (
            "noise_multiplier\n3\nabc\n",
            "line 3: noise_multiplier must be a number > 0 and <= 1e+06, got abc",
        ),
        (
            "noise_multiplier\nnan\n",
            "line 2: noise_multiplier must be finite, > 0 and <= 1e+06, got nan",
        ),
        ("noise_multiplier,sample_rate\n3,1.5\n", "line 2: sample_rate must be > 0 and <= 1"),
        ("noise_multiplier,steps\n3,2.5\n", "line 2: steps must be a whole number >= 1"),
        ("noise_multiplier,steps\n3\n", "line 2: 2 values expected"),
        ("noise_multiplier\n3,4\n", "line 2: 1 values expected"),
        ("noise_multiplier,noise_multiplier\n3,4\n", "line 1: two columns are named"),
        ("sigma\n3\n", "line 1: a schedule needs a column noise_multiplier"),
        ("", "line 1: a schedule needs a column noise_multiplier"),
        ("noise_multiplier\n", "at least one row"),
    ],
)
def test_a_malformed_schedule_is_refused_with_its_line(text, sentence, command, schedule):
    rate = () if "sample_rate" in text else ("--sample-rate", "0.1")
    said = command("account", "--schedule", schedule(text), *rate, *DELTA)
    assert said.status == 2
    assert sentence in said.sentence


def test_a_schedule_that_is_not_there_is_named(command):
    said = command("account", "--schedule", "nowhere.csv", "--sample-rate", "0.1", *DELTA)
    assert said.status == 2
    assert "nowhere.csv" in said.sentence


# ---- runs


def test_a_run_is_priced_again_as_it_priced_itself(answer, train):
    result = train("algorithm=dp_fl", "rounds=7")
    found = answer("account", "--run", str(result.folder), "--accountant", "pld,rdp")
    assert found["steps"] == 7
    assert found["accountants"]["pld"]["epsilon"]["1e-05"] == result.privacy["epsilon_sound"]
    assert found["accountants"]["rdp"]["epsilon"]["1e-05"] == pytest.approx(
        result.privacy["epsilon"]
    )


@pytest.mark.usefixtures("wide_cells")
def test_the_published_view_of_a_run_can_be_priced(answer, train, wide_cells):
    result = train("algorithm=dp_fl", "rounds=7", "algorithm.sampling=fixed_size", "epsilon=null")
    folder = ("--run", str(result.folder), "--accountant", "rdp")
    sound = answer("account", *folder)
    paper = answer("account", *folder[:2], "--view", "published")
    assert (sound["neighbours"], paper["neighbours"]) == ("replace_one", "add_or_remove")
    assert paper["accountants"]["published"]["epsilon"]["1e-05"] == pytest.approx(
        result.privacy["epsilon_published"]
    )


def test_a_run_can_be_priced_at_another_delta(answer, train):
    folder = train("algorithm=dp_fl", "rounds=7").folder
    found = answer("account", "--run", str(folder), "--delta", "1e-3,1e-7", "--accountant", "rdp")
    loose, strict = found["accountants"]["rdp"]["epsilon"].values()
    assert loose < strict


def test_the_worst_client_is_the_one_that_is_priced(answer, train):
    result = train("algorithm=dp_fl", "rounds=9", "algorithm.participation=sampled",
                   "algorithm.clients_per_round=3")  # fmt: skip
    samples = pd.read_csv(result.folder / "ledger.csv")["draws_per_client"]
    found = answer("account", "--run", str(result.folder), "--accountant", "pld")
    assert found["steps"] == samples.max() > samples.min()
    assert found["accountants"]["pld"]["epsilon"]["1e-05"] == result.privacy["epsilon_sound"]


def test_a_run_whose_noise_adapted_comes_with_a_note(command, train):
    folder = train("rounds=5").folder
    said = command("account", "--run", str(folder), "--accountant", "rdp")
    words = " ".join(said.out.split())
    assert "not guarantees" in words
    assert "Guaranteed, by the run's privacy.txt: epsilon = 2.000" in words
    assert "tightest" not in said.out


@pytest.mark.thorough
def test_the_picture_of_a_run_says_what_the_terminal_says_at_the_runs_delta(
    command, train, tmp_path, wide_cells
):
    folder = train("rounds=5").folder
    said = command("account", "--run", str(folder), "--accountant", "rdp", "--delta", "1e-7,1e-5",
                   "--plot", "curve.svg")  # fmt: skip
    assert said.status == 0
    drawn = (tmp_path / "curve.svg").read_text()  # texts are in comments beside their outlines
    assert "adapted to released values" in drawn
    assert "ε at δ = 1e-05" in drawn
    assert "ε at δ = 1e-07" not in drawn


def test_programs_learn_that_the_noise_adapted(answer, train):
    found = answer("account", "--run", str(train("rounds=5").folder), "--accountant", "rdp")
    assert (found["noise_adapts"], found["guaranteed"], found["tightest"]) == (True, 2.0, None)
    assert found["guaranteed_delta"] == 1e-5


def test_a_guarantee_names_the_delta_it_holds_at_whatever_was_asked(command, train):
    folder = train("rounds=5").folder
    said = command("account", "--run", str(folder), "--accountant", "rdp", "--delta", "1e-7")
    assert "epsilon = 2.000 at delta = 1e-05" in " ".join(said.out.split())


def test_a_run_that_released_something_without_noise_costs_infinitely_much(answer, train):
    result = train("clipper.reading=unclipped", "budget_view=published", "rounds=3")
    found = answer("account", "--run", str(result.folder), "--accountant", "pld,rdp")
    assert {a["epsilon"]["1e-05"] for a in found["accountants"].values()} == {"inf"}


@pytest.mark.parametrize("content", [None, "nothing", "event_sound\nGauss(3)\n"])
def test_a_folder_without_a_ledger_is_refused(content, command, tmp_path):
    if content is not None:
        (tmp_path / "ledger.csv").write_text(content)
    said = command("account", "--run", str(tmp_path), *DELTA)
    assert said.status == 2
    assert "ledger.csv" in said.sentence


# ---- bad input


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--noise-multiplier", "0"], "--noise-multiplier must be > 0 and <= 1e+06, got 0"),
        (["--noise-multiplier", "x"], "--noise-multiplier must be a number > 0 and <= 1e+06, got x"),
        (["--noise-multiplier", "inf"], "--noise-multiplier must be finite, > 0 and <= 1e+06, got inf"),
        (["--sample-rate", "0"], "--sample-rate must be > 0 and <= 1, got 0"),
        (["--sample-rate", "1.2"], "--sample-rate must be > 0 and <= 1, got 1.2"),
        (["--steps", "0"], "--steps must be a whole number >= 1"),
        (["--steps", "2.5"], "--steps must be a whole number >= 1"),
        (["--delta", "0"], "--delta must be >= 1e-100 and < 1, got 0"),
        (["--delta", "1"], "--delta must be >= 1e-100 and < 1, got 1"),
        (["--delta", "1e-5,"], "--delta must be a number >= 1e-100 and < 1"),
        (["--sampling", "poison"], "--sampling must be one of poisson"),
        (["--sampling", "none"], "--sample-rate cannot be given with --sampling none"),
        (["--sampling", "without_replacement"], "--records must be given, a whole number >= 1"),
        (["--records", "6000"], "--records must be absent unless"),
        (["--max-lot-size", "90"], "--records must be given, a whole number >= 1"),
        (["--sampling", "without_replacement", "--records", "100", "--neighbours",
          "add_or_remove"], "--neighbours must be replace_one"),
        (["--accountant", "rpd"], "did you mean rdp?"),
        (["--accountant", "gdp"], "no accountant can account for this: gdp is exact"),
        (["--accountant", "pld", "--orders", "2..64"], "--orders cannot be given unless"),
        (["--orders", "2-64"], "--orders must be wide"),
        (["--conversion", "best"], "--conversion must be one of classical, improved"),
        (["--schedule", "x.csv"], "cannot be given with --schedule"),
        (["--run", "x"], "cannot be given with --run"),
        (["--run", "x", "--statement"], "--statement cannot be given with --run"),
        (["--accountant", "published"], "--accountant published needs --run"),
        (["--noise-mutliplier", "3"], "did you mean --noise-multiplier?"),
        (["--sampling", "Poisson"], "did you mean poisson?"),
        (["--view", "sound"], "--view cannot be given without --run"),
        (["--plot", "curve.txt"], "--plot must be a file that ends in .png"),
        (["--plot", "nowhere/curve.png"], "--plot must be a file in an existing folder"),
        (["--orders", ""], "--orders must be wide, a range such as 2..64"),
        (["--conversion", ""], "--conversion must be one of classical, improved"),
        (["--accountant", ""], "--accountant must be one of pld, prv"),
        (["--sampling", ""], "--sampling must be one of poisson"),
        (["--noise-multiplier", "1e308"], "--noise-multiplier must be > 0 and <= 1e+06"),
        (["--noise-multiplier", "nan"], "--noise-multiplier must be finite"),
        (["--delta", "1e-308"], "--delta must be >= 1e-100 and < 1"),
        (["--steps", "1e308"], "--steps must be a whole number >= 1 and <= 1000000000"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_status_2(arguments, sentence, command, tmp_path):
    (tmp_path / "folder.png").mkdir()
    said = command("account", *BASELINE, *DELTA, *arguments)
    assert said.status == 2
    assert sentence in said.sentence


def test_what_is_missing_is_named(command):
    assert "--steps must be given" in command(
        "account", "--noise-multiplier", "3", "--sample-rate", "0.1", *DELTA
    ).sentence  # fmt: skip
    assert "--delta must be given" in command("account", *BASELINE).sentence


def test_a_folder_of_run_folders_is_told_from_a_run_folder(command, train):
    folder = train("algorithm=dp_fl", "rounds=1").folder
    said = command("account", "--run", str(folder.parent), *DELTA)
    assert said.status == 2
    assert f"must be a run folder, such as {folder}" in said.sentence


def test_a_column_that_contradicts_a_flag_is_refused(command, schedule):
    path = schedule("noise_multiplier,sample_rate\n3,0.1\n")
    said = command("account", "--schedule", path, "--sampling", "none", *DELTA)
    assert said.status == 2
    assert "contradicts the column sample_rate" in said.sentence


def test_what_one_accountant_cannot_compute_does_not_stop_the_others(answer):
    found = answer("account", "--noise-multiplier", "1e-3", "--sample-rate", "0.013",
                   "--steps", "100", *DELTA)["accountants"]  # fmt: skip
    assert "points" in found["prv"]["reason"]
    assert found["pld"]["epsilon"] == found["rdp"]["epsilon"]


@pytest.mark.thorough
def test_a_curve_ends_at_the_answer_and_is_that_of_the_first_steps():
    """Of the worst of several histories, also where the noise took many values."""
    events = [PoissonSampling(0.1).event(9.0 * 0.99**i) for i in range(60)]
    long, short = tuple((event, 2) for event in events), ((events[0], 5), (events[-1], 3))
    releases = Releases((), "add_or_remove", (long, short, short[:1]))
    for accountant in (RdpAccountant(), PldAccountant(1e-3)):
        curve = releases.curve(accountant, 1e-5, [1, 7, 8, 120])
        for steps, epsilon in zip([1, 7, 8, 120], curve, strict=True):
            first = [
                Counter([e for e, n in stages for _ in range(n)][:steps])
                for stages in (long, short)
            ]
            wanted = max(accountant.epsilon_of(c, 1e-5, "add_or_remove") for c in first)
            assert epsilon == pytest.approx(wanted, rel=1e-6)
        worst = releases.worst(accountant, 1e-5)
        epsilon = accountant.epsilon_of(worst, 1e-5, releases.neighbours)
        assert curve[-1] == pytest.approx(epsilon, rel=1e-9)


def test_absurd_noise_of_a_schedule_is_one_sentence(command, schedule):
    said = command("account", "--schedule", schedule("noise_multiplier\n1e308\n"), "--sample-rate",
                   "0.1", *DELTA)  # fmt: skip
    assert said.status == 2
    assert "line 2: noise_multiplier must be > 0 and <= 1e+06" in said.sentence
