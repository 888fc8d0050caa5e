"""The search for the most steps: what it asks, and that it comes to an end."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.privacy.accountants.search import _between, most_steps

laws = settings(max_examples=examples(200))


@laws
@given(
    low=st.integers(1, 10**6),
    gap=st.integers(2, 10**6),
    share=st.floats(0.0, 1.0),
    epsilons=st.tuples(st.floats(1e-3, 1.0), st.floats(1e-9, 1.0)),
)
def test_the_next_number_lies_strictly_between_the_ends(low, gap, share, epsilons):
    low_epsilon, rise = epsilons
    epsilon = low_epsilon + share * rise
    guess = _between(low, low_epsilon, low + gap, low_epsilon + rise, epsilon)
    assert low < guess < low + gap


def test_a_number_that_is_likely_next_to_the_lower_end_is_not_asked_for_again():
    assert _between(1000, 1.0, 1010, 1e9, 1.0 + 1e-12) > 1000


@laws
@given(most=st.integers(0, 10**5), power=st.floats(0.3, 2.0), start=st.integers(1, 10**4))
def test_no_number_is_asked_for_twice(most, power, start):
    asked = []

    def epsilon_of(steps: int) -> float:
        asked.append(steps)
        return (steps / (most + 0.5)) ** power

    assert most_steps(epsilon_of, 1.0, start=start) == most
    assert len(asked) == len(set(asked))
