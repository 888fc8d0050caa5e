"""Building a model for a data set."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from fedpriv.common.errors import ConfigError
from fedpriv.common.exact import exact_digest
from fedpriv.common.random_streams import seeded_globals
from fedpriv.data.base import Dataset
from fedpriv.models.base import ModelFactory

if TYPE_CHECKING:
    from torch import nn


def seeded_for(target: str, seed: int) -> AbstractContextManager[None]:
    """Return the context in which a model of this class is made and built: where the class is the user's own,
    the global generators follow from the run's public ``seed``, in every process."""
    ours = target.startswith("fedpriv.")
    return nullcontext() if ours else seeded_globals(seed, "own_model")


def build_for(model: ModelFactory, dataset: Dataset, seed: int = 0) -> nn.Module:
    """The module for this data set; one of text also gets the size of the vocabulary, and one of features
    that are normalized by released statistics a first layer that does it. ``seed``: of the run, from which
    the initial weights of a model of the user's own follow.

    Raises:
        ConfigError: The model has other initial weights each time.
    """
    shape, classes = dataset.input_shape, dataset.classes
    if dataset.vocabulary_size is not None:
        build: Callable[..., nn.Module] = model.build  # that of a model of text takes one more
        return _built(model, lambda: build(shape, classes, dataset.vocabulary_size), seed)
    module = _built(model, lambda: model.build(shape, classes), seed)
    if dataset.released_statistics is None:
        return module
    from fedpriv.models.normalized import NormalizedInputs

    return NormalizedInputs(module, dataset.released_statistics.channels)


def _built(model: ModelFactory, build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return what ``build`` returns. A model of the user's own is built twice, and refused where its initial
    weights differ: such a run could be neither repeated nor resumed."""
    kind = type(model).__module__ + "."
    if kind.startswith("fedpriv."):
        return build()
    with seeded_for(kind, seed):
        module = build()
    with seeded_for(kind, seed):
        again = build()
    first, second = _initial_values(module), _initial_values(again)
    if differing := [name for name in {**first, **second} if first.get(name) != second.get(name)]:
        raise ConfigError(
            f"model: {type(model).__name__}.build must give the same initial weights whenever it is called, "
            f"and {differing[0]} differed the second time, with the same seeds of the global generators of "
            "torch, NumPy and Python; draw from these, or from a generator that build itself seeds"
        )
    return module


def _initial_values(module: nn.Module) -> dict[str, str]:
    """Return a digest of each parameter and buffer by name."""
    from torch.nn.parameter import is_lazy

    found = [*module.named_parameters(), *module.named_buffers()]
    return {name: exact_digest(values) for name, values in found if not is_lazy(values)}


def model_size(model: ModelFactory, dataset: Dataset) -> int:
    """How many numbers the model has for this data set: it is built, which needs torch."""
    return sum(parameter.numel() for parameter in build_for(model, dataset).parameters())
