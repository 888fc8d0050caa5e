"""Many copies of a model, each with its own weights, trained side by side.

A chain of linear layers and pointwise functions is computed for all clients at once
(:mod:`fedpriv.engine.chain`). Any other model is computed client by client; for convolutions nothing is
faster on a CPU. On an accelerator other sequences of known layers are computed for all clients at once too
(:mod:`fedpriv.engine.vectorized`), unless their records are clipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from fedpriv.engine import chain, vectorized
from fedpriv.engine.base import switch_off_inplace
from fedpriv.engine.flat_model import FlatModel, Loss
from fedpriv.engine.interface import ClippedSums, Copies, Engine, Factors
from fedpriv.engine.lots import BLOCK_RECORDS, PIECE
from fedpriv.engine.make import make_engine
from fedpriv.engine.norms import total_above
from fedpriv.engine.parts import asking_for, part_norms


class _Lots(NamedTuple):
    """Lots of c clients with up to b records.

    Attributes:
        weights: Weights of each client [c, d].
        inputs: Inputs [c, b, …].
        targets: Targets [c, b, …].
        present: Mask of the records that count [c, b].
    """

    weights: Tensor
    inputs: Tensor
    targets: Tensor
    present: Tensor


class StackedModel:
    """Gradients of c models of one architecture at weights [c, d], a row for each client.

    Args:
        model: The architecture; its own weights are left as they are. In-place activation is switched off,
            because it would overwrite a layer's output.
        loss: (outputs, targets) → loss of each record [n]; None: the model's.
        engine: The engine of this model, for per-record clipping where clients go one by one: where the model
            is not a chain, or the engine is not ``fast``. None: one is made when it is needed.

    Attributes:
        model: As given.
        loss: The loss in use.
        batched: Whether all clients are computed at once.

    Example:
        >>> model = FlatModel(nn.Sequential(nn.Linear(3, 2)))
        >>> weights = torch.randn(5, model.size)  # of five clients
        >>> inputs, targets = torch.randn(5, 4, 3), torch.zeros(5, 4, dtype=torch.int64)
        >>> gradients, losses = StackedModel(model).gradients(weights, inputs, targets, targets == 0)
        >>> gradients.shape, losses.shape
        (torch.Size([5, 8]), torch.Size([5, 4]))
    """

    def __init__(self, model: FlatModel, loss: Loss | None = None, engine: Engine | None = None):
        self.model, self.loss = model, model.loss if loss is None else loss
        self.batched = chain.is_chain(model.module)
        self._engine = engine
        switch_off_inplace(model.module)

    def gradients(
        self, weights: Tensor, inputs: Tensor, targets: Tensor, present: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the gradient of each client's mean loss over its records, λ/2 ‖θ_k‖² included.

        Args:
            weights: Weights of each client [c, d].
            inputs: Inputs of each client [c, b, …].
            targets: Targets of each client [c, b, …].
            present: Mask of the records that count [c, b]; a client without any has a zero gradient.

        Returns:
            (gradients [c, d], losses [c, b], zero where absent).
        """
        lots = _Lots(weights, _without_absent(inputs, present), targets, present)
        share = present / present.sum(1, keepdim=True).clamp_min(1)
        if self.batched:
            losses, products, backprops = self._backward(lots, share)
            gradients = _sums(lots, products, backprops)
        elif weights.device.type != "cpu" and vectorized.is_vectorizable(self.model, self.loss):
            gradients, losses = vectorized.gradients(self.model, self.loss, *lots[:3], share)
            gradients.masked_fill_(~present.any(1, keepdim=True), 0.0)
            losses = losses.masked_fill(~present, 0.0)
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
        """Compute the clipped sum of each client's per-record gradients at its own weights.

        The method does what :meth:`fedpriv.engine.Engine.clipped_sums` does for clients that share weights;
        λ is not in the gradients. The n records that are present are numbered client after client.

        Args:
            weights: Weights of each client [c, d].
            inputs: Inputs of each client [c, b, …].
            targets: Targets of each client [c, b, …].
            present: Mask of the records that count [c, b].
            factors: Factor of each record [n], given its norm [n] and client [n]. None sums the gradients as
                they are and measures no norms.

        Returns:
            Sums [c, d], and norms, losses and finiteness of each present record [n].

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
            lots = ((inputs[k][mask], targets[k][mask]) for k, mask in enumerate(present))
            return self.clipped_apart(weights, lots, factors)
        inputs = _without_absent(inputs, present)
        return self._clipped_together(_Lots(weights, inputs, targets, present), factors)

    def clipped_apart(
        self,
        weights: Tensor,
        lots: Iterable[tuple[Tensor | Copies, Tensor]],
        factors: Factors | None,
    ) -> ClippedSums:
        """Compute each client's clipped sum by itself, through the engine, at the client's own weights.

        The model's weights are restored afterwards.

        Args:
            weights: Weights of each client [c, d].
            lots: (inputs, targets) of each client, in any form that the engine takes.
            factors: Factor of each record, as in :meth:`clipped_sums`.

        Returns:
            Sums [c, d], and norms, losses and finiteness of all records, client after client [n].

        Raises:
            ConfigError: The model has no per-record gradients.
        """
        if self._engine is None:
            self._engine = make_engine(self.model, self.loss)

        def factors_of(client: int) -> Factors | None:
            if factors is None:
                return None
            shifted = lambda norms, clients: factors(norms, clients + client)  # noqa: E731
            return asking_for(getattr(factors, "parts", None), shifted)

        results = []
        with self._weights_restored():
            for k, (inputs, targets) in enumerate(lots):
                self.model.set(weights[k])
                client = torch.zeros(len(targets), dtype=torch.int64)
                results.append(self._engine.clipped_sums(inputs, targets, client, 1, factors_of(k)))
        return ClippedSums(
            sums=torch.cat([r.sums for r in results]),
            norms=torch.cat([r.norms for r in results]),
            losses=torch.cat([r.losses for r in results]),
            finite=torch.cat([r.finite for r in results]),
        )

    def _clipped_together(self, lots: _Lots, factors: Factors | None) -> ClippedSums:
        """Compute clipped sums of a chain, whose layers see one row of each record."""
        padded_losses, products, backprops = self._backward(lots)
        present = lots.present
        with torch.no_grad():
            losses = padded_losses[present]
            norms, finite = losses.new_zeros(0), losses.isfinite()
            if factors is not None:
                # Norms and factors of the records that are present; absent ones keep the factor 0.
                squares = [
                    product.squared_norms(g) for product, g in zip(products, backprops, strict=True)
                ]
                parts, part_of_layer = getattr(factors, "parts", None), [0] * len(products)
                if parts is None:
                    norms = total_above(squares)[present]
                    finite = finite & norms.isfinite()
                    broken = ~finite
                else:
                    part_of_layer = [parts.part_at(product.weight.start) for product in products]
                    norms = part_norms(squares, part_of_layer, parts)[present]
                    finite = finite & norms.sum(1).isfinite()
                    broken = ~finite[:, None]
                scale = padded_losses.new_zeros(*present.shape, *norms.shape[1:])
                scale[present] = factors(norms, present.nonzero()[:, 0]).masked_fill(broken, 0)

                # Scaling the backprops of a record scales its gradient.
                products, backprops = _without_broken(products, backprops, present, finite)
                scales = [scale] if parts is None else scale.unbind(2)
                backprops = tuple(
                    g * scales[part][:, :, None]
                    for g, part in zip(backprops, part_of_layer, strict=True)
                )
            return ClippedSums(_sums_in_pieces(lots, products, backprops), norms, losses, finite)

    def _backward(
        self, lots: _Lots, share: Tensor | None = None
    ) -> tuple[Tensor, list[chain.Product], tuple[Tensor, ...]]:
        """Run a chain forward, and backward to the outputs of its products.

        Args:
            lots: The clients' weights and records.
            share: Weight of each record's loss in the sum [c, b]; None: 1.

        Returns:
            (losses [c, b], zero where absent; the products; the gradient of the losses' sum with respect to
            the output of each product).
        """
        with torch.enable_grad():
            module = cast("nn.Sequential", self.model.module)
            outputs, products = chain.forward(module, lots.weights.detach(), lots.inputs)
            losses = self.loss(outputs.flatten(0, 1), lots.targets.flatten())
            losses = losses.view(lots.targets.shape).masked_fill(~lots.present, 0.0)
            total = (losses if share is None else losses * share).sum()
            backprops = torch.autograd.grad(total, [product.gave for product in products])
        return losses.detach(), products, backprops

    def _one_by_one(self, lots: _Lots, share: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the gradients [c, d] of Σ_i share_i ℓ_i and the losses [c, b], client after client."""
        weights, inputs, targets, present = lots
        gradients, losses = torch.zeros_like(weights), torch.zeros_like(share)
        trained = self.model.parameters()
        rows = gradients.split([p.numel() for p in trained], dim=1)
        counts = present.sum(1).tolist()
        with self._weights_restored(), torch.enable_grad():
            for k, count in enumerate(counts):
                if count == 0:
                    continue
                mask = slice(None) if count == present.shape[1] else present[k]
                self.model.set(weights[k])
                client_losses = self.loss(self.model(inputs[k][mask]), targets[k][mask])
                total = (client_losses * share[k][mask]).sum()
                grads = torch.autograd.grad(total, trained, allow_unused=True)
                for row, g in zip(rows, grads, strict=True):
                    if g is not None:
                        row[k] = g.flatten()
                losses[k, mask] = client_losses.detach()
        return gradients, losses

    @contextmanager
    def _weights_restored(self) -> Iterator[None]:
        """Give the model its own weights again afterwards."""
        before = self.model.flat.clone()
        try:
            yield
        finally:
            self.model.set(before)


def _without_absent(inputs: Tensor, present: Tensor) -> Tensor:
    """Return the inputs with zeros for absent records: the values that stand in for them may be nan."""
    if bool(present.all()):
        return inputs
    return inputs.masked_fill(~present.view(*present.shape, *[1] * (inputs.dim() - 2)), 0)


def _sums(lots: _Lots, products: list[chain.Product], backprops: tuple[Tensor, ...]) -> Tensor:
    """Return the summed gradients [c, d], from the gradients with respect to each product's output."""
    sums = torch.empty_like(lots.weights)
    for product, g in zip(products, backprops, strict=True):
        product.write_sums(g, sums)
    return sums


def _sums_in_pieces(
    lots: _Lots, products: list[chain.Product], backprops: tuple[Tensor, ...]
) -> Tensor:
    """Return the summed gradients [c, d]; those of long lots in float64, added up piece by piece."""
    rows = lots.present.shape[1]
    if rows <= PIECE:
        return _sums(lots, products, backprops)
    total = torch.zeros_like(lots.weights, dtype=torch.float64)
    for first in range(0, rows, PIECE):
        piece = slice(first, first + PIECE)
        some = [product.rows(piece) for product in products]
        total += _sums(lots, some, tuple(g[:, piece] for g in backprops))
    return total


def _without_broken(
    products: list[chain.Product], backprops: tuple[Tensor, ...], present: Tensor, finite: Tensor
) -> tuple[list[chain.Product], tuple[Tensor, ...]]:
    """Replace records whose gradient is not finite by zeros.

    A factor of 0 would not do: 0 · nan is nan. On an accelerator all are masked without looking, because
    looking would make the accelerator wait.

    Args:
        products: Products of the chain.
        backprops: Gradients with respect to their outputs.
        present: Mask of the records that count [c, b].
        finite: Mask of the finite ones among these [n].
    """
    if finite.device.type == "cpu" and bool(finite.all()):
        return products, backprops
    broken = torch.ones_like(present)
    broken[present] = ~finite
    products = [product.without(broken) for product in products]
    return products, tuple(g.masked_fill(broken[:, :, None], 0) for g in backprops)
