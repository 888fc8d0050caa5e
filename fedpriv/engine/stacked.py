"""Many copies of a model, each with its own weights, trained side by side.

A chain of linear layers and pointwise functions is computed for all clients at once, one batched
product for each layer (``baddbmm``); any other model client by client, which for convolutions is as
fast as it gets on a CPU.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedpriv.engine.base import flat_gradient
from fedpriv.engine.flat_model import FlatModel, Loss

_POINTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.ELU, nn.LeakyReLU, nn.Softplus, nn.Identity)


class StackedModel:
    """Gradients of c models of one architecture at weights [c, d], one for each client.

    Args:
        model: The architecture; its own weights are left as they are.
        loss: (outputs, targets) → loss of each record [n]; None: the model's.
    """

    def __init__(self, model: FlatModel, loss: Loss | None = None):
        self.model, self.loss = model, model.loss if loss is None else loss
        self.batched = _is_chain(model.module)

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
        gradients, losses = self._gradients(weights, inputs, targets, present)
        decay = self.model.weight_decay
        if decay:
            taking_part = present.any(1, keepdim=True)
            gradients.addcmul_(weights, taking_part.to(weights.dtype), value=decay)
            losses = torch.where(present, losses + self.model.penalty(weights)[:, None], losses)
        return gradients, losses

    def _gradients(
        self, weights: Tensor, inputs: Tensor, targets: Tensor, present: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Those of the records' losses alone."""
        share = present / present.sum(1, keepdim=True).clamp_min(1)
        if not bool(present.all()):  # what stands in for an absent record must not be a nan
            inputs = inputs.masked_fill(~present.view(*present.shape, *[1] * (inputs.dim() - 2)), 0)
        if self.batched:
            return self._together(weights, inputs, targets, present, share)
        rows = [
            self._one(*of_client)
            for of_client in zip(weights, inputs, targets, present, share, strict=True)
        ]
        gradients, losses = zip(*rows, strict=True)
        return torch.stack(gradients), torch.stack(losses)

    def _together(
        self, weights: Tensor, inputs: Tensor, targets: Tensor, present: Tensor, share: Tensor
    ) -> tuple[Tensor, Tensor]:
        clients, batch = targets.shape
        sizes = [p.numel() for p in self.model.parameters()]
        with torch.enable_grad():
            parts = [part.detach().requires_grad_() for part in weights.split(sizes, dim=1)]
            outputs = self._forward(iter(parts), inputs)
            losses = self.loss(outputs.flatten(0, 1), targets.flatten()).view(clients, batch)
            losses = losses.masked_fill(~present, 0.0)
            gradients = torch.autograd.grad((losses * share).sum(), parts)
        return torch.cat(gradients, dim=1), losses.detach()

    def _forward(self, parts, inputs: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        clients, batch = inputs.shape[:2]
        x = inputs
        for layer in self.model.module:
            if isinstance(layer, nn.Linear):
                shape = (clients, layer.out_features, layer.in_features)
                weight = next(parts).view(shape).transpose(1, 2)
                rows = x.reshape(clients, -1, layer.in_features)
                if layer.bias is None:
                    y = torch.bmm(rows, weight)
                else:
                    y = torch.baddbmm(next(parts).unsqueeze(1), rows, weight)
                x = y.view(*x.shape[:-1], layer.out_features)
            elif isinstance(layer, nn.Flatten):
                x = x.reshape(clients, batch, -1)
            else:
                x = layer(x)
        return x

    def _one(
        self, weights: Tensor, inputs: Tensor, targets: Tensor, present: Tensor, share: Tensor
    ) -> tuple[Tensor, Tensor]:
        before = self.model.flat.clone()
        self.model.set(weights)
        try:
            with torch.enable_grad():
                losses = torch.zeros_like(share)
                if not bool(present.any()):
                    return torch.zeros_like(weights), losses
                found = self.loss(self.model(inputs[present]), targets[present])
                trained = [p for p in self.model.parameters() if p.requires_grad]
                grads = torch.autograd.grad(
                    (found * share[present]).sum(), trained, allow_unused=True
                )
            gradient = flat_gradient(self.model, dict(zip(trained, grads, strict=True)))
            losses[present] = found.detach()
            return gradient, losses
        finally:
            self.model.set(before)


def _is_chain(module: nn.Module) -> bool:
    """Whether all clients can go through one batched product for each layer."""
    return (
        isinstance(module, nn.Sequential)
        and all(
            type(layer) in (nn.Linear, nn.Flatten, *_POINTWISE)
            and getattr(layer, "start_dim", 1) == 1
            for layer in module
        )
        and all(p.requires_grad for p in module.parameters())
        and len({id(p) for p in module.parameters()})
        == sum(len(list(layer.parameters())) for layer in module)
    )
