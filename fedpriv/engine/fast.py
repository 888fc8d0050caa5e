"""The fast engine: book-keeping gives the clipped sums of all clients in one forward and backward pass.

    outputs, a_l ← forward(inputs), noting the input a_l and the output y_l of each layer l
    g_l          ← ∂(Σ_i loss_i)/∂y_l, by autograd
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

from fedpriv.engine.base import BlockEngine, Unsupported
from fedpriv.engine.flat_model import FlatModel, Loss, flat_gradient
from fedpriv.engine.rules import RULES, Columns, LayerGradients, why_no_rule
from fedpriv.models.recurrent import Lstm


@dataclass
class _Call:
    """Input (``read``) and output (``gave``) of one layer in a forward pass, with their version counters."""

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
        Unsupported: A layer has no rule. ``clipped_sums`` raises it too, for what only a forward pass shows
            (a layer called twice, an output changed in place).
    """

    name = "fast"

    def __init__(self, model: FlatModel, loss: Loss):
        super().__init__(model, loss)
        self._layers = _trainable_layers(model)

    def _gradients(
        self, inputs: torch.Tensor, targets: torch.Tensor, prove: bool
    ) -> tuple[Sequence[LayerGradients], torch.Tensor, torch.Tensor | None]:
        with torch.enable_grad():
            # 1. Forward pass, noting the input and output of every layer.
            with self._noting(prove) as calls:
                losses = self._losses(inputs, targets)
            for i, call in calls.items():
                if call.versions != (call.read._version, call.gave._version):
                    raise self._layers[i].refuse("its input or output is changed in place")
                if call.read.dim() == 0 or {len(call.read), len(call.gave)} != {len(inputs)}:
                    why = "the first dimension is not the record in its input or output"
                    raise self._layers[i].refuse(why)
            total, plain = losses.sum(), None
            if prove:  # the graph stays for the pass below
                trained = self.model.parameters()
                weight_gradients = torch.autograd.grad(
                    total, trained, retain_graph=True, allow_unused=True
                )
                plain = flat_gradient(trained, dict(zip(trained, weight_gradients, strict=True)))

            # 2. Backward pass to the outputs of the layers, not to their weights.
            used = [i for i, call in calls.items() if call.gave.requires_grad]
            grads = torch.autograd.grad(total, [calls[i].gave for i in used], allow_unused=True)

        # 3. The rule of each layer makes per-record gradients of the two.
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
        """Note inputs and outputs of the layers until the end of the block.

        An LSTM multiplies its weights with states that are neither its arguments nor its outputs, so it has
        a ``tap`` that tells them. Its own recurrent gradient is needed only to ``prove``.
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


def _trainable_layers(model: FlatModel) -> list[_Layer]:
    """Return the layers with trainable parameters of their own, and the columns of these parameters.

    Raises:
        Unsupported: A layer has no rule or shares parameters with another layer.
    """
    layers = []
    seen: set[int] = set()
    for name, module in model.module.named_modules():
        parameters = dict(module.named_parameters(recurse=False))
        columns = {k: model.columns[p] for k, p in parameters.items() if p in model.columns}
        if not columns:
            continue
        layer = _Layer(name, module, columns)
        why = why_no_rule(module)
        if why is None and not seen.isdisjoint(map(id, parameters.values())):
            why = "it shares a parameter with another layer"
        if why is not None:
            raise layer.refuse(why)
        seen.update(map(id, parameters.values()))
        layers.append(layer)
    return layers
