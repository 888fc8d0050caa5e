"""What a run will do and how many rounds its budget allows, known before it starts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter

from fedpriv.common.errors import ConfigError
from fedpriv.common.words import counted
from fedpriv.data.names import MISLABELLED
from fedpriv.experiment.costs import Costs, Forecast
from fedpriv.experiment.parts import Parts
from fedpriv.privacy.core.names import RELATION_WORDS, SOUND
from fedpriv.privacy.core.sampling import FixedSizeSampling
from fedpriv.privacy.mechanisms import GaussianQuery, Group, JointQuery, Query, RandomizedBit
from fedpriv.privacy.noise_schedules import CalibratedNoise

_ROUND = "a single round"


@dataclass(frozen=True)
class Plan:
    """The budget's worth in rounds at the first σ, and what they would cost.

    ``first``: what a participant releases in the first round, None without privacy;
    ``epsilon``: what the ledger will state at the end, or at most that where it is only a ``bound``;
    ``rounds_allowed``: None without a budget; ``needed_epsilon``: the smallest budget for one round, or for
    what ``unit`` says.
    """

    first: Group | None
    rounds_allowed: int | None
    rounds: int | None
    epsilon: float | None
    needed_epsilon: float | None
    lines: tuple[tuple[str, str], ...]
    unit: str = _ROUND
    bound: bool = False

    def refuse_if_impossible(self, epsilon: float | None) -> None:
        """Raise ConfigError when not even one round fits the budget."""
        if self.rounds_allowed == 0:
            assert self.needed_epsilon is not None
            raise ConfigError("epsilon", epsilon, _too_small(self.needed_epsilon, self.unit))


def _too_small(needed: float, unit: str) -> str:
    if needed == float("inf"):
        return "null: a round releases something without noise, so no budget allows it"
    return f">= {needed:.4g}, the cost of {unit} at this noise"


def _charged(parts: Parts) -> str:
    """What is charged at once."""
    if parts.released_statistics is not None:
        return f"the release before the first round and {_ROUND}"
    return _ROUND if parts.mechanism.charged_at_once is None else "the whole run"


def make_plan(parts: Parts, records_per_client: int | None = None) -> Plan:
    """Price the first round and count how many such rounds the budget allows.

    With a schedule whose σ falls the run will be shorter than ``rounds_allowed``. Sampling without
    replacement is accounted for for clients of ``records_per_client`` records (default: an even share).
    """
    settings, algorithm = parts.settings, parts.algorithm
    if not algorithm.private:
        lines = (*_common_lines(parts), ("privacy", "none: no clipping, no noise, no epsilon"))
        return Plan(None, None, settings.rounds, None, None, lines)
    sigma, costs = parts.noise_schedule.noise_multiplier(0), parts.costs(records_per_client)
    first, allowed = parts.mechanism.group(costs.sampling, sigma, 0), None
    if settings.epsilon is not None:
        allowed = costs.rounds_allowed(sigma, settings.epsilon)
    rounds = min((r for r in (allowed, settings.rounds) if r is not None), default=None)
    forecast, needed = costs.forecast(allowed, settings.epsilon), costs.epsilon(sigma, 1)
    if parts.unprotected and settings.budget_view == SOUND:
        forecast, needed = Forecast(math.inf, forecast.rounds), math.inf
    forecast = _of_the_worst_client(parts, forecast, allowed)
    known = parts.shares_known or records_per_client is not None
    lines = (
        *_common_lines(parts),
        *_privacy_lines(parts, first.upload.joint),
        *(_cost_lines(parts, costs, allowed, forecast, needed) if known else _UNKNOWN_COST),
        *_caveat_lines(parts, forecast.epsilon if known else 0.0, rounds),
    )
    return Plan(
        first, allowed, rounds, forecast.epsilon, needed, lines, _charged(parts), forecast.bound
    )


def plan_of_smallest(parts: Parts, records_per_client: Iterable[int]) -> Plan:
    """Return the plan of the client with the fewest records that can afford a round, which costs it most."""
    for records in sorted({int(n) for n in records_per_client if n > 0}):
        plan = make_plan(parts, records)
        if plan.rounds_allowed != 0:
            break
    return plan


def _of_the_worst_client(parts: Parts, forecast: Forecast, allowed: int | None) -> Forecast:
    """Return the forecast of the client that spends most, where not all take part in every round.

    Sampled clients are in fewer rounds. Where those with few records pay more, others go on when the
    budget of these is spent; all keep to it.
    """
    limit, asked = parts.settings.epsilon, parts.settings.rounds
    spends_all = asked is None or (allowed is not None and asked > allowed)
    if limit is not None and parts.algorithm.cost_depends_on_records and spends_all:
        return replace(forecast, epsilon=limit, bound=True)
    dropping = parts.algorithm.dropout > 0.0
    return replace(forecast, bound=forecast.bound or dropping or bool(_if_sampled(parts)))


def _common_lines(parts: Parts) -> tuple[tuple[str, str], ...]:
    algorithm = parts.algorithm
    clients = parts.partition.clients
    return (
        ("algorithm", f"{algorithm.name} on {parts.dataset.name}, seed {parts.settings.seed}"),
        *_publish_words(parts),
        *_paired_words(parts),
        ("clients", f"{clients or 'one per user'} ({_partition_words(parts)})"),
        *(("data", note) for note in parts.dataset.notes),
        *algorithm.describe(clients, parts.even_share if clients else None),
        *([] if algorithm.augmentation is None
          else [("augmentation", algorithm.augmentation.describe())]),
        *([] if parts.settings.averaging is None
          else [("evaluated", parts.settings.averaging.describe())]),
        *([] if not parts.settings.isolate_records
          else [("records", "each computed by a copy of the model of its own")]),
        *([] if parts.aggregation is None
          else [("aggregation", f"{parts.aggregation.describe()}, of each client's upload")]),
        *([] if parts.attack is None else [("attack", _attack_words(parts))]),
        *([] if not parts.settings.canaries else [("canaries", _canary_words(parts))]),
        *([] if algorithm.search is None else [("search", algorithm.search.describe())]),
        ("rounds asked for", "until the budget is spent"
         if parts.settings.rounds is None else str(parts.settings.rounds)),
    )  # fmt: skip


def _canary_words(parts: Parts) -> str:
    mislabelled = "mislabelled " if parts.settings.canary == MISLABELLED else ""
    what = counted(parts.settings.canaries, mislabelled + parts.algorithm.unit)
    return f"{what} planted for audit=epsilon; they cost accuracy"


def _attack_words(parts: Parts) -> str:
    assert parts.attack is not None
    words, rounds = parts.attack.describe(), parts.settings.rounds
    if rounds is not None and parts.attack.first_round > rounds:
        words += f"; never, as the run has {counted(rounds, 'round')}"
    return words


def _publish_words(parts: Parts) -> list[tuple[str, str]]:
    if not parts.settings.publish:
        return []
    return [
        (
            "publish",
            "lots, cohorts and noise from the operating system (seed: partition and initial weights only)",
        )
    ]


def _paired_words(parts: Parts) -> list[tuple[str, str]]:
    name = parts.settings.paired
    if name is None:
        return []
    shared = f"lots, cohorts and noise of every run with paired={name} and these seeds"
    if not parts.algorithm.private:
        return [("paired", shared)]
    return [("paired", f"{shared}; their ε do not add up: together it is infinite")]


def _partition_words(parts: Parts) -> str:
    """``FixedSize`` → ``fixed size``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(parts.partition).__name__).lower()


_UNKNOWN_COST = (
    ("privacy cost", "depends on how many records a client has; known when the data has been read"),
)


def _privacy_lines(parts: Parts, joint: JointQuery) -> tuple[tuple[str, str], ...]:
    sigma = _first(parts)
    words_of = _query_words if parts.shares_known else attrgetter("name")
    return (
        (
            "protects",
            f"{parts.algorithm.unit} level: one {parts.algorithm.unit}, "
            f"{RELATION_WORDS[joint.sampling.neighbours]}, "
            f"{parts.algorithm.trust.name} trust: against whoever sees "
            f"{parts.algorithm.trust.seen_of_a_client}",
        ),
        ("clipping", parts.clipper.describe()),
        (
            "noise",
            f"noise multiplier {sigma:g}"
            + (" at first, then by the schedule" if _moves(parts) else "")
            + _calibrated_words(parts),
        ),
        (f"released per {_occasion(parts)}", ", ".join(map(words_of, joint.queries))),
        *_exposed_lines(parts),
        *_before_lines(parts),
        ("accountant", parts.accountant.describe()),
    )


def _cost_lines(
    parts: Parts, costs: Costs, allowed: int | None, forecast: Forecast, needed: float
) -> tuple[tuple[str, str], ...]:
    settings, lines, epsilon = parts.settings, [], forecast.epsilon
    rounds, at_most = counted(forecast.rounds, "round"), "at most " if forecast.bound else ""
    whose = _if_sampled(parts) + _if_unequal(parts, costs)
    if settings.epsilon is None:
        cost = f"have no finite epsilon{whose}"
        if math.isfinite(epsilon):
            cost = f"would cost {at_most}epsilon {epsilon:.4g}{whose}"
        elif parts.adaptive and math.isfinite(
            at_first := costs.epsilon(_first(parts), forecast.rounds)
        ):
            cost = (
                f"would cost epsilon {at_first:.4g} at the first noise multiplier{whose}, "
                "and more as it falls"
            )
        if forecast.by_rdp:
            cost += f" (by RDP: {parts.accountant.name} takes long where the noise moves)"
        return (("budget", f"none; {rounds} {cost}"),)
    lines.append(
        ("budget", f"epsilon {settings.epsilon:g} at delta {settings.delta:g}, "
                   f"{settings.budget_view} view")
    )  # fmt: skip
    if allowed == 0:
        lines.append(
            (
                "rounds allowed",
                f"0: epsilon {needed:.4g} is the cost of {_charged(parts)}; a run would be refused",
            )
        )
    else:
        note = f"{allowed} at the first noise multiplier"
        lines.append(("rounds allowed", note))
        note = f"{at_most}{epsilon:.6f} after {rounds}{whose}"
        if epsilon == settings.epsilon and forecast.bound:  # however many there are
            note = f"at most {epsilon:g}, the budget{whose}"
        lines.append(("epsilon then", note))
    if parts.adaptive and settings.budget_view == SOUND:
        lines.append(
            ("guarantee", f"epsilon {settings.epsilon:g}, the budget, however early the run ends: a "
                          "filter guards a noise multiplier that adapts")
        )  # fmt: skip
    return tuple(lines)


_VACUOUS = 20.0
"""An ε beyond which e^ε bounds no attack that there is."""


def _caveat_lines(parts: Parts, epsilon: float, rounds: int | None) -> Iterator[tuple[str, str]]:
    """What the numbers mean where they protect, or average, next to nothing."""
    averaging = parts.settings.averaging
    if averaging is not None and rounds is not None and averaging.start >= rounds:
        yield (
            "caveat",
            f"averaging_start is {averaging.start}, and the budget allows {counted(rounds, 'round')}: with "
            "no more of them the last model is evaluated",
        )
    cohort = parts.algorithm.expected_cohort(parts.partition.clients)
    if cohort is not None and cohort <= 1:
        yield (
            "caveat",
            f"expected cohort of {cohort:.2g} client: a round averages no noise over clients",
        )
    if parts.settings.budget_view == SOUND and _VACUOUS < epsilon < math.inf:
        yield (
            "caveat",
            f"sound epsilon {epsilon:.4g} is above {_VACUOUS:g}: a vacuous bound on membership inference",
        )


def _exposed_lines(parts: Parts) -> tuple[tuple[str, str], ...]:
    """What is known of every client before the first round."""
    if not parts.unprotected:
        return ()
    names = ", ".join(f"{name} (no noise)" for name in parts.unprotected)
    return (("already released", f"{names}, of every client: the sound epsilon is infinite"),)


def _before_lines(parts: Parts) -> tuple[tuple[str, str], ...]:
    """What every client releases before the first round."""
    released, query = parts.released_statistics, parts.mechanism.before
    if released is None or query is None:
        return ()
    words = f"{_query_words(query)}, once, of every client: means and mean squares of the"
    return (
        (
            "released before",
            f"{words} {released.channels} channels of each record, L2 norm {released.clip_norm:g} at most",
        ),
    )


def _calibrated_words(parts: Parts) -> str:
    """For how many draws σ was solved, where some clients may make more than that."""
    schedule, algorithm = parts.noise_schedule, parts.algorithm
    if schedule.spreads_budget:
        cohort, clients = algorithm.clients_per_round, parts.partition.clients
        if cohort is None or cohort >= (clients or math.inf) or parts.settings.budget_view != SOUND:
            return ""
        return (
            ", for the average number of rounds of a client: one whose budget is spent takes no further "
            "part, so the last cohorts are smaller"
        )
    if not isinstance(schedule, CalibratedNoise) or schedule.epsilon_per_draw is not None:
        return ""
    if schedule.draws is None and algorithm.clients_per_round is None:
        return ""
    return (
        f", for {schedule.draws or 'the average number of'} draws of a client "
        "(noise_schedule.draws): one whose budget is spent takes no further part"
    )


def _occasion(parts: Parts) -> str:
    """On what a client, or the server, answers."""
    if parts.algorithm.unit == "record":
        return "lot"
    return "report" if parts.algorithm.trust.sees_each_upload else "round"


def _if_sampled(parts: Parts) -> str:
    """Whose ε it is when only some clients take part in a round."""
    cohort, clients = parts.algorithm.clients_per_round, parts.partition.clients
    if cohort is None or (clients is not None and cohort >= clients):
        return ""
    if parts.algorithm.trust.secret_cohort:  # everyone pays
        return ""
    often = "" if clients is None else f"; on average it is in {cohort / clients:.0%} of them"
    return f" for a client in every one of them{often}"


def _if_unequal(parts: Parts, costs: Costs) -> str:
    """Return for which client ε is told, where it depends on the number of records."""
    if not parts.algorithm.cost_depends_on_records:
        return ""
    of_size, records = costs.sampling, parts.even_share
    if isinstance(of_size, FixedSizeSampling):  # once the data are known: of the smallest client
        records = of_size.records
    return f" for a client of {counted(records, 'record')}; with fewer it costs more"


def _query_words(query: Query | RandomizedBit) -> str:
    if isinstance(query, RandomizedBit):
        return f"{query.name} (randomized response, epsilon {query.epsilon:g} a bit)"
    if not isinstance(query, GaussianQuery):
        return query.describe_in_full()
    noise = f"noise multiplier {query.noise_multiplier:g}" if query.noise_multiplier else "no noise"
    return f"{query.name} ({noise})"


def _first(parts: Parts) -> float:
    """Return the first noise multiplier."""
    return parts.noise_schedule.noise_multiplier(0)


def _moves(parts: Parts) -> bool:
    schedule = parts.noise_schedule
    return parts.adaptive or schedule.noise_multiplier(0) != schedule.noise_multiplier(10**6)
