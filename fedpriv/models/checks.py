"""Refuses models in which one record or client changes what another one gives.

Clipping a gradient, or a client's upload, bounds the influence of its owner only if it depends on that
owner alone. Batch normalisation breaks that and keeps running statistics of private data, which would leave
without noise. Layers that are known for it are refused by name, all others by what they do with random
records: buffers that change, outputs that depend on the records beside them, and random numbers of their own.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from fedpriv.common.errors import ConfigError
from fedpriv.common.random_streams import torch_stream

if TYPE_CHECKING:
    from torch import Tensor, nn

PROBES = 64
"""Records that a model is looked at with."""
_ALONE = 4  # of them, each by itself
_TOLERANCE = (
    1e-3  # of the largest output: rounding depends on how many records are computed together
)


def refuse_record_mixing(module: nn.Module, inputs: Tensor, *, per_record: bool) -> None:
    """Raise unless the model treats each record on its own, whatever the unit of privacy.

    It is looked at with its own weights and with others (a gate that starts at zero is closed), with the
    records as they are and thirty times as large. That is a probe and not a proof.

    Args:
        module: Left as it is.
        inputs: Records that read no data [n, …], n > 1.
        per_record: Whether gradients of single records are needed, which some layers do not have.

    Raises:
        ConfigError: Names the layer or what it does, the reason and what to use instead.
    """
    for name, layer in module.named_modules():
        reason = _reason(layer) or (per_record and _no_gradients(layer))
        if reason:
            raise mixing_refusal(f"layer {name or 'model'} ({type(layer).__name__}) {reason}")
    for probe in (copy.deepcopy(module), with_other_weights(module)):
        for records in _magnitudes(inputs):
            if (reason := _mixes(probe, records)) is not None:
                raise mixing_refusal(reason)


def refuse_own_randomness(module: nn.Module, inputs: Tensor) -> None:
    """Raise if the model draws random numbers in training: no seed of the run names them, so that it could
    neither be repeated nor resumed. Raises ConfigError."""
    import torch

    for probe in (copy.deepcopy(module).train(), with_other_weights(module).train()):
        before = copy.deepcopy(probe)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            outputs = [probe(inputs) for _ in range(2)]
        changes = (
            _changed_buffer(before, probe) is not None
        )  # what it keeps may move outputs as well
        if not changes and not torch.equal(outputs[0].nan_to_num(), outputs[1].nan_to_num()):
            raise ConfigError(
                f"model gives two answers to the same records{_which_dropout(module)}: it draws random "
                "numbers that no seed of the run names, so the run could not be repeated; take them out (p=0)"
            )


def with_other_weights(module: nn.Module) -> nn.Module:
    """Copy the module and move its parameters, by numbers that are the same every time."""
    import torch

    probe, stream = copy.deepcopy(module), torch_stream(0, "probe_of_model")
    with torch.no_grad():
        for p in probe.parameters():
            noise = torch.randn(p.shape, generator=stream).to(p)
            p.add_(noise, alpha=0.05 + 0.5 * float(p.std() if p.numel() > 1 else p.abs()))
    return probe


def _magnitudes(inputs: Tensor) -> tuple[Tensor, ...]:
    return (inputs, 30.0 * inputs) if inputs.is_floating_point() else (inputs,)


def mixing_refusal(words: str) -> ConfigError:
    """Make the error of a model that mixes or remembers records."""
    return ConfigError(f"model cannot be trained with differential privacy: {words}")


def _reason(layer: nn.Module) -> str | None:
    from torch import nn

    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return (
            "normalises a record by the other records of its batch, so clipping one record's "
            "gradient does not bound its influence; use GroupNorm"
        )
    if isinstance(layer, nn.modules.batchnorm._NormBase) and layer.track_running_stats:
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
    from torch import nn

    from fedpriv.models.layers import StandardizedConv2d

    known = (nn.Linear, nn.Conv2d, nn.Embedding, nn.GroupNorm, StandardizedConv2d)
    if type(layer) in known or next(layer.parameters(recurse=False), None) is None:
        return None  # Opacus, which takes a second to import, knows gradients of all of these
    from opacus.validators import ModuleValidator

    validator = ModuleValidator.VALIDATORS.get(type(layer))
    if validator is None or not validator(layer):
        return None
    return "has no per-record gradients in Opacus; use its counterpart in opacus.layers"


def _mixes(module: nn.Module, inputs: Tensor) -> str | None:
    """What the module, which is given over to this, does that a layer's name does not tell."""
    import torch

    probe = copy.deepcopy(module).train()
    with torch.random.fork_rng(devices=[]):
        with torch.no_grad():
            together = probe(inputs.clone())
        if (name := _changed_buffer(module, probe)) is not None:
            return (
                f"its buffer {name} changes in training: statistics of private records would leave "
                "without noise; use layers that keep none"
            )
        if depends := _gradient_of_others(probe, inputs):
            return depends
        for i in range(min(_ALONE, len(inputs))):
            try:
                with torch.no_grad():
                    alone = probe(inputs[i : i + 1].clone())
            except (RuntimeError, ValueError) as error:
                return f"it does not treat a record alone ({str(error).splitlines()[0]})"
            far = (alone[0] - together[i]).abs().max() > _TOLERANCE * together[i].abs().max()
            if alone.shape[1:] != together.shape[1:] or bool(far):
                return _MIXES
    return None


_MIXES = (
    "what it gives for a record depends on the records beside it, so clipping one gradient or upload does "
    "not bound the influence of its owner; use layers that treat each record on its own"
)


def _gradient_of_others(probe: nn.Module, inputs: Tensor) -> str | None:
    """Whether the output of the first record has a gradient with respect to the others."""
    import torch

    if not inputs.is_floating_point():
        return None
    asked = inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(probe(asked)[0].sum(), asked, allow_unused=True)
    return _MIXES if gradient is not None and bool(gradient[1:].any()) else None


def _changed_buffer(before: nn.Module, after: nn.Module) -> str | None:
    import torch

    kept = dict(after.named_buffers())
    for name, buffer in before.named_buffers():
        if name not in kept or not torch.equal(buffer.nan_to_num(), kept[name].nan_to_num()):
            return name
    return next((name for name in kept if name not in dict(before.named_buffers())), None)


def _which_dropout(module: nn.Module) -> str:
    from torch import nn

    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            return f", layer {name or 'model'} ({type(layer).__name__})"
    return ""
