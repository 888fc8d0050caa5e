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
from fedpriv.experiment.costs import Costs, Forecast
from fedpriv.experiment.parts import Parts
from fedpriv.models.base import model_name
from fedpriv.privacy.core.names import RELATION_WORDS, SOUND
from fedpriv.privacy.core.sampling import FixedSizeSampling
from fedpriv.privacy.larger_cohort import LargerCohort
from fedpriv.privacy.mechanisms import GaussianQuery, Group, JointQuery, Query, RandomizedBit
from fedpriv.privacy.noise_schedules import CalibratedNoise
from fedpriv.store.caveats import CAVEATS
from fedpriv.store.statement import first_clause

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
        lines: Rows of the table on the screen, without that of the caveats.
        caveats: What a reader of the plan must know, a sentence each.
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
    caveats: tuple[str, ...] = ()
    unit: str = "a single round"
    bound: bool = False
    remedy: str = ""

    def rows(self, more: Iterable[Row] = (), caveats: Iterable[str] = ()) -> list[Row]:
        """Return the rows of the table on the screen, at most 14 of them.

        Args:
            more: Rows that only a run has, on its data and its folder.
            caveats: Caveats that only a run has. The table has the first clause of each.
        """
        words = "\n".join(dict.fromkeys(map(first_clause, (*self.caveats, *caveats))))
        return [*self.lines, *([("caveats", words)] if words else []), *more]

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
            *_setup_rows(parts),
            ("privacy", "none: no clipping, no noise, no epsilon"),
            ("rounds", str(settings.rounds)),
            *_adversary_rows(parts, settings.rounds),
        )
        caveats = tuple(_caveats(parts, 0.0, settings.rounds, records_per_client))
        return Plan(None, None, settings.rounds, None, None, rows, caveats)

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
    if parts.earlier:
        unit = f"the run behind model.weights and {unit}"
    elif parts.released_statistics is not None:
        unit = f"the release before the first round and {unit}"
    elif parts.mechanism.charged_at_once is not None:
        unit = "the whole run"

    cost_known = parts.shares_known or records_per_client is not None
    cost_rows: Iterable[Row] = (
        ("rounds", str(settings.rounds or "until the budget is spent")),
        ("epsilon", "depends on how many records a client has; known when the data has been read"),
    )
    if cost_known:
        cost_rows = _cost_rows(
            parts, costs, allowed, forecast, f"epsilon {digits_up(needed)} is the cost of {unit}"
        )
    rows = (
        *_setup_rows(parts),
        *_privacy_rows(parts, first.upload.joint),
        *cost_rows,
        *_adversary_rows(parts, rounds),
    )
    told = forecast.epsilon if cost_known else 0.0
    caveats = tuple(_caveats(parts, told, rounds, records_per_client))
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
        first,
        allowed,
        rounds,
        forecast.epsilon,
        needed,
        rows,
        caveats,
        unit,
        forecast.bound,
        remedy,
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


def _setup_rows(parts: Parts) -> Iterator[Row]:
    settings, algorithm, clients = parts.settings, parts.algorithm, parts.partition.clients
    model = f"{algorithm.name} with {model_name(parts.model)} on {parts.dataset.name}"
    seed = f"seed {settings.seed}"
    if settings.publish:
        seed += (
            " of partition and initial weights; lots, cohorts and noise from the operating system"
        )
    if settings.paired is not None:
        seed += f"; lots, cohorts and noise of every run with paired={settings.paired}"
    yield "training", "; ".join((f"{model}, {seed}", *parts.dataset.notes))
    holder = getattr(parts.dataset.without_features(), "client", None) or "user"
    yield "clients", f"{clients or f'one per {holder}'} (partition: {parts.partition.describe()})"
    details = [*algorithm.describe(clients, parts.even_share if clients else None)]
    if algorithm.augmentation is not None:
        details.append(("augmentation", algorithm.augmentation.describe()))
    if settings.averaging is not None:
        details.append(("evaluated", settings.averaging.describe()))
    if parts.model.starting_point is not None:
        details.append(("starting point", parts.model.starting_point.describe()))
    if settings.warm_start is not None:
        details.append(("warm start", settings.warm_start.describe()))
    if algorithm.search is not None:
        details.append(("search", algorithm.search.describe()))
    words = (text if name == "each round" else f"{name}: {text}" for name, text in details)
    yield "each round", "; ".join(words)


def _adversary_rows(parts: Parts, rounds: int | None) -> Iterator[Row]:
    """Yield the rows on the rule of the server and on attackers; ``rounds``: those that are planned."""
    attack, rule, clients = parts.attack, parts.aggregation, parts.partition.clients
    cohort = parts.algorithm.expected_cohort(clients)
    if rule is not None:
        of = "of each client's upload" if rule.buckets is None else "of the noised means of buckets"
        f = ""
        if isinstance(rule, RobustAggregation) and 0 < rule.tolerated < 1 and cohort is not None:
            uploads = max(1, round(cohort))
            f = f" ({rule.tolerated_of(uploads)} of {uploads})"
        yield "aggregation", f"{rule.describe()}{f}, {of}"
    if attack is None:
        return
    text = attack.describe()
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
    yield "attack", f"{text}; attackers know {attack.describe_knowledge(parts.algorithm)}"


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

    noise = f"noise multiplier {sigma:g}"
    if changes:
        noise += " in the first round; the noise schedule sets the later ones"
    if isinstance(schedule, LargerCohort) and (rounds := parts.settings.rounds) is not None:
        imagined = digits_up(schedule.imagined_epsilon(rounds), 3)
        noise += (
            f"; epsilon {imagined} of a client of the imagined population after {rounds} rounds"
        )
    yield "noise", noise

    occasion = "lot" if unit == "record" else "report" if trust.sees_each_upload else "round"
    query_words = _query_words if parts.shares_known else attrgetter("name")
    released = ", ".join(map(query_words, joint.queries))
    if parts.unprotected:
        names = ", ".join(parts.unprotected)
        released += f"; without noise, of every client: {names}, so the sound epsilon is infinite"
    statistics, query = parts.released_statistics, parts.mechanism.before
    if statistics is not None and query is not None:
        released += (
            f"; before the first round {_query_words(query)}: means and mean squares of the "
            f"{statistics.channels} channels of each record, L2 norm {statistics.clip_norm:g} at most"
        )
    yield f"released per {occasion}", released


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
    """Yield the rows on the rounds and on ε; ``too_much``: why the budget allows no round."""
    settings, sigma, epsilon = (
        parts.settings,
        parts.noise_schedule.noise_multiplier(0),
        forecast.epsilon,
    )
    asked = str(settings.rounds or "until the budget is spent")
    rounds, at_most = counted(forecast.rounds, "round"), "at most " if forecast.bound else ""
    for_whom = _if_sampled(parts) + _if_unequal(parts, costs)
    by = f"at delta {settings.delta:g}, by accountant {parts.accountant.name}"
    if settings.epsilon is None:
        cost = f"no finite epsilon{for_whom}"
        if math.isfinite(epsilon):
            cost = f"{at_most}{digits_up(epsilon)} after {rounds}{for_whom}"
        elif parts.adaptive and math.isfinite(at_first := costs.epsilon(sigma, forecast.rounds)):
            cost = f"{digits_up(at_first)} after {rounds} at the first noise multiplier{for_whom}, and more "
            cost += "as it falls"
        if forecast.by_rdp:
            cost += f" (by RDP: {parts.accountant.name} takes long where the noise moves)"
        yield "rounds", f"{asked}, no budget"
        yield "epsilon", f"{cost}, {by}"
        return

    allows = f"the budget allows {allowed} at noise multiplier {sigma:g}"
    if allowed == 0:
        allows = f"the budget allows 0: {too_much}; a run would be refused"
    yield "rounds", f"{asked} ({allows}{for_whom.partition(';')[0]})"
    final = f"{at_most}{round_up(epsilon, 6)} after {rounds}{for_whom}"
    if epsilon == settings.epsilon and forecast.bound:  # after however many rounds there are
        final = f"at most {epsilon:g}, the budget{for_whom}"
    if parts.adaptive and settings.sound:
        final += (
            ", all of which counts however early the run ends, as the noise follows released values"
        )
    if allowed == 0:
        final = f"more than {settings.epsilon:g}"
    yield (
        "epsilon",
        f"enforced: {final}; budget {settings.epsilon:g} {by} (budget_view={settings.budget_view})",
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


def _caveats(
    parts: Parts, epsilon: float, rounds: int | None, records_per_client: int | None
) -> Iterator[str]:
    """Yield what is not as in the paper, and what is told of numbers that protect next to nothing."""
    settings, clients = parts.settings, parts.partition.clients
    yield from parts.replaced
    if settings.canaries:
        yield CAVEATS["canaries"]
    averaging = settings.averaging
    if averaging is not None and rounds is not None and averaging.start >= rounds:
        yield f"averaging_start={averaging.start} is never reached, so the last model is evaluated"
    if not parts.algorithm.private:
        return
    if parts.noise_schedule.caveat is not None:
        yield parts.noise_schedule.caveat
    if settings.paired is not None:
        yield CAVEATS["paired"]
    cohort = parts.algorithm.expected_cohort(clients)
    if cohort is not None and cohort <= 1:
        yield f"an expected cohort of {cohort:.2g} client averages no noise over clients"
    if settings.sound and VACUOUS_EPSILON < epsilon < math.inf:
        yield (
            f"sound epsilon {digits_up(epsilon)} is above {VACUOUS_EPSILON:g}, a vacuous bound on membership "
            "inference"
        )
    units, name = clients, "delta_of_clients"
    if parts.algorithm.unit == "record":
        share = parts.even_share if clients or parts.partition.records else None
        units, name = records_per_client or share, "delta"
    if units is not None and settings.delta * units >= 1:
        yield CAVEATS[name]
