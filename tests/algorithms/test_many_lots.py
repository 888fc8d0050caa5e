"""Lots of many clients in one step: drawn together, and the same as one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from fedpriv.algorithms import run_context
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.privacy.core.sampling import FixedSizeSampling, PoissonSampling

CLIENTS = 70


class Context:
    """As much of a run as sampling lots reads."""

    streams = SecretStreams.simulated(0, 0, "a run")
    sample_lots = run_context.RunContext.sample_lots

    def records_of(self, round_index: int, client: int) -> np.ndarray:
        return 100 * client + np.arange(1 + client % 5)


@dataclass(frozen=True)
class OwnSampling(PoissonSampling):
    """A sampling of the user's own that takes the first record."""

    def sample(self, stream, count):
        return np.arange(1)


@pytest.fixture
def drawn_together(monkeypatch):
    calls: list[int] = []
    draw = run_context.poisson_lots
    monkeypatch.setattr(run_context, "poisson_lots", lambda *a: (calls.append(1), draw(*a))[1])
    return calls


def lots(samplings):
    drawn = Context().sample_lots(samplings, 2, 0, np.arange(len(samplings)))
    return [lot.tolist() for lot in drawn]


def test_clients_that_sample_alike_have_the_lots_of_few(drawn_together):
    sampling = PoissonSampling(0.4)
    many = lots([sampling] * CLIENTS)
    assert drawn_together == [1]
    assert many[:9] == lots([sampling] * 9)
    assert drawn_together == [1]
    assert any(many)


@pytest.mark.parametrize("other", [OwnSampling(0.4), PoissonSampling(0.5), FixedSizeSampling(1, 1)])
def test_other_samplings_draw_for_themselves(other, drawn_together):
    samplings = [PoissonSampling(0.4)] * CLIENTS
    samplings[65] = other
    mixed = lots(samplings)
    assert not drawn_together
    assert mixed[:65] == lots(samplings[:65])
    if type(other) is not PoissonSampling:
        assert mixed[65] == [6500]
