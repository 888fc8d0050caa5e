"""LSTM layer that skips padding.

For a record's tokens x_1 … x_T, from h_0 = c_0 = 0,

    z_t = W [x_t; h_{t-1}] + b,    (i, f, o, g) = (σ, σ, σ, tanh) of the four quarters of z_t,
    c_t = f ∘ c_{t-1} + i ∘ g,     h_t = o ∘ tanh(c_t).

At a position without a token, c_t = c_{t-1} and h_t = h_{t-1}. Tokens after padding are therefore read as if
there were no padding, and the last state is that of the last token.

One weight and one bias act on everything that a step reads. The gradients of a record are therefore
Σ_t (∂ℓ/∂z_t) [x_t; h_{t-1}]ᵀ and Σ_t ∂ℓ/∂z_t, as for a linear layer on a sequence
(:mod:`fedpriv.engine.rules`). torch's layer has two biases, of which only the sum matters.

Source: Hochreiter and Schmidhuber, "Long short-term memory", Neural Computation 1997, with the forget
gate of Gers et al., 2000.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional


class Lstm(nn.Module):
    """One LSTM layer in one direction. Initial weights and bias are uniform in ±1/√hidden, as in torch.

    Args:
        inputs: Length of x_t.
        hidden: Length of h_t and c_t.

    Attributes:
        weight: W [4 · hidden, inputs + hidden], the quarters in the order i, f, o, g.
        bias: b [4 · hidden].
        tap: Function called in every forward pass, or None. Its arguments are the detached inputs of the
            weight [n, T, inputs + hidden], and a tensor whose gradient is that of z [n, T, 4 · hidden].
        recurrent_gradient: False to skip autograd's gradient of the columns of ``weight`` that multiply
            h_{t-1}. An engine that sums this gradient from the tapped tensors does not need it.
    """

    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.inputs, self.hidden = inputs, hidden
        self.weight = nn.Parameter(torch.empty(4 * hidden, inputs + hidden))
        self.bias = nn.Parameter(torch.empty(4 * hidden))
        self.tap: Callable[[Tensor, Tensor], None] | None = None
        self.recurrent_gradient = True
        for p in (self.weight, self.bias):
            nn.init.uniform_(p, -1 / math.sqrt(hidden), 1 / math.sqrt(hidden))

    def forward(self, inputs: Tensor, real: Tensor) -> Tensor:
        """Compute the states h_1 … h_T.

        Args:
            inputs: Vectors x_1 … x_T of each record [n, T, inputs].
            real: Mask of the positions with a token [n, T], bool.

        Returns:
            States [n, T, hidden].
        """
        input_weight, state_weight = self.weight.split([self.inputs, self.hidden], dim=1)
        # The steps add the part of h_{t-1} to z_t. The gradient with respect to this input part equals
        # the gradient with respect to the whole z_t, which is what ``tap`` needs.
        z = functional.linear(inputs, input_weight, self.bias)
        states = _LstmSteps.apply(
            z, state_weight if self.recurrent_gradient else state_weight.detach(), real
        )
        if self.tap is not None:
            self.tap(torch.cat([inputs.detach(), _before(states.detach())], dim=2), z)
        return states


class _LstmSteps(torch.autograd.Function):
    """The steps in time, with a handwritten backward pass.

    Autograd's backward pass would take three times as many operations on small matrices.
    """

    @staticmethod
    def forward(ctx, z: Tensor, weight: Tensor, real: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        hidden = weight.shape[1]
        h = c = z.new_zeros(len(z), hidden)
        gates, cells, states = [], [c], []
        for t, absent in enumerate(_absent(real)):
            step = torch.addmm(z[:, t], h, weight.t())
            step[:, : 3 * hidden].sigmoid_()
            step[:, 3 * hidden :].tanh_()
            i, f, o, g = step.chunk(4, dim=1)
            new_c = torch.addcmul(f * c, i, g)
            new_h = o * new_c.tanh()
            if absent is not None:
                new_c, new_h = torch.where(absent, c, new_c), torch.where(absent, h, new_h)
            h, c = new_h, new_c
            gates.append(step)
            cells.append(c)
            states.append(h)
        out = torch.stack(states, dim=1)
        ctx.save_for_backward(weight, real, out, *gates, *cells)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):  # type: ignore[no-untyped-def]
        weight, real, states, *saved = ctx.saved_tensors
        steps, hidden = grad.shape[1], weight.shape[1]
        gates, cells = saved[:steps], saved[steps:]
        dz_all = grad.new_empty(len(grad), steps, 4 * hidden)
        dh = dc = grad.new_zeros(len(grad), hidden)
        absent_at = list(_absent(real))
        for t in range(steps - 1, -1, -1):
            i, f, o, g = gates[t].chunk(4, dim=1)
            active, absent = gates[t][:, : 3 * hidden], absent_at[t]
            dh = dh + grad[:, t]
            tanh_c = cells[t + 1].tanh()
            through = torch.addcmul(dc, dh * o, 1 - tanh_c * tanh_c)  # ∂ℓ/∂c_t
            dz = dz_all[:, t]
            torch.mul(through, g, out=dz[:, :hidden])
            torch.mul(through, cells[t], out=dz[:, hidden : 2 * hidden])
            torch.mul(dh, tanh_c, out=dz[:, 2 * hidden : 3 * hidden])
            dz[:, : 3 * hidden].mul_(active * (1 - active))
            torch.mul(through * i, 1 - g * g, out=dz[:, 3 * hidden :])
            if absent is None:
                dh, dc = dz @ weight, through * f
            else:
                dz.masked_fill_(absent, 0)
                dh = torch.where(absent, dh, dz @ weight)
                dc = torch.where(absent, dc, through * f)
        of_weight = None
        if ctx.needs_input_grad[1]:
            of_weight = dz_all.flatten(0, 1).t() @ _before(states).flatten(0, 1)
        return dz_all, of_weight, None


def _before(states: Tensor) -> Tensor:
    """Return h_0 … h_{T-1} for given h_1 … h_T [n, T, hidden]."""
    return functional.pad(states, (0, 0, 1, 0))[:, :-1]


def _absent(real: Tensor) -> list[Tensor | None]:
    """Return a mask [n, 1] of the records without a token for each step; None if every record has one.

    On an accelerator the test for None would force a synchronization, so every step gets a mask there.
    """
    columns: list[Tensor | None] = list((~real).unsqueeze(2).unbind(1))
    if real.device.type != "cpu":
        return columns
    full = real.all(0).tolist()
    return [None if complete else column for complete, column in zip(full, columns, strict=True)]
