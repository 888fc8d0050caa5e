"""Noise that is missing in a direction, and noise of few values, is found."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from planted import CLIENTS, RECORDS

from fedpriv.common import secret_streams
from fedpriv.common.secret_streams import derived_key
from fedpriv.privacy.core import noise
from fedpriv.tools.verify.context import SAMPLES
from fedpriv.tools.verify.discreteness import equal_pairs, key_bits

pytestmark = pytest.mark.usefixtures("unpublished")
FIVE = {
    "dp_fl": RECORDS,
    "cdp_fedavg": CLIENTS,
    "naseri_ldp": ("algorithm=naseri_ldp", "partition.clients=4", "algorithm.sample_rate=0.5"),
    "wei_cdp": ("algorithm=wei_cdp", "partition.clients=4"),
    "dp_ftrl": ("algorithm=dp_ftrl", "rounds=12", "epsilon=4", "partition.clients=24"),
}


@pytest.fixture
def changed_noise(monkeypatch):
    """(a change of standard normals [m, d] before they are added)."""
    add = noise.add_on_grid

    def plant(change):
        monkeypatch.setattr(
            noise, "add_on_grid", lambda values, drawn, std: add(values, change(drawn), std)
        )

    return plant


def about(found: list[str], *names: str) -> bool:
    return any(one.endswith(name) or name in one for one in found for name in names)


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["dp_fl", "dp_ftrl"])
def test_planted_noise_minus_its_mean(caught_by, changed_noise, algorithm):
    """The mean of what is hidden leaves exactly: ε is infinite."""
    changed_noise(lambda drawn: drawn - drawn.mean(1, keepdim=True))
    assert about(caught_by("noise", *FIVE[algorithm]), "gradient_sum: worst of")


@pytest.mark.thorough
def test_planted_centred_noise_of_the_last_bias(caught_by, changed_noise):
    def centred(drawn):
        if drawn.shape[1] == 650:
            drawn[:, -10:] -= drawn[:, -10:].mean(1, keepdim=True)
        return drawn

    changed_noise(centred)
    assert about(caught_by("noise", *CLIENTS), "gradient_sum: worst of")


def _without_a_subspace(share: float, rescaled: bool):
    """Noise without a random subspace that everybody knows."""
    stream = np.random.default_rng(8)
    basis, _ = np.linalg.qr(stream.standard_normal((650, round(share * 650))))
    basis = torch.from_numpy(basis)
    times = (1.0 - share) ** -0.5 if rescaled else 1.0

    def projected(drawn):
        return times * (drawn - drawn @ basis @ basis.T) if drawn.shape[1] == 650 else drawn

    return projected


@pytest.mark.thorough
def test_planted_public_subspace_without_noise(caught, changed_noise):
    """3 % of the directions, the rest with so much more noise that the whole has the right size."""
    changed_noise(_without_a_subspace(0.03, rescaled=True))
    found = caught(*CLIENTS, samples=SAMPLES, rounds=2)
    assert "noise: gradient_sum: directions" in found


@pytest.mark.thorough
def test_planted_noise_that_is_a_mixture_of_two_others(caught_by, changed_noise):

    def mixed(drawn):
        if len(drawn) == 5:
            drawn[-1] = (drawn[0] + drawn[1]) / 2**0.5
        return drawn

    changed_noise(mixed)
    found = caught_by("noise", "algorithm=dp_fl", "partition=iid", "partition.clients=5")
    assert about(found, "vectors of clients and rounds")


def test_planted_noise_without_a_grid(caught_by, monkeypatch):
    def plain(values, drawn, std):
        return values.copy_(values.double().addcmul_(drawn, std.double().view(-1, 1)))

    monkeypatch.setattr(noise, "add_on_grid", plain)
    found = caught_by("noise", *CLIENTS)
    assert found == ["noise: gradient_sum: on the grid of its noise"]


@pytest.mark.thorough
def test_planted_noise_of_4096_values(caught, changed_noise):
    """Quantiles of the normal distribution at so many places: size, shape and independence are right."""
    levels = (torch.arange(4096, dtype=torch.float64) + 0.5) / 4096
    table = torch.special.ndtri(levels)
    changed_noise(lambda drawn: table[(torch.special.ndtr(drawn) * 4096).long().clamp(0, 4095)])
    assert about(caught(*CLIENTS, samples=SAMPLES, rounds=2), "gradient_sum: distinct values")


@pytest.mark.thorough
def test_planted_keys_of_16_bits(caught, monkeypatch):
    def short(key, *parts):
        return hashlib.blake2b(derived_key(key, *parts)[:2], digest_size=32).digest()

    monkeypatch.setattr(secret_streams.SecretStreams, "noise", lambda self, purpose, *more: (
        secret_streams.Stream(short(self.noise_key, purpose, *more))
    ))  # fmt: skip
    found = caught(*CLIENTS, samples=SAMPLES, rounds=2)
    assert about(found, "gradient_sum: streams that begin alike")


@pytest.mark.few(1)
@pytest.mark.parametrize("what", ["sampling", "of_run"])
def test_planted_keys_of_16_bits_of_lots_and_runs(caught_by, monkeypatch, what):
    streams = secret_streams.SecretStreams
    if what == "sampling":
        monkeypatch.setattr(
            streams,
            "sampling",
            lambda self, *of: secret_streams.Stream(derived_key(self.sampling_key, *of)[:2] * 16),
        )
    else:
        honest = streams.of_run.__func__
        monkeypatch.setattr(
            streams,
            "of_run",
            classmethod(lambda cls, root, run: honest(cls, derived_key(root, run)[:2], "")),
        )
    assert about(caught_by("two runs", *CLIENTS), "keys of runs, streams of lots")


def test_the_stated_key_size_is_found_nearly_always():
    stream = np.random.default_rng(3)
    bits = key_bits(1000)
    assert bits == 16
    for _ in range(20):
        keys = stream.integers(2**bits, size=1000)
        heads = np.stack([np.random.default_rng(key).standard_normal(4) for key in keys])
        assert equal_pairs(heads) > 0


def test_streams_of_large_keys_are_all_different():
    assert equal_pairs(np.random.default_rng(0).standard_normal((5000, 4))) == 0
