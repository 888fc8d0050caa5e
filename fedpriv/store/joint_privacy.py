"""Joint ε of several runs on the same data: what a study cost, all its jobs together.

The releases of all runs compose, whichever run a paper reports. Under Rényi differential privacy (RDP) a run
costs, at each order, what its most expensive client costs there. Runs add up order by order, and the sum is
converted once. It bounds every client, however the runs divide the records among clients.

Where RDP does not apply (σ adapts to what was released, or RDP does not cover the noise), a run counts as a
whole with its sound ε and δ, and these add up (basic composition). Both hold for runs that were chosen before
any of their results were seen. A hyper-parameter search has a filter instead (``hydra/sweeper=search``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from dp_accounting.dp_event import DpEvent

from fedpriv.common.checks import is_number
from fedpriv.common.errors import ConfigError
from fedpriv.common.groups import option_of_target
from fedpriv.common.words import counted, digits_up, round_up
from fedpriv.privacy.accountants import RdpAccountant
from fedpriv.privacy.core.names import RELATION_WORDS, SOUND
from fedpriv.privacy.core.rdp import epsilon_from_rdp, rdp_of_composition
from fedpriv.store.stored_run import StoredRun

_PAIRED = "paired"
_HUGE = 1e6
_COMPARED = (
    "epsilon", "delta", "algorithm", "dataset", "partition", "attack", "aggregation", "accountant",
    "budget_view", "seed", "noise_seed", _PAIRED,
    "noise_schedule.epsilon", "noise_schedule.epsilon_per_draw",
)  # fmt: skip
"""Keys, and beginnings of keys, that a study compares rather than tunes."""


@dataclass(frozen=True)
class RunCost:
    """Privacy cost of one run, stored or planned, as far as its composition with others needs it.

    Attributes:
        dataset: Name of the data set.
        view: Unit and adjacency of the sound view; None for a run without privacy.
        epsilon: Sound ε.
        delta: δ of the sound ε.
        paired: True where the run shares its noise with others.
        bound: True where a planned run may cost less.
        rdp: Returns the RDP of the most expensive client at each order of an accountant, or None where RDP
            does not apply.
    """

    dataset: str
    view: tuple[str, str] | None
    epsilon: float = 0.0
    delta: float = 0.0
    paired: bool = False
    bound: bool = False
    rdp: Callable[[RdpAccountant], np.ndarray | None] = lambda accountant: None


@dataclass(frozen=True)
class JointPrivacy:
    """Joint ε of the private runs on one data set, for one unit and one adjacency.

    Attributes:
        dataset: Name of the data set.
        unit: Unit of privacy, ``record`` or ``client``.
        neighbours: Name of the adjacency.
        runs: Number of private runs that were composed.
        epsilon: Joint ε; infinite where nothing finite holds.
        delta: δ of the joint ε.
        how: How the runs were composed, or why the joint ε is infinite.
        without_privacy: Number of finished runs on the same data that have no privacy.
        others: Number of private runs on the same data with another unit or adjacency.
        bound: True where ε is an upper bound, as some of the runs are only planned and may cost less.
    """

    dataset: str
    unit: str
    neighbours: str
    runs: int
    epsilon: float
    delta: float
    how: str
    without_privacy: int = 0
    others: int = 0
    bound: bool = False

    def sentences(self) -> list[str]:
        """Return the sentences to state beside a table of the runs."""
        runs = "the private run" if self.runs == 1 else f"all {self.runs} private runs together"
        # Digits of an ε that protects nobody would suggest a precision that means nothing.
        vast = _HUGE <= self.epsilon < math.inf
        shown = digits_up(self.epsilon, 2) if vast else round_up(self.epsilon)
        most = "at most " if self.bound and math.isfinite(self.epsilon) else ""
        alike = f" that protect a {self.unit}" if self.others else ""
        said = [
            f"Joint ε of {runs} on {self.dataset}{alike}: {most}{shown} "
            f"at δ = {self.delta:g} (one {self.unit}, {RELATION_WORDS[self.neighbours]}; {self.how})."
        ]
        if self.runs > 1 and math.isfinite(self.epsilon):
            said.append("This assumes that no run was chosen by looking at the result of another.")
        if self.others:
            said.append(
                f"Not part of it: {counted(self.others, 'run')} with another unit or adjacency on "
                f"{self.dataset}, whose ε comes on top."
            )
        if self.without_privacy:
            number = counted(self.without_privacy, "run")
            said.append(
                f"Not part of it: {number} without privacy on {self.dataset}; nothing bounds what "
                "such a run reveals."
            )
        return said


def joint_privacy(runs: Iterable[StoredRun]) -> list[JointPrivacy]:
    """Return the joint ε of finished runs, for each data set, unit and adjacency.

    Args:
        runs: Stored runs. Runs that have not ended, and equal runs beyond the first, are left out.

    Raises:
        ConfigError: A file of a run cannot be read.
    """
    finished = {run.path.resolve(): run for run in runs if run.finished}
    return compose_runs(map(_stored_cost, finished.values()))


def dataset_name(target: object) -> str:
    """Return the name under which runs on a data set are composed, from its ``_target_``."""
    return option_of_target("dataset", target) or "other data"


def _stored_cost(run: StoredRun) -> RunCost:
    """Return the cost of a finished run."""
    dataset, statement = dataset_name(run.values.get("dataset._target_")), run.statement
    view = _sound_view(statement)
    if not statement.get("private") or view is None:
        return RunCost(dataset, None)
    stated = statement.get("epsilon_sound")
    return RunCost(
        dataset,
        view,
        epsilon=float(stated) if is_number(stated) else math.inf,
        delta=float(statement["delta"]),
        paired=run.values.get(_PAIRED) is not None,
        rdp=lambda accountant: (
            None if statement.get("noise_adapts") else _cost(run, accountant, view[1])
        ),
    )


def compose_runs(costs: Iterable[RunCost]) -> list[JointPrivacy]:
    """Return the joint ε of runs, for each data set, unit and adjacency.

    Args:
        costs: The cost of each run, each run once.
    """
    private: dict[tuple[str, str, str], list[RunCost]] = {}
    without: Counter[str] = Counter()
    for cost in costs:
        if cost.view is None:
            without[cost.dataset] += 1
        else:
            private.setdefault((cost.dataset, *cost.view), []).append(cost)
    joint = [_joint(*key, same, without[key[0]]) for key, same in private.items()]
    on = Counter[str]()
    for one in joint:
        on[one.dataset] += one.runs
    return [replace(one, others=on[one.dataset] - one.runs) for one in joint]


def _sound_view(statement: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return unit and adjacency of the sound view of a statement."""
    views = statement.get("views")
    sound = views.get(SOUND) if isinstance(views, dict) else None
    if not isinstance(sound, dict) or sound.get("neighbours") not in RELATION_WORDS:
        return None
    return str(sound.get("unit")), str(sound["neighbours"])


def _joint(
    dataset: str, unit: str, neighbours: str, runs: Sequence[RunCost], without: int
) -> JointPrivacy:
    bound = any(run.bound for run in runs)

    def stated(epsilon: float, delta: float, how: str) -> JointPrivacy:
        number = len(runs)
        return JointPrivacy(
            dataset, unit, neighbours, number, epsilon, delta, how, without, bound=bound
        )

    delta = min(run.delta for run in runs)
    if any(math.isinf(run.epsilon) for run in runs):
        return stated(math.inf, delta, "the sound ε of one of the runs is infinite")
    if len(runs) == 1:
        return stated(runs[0].epsilon, delta, "its sound ε")
    if any(run.paired for run in runs):
        return stated(math.inf, delta, "paired runs share their noise, and do not compose")
    accountant = RdpAccountant()
    total = np.zeros(len(accountant.orders))
    composed, epsilon, delta_of_whole = 0, 0.0, 0.0
    for run in runs:
        cost = run.rdp(accountant)
        if cost is None:
            epsilon, delta_of_whole = epsilon + run.epsilon, delta_of_whole + run.delta
        else:
            total, composed = total + cost, composed + 1
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


def _cost(run: StoredRun, accountant: RdpAccountant, neighbours: str) -> np.ndarray | None:
    """Return the RDP of a run's most expensive client at each order; None where RDP does not apply."""
    try:
        ledger = run.ledger(SOUND)
    except ConfigError:
        return None
    costs = [rdp_of_events(dict(history), accountant, neighbours) for history in ledger.histories]
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
