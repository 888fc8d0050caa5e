"""A user's own torch module as the model of a run, named by ``model._target_`` alone.

The module gets from the data what its constructor asks for by name; see :data:`FROM_DATA`.
"""

from __future__ import annotations

import inspect
import math
import sys
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedpriv.common.errors import ConfigError, FedprivError, did_you_mean, show
from fedpriv.common.groups import options
from fedpriv.common.option_keys import keys_of_option
from fedpriv.models.base import ModelFactory

if TYPE_CHECKING:
    from torch import nn

FROM_DATA = {
    "input_shape": "input_shape",
    "inputs": "inputs",
    "in_features": "inputs",
    "classes": "classes",
    "num_classes": "classes",
    "n_classes": "classes",
    "vocabulary_size": "vocabulary_size",
}
"""Arguments of a module's constructor that follow from the data, unless the configuration sets them."""
SEED, ANY_TASK = "seed", "any"


class OwnModule(ModelFactory):
    """A factory that calls the constructor of a torch module.

    Args:
        network: Class of the module.
        settings: Keys of the group ``model``, without ``_target_``.

    Raises:
        ConfigError: The constructor does not take a key, or needs an argument that nothing gives.
    """

    def __init__(self, network: type[nn.Module], settings: Mapping[str, Any]):
        self._network = network
        # Without the key the weights follow from the global generators, which the run's seed determines.
        self._is_seeded = settings.get(SEED) is not None
        super().__init__(seed=settings[SEED] if self._is_seeded else 0)
        parameters = inspect.signature(network).parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self._arguments = {}
        for key, value in settings.items():
            if key in parameters:
                self._arguments[key] = value
            elif key == SEED or _is_default(key, value):
                continue  # it belongs to the option of the group in whose place the module stands
            elif takes_any:
                self._arguments[key] = value
            else:
                hint = did_you_mean(key, parameters, "; ")
                raise ConfigError(f"model: {network.__name__} takes no {key}{hint}; leave it out")
        self._from_data = {
            name: fact
            for name, fact in FROM_DATA.items()
            if name in parameters and name not in self._arguments
        }
        for name, parameter in parameters.items():
            usual = parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
            given = name in self._arguments or name in self._from_data
            if usual and parameter.default is parameter.empty and not given:
                names = ", ".join(FROM_DATA)
                raise ConfigError(
                    f"model: {network.__name__} needs {name}; add +model.{name}=VALUE, or give it a default "
                    f"(what follows from the data is called {names})"
                )

    def build(
        self, input_shape: tuple[int, ...], classes: int, vocabulary_size: int | None = None
    ) -> nn.Module:
        """Build the module and try it on two records of zeros.

        Raises:
            ConfigError: The module cannot read such records, or does not return a logit for each class.
        """
        facts = {
            "input_shape": tuple(input_shape),
            "inputs": math.prod(input_shape),
            "classes": classes,
            "vocabulary_size": vocabulary_size,
        }
        given = {name: facts[fact] for name, fact in self._from_data.items()}

        def make() -> nn.Module:
            return self._network(**self._arguments, **given)

        module = self._seeded(make) if self._is_seeded else make()
        if vocabulary_size is None:
            self._try(module, tuple(input_shape), classes)
        return module

    def _try(self, module: nn.Module, input_shape: tuple[int, ...], classes: int) -> None:
        import torch

        name, was_training = self._network.__name__, module.training
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                outputs = module.eval()(torch.zeros(2, *input_shape))
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ConfigError(
                f"model: {name} cannot read records of shape {input_shape}: {show(reason)}"
            ) from None
        except (FedprivError, MemoryError):
            raise
        except Exception as error:
            raise failure_of(
                f"{self.__module__}.{name}", "could not be tried, its forward failed", error
            ) from None
        finally:
            module.train(was_training)
        if not isinstance(outputs, torch.Tensor) or outputs.shape != (2, classes):
            raise ConfigError(
                f"model: {name} must return logits of shape [n, {classes}], one for each class, got "
                f"{_shape(outputs)} for n = 2"
            )


def failure_of(name: str, what: str, error: Exception) -> ConfigError:
    """Return the error for code of a user's own model that failed, with the line of the user's file.

    Args:
        name: Full name of the model, module first.
        what: What failed.
        error: The error that the code raised.
    """
    module = sys.modules.get(name.rpartition(".")[0])
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename == getattr(module, "__file__", None)]
    place = "".join(f" ({f.filename}, line {f.lineno})" for f in (own or frames)[-1:])
    reason = " ".join(str(error).split())
    return ConfigError(f"model: {name} {what}: {type(error).__name__}: {reason}{place}")


def factory_of(target: object, settings: Mapping[str, object]) -> ModelFactory | None:
    """Return the factory of a torch module; None if ``target`` is not the class of one.

    Args:
        target: What ``model._target_`` names.
        settings: The other keys of the group ``model``.

    Raises:
        ConfigError: The constructor of the module does not fit the keys.
    """
    if "torch" not in sys.modules or not isinstance(target, type):
        return None
    from torch import nn

    if not issubclass(target, nn.Module) or hasattr(target, "build"):
        return None
    # The class counts as the user's own and is called by the module's name.
    facts = {"__module__": target.__module__, "task": getattr(target, "task", ANY_TASK)}
    kind: type[OwnModule] = type(target.__name__, (OwnModule,), facts)
    return kind(target, settings)


def _is_default(key: str, value: object) -> bool:
    """Return whether an option of fedpriv's own models has this key with this default."""
    return any(
        known.name == f"model.{key}" or known.name == key
        for option, _ in options("model")
        for known in keys_of_option("model", option)
        if known.default == show(value)
    )


def _shape(outputs: Any) -> str:
    return str(list(outputs.shape)) if hasattr(outputs, "shape") else f"a {type(outputs).__name__}"
