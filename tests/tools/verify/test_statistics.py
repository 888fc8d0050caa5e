"""Levels are exact, and noise 5 % too low is found."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedpriv.tools.verify import noise, sampling, statistics
from fedpriv.tools.verify.context import SAMPLES
from fedpriv.tools.verify.noise import OVERALL_WEIGHT
from fedpriv.tools.verify.probes import ReleasePosition
from fedpriv.tools.verify.table import FALSE_ALARM, Check, failed, judged

RANDOM = np.random.default_rng(5)


def samples(scale: float = 1.0, rows: int = 4, width: int = 650, rounds: int = 4) -> list:
    return [
        noise.NoiseSample(
            ReleasePosition(t, 0, "gradient_sum"),
            1,
            scale * RANDOM.standard_normal((rows, width)),
            np.arange(rows),
        )
        for t in range(rounds)
    ]


def of_table(p_values: list[float]) -> list[Check]:
    """A table as long as the longest of a shipped algorithm, with these p-values of the noise's size."""
    others = [Check("", str(i), "", "", 1.0) for i in range(40)]
    sizes = [Check("noise", "size", "", "", p, weight=OVERALL_WEIGHT) for p in p_values]
    return judged([*others, *sizes])


# ---- power


def power(samples: int, ratio: float, level: float) -> float:
    """Return the probability that noise of ``ratio`` times its due standard deviation is found too little."""
    limit = stats.chi2.ppf(level, samples)
    return float(stats.chi2.cdf(limit / ratio**2, samples))


def test_noise_five_percent_too_low_is_found_with_probability_above_99_percent():
    level = of_table([1.0, 1.0])[-1].level
    assert power(SAMPLES, 0.95, level / 2) > 0.999  # half: the test is two-sided


def test_noise_five_percent_too_low_is_found_in_200_of_200_simulations():
    found, own = 0, np.random.default_rng(1)  # one in several seeds has one that is not found
    for square_sum in 0.95**2 * own.chisquare(SAMPLES, 200):
        p = float(statistics.squares_p(square_sum, SAMPLES))
        found += bool(failed(of_table([p, 1.0])))
    assert found == 200


@pytest.mark.thorough
def test_the_power_is_that_of_simulations():
    level, ratio, count = 0.05, 0.95, 700
    drawn = ratio**2 * RANDOM.chisquare(count, 20_000)
    share = np.mean([stats.chi2.cdf(s, count) < level for s in drawn])
    assert share == pytest.approx(power(count, ratio, level), abs=0.015)


def test_more_samples_or_less_noise_are_found_more_often():
    assert power(2000, 0.95, 1e-4) > power(1000, 0.95, 1e-4)
    assert power(1000, 0.9, 1e-4) > power(1000, 0.95, 1e-4)
    assert power(1000, 1.0, 1e-4) == pytest.approx(1e-4, rel=1e-6)


# ---- level


def test_the_levels_of_a_table_add_up_to_half_of_one_in_a_thousand():
    table = of_table([1.0, 1.0, 1.0])
    assert sum(check.level for check in table) == pytest.approx(FALSE_ALARM)
    assert FALSE_ALARM == 5e-4
    assert failed(table) == []


def rejections(p_values: list[float], level: float = 0.02) -> None:
    """As many p-values lie below a level as may."""
    below = sum(p <= level for p in p_values)
    assert stats.binom.sf(below - 1, len(p_values), level) > 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize(
    "test",
    [
        lambda x: float(statistics.squares_p((x**2).sum(), x.size)),
        lambda x: statistics.smallest(statistics.squares_p((x**2).sum(1), x.shape[1])),
        lambda x: statistics.shape_p(x.reshape(-1)),
        lambda x: statistics.largest_p(x.reshape(-1)),
        lambda x: statistics.common_p(statistics.off_diagonal(x)),
        lambda x: statistics.sum_p(x.reshape(-1)),
        lambda x: statistics.spread_p(x.reshape(-1)),
        lambda x: statistics.spectrum_p(x.T)[0],
        lambda x: statistics.spectrum_p(x.reshape(-1, 4))[0],
    ],
)
def test_a_test_rejects_normals_as_often_as_its_level_says(test):
    rejections([test(RANDOM.standard_normal((8, 64))) for _ in range(700)])


def test_checks_of_noise_reject_normals_as_often_as_their_levels_say():
    found: dict[str, list[float]] = {}
    for _ in range(70):
        drawn = samples(rows=3, width=80)
        direct = RANDOM.standard_normal(500)
        made = [*noise.checks("n", drawn, direct, 1.0, []), *noise.independence("n", drawn)]
        for check in made:
            found.setdefault(check.name.partition(" (")[0], []).append(check.p_value)
    assert len(found) >= 8
    for p_values in found.values():
        rejections(p_values, 0.05)


@pytest.mark.parametrize("law", [sampling.Law(rate=0.3), sampling.Law(size=9)])
def test_checks_of_lots_reject_true_lots_as_often_as_their_levels_say(law):
    found: dict[str, list[float]] = {}
    for seed in range(25):
        lots = [lot(law, who, when) for who in range(4) for when in range(6)]
        for check in sampling.checks("lots", lots, dict.fromkeys(range(4), law), seed):
            if check.p_value is not None:
                found.setdefault(check.name, []).append(check.p_value)
            else:
                assert check.passed
    assert len(found) >= 4
    for p_values in found.values():
        rejections(p_values, 0.05)


def lot(law: sampling.Law, who: int, when: int, count: int = 40) -> sampling.Lot:
    if law.size is None:
        members = np.flatnonzero(RANDOM.random(count) < law.rate)
    else:
        members = np.sort(RANDOM.permutation(count)[: law.size])
    return sampling.Lot(who, when, count, members)


def test_distinct_values_are_judged_as_often_as_their_level_says():
    p_values = []
    for _ in range(60):
        values = np.rint(RANDOM.standard_normal(400) * 64)
        coincidence = 1.0 / 64 / (2.0 * np.sqrt(np.pi)) * 1.001
        distinct = len(np.unique(values))
        p_values.append(statistics.fewest_distinct_p(distinct, 400, coincidence))
    rejections(p_values, 0.05)


# ---- what a test is for


def test_a_direction_without_noise_is_found_from_more_draws_than_numbers():
    drawn = RANDOM.standard_normal((220, 100))
    direction = RANDOM.standard_normal(100)
    direction /= np.linalg.norm(direction)
    assert statistics.spectrum_p(drawn)[0] > 1e-4
    assert statistics.spectrum_p(drawn - np.outer(drawn @ direction, direction))[0] < 1e-6


def test_a_table_of_noise_is_found():
    values = RANDOM.choice(RANDOM.standard_normal(4096), 20_000)
    assert statistics.fewest_distinct_p(len(np.unique(values)), 20_000, 1.8e-5) < 1e-9


def test_a_vector_that_contains_another_is_found():
    vectors = RANDOM.standard_normal((6, 400))
    vectors[4] = 0.5 * vectors[1] + np.sqrt(0.75) * vectors[4]
    assert statistics.common_p(statistics.off_diagonal(vectors)) < 1e-9


def test_numbers_that_repeat_within_a_vector_are_found():
    drawn = samples(rows=2, width=600)
    for sample in drawn:
        sample.values[:, 300:] = sample.values[:, :300]
    found = {check.name: check.p_value for check in noise.independence("n", drawn)}
    assert found["n: over numbers"] < 1e-9


def test_noise_that_is_too_low_for_one_client_is_found():
    drawn = samples(rows=5, rounds=6)
    for sample in drawn:
        sample.values[3] *= 0.9
    found = {c.name: c for c in noise.checks("n", drawn, RANDOM.standard_normal(99), 1.0, [])}
    worst = found["n: worst client of 5"]
    assert worst.p_value < 1e-6
    assert "client 3" in worst.measured
