"""CDP of Wei et al.: clients noise their trained models, and T rounds share a budget.

    w_k = w after E full-batch steps of gradient descent on client k's n_k records
    w_k ← w_k min(1, C/‖w_k‖);   w̃_k = w_k + N(0, s_t² I);   w ← (1/m) Σ_k w̃_k        (algorithm 1)

m of K clients take part in a round. s_t follows from the budget: ``noise_schedule=uniform_budget`` is eq.
(15), ``recalculated`` is eq. (19) with communication rounds discounting (CRD, algorithm 2).

``sensitivity`` says what is clipped, and therefore what is protected:

    weights    as printed. All of a client's data moves w_k by up to 2C; the work claims 2C/n for a record
    update     the same with w_k - w clipped to C instead
    one_step   one step, each record's gradient clipped: w_k = w - (η/n_k) Σ_i g_i min(1, C/‖g_i‖). This is
               the average that eq. (13) argues with: a record replaced moves w_k by 2 η C/n_k

Source: Wei et al., "Performance analysis and optimization in privacy-preserving federated learning",
arXiv:2003.00229, 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedpriv.algorithms.base import Algorithm, UnsampledReports
from fedpriv.algorithms.client_level import ServerStepAlgorithm
from fedpriv.algorithms.record_level import LocalStepsAlgorithm
from fedpriv.algorithms.rounds_search import RoundsSearch
from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.common.words import counted, records_of
from fedpriv.privacy.mechanisms.claims import Claim, wei

if TYPE_CHECKING:
    from fedpriv.algorithms.run_context import RunContext
    from fedpriv.algorithms.uploads import Uploads

SENSITIVITIES = ("one_step", "update", "weights")


def wei_cdp(
    name: str,
    sensitivity: str = "one_step",
    local_steps: int = 1,
    learning_rate: float = 0.1,
    clients_per_round: int | None = None,
    clients: int | None = None,
    records: int | None = None,
    search: Mapping[str, Any] | None = None,
) -> Algorithm:
    """Return the algorithm of Wei et al. that protects what ``sensitivity`` says; see the module.

    Args:
        name: Name in run folders and tables.
        sensitivity: ``one_step``, ``update`` or ``weights``.
        local_steps: E, full-batch steps of a round.
        learning_rate: η of the clients.
        clients_per_round: m; ``None``: all.
        clients: K, for q = m/K of the published claim.
        records: n of D = 2C/n, eq. (14); the smallest client where they differ.
        search: Settings of the search for T before the run (``RoundsSearch``); ``None``: T is given.

    Raises:
        ArgumentError: An argument is out of its range, missing, or does not go with the others.

    Example:
        >>> wei_cdp("wei_cdp").unit
        'record'
        >>> wei_cdp("wei_cdp", sensitivity="weights", records=128).unit
        'client'
    """
    checks.one_of("sensitivity", sensitivity, SENSITIVITIES)
    cohort, rate = clients_per_round, 1.0
    if cohort is not None:
        cohort = checks.whole("clients_per_round", cohort, at_least=1)
        if clients is None:
            allowed = "K, a whole number, where clients_per_round is given"
            raise ArgumentError("clients", None, allowed)
        rate = min(1.0, cohort / checks.whole("clients", clients, at_least=1))
    algorithm: Algorithm
    if sensitivity == "one_step":
        if local_steps != 1:
            raise ArgumentError("local_steps", local_steps, "1 with sensitivity=one_step")
        algorithm = OneStepCdp(name, wei(2.0, rate), learning_rate, cohort)
    else:
        if records is None:
            allowed = "n of eq. (14), a whole number (partition=fixed_size says it)"
            raise ArgumentError("records", None, allowed)
        claim = wei(2.0 / checks.whole("records", records, at_least=1), rate)
        algorithm = ModelCdp(name, claim, sensitivity, local_steps, learning_rate, cohort)
    stated = {"clients": clients, "records": None if sensitivity == "one_step" else records}
    algorithm.assumed = {key: value for key, value in stated.items() if value is not None}
    if search is not None:
        try:
            algorithm.search = RoundsSearch(**search)
        except ArgumentError as error:
            key = f"search.{error.argument}"
            raise ArgumentError(key, error.value, error.allowed, error.hint) from None
    return algorithm


class ModelCdp(UnsampledReports, ServerStepAlgorithm):
    """CDP as printed, or with the change clipped: whole uploads are noised, so the unit is the client."""

    private = True

    def __init__(
        self,
        name: str,
        claim: Claim,
        sensitivity: str,
        local_steps: int,
        learning_rate: float,
        clients_per_round: int | None,
    ):
        super().__init__(name=name, learning_rate=1.0)
        self.claim, self.sensitivity = self.own_claim(claim), sensitivity
        self.local_steps: int = checks.whole("local_steps", local_steps, at_least=1)
        self.local_learning_rate = checks.number("learning_rate", learning_rate, above=0)
        self.clients_per_round = clients_per_round

    def uploads(self, context: RunContext) -> Uploads:
        from fedpriv.algorithms.uploads import FullBatchDescent

        replaces = self.sensitivity == "weights"
        return FullBatchDescent(context, self.local_steps, self.local_learning_rate, replaces)

    def denominator(self, cohort: int, clients: int) -> float:
        return float(cohort)

    def records_per_step(self, records: float) -> float:
        return records

    def describe(self, clients: int | None, records: int | None) -> tuple[tuple[str, str], ...]:
        who = f"{self.clients_per_round or 'all'} clients"
        steps = counted(self.local_steps, "full-batch step")
        return (
            (
                "each round",
                f"{who}, {steps} over their {records_of(records, '')}, unweighted average",
            ),
            ("clipped", "the trained weights" if self.sensitivity == "weights" else "their change"),
            ("local optimizer", f"sgd, learning rate {self.local_learning_rate:g}"),
        )


class OneStepCdp(UnsampledReports, LocalStepsAlgorithm):
    """CDP with one full-batch step and every record's gradient clipped: the unit is the record."""

    private = True

    def __init__(
        self, name: str, claim: Claim, learning_rate: float, clients_per_round: int | None
    ):
        super().__init__(
            name=name,
            sample_rate=1.0,
            optimizer="sgd",
            learning_rate=learning_rate,
            participation="all" if clients_per_round is None else "sampled",
            clients_per_round=clients_per_round,
        )
        self.claim = self.own_claim(claim)

    def describe(self, clients: int | None, records: int | None) -> tuple[tuple[str, str], ...]:
        who = f"{self.clients_per_round or 'all'} clients"
        return (
            ("each round", f"{who}, one full-batch step over their {records_of(records, '')}"),
            ("clipped", "the gradient of every record"),
            ("local optimizer", f"sgd, learning rate {self.learning_rate:g}"),
        )
