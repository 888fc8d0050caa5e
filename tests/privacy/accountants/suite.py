"""The laws that every accountant obeys. Subclass :class:`AccountantSuite` to put one through them.

An accountant that takes long tries fewer and easier examples of each law:

    class TestSlow(AccountantSuite, examples=3, least_noise=1.5, most_steps=300):
        accountant = ...
"""

from __future__ import annotations

import numpy as np
import pytest
from checkpoints import saved
from dp_accounting import dp_event
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedpriv.privacy.accountants import Accountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE, RELATION_WORDS, REPLACE_ONE
from fedpriv.privacy.core.sampling import PoissonSampling, Sampling
from fedpriv.privacy.mechanisms import GaussianQuery, JointQuery

DELTA = 1e-5
ALL = np.arange(3)

RATES, MULTIPLIERS, STEPS = "rates", "multipliers", "steps"
BUDGETS, COMPOSITIONS = "budgets", "compositions"
"""Names of what a law is tried on; how wide each is depends on the accountant."""
HEALTH = {"deadline": None, "suppress_health_check": [HealthCheck.differing_executors]}


def law(**arguments):  # type: ignore[no-untyped-def]
    """Mark a test as a law, tried on strategies or on those of the accountant's that have these names."""

    def mark(test):  # type: ignore[no-untyped-def]
        test.law = (test, arguments)
        return test

    return mark


class AccountantSuite:
    """Give ``accountant``; for another relation also ``neighbours`` and ``sampling``."""

    def __init_subclass__(
        cls, examples: int = 15, least_noise: float = 0.6, most_steps: int = 3000
    ) -> None:
        slow = examples < 10
        rates = st.floats(*((0.01, 0.1) if slow else (0.002, 0.4)))
        multipliers = st.floats(least_noise, 5.0 if slow else 10.0)
        parts = st.tuples(rates, multipliers, st.integers(1, 50))
        ranges = {
            RATES: rates,
            MULTIPLIERS: multipliers,
            STEPS: st.integers(1, most_steps),
            BUDGETS: st.floats(0.3, 3.0 if slow else 12.0),
            COMPOSITIONS: st.lists(parts, min_size=2, max_size=4),
        }
        for name in dir(cls):
            if (marked := getattr(getattr(cls, name), "law", None)) is None:
                continue
            test, arguments = marked
            drawn = {k: ranges[v] if isinstance(v, str) else v for k, v in arguments.items()}
            tried = settings(max_examples=examples, **HEALTH)(given(**drawn)(test))
            tried.law = marked
            setattr(cls, name, tried)

    accountant: Accountant
    neighbours = ADD_OR_REMOVE
    tolerance = 1e-9
    """How well one composition priced in two ways agrees, relatively."""
    share_tolerance = 1e-6
    """How well the share of a budget is known that some steps are."""

    def sampling(self, rate: float) -> Sampling:
        return PoissonSampling(rate)

    def event(self, rate: float, multiplier: float) -> dp_event.DpEvent:
        return self.sampling(rate).event(multiplier)

    def price(self, composition: dict[dp_event.DpEvent, int], delta: float = DELTA) -> float:
        return self.accountant.epsilon_of(composition, delta, self.neighbours)

    def allowed(self, event: dp_event.DpEvent, epsilon: float) -> int:
        return self.accountant.steps_allowed(event, epsilon, DELTA, self.neighbours)

    def running(self, clients: int = 3):  # type: ignore[no-untyped-def]
        return self.accountant.running(clients, self.neighbours)

    def not_above(self, low: float, high: float) -> bool:
        return low <= high * (1 + self.tolerance) + 1e-12

    # ---- ε of a composition

    def test_nothing_released_costs_nothing(self):
        assert self.price({}) == 0.0

    def test_an_event_counted_zero_times_costs_nothing(self):
        assert self.price({self.event(0.01, 1.0): 0, dp_event.NonPrivateDpEvent(): 0}) == 0.0

    @law(rate=RATES, multiplier=MULTIPLIERS, count=STEPS, delta=st.floats(1e-9, 0.3))
    def test_epsilon_is_never_negative(self, rate, multiplier, count, delta):
        assert self.price({self.event(rate, multiplier): count}, delta) >= 0.0

    @law(rate=RATES, multiplier=MULTIPLIERS, count=STEPS, more=STEPS)
    def test_epsilon_does_not_fall_with_steps(self, rate, multiplier, count, more):
        event = self.event(rate, multiplier)
        assert self.not_above(self.price({event: count}), self.price({event: count + more}))

    @law(low=RATES, high=RATES, multiplier=MULTIPLIERS, count=STEPS)
    def test_epsilon_does_not_fall_with_the_sampling_rate(self, low, high, multiplier, count):
        low, high = sorted((low, high))
        less, more = self.event(low, multiplier), self.event(high, multiplier)
        assert self.not_above(self.price({less: count}), self.price({more: count}))

    @law(rate=RATES, low=MULTIPLIERS, high=MULTIPLIERS, count=STEPS)
    def test_epsilon_does_not_rise_with_the_noise(self, rate, low, high, count):
        low, high = sorted((low, high))
        louder, quieter = self.event(rate, high), self.event(rate, low)
        assert self.not_above(self.price({louder: count}), self.price({quieter: count}))

    @law(rate=RATES, multiplier=MULTIPLIERS, count=STEPS)
    def test_epsilon_does_not_rise_with_delta(self, rate, multiplier, count):
        event = self.event(rate, multiplier)
        assert self.not_above(self.price({event: count}, 1e-4), self.price({event: count}, 1e-6))

    @law(parts=COMPOSITIONS)
    def test_the_order_of_composition_does_not_matter(self, parts):
        composition = {self.event(rate, z): count for rate, z, count in parts}
        backwards = dict(reversed(composition.items()))
        assert self.price(composition) == pytest.approx(self.price(backwards), rel=self.tolerance)

    def test_an_event_without_noise_costs_infinitely_much(self):
        composition = {self.event(0.01, 5.0): 1, dp_event.NonPrivateDpEvent(): 1}
        assert self.price(composition) == np.inf

    def test_noise_too_small_for_floating_point_costs_infinitely_much(self):
        assert self.price({self.event(0.01, 1e-200): 1}) == np.inf

    def test_parts_that_follow_one_another_cost_what_they_come_to(self):
        parts = [{self.event(0.02, 3.0 - 0.1 * i): 2 + i} for i in range(3)]
        whole = {event: count for part in parts for event, count in part.items()}
        after = self.accountant.epsilons_after(parts, DELTA, self.neighbours)
        forecast, bounded = self.accountant.forecast(parts, DELTA, self.neighbours)
        expected = pytest.approx(self.price(whole), rel=self.tolerance)
        assert (after[-1], forecast, bounded) == (expected, expected, False)
        assert after[0] == pytest.approx(self.price(parts[0]), rel=self.tolerance)
        assert after == sorted(after)

    # ---- joint queries

    def test_pricing_a_second_query_on_a_sample_of_its_own_would_understate_it(self):
        both = JointQuery(self.sampling(0.013), (GaussianQuery("a", 1.1), GaussianQuery("b", 1.1)))
        assert self.price({both.event(): 97}) > 1.2 * self.price(
            {self.sampling(0.013).event(1.1): 2 * 97}
        )

    # ---- running totals

    @law(parts=COMPOSITIONS)
    def test_a_running_total_equals_the_composition(self, parts):
        running, composition = self.running(), {}
        for rate, z, count in parts:
            event = self.event(rate, z)
            running.add(event, ALL, count)
            composition[event] = composition.get(event, 0) + count
        assert running.epsilon(DELTA) == pytest.approx(
            [self.price(composition)] * 3, rel=self.tolerance
        )

    def test_merged_counts_equal_unmerged_ones(self):
        event, one_by_one = self.event(0.02, 1.5), self.running()
        for _ in range(40):
            one_by_one.add(event, ALL)
        assert one_by_one.epsilon(DELTA) == pytest.approx(
            [self.price({event: 40})] * 3, rel=self.tolerance
        )

    def test_a_client_that_took_no_part_spent_nothing(self):
        running = self.running()
        running.add(self.event(0.1, 1.0), np.array([0, 2]), 10)
        assert running.epsilon(DELTA)[1] == 0.0

    def test_each_client_pays_for_its_own_releases(self):
        event, running = self.event(0.05, 1.0), self.running()
        running.add(event, np.array([0, 1]), 10)
        running.add(event, np.array([1]), 30)
        assert running.epsilon(DELTA) == pytest.approx(
            [self.price({event: 10}), self.price({event: 40}), 0.0], rel=self.tolerance
        )

    def test_zero_samples_of_an_event_without_noise_cost_nothing(self):
        running = self.running()
        running.add(dp_event.NonPrivateDpEvent(), ALL, 0)
        assert running.epsilon(DELTA).tolist() == [0.0, 0.0, 0.0]

    def test_an_event_without_noise_exceeds_every_budget(self):
        exceeds = self.running().would_exceed(dp_event.NonPrivateDpEvent(), 1, 1e300, DELTA)
        assert exceeds.tolist() == [True, True, True]

    def test_noise_too_small_for_floating_point_exceeds_every_budget(self):
        exceeds = self.running().would_exceed(self.event(0.01, 1e-200), 1, 1e300, DELTA)
        assert exceeds.tolist() == [True, True, True]

    def test_asking_whether_a_release_would_exceed_charges_nothing(self):
        running = self.running()
        running.would_exceed(self.event(0.1, 1.0), 1000, 1.0, DELTA)
        assert running.epsilon(DELTA).tolist() == [0.0, 0.0, 0.0]

    # ---- the boundary of a budget

    @law(rate=RATES, multiplier=MULTIPLIERS, epsilon=BUDGETS)
    def test_the_allowed_steps_are_within_the_budget_and_one_more_is_not(
        self, rate, multiplier, epsilon
    ):
        event = self.event(rate, multiplier)
        allowed = self.allowed(event, epsilon)
        assert self.price({event: allowed}) <= epsilon < self.price({event: allowed + 1})

    @law(rate=RATES, multiplier=MULTIPLIERS, epsilon=BUDGETS)
    def test_would_exceed_agrees_with_the_allowed_steps(self, rate, multiplier, epsilon):
        event, running = self.event(rate, multiplier), self.running(1)
        allowed = self.allowed(event, epsilon)
        answers = [bool(running.would_exceed(event, allowed + 1, epsilon, DELTA)[0])]
        if allowed:
            running.add(event, np.array([0]), allowed - 1)
            answers.append(bool(running.would_exceed(event, 1, epsilon, DELTA)[0]))
            running.add(event, np.array([0]))
        answers.append(bool(running.would_exceed(event, 1, epsilon, DELTA)[0]))
        assert answers == ([True, False, True] if allowed else [True, True])

    @law(rate=RATES, multiplier=MULTIPLIERS, count=STEPS)
    def test_the_price_of_some_steps_is_a_budget_that_allows_them(self, rate, multiplier, count):
        event = self.event(rate, multiplier)
        assert self.allowed(event, self.price({event: count})) >= count

    @law(rate=RATES, multiplier=MULTIPLIERS, count=STEPS)
    def test_a_budget_a_hair_below_some_steps_is_not_overspent(self, rate, multiplier, count):
        event = self.event(rate, multiplier)
        budget = float(np.nextafter(self.price({event: count}), 0.0))
        assert self.price({event: self.allowed(event, budget)}) <= budget

    def test_an_event_without_noise_is_allowed_no_steps(self):
        assert self.allowed(dp_event.NonPrivateDpEvent(), 100.0) == 0

    def test_each_client_is_asked_for_its_own_total(self):
        event, running = self.event(0.05, 1.0), self.running()
        budget = self.price({event: 25})
        running.add(event, np.array([1]), 20)
        assert running.would_exceed(event, 10, budget, DELTA).tolist() == [False, True, False]

    def test_the_share_of_a_budget_is_that_of_the_steps_it_allows(self):
        event, running = self.event(0.05, 1.2), self.running()
        allowed, budget = 40, self.price({event: 40})
        running.add(event, np.array([0]), 10)
        running.add(event, np.array([1]), 30)
        running.worst(DELTA)  # once an epsilon was computed, how loose its bound is is known
        share = running.share_of(budget, DELTA)
        if share is None:
            pytest.skip("this accountant cannot say so at once")
        assert share == pytest.approx(30 / allowed, rel=self.share_tolerance)

    def test_no_share_of_a_budget_is_more_than_all_of_it(self):
        running = self.running()
        running.add(self.event(0.4, 0.7), ALL, 1000)
        assert running.share_of(1e-3, DELTA) in (1.0, None)

    # ---- filters

    def test_a_filter_stops_within_its_budget(self):
        multiplier, used = 3.0, 0
        first = self.event(0.02, multiplier)
        total = self.accountant.filter(1, self.neighbours, first, 2.0, DELTA)
        if total is None:
            pytest.skip("no privacy filter is known for this accountant")
        while not total.would_exceed(self.event(0.02, multiplier), 1, 2.0, DELTA)[0]:
            total.add(self.event(0.02, multiplier), np.array([0]))
            multiplier, used = max(1.0, 0.99 * multiplier), used + 1
        assert used > 0
        assert total.epsilon(DELTA)[0] <= 2.0

    # ---- state, support, words

    def test_a_restored_total_goes_on_exactly(self):
        event, running = self.event(0.05, 1.2), self.running()
        running.add(event, np.array([0, 1]), 7)
        restored = self.running()
        restored.load_state_dict(saved(running.state_dict()))
        for total in (running, restored):
            total.add(event, ALL, 3)
        assert restored.epsilon(DELTA).tolist() == running.epsilon(DELTA).tolist()

    def test_a_saved_state_does_not_change_with_the_total(self):
        event, running = self.event(0.05, 1.2), self.running()
        running.add(event, ALL, 7)
        state, before = saved(running.state_dict()), running.epsilon(DELTA).tolist()
        running.add(event, ALL, 100)
        restored = self.running()
        restored.load_state_dict(state)
        assert restored.epsilon(DELTA).tolist() == before

    def test_its_own_events_are_supported(self):
        assert self.accountant.supports(self.event(0.1, 1.0), self.neighbours) is None

    def test_an_event_of_the_other_relation_is_refused_with_a_reason(self):
        other = REPLACE_ONE if self.neighbours == ADD_OR_REMOVE else ADD_OR_REMOVE
        reason = self.accountant.supports(self.event(0.1, 1.0), other)
        assert RELATION_WORDS[other] in reason
        assert "DpEvent" not in reason

    def test_an_event_of_the_other_relation_is_not_priced(self):
        other = REPLACE_ONE if self.neighbours == ADD_OR_REMOVE else ADD_OR_REMOVE
        with pytest.raises(Exception, match=r"(?i)neighbo|adjacency"):
            self.accountant.epsilon_of({self.event(0.1, 1.0): 1}, DELTA, other)

    def test_the_settings_are_told_in_one_line(self):
        words = self.accountant.describe()
        assert words
        assert "\n" not in words
