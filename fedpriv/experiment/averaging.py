"""The average of the released models, which is evaluated instead of the last one.

    ema     θ̄ ← d_n θ̄ + (1 - d_n) θ_t,   d_n = min(d, (1 + n)/(10 + n))
    tail    θ̄ = mean of θ_t

over the rounds t after the first ``start`` rounds, n of them so far; until then θ̄ = θ_t. The noise of
single rounds averages out. Every θ_t is a function of released values, so the average is post-processing:
it costs no privacy and changes no release. Training, schedules and audits go on with θ_t.

References:
    De et al., "Unlocking high-accuracy differentially private image classification through scale", 2022, for
    the moving average with d_n. Polyak and Juditsky, "Acceleration of stochastic approximation by averaging",
    1992, for the mean of the tail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError

if TYPE_CHECKING:
    import torch

    from fedpriv.engine import FlatModel

EMA, TAIL, NONE = "ema", "tail", "none"
DECAY = 0.99


@dataclass(frozen=True)
class Averaging:
    """The kind of average that is evaluated.

    Attributes:
        kind: ``ema`` or ``tail``.
        decay: d, the weight of the old average in a moving average.
        start: Number of rounds after which averaging begins.
    """

    kind: str
    decay: float
    start: int

    def describe(self) -> str:
        """Describe the average for the plan."""
        average = "the mean" if self.kind == TAIL else f"a moving average (decay {self.decay:g})"
        since = f" after round {self.start}" if self.start else ""
        return f"{average} of the released models{since}"


def averaging_of(kind: Any, decay: Any, start: Any, rounds: int | None) -> Averaging | None:
    """Return the average that ``averaging``, ``averaging_decay`` and ``averaging_start`` ask for.

    Args:
        kind: ``ema``, ``tail``, ``none`` or None.
        decay: d of the moving average; None for the default, and for the other kinds.
        start: Number of rounds after which averaging begins; None for 0. The tail has no default.
        rounds: T, below which ``start`` must be; None if only the budget ends the run.

    Returns:
        None if the last model is evaluated.

    Raises:
        ArgumentError: A value is not allowed.
    """
    kind = NONE if kind is None else checks.one_of("averaging", kind, (NONE, EMA, TAIL))
    if decay is not None and kind != EMA:
        raise ArgumentError("averaging_decay", decay, "null unless averaging=ema")
    if kind == NONE:
        if start is not None:
            raise ArgumentError("averaging_start", start, "null unless averaging is ema or tail")
        return None
    if start is None and kind == TAIL:
        allowed = "a whole number >= 0 with averaging=tail: after how many rounds the tail begins"
        raise ArgumentError("averaging_start", start, allowed)
    most = None if rounds is None else rounds - 1
    start = 0 if start is None else checks.whole("averaging_start", start, at_most=most)
    decay = DECAY if decay is None else checks.number("averaging_decay", decay, above=0, below=1)
    return Averaging(kind, decay, start)


class AveragedModel:
    """The average of the released models so far.

    Args:
        averaging: The kind of average.
        model: The model whose weights are observed; its weights at this moment are the first average.
    """

    def __init__(self, averaging: Averaging, model: FlatModel):
        self.averaging, self._model = averaging, model
        self._rounds = self._averaged = 0
        # In double precision: a weight of 1/n would be rounded away in long runs.
        self._mean = model.flat.double()

    @property
    def weights(self) -> torch.Tensor:
        """Averaged weights θ̄ [d]; until averaging begins, the weights of the last observed round."""
        return self._mean.to(self._model.flat.dtype)

    def observe(self) -> None:
        """Take in the global weights of the round that is over."""
        self._rounds += 1
        if self._rounds <= self.averaging.start:
            self._mean.copy_(self._model.flat)
            return
        self._averaged += 1
        n = self._averaged
        # With this decay the recursion is the mean of n models.
        decay = 1.0 - 1.0 / n
        if self.averaging.kind == EMA:
            # The first averaged model replaces what was copied before ``start``.
            decay = 0.0 if n == 1 else min(self.averaging.decay, (1.0 + n) / (10.0 + n))
        self._mean.mul_(decay).add_(self._model.flat, alpha=1.0 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the averaged weights within the context, and its own weights back afterwards."""
        global_weights = self._model.flat.clone()
        self._model.set(self.weights)
        try:
            yield
        finally:
            self._model.set(global_weights)

    def state_dict(self) -> dict[str, object]:
        """Return the average and the numbers of rounds."""
        return {"mean": self._mean.clone(), "rounds": self._rounds, "averaged": self._averaged}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Go on from a state that :meth:`state_dict` returned."""
        saved: Mapping[str, Any] = state
        self._mean.copy_(saved["mean"])
        self._rounds, self._averaged = saved["rounds"], saved["averaged"]
