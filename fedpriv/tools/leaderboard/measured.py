"""What a finished run reached within which sound ε, read from its folder; some runs cannot be entered."""

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
from fedpriv.tools.accounting.account import tightest_epsilon
from fedpriv.tools.accounting.releases import Releases

_ENDS = tuple(reason for reason in FINISHED if reason != "diverged")
_WEAK_DELTA = {CAVEATS["delta"], CAVEATS["delta_of_clients"]}
_ROUNDING = 1e-9  # of a sum that was planned to end at the budget


@dataclass(frozen=True)
class Measured:
    """A run. ``epsilon``: sound, from its ledger, by the accounting of this code."""

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
        """Return what every run of an entry has in common, beside its configuration."""
        names = ("dataset", "trust", "unit", "neighbours", "delta")
        facts = {name: getattr(self, name) for name in names}
        return {**facts, "test_records": self.summary.get("test_records")}


def measure(path: str | Path) -> Measured:
    """Read a run. Raises ConfigError for one that the leaderboard does not take, in a sentence."""
    run = StoredRun(path)
    if not run.files.config.exists():
        raise ConfigError(f"{path} is no run folder: it has no config.yaml")
    if not run.files.summary.exists():
        raise ConfigError(f"{path} is not finished")
    config, summary, privacy = run.configuration, run.summary, run.statement
    if summary.get("stop_reason") not in _ENDS:
        raise ConfigError(f"{path} is not finished: it ended as {show(summary.get('stop_reason'))}")
    if privacy.get("private") is not True:
        raise ConfigError(f"{path} has no privacy: nothing is clipped and no noise is added")
    _refuse_special(run)
    overrides = run.overrides
    if overrides is None:
        raise ConfigError(
            f"{path} does not have its overrides: it was begun from Python, or withholds them"
        )
    _refuse_weak(path, config, privacy)
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


def _refuse_special(run: StoredRun) -> None:
    """Raise ConfigError for a run of something else than training honest clients on their data."""
    path, config = run.path, run.configuration
    resolved = config.copy()
    try:
        settings = read_settings(resolved)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if config.get("attack") is not None or run.summary.get("attackers"):
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


def _refuse_weak(path: object, config: DictConfig, privacy: dict[str, Any]) -> None:
    caveats = privacy.get("caveats")
    for caveat in caveats if isinstance(caveats, list) else ():
        if caveat in _WEAK_DELTA:
            raise ConfigError(f"{path}: delta={show(config.get('delta'))} is too large; {caveat}")


def sound_epsilon(run: StoredRun, delta: float) -> float:
    """ε of the worst client from the ledger, as ``fedpriv account --run`` finds it. Raises ConfigError where
    none is finite.

    Where the noise adapts, the ledger alone has no ε: what holds is the budget of the filter, if the ledger
    keeps to it at the filter's own order.
    """
    ledger = run.ledger(SOUND)
    releases = Releases((), ledger.neighbours, ledger.histories)
    if run.statement.get("noise_adapts") is not False:
        return _budget(run, releases, delta)
    epsilon = tightest_epsilon(releases, delta)
    if not 0 < epsilon < math.inf:
        raise ConfigError(f"{run.path}: its ledger gives no finite epsilon at delta = {delta:g}")
    return epsilon


def _budget(run: StoredRun, releases: Releases, delta: float) -> float:
    order, budget, stated = (run.statement.get(n) for n in ("order", "budget", "epsilon_sound"))
    try:
        conversion = run.configuration.accountant.get("conversion", "improved")
        guard = RdpAccountant(orders=(cast("float", order),), conversion=conversion)
    except (ArgumentError, TypeError):
        guard = None
    if guard is None or not isinstance(budget, int | float) or stated != budget:
        raise ConfigError(
            f"{run.path}: its noise adapts and no Renyi filter guards it, so its ledger alone gives no "
            "epsilon"
        )
    spent = releases.epsilon(guard, delta)
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
