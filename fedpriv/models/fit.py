"""Whether a model reads what a data set holds, and building it for that data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.common.errors import ConfigError
from fedpriv.models.base import ModelFactory

if TYPE_CHECKING:
    from torch import nn

_MODELS = {"classification": "lstm_classifier", "language_model": "lstm_lm"}
"""The model of ours for each task on text."""


def refuse_misfit(model: Any, dataset: Any) -> None:
    """Raise unless the model reads what the data set holds: numbers, or text for its task; no torch.

    A data set of text has ``vocabulary_size`` and ``task`` (``classification`` or ``language_model``);
    a model of text has ``task``.

    Raises:
        ConfigError: Names the model and the data set.
    """
    if not callable(getattr(model, "build", None)):
        raise ConfigError(
            f"model: {type(model).__name__} has no method build(input_shape, classes) that returns a "
            "torch module"
        )
    name = model_name(model)
    reads, vocabulary = getattr(model, "task", None), getattr(dataset, "vocabulary_size", None)
    if vocabulary is None:
        if reads is not None:
            why = f"dataset={dataset.name} holds numbers and no text"
            raise ConfigError("model", name, "one that reads numbers (cnn, mlp, logistic)", why)
        if isinstance(model, ModelFactory):
            model.refuse_misfit(dataset.input_shape, dataset.classes)
        return
    task = getattr(dataset, "task", "classification")
    if reads != task:
        why = f"dataset={dataset.name} holds text for the task {task}"
        raise ConfigError("model", name, f"{_MODELS.get(task, task)} or another for its task", why)


def model_name(model: Any) -> str:
    """That of its YAML, or of its class where it is none of ours."""
    return getattr(model, "name", type(model).__name__)


def build_for(model: Any, dataset: Any) -> nn.Module:
    """The module for this data set; one of text also gets the size of the vocabulary, and one of features
    that are normalized by released statistics a first layer that does it.

    Raises:
        ConfigError: The model does not read what the data set holds.
    """
    refuse_misfit(model, dataset)
    shape, classes = dataset.input_shape, dataset.classes
    vocabulary = getattr(dataset, "vocabulary_size", None)
    if vocabulary is not None:
        return model.build(shape, classes, vocabulary)
    module = model.build(shape, classes)
    if getattr(dataset, "released_statistics", None) is None:
        return module
    from fedpriv.models.normalized import NormalizedInputs

    return NormalizedInputs(module, dataset.released_statistics.channels)


def model_size(model: Any, dataset: Any) -> int:
    """How many numbers the model has for this data set: it is built, which needs torch."""
    return sum(parameter.numel() for parameter in build_for(model, dataset).parameters())
