"""Base class of model factories. The initial weights are a function of the model's seed alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, ClassVar

from fedpriv.common.base_classes import fact
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import Allowed, declared, field, own_check, random_seed
from fedpriv.common.random_streams import stream_key

if TYPE_CHECKING:
    from torch import nn


@declared
class ModelFactory(ABC):
    """A factory that builds one architecture for any input shape.

    The module that ``build`` returns may bring its own loss, accuracy and random records: see
    :class:`fedpriv.engine.FlatModel`.

    Attributes:
        name: Name of the config option, for messages; if empty, messages show the class name.
        task: Task of a text model (``classification`` or ``language_model``); None for other models.

    Example:
        >>> from fedpriv.models import Mlp
        >>> module = Mlp(seed=0, hidden=4).build(input_shape=(1, 8, 8), classes=10)
        >>> sum(parameter.numel() for parameter in module.parameters())
        310
    """

    name: ClassVar[str] = ""
    task: ClassVar[str | None] = None

    seed: int = field(random_seed, help="seed of the initial weights")

    @fact
    def starting_point(self) -> Callable[[nn.Module], None] | None:
        """Function that sets weights of a built module and freezes parameters; None, the default: none."""
        return None

    def refuse_misfit(self, input_shape: tuple[int, ...], classes: int) -> None:
        """Raise ConfigError if the model cannot read such records or distinguish so many classes.

        The default refuses nothing; a subclass overrides it if it cannot read every shape. The method needs
        no torch, because a dry run calls it.

        Args:
            input_shape: Shape of one record.
            classes: Number of classes.

        Raises:
            ConfigError: The model does not fit the data; the error names ``model``.
        """

    @abstractmethod
    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network with its initial weights.

        The global random state of torch is neither read nor changed.

        Args:
            input_shape: Shape of one record, for example ``(channels, height, width)``.
            classes: Number of classes.

        Returns:
            A float32 module on the CPU that maps ``[n, *input_shape]`` to logits ``[n, classes]``.

        Raises:
            ConfigError: The architecture cannot read this input; the error names ``model``.
        """

    def _seeded(self, make: Callable[[], nn.Module]) -> nn.Module:
        """Return ``make()``, run with torch's CPU generator set from the seed and restored afterwards."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream_key(self.seed, "initial_weights"))
            return make()


def model_name(model: ModelFactory) -> str:
    """Return the name of the model's config option, or the class name of a user's own model."""
    return model.name or type(model).__name__


def one_number_of(options: Collection[int], allowed: str) -> Allowed:
    """Return a check that accepts a few whole numbers only."""

    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or value not in options:
            raise ArgumentError(name, value, allowed)
        return int(value)

    return own_check(check, allowed)


def refuse_small_images(
    model: str, input_shape: tuple[int, ...], smallest: int, reads: str = "images"
) -> None:
    """Raise ConfigError unless a record is an image with sides of at least ``smallest`` pixels."""
    if len(input_shape) != 3 or input_shape[0] < 1 or min(input_shape[1:]) < smallest:
        requirement = f"it reads {reads} with sides of at least {smallest}"
        hint = f"{requirement}, a record has shape {tuple(input_shape)}{channels_hint(input_shape)}"
        raise ConfigError("model", model, "one that fits the data", hint)


def channels_hint(shape: tuple[int, ...]) -> str:
    """Return a hint for records that look like images with the channels last; else an empty text."""
    last = len(shape) == 3 and shape[2] in (1, 3, 4) and shape[0] > 4
    return "; channels come first: numpy.moveaxis(images, -1, 1)" if last else ""


def inputs_per_record(input_shape: tuple[int, ...], model: str) -> int:
    """Return the number of values in one record.

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
