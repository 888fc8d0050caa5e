"""The Opacus engine: the reference, and the fallback for models with a layer that has no rule.

Opacus forms the gradient of every record (n × d numbers in memory) and treats more kinds of layers.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from opacus import GradSampleModule
from opacus.grad_sample import register_grad_sampler
from torch import nn

from fedpriv.engine.base import BlockEngine, Unsupported
from fedpriv.engine.flat_model import flat_gradient
from fedpriv.engine.rules import Columns, LayerGradients, Rows, added_copies
from fedpriv.models.recurrent import Lstm


class OpacusEngine(BlockEngine):
    """Clipped sums from ``opacus.GradSampleModule``, which is put around the model for each call.

    Args:
        model: The model.
        loss: (outputs, targets) → loss of each record [n].
    """

    name = "opacus"

    def _outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        # Opacus unfolds the input of a convolution as if its channels were outermost: on
        # channels_last data its per-record gradients are wrong without an error.
        return self.model.module(inputs.to(memory_format=torch.contiguous_format))

    def _gradients(
        self, inputs: torch.Tensor, targets: torch.Tensor, prove: bool
    ) -> tuple[Sequence[LayerGradients], torch.Tensor, torch.Tensor | None]:
        module = self.model.module
        with _sampling(module), torch.enable_grad():
            losses = self._losses(inputs, targets)
            losses.sum().backward()
            parameters = self.model.parameters()
            plain = flat_gradient(parameters, {p: p.grad for p in parameters})
            with torch.no_grad():
                _forget_padding(module)
                layers = self._rows(len(inputs), len(targets))
        return layers, losses.detach(), plain if prove else None

    def _layer_by_layer(self, layers: Sequence[LayerGradients]) -> Sequence[LayerGradients]:
        return [
            Rows({name: rows}, {name: layer.columns[name]})
            for layer in cast("Sequence[Rows]", layers)
            for name, rows in layer.rows.items()
        ]

    def _rows(self, read: int, n: int) -> list[LayerGradients]:
        """Return the gradients of n records, from the gradients of the ``read`` copies that were computed."""
        rows: dict[str, torch.Tensor] = {}
        columns: Columns = {}
        for name, p in self.model.module.named_parameters():
            sample = getattr(p, "grad_sample", None)
            if sample is not None and p in self.model.columns:
                if isinstance(sample, list) or len(sample) != read:
                    raise Unsupported(
                        f"{name} has no gradient for each record; records must be the first dimension of all "
                        "that its layer reads"
                    )
                rows[name] = added_copies(sample.flatten(1), n)
                columns[name] = self.model.columns[p]
        if not rows:
            raise Unsupported("the loss depends on no trainable layer")
        return [Rows(rows, columns)]


@register_grad_sampler(Lstm)
def _lstm_sampler(
    layer: Lstm, activations: list[torch.Tensor], backprops: torch.Tensor
) -> dict[nn.Parameter, torch.Tensor]:
    """Compute per-record gradients of our LSTM for Opacus, which does not know the layer.

    The forward pass is repeated: a hook sees the layer's output but not what went into its gates.
    """
    calls = []
    layer.tap = lambda read, gave: calls.append((read, gave))
    try:
        with torch.enable_grad():
            states = layer.forward(*activations)
            read, gave = calls[0]
            (g,) = torch.autograd.grad(states, gave, backprops)
    finally:
        layer.tap = None
    gradients = {layer.weight: torch.bmm(g.transpose(1, 2), read), layer.bias: g.sum(1)}
    return {p: gradient for p, gradient in gradients.items() if p.requires_grad}


@contextmanager
def _sampling(module: nn.Module) -> Iterator[None]:
    """Put Opacus's hooks on the module; afterwards the module is as before, with its gradients."""
    before = [(p, p.grad) for p in module.parameters()]
    try:
        wrapped = GradSampleModule(module, loss_reduction="sum", strict=True)
    except NotImplementedError as error:
        raise Unsupported("Opacus does not treat trainable layers with buffers") from error
    for p, _ in before:
        p.grad = None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            yield
    except RuntimeError as error:
        if "modified inplace" in str(error):
            raise Unsupported("the output of a layer is changed in place") from error
        raise
    finally:
        wrapped.to_standard_module()
        for layer in module.modules():
            for leftover in ("activations", "max_batch_len"):
                layer.__dict__.pop(leftover, None)
        for p, grad in before:
            p.grad = grad


def _forget_padding(module: nn.Module) -> None:
    """Zero the gradient of an embedding's padding token, which torch does and Opacus does not."""
    for layer in module.modules():
        if isinstance(layer, nn.Embedding) and layer.padding_idx is not None:
            sample = getattr(layer.weight, "grad_sample", None)
            if isinstance(sample, torch.Tensor):
                sample[:, layer.padding_idx] = 0
