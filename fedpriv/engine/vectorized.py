"""The gradients of many copies of a model at once, for accelerators.

    g_k ← ∇_θ Σ_i share_ki ℓ(f(x_ki; θ), y_ki)  at θ = θ_k,    for all clients k together

A processor computes convolutions fastest client by client. An accelerator would then wait for many small
kernels, so there the gradient of one client is vectorised over the clients with :func:`torch.func.vmap`.
Models of other layers than those below go client by client there too: a layer may read several records at
once or keep something, which a vectorised pass would change or refuse.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedpriv.engine.chain import POINTWISE
from fedpriv.engine.flat_model import FlatModel, Loss, cross_entropy
from fedpriv.models.pooling import StrideOneMaxPool2d

_RECORDS_AT_ONCE = 8192  # activations of a small CNN: 2 GB for each pass
_LAYERS = (
    *(nn.Linear, nn.Conv2d, nn.Flatten, nn.GroupNorm, nn.MaxPool2d, nn.AvgPool2d),
    *(nn.AdaptiveAvgPool2d, StrideOneMaxPool2d, *POINTWISE),
)


def is_vectorizable(model: FlatModel, loss: Loss) -> bool:
    """Return whether a model is a sequence of known layers, all trained, with cross entropy as its loss."""
    return (
        loss is cross_entropy
        and _known(model.module)
        and all(p.requires_grad for p in model.module.parameters())
    )


def _known(module: nn.Module) -> bool:
    if isinstance(module, nn.Sequential):
        plain = type(module).forward is nn.Sequential.forward
        return plain and all(_known(layer) for layer in module)
    return type(module) in _LAYERS


def gradients(
    model: FlatModel,
    loss: Loss,
    weights: Tensor,
    inputs: Tensor,
    targets: Tensor,
    share: Tensor,
) -> tuple[Tensor, Tensor]:
    """Compute the gradients of all clients together.

    Args:
        model: The architecture; its own weights are left as they are.
        loss: (outputs, targets) → loss of each record.
        weights: Weights of each client [c, d].
        inputs: Inputs of each client [c, b, …].
        targets: Targets of each client [c, b, …].
        share: Weight of each record's loss in the sum [c, b].

    Returns:
        (gradients of Σ_i share_i ℓ_i [c, d], losses [c, b]).
    """
    names = [name for name, _ in model.module.named_parameters()]
    shapes = [p.shape for p in model.parameters()]
    sizes = [shape.numel() for shape in shapes]

    def shared_loss(flat: Tensor, x: Tensor, y: Tensor, of_record: Tensor) -> tuple[Tensor, Tensor]:
        parts = zip(names, flat.split(sizes), shapes, strict=True)
        parameters = {name: part.view(shape) for name, part, shape in parts}
        losses = loss(functional_call(model.module, parameters, (x,)), y)
        return (losses * of_record).sum(), losses

    clients_at_once = max(1, _RECORDS_AT_ONCE // max(1, targets.shape[1]))
    of_each = vmap(grad(shared_loss, has_aux=True), chunk_size=clients_at_once)
    with torch.enable_grad():
        found, losses = of_each(weights.detach(), inputs, targets, share)
    return found.detach(), losses.detach()
