"""What every model factory shares: the initial weights are a function of the model's seed alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import Allowed, declared, field, own_check, random_seed
from fedpriv.common.random_streams import stream_key

if TYPE_CHECKING:
    from torch import nn

    from fedpriv.common.conflicts import Combination

_OF_TEXT = {"classification": "lstm_classifier", "language_model": "lstm_lm"}
"""The model of fedpriv for each task on text."""


@declared
class ModelFactory(ABC):
    """Builds one architecture for any input shape.

    Attributes:
        name: The name of the YAML, for messages; empty: that of the class.
        task: Of a model of text, what it does with it (``classification`` or ``language_model``); else None.
    """

    name: ClassVar[str] = ""
    task: ClassVar[str | None] = None

    seed: int = field(random_seed, help="seed of the initial weights")

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        """Refuse a data set that the model cannot read: text for a model of numbers, or for another task."""
        dataset, name = parts.dataset, model_name(self)
        if dataset.vocabulary_size is None:
            if self.task is None:
                self.refuse_misfit(dataset.input_shape, dataset.classes)
            else:
                why = f"dataset={dataset.name} holds numbers and no text"
                allowed = "one that reads numbers (cnn, mlp, logistic)"
                yield ConfigError("model", name, allowed, why)
        elif self.task != dataset.task:
            why = f"dataset={dataset.name} holds text for the task {dataset.task}"
            fitting = f"{_OF_TEXT.get(dataset.task, dataset.task)} or another for its task"
            yield ConfigError("model", name, fitting, why)

    def refuse_misfit(self, input_shape: tuple[int, ...], classes: int) -> None:
        """Raise ConfigError, which names ``model``, where it cannot read such records or tell so many classes
        apart; needs no torch. To override."""

    @abstractmethod
    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """A float32 module on the CPU reading ``[n, *input_shape]`` and giving ``[n, classes]``.

        The global random state of torch is neither read nor changed.

        Raises:
            ConfigError: The architecture cannot read this input; the error names ``model``.
        """

    def _seeded(self, make: Callable[[], nn.Module]) -> nn.Module:
        """``make()`` with torch's CPU generator set from the seed, then restored."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream_key(self.seed, "initial_weights"))
            return make()


def model_name(model: ModelFactory) -> str:
    """Return the name of the model's YAML, or of its class where it is none of fedpriv's."""
    return model.name or type(model).__name__


def one_number_of(options: Collection[int], allowed: str) -> Allowed:
    """Return the check of a choice among a few whole numbers."""

    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or value not in options:
            raise ArgumentError(name, value, allowed)
        return int(value)

    return own_check(check, allowed)


def inputs_per_record(input_shape: tuple[int, ...], model: str) -> int:
    """The number of values in one record.

    Raises:
        ConfigError: The shape is empty or has a dimension below 1.
    """
    size = 1
    for length in input_shape:
        size *= length
    if not input_shape or size < 1:
        raise ConfigError(
            "model", model, "one that fits the data", f"a record of shape {input_shape} is empty"
        )
    return size
