"""Chains of linear layers and pointwise functions, computed for many clients with different weights.

For client k, layer input a_k, output y_k and the gradient g_k of the loss with respect to y_k,

    y_k = a_k W_kᵀ + b_k,    Σ_i c_i ∇W_k ℓ_i = (c ∘ g_k)ᵀ a_k,    ‖∇ℓ_i‖² = Σ_layers ‖g_i‖² (‖a_i‖² + 1)

The first two are one batched matrix product for each layer. The third holds where a layer sees one row of
each record. As in :mod:`fedpriv.engine.fast`, autograd never computes a weight gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedpriv.engine.norms import squares_above

# For narrow matrices MKL's rounding depends on the order of the factors. The order used for them is that of
# autograd, which needs a copy: so runs from when autograd computed these gradients repeat bit for bit.
_NARROW = 16
POINTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.ELU, nn.LeakyReLU, nn.Softplus, nn.Identity)


@dataclass(frozen=True)
class Product:
    """Input and output of a linear layer: r rows for each of c clients.

    Attributes:
        read: Input [c, r, I].
        gave: Output [c, r, O].
        weight: Columns of the weight in the flat weights [c, d].
        bias: Columns of the bias; None: the layer has no bias.
    """

    read: Tensor
    gave: Tensor
    weight: slice
    bias: slice | None

    def squared_norms(self, g: Tensor) -> Tensor:
        """Return the squared L2 norm of each row's gradient [c, r], never too small, for g [c, r, O]."""
        return squares_above(g) * (squares_above(self.read) + (self.bias is not None))

    def write_sums(self, g: Tensor, out: Tensor) -> None:
        """Write each client's gradients, summed over its rows, into the layer's columns of ``out`` [c, d]."""
        shape = (g.shape[2], self.read.shape[2])
        sums = out[:, self.weight].unflatten(1, shape)
        if min(shape) < _NARROW:
            sums.copy_(torch.bmm(self.read.transpose(1, 2), g).transpose(1, 2))
        else:
            torch.bmm(g.transpose(1, 2), self.read, out=sums)
        if self.bias is not None:
            torch.sum(g, 1, out=out[:, self.bias])

    def rows(self, chosen: slice) -> Product:
        """Return the product of some rows of each client."""
        return Product(self.read[:, chosen], self.gave[:, chosen], self.weight, self.bias)

    def without(self, broken: Tensor) -> Product:
        """Return the product with zeros as input in the rows where ``broken`` [c, r]."""
        read = self.read.masked_fill(broken[:, :, None], 0)
        return Product(read, self.gave, self.weight, self.bias)


def is_chain(module: nn.Module) -> bool:
    """Return whether a module is a chain whose parameters are all trained, and each used by one layer."""
    return (
        isinstance(module, nn.Sequential)
        and type(module).forward is nn.Sequential.forward
        and all(
            type(layer) in (nn.Linear, nn.Flatten, *POINTWISE)
            and getattr(layer, "start_dim", 1) == 1
            and getattr(layer, "end_dim", -1) == -1
            for layer in module
        )
        and all(p.requires_grad for p in module.parameters())
        and len({id(p) for p in module.parameters()})
        == sum(len(list(layer.parameters())) for layer in module)
    )


def sees_one_row(module: nn.Sequential, dimensions: int) -> bool:
    """Return whether each linear layer of a chain sees one row of each record.

    Args:
        module: The chain.
        dimensions: Number of dimensions of a record's input, the batch left out.
    """
    for layer in module:
        if isinstance(layer, nn.Flatten):
            dimensions = 1
        elif isinstance(layer, nn.Linear) and dimensions != 1:
            return False
    return True


def forward(module: nn.Sequential, weights: Tensor, inputs: Tensor) -> tuple[Tensor, list[Product]]:
    """Compute a chain for c clients.

    Args:
        module: The chain.
        weights: Weights of each client [c, d].
        inputs: Inputs of each client [c, b, …].

    Returns:
        (outputs [c, b, …], products of the linear layers). The outputs are attached to the products' ``gave``
        in autograd's graph, and not to the weights.
    """
    clients, batch = inputs.shape[:2]
    x, products, offset = inputs, [], 0
    for layer in module:
        if isinstance(layer, nn.Linear):
            rows = x.reshape(clients, -1, layer.in_features)
            columns = slice(offset, offset + layer.weight.numel())
            offset = columns.stop
            weight = weights[:, columns].view(clients, *layer.weight.shape).transpose(1, 2)
            if layer.bias is None:
                biases, y = None, torch.bmm(rows, weight)
            else:
                biases = slice(offset, offset + layer.out_features)
                offset = biases.stop
                y = torch.baddbmm(weights[:, biases].unsqueeze(1), rows, weight)
            if not y.requires_grad:
                y.requires_grad_()
            products.append(Product(rows.detach(), y, columns, biases))
            x = y.view(*x.shape[:-1], layer.out_features)
        elif isinstance(layer, nn.Flatten):
            x = x.reshape(clients, batch, -1)
        else:
            x = layer(x)
    return x, products
