"""χ² tests: the noise of every mechanism is what its ledger entry says, by a count of its own.

Plan, release and charge read one number, so a wrong constant in it would be common to all three; here the
noise that comes out is measured.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from fedpriv.algorithms import CdpFedAvg, DpFl, LdpFedSgd, NaseriCdp, NaseriLdp, wei_cdp
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.privacy.clippers import (
    AdapClipper,
    ConstantClipper,
    MedianHistogramClipper,
    QuantileClipper,
)
from fedpriv.privacy.clippers.step_clip import StepClip
from fedpriv.privacy.core import noise as noise_module
from fedpriv.privacy.core.names import CLIENT
from fedpriv.privacy.mechanisms import CLIP_STATISTIC, GRADIENT, TRAINING_LOSS, GaussianQuery
from fedpriv.privacy.mechanisms.bounded import mean_of_reports
from fedpriv.privacy.mechanisms.randomized_response import flip_probability
from fedpriv.privacy.noise_schedules import ConstantNoise, LossQuery

SIGMA, SIZE, CLIENTS = 1.7, 2_000, 5
ROUNDS = 60
RARE = 1e-6  # a right mechanism fails so often

ALGORITHMS = {
    "dp_fl": lambda: DpFl("dp_fl", 0.1),
    "dp_fl, fixed size": lambda: DpFl("dp_fl", 0.1, sampling="fixed_size"),
    "naseri_ldp": lambda: NaseriLdp("naseri_ldp", 1.0),
    "naseri_ldp, as printed": lambda: NaseriLdp("naseri_ldp", 1.0, noise="as_printed"),
    "wei_cdp": lambda: wei_cdp("wei_cdp"),
    "wei_cdp, weights": lambda: wei_cdp("wei_cdp", sensitivity="weights", records=50),
    "ldp_fedsgd": lambda: LdpFedSgd("ldp_fedsgd", 1.0),
    "cdp_fedavg": lambda: CdpFedAvg("cdp_fedavg", client_rate=0.4),
    "naseri_cdp": lambda: NaseriCdp("naseri_cdp", client_rate=0.4),
    "naseri_cdp, as printed": lambda: NaseriCdp("naseri_cdp", client_rate=0.4, noise="as_printed"),
}
CLIPPERS = {
    "constant": lambda: ConstantClipper(0.3),
    "quantile": lambda: QuantileClipper(0.3, bit_noise=2.0),
    "quantile, by clients": lambda: QuantileClipper(0.3, bit_noise=2.0, noised_by=CLIENT),
    "adap": lambda: AdapClipper("scalar", initial_clip_norm=0.3),
    "histogram": lambda: MedianHistogramClipper(0.3, update_interval=1, updates=3, bins=200),
}
REFUSED = {("naseri_ldp, as printed", name) for name in CLIPPERS if name != "constant"} | {
    ("naseri_cdp, as printed", name) for name in CLIPPERS if name != "constant"
}
REFUSED |= {(name, "quantile, by clients") for name in ALGORITHMS if name == "cdp_fedavg"}
REFUSED |= {("naseri_cdp", "quantile, by clients")}
PAIRS = [(a, c) for a in ALGORITHMS for c in CLIPPERS if (a, c) not in REFUSED]


def chi_square(algorithm: str, clipper: str) -> dict[str, tuple[float, int]]:
    """Of each query: Σ (noise / its standard deviation by the ledger)² over all rounds, and how many
    numbers that is."""
    of = ALGORITHMS[algorithm]().mechanism(CLIPPERS[clipper](), ConstantNoise(SIGMA))
    of.join([50, 50, 80, 80, 50])
    cohort = np.array([0, 2, 3])
    rows = len(cohort) if of.algorithm.unit == "record" else 1
    divided_by = 1.0 if rows > 1 or "printed" in algorithm else 2.5
    of.clipper.start(CLIENTS if rows > 1 else 1, "cpu", lambda: 1.0)
    sums: dict[str, tuple[float, int]] = {}
    for t in range(ROUNDS):
        streams = SecretStreams.simulated(t, 0)
        run = of.open(of.announce(0), cohort, streams)
        clip = StepClip(of.clipper, 0, torch.arange(rows))
        owners = torch.arange(rows).repeat_interleave(4)
        clip.factors(torch.ones(len(owners)), owners)
        answers = {GRADIENT: clip.bounded(torch.zeros(rows, SIZE, dtype=torch.float64), divided_by)}
        if of.clipper.asks(0):
            answers[CLIP_STATISTIC] = clip.statistic(torch.ones(len(owners)), owners)
        exact = {name: answer.values.clone() for name, answer in answers.items()}
        visible = run.release(answers)
        records = run.close()
        for name, before in exact.items():
            noise = (visible[name].values - before).double().view(rows, -1).numpy()
            scale = divided_by if name == GRADIENT else 1.0
            std = np.concatenate([np.atleast_1d(r.noise_std[name]) for r in records])
            if rows > 1:  # the records are by group; back to the order of the cohort
                who = np.concatenate([r.clients for r in records])
                std = std[np.argsort(who)] if len(std) == rows else std
            shares = records[0].shares[name]
            std = np.broadcast_to(std, rows)[:, None] * math.sqrt(shares) / scale
            total, count = sums.get(name, (0.0, 0))
            sums[name] = total + float(((noise / std) ** 2).sum()), count + noise.size
    return sums


def p_value(total: float, count: int) -> float:
    """Two-sided, of a sum of squares of ``count`` standard normals."""
    return 2 * min(stats.chi2.cdf(total, count), stats.chi2.sf(total, count))


@pytest.mark.few(3)
@pytest.mark.parametrize(("algorithm", "clipper"), PAIRS)
def test_the_noise_has_the_size_that_the_ledger_enters(algorithm, clipper):
    for name, (total, count) in chi_square(algorithm, clipper).items():
        assert count >= ROUNDS
        assert p_value(total, count) > RARE, (name, total / count)


@pytest.mark.parametrize("factor", [0.98, 1.02])
def test_a_wrong_constant_common_to_plan_and_release_is_found(monkeypatch, factor):
    right = noise_module.standard_normals
    monkeypatch.setattr(
        noise_module, "standard_normals", lambda streams, size: right(streams, size) * factor
    )
    total, count = chi_square("dp_fl", "constant")[GRADIENT]
    assert p_value(total, count) < RARE


class AsksForLosses(ConstantNoise):
    @property
    def loss_query(self) -> LossQuery:
        return LossQuery(GaussianQuery(TRAINING_LOSS, 2.0, replaced=1.0), bound=5.0)


@pytest.mark.thorough
def test_the_noise_of_a_mean_of_reports_is_that_of_all_who_report():
    of = wei_cdp("wei_cdp").mechanism(ConstantClipper(0.3), AsksForLosses(SIGMA))
    of.join([50, 80, 20])
    losses, noises = [torch.zeros(n) for n in (50, 80, 20)], []
    for t in range(2_000):
        run = of.open(of.announce(0), np.arange(3), SecretStreams.simulated(t, 0))
        of.clipper.start(3, "cpu", None)
        clip = StepClip(of.clipper, 0, torch.arange(3))
        run.release({GRADIENT: clip.bounded(torch.zeros(3, 1, dtype=torch.float64))})
        answer = mean_of_reports(losses, 5.0, whole_clients=False)
        noises.append(float(run.release_after(TRAINING_LOSS, answer).values))
        (record,) = run.close()
    std = math.sqrt(float(np.square(record.noise_std[TRAINING_LOSS]).sum())) / 3
    total = float(np.square(np.array(noises) / std).sum())
    assert p_value(total, len(noises)) > RARE


def test_bits_are_flipped_as_often_as_the_ledger_enters():
    clipper = QuantileClipper(
        1.0, bit_mechanism="randomized_response", bit_epsilon=0.7, bit_noise=None, noised_by=CLIENT
    )
    of = LdpFedSgd("ldp_fedsgd", 1.0).mechanism(clipper, ConstantNoise(SIGMA))
    clients = 400
    of.join([50] * clients)
    clipper.start(1, "cpu", None)
    owners, flipped, rounds = torch.zeros(clients, dtype=torch.long), 0, 50
    for t in range(rounds):
        run = of.open(of.announce(0), np.arange(clients), SecretStreams.simulated(t, 0))
        clip = StepClip(clipper, 0, torch.zeros(1, dtype=torch.long))
        clip.factors(torch.ones(1), owners[:1])
        answers = {
            GRADIENT: clip.bounded(torch.zeros(1, 1, dtype=torch.float64)),
            CLIP_STATISTIC: clip.statistic(torch.full((clients,), 9.0), owners),  # no bit is one
        }
        estimate = float(run.release(answers)[CLIP_STATISTIC].values) + clients / 2
        (record,) = run.close()
        flip = flip_probability(record.joint.query(CLIP_STATISTIC).epsilon)
        flipped += round(estimate * (1 - 2 * flip) + clients * flip)
    found = stats.binomtest(flipped, rounds * clients, flip)
    assert found.pvalue > RARE
