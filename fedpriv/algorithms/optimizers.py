"""Optimisers over stacked holders: row k of every [m, d] tensor belongs to one client (or to the server)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from fedpriv.common.errors import ConfigError
from fedpriv.common.saved import Saved


class Optimizer(Protocol):
    """Turns each participant's gradient into a change of its weights."""

    def begin_round(self, clients: Tensor) -> None:
        """Called before the first local step of a round for ``clients`` [m] (int64)."""

    def step(self, clients: Tensor, gradients: Tensor) -> Tensor:
        """The change of weights [m, d] for gradients [m, d]; may overwrite ``gradients``."""

    def state_dict(self) -> dict[str, object]: ...

    def load_state_dict(self, state: Mapping[str, object]) -> None: ...


class NoOptimizer(Saved):
    """Δ = what was released: the server takes it as it is."""

    def begin_round(self, clients: Tensor) -> None:
        pass

    def step(self, clients: Tensor, gradients: Tensor) -> Tensor:
        return gradients


class OfChanges:
    """An optimiser that takes changes of weights: their negative stands for the gradient."""

    def __init__(self, optimizer: Optimizer):
        self._optimizer = optimizer
        self.begin_round = optimizer.begin_round
        self.observe_noise = getattr(optimizer, "observe_noise", None)
        self.state_dict, self.load_state_dict = optimizer.state_dict, optimizer.load_state_dict

    def step(self, clients: Tensor, gradients: Tensor) -> Tensor:
        return self._optimizer.step(clients, gradients.mul_(-1))


class Decayed:
    """An optimiser of clients whose learning rate falls by a factor γ from round to round of the run:
    η_t = η γ^(t-1), t = 1, 2, …, the same for all clients and for all local steps of a round."""

    def __init__(self, optimizer: Optimizer, factor: float):
        self._optimizer, self._factor = optimizer, factor
        self._rounds = 0

    def begin_round(self, clients: Tensor) -> None:
        self._rounds += 1
        self._optimizer.begin_round(clients)

    def step(self, clients: Tensor, gradients: Tensor) -> Tensor:
        change = self._optimizer.step(clients, gradients)  # proportional to η
        return change.mul_(self._factor ** (self._rounds - 1))

    def state_dict(self) -> dict[str, object]:
        return {"rounds": torch.tensor(self._rounds), "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        saved: Mapping[str, Any] = state
        self._rounds = int(saved["rounds"])
        self._optimizer.load_state_dict(saved["optimizer"])


class Sgd(Saved):
    """Δ = -η g."""

    def __init__(self, learning_rate: float):
        self.learning_rate = learning_rate

    def begin_round(self, clients: Tensor) -> None:
        pass

    def step(self, clients: Tensor, gradients: Tensor) -> Tensor:
        return gradients.mul_(-self.learning_rate)


class Momentum(Saved):
    """v ← μ v + g;  Δ = -η v, for the one holder that a server is (v: [1, d])."""

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
    """m ← β₁ m + (1 - β₁) g;  v ← v + g²;  Δ = -η m / (√v + ε), for one holder (m, v: [1, d])."""

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
        # 0/0 where every gradient was zero so far
        return (
            torch.div(self._first, roots, out=roots).nan_to_num_(nan=0.0).mul_(-self.learning_rate)
        )


class Adam(Saved):
    """Adam (Kingma & Ba 2015) with moments [K, d] per client.

    The step count is the client's own, so a client that sits out a round does not age.
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
            own = clients.to(self._first.device)
            self._first[own] = 0.0
            self._second[own] = 0.0
            self._steps[clients.cpu()] = 0.0

    def step(self, clients: Tensor, gradients: Tensor) -> Tensor:
        everyone = len(clients) == len(self._steps)
        own = clients.to(self._first.device)
        first = self._first if everyone else self._first[own]
        second = self._second if everyone else self._second[own]
        first.lerp_(gradients, 1.0 - self.beta1)
        second.mul_(self.beta2).addcmul_(gradients, gradients, value=1.0 - self.beta2)
        self._steps[clients.cpu()] += 1.0
        steps = self._steps[clients.cpu()]
        # Δ = -η (m / (1 - β1^t)) / (√(v / (1 - β2^t)) + ε)
        scale1 = self._column(-self.learning_rate / (1.0 - self.beta1**steps), gradients)
        scale2 = self._column((1.0 - self.beta2**steps).rsqrt(), gradients)
        change = self._root(second, scale2, gradients)
        torch.div(first, change, out=change).mul_(scale1)
        if not everyone:
            self._first[own] = first
            self._second[own] = second
        return change

    def _root(self, second: Tensor, scale: Tensor, out: Tensor) -> Tensor:
        """What the first moment is divided by: √v̂ + ε = √v · scale + ε."""
        return torch.sqrt(second, out=out).mul_(scale).add_(self.epsilon)

    @staticmethod
    def _column(values: Tensor, like: Tensor) -> Tensor:
        return values.to(device=like.device, dtype=like.dtype)[:, None]


class AdamWithoutNoise(Adam):
    """Adam whose second moment is that of the mean without its noise: Δ = -η m̂ / √max(v̂ - Φ, γ) (Tang,
    Shpilevskiy, Lécuyer 2024, DP-AdamBC). Φ_t is averaged over rounds as g² is, so that it may move."""

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
        """The standard deviation [1, 1] or [1, d] of the noise in the gradient of the next step: public."""
        if std.shape[1] > self._noise.shape[1]:
            self._noise = self._noise.expand(-1, std.shape[1]).clone()
        self._noise.lerp_(std.double().square(), 1.0 - self.beta2)

    def _root(self, second: Tensor, scale: Tensor, out: Tensor) -> Tensor:
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
    """Raise ConfigError about ``key=value`` where so many copies of the model for each client do not fit."""
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
