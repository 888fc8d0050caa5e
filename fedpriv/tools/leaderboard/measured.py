"""Accuracy and sound ε of a finished run, read from its folder.

The leaderboard refuses runs whose accuracy or ε cannot be compared: unfinished, non-private, attacked or
damaged runs, trials of a search, and runs that withhold their seeds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig

from fedpriv.common.errors import ArgumentError, ConfigError, show
from fedpriv.common.words import round_up
from fedpriv.experiment.settings import read_settings
from fedpriv.privacy.accountants import RdpAccountant
from fedpriv.privacy.core.names import SOUND
from fedpriv.store.caveats import CAVEATS
from fedpriv.store.folder import FINISHED
from fedpriv.store.searches import is_search
from fedpriv.store.stored_run import StoredRun
from fedpriv.tools.accounting.releases import Releases, tightest_epsilon

_STOP_REASONS = tuple(reason for reason in FINISHED if reason != "diverged")
_WEAK_DELTA = {CAVEATS["delta"], CAVEATS["delta_of_clients"]}
_ROUNDING = 1e-9  # relative rounding error of an ε that was planned to end at the budget


@dataclass(frozen=True)
class Measured:
    """A finished run as the leaderboard measures it.

    Attributes:
        config: Configuration of the run.
        overrides: Arguments of ``fedpriv train`` that composed the configuration.
        environment: Content of environment.json.
        dataset: Name of the data set.
        trust: Trust model of the sound view.
        unit: Protected unit of the sound view.
        neighbours: Adjacency of the sound view.
        delta: δ.
        epsilon: Sound ε, computed by this code from the ledger.
        test_accuracy: Test accuracy at the end.
        summary: Content of summary.json.
    """

    config: DictConfig
    overrides: tuple[str, ...]
    environment: dict[str, Any]
    dataset: str
    trust: str
    unit: str
    neighbours: str
    delta: float
    epsilon: float
    test_accuracy: float
    summary: dict[str, Any]

    @property
    def facts(self) -> dict[str, object]:
        """The values that all runs of an entry share, apart from the configuration."""
        names = ("dataset", "trust", "unit", "neighbours", "delta")
        facts = {name: getattr(self, name) for name in names}
        return {**facts, "test_records": self.summary.get("test_records")}


def measure(path: str | Path, attacked: bool = False) -> Measured:
    """Read a run folder.

    Args:
        path: The run folder.
        attacked: Whether the run may have malicious clients.

    Raises:
        ConfigError: The folder has no finished run, or the leaderboard does not take such a run.
    """
    run = StoredRun(path)
    if not run.files.config.exists():
        raise ConfigError(f"{path} is no run folder: it has no config.yaml")
    if not run.files.summary.exists():
        raise ConfigError(f"{path} is not finished")
    config, summary, privacy = run.configuration, run.summary, run.statement
    if summary.get("stop_reason") not in _STOP_REASONS:
        raise ConfigError(f"{path} is not finished: it ended as {show(summary.get('stop_reason'))}")
    if privacy.get("private") is not True:
        raise ConfigError(f"{path} has no privacy: nothing is clipped and no noise is added")
    _refuse_special(run, attacked)
    overrides = run.overrides
    if overrides is None:
        raise ConfigError(
            f"{path} does not have its overrides: it was begun from Python, or withholds them"
        )
    caveats = privacy.get("caveats")
    for caveat in caveats if isinstance(caveats, list) else ():
        if caveat in _WEAK_DELTA:
            raise ConfigError(f"{path}: delta={show(config.get('delta'))} is too large; {caveat}")
    views = privacy.get("views")
    view = views.get(SOUND) if isinstance(views, dict) else None
    if not isinstance(view, dict):
        raise ConfigError(
            f"{path} does not say whom it protects: its privacy.json has no sound view"
        )
    delta, accuracy = _number(path, privacy, "delta"), _number(path, summary, "test_accuracy")
    epsilon = sound_epsilon(run, delta)
    if privacy.get("noise_adapts") is False:
        run.compare_ledger(epsilon, tightest=True)
    if run.damage:
        problem = next(iter(run.damage.values()))
        raise ConfigError(f"{problem}; the leaderboard takes runs as they were made")
    return Measured(
        config, tuple(overrides), run.environment, str(summary.get("dataset")), str(view.get("trust")),
        str(view.get("unit")), str(view.get("neighbours")), delta, epsilon, accuracy, summary,
    )  # fmt: skip


def _refuse_special(run: StoredRun, attacked: bool) -> None:
    """Raise ConfigError for a run that does more than train clients, honest unless ``attacked``."""
    path, config = run.path, run.configuration
    try:
        settings = read_settings(config.copy())
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not attacked and (config.get("attack") is not None or run.summary.get("attackers")):
        raise ConfigError(f"{path} has malicious clients")
    if settings.shadow is not None:
        raise ConfigError(f"{path} is a shadow run of an audit")
    if settings.canaries or run.files.canaries.exists():
        raise ConfigError(f"{path} has canaries, which were planted for its audit")
    if settings.paired is not None:
        raise ConfigError(
            f"{path} has paired={settings.paired}: runs with common noise are simulations, to be compared"
        )
    if settings.publish:
        raise ConfigError(f"{path} has publish=true and withholds its seeds, which an entry states")
    if is_search(path.resolve().parent):
        raise ConfigError(f"{path} is a trial of a search, whose epsilon is that of all its trials")
    if config.get("budget_view") != SOUND:
        raise ConfigError(
            f"{path} has budget_view={show(config.get('budget_view'))}; an entry needs {SOUND}"
        )


def sound_epsilon(run: StoredRun, delta: float) -> float:
    """Return ε of the worst client, from the ledger, as ``fedpriv account --run`` computes it.

    Where the noise adapts to released values, the ledger alone has no ε, because the composition theorems
    need noise that is chosen before. Then the budget of the Rényi filter is the ε that holds, provided that
    the ledger stays within the budget at the order α of the filter.

    Raises:
        ConfigError: No finite ε follows from the ledger.
    """
    ledger = run.ledger(SOUND)
    releases = Releases((), ledger.neighbours, ledger.histories)
    if run.statement.get("noise_adapts") is False:
        epsilon = tightest_epsilon(releases, delta)
        if not 0 < epsilon < math.inf:
            raise ConfigError(
                f"{run.path}: its ledger gives no finite epsilon at delta = {delta:g}"
            )
        return epsilon
    order, budget, stated = (run.statement.get(n) for n in ("order", "budget", "epsilon_sound"))
    try:
        conversion = run.configuration.accountant.get("conversion", "improved")
        filter_accountant = RdpAccountant(orders=(cast("float", order),), conversion=conversion)
    except (ArgumentError, TypeError):
        filter_accountant = None
    if filter_accountant is None or not isinstance(budget, int | float) or stated != budget:
        raise ConfigError(
            f"{run.path}: its noise adapts and no Renyi filter guards it, so its ledger alone gives no "
            "epsilon"
        )
    spent = releases.epsilon(filter_accountant, delta)
    if not spent <= budget * (1.0 + _ROUNDING):
        raise ConfigError(
            f"{run.path}: by its ledger its filter spent epsilon {round_up(spent)} of {budget:g}"
        )
    return float(budget)


def _number(path: object, facts: dict[str, Any], name: str) -> float:
    value = facts.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{path} has no {name}, which an entry states")
    return float(value)
