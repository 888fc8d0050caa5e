"""Functions that build a model for a data set."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.random_streams import seeded_globals
from fedpriv.data.base import Dataset
from fedpriv.models.base import ModelFactory
from fedpriv.models.own_module import failure_of

if TYPE_CHECKING:
    from torch import nn


def seeded_for(target: str, seed: int) -> AbstractContextManager[None]:
    """Return a context in which a model of this class is constructed and built.

    For a class of the user's own, the context sets the global random generators from the run's public
    ``seed``. Every process then builds the same model. Models of fedpriv do not use the global generators.

    Args:
        target: Full name of the class, module first.
        seed: Public seed of the run.
    """
    is_fedpriv_model = target.startswith("fedpriv.")
    return nullcontext() if is_fedpriv_model else seeded_globals(seed, "own_model")


def build_for(model: ModelFactory, dataset: Dataset, seed: int = 0) -> nn.Module:
    """Build the model for a data set.

    A text model also gets the size of the vocabulary. If the clients release statistics of the features, a
    first layer that normalizes by these statistics is added. The starting point is that of the module without
    this layer.

    Args:
        model: Factory of the model.
        dataset: Data set; only its shapes are read, not its records.
        seed: Public seed of the run, which determines the initial weights of a user's own model.

    Raises:
        ConfigError: The model does not fit the data, or its code fails.
    """
    facts: tuple[Any, ...] = dataset.input_shape, dataset.classes
    if dataset.vocabulary_size is not None:
        # The build method of a text model has one more argument.
        facts += (dataset.vocabulary_size,)
    module = _built(model, lambda: model.build(*facts), seed)
    if model.starting_point is not None:
        model.starting_point(module)
    if dataset.released_statistics is None:
        return module
    from fedpriv.models.normalized import NormalizedInputs

    return NormalizedInputs(module, dataset.released_statistics.channels)


def _built(model: ModelFactory, build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return the result of ``build``, for a user's own model with the run's seed and errors in words."""
    kind = type(model).__module__ + "."
    if kind.startswith("fedpriv."):
        return build()
    from torch.nn.parameter import is_lazy

    try:
        with seeded_for(kind, seed):
            module = build()
    except (FedprivError, MemoryError):
        raise
    except Exception as error:
        raise failure_of(kind + type(model).__name__, "could not be built", error) from None
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and str(parameter.dtype) != "torch.float32":
            raise ConfigError(
                f"model: fedpriv trains in float32, and {name} is {parameter.dtype}; "
                "leave out .half(), .double() and .to(dtype), or freeze it by requires_grad_(False)"
            )
        if not is_lazy(parameter) and not parameter.numel():
            raise ConfigError(
                f"model: {kind}{type(model).__name__} could not be built: its parameter {name} has no "
                f"elements, shape {list(parameter.shape)}; every layer needs a width >= 1"
            )
    return module


def model_size(model: ModelFactory, dataset: Dataset) -> int:
    """Return the number of parameters that train, for this data set. This builds the model and needs torch.

    Raises:
        ConfigError: The model does not fit the data.
    """
    return sum(p.numel() for p in build_for(model, dataset).parameters() if p.requires_grad)
