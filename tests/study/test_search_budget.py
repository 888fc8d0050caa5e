"""What the trials of a search cost together."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from dp_accounting import PrivacyAccountant, dp_event
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.rdp import rdp_privacy_accountant

from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.privacy.accountants import GdpAccountant, PldAccountant, RdpAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.sampling import PoissonSampling
from fedpriv.privacy.core.trade_off import EPSILONS, trade_off
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms import GaussianQuery, JointQuery
from fedpriv.store.ledger_file import ledger_text
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.search_budget import SearchBudget, SearchLedger, read_trial
from tests.privacy.releases import released

EXACT = True  # ε itself is asserted

DELTA = 1e-5
ROUNDS = 5
CELL = 1e-3  # of both: theirs against ours
SAMPLED = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(2.0))
PLAIN = dp_event.GaussianDpEvent(20.0)


def library_rdp(orders) -> PrivacyAccountant:
    """dp_accounting's own, which knows nothing of searches."""
    return rdp_privacy_accountant.RdpAccountant(list(map(float, orders)))


def library_pld() -> PrivacyAccountant:
    """The same by privacy loss distributions."""
    return pld_privacy_accountant.PLDAccountant(value_discretization_interval=CELL)


def budget(epsilon, accountant, first, adaptive=False) -> SearchBudget:
    return SearchBudget(
        epsilon=epsilon,
        delta=DELTA,
        neighbours=ADD_OR_REMOVE,
        accountant=accountant,
        first=first,
        adaptive=adaptive,
    )


def search(own: SearchBudget, trials: list[dict]) -> tuple[SearchLedger, int]:
    """(the ledger, how many of the trials were let start)."""
    ledger, made = SearchLedger(ADD_OR_REMOVE), 0
    for planned in trials:
        if own.would_exceed(ledger, planned):
            break
        ledger.add_to_everyone(planned)
        made += 1
    return ledger, made


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("accountant", "independent"),
    [(RdpAccountant("2..256"), library_rdp(range(2, 257))), (PldAccountant(CELL), library_pld())],
    ids=["rdp", "pld"],
)
def test_200_useless_trials_cost_what_composition_says(accountant, independent):
    own = budget(10.0, accountant, {SAMPLED: ROUNDS})
    ledger, made = search(own, [{SAMPLED: ROUNDS}] * 200)
    assert made == 200
    independent.compose(SAMPLED, 200 * ROUNDS)
    assert own.guaranteed(ledger) == pytest.approx(independent.get_epsilon(DELTA), rel=1e-3)


def test_200_useless_trials_of_written_ledgers_cost_what_each_client_released(tmp_path):
    joint = JointQuery(PoissonSampling(0.01), (GaussianQuery("gradient", 2.0),))
    planned = {joint.event(): ROUNDS}
    total, took_part = SearchLedger(ADD_OR_REMOVE), Counter()
    for trial in range(200):
        ledger = Ledger(3)
        ledger.record(released(joint, np.arange(3)))  # all of them once
        ledger.record(
            released(joint, np.array([trial % 2]), count=2)
        )  # one of the first two more often
        took_part.update(dict.fromkeys(range(3), 1))
        took_part[trial % 2] += 2
        run = StoredRun(tmp_path / f"{trial}")
        run.path.mkdir()
        run.files.ledger.write_text(ledger_text(ledger, None))
        total.add(read_trial(run, ADD_OR_REMOVE, planned))
    own = budget(10.0, RdpAccountant(), planned)
    assert max(took_part.values()) == 400
    assert own.spent(total) == RdpAccountant().epsilon_of(
        {joint.event(): 400}, DELTA, ADD_OR_REMOVE
    )


def test_no_trial_starts_that_might_exceed_the_budget():
    accountant = RdpAccountant()
    own = budget(0.5, accountant, {SAMPLED: ROUNDS})
    ledger, made = search(own, [{SAMPLED: ROUNDS}] * 10_000)
    one_more = {SAMPLED: (made + 1) * ROUNDS}
    assert 0 < made < 10_000
    assert own.spent(ledger) <= 0.5 < accountant.epsilon_of(one_more, DELTA, ADD_OR_REMOVE)


@pytest.mark.parametrize("accountant", [RdpAccountant(), GdpAccountant()], ids=lambda a: a.name)
def test_adaptive_search_claims_its_budget_and_keeps_to_it(accountant):
    own = budget(2.0, accountant, {PLAIN: 2}, adaptive=True)
    trials = [{dp_event.GaussianDpEvent(10.0 + i % 17): 1 + i % 3} for i in range(1000)]
    ledger, made = search(own, trials)
    assert 0 < made < 1000
    (history,) = ledger.histories()
    assert GdpAccountant().epsilon_of(history, DELTA, ADD_OR_REMOVE) <= 2.0
    assert own.guaranteed(ledger) == 2.0


def test_order_of_the_filter_does_not_follow_from_what_was_released():
    own = budget(2.0, RdpAccountant(), {PLAIN: 2}, adaptive=True)
    order = RdpAccountant().best_order(PLAIN, 2.0, DELTA, ADD_OR_REMOVE)
    other = {dp_event.GaussianDpEvent(3.0): 1}
    single = RdpAccountant([order])
    assert own.epsilon_of(other) == pytest.approx(single.epsilon_of(other, DELTA, ADD_OR_REMOVE))


def test_search_that_was_overspent_promises_nothing():
    own = budget(0.5, RdpAccountant(), {PLAIN: 2}, adaptive=True)
    ledger = SearchLedger(ADD_OR_REMOVE)
    ledger.add_to_everyone({dp_event.GaussianDpEvent(1.0): 5})
    assert own.guaranteed(ledger) == float("inf")


def test_trials_without_any_release_cost_nothing():
    own = budget(0.5, RdpAccountant(), {PLAIN: 2})
    assert own.guaranteed(SearchLedger(ADD_OR_REMOVE)) == 0


def test_pld_is_refused_where_trials_follow_from_earlier_ones():
    with pytest.raises(ConfigError, match=r"accountant must be rdp .* got pld; .* has no filter"):
        budget(2.0, PldAccountant(), {SAMPLED: 2}, adaptive=True)


def test_budget_that_allows_no_trial_is_refused():
    own = budget(0.01, RdpAccountant(), {PLAIN: 9})
    with pytest.raises(ConfigError, match=r"hydra\.sweeper\.epsilon must be >= .* a single trial"):
        own.refuse_too_small({PLAIN: 9})


def test_ledger_that_is_not_what_was_planned_ends_the_search(tmp_path):
    joint = JointQuery(PoissonSampling(0.01), (GaussianQuery("gradient", 2.0),))
    ledger, run = Ledger(3), StoredRun(tmp_path)
    ledger.record(released(joint, np.arange(3), count=3))
    run.files.ledger.write_text(ledger_text(ledger, None))
    with pytest.raises(FedprivError, match="more than the plan"):
        read_trial(run, ADD_OR_REMOVE, {joint.event(): 2})
    with pytest.raises(FedprivError, match="adjacency"):
        read_trial(run, REPLACE_ONE, {joint.event(): 3})
    with pytest.raises(FedprivError, match="is not there"):
        read_trial(StoredRun(tmp_path / "none"), ADD_OR_REMOVE, {})


@pytest.mark.parametrize("accountant", [RdpAccountant(), PldAccountant(), GdpAccountant()])
def test_the_best_attack_is_that_on_all_trials_together(accountant):
    trial = {PLAIN: ROUNDS} if accountant.name == "gdp" else {SAMPLED: ROUNDS}
    own = budget(10.0, accountant, trial)
    ledger, made = search(own, [trial] * 3)
    ((event, count),) = trial.items()
    whole = trade_off(accountant.deltas_of({event: made * count}, EPSILONS, ADD_OR_REMOVE))
    one = trade_off(accountant.deltas_of(trial, EPSILONS, ADD_OR_REMOVE))
    assert made == 3
    assert own.trade_off(ledger).largest() == whole.largest()
    assert own.trade_off(ledger).largest()["at_1_percent_fpr"] > one.largest()["at_1_percent_fpr"]
    assert own.trade_off(SearchLedger(ADD_OR_REMOVE)).largest() == {
        "at_0.1_percent_fpr": 0.001, "at_1_percent_fpr": 0.01,
    }  # fmt: skip


def test_the_best_attack_on_an_adaptive_search_is_that_on_its_budget():
    """Whatever was spent of it; within what (ε, δ) says, and beyond what was spent."""
    trial = {SAMPLED: ROUNDS}
    own = budget(2.0, RdpAccountant(), trial, adaptive=True)
    ledger, _ = search(own, [trial])
    found = own.trade_off(ledger).largest()
    assert found == own.trade_off(SearchLedger(ADD_OR_REMOVE)).largest()
    budgeted = trade_off(np.where(EPSILONS >= 2.0, DELTA, 1.0)).largest()
    spent = trade_off(RdpAccountant().deltas_of(trial, EPSILONS, ADD_OR_REMOVE)).largest()
    for name, largest in found.items():
        assert spent[name] < largest <= budgeted[name] * 1.001
    ledger.add_to_everyone({SAMPLED: 10**9})
    assert set(own.trade_off(ledger).largest().values()) == {1.0}
