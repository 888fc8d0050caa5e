"""Ten thousand clients in one round: their uploads are never all in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROUND = """
import numpy as np
import torch
from fedpriv.algorithms import CdpFedAvg, LdpFedSgd
from fedpriv.algorithms.run_context import RunContext
from fedpriv.data.federated import FederatedData
from fedpriv.data.records import Records
from fedpriv.engine import FlatModel, make_engine
from fedpriv.models import Mlp
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.privacy.clippers import QuantileClipper
from fedpriv.privacy.mechanisms import Mechanism
from fedpriv.privacy.noise_schedules import ConstantNoise

CLIENTS, SHAPE = 10_000, (1, 28, 28)
rng = np.random.default_rng(0)
bounds = np.cumsum([0, *rng.integers(1, 3, CLIENTS)])
records = Records(torch.rand(bounds[-1], *SHAPE), torch.from_numpy(rng.integers(0, 10, bounds[-1])))
clients = [np.arange(a, b) for a, b in zip(bounds, bounds[1:])]
model = FlatModel(Mlp(seed=0).build(SHAPE, 10))
for algorithm in (LdpFedSgd("ldp_fedsgd"), CdpFedAvg("cdp_fedavg", client_rate=1.0)):
    clipper, streams = QuantileClipper(0.1), SecretStreams.simulated(0, 0)
    data = FederatedData(records, clients, None, records, 10, SHAPE)
    mechanism = Mechanism(algorithm, clipper, ConstantNoise(1.0))
    mechanism.join(data.records_per_client)
    trainer = algorithm.start(
        RunContext(
            data=data,
            model=model,
            engine=make_engine(model),
            clipper=clipper,
            seed=0,
            streams=streams,
            mechanism=mechanism,
        )
    )
    opened = mechanism.open(mechanism.announce(0), np.arange(CLIENTS), streams)
    outcome = trainer.round(opened)
    assert outcome.healthy
    assert len(outcome.norms) == CLIENTS
    (release,) = opened.close()
    assert len(release.clients) == CLIENTS
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_a_round_of_ten_thousand_clients_stays_under_two_gibibytes():
    """All uploads at once would be 10,000 x 25,450 numbers, about 1 GiB, several times over.

    VmHWM is the peak of this process alone: ru_maxrss would begin with that of its parent.
    """
    finished = subprocess.run(
        [sys.executable, "-c", ROUND],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert int(finished.stdout) * 1024 < 2 * 2**30
