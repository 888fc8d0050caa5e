"""Builds the parts of an experiment from its configuration and refuses combinations that cannot run.

Nothing here needs torch or data: a dry run stops after this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import hydra.utils
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.algorithms.base import Algorithm
from fedpriv.attacks.backdoor import REPLACEMENT, Backdoor
from fedpriv.common.errors import ArgumentError, ConfigError, FedprivError
from fedpriv.config import unknown_key
from fedpriv.experiment.contracts import refuse_incomplete, refuse_without_validation
from fedpriv.experiment.costs import Costs
from fedpriv.experiment.settings import Settings, read_settings
from fedpriv.models.fit import refuse_misfit
from fedpriv.privacy.accountants import (
    Accountant,
    PldAccountant,
    PublishedAccountant,
    RdpAccountant,
)
from fedpriv.privacy.clippers import Clipper, NoClipper
from fedpriv.privacy.mechanisms import Mechanism
from fedpriv.privacy.names import PUBLISHED, SOUND
from fedpriv.privacy.noise_schedules import NoiseSchedule, NoNoise, Setting, UniformBudget


@dataclass(frozen=True)
class Parts:
    """Everything a run is made of."""

    settings: Settings
    dataset: Any
    partition: Any
    model: Any
    clipper: Clipper
    noise_schedule: NoiseSchedule
    accountant: Accountant
    algorithm: Algorithm
    attack: Backdoor | None = None

    @property
    def private(self) -> bool:
        return self.algorithm.private

    @property
    def adaptive(self) -> bool:
        """Whether σ depends on what was released."""
        return self.noise_schedule.adaptive

    @property
    def unprotected(self) -> Mapping[str, Any]:
        """Keys of the data set, with their values, by which something of every client's data is known
        without noise before the first round."""
        return getattr(self.dataset, "unprotected", {})

    @property
    def even_share(self) -> int:
        """Records per client if they were dealt out evenly, or as many as the partition fixes."""
        if fixed := getattr(self.partition, "records", None):
            return fixed
        records = self.dataset.train_records
        if self.noise_schedule.reads_validation:
            records -= self.dataset.validation_records
        return max(1, records // (self.partition.clients or 1))

    @property
    def shares_known(self) -> bool:
        """Whether :attr:`even_share` is a client's, or the price is the same for any number of records;
        a natural partition has as many clients as the data has makers."""
        fixed = self.partition.clients or getattr(self.partition, "records", None)
        return bool(fixed) or not self.algorithm.cost_depends_on_records

    @cached_property
    def mechanism(self) -> Mechanism:
        """What every round releases."""
        return self.algorithm.mechanism(self.clipper, self.noise_schedule)

    def costs(self, records: int | None = None) -> Costs:
        """Of what is planned, for a client of ``records`` records (default: an even share)."""
        return Costs(
            mechanism=self.mechanism,
            sampling=self.algorithm.sampling_of(records or self.even_share),
            accountant=self.accountant,
            claim=self.algorithm.claim,
            view=self.settings.budget_view,
            delta=self.settings.delta,
            rounds=self.settings.rounds,
            clients=self.partition.clients,
        )


def build_parts(config: DictConfig) -> Parts:
    """Instantiate every group and check that they fit. Raises ConfigError."""
    try:
        OmegaConf.resolve(config := config.copy())
        settings = read_settings(config)
    except OmegaConfBaseException as error:
        raise ConfigError(_first_line(error)) from None
    algorithm = _build(config, "algorithm")
    parts = Parts(
        settings=settings,
        dataset=_build(config, "dataset"),
        partition=_build(config, "partition"),
        model=_build(config, "model"),
        clipper=_build(config, "clipper"),
        noise_schedule=_build(config, "noise_schedule"),
        accountant=_accountant(_build(config, "accountant"), algorithm, settings),
        algorithm=algorithm,
        attack=None if config.get("attack") is None else _build(config, "attack"),
    )
    _refuse_bad_combinations(parts)
    if parts.private:
        _refuse_unpriceable(parts)
        _calibrate_noise(parts)
        _refuse_query_of_secret_cohort(parts)
    return parts


def _calibrate_noise(parts: Parts) -> None:
    """A noise multiplier that follows from an ε is solved for before anything else needs it."""
    schedule, algorithm, clients = parts.noise_schedule, parts.algorithm, parts.partition.clients
    if schedule.known:
        return
    if not parts.shares_known:
        raise ConfigError(
            "noise_schedule follows from epsilon, which here depends on how many records a client has, and "
            "partition=natural does not say; set noise_schedule=constant, or another partition"
        )
    share = 1.0
    if clients and algorithm.clients_per_round:
        share = min(1.0, algorithm.clients_per_round / clients)
    setting = Setting(
        sampling=algorithm.sampling_of(parts.even_share),
        samples_per_round=algorithm.samples_per_round,
        cohort_share=share,
        accountant=parts.accountant,
        claim=algorithm.claim,
        published=parts.settings.budget_view == PUBLISHED,
        smallest_noise_multiplier=parts.costs().smallest_noise_multiplier,
    )
    within_group("noise_schedule", lambda: schedule.calibrate(setting))


def _some_sigma(parts: Parts) -> float:
    """A noise multiplier the run may use: the first, or any where it is not known yet."""
    if not parts.noise_schedule.known:
        return min(1.0, parts.clipper.largest_noise_multiplier / 2.0)
    return parts.noise_schedule.noise_multiplier(0)


def _accountant(chosen: Any, algorithm: Any, settings: Settings) -> Accountant:
    """The accountant asked for; for ``accountant=published`` the one of the work's theorem."""
    published = settings.budget_view == PUBLISHED
    if algorithm.private and algorithm.claim is None and published:
        raise ConfigError(
            "budget_view",
            PUBLISHED,
            f"sound with algorithm={algorithm.name}, which has no published claim",
            "one that extends a work's algorithm inherits none: the theorem is not about what it changes",
        )
    if not isinstance(chosen, PublishedAccountant):
        return chosen
    if algorithm.claim is None:
        raise ConfigError(
            f"accountant=published needs an algorithm with a published claim, which {algorithm.name} "
            "has not"
        )
    if settings.budget_view != PUBLISHED:
        raise ConfigError(
            "budget_view", settings.budget_view, "published with accountant=published"
        )
    return algorithm.claim.accountant()


def _build(config: DictConfig, group: str) -> Any:
    node = config.get(group)
    if not isinstance(node, DictConfig) or not isinstance(node.get("_target_"), str):
        raise ConfigError(
            group,
            OmegaConf.to_container(node) if isinstance(node, DictConfig) else node,
            "a group option, that is a YAML with _target_",
            f"see fedpriv list {group}",
        )
    keys = [key for key in node if key != "_target_"]
    made = within_group(group, lambda: hydra.utils.instantiate(node, _convert_="all"), keys)
    refuse_incomplete(group, made)
    return made


def within_group(group: str, make: Callable[[], Any], keys: Sequence[str] = ()) -> Any:
    """Call ``make``; errors about an argument come out as errors about the key group.argument.

    ``keys``: those of the group, which ``make`` may refuse as unknown.
    """
    try:
        return make()
    except ArgumentError as error:
        raise error.within(group) from None
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, ArgumentError):
            raise cause.within(group) from None
        if isinstance(cause, FedprivError):
            raise cause from None
        refused = _UNEXPECTED.search(str(cause))
        if refused and refused[1] in keys:
            raise unknown_key(group, refused[1], [k for k in keys if k != refused[1]]) from None
        raise ConfigError(f"{group}: {_explain(cause or error)}") from None


_UNEXPECTED = re.compile(r"unexpected keyword argument '([^']+)'")


def _explain(error: BaseException) -> str:
    """A wrong call or target in the words of Python, on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):  # the reason is on the next one
        return f"{lines[0]} {lines[1]}"
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


_PRIVATE = {"record": "dp_fl", "client": "ldp_fedsgd or cdp_fedavg"}


def _refuse_bad_combinations(parts: Parts) -> None:
    settings, algorithm = parts.settings, parts.algorithm
    refuse_misfit(parts.model, parts.dataset)
    refuse_without_validation(parts.dataset, parts.noise_schedule)
    clips, noises = (
        not isinstance(parts.clipper, NoClipper),
        not isinstance(parts.noise_schedule, NoNoise),
    )
    if not algorithm.private:
        if clips or noises:
            raise ConfigError(
                f"algorithm={algorithm.name} is not private and takes clipper=none and "
                f"noise_schedule=none; use algorithm={_PRIVATE[algorithm.unit]} to clip and add noise"
            )
        if settings.epsilon is not None:
            raise ConfigError(
                "epsilon", settings.epsilon, f"null with algorithm={algorithm.name} (no privacy)"
            )
    elif not clips and noises:
        raise ConfigError(
            "clipper=none leaves the sensitivity unbounded, so no noise makes it private; choose "
            "another clipper, or noise_schedule=none with epsilon=null for a run without privacy"
        )
    if algorithm.private and settings.epsilon is not None and settings.budget_view == SOUND:
        for key, value in parts.unprotected.items():
            raise ConfigError(
                f"dataset.{key}",
                value,
                "another with budget_view=sound and an epsilon",
                "it is a release without noise, which no budget allows: take epsilon=null or "
                "budget_view=published",
            )
    _refuse_two_budgets(parts)
    if algorithm.search is not None:
        _refuse_unsearchable(parts)
    if parts.attack is not None:
        _refuse_unattackable(parts)
    if settings.publish:
        _refuse_unpublishable(parts)
    elif settings.publish_test_metrics:
        raise ConfigError("publish_test_metrics", True, "false unless publish=true")
    if settings.epsilon is None and settings.rounds is None:
        raise ConfigError("rounds", None, "given when epsilon is null: one of them ends the run")
    if clients := getattr(parts.partition, "clients", None):
        within_group("algorithm", lambda: algorithm.check_clients(clients))
    for key, assumed in algorithm.assumed.items():
        true = getattr(parts.partition, key, None)
        if true is not None and true != assumed:
            raise ConfigError(
                f"algorithm.{key}",
                assumed,
                f"{true}, which partition.{key} is",
                f"set partition.{key} alone",
            )


def _refuse_unpublishable(parts: Parts) -> None:
    """A run whose results are given away is private, stands alone, and is made once."""
    algorithm = parts.algorithm
    if not algorithm.private or isinstance(parts.noise_schedule, NoNoise) or parts.unprotected:
        raise ConfigError(
            "publish", True, "false for a run without privacy", "nothing of it may be given away"
        )
    if parts.settings.runtime.reuse:
        raise ConfigError(
            "runtime.reuse",
            True,
            "false with publish=true",
            "each such run has secrets of its own, so none stands for another; figures, which find runs by "
            "their configuration, cannot have them",
        )
    if algorithm.search is not None:
        raise ConfigError(
            "publish", True, f"false with algorithm={algorithm.name}, whose search keeps its runs"
        )
    if parts.attack is not None:
        raise ConfigError("publish", True, "false with an attack, which is a simulation")


def _refuse_two_budgets(parts: Parts) -> None:
    """A budget to enforce and another one to spread noise from: one of them would be for nothing."""
    schedule, enforced = parts.noise_schedule, parts.settings.epsilon
    if not isinstance(schedule, UniformBudget) or enforced in (None, schedule.epsilon):
        return
    raise ConfigError(
        "noise_schedule.epsilon",
        schedule.epsilon,
        f"epsilon, {enforced:g}",
        "set epsilon alone, for noise is spread from the budget that is enforced",
    )


def _refuse_unattackable(parts: Parts) -> None:
    """Attackers send changes of weights, and a trigger is for one kind of data."""
    algorithm, attack = parts.algorithm, parts.attack
    if not algorithm.uploads_changes:
        raise ConfigError(
            f"attack must be none with algorithm={algorithm.name}: its clients do not send changes of "
            "weights; those of all others but fedsgd and ldp_fedsgd do"
        )
    steps_itself = algorithm.unit == "client" and algorithm.optimizer != "sgd"
    if attack.boost == REPLACEMENT and steps_itself:
        raise ConfigError(
            "attack.boost", REPLACEMENT, "a number", "the server's optimizer is not sgd"
        )
    if wanted := attack.trigger.misfit(parts.dataset):
        raise ConfigError(
            f"attack.trigger needs {wanted}, which dataset={parts.dataset.name} has not"
        )
    if clients := getattr(parts.partition, "clients", None):
        within_group("attack", lambda: attack.attackers_among(clients))


def _refuse_unsearchable(parts: Parts) -> None:
    """A search runs the same data many times over: an oracle, which only the published view allows."""
    if parts.settings.budget_view != PUBLISHED:
        raise ConfigError(
            "budget_view",
            parts.settings.budget_view,
            f"published with algorithm={parts.algorithm.name}",
            "the runs that search T spend the budget many times over, which a sound view cannot allow",
        )
    if type(parts.noise_schedule) is not UniformBudget or parts.clipper.asks_ever():
        raise ConfigError(
            f"algorithm={parts.algorithm.name} takes noise_schedule=uniform_budget and a clipper that asks "
            "nothing (constant, poly, automatic)"
        )


def _refuse_unpriceable(parts: Parts) -> None:
    """The accountant must know the events of this sampler, under its neighbours."""
    sampling = parts.algorithm.sampling_of(1000)
    sigma = _some_sigma(parts)
    group = within_group("clipper", lambda: parts.mechanism.group(sampling, sigma, 0))
    event = group.event()[0]
    reason = parts.accountant.supports(event, sampling.neighbours)
    guarded = parts.settings.budget_view == SOUND and parts.settings.epsilon is not None
    if reason and parts.settings.budget_view == SOUND:
        able = [
            a.name
            for a in (PldAccountant(), RdpAccountant())
            if not a.supports(event, sampling.neighbours)
            and (a.has_filter or not (parts.adaptive and guarded))
        ]
        raise ConfigError(
            f"accountant={parts.accountant.name} does not fit what "
            f"algorithm={parts.algorithm.name} releases: {reason}; "
            + (
                f"accountant={able[0]} does"
                if able
                else "no accountant does while the noise adapts"
            )
        )
    if parts.adaptive and guarded and not parts.accountant.has_filter:
        raise ConfigError(
            f"accountant={parts.accountant.name} has no privacy filter, which a noise multiplier "
            "that adapts to released values needs; use accountant=rdp, or a schedule fixed in "
            "advance (noise_schedule=constant, exponential, step)"
        )


def _refuse_query_of_secret_cohort(parts: Parts) -> None:
    """The mean over a cohort, and the noise on it, would tell how many came."""
    if parts.algorithm.trust.secret_cohort and parts.noise_schedule.loss_query is not None:
        raise ConfigError(
            f"noise_schedule asks the clients of a round for their losses, and with algorithm="
            f"{parts.algorithm.name} who takes part is secret; take a schedule that asks nothing"
        )
