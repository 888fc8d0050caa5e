"""Many copies of a model, each with its own weights, trained side by side.

A chain of linear layers and pointwise functions is computed for all clients at once
(:mod:`fedpriv.engine.chain`); any other model client by client, which for convolutions is as fast as
it gets on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from fedpriv.engine import chain
from fedpriv.engine.base import switch_off_inplace
from fedpriv.engine.flat_model import FlatModel, Loss
from fedpriv.engine.interface import ClippedSums, Copies, Engine, Factors
from fedpriv.engine.lots import BLOCK_RECORDS, PIECE
from fedpriv.engine.make import make_engine
from fedpriv.engine.norms import total_above
from fedpriv.engine.parts import asking_for


class _Lots(NamedTuple):
    """Weights [c, d] of c clients, records [c, b, …] with targets [c, b, …], and which count [c, b]."""

    weights: Tensor
    inputs: Tensor
    targets: Tensor
    present: Tensor


class StackedModel:
    """Gradients of c models of one architecture at weights [c, d], one for each client.

    Args:
        model: The architecture; its own weights are left as they are. Modules are switched off
            in-place activation, which would overwrite what a layer gave.
        loss: (outputs, targets) → loss of each record [n]; None: the model's.
        engine: The engine of this model, for per-record clipping where clients go one by one: other
            than a chain, or an engine that is not ``fast``. None: one is made when it is needed.
    """

    def __init__(self, model: FlatModel, loss: Loss | None = None, engine: Engine | None = None):
        self.model, self.loss = model, model.loss if loss is None else loss
        self.batched = not model.isolated and chain.is_chain(model.module)
        self._engine = engine
        switch_off_inplace(model.module)

    def gradients(
        self, weights: Tensor, inputs: Tensor, targets: Tensor, present: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of the mean loss of each client over its records, λ/2 ‖θ_k‖² included.

        Args:
            weights: Of each client [c, d].
            inputs, targets: Records of each client [c, b, …], [c, b].
            present: Which of them count [c, b]; a client without any has a zero gradient.

        Returns:
            (gradients [c, d], losses [c, b], zero where absent).
        """
        lots = _Lots(weights, _without_absent(inputs, present), targets, present)
        share = present / present.sum(1, keepdim=True).clamp_min(1)
        if self.batched:
            losses, products, found = self._back(lots, share)
            gradients = _sums(lots, products, found)
        else:
            gradients, losses = self._one_by_one(lots, share)
        decay = self.model.weight_decay
        if decay:
            taking_part = present.any(1, keepdim=True)
            gradients.addcmul_(weights, taking_part.to(weights.dtype), value=decay)
            losses = torch.where(present, losses + self.model.penalty(weights)[:, None], losses)
        return gradients, losses

    def clipped_sums(
        self,
        weights: Tensor,
        inputs: Tensor,
        targets: Tensor,
        present: Tensor,
        factors: Factors | None,
    ) -> ClippedSums:
        """Clipped sums of the records' gradients of each client at its own weights.

        As :meth:`fedpriv.engine.interface.Engine.clipped_sums`, where all clients share weights: λ is
        not in them. The n records that are present count, client after client.

        Args:
            weights: Of each client [c, d].
            inputs, targets: Records of each client [c, b, …], [c, b].
            present: Which of them count [c, b].
            factors: Scale of each record [n], given its norm [n] and client [n]; None as there.

        Raises:
            ConfigError: The model has no per-record gradients.
        """
        together = (
            self.batched
            and (self._engine is None or self._engine.name == "fast")
            and chain.sees_one_row(cast("nn.Sequential", self.model.module), inputs.dim() - 2)
            and 0 < inputs.shape[1] <= BLOCK_RECORDS
        )
        if not together:
            lots = ((inputs[k][own], targets[k][own]) for k, own in enumerate(present))
            return self.clipped_apart(weights, lots, factors)
        inputs = _without_absent(inputs, present)
        return self._clipped_together(_Lots(weights, inputs, targets, present), factors)

    def clipped_apart(
        self,
        weights: Tensor,
        lots: Iterable[tuple[Tensor | Copies, Tensor]],
        factors: Factors | None,
    ) -> ClippedSums:
        """The same for clients that go through the engine one by one, whatever their records are to it.

        Args:
            weights: Of each client [c, d].
            lots: (inputs, targets) of each client.
            factors: As above.

        Raises:
            ConfigError: The model has no per-record gradients.
        """
        if self._engine is None:
            self._engine = make_engine(self.model, self.loss)

        def of(client: int) -> Factors | None:
            if factors is None:
                return None
            own = lambda norms, clients: factors(norms, clients + client)  # noqa: E731
            return asking_for(getattr(factors, "parts", None), own)

        results = []
        with self._weights_kept():
            for k, (inputs, targets) in enumerate(lots):
                self.model.set(weights[k])
                client = torch.zeros(len(targets), dtype=torch.int64)
                results.append(self._engine.clipped_sums(inputs, targets, client, 1, of(k)))
        return ClippedSums(
            sums=torch.cat([r.sums for r in results]),
            norms=torch.cat([r.norms for r in results]),
            losses=torch.cat([r.losses for r in results]),
            finite=torch.cat([r.finite for r in results]),
        )

    def _clipped_together(self, lots: _Lots, factors: Factors | None) -> ClippedSums:
        padded_losses, products, found = self._back(lots)
        present = lots.present
        with torch.no_grad():
            losses = padded_losses[present]
            norms, finite = losses.new_zeros(0), losses.isfinite()
            if factors is not None:
                pairs = list(zip(products, found, strict=True))
                squares = [product.squared_norms(g) for product, g in pairs]
                parts, own = getattr(factors, "parts", None), [0] * len(products)
                if parts is None:
                    norms = total_above(squares)[present]
                    finite = finite & norms.isfinite()
                    broken = ~finite
                else:
                    own = [parts.part_at(product.weight.start) for product in products]
                    norms = _of_parts(squares, own, len(parts))[present]
                    finite = finite & norms.sum(1).isfinite()
                    broken = ~finite[:, None]
                scale = padded_losses.new_zeros(*present.shape, *norms.shape[1:])
                scale[present] = factors(norms, present.nonzero()[:, 0]).masked_fill(broken, 0)
                products, found = _without_broken(products, found, present, finite)
                scales = [scale] if parts is None else scale.unbind(2)
                found = tuple(g * scales[k][:, :, None] for g, k in zip(found, own, strict=True))
            return ClippedSums(_sums_in_pieces(lots, products, found), norms, losses, finite)

    def _back(
        self, lots: _Lots, share: Tensor | None = None
    ) -> tuple[Tensor, list[chain.Product], tuple[Tensor, ...]]:
        """(losses [c, b], zero where absent; products; the gradient of the losses' sum, each times its
        ``share``, with respect to what each product gave)."""
        with torch.enable_grad():
            module = cast("nn.Sequential", self.model.module)
            outputs, products = chain.forward(module, lots.weights.detach(), lots.inputs)
            losses = self.loss(outputs.flatten(0, 1), lots.targets.flatten())
            losses = losses.view(lots.targets.shape).masked_fill(~lots.present, 0.0)
            total = (losses if share is None else losses * share).sum()
            found = torch.autograd.grad(total, [product.gave for product in products])
        return losses.detach(), products, found

    def _one_by_one(self, lots: _Lots, share: Tensor) -> tuple[Tensor, Tensor]:
        weights, inputs, targets, present = lots
        gradients, losses = torch.zeros_like(weights), torch.zeros_like(share)
        parameters = self.model.parameters()
        trained = [p for p in parameters if p.requires_grad]
        rows = gradients.split([p.numel() for p in parameters], dim=1)
        rows = [row for row, p in zip(rows, parameters, strict=True) if p.requires_grad]
        counts = present.sum(1).tolist()
        with self._weights_kept(), torch.enable_grad():
            for k, count in enumerate(counts):
                if count == 0:
                    continue
                own = slice(None) if count == present.shape[1] else present[k]
                if self.model.isolated:
                    batch = (inputs[k][own], targets[k][own], share[k][own])
                    gradients[k], losses[k, own] = self.model.gradient_alone(
                        *batch, self.loss, weights[k]
                    )
                    continue
                self.model.set(weights[k])
                found = self.loss(self.model(inputs[k][own]), targets[k][own])
                total = (found * share[k][own]).sum()
                grads = torch.autograd.grad(total, trained, allow_unused=True)
                for row, g in zip(rows, grads, strict=True):
                    if g is not None:
                        row[k] = g.flatten()
                losses[k, own] = found.detach()
        return gradients, losses

    @contextmanager
    def _weights_kept(self) -> Iterator[None]:
        """The model has its own weights again afterwards."""
        before = self.model.flat.clone()
        try:
            yield
        finally:
            self.model.set(before)


def _of_parts(squares: list[Tensor], own: list[int], parts: int) -> Tensor:
    """Norms [c, b, G], from the squared norms [c, b] in layers, each of the part ``own``."""
    none = torch.zeros_like(squares[0])
    found = [[s for s, k in zip(squares, own, strict=True) if k == part] for part in range(parts)]
    return torch.stack([total_above(of or [none]) for of in found], dim=2)


def _without_absent(inputs: Tensor, present: Tensor) -> Tensor:
    """The inputs with zeros for records that are not there: what stands in for one may be nan."""
    if bool(present.all()):
        return inputs
    return inputs.masked_fill(~present.view(*present.shape, *[1] * (inputs.dim() - 2)), 0)


def _sums(lots: _Lots, products: list[chain.Product], found: tuple[Tensor, ...]) -> Tensor:
    """Gradients [c, d], from those with respect to what each product gave."""
    sums = torch.empty_like(lots.weights)
    for product, g in zip(products, found, strict=True):
        product.write_sums(g, sums)
    return sums


def _sums_in_pieces(
    lots: _Lots, products: list[chain.Product], found: tuple[Tensor, ...]
) -> Tensor:
    """The same; those of long lots in float64, added up piece by piece."""
    rows = lots.present.shape[1]
    if rows <= PIECE:
        return _sums(lots, products, found)
    total = torch.zeros_like(lots.weights, dtype=torch.float64)
    for first in range(0, rows, PIECE):
        own = slice(first, first + PIECE)
        parts = [product.rows(own) for product in products]
        total += _sums(lots, parts, tuple(g[:, own] for g in found))
    return total


def _without_broken(
    products: list[chain.Product], found: tuple[Tensor, ...], present: Tensor, finite: Tensor
) -> tuple[list[chain.Product], tuple[Tensor, ...]]:
    """Zeros for records whose gradient is not finite (``finite`` [n] of those present): a factor of 0
    would not do, for 0 · nan is nan. Asking whether there are any would make an accelerator wait."""
    if finite.device.type == "cpu" and bool(finite.all()):
        return products, found
    broken = torch.ones_like(present)
    broken[present] = ~finite
    products = [product.without(broken) for product in products]
    return products, tuple(g.masked_fill(broken[:, :, None], 0) for g in found)
