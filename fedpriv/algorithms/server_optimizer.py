"""The settings of the server's optimiser, which moves the weights by a released mean g.

    sgd          θ ← θ - η g
    momentum     v ← μ v + g;                                   θ ← θ - η v
    adagrad      m ← β₁ m + (1 - β₁) g;  v ← v + g²;            θ ← θ - η m / (√v + ε)
    adam         m ← β₁ m + (1 - β₁) g;  v ← β₂ v + (1 - β₂) g²;  m̂ = m / (1 - β₁ᵗ), v̂ = v / (1 - β₂ᵗ)
                                                                 θ ← θ - η m̂ / (√v̂ + ε)
    dp_adam_bc   as adam, with                                   θ ← θ - η m̂ / √max(v̂ - Φ, γ)

Where clients upload changes of weights, g is minus their mean. With these, DP-FedAvg is FedAvgM (Hsu, Qi,
Brown 2019), FedAdagrad and FedAdam (Reddi et al., "Adaptive federated optimization", ICLR 2021), except that
Reddi et al. leave out the corrections 1 - βᵗ of Adam; ε is their τ, η their η_s.

Φ is the variance of the noise in one coordinate of g, (σ C / denominator)²: the noise lifts v̂ by as much, so
that plain Adam is close to momentum with a small step (Tang, Shpilevskiy, Lécuyer, "DP-AdamBC", AAAI 2024).
Φ follows from noise multiplier, clip norm and denominator, which are public. So all of these optimisers are
functions of released and public values: they cost no privacy and leave the ledger as it is. The settings are
importable without torch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import Allowed, argument_of, declared, field, number, one_of, or_null

if TYPE_CHECKING:
    from fedpriv.algorithms.optimizers import Optimizer
    from fedpriv.engine import FlatModel

_DEFAULTS: dict[str, dict[str, float]] = {
    "sgd": {},
    "momentum": {"momentum": 0.9},
    "adagrad": {"beta1": 0.0, "optimizer_epsilon": 1e-8, "initial_accumulator": 0.0},
    "adam": {"beta1": 0.9, "beta2": 0.999, "optimizer_epsilon": 1e-8},
    "dp_adam_bc": {"beta1": 0.9, "beta2": 0.999, "second_moment_floor": 1e-8},
}
"""Keys of each optimiser, with their defaults."""
SERVER_OPTIMIZERS = tuple(_DEFAULTS)
_SHARE = number(at_least=0, below=1)


def _key(unit: str, help: str, check: Allowed) -> Any:
    """Declare an argument that only some optimisers have; null is the optimiser's default."""

    def validate(name: str, value: Any, part: Any) -> Any:
        chosen = argument_of(part, "optimizer")
        owners = [optimizer for optimizer, keys in _DEFAULTS.items() if name in keys]
        if chosen in _DEFAULTS and chosen not in owners:
            raise ArgumentError(name, value, f"null unless optimizer is {', '.join(owners)}")
        check(name, value, part)
        return value

    allowed = or_null(replace(check, validate=validate))
    return field(allowed, default=None, kw_only=True, unit=unit, help=help)


@declared
class ServerOptimizerKeys:
    """Mixin of algorithms whose server has an optimiser: the arguments that only some optimisers have.

    Attributes:
        momentum: μ of ``momentum``.
        beta1: β₁ of ``adam``, ``dp_adam_bc`` and ``adagrad``.
        beta2: β₂ of ``adam`` and ``dp_adam_bc``.
        optimizer_epsilon: ε of ``adam`` and ``adagrad``.
        initial_accumulator: Sum of squares with which ``adagrad`` begins.
        second_moment_floor: γ of ``dp_adam_bc``.
    """

    momentum: float | None = _key("μ", "optimizer=momentum: its momentum; null: 0.9", _SHARE)
    beta1: float | None = _key(
        "β₁", "adam, dp_adam_bc: decay of the mean, null: 0.9; adagrad: null: 0", _SHARE
    )
    beta2: float | None = _key(
        "β₂", "adam, dp_adam_bc: decay of the second moment; null: 0.999", _SHARE
    )
    optimizer_epsilon: float | None = _key(
        "ε", "adam, adagrad: added to the root of the second moment; null: 1e-8", number(at_least=0)
    )
    initial_accumulator: float | None = _key(
        "", "adagrad: initial sum of squares; null: 0", number(at_least=0)
    )
    second_moment_floor: float | None = _key(
        "γ", "dp_adam_bc: least second moment without the noise; null: 1e-8", number(above=0)
    )

    def server_optimizer(self, name: str, learning_rate: float) -> ServerOptimizer:
        """Return the settings of the server's optimiser with these keys.

        Args:
            name: One of ``SERVER_OPTIMIZERS``.
            learning_rate: η.

        Raises:
            ArgumentError: A key is given that the optimiser does not have.
        """
        return ServerOptimizer(
            optimizer=name,
            learning_rate=learning_rate,
            momentum=self.momentum,
            beta1=self.beta1,
            beta2=self.beta2,
            optimizer_epsilon=self.optimizer_epsilon,
            initial_accumulator=self.initial_accumulator,
            second_moment_floor=self.second_moment_floor,
        )


@declared
class ServerOptimizer(ServerOptimizerKeys):
    """The settings of the server's optimiser; the formulas are in the module.

    Attributes:
        name: One of ``SERVER_OPTIMIZERS``.
        learning_rate: η.

    Example:
        >>> optimizer = ServerOptimizer(optimizer="momentum", learning_rate=0.5)
        >>> optimizer.values
        {'momentum': 0.9}
    """

    name: str = field(one_of(SERVER_OPTIMIZERS), alias="optimizer", help="optimizer of the server")
    learning_rate: float = field(number(above=0), unit="η", help="learning rate of the server")

    @property
    def values(self) -> dict[str, float]:
        """Values of the optimiser's own keys, with the defaults of those that are not given."""
        defaults = _DEFAULTS[self.name]
        given = {key: getattr(self, key) for key in defaults}
        return {key: defaults[key] if v is None else float(v) for key, v in given.items()}

    def make(self, model: FlatModel) -> Optimizer:
        """Return the optimiser itself, with the state of one holder: the server.

        Args:
            model: The global model, for size and device of the state.
        """
        from fedpriv.algorithms import optimizers

        kinds = {
            "momentum": optimizers.Momentum,
            "adagrad": optimizers.Adagrad,
            "adam": optimizers.Adam,
            "dp_adam_bc": optimizers.AdamWithoutNoise,
        }
        if self.name == "sgd":
            return optimizers.Sgd(self.learning_rate)
        return kinds[self.name](self.learning_rate, 1, model.size, model.device, **self.values)

    def describe(self) -> str:
        """Describe the optimiser for the plan, with the keys that are not at their default."""
        defaults = _DEFAULTS[self.name]
        changed = {k: v for k, v in self.values.items() if v != defaults[k]}
        phrases = [self.name, f"learning rate {self.learning_rate:g}"]
        return ", ".join(phrases + [f"{key.replace('_', ' ')} {v:g}" for key, v in changed.items()])
