"""The parameters of a privacy accountant of pfl-research, which is a plan of equal releases.

    {"accountant": dataclasses.asdict(accountant), "sampling": "poisson", "neighbours": "add_or_remove",
     "cohort_size": 50, "noise_cohort_size": 1000, "population": 1000000, "simulated_population": 1000}

pfl simulates a small cohort with the noise of a large one: it multiplies the noise parameter by noise_scale =
cohort_size/noise_cohort_size, and its ε is that of an imagined population. Of the users that were simulated,
the same releases have another sample rate and less noise, so both are priced, where the file has both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attr
from dp_accounting import dp_event

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError, show
from fedpriv.tools.accounting.event_json import MOST_STEPS
from fedpriv.tools.accounting.rows import HistoryRows, ReleaseHistory

_NEEDED = ("num_compositions", "sampling_probability", "mechanism", "noise_parameter")
_KNOWN = (
    *_NEEDED, "epsilon", "delta", "noise_scale", "min_bound_noise_parameter", "max_bound_noise_parameter",
    "value_discretization_interval", "use_connect_dots", "pessimistic_estimate", "log_mass_truncation_bound",
    "eps_error", "delta_error",
)  # fmt: skip
_SIZES = ("cohort_size", "noise_cohort_size", "population", "simulated_population")
_BESIDE = ("accountant", "sampling", "neighbours", *_SIZES)


def is_plan(content: Mapping[str, Any]) -> bool:
    """Return whether a JSON object is meant to be the parameters of an accountant of pfl."""
    return "accountant" in content or "num_compositions" in content


def plan_of(path: Path, content: Mapping[str, Any], options: SimpleNamespace) -> ReleaseHistory:
    """Return the releases that the parameters stand for.

    Args:
        path: The file, for messages.
        content: The parameters, alone or as ``accountant`` beside the sizes of cohorts and populations.
        options: The values of the flags.

    Raises:
        ConfigError: A value is missing, not allowed, or contradicts another one.
        Untold: Neither the file nor a flag says sampling and neighbours.
    """
    arguments_of = content.get("accountant", content)
    beside = {} if arguments_of is content else content
    if not isinstance(arguments_of, dict):
        raise ConfigError(f"{path}: accountant must be an object, dataclasses.asdict(accountant)")
    for values, known in ((arguments_of, _KNOWN), (beside, _BESIDE)):
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ConfigError(
                f"{path} has an unknown key {show(unknown[0])}; known are {', '.join(known)}"
            )
    missing = [name for name in _NEEDED if arguments_of.get(name) is None]
    if missing:
        raise ConfigError(
            f"{path} has no {' and no '.join(missing)}: it must be dataclasses.asdict(accountant) of an "
            "accountant of pfl"
        )
    try:
        plan = _Plan(arguments_of, beside)
    except ArgumentError as error:
        raise ConfigError(f"{path}: {error}") from None
    shared = {name: beside[name] for name in ("sampling", "neighbours") if name in beside}
    imagined = plan.history(path, options, shared, simulated=False)
    if plan.simulated_population is None:
        return imagined
    return replace(imagined, simulated=plan.history(path, options, shared, simulated=True))


class _Plan:
    """Checked parameters.

    Args:
        values: The fields of the accountant.
        beside: The sizes of cohorts and populations, where the file has them.

    Raises:
        ArgumentError: A value is not allowed, or contradicts another one.
    """

    def __init__(self, values: Mapping[str, Any], beside: Mapping[str, Any]):
        self.steps = checks.whole(
            "num_compositions", values["num_compositions"], at_least=1, at_most=MOST_STEPS
        )
        self.rate = checks.number(
            "sampling_probability", values["sampling_probability"], above=0, at_most=1
        )
        self.noise = checks.number("noise_parameter", values["noise_parameter"], above=0)
        self.scale = checks.number(
            "noise_scale", values.get("noise_scale", 1.0), above=0, at_most=1
        )
        self.laplace = (
            checks.one_of("mechanism", values["mechanism"], ("gaussian", "laplace")) == "laplace"
        )
        delta = values.get("delta")
        self.delta = None if delta is None else checks.number("delta", delta, above=0, below=1)
        self.cohort, self.noise_cohort, self.population, self.simulated_population = (
            checks.whole(name, beside[name], at_least=1) if beside.get(name) is not None else None
            for name in _SIZES
        )
        self._refuse_contradictions()

    def _refuse_contradictions(self) -> None:
        """Raise ArgumentError where the sizes are not those of the accountant."""
        if self.cohort is None:
            for name in ("noise_cohort_size", "population", "simulated_population"):
                if getattr(self, name.removesuffix("_size")) is not None:
                    raise ArgumentError("cohort_size", None, f"given where {name} is")
            return
        noise_cohort = self.noise_cohort or self.cohort
        if not math.isclose(self.scale, self.cohort / noise_cohort, rel_tol=1e-6):
            raise ArgumentError(
                "noise_scale",
                self.scale,
                f"cohort_size/noise_cohort_size = {self.cohort}/{noise_cohort}",
            )
        if self.population is not None:
            rate = max(self.cohort, noise_cohort) / self.population
            if not math.isclose(self.rate, rate, rel_tol=1e-6):
                raise ArgumentError(
                    "sampling_probability",
                    self.rate,
                    f"max(cohort_size, noise_cohort_size)/population = {rate:g}",
                )
        if self.simulated_population is not None and self.cohort > self.simulated_population:
            raise ArgumentError("cohort_size", self.cohort, "at most simulated_population")

    def history(
        self, path: Path, options: SimpleNamespace, shared: Mapping[str, Any], simulated: bool
    ) -> ReleaseHistory:
        """Return the releases as users of the imagined or of the simulated population see them.

        Args:
            path: The file, for messages.
            options: The values of the flags.
            shared: Sampling and neighbours, where the file says them.
            simulated: Whether the users are those that were simulated.
        """
        noise, rate, records = self.noise, self.rate, self.population
        if simulated:
            assert self.cohort is not None
            assert self.simulated_population is not None
            noise, records = self.noise * self.scale, self.simulated_population
            rate = self.cohort / records
        row = {"noise_multiplier": noise, "sample_rate": rate, "steps": self.steps, **shared}
        sampling = shared.get("sampling", options.sampling)
        if sampling == "without_replacement" and records is not None and options.records is None:
            row["records"] = records
        rows = HistoryRows(path, options, f"{path} has a key")
        rows.add(str(path), row)
        mechanism = "Laplace" if self.laplace else "Gaussian"
        history = rows.history(
            f"accountant of pfl-research, {mechanism} noise",
            "as pfl's accountants assume",
            self.delta,
        )
        if self.laplace:
            stretches = [replace(s, event=_with_laplace(s.event)) for s in history.stretches]
            history = replace(history, stretches=stretches)
        return replace(history, population=self._words(noise, rate, records, simulated))

    def _words(self, noise: float, rate: float, records: int | None, simulated: bool) -> str:
        """Return whose lots these are, for the table; empty where there is one population only."""
        if self.scale == 1.0 and self.simulated_population is None:
            return ""
        people = "users (how many is not said)" if records is None else f"{records:,} users"
        kind = "simulated" if simulated else "imagined"
        words = f"{kind}: {people}, sample rate {rate:g}, noise multiplier {noise:g}"
        if simulated:
            words += "; pfl's own cohorts, drawn with replacement, are not priced"
        return words


def _with_laplace(event: dp_event.DpEvent) -> dp_event.DpEvent:
    """Return the event with Laplace noise in the place of Gaussian noise, of the same multiplier."""
    if isinstance(event, dp_event.GaussianDpEvent):
        return dp_event.LaplaceDpEvent(event.noise_multiplier)
    return attr.evolve(event, event=_with_laplace(event.event))
