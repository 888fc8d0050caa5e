"""The laws that every noise schedule obeys. Subclass :class:`ScheduleSuite` to put one through them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from checkpoints import saved
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.privacy.mechanisms import Public
from fedpriv.privacy.noise_schedules import NoiseSchedule

laws = settings(max_examples=examples(25), suppress_health_check=[HealthCheck.differing_executors])
losses_of_a_run = st.lists(
    st.floats(-5.0, 5.0) | st.sampled_from([math.inf, math.nan]), max_size=60
) | st.lists(st.floats(0.0, 5.0), max_size=60).map(lambda x: sorted(x, reverse=True))


def follow(schedule: NoiseSchedule, losses: list[float], first: int = 0) -> list[float]:
    """σ_first, σ_{first+1}, … while ``losses[i]`` is observed after round ``first + i``."""
    path = []
    for t, loss in enumerate(losses, start=first):
        path.append(schedule.noise_multiplier(t))
        schedule.observe(t, Public(loss))
    path.append(schedule.noise_multiplier(first + len(losses)))
    return path


class ScheduleSuite(ABC):
    """Give ``make``: a fresh schedule."""

    @abstractmethod
    def make(self) -> NoiseSchedule: ...

    @laws
    @given(losses=losses_of_a_run)
    def test_noise_is_finite_and_not_negative(self, losses):
        assert all(0 <= sigma < math.inf for sigma in follow(self.make(), losses))

    @laws
    @given(losses=losses_of_a_run)
    def test_no_signal_leads_below_the_lowest(self, losses):
        path, fresh = follow(self.make(), losses), self.make()
        assert all(fresh.lowest(t) <= sigma for t, sigma in enumerate(path))

    @laws
    @given(losses=losses_of_a_run, others=losses_of_a_run)
    def test_only_an_adaptive_schedule_listens(self, losses, others):
        shared = min(len(losses), len(others))
        paths = [follow(self.make(), x[:shared]) for x in (losses, others)]
        assert paths[0] == paths[1] or self.make().adaptive

    @laws
    @given(losses=losses_of_a_run)
    def test_the_lowest_does_not_depend_on_the_signal(self, losses):
        schedule, fresh = self.make(), self.make()
        follow(schedule, losses)
        rounds = range(len(losses) + 10)
        assert [schedule.lowest(t) for t in rounds] == [fresh.lowest(t) for t in rounds]

    @laws
    @given(losses=losses_of_a_run, data=st.data())
    def test_a_restored_schedule_goes_on_exactly(self, losses, data):
        cut = data.draw(st.integers(0, len(losses)))
        whole, first, restored = self.make(), self.make(), self.make()
        expected = follow(whole, losses)
        follow(first, losses[:cut])
        restored.load_state_dict(saved(first.state_dict()))
        assert follow(restored, losses[cut:], first=cut) == expected[cut:]
        assert restored.decays == whole.decays

    def test_asking_for_the_noise_does_not_change_it(self):
        schedule = self.make()
        assert schedule.noise_multiplier(3) == schedule.noise_multiplier(3)
