"""Mechanisms, opened rounds and budgets of three clients."""

from __future__ import annotations

import math

import numpy as np
import torch

from fedpriv.algorithms import CdpFedAvg, DpFl, LdpFedSgd
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.privacy.accountants import RdpAccountant
from fedpriv.privacy.budget import Adaptation, Budget, Target
from fedpriv.privacy.clippers import ConstantClipper
from fedpriv.privacy.clippers.step_clip import StepClip
from fedpriv.privacy.core.names import SOUND
from fedpriv.privacy.mechanisms import (
    GRADIENT,
    TRAINING_LOSS,
    Bounded,
    GaussianQuery,
    Mechanism,
    OpenRound,
    Release,
)
from fedpriv.privacy.mechanisms.bounded import mean_of_reports
from fedpriv.privacy.noise_schedules import ConstantNoise, LossQuery, NoiseSchedule

SIGMA, DELTA, SIZE = 3.0, 1e-5, 20_000


RECORDS = np.array([100, 100, 200])


EVERYONE = np.arange(3)


DP_FL = DpFl("dp_fl", 0.1)


LDP = LdpFedSgd("ldp_fedsgd", 1.0)


CDP = CdpFedAvg("cdp_fedavg", client_rate=0.5)


def mechanism(algorithm, clipper=None, schedule: NoiseSchedule | None = None) -> Mechanism:
    found = algorithm.mechanism(clipper or ConstantClipper(0.5), schedule or ConstantNoise(SIGMA))
    found.join(RECORDS)
    return found


def streams(seed: int = 0) -> SecretStreams:
    return SecretStreams.simulated(seed, 0)


def opened(of: Mechanism, cohort=EVERYONE, round_index: int = 0, seed: int = 0) -> OpenRound:
    return of.open(of.announce(round_index), np.array(cohort), streams(seed))


def clipped(of: Mechanism, rows: int, value: float = 0.0, divided_by: float = 1.0) -> Bounded:
    """A clipped sum of ``rows`` holders whose numbers are all ``value``."""
    clipper = of.clipper
    clipper.start(3 if of.algorithm.unit == "record" else 1, "cpu", lambda: 1.0)
    clip = StepClip(clipper, 0, torch.arange(rows))
    clip.factors(torch.ones(rows), torch.arange(rows))
    values = torch.full((rows, SIZE), value, dtype=torch.float64)
    return clip.bounded(values, divided_by)


def measured(values: torch.Tensor) -> np.ndarray:
    """The standard deviation of every row."""
    return values.double().square().mean(dim=1).sqrt().numpy()


WITHIN = 5 / math.sqrt(2 * SIZE)  # five standard errors of a measured standard deviation


def budget(of: Mechanism, epsilon: float | None = None, **settings) -> Budget:
    first = of.announce(0).groups[0]
    bound = of.bound(first.upload.joint.sampling)
    view, accountant = settings.pop("view", SOUND), settings.pop("accountant", RdpAccountant())
    return Budget(
        clients=len(RECORDS),
        target=Target(epsilon, DELTA, view, accountant),
        first=first,
        adaptation=Adaptation(bound) if of.schedule.adaptive else None,
        trust=of.algorithm.trust,
        **{"claim": of.algorithm.claim, **settings},
    )


def clipped_small(of: Mechanism) -> Bounded:
    of.clipper.start(3, "cpu", None)
    clip = StepClip(of.clipper, 0, torch.arange(3))
    clip.factors(torch.ones(3), torch.arange(3))
    return clip.bounded(torch.zeros(3, 1, dtype=torch.float64))


def released_without_data(of: Mechanism, announced) -> tuple[Release, ...]:
    run = of.open(announced, EVERYONE, streams())
    run.release({GRADIENT: clipped_small(of)})
    return run.close()


class AsksForLosses(ConstantNoise):
    """A schedule that asks the clients for their losses on all of their records."""

    @property
    def loss_query(self) -> LossQuery:
        return LossQuery(GaussianQuery(TRAINING_LOSS, 2.0, replaced=1.0), bound=5.0)


def ask(run: OpenRound):
    losses = [torch.ones(4) * k for k in range(len(run.cohort))]
    return run.release_after(TRAINING_LOSS, mean_of_reports(losses, 5.0, whole_clients=False))
