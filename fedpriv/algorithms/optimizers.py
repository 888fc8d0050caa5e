"""Optimisers of the holders of clip norms: row k of every [m, d] tensor belongs to one client or the server.

An optimiser sees released values alone, so its state is post-processing and costs no privacy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from fedpriv.common.errors import ConfigError
from fedpriv.common.saved import Saved


class Optimizer(Protocol):
    """An optimiser of one or more holders.

    It may also have ``observe_noise(std)``, which is called before each step with the public standard
    deviation of the noise in the gradients, [m, 1] or [m, d].
    """

    def begin_round(self, clients: Tensor) -> None:
        """Prepare for the local steps of a round.

        Args:
            clients: Holders that take part [m], int64.
        """

    def step(self, clients: Tensor, gradients: Tensor) -> Tensor:
        """Turn mean gradients into changes of weights.

        Args:
            clients: Holders that take part [m], int64.
            gradients: Noised mean gradient of each holder [m, d]; may be overwritten.

        Returns:
            The change of each holder's weights [m, d].
        """

    def state_dict(self) -> dict[str, object]:
        """Return what the next round needs."""

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what :meth:`state_dict` returned."""


class NoOptimizer(Saved):
    """The identity Δ = g, where clients upload weights that the server takes as they are."""

    def begin_round(self, clients: Tensor) -> None:
        pass

    def step(self, clients: Tensor, gradients: Tensor) -> Tensor:
        return gradients


class OfChanges:
    """An optimiser whose input are changes of weights: minus the change takes the place of the gradient."""

    def __init__(self, optimizer: Optimizer):
        self._optimizer = optimizer
        self.begin_round = optimizer.begin_round
        self.observe_noise = getattr(optimizer, "observe_noise", None)
        self.state_dict, self.load_state_dict = optimizer.state_dict, optimizer.load_state_dict

    def step(self, clients: Tensor, gradients: Tensor) -> Tensor:
        return self._optimizer.step(clients, gradients.mul_(-1))


class Decayed:
    """An optimiser of clients whose learning rate falls by a factor from round to round of the run.

        η_t = η γ^(t-1),    t = 1, 2, …

    The rate is the same for all clients and for all local steps of a round.

    Args:
        optimizer: An optimiser whose changes are proportional to η.
        factor: γ.
    """

    def __init__(self, optimizer: Optimizer, factor: float):
        self._optimizer, self._factor = optimizer, factor
        self._rounds = 0

    def begin_round(self, clients: Tensor) -> None:
        self._rounds += 1
        self._optimizer.begin_round(clients)

    def step(self, clients: Tensor, gradients: Tensor) -> Tensor:
        change = self._optimizer.step(clients, gradients)
        return change.mul_(self._factor ** (self._rounds - 1))

    def state_dict(self) -> dict[str, object]:
        return {"rounds": torch.tensor(self._rounds), "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        saved: Mapping[str, Any] = state
        self._rounds = int(saved["rounds"])
        self._optimizer.load_state_dict(saved["optimizer"])


class Sgd(Saved):
    """Stochastic gradient descent, Δ = -η g."""

    def __init__(self, learning_rate: float):
        self.learning_rate = learning_rate

    def begin_round(self, clients: Tensor) -> None:
        pass

    def step(self, clients: Tensor, gradients: Tensor) -> Tensor:
        return gradients.mul_(-self.learning_rate)


class Momentum(Saved):
    """SGD with momentum for one holder, the server: v ← μ v + g;  Δ = -η v, with v [1, d].

    Args:
        learning_rate: η.
        clients: Number of holders: 1.
        size: d.
        device: Device of v, which is 0 at first.
        momentum: μ.
    """

    saved_attributes: ClassVar = {"velocity": "_velocity"}

    def __init__(
        self, learning_rate: float, clients: int, size: int, device: torch.device, momentum: float
    ):
        self.learning_rate, self.momentum = learning_rate, momentum
        self._velocity = torch.zeros(clients, size, device=device)

    def begin_round(self, clients: Tensor) -> None:
        pass

    def step(self, clients: Tensor, gradients: Tensor) -> Tensor:
        velocity = self._velocity.mul_(self.momentum).add_(gradients)
        return torch.mul(velocity, -self.learning_rate, out=gradients)


class Adagrad(Saved):
    """Adagrad with momentum for one holder, the server, with m and v [1, d].

        m ← β₁ m + (1 - β₁) g;   v ← v + g²;   Δ = -η m / (√v + ε)

    Source: Reddi et al., "Adaptive federated optimization", ICLR 2021, algorithm 2.
    """

    saved_attributes: ClassVar = {"first": "_first", "squares": "_squares"}

    def __init__(
        self,
        learning_rate: float,
        clients: int,
        size: int,
        device: torch.device,
        beta1: float,
        optimizer_epsilon: float,
        initial_accumulator: float,
    ):
        self.learning_rate, self.beta1, self.epsilon = learning_rate, beta1, optimizer_epsilon
        self._first = torch.zeros(clients, size, device=device)
        self._squares = torch.full_like(self._first, initial_accumulator)

    def begin_round(self, clients: Tensor) -> None:
        pass

    def step(self, clients: Tensor, gradients: Tensor) -> Tensor:
        self._first.lerp_(gradients, 1.0 - self.beta1)
        self._squares.addcmul_(gradients, gradients)
        roots = torch.sqrt(self._squares, out=gradients).add_(self.epsilon)
        # a coordinate whose gradients were all zero so far gives 0/0
        quotient = torch.div(self._first, roots, out=roots).nan_to_num_(nan=0.0)
        return quotient.mul_(-self.learning_rate)


class Adam(Saved):
    """Adam with moments [K, d], a row for each client.

        m ← β₁ m + (1 - β₁) g;   v ← β₂ v + (1 - β₂) g²;   m̂ = m/(1 - β₁ᵗ),   v̂ = v/(1 - β₂ᵗ)
        Δ = -η m̂ / (√v̂ + ε)

    t counts the steps of each client, so a client that does not take part in a round does not age.
    Source: Kingma, Ba, "Adam: a method for stochastic optimization", ICLR 2015.

    Args:
        learning_rate: η.
        clients: Number of holders K.
        size: Number of weights d.
        device: Device of the moments.
        reset: Whether a client's moments and steps begin anew in each round.
        beta1: β₁.
        beta2: β₂.
        optimizer_epsilon: ε.

    Raises:
        ConfigError: The moments do not fit into memory.
    """

    saved_attributes: ClassVar = {"first": "_first", "second": "_second", "steps": "_steps"}

    def __init__(
        self,
        learning_rate: float,
        clients: int,
        size: int,
        device: torch.device,
        reset: bool = False,
        beta1: float = 0.9,
        beta2: float = 0.999,
        optimizer_epsilon: float = 1e-8,
    ):
        refuse_if_too_large(clients, size, 2, device, "algorithm.optimizer", "adam", "Adam")
        self.learning_rate, self.reset = learning_rate, reset
        self.beta1, self.beta2, self.epsilon = beta1, beta2, optimizer_epsilon
        self._first = torch.zeros(clients, size, device=device)
        self._second = torch.zeros(clients, size, device=device)
        self._steps = torch.zeros(clients, dtype=torch.float64)

    def begin_round(self, clients: Tensor) -> None:
        if self.reset:
            rows = clients.to(self._first.device)
            self._first[rows] = 0.0
            self._second[rows] = 0.0
            self._steps[clients.cpu()] = 0.0

    def step(self, clients: Tensor, gradients: Tensor) -> Tensor:
        everyone = len(clients) == len(self._steps)  # then the moments need not be copied
        rows = clients.to(self._first.device)
        first = self._first if everyone else self._first[rows]
        second = self._second if everyone else self._second[rows]
        first.lerp_(gradients, 1.0 - self.beta1)
        second.mul_(self.beta2).addcmul_(gradients, gradients, value=1.0 - self.beta2)
        steps = self._steps if everyone else self._steps[clients.cpu()]
        steps += 1.0
        # Δ = m · scale1 / (√v · scale2 + ε): the corrections 1 - βᵗ are numbers of each client
        scale1 = (-self.learning_rate / (1.0 - self.beta1**steps)).to(gradients)[:, None]
        scale2 = (1.0 - self.beta2**steps).rsqrt().to(gradients)[:, None]
        change = self._denominator(second, scale2, gradients)
        torch.div(first, change, out=change).mul_(scale1)
        if not everyone:
            self._first[rows] = first
            self._second[rows] = second
            self._steps[clients.cpu()] = steps
        return change

    def _denominator(self, second: Tensor, scale: Tensor, out: Tensor) -> Tensor:
        """Return √v̂ + ε = √v · scale + ε, written into ``out``."""
        return torch.sqrt(second, out=out).mul_(scale).add_(self.epsilon)


class AdamWithoutNoise(Adam):
    """DP-AdamBC: Adam with the variance Φ of the noise subtracted from the second moment.

        Δ = -η m̂ / √max(v̂ - Φ, γ)

    Φ_t is averaged over rounds as g² is, so that the noise may change from round to round.
    Source: Tang, Shpilevskiy, Lécuyer, "DP-AdamBC: your DP-Adam is actually DP-SGD (unless you apply bias
    correction)", AAAI 2024.

    Args:
        learning_rate: η.
        clients: Number of holders.
        size: Number of weights d.
        device: Device of the moments.
        beta1: β₁.
        beta2: β₂.
        second_moment_floor: γ.
    """

    def __init__(
        self,
        learning_rate: float,
        clients: int,
        size: int,
        device: torch.device,
        beta1: float,
        beta2: float,
        second_moment_floor: float,
    ):
        super().__init__(learning_rate, clients, size, device, beta1=beta1, beta2=beta2)
        self.floor = second_moment_floor
        self._noise = torch.zeros(clients, 1, dtype=torch.float64, device=device)

    def observe_noise(self, std: Tensor) -> None:
        """Take note of the noise in the gradient of the next step.

        Args:
            std: Standard deviation of the noise [1, 1] or [1, d]; public.
        """
        if std.shape[1] > self._noise.shape[1]:
            self._noise = self._noise.expand(-1, std.shape[1]).clone()
        self._noise.lerp_(std.double().square(), 1.0 - self.beta2)

    def _denominator(self, second: Tensor, scale: Tensor, out: Tensor) -> Tensor:
        # in double precision: v̂ and Φ may agree in most of their digits
        moment = second.double().sub_(self._noise).mul_(scale.double().square())
        return out.copy_(moment.clamp_min_(self.floor).sqrt_())

    def state_dict(self) -> dict[str, object]:
        return {**super().state_dict(), "noise": self._noise.clone()}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        saved: Mapping[str, Any] = state
        super().load_state_dict(state)
        self._noise = saved["noise"].to(self._noise.device).clone()


def refuse_if_too_large(
    clients: int, size: int, copies: int, device: torch.device, key: str, value: str, name: str
) -> None:
    """Check that ``copies`` float32 vectors of the model's size for each client fit into free memory.

    Args:
        clients: Number of clients.
        size: Number of weights d.
        copies: Vectors of d numbers for each client.
        device: Device on which they would lie.
        key: Configuration key that the error names.
        value: Value of the key.
        name: Name of what keeps the vectors, for the message.

    Raises:
        ConfigError: They do not fit.
    """
    needed = clients * size * copies * 4
    if device.type == "cuda":
        available = torch.cuda.mem_get_info(device)[0]
    else:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    if needed > available:
        raise ConfigError(
            key,
            value,
            f"one whose state fits: {name} keeps {copies} x {size:,} numbers for each of {clients:,} clients",
            f"that is {needed / 2**30:.1f} GiB of {available / 2**30:.1f} GiB free; use sgd or "
            "fewer clients",
        )
