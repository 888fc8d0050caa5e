"""Settles a noise schedule that follows from an ε, with the parts of the experiment at hand."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from fedpriv.common.errors import ConfigError
from fedpriv.privacy.calibration import least_noise_multiplier
from fedpriv.privacy.names import SOUND

if TYPE_CHECKING:
    from fedpriv.experiment.parts import Parts


def noise_for(parts: Parts, epsilon: float, draws: int | None) -> float:
    """The smallest σ at which ``draws`` draws of one client cost at most ``epsilon``.

    In the enforced view, by the configured accountant. A clipper that asks something in some rounds
    only is taken to ask this client every time.
    """
    draws = _planned_draws(parts) if draws is None else draws
    asking = _asking_rounds(parts, draws)
    algorithm, settings, clipper = parts.algorithm, parts.settings, parts.clipper
    sampling = algorithm.sampling_of(parts.even_share)

    def price(sigma: float) -> float:
        composition: Counter[object] = Counter()
        for round_index, count in asking.items():
            draw = algorithm.draw(sampling, sigma, clipper, round_index)
            sound = settings.budget_view == SOUND
            composition[draw.event() if sound else algorithm.claim.event(draw)] += count
        sound = settings.budget_view == SOUND
        neighbours = sampling.neighbours if sound else algorithm.claim.neighbours
        return parts.accountant.epsilon_of(composition, settings.delta, neighbours)

    return least_noise_multiplier(
        price, epsilon, parts.accountant.name, most=clipper.largest_noise_multiplier
    )


def _planned_draws(parts: Parts) -> int:
    rounds, algorithm = parts.settings.rounds, parts.algorithm
    if rounds is None:
        raise ConfigError("noise_schedule.draws", None, "a whole number >= 1 when rounds is null")
    draws = rounds * algorithm.draws_per_round
    if algorithm.clients_per_round is None:
        return draws
    clients = getattr(parts.partition, "clients", None)
    if clients is None:
        raise ConfigError(
            "noise_schedule.draws",
            None,
            "a whole number >= 1 when clients are sampled and the partition decides how many there are",
        )
    return max(1, math.ceil(draws * min(1.0, algorithm.clients_per_round / clients)))


def _asking_rounds(parts: Parts, draws: int) -> dict[int, int]:
    """A round of each kind (one in which the clipper asks, one in which it does not) → draws in it."""
    rounds = parts.settings.rounds or draws
    asks = [t for t in range(rounds) if parts.clipper.query(t, 1.0) is not None]
    silent = next((t for t in range(rounds) if parts.clipper.query(t, 1.0) is None), None)
    if silent is None:
        return {asks[0]: draws}
    with_question = min(draws, len(asks) * parts.algorithm.draws_per_round)
    counts = {asks[0]: with_question} if asks else {}
    return {**counts, silent: draws - with_question} if draws > with_question else counts
