"""Builds the parts of a run from its configuration.

Nothing here needs torch or data: a dry run stops after this and the plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common.errors import ConfigError
from fedpriv.common.groups import option_of
from fedpriv.data.base import Dataset
from fedpriv.experiment.combinations import refuse_combinations
from fedpriv.experiment.instantiate import first_line, instantiate, within_group
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.settings import read_settings
from fedpriv.experiment.starting_point import starting_point_of
from fedpriv.features.dataset import Featured
from fedpriv.models.fit import seeded_for
from fedpriv.privacy.accountants import PublishedAccountant
from fedpriv.privacy.core.names import PUBLISHED
from fedpriv.privacy.noise_schedules import Setting


def build_parts(config: DictConfig) -> Parts:
    """Make the object of every group, check that they go together, and calibrate the noise.

    Args:
        config: A composed configuration; it is not changed.

    Returns:
        The parts of the run. The noise multiplier of the first round is known, unless the algorithm claims no
        privacy.

    Raises:
        ConfigError: Keys are wrong, a class lacks what its group needs, parts do not go together, or no noise
            is enough for the ε that a schedule is given.
    """
    parts = _make_parts(config)
    refuse_combinations(parts)
    if isinstance(parts.accountant, PublishedAccountant):
        # accountant=published stands for the accountant of the algorithm's theorem, which may not fit either.
        assert parts.claim is not None  # else the combination is refused
        parts = replace(parts, accountant=parts.claim.accountant())
        refuse_combinations(parts)
    if parts.private and not parts.noise_schedule.known:
        _calibrate_noise(parts)
    return parts


def _make_parts(config: DictConfig) -> Parts:
    """Make the object of every group. Raise ConfigError for the first key that is wrong."""
    try:
        OmegaConf.resolve(config := config.copy())
        # Root keys come first: they are quick to check, and a misspelt one may explain what follows.
        settings = read_settings(config)
    except OmegaConfBaseException as error:
        raise ConfigError(first_line(error)) from None

    algorithm = instantiate(config, "algorithm")
    dataset = make_dataset(config, algorithm.unit)
    partition = instantiate(config, "partition")
    # A model of the user's own may draw initial weights in its constructor.
    with seeded_for(str(OmegaConf.select(config, "model._target_")), settings.seed):
        model = instantiate(config, "model")
    model.starting_point = within_group("model", lambda: starting_point_of(config))

    def optional(group: str) -> Any:
        return None if config.get(group) is None else instantiate(config, group)

    return Parts(
        settings=settings,
        dataset=dataset,
        partition=partition,
        model=model,
        clipper=instantiate(config, "clipper"),
        noise_schedule=instantiate(config, "noise_schedule"),
        accountant=instantiate(config, "accountant"),
        algorithm=algorithm,
        attack=optional("attack"),
        aggregation=optional("aggregation"),
        trackers={
            name: instantiate(config, f"tracker.{name}") for name in config.get("tracker") or ()
        },
    )


def make_dataset(config: DictConfig, unit: str) -> Dataset:
    """Return the data set of a configuration with its features, split where ``unit`` is protected."""
    dataset: Dataset = instantiate(config, "dataset")
    if config.get("features") is not None:
        dataset = Featured(dataset, instantiate(config, "features"))
    dataset.split_for(unit)
    return dataset


def without_rule(config: DictConfig) -> DictConfig:
    """Return the configuration with aggregation=mean: an audit sees uploads before a rule combines them.

    Raises:
        ConfigError: The rule reads validation records; with the mean, clients would hold these.
    """
    if config.get("aggregation") is not None:
        rule = instantiate(config, "aggregation")
        if rule.reads_validation:
            name = option_of("aggregation", rule)
            hint = "an audit runs with the mean, where clients hold the records that this rule trains on"
            raise ConfigError("aggregation", name, "another for an audit", hint)
    chosen = config.copy()
    OmegaConf.update(chosen, "aggregation", None, force_add=True)
    return chosen


def _calibrate_noise(parts: Parts) -> None:
    """Solve for the noise multiplier of a schedule that is given an ε, before anything else needs σ.

    The client of the calibration has an even share of the records, and is sampled as often as the average
    one.
    """
    schedule, algorithm, clients = parts.noise_schedule, parts.algorithm, parts.partition.clients
    cohort_share = 1.0
    if clients and algorithm.clients_per_round:
        cohort_share = min(1.0, algorithm.clients_per_round / clients)
    setting = Setting(
        sampling=algorithm.sampling_of(parts.even_share),
        samples_per_round=algorithm.samples_per_round,
        cohort_share=cohort_share,
        accountant=parts.accountant,
        claim=parts.claim,
        published=parts.settings.budget_view == PUBLISHED,
        smallest_noise_multiplier=parts.costs().smallest_noise_multiplier,
        expected_cohort=algorithm.expected_cohort(clients),
    )
    within_group("noise_schedule", lambda: schedule.calibrate(setting))
