"""Clipped gradient sums by Opacus, in three ways."""

from __future__ import annotations

import warnings

import torch
from networks import CLIP_NORM, lots, network
from serve import Step, serve
from torch import Tensor, nn
from torch.nn import functional


def open_row(way: str, model: str, clients: int, records: int) -> Step:
    """Return a step over the lots of all clients.

    ``hooks`` and ``ghost`` sum the clipped gradients of all records together, which is less work than a sum
    for each client. ``engine`` is a PrivacyEngine for each client, one after the other, without noise.
    """
    warnings.simplefilter("ignore")
    client_lots = lots(clients, records)
    if way == "engine":
        return engine_step(model, client_lots)
    inputs, targets = (torch.cat(part) for part in zip(*client_lots, strict=True))
    return {"hooks": hooks_step, "ghost": ghost_step}[way](network(model), inputs, targets)


def hooks_step(module: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    """Return Opacus's per-record gradients, clipped and summed over all records."""
    from opacus import GradSampleModule

    wrapped = GradSampleModule(module, loss_reduction="sum")

    def step() -> list[Tensor]:
        wrapped.zero_grad()
        functional.cross_entropy(wrapped(inputs), targets, reduction="sum").backward()
        samples = [p.grad_sample for p in wrapped.parameters()]
        norms = torch.stack([s.flatten(1).norm(dim=1) for s in samples]).norm(dim=0)
        scale = (CLIP_NORM / norms).clamp(max=1)
        return [torch.einsum("n,n...->...", scale, s) for s in samples]

    return step


def ghost_step(module: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    """Return Opacus's ghost clipping: a backward pass for the norms, another for the clipped sum."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping

    wrapped = GradSampleModuleFastGradientClipping(
        module, loss_reduction="sum", max_grad_norm=CLIP_NORM, use_ghost_clipping=True
    )

    def step() -> list[Tensor]:
        wrapped.enable_hooks()
        losses = functional.cross_entropy(wrapped(inputs), targets, reduction="none")
        losses.sum().backward(retain_graph=True)
        scale = wrapped.get_clipping_coef()
        wrapped.zero_grad()
        wrapped.disable_hooks()
        (scale * losses).sum().backward()
        return [p.grad for p in wrapped.parameters()]

    return step


def engine_step(model: str, client_lots: list[tuple[Tensor, Tensor]]) -> Step:
    """Return one step of a private optimiser for one client after the other. Wrapping is not timed."""
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    prepared = []
    for x, y in client_lots:
        module = network(model)
        wrapped, optimizer, _ = PrivacyEngine().make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=DataLoader(TensorDataset(x, y), batch_size=len(x)),
            noise_multiplier=0.0,
            max_grad_norm=CLIP_NORM,
        )
        prepared.append((wrapped, optimizer, x, y))

    def step() -> None:
        for wrapped, optimizer, x, y in prepared:
            optimizer.zero_grad()
            functional.cross_entropy(wrapped(x), y).backward()
            optimizer.step()

    return step


if __name__ == "__main__":
    serve(open_row, ("opacus", "torch"))
