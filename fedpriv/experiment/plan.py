"""The plan of a run, known before the run starts: what is released, what it costs, how many rounds it allows.

A plan needs neither torch nor data. Begin with :func:`make_plan`. The numbers come from
:class:`fedpriv.experiment.costs.Costs`; the other functions write the rows of the table on the screen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter

from fedpriv.aggregation.robust import RobustAggregation
from fedpriv.attacks.names import SAMPLED
from fedpriv.common.attributes import is_own
from fedpriv.common.errors import ConfigError
from fedpriv.common.words import counted, digits_up, round_up
from fedpriv.data.names import MISLABELLED
from fedpriv.experiment.costs import Costs, Forecast
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.unspent import planned_words, uncalibrated_words
from fedpriv.privacy.core.names import RELATION_WORDS, SOUND
from fedpriv.privacy.core.sampling import FixedSizeSampling
from fedpriv.privacy.larger_cohort import LargerCohort
from fedpriv.privacy.mechanisms import GaussianQuery, Group, JointQuery, Query, RandomizedBit
from fedpriv.privacy.noise_schedules import CalibratedNoise

Row = tuple[str, str]
"""Name and text of one row of the table on the screen."""

VACUOUS_EPSILON = 20.0
"""An ε beyond which e^ε bounds no membership inference attack that exists."""

_FAR_ROUND = 10**6  # a schedule that still has its first σ there is taken to be constant


@dataclass(frozen=True)
class Plan:
    """The rounds that a budget pays for at the first noise multiplier, and the ε of the planned run.

    Attributes:
        first: The releases of a participant in the first round; None without privacy.
        rounds_allowed: Rounds that the budget pays for at the first noise multiplier; None without a budget.
        rounds: Planned number of rounds; None if nothing but the budget ends the run. Without privacy: as
            many as are asked for.
        epsilon: ε that the ledger will state at the end, or an upper bound if ``bound``; None without
            privacy.
        needed_epsilon: Smallest budget that pays for one ``unit``; None without privacy.
        lines: Rows of the table on the screen.
        unit: Words for what is charged at once: a round, or the whole run.
        bound: The ledger may state less than ``epsilon``.
        remedy: Words on how a budget pays for more, for a refusal.
    """

    first: Group | None
    rounds_allowed: int | None
    rounds: int | None
    epsilon: float | None
    needed_epsilon: float | None
    lines: tuple[Row, ...]
    unit: str = "a single round"
    bound: bool = False
    remedy: str = ""

    def refuse_if_impossible(self, epsilon: float | None) -> None:
        """Raise ConfigError when not even one round fits the budget ``epsilon``."""
        if self.rounds_allowed != 0:
            return
        assert self.needed_epsilon is not None
        allowed = f">= {digits_up(self.needed_epsilon)}, the cost of {self.unit} at this noise"
        if math.isinf(self.needed_epsilon):
            allowed = "null: a round releases something without noise, so no budget allows it"
            hint = "without a guarantee it is epsilon=null; else choose a noise_schedule with noise"
            raise ConfigError("epsilon", epsilon, allowed, hint)
        raise ConfigError("epsilon", epsilon, allowed, self.remedy)


def make_plan(parts: Parts, records_per_client: int | None = None) -> Plan:
    """Price the first round, count how many such rounds the budget allows, and forecast ε.

    With a schedule whose σ falls the run will be shorter than ``rounds_allowed``. An impossible budget raises
    nothing here, see :meth:`Plan.refuse_if_impossible`.

    Args:
        parts: The parts of the run.
        records_per_client: Records of the client whose cost is planned. It matters for sampling without
            replacement, where smaller clients pay more. Default: an even share of the data set.

    Returns:
        The plan. Without privacy it has rows on the data, the clients and the training alone.
    """
    settings, algorithm = parts.settings, parts.algorithm
    if not algorithm.private:
        rows = (
            *_setup_rows(parts, settings.rounds),
            ("privacy", "none: no clipping, no noise, no epsilon"),
        )
        return Plan(None, None, settings.rounds, None, None, rows)

    sigma, costs = parts.noise_schedule.noise_multiplier(0), parts.costs(records_per_client)
    first = parts.mechanism.group(costs.sampling, sigma, 0)
    allowed = None
    if settings.epsilon is not None:
        allowed = costs.rounds_allowed(sigma, settings.epsilon)
    # The budget or the key ``rounds``, whichever ends the run earlier.
    rounds = min((r for r in (allowed, settings.rounds) if r is not None), default=None)

    forecast, needed = costs.forecast(allowed, settings.epsilon), costs.epsilon(sigma, 1)
    if parts.unprotected and settings.budget_view == SOUND:
        # Something of every client is known without noise, so nothing that follows has a finite ε.
        forecast, needed = Forecast(math.inf, forecast.rounds), math.inf
    forecast = _of_the_worst_client(parts, forecast, allowed)

    unit = Plan.unit
    if parts.released_statistics is not None:
        unit = f"the release before the first round and {unit}"
    elif parts.mechanism.charged_at_once is not None:
        unit = "the whole run"

    cost_known = parts.shares_known or records_per_client is not None
    cost_rows: Iterable[Row] = (
        (
            "privacy cost",
            "depends on how many records a client has; known when the data has been read",
        ),
    )
    if cost_known:
        cost_rows = _cost_rows(
            parts, costs, allowed, forecast, f"epsilon {digits_up(needed)} is the cost of {unit}"
        )
    unspent = planned_words(parts, rounds, allowed) if cost_known else None
    short = uncalibrated_words(parts, allowed) if cost_known else None
    rows = (
        *_setup_rows(parts, rounds),
        *_privacy_rows(parts, first.upload.joint),
        *cost_rows,
        *([("unspent", unspent)] if unspent is not None else []),
        *([("too few rounds", short)] if short is not None else []),
        *_caveat_rows(parts, forecast.epsilon if cost_known else 0.0, rounds),
        *_delta_rows(parts, records_per_client),
    )
    remedy = ""
    if isinstance(parts.noise_schedule, LargerCohort):
        remedy = (
            "epsilon=null leaves the clients simulated without a budget, which their epsilon far exceeds: "
            "the noise is that of an imagined population"
        )
    elif not (
        parts.noise_schedule.spreads_budget or isinstance(parts.noise_schedule, CalibratedNoise)
    ):
        remedy = (
            "a larger noise_schedule.noise_multiplier costs less; noise_schedule=calibrated rounds=N finds "
            "the one that fits"
        )
    return Plan(
        first, allowed, rounds, forecast.epsilon, needed, rows, unit, forecast.bound, remedy
    )


def plan_of_smallest(parts: Parts, records_per_client: Iterable[int]) -> Plan:
    """Return the plan of the smallest client that can afford a round: a round costs this client most.

    If no client can afford one, this is the plan of the largest client.

    Args:
        parts: The parts of the run.
        records_per_client: Number of records of each client, of which at least one is positive.
    """
    for records in sorted({int(n) for n in records_per_client if n > 0}):
        plan = make_plan(parts, records)
        if plan.rounds_allowed != 0:
            break
    return plan


def _of_the_worst_client(parts: Parts, forecast: Forecast, allowed: int | None) -> Forecast:
    """Return the forecast of the client that spends most, where not all take part in every round.

    Sampled clients are in fewer rounds. Where clients with few records pay more, the other clients go on
    when the budget of the small ones is spent. All keep to the budget.
    """
    limit, asked_rounds = parts.settings.epsilon, parts.settings.rounds
    spends_all = asked_rounds is None or (allowed is not None and asked_rounds > allowed)
    if limit is not None and parts.algorithm.cost_depends_on_records and spends_all:
        return replace(forecast, epsilon=limit, bound=True)
    dropping = parts.algorithm.dropout > 0.0
    return replace(forecast, bound=forecast.bound or dropping or bool(_if_sampled(parts)))


# ---- rows on the data, the clients and the training


def _setup_rows(parts: Parts, rounds: int | None) -> Iterator[Row]:
    settings, algorithm, clients = parts.settings, parts.algorithm, parts.partition.clients
    yield "algorithm", f"{algorithm.name} on {parts.dataset.name}, seed {settings.seed}"
    if settings.publish:
        secrets = "lots, cohorts and noise from the operating system"
        yield "publish", f"{secrets} (seed: partition and initial weights only)"
    if settings.paired is not None:
        shared = (
            f"lots, cohorts and noise of every run with paired={settings.paired} and these seeds"
        )
        if algorithm.private:
            shared += "; their ε do not add up: together it is infinite"
        yield "paired", shared
    yield "clients", f"{clients or 'one per user'} (partition: {parts.partition.describe()})"
    for note in parts.dataset.notes:
        yield "data", note
    yield from algorithm.describe(clients, parts.even_share if clients else None)
    if algorithm.augmentation is not None:
        yield "augmentation", algorithm.augmentation.describe()
    if settings.averaging is not None:
        yield "evaluated", settings.averaging.describe()
    if settings.warm_start is not None:
        yield "warm start", settings.warm_start.describe()
    if parts.aggregation is not None:
        rule = parts.aggregation
        of = "of each client's upload" if rule.buckets is None else "of the noised means of buckets"
        cohort = algorithm.expected_cohort(clients)
        f = ""
        if isinstance(rule, RobustAggregation) and 0 < rule.tolerated < 1 and cohort is not None:
            uploads = max(1, round(cohort))
            f = f" ({rule.tolerated_of(uploads)} of {uploads})"
        yield "aggregation", f"{rule.describe()}{f}, {of}"
    yield from _adversary_rows(parts, rounds)
    if algorithm.search is not None:
        yield "search", algorithm.search.describe()
    yield "rounds asked for", str(settings.rounds or "until the budget is spent")


def _adversary_rows(parts: Parts, rounds: int | None) -> Iterator[Row]:
    """Yield the rows on simulated attackers and planted canaries; ``rounds``: those that are planned."""
    settings, attack = parts.settings, parts.attack
    if attack is not None:
        text = attack.describe()
        clients, algorithm = parts.partition.clients, parts.algorithm
        cohort = algorithm.expected_cohort(clients)
        attacked = None
        if rounds is not None and not is_own(attack):  # code of the user's own may count its calls
            attacked = float(sum(map(attack.attacks_in, range(rounds))))
        if clients and cohort is not None and cohort < clients and attack.participation == SAMPLED:
            taking_part = len(attack.attackers_among(clients)) * cohort / clients
            text += f"; about {taking_part:.2g} of them in a round" if taking_part else ""
            if attacked and taking_part and rounds is not None:
                attacked *= 1.0 - (1.0 - cohort / clients) ** len(attack.attackers_among(clients))
                text += f", so that about {attacked:.2g} of {counted(rounds, 'round')} are attacked"
        if attacked == 0.0 and rounds is not None:
            text += f"; no attack in {counted(rounds, 'round')}"
        yield "attack", text
        yield "attackers know", attack.describe_knowledge(parts.algorithm)
    if settings.canaries:
        kind = "mislabelled " if settings.canary == MISLABELLED else ""
        canaries = counted(settings.canaries, kind + parts.algorithm.unit)
        yield "canaries", f"{canaries} planted for audit=epsilon; they cost accuracy"


# ---- rows on privacy: who is protected, what is released, what it costs


def _privacy_rows(parts: Parts, joint: JointQuery) -> Iterator[Row]:
    """Yield the rows on the mechanism; ``joint``: the queries that one sample of records answers."""
    algorithm, schedule = parts.algorithm, parts.noise_schedule
    unit, trust = algorithm.unit, algorithm.trust
    sigma = schedule.noise_multiplier(0)
    changes = parts.adaptive or sigma != schedule.noise_multiplier(_FAR_ROUND)
    protected = (
        f"one {unit} ({unit} level, {RELATION_WORDS[joint.sampling.neighbours]}) against whoever sees "
        f"{trust.seen_of_a_client} ({trust.name} trust)"
    )
    if sigma == 0 and not changes:
        protected = "nobody: there is no noise"
    yield "protects", protected
    yield "clipping", parts.clipper.describe()

    later = " in the first round; the noise schedule sets the later ones" if changes else ""
    yield "noise", f"noise multiplier {sigma:g}{later}{_calibration_words(parts)}"
    if schedule.caveat is not None:
        yield "caveat", schedule.caveat.rstrip(".")
    if isinstance(schedule, LargerCohort) and (rounds := parts.settings.rounds) is not None:
        imagined = digits_up(schedule.imagined_epsilon(rounds), 3)
        more = f", more than its {schedule.epsilon:g}" if rounds > schedule.rounds else ""
        yield (
            "imagined",
            f"epsilon {imagined} of a client of that population after {counted(rounds, 'round')}{more}",
        )

    occasion = "lot" if unit == "record" else "report" if trust.sees_each_upload else "round"
    query_words = _query_words if parts.shares_known else attrgetter("name")
    yield f"released per {occasion}", ", ".join(map(query_words, joint.queries))

    if parts.unprotected:
        names = ", ".join(f"{name} (no noise)" for name in parts.unprotected)
        yield "already released", f"{names}, of every client: the sound epsilon is infinite"
    statistics, query = parts.released_statistics, parts.mechanism.before
    if statistics is not None and query is not None:
        yield (
            "released before",
            f"{_query_words(query)}, once, of every client: means and mean squares of the "
            f"{statistics.channels} channels of each record, L2 norm {statistics.clip_norm:g} at most",
        )
    yield "accountant", parts.accountant.describe()


def _calibration_words(parts: Parts) -> str:
    """Say for how many draws σ was solved, where some clients may make more draws than that."""
    schedule, cohort = parts.noise_schedule, parts.algorithm.clients_per_round
    if schedule.spreads_budget:
        clients = parts.partition.clients or math.inf
        if cohort is None or cohort >= clients or parts.settings.budget_view != SOUND:
            return ""
        return (
            ", for the average number of rounds of a client: one whose budget is spent takes no further "
            "part, so the last cohorts are smaller"
        )
    if not isinstance(schedule, CalibratedNoise) or schedule.epsilon_per_draw is not None:
        return ""
    if schedule.draws is None and cohort is None:
        return ""
    return (
        f", for {schedule.draws or 'the average number of'} draws of a client "
        "(noise_schedule.draws): one whose budget is spent takes no further part"
    )


def _query_words(query: Query | RandomizedBit) -> str:
    if isinstance(query, RandomizedBit):
        return f"{query.name} (randomized response, epsilon {query.epsilon:g} a bit)"
    if not isinstance(query, GaussianQuery):
        return query.describe_in_full()
    noise = f"noise multiplier {query.noise_multiplier:g}" if query.noise_multiplier else "no noise"
    return f"{query.name} ({noise})"


def _cost_rows(
    parts: Parts, costs: Costs, allowed: int | None, forecast: Forecast, too_much: str
) -> Iterator[Row]:
    """Yield the rows on the budget and on ε; ``too_much``: why the budget allows no round."""
    settings, sigma, epsilon = (
        parts.settings,
        parts.noise_schedule.noise_multiplier(0),
        forecast.epsilon,
    )
    rounds, at_most = counted(forecast.rounds, "round"), "at most " if forecast.bound else ""
    for_whom = _if_sampled(parts) + _if_unequal(parts, costs)
    if settings.epsilon is None:
        cost = f"have no finite epsilon{for_whom}"
        if math.isfinite(epsilon):
            cost = f"would cost {at_most}epsilon {digits_up(epsilon)}{for_whom}"
        elif parts.adaptive and math.isfinite(at_first := costs.epsilon(sigma, forecast.rounds)):
            cost = f"would cost epsilon {digits_up(at_first)} at the first noise multiplier{for_whom}, "
            cost += "and more as it falls"
        if forecast.by_rdp:
            cost += f" (by RDP: {parts.accountant.name} takes long where the noise moves)"
        yield "budget", f"none; {rounds} {cost}"
        return

    analysis = "sound analysis" if settings.sound else "analysis of the paper"
    yield (
        "budget",
        f"epsilon {settings.epsilon:g} at delta {settings.delta:g}, by the {analysis} "
        f"(budget_view={settings.budget_view})",
    )
    if allowed == 0:
        yield "rounds allowed", f"0: {too_much}; a run would be refused"
    else:
        yield (
            "rounds allowed",
            f"{allowed} at noise multiplier {sigma:g}{for_whom.partition(';')[0]}",
        )
        final = f"{at_most}{round_up(epsilon, 6)} after {rounds}{for_whom}"
        if epsilon == settings.epsilon and forecast.bound:  # after however many rounds there are
            final = f"at most {epsilon:g}, the budget{for_whom}"
        yield "epsilon at the end", final
    if parts.adaptive and settings.sound:
        yield (
            "guarantee",
            f"epsilon {settings.epsilon:g}, the whole budget, however early the run ends: the noise "
            "multiplier follows released values, so a privacy filter guards the budget",
        )


def _if_sampled(parts: Parts) -> str:
    """Say whose ε it is when only some clients take part in a round."""
    cohort, clients = parts.algorithm.clients_per_round, parts.partition.clients
    if cohort is None or (clients is not None and cohort >= clients):
        return ""
    if parts.algorithm.trust.secret_cohort:  # everyone pays for every round
        return ""
    often = "" if clients is None else f"; on average it is in {cohort / clients:.0%} of them"
    return f" for a client in every one of them{often}"


def _if_unequal(parts: Parts, costs: Costs) -> str:
    """Say whose ε it is where ε depends on how many records a client has."""
    if not parts.algorithm.cost_depends_on_records:
        return ""
    records = parts.even_share
    if isinstance(
        costs.sampling, FixedSizeSampling
    ):  # once the data are known: of the smallest client
        records = costs.sampling.records
    return f" for a client of {counted(records, 'record')}; one of another size may spend another epsilon"


def _delta_rows(parts: Parts, records_per_client: int | None) -> Iterator[Row]:
    """Yield a warning of a δ that is not below 1/n, or 1/K at client level."""
    units, name = parts.partition.clients, "K clients"
    if parts.algorithm.unit == "record":
        share = parts.even_share if parts.partition.clients or parts.partition.records else None
        units, name = records_per_client or share, "n records of a client"
    if units is not None and parts.settings.delta * units >= 1:
        yield (
            "caveat",
            f"delta is not below 1/{name[0]}: delta {parts.settings.delta:g} for {units} {name[2:]} would "
            "allow a mechanism that publishes one of them outright; choose a smaller delta",
        )


def _caveat_rows(parts: Parts, epsilon: float, rounds: int | None) -> Iterator[Row]:
    """Yield notes on what is not as in the paper, and on numbers that protect next to nothing."""
    for sentence in parts.replaced:
        yield "caveat", sentence.rstrip(".")
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
    if parts.settings.sound and VACUOUS_EPSILON < epsilon < math.inf:
        yield (
            "caveat",
            f"sound epsilon {digits_up(epsilon)} is above {VACUOUS_EPSILON:g}: a vacuous bound on membership "
            "inference",
        )
