"""Book-keeping: one forward and one backward pass give the clipped sums of all clients.

    outputs, a_l ← forward(inputs), noting what each layer l reads and gives
    g_l          ← gradients of Σ_i loss_i with respect to what each layer gave
    norm_i       ← (Σ_l ‖gradient of record i in layer l‖²)^½        from a_l, g_l
    c_i          ← factors(norm_i, client_i)                         } both in
    sums[k]      ← Σ_{i of k} c_i gradient_i      from a_l, c g_l    } :mod:`fedpriv.engine.base`

Autograd never computes a weight gradient, and a record's gradient is formed only where a layer is
so small that this is faster (see :mod:`fedpriv.engine.rules`).
Source: Bu et al., "Differentially private optimization on large model at small cost", ICML 2023.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from fedpriv.engine.base import BlockEngine, Unsupported, flat_gradient
from fedpriv.engine.flat_model import FlatModel, Loss
from fedpriv.engine.rules import RULES, Columns, LayerGradients, why_no_rule
from fedpriv.models.recurrent import Lstm


@dataclass
class _Call:
    """What one layer read and gave in a forward pass, with their version counters."""

    read: torch.Tensor
    gave: torch.Tensor
    versions: tuple[int, int]


@dataclass(frozen=True)
class _Layer:
    name: str
    module: nn.Module
    columns: Columns

    def refuse(self, why: str) -> Unsupported:
        return Unsupported(f"layer {self.name or 'model'} ({type(self.module).__name__}): {why}")


class FastEngine(BlockEngine):
    """Clipped sums by book-keeping, for models whose trainable layers all have a rule.

    Args:
        model: The model.
        loss: (outputs, targets) → loss of each record [n].

    Raises:
        Unsupported: A layer has no rule; also raised by ``clipped_sums`` for what only shows in a
            forward pass (a layer called twice, an output changed in place).
    """

    name = "fast"

    def __init__(self, model: FlatModel, loss: Loss):
        super().__init__(model, loss)
        self._layers = _trainable_layers(model.module)

    def _gradients(
        self, inputs: torch.Tensor, targets: torch.Tensor, prove: bool
    ) -> tuple[Sequence[LayerGradients], torch.Tensor, torch.Tensor | None]:
        with torch.enable_grad():
            with self._noting(prove) as calls:
                losses = self._losses(inputs, targets)
            for i, call in calls.items():
                if call.versions != (call.read._version, call.gave._version):
                    raise self._layers[i].refuse("what it read or gave is changed in place")
                if call.read.dim() == 0 or {len(call.read), len(call.gave)} != {len(inputs)}:
                    raise self._layers[i].refuse("its first dimension is not the record")
            total = losses.sum()
            plain = _plain(total, self.model) if prove else None
            used = [i for i, call in calls.items() if call.gave.requires_grad]
            grads = torch.autograd.grad(total, [calls[i].gave for i in used], allow_unused=True)
        layers = []
        with torch.no_grad():
            for i, g in zip(used, grads, strict=True):
                if g is not None:
                    layer = self._layers[i]
                    rule = RULES[type(layer.module)]
                    layers.append(rule(layer.module, calls[i].read, g, layer.columns, len(targets)))
        if not layers:
            raise Unsupported("the loss depends on no trainable layer")
        return layers, losses.detach(), plain

    @contextmanager
    def _noting(self, prove: bool) -> Iterator[dict[int, _Call]]:
        """Note what the layers read and give until the end of the block.

        A layer whose weights meet something other than its arguments and outputs has a ``tap`` for it;
        autograd need not give what is computed from it, except to ``prove``.
        """
        calls: dict[int, _Call] = {}

        def note(index: int, read: torch.Tensor, gave: torch.Tensor) -> None:
            if index in calls:
                raise self._layers[index].refuse("called more than once in a forward pass")
            calls[index] = _Call(read, gave, (read._version, gave._version))

        def after(index: int, module: nn.Module, args: tuple, output: torch.Tensor) -> None:
            if len(args) != 1:
                raise self._layers[index].refuse("called with keyword arguments")
            note(index, args[0].detach(), output)

        handles, tapped = [], []
        for index, layer in enumerate(self._layers):
            if isinstance(layer.module, Lstm):
                layer.module.tap, layer.module.recurrent_gradient = partial(note, index), prove
                tapped.append(layer.module)
            else:
                handles.append(layer.module.register_forward_hook(partial(after, index)))
        try:
            yield calls
        finally:
            for handle in handles:
                handle.remove()
            for module in tapped:
                module.tap, module.recurrent_gradient = None, True


def _trainable_layers(model: nn.Module) -> list[_Layer]:
    """The layers with trainable parameters of their own and where these lie in the flat vector.

    Raises:
        Unsupported: One of them has no rule or shares parameters.
    """
    columns: dict[int, slice] = {}
    offset = 0
    for p in model.parameters():
        columns[id(p)] = slice(offset, offset + p.numel())
        offset += p.numel()
    layers = []
    seen: set[int] = set()
    for name, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if not any(p.requires_grad for p in own.values()):
            continue
        layer = _Layer(name, module, {k: columns[id(p)] for k, p in own.items()})
        why = why_no_rule(module)
        if why is None and not seen.isdisjoint(map(id, own.values())):
            why = "it shares a parameter with another layer"
        if why is not None:
            raise layer.refuse(why)
        seen.update(map(id, own.values()))
        layers.append(layer)
    return layers


def _plain(total: torch.Tensor, model: FlatModel) -> torch.Tensor:
    """Autograd's gradient of ``total`` [d]; the graph stays."""
    trained = [p for p in model.parameters() if p.requires_grad]
    grads = torch.autograd.grad(total, trained, retain_graph=True, allow_unused=True)
    return flat_gradient(model, dict(zip(trained, grads, strict=True)))
