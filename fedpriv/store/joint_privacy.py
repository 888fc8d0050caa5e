"""Joint ε of several runs on the same people: what a study cost, all its jobs together.

The releases of all runs compose, whichever run a paper reports, and whether a run ended or not: its ledger
has each round before the round releases anything. Under Rényi differential privacy (RDP) a run costs, at each
order, what its most expensive client costs there. Runs add up order by order, and the sum is converted once.
It bounds every client, however the runs divide the records among clients.

Where RDP does not apply (σ adapts to what was released, RDP does not cover the noise, or the runs have
different adjacencies), a run counts as a whole with its sound ε and δ, and these add up (basic composition).
Both hold for runs that were chosen before any of their results were seen. A hyper-parameter search has a
filter instead (``hydra/sweeper=search``), and counts as one run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from dp_accounting.dp_event import DpEvent, NonPrivateDpEvent

from fedpriv.common.checks import is_number
from fedpriv.common.errors import ConfigError
from fedpriv.common.groups import TARGET, stated_option
from fedpriv.common.words import counted, digits_up, round_up, span
from fedpriv.privacy.accountants import RdpAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE, RELATION_WORDS, REPLACE_ONE, SOUND, ZERO_OUT
from fedpriv.privacy.core.rdp import epsilon_from_rdp, rdp_of_composition
from fedpriv.privacy.sound import tightest
from fedpriv.store.ledger_file import StoredLedger
from fedpriv.store.saved import saved_json
from fedpriv.store.searches import RECORD, is_search
from fedpriv.store.stored_run import StoredRun

_PAIRED = "paired"
_HUGE = 1e6
_COMPARED = (
    "epsilon", "delta", "algorithm", "dataset", "partition", "attack", "aggregation", "accountant",
    "budget_view", "seed", "noise_seed", _PAIRED,
    "noise_schedule.epsilon", "noise_schedule.epsilon_per_draw",
)  # fmt: skip
"""Keys, and beginnings of keys, that a study compares rather than tunes."""
_SAME_WRITERS = ("mnist", "emnist", "femnist")
OWN, NO_PRIVACY, SHADOW = "data of one's own", "without privacy", "of the shadow runs of audits"


@dataclass(frozen=True)
class RunCost:
    """Privacy cost of one run, stored or planned, as far as its composition with others needs it.

    Attributes:
        dataset: Name of the data set, see :func:`population`.
        view: Unit and adjacency of the sound view; None for a run that is not composed.
        left_out: Why such a run is not composed: ``NO_PRIVACY`` or ``SHADOW``.
        problem: Why the cost is not known; then there is no joint ε.
        epsilon: Sound ε.
        delta: δ of the sound ε.
        paired: True where the run shares its noise with others.
        bound: True where a planned run may cost less.
        ended: False for a run that did not end.
        planned: ε of the whole plan of such a run; None where it is not known.
        public: Number of records that are public in the run.
        declared: Classes of the user's own that state what the run releases.
        rdp: Returns the RDP of the most expensive client at each order of an accountant, or None where RDP
            does not apply.
    """

    dataset: str
    view: tuple[str, str] | None
    left_out: str = NO_PRIVACY
    problem: str = ""
    epsilon: float = 0.0
    delta: float = 0.0
    paired: bool = False
    bound: bool = False
    ended: bool = True
    planned: float | None = None
    public: int = 0
    declared: tuple[str, ...] = ()
    rdp: Callable[[RdpAccountant], np.ndarray | None] = lambda accountant: None


@dataclass(frozen=True)
class JointPrivacy:
    """Joint ε of the private runs on one data set, for one unit.

    Attributes:
        dataset: Name of the data set.
        unit: Unit of privacy, ``record`` or ``client``.
        neighbours: Name of the adjacency.
        runs: The runs that were composed.
        epsilon: Joint ε; infinite where nothing finite holds; nan where a run cannot be read.
        delta: δ of the joint ε.
        how: How the runs were composed, or why the joint ε is infinite or not known.
        not_included: Number of runs on the same data that were not composed, by their kind.
    """

    dataset: str
    unit: str
    neighbours: str
    runs: Sequence[RunCost]
    epsilon: float
    delta: float
    how: str
    not_included: Mapping[str, int] = field(default_factory=dict)

    def sentences(self) -> list[str]:
        """Return the sentences to state beside a table of the runs."""
        if math.isnan(self.epsilon):
            return [f"The joint ε of the runs on {self.dataset} is not known: {self.how}."]
        number, every = len(self.runs), "" if self.not_included else "all "
        runs = "the private run" if number == 1 else f"{every}{number} private runs together"
        # Digits of an ε that protects nobody would suggest a precision that means nothing.
        vast = _HUGE <= self.epsilon < math.inf
        shown = digits_up(self.epsilon, 2) if vast else round_up(self.epsilon)
        bound = any(run.bound for run in self.runs) and math.isfinite(self.epsilon)
        said = [
            f"Joint ε of {runs} on {self.dataset}: {'at most ' if bound else ''}{shown} "
            f"at δ = {self.delta:g} (one {self.unit}, {RELATION_WORDS[self.neighbours]}; {self.how})."
        ]
        if number > 1 and math.isfinite(self.epsilon):
            public = max(run.public for run in self.runs)
            said += [
                f"It holds for a {self.unit} that all these runs protect"
                + (f"; at least {public:,} records are public in one of them." if public else "."),
                "This assumes that neither which runs were made nor when they stopped followed from their "
                "results.",
            ]
        if declared := dict.fromkeys(name for run in self.runs for name in run.declared):
            said.append(
                f"It is as declared by {' and '.join(declared)}: nothing proves the events that code of "
                "the user's own states."
            )
        if unfinished := [run.planned for run in self.runs if not run.ended]:
            plans = [epsilon for epsilon in unfinished if epsilon is not None]
            whole = span(round_up(min(plans)), round_up(max(plans))) if plans else "not known"
            said.append(
                f"{counted(len(unfinished), 'run')} did not end and counts with the releases so far; the ε "
                f"of its whole plan is {whole}."
                if len(unfinished) == 1
                else f"{len(unfinished)} runs did not end and count with the releases so far; the ε of each "
                f"whole plan is {whole}."
            )
        for kind, number in self.not_included.items():
            reveals = "; nothing bounds what such a run reveals" if kind == NO_PRIVACY else ""
            said.append(
                f"Not included: {counted(number, 'run')} {kind} on {self.dataset}{reveals}."
            )
        return said


def joint_privacy(runs: Iterable[StoredRun]) -> list[JointPrivacy]:
    """Return the joint ε of runs, finished or not, for each data set and unit.

    Runs with the same streams, which are of one configuration on the same data, count once, and so do all
    trials of a search. Code of the user's own may read what no stream depends on, so such runs share their
    noise unless they released the same.

    Args:
        runs: Stored runs.
    """
    costs: dict[object, RunCost] = {}
    released: dict[object, bytes] = {}
    for path, run in {run.path.resolve(): run for run in runs}.items():
        key: object = path
        cost: RunCost | None = RunCost("", None)
        try:
            cost = RunCost(population(run.values), None)
            if is_search(path.parent):
                key, cost = path.parent, _search_cost(run)
            else:
                cost = stored_cost(run)
                streams = (run.environment.get("guarantee") or {}).get("streams")
                if cost is not None and cost.view is not None and streams:
                    key = streams
                    if (ended := _released_by_own_code(run)) != released.setdefault(key, ended):
                        key, cost = path, replace(cost, paired=True)
        except ConfigError as error:
            assert cost is not None
            key, cost = path, replace(cost, problem=str(error))
        if cost is not None and (key not in costs or costs[key].epsilon < cost.epsilon):
            costs[key] = cost
    return compose_runs(costs.values())


def _released_by_own_code(run: StoredRun) -> bytes:
    """Return the model of a run with code of the user's own, or else its ledger; nothing for another run."""
    targets = {str(value) for key, value in run.values.items() if key.endswith(TARGET)}
    if all(target.startswith("fedpriv.") for target in targets):
        return b""
    return (run.files.model if run.files.model.exists() else run.files.ledger).read_bytes()


def population(values: Mapping[str, object]) -> str:
    """Return the name of a data set: runs with the same name are about the same people.

    Args:
        values: The configuration by dotted key.
    """
    if declared := values.get("dataset.population"):
        return f"the population {declared}"
    name = stated_option(values, "dataset")
    if name in (None, "csv"):
        return OWN
    return ", ".join(_SAME_WRITERS) if name in _SAME_WRITERS else str(name)


def _noted(run: StoredRun) -> Mapping[str, Any] | None:
    """Return the facts of a run's statement, or those noted at its start; None without privacy.

    Raises:
        ConfigError: The run notes nothing.
    """
    begun, statement = run.environment.get("guarantee", {}), run.statement
    if begun is None or statement.get("private") is False:
        return None
    views = statement.get("views")
    noted = {**begun, **statement, **(views.get(SOUND) or {} if isinstance(views, dict) else {})}
    if noted.get("neighbours") not in RELATION_WORDS or not is_number(noted.get("delta")):
        raise ConfigError(f"{run.path} does not say what it protects")
    return noted


def stored_cost(run: StoredRun) -> RunCost | None:
    """Return the cost of a run; None if it released nothing."""
    dataset, values = population(run.values), run.values
    if values.get("shadow.half") is not None:
        return RunCost(dataset, None, SHADOW)
    if not run.statement and not run.files.ledger.exists() and not run.last_round:
        return None
    noted = _noted(run)
    if noted is None:
        return RunCost(dataset, None)
    if len(run.ledger_rows) == 1:  # the names of the columns
        return None
    ledger, delta, adapts = run.ledger(SOUND), float(noted["delta"]), bool(noted["noise_adapts"])
    planned = noted.get("epsilon_planned")
    if any(NonPrivateDpEvent() in counts for counts in ledger.of_client.values()):
        epsilon: object = math.inf
    elif run.finished:
        epsilon = noted.get("epsilon_sound")
    elif adapts:  # the budget of a filter holds however early the run ends
        guarded = values.get("epsilon") is not None and values.get("budget_view") == SOUND
        epsilon = planned if guarded else math.inf
    else:
        epsilon = _sound(ledger, delta)
    return RunCost(
        dataset,
        (str(noted["unit"]), ledger.neighbours),
        epsilon=float(epsilon) if is_number(epsilon) else math.inf,
        delta=delta,
        paired=values.get(_PAIRED) is not None,
        ended=run.finished,
        planned=float(planned) if is_number(planned) else None,
        public=int(noted.get("public_records") or run.summary.get("test_records") or 0),
        declared=tuple(noted.get("declared_by") or ()),
        rdp=lambda accountant: None if adapts else _cost(ledger, accountant),
    )


def _search_cost(run: StoredRun) -> RunCost | None:
    """Return the cost of the whole search that a run is a trial of."""
    dataset, noted = population(run.values), _noted(run)
    if noted is None:
        return RunCost(dataset, None)
    facts = saved_json(run.path.parent / RECORD)
    epsilon, delta = facts.get("epsilon"), facts.get("delta")
    return RunCost(
        dataset,
        (str(noted["unit"]), str(noted["neighbours"])),
        epsilon=float(epsilon) if is_number(epsilon) else math.inf,
        delta=float(delta) if is_number(delta) else 1.0,
        public=int(noted.get("public_records") or 0),
    )


def compose_runs(costs: Iterable[RunCost]) -> list[JointPrivacy]:
    """Return the joint ε of runs, for each data set and unit.

    Args:
        costs: The cost of each run, each run once.
    """
    costs = list(costs)
    composed: dict[tuple[str, str], list[RunCost]] = {}
    for cost in costs:
        if cost.view is not None:
            composed.setdefault((cost.dataset, cost.view[0]), []).append(cost)
        elif cost.problem and not any(cost.dataset in ("", dataset) for dataset, _ in composed):
            composed[cost.dataset or "the same data", ""] = []
    joints = []
    for (dataset, unit), runs in composed.items():
        here = [cost for cost in costs if cost.dataset in (dataset, "")]
        if problem := next((cost.problem for cost in here if cost.problem), ""):
            joints.append(JointPrivacy(dataset, unit, "", runs, math.nan, math.nan, problem))
            continue
        others = Counter(
            cost.left_out if cost.view is None else f"with another unit ({cost.view[0]})"
            for cost in here
            if cost.view is None or cost.view[0] != unit
        )
        joints.append(replace(_joint(dataset, unit, runs), not_included=others))
    return joints


def _joint(dataset: str, unit: str, runs: Sequence[RunCost]) -> JointPrivacy:
    # What holds under add/remove holds for contributions of zeros, too. To replace is to remove and to add.
    relations = {run.view[1] for run in runs if run.view is not None}
    neighbours = next(r for r in (REPLACE_ONE, ZERO_OUT, ADD_OR_REMOVE) if r in relations)

    def stated(epsilon: float, delta: float, how: str) -> JointPrivacy:
        return JointPrivacy(dataset, unit, neighbours, runs, epsilon, delta, how)

    delta = min(run.delta for run in runs)
    if any(math.isinf(run.epsilon) for run in runs):
        return stated(math.inf, delta, "the sound ε of one of the runs is infinite")
    if len(runs) == 1:
        return stated(runs[0].epsilon, delta, "its sound ε")
    if any(run.paired for run in runs):
        return stated(math.inf, delta, "runs that share their noise do not compose")
    accountant = RdpAccountant()
    total = np.zeros(len(accountant.orders))
    composed, epsilon, delta_of_whole = 0, 0.0, 0.0
    for run in runs:
        replaced = neighbours == REPLACE_ONE and run.view != (unit, REPLACE_ONE)
        cost = None if replaced else run.rdp(accountant)
        if cost is not None:
            total, composed = total + cost, composed + 1
        else:
            epsilon += (1 + replaced) * run.epsilon
            delta_of_whole += run.delta * (1 + replaced * math.exp(min(run.epsilon, 700.0)))
    if composed:
        orders = np.asarray(accountant.orders)
        epsilon += float(epsilon_from_rdp(total, orders, delta, accountant.conversion)[0])
        delta_of_whole += delta
    whole = len(runs) - composed
    how = "RDP composition of their releases" if composed else ""
    if whole:
        of = f" of {counted(whole, 'run')} as a whole" if composed else ""
        how = " and ".join(filter(None, (how, f"basic composition{of}")))
    if delta_of_whole >= 1:
        return stated(math.inf, delta, f"δ adds up to {delta_of_whole:g} in {how}")
    return stated(epsilon, delta_of_whole, how)


def _sound(ledger: StoredLedger, delta: float) -> float:
    """Return the sound ε of the most expensive client of a run that did not end."""
    worst = 0.0
    for history in map(dict, filter(None, ledger.histories)):
        accountants = [tightest(event, ledger.neighbours) for event in history]
        able = [
            accountant
            for accountant in accountants
            if not any(accountant.supports(event, ledger.neighbours) for event in history)
        ]
        if not able:
            return math.inf
        worst = max(worst, able[0].epsilon_of(history, delta, ledger.neighbours))
    return worst


def _cost(ledger: StoredLedger, accountant: RdpAccountant) -> np.ndarray | None:
    """Return the RDP of a run's most expensive client at each order; None where RDP does not apply."""
    costs = [
        rdp_of_events(dict(history), accountant, ledger.neighbours) for history in ledger.histories
    ]
    known = [cost for cost in costs if cost is not None]
    return np.max(known, axis=0) if known and len(known) == len(costs) else None


def rdp_of_events(
    events: Mapping[DpEvent, int], accountant: RdpAccountant, neighbours: str
) -> np.ndarray | None:
    """Return the RDP of a composition at each order of an accountant; None where RDP does not apply."""
    if any(accountant.supports(event, neighbours) for event in events):
        return None
    return rdp_of_composition(events, accountant.orders, neighbours)


def choice_warning(keys: Iterable[str], metrics: Iterable[str]) -> str:
    """Return a warning for a study whose best value would be chosen on test records; empty without one.

    Args:
        keys: Keys in which the runs of the study differ.
        metrics: Columns by which they are compared.
    """
    on_test = [m for m in metrics if m.startswith(("test_", "best_test_", "backdoor_"))]
    tuned = [
        key
        for key in keys
        if not key.startswith("runtime.")
        and key not in _COMPARED
        and key.partition(".")[0] not in ("dataset", "partition", "attack", "aggregation")
    ]
    if not on_test or not tuned:
        return ""
    return (
        f"Warning: a best {' or '.join(tuned)} read off here was chosen on the test records: its "
        f"{on_test[0].replace('_', ' ')} is optimistic, and the choice costs privacy that no ε here "
        "counts unless the test records are public. hydra/sweeper=search chooses within one budget."
    )
