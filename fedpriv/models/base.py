"""What every model factory shares: the initial weights are a function of the model's seed alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from fedpriv.common import checks
from fedpriv.common.errors import ConfigError
from fedpriv.common.random_streams import stream_key

if TYPE_CHECKING:
    from torch import nn


class ModelFactory(ABC):
    """Builds one architecture for any input shape.

    Args:
        seed: Seed of the initial weights (config key ``model.seed``).

    Attributes:
        name: The name of the YAML, for messages; empty: that of the class.
        task: Of a model of text, what it does with it (see :mod:`fedpriv.models.fit`); else None.

    Raises:
        ArgumentError: ``seed`` is not a whole number from 0 to 2^63 - 1.
    """

    name: ClassVar[str] = ""
    task: ClassVar[str | None] = None

    def __init__(self, seed: int):
        self.seed = checks.seed("seed", seed)

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


def flag(name: str, value: bool | None) -> bool:
    """A switch whose None is no: a key that came later leaves the runs before it what they are. Raises
    ArgumentError."""
    return False if value is None else checks.boolean(name, value)


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
