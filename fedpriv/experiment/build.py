"""Builds the parts of an experiment from its configuration. Nothing here needs torch or data: a dry run stops
after this."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common.errors import ConfigError
from fedpriv.experiment.contracts import conflicts, refuse_bad_answers
from fedpriv.experiment.instantiate import first_line, instantiate, within_group
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.settings import read_settings
from fedpriv.experiment.uncalled import refuse_unasked
from fedpriv.features.dataset import Featured
from fedpriv.models.fit import seeded_for
from fedpriv.privacy.accountants import PublishedAccountant
from fedpriv.privacy.core.names import PUBLISHED
from fedpriv.privacy.noise_schedules import Setting


def build_parts(config: DictConfig) -> Parts:
    """Instantiate every group and check that they fit. Raises ConfigError."""
    try:
        OmegaConf.resolve(config := config.copy())
        settings = read_settings(config)
    except OmegaConfBaseException as error:
        raise ConfigError(first_line(error)) from None
    algorithm = instantiate(config, "algorithm")
    parts = Parts(
        settings=settings,
        dataset=_dataset(config),
        partition=instantiate(config, "partition"),
        model=_model(config, settings.seed),
        clipper=instantiate(config, "clipper"),
        noise_schedule=instantiate(config, "noise_schedule"),
        accountant=instantiate(config, "accountant"),
        algorithm=algorithm,
        attack=_optional(config, "attack"),
        aggregation=_optional(config, "aggregation"),
        trackers={
            name: instantiate(config, f"tracker.{name}") for name in config.get("tracker") or ()
        },
    )
    refuse_unasked(parts)
    refuse_bad_answers(parts)
    _refuse_conflicts(parts)
    if isinstance(parts.accountant, PublishedAccountant):
        parts = replace(parts, accountant=algorithm.claim.accountant())
        _refuse_conflicts(parts)
    if parts.private:
        _calibrate_noise(parts)
    return parts


def _refuse_conflicts(parts: Parts) -> None:
    """Raise the first ConfigError that a part has about the others."""
    for error in conflicts(parts):
        raise error


def without_rule(config: DictConfig) -> DictConfig:
    """Return a configuration with aggregation=mean: an audit looks at uploads before a rule combines them."""
    chosen = config.copy()
    OmegaConf.update(chosen, "aggregation", None, force_add=True)
    return chosen


def _optional(config: DictConfig, group: str) -> Any:
    """Return the object of a group that a run may be without, or None."""
    return None if config.get(group) is None else instantiate(config, group)


def _dataset(config: DictConfig) -> Any:
    """The data set, with features in the place of its images where they are asked for."""
    dataset = instantiate(config, "dataset")
    if config.get("features") is None:
        return dataset
    return Featured(dataset, instantiate(config, "features"))


def _model(config: DictConfig, seed: int) -> Any:
    """The model's factory. One of the user's own may draw initial weights in its constructor."""
    with seeded_for(str(OmegaConf.select(config, "model._target_")), seed):
        return instantiate(config, "model")


def _calibrate_noise(parts: Parts) -> None:
    """A noise multiplier that follows from an ε is solved for before anything else needs it."""
    schedule, algorithm, clients = parts.noise_schedule, parts.algorithm, parts.partition.clients
    if schedule.known:
        return
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
