"""A release before round 1 is composed with the rounds, or refused before the first of them."""

from __future__ import annotations

import numpy as np
import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.privacy.accountants import GdpAccountant, RdpAccountant
from fedpriv.privacy.budget import Budget, Target
from fedpriv.privacy.core.sampling import PoissonSampling, WholeData
from fedpriv.privacy.mechanisms import GRADIENT, GaussianQuery, JointQuery
from fedpriv.privacy.mechanisms.announcement import Group, Sample
from fedpriv.privacy.mechanisms.release import Release

WHOLE, SAMPLED = WholeData("add_or_remove"), PoissonSampling(0.1)


def charged(rounds, prior, accountant) -> Budget:
    joint = JointQuery(rounds, (GaussianQuery(GRADIENT, 4.0),))
    first = Group(np.arange(3), Sample(joint, 1, joint))
    target = Target(None, 1e-5, "sound", accountant)
    budget = Budget(clients=3, target=target, claim=None, first=first)
    values = {"statistic": np.ones(3)}
    before = JointQuery(prior, (GaussianQuery("statistic", 3.0),))
    noise = {"statistic": np.full(3, 3.0)}
    budget.charge_prior(Release(before, np.arange(3), values, noise))
    return budget


def test_a_release_that_composes_is_charged():
    assert charged(SAMPLED, WHOLE, RdpAccountant()).epsilon_sound().max() > 1


@pytest.mark.parametrize("accountant", [RdpAccountant(), GdpAccountant()])
def test_a_release_of_another_kind_is_one_sentence(accountant):
    with pytest.raises(ConfigError, match="released before the first round has no price here"):
        charged(WHOLE, SAMPLED, accountant)
