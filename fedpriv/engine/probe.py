"""A probe for models in which one record or client changes what is computed of another.

Clipping a gradient, or a client's upload, bounds the influence of its owner only if it depends on that owner
alone. Layers with known problems are refused by name. Any model is then tried on random records, with weights
that hide nothing behind a gate at zero. It is refused where

* two copies with different first lots differ afterwards, in their state or on the same second lot: running
  statistics, an initialisation by data;
* the loss of a record or its gradient is another one in a lot than alone: batch statistics, a loss that
  balances classes.

This is a probe and not a proof.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from fedpriv.common.errors import ConfigError
from fedpriv.common.exact import exact_digest
from fedpriv.common.random_streams import torch_stream
from fedpriv.engine.flat_model import FlatModel, flat_gradient

LOTS = (2, 9)
"""Sizes of lots with which every model is probed, beside the size of the run's own."""
LARGEST_LOT = 256
LARGEST_WORK = 2e8
"""Multiply-adds of one pass over the largest lot: a dozen passes then take less than a second of a core."""
_TOLERANCE = 1e-3  # relative: rounding depends on the size of a lot


def refuse_record_mixing(
    module: nn.Module,
    draw: Callable[[int], tuple[Tensor, Tensor]],
    sizes: Sequence[int],
    *,
    per_record: bool,
) -> None:
    """Raise ConfigError unless the model treats each record by itself, whatever the unit of privacy.

    Args:
        module: Model; it is not changed.
        draw: Number of records n → inputs [n, …] and targets [n, …] that were made without reading data.
        sizes: Sizes of the lots, each > 1.
        per_record: True if gradients of single records are needed, which some layers do not have.

    Raises:
        ConfigError: The error names the layer or its behaviour, the reason and the alternative.
    """
    start = with_other_weights(module).cpu()
    start.train()  # a module may keep some of its layers in evaluation mode
    for name, layer in start.named_modules():
        if reason := _reason(layer) or (per_record and _no_gradients(layer)):
            raise _refusal(f"layer {name or 'model'} ({type(layer).__name__}) {reason}")
    for size in sizes:
        inputs, targets = (values.cpu() for values in draw(size))
        try:
            reason = _mixes(start, inputs, targets)
        except (ArithmeticError, AssertionError, RuntimeError, ValueError) as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            reason = f"it fails on {size} random records, together or one by one ({first})"
        if reason:
            raise _refusal(reason)


def _mixes(start: nn.Module, inputs: Tensor, targets: Tensor) -> str | None:
    """Return how copies of a module mix or keep the records of a lot; None if they do not."""
    scale = 30 if inputs.is_floating_point() else 1
    copies = [FlatModel(copy.deepcopy(start)) for _ in range(2)]
    copies[0].record_losses(inputs, targets)
    copies[1].record_losses(scale * inputs[:1].expand_as(inputs), targets[:1].expand_as(targets))
    first, second = (_state(model.module) for model in copies)
    if changed := [name for name in {**first, **second} if first.get(name) != second.get(name)]:
        return f"its {changed[0]} follows from the records that it saw, which would leave without noise"
    for training in (False, True):
        for model in copies:
            model.module.train(training)
        one, other = (model.record_losses(inputs, targets).nan_to_num() for model in copies)
        if not torch.equal(one, other):
            return "its losses depend on the records that it saw before, which would leave without noise"
    inputs = torch.cat([scale * inputs[:1], inputs[1:]])  # one record is huge
    fresh = FlatModel(copy.deepcopy(start))
    for place in (0, len(inputs) - 1):
        row = slice(place, place + 1)
        together = _loss_and_gradient(copies[0], inputs, targets, place)
        alone = _loss_and_gradient(fresh, inputs[row], targets[row], 0)
        if not all(map(_agree, together, alone)):
            return (
                "the loss or the gradient of a record depends on the records beside it, so clipping one "
                "gradient or upload does not bound the influence of its owner; use layers and losses that "
                "treat each record on its own"
            )
    return None


def _loss_and_gradient(
    model: FlatModel, inputs: Tensor, targets: Tensor, place: int
) -> tuple[Tensor, Tensor]:
    """Return the loss of one record of a lot, and its gradient [d]."""
    loss = model.loss(model(inputs), targets)[place]
    trained = model.parameters()
    gradients = torch.autograd.grad(loss, trained, allow_unused=True)
    return loss.detach(), flat_gradient(trained, dict(zip(trained, gradients, strict=True)))


def _agree(one: Tensor, other: Tensor) -> bool:
    scale, gap = (float(v.abs().max()) for v in (other, one - other))
    if gap <= _TOLERANCE * scale < math.inf:
        return True  # as below, in a fraction of the time
    scale = float(other.nan_to_num(0.0, 0.0, 0.0).abs().max())
    return torch.allclose(one, other, _TOLERANCE, _TOLERANCE * scale, equal_nan=True)


def _state(module: nn.Module) -> dict[str, str]:
    """Return digests of parameters, buffers and extra state by name."""
    values = {**dict(module.named_buffers()), **module.state_dict()}
    return {name: exact_digest(value) for name, value in values.items()}


def refuse_own_randomness(module: nn.Module, inputs: Tensor) -> None:
    """Raise ConfigError if the model draws random numbers in training.

    No seed of the run determines such numbers, so the run could be neither repeated nor resumed.

    Args:
        module: Model; it is not changed.
        inputs: Records [n, …].
    """
    probe = with_other_weights(module)
    probe.train()
    before = _state(probe)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        first, second = (probe(inputs).nan_to_num() for _ in range(2))
    # A model that keeps something of the records may give two answers without drawing random numbers.
    if not torch.equal(first, second) and _state(probe) == before:
        raise ConfigError(
            f"model gives different outputs for the same records{_which_dropout(module)}: it draws "
            "random numbers that no seed of the run controls, so the run could not be repeated; remove "
            "them (p=0)"
        )


def with_other_weights(module: nn.Module) -> nn.Module:
    """Return a copy of the module with perturbed parameters; the perturbation is always the same."""
    probe, stream = copy.deepcopy(module), torch_stream(0, "probe_of_model")
    with torch.no_grad():
        for p in probe.parameters():
            noise = torch.randn(p.shape, generator=stream).to(p)
            p.add_(noise, alpha=0.05 + 0.5 * float(p.std() if p.numel() > 1 else p.abs()))
    return probe


def multiply_adds(module: nn.Module, inputs: Tensor) -> float:
    """Return about how many multiply-adds a pass over a record takes.

    Each parameter of a layer counts once at each position of the layer's output: a pixel of a convolution, a
    token of other layers. Embeddings look up, and products of two activations are left out.

    Args:
        module: Model; it is not changed.
        inputs: Records [n, …].
    """
    probe, counts = copy.deepcopy(module), [sum(p.numel() for p in module.parameters())]

    def note(layer: nn.Module, given: object, output: Tensor | tuple[Tensor, ...]) -> None:
        first = output[0] if isinstance(output, tuple) else output
        own = sum(p.numel() for p in layer.parameters(recurse=False))
        if own and isinstance(first, Tensor) and first.dim() > 1:
            places = first[0, 0] if isinstance(layer, nn.Conv2d) else first[0, ..., 0]
            counts.append(own * places.numel())

    for layer in probe.modules():
        if not isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
            layer.register_forward_hook(note)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        probe(inputs)
    return float(max(counts[0], sum(counts[1:])))


def _refusal(reason: str) -> ConfigError:
    return ConfigError(f"model cannot be trained with differential privacy: {reason}")


def _reason(layer: nn.Module) -> str | None:
    norm = isinstance(layer, nn.modules.batchnorm._NormBase)
    if norm and not layer.training and layer.running_mean is not None:
        return None  # its statistics are constants
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return (
            "normalises a record by the other records of its batch, so clipping one record's "
            "gradient does not bound its influence; use GroupNorm, or freeze a pretrained one: "
            "norm.requires_grad_(False), and a method train(self, mode=True) of the model that calls "
            "super().train(mode) and norm.eval(), and returns self"
        )
    if norm and layer.track_running_stats:
        return (
            "keeps running statistics of private records, which would leave without noise; "
            "use GroupNorm or track_running_stats=False"
        )
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.scale_grad_by_freq:
        return (
            "scales a token's gradient by how often it occurs in the whole batch; "
            "use scale_grad_by_freq=False"
        )
    return None


def _no_gradients(layer: nn.Module) -> str | None:
    trained = any(p.requires_grad for p in layer.parameters(recurse=False))
    without = (nn.RNNBase, nn.MultiheadAttention, nn.modules.batchnorm._BatchNorm)
    if not trained or not isinstance(layer, without):
        return None  # Opacus, which takes 3 seconds to import, has per-record gradients of all other layers
    from opacus.validators import ModuleValidator

    validator = ModuleValidator.VALIDATORS.get(type(layer))
    if validator is None or not validator(layer):
        return None
    remedy = "freeze its weight and bias, requires_grad_(False)"
    if isinstance(layer, nn.RNNBase):
        remedy = f"use opacus.layers.DP{type(layer).__name__}, with batch_first=True"
    if isinstance(layer, nn.MultiheadAttention):
        remedy = (
            "use nn.Linear for queries, keys, values and outputs with scaled_dot_product_attention of "
            "torch.nn.functional (opacus.layers.DPMultiheadAttention of Opacus 1.6.0 computes something else "
            "with batch_first=True)"
        )
    return f"has no per-record gradients in Opacus; {remedy}"


def _which_dropout(module: nn.Module) -> str:
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            return f", layer {name or 'model'} ({type(layer).__name__})"
    return ""
