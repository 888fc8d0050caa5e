"""Checks that refuse models in which one record or client changes the output for another.

Clipping a gradient, or a client's upload, bounds the influence of its owner only if the gradient or upload
depends on that owner alone. Batch normalisation violates this, and it stores running statistics of private
data, which would be published without noise. Layers with known problems are refused by name. All other
layers are tested on random records: for buffers that change, for outputs that depend on other records, and
for random numbers of their own.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from fedpriv.common.errors import ConfigError
from fedpriv.common.random_streams import torch_stream

if TYPE_CHECKING:
    from torch import Tensor, nn

PROBES = 64
"""Number of random records with which a model is tested."""
_ALONE = 4  # number of these records that are also tested alone
# Allowed difference relative to the largest output: rounding depends on the size of a batch.
_TOLERANCE = 1e-3


def refuse_record_mixing(module: nn.Module, inputs: Tensor, *, per_record: bool) -> None:
    """Raise ConfigError unless the model treats each record independently, whatever the unit of privacy.

    The model is tested with its own weights and with other weights, because a gate that starts at zero hides
    what is behind it. Records are tested as they are and, if they are no token ids, multiplied by 30. The
    first few records are also tested alone. The test is a probe, not a proof.

    Args:
        module: Model; it is not changed.
        inputs: Records that were made without reading data [n, …], n > 1.
        per_record: True if gradients of single records are needed, which some layers do not have.

    Raises:
        ConfigError: The error names the layer or its behaviour, the reason and the alternative.
    """
    for name, layer in module.named_modules():
        reason = _reason(layer) or (per_record and _no_gradients(layer))
        if reason:
            raise mixing_refusal(f"layer {name or 'model'} ({type(layer).__name__}) {reason}")
    magnitudes = (inputs, 30.0 * inputs) if inputs.is_floating_point() else (inputs,)
    for probe in (copy.deepcopy(module), with_other_weights(module)):
        for records in magnitudes:
            if (reason := _mixes(probe, records)) is not None:
                raise mixing_refusal(reason)


def refuse_own_randomness(module: nn.Module, inputs: Tensor) -> None:
    """Raise ConfigError if the model draws random numbers in training.

    No seed of the run determines such numbers, so the run could be neither repeated nor resumed.

    Args:
        module: Model; it is not changed.
        inputs: Records [n, …].
    """
    import torch

    for probe in (copy.deepcopy(module).train(), with_other_weights(module).train()):
        before = copy.deepcopy(probe)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            outputs = [probe(inputs) for _ in range(2)]
        # A model with changing buffers may give two answers without drawing random numbers.
        changes = _changed_buffer(before, probe) is not None
        if not changes and not torch.equal(outputs[0].nan_to_num(), outputs[1].nan_to_num()):
            raise ConfigError(
                f"model gives different outputs for the same records{_which_dropout(module)}: it draws "
                "random numbers that no seed of the run controls, so the run could not be repeated; remove "
                "them (p=0)"
            )


def with_other_weights(module: nn.Module) -> nn.Module:
    """Return a copy of the module with perturbed parameters; the perturbation is always the same."""
    import torch

    probe, stream = copy.deepcopy(module), torch_stream(0, "probe_of_model")
    with torch.no_grad():
        for p in probe.parameters():
            noise = torch.randn(p.shape, generator=stream).to(p)
            p.add_(noise, alpha=0.05 + 0.5 * float(p.std() if p.numel() > 1 else p.abs()))
    return probe


def mixing_refusal(reason: str) -> ConfigError:
    """Return the error for a model that mixes or stores records."""
    return ConfigError(f"model cannot be trained with differential privacy: {reason}")


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
        return None  # Opacus, which is slow to import, has per-record gradients of all these layers
    from opacus.validators import ModuleValidator

    validator = ModuleValidator.VALIDATORS.get(type(layer))
    if validator is None or not validator(layer):
        return None
    return "has no per-record gradients in Opacus; use its counterpart in opacus.layers"


def _mixes(module: nn.Module, inputs: Tensor) -> str | None:
    """Return a description of how the module mixes records, found by running it; None if it does not.

    The caller must not use the module afterwards.
    """
    import torch

    probe = copy.deepcopy(module).train()
    with torch.random.fork_rng(devices=[]):
        with torch.no_grad():
            together = probe(inputs.clone())
        if (name := _changed_buffer(module, probe)) is not None:
            return (
                f"its buffer {name} changes in training: statistics of private records would be published "
                "without noise; use layers that keep none"
            )
        if depends := _gradient_of_others(probe, inputs):
            return depends
        for i in range(min(_ALONE, len(inputs))):
            try:
                with torch.no_grad():
                    alone = probe(inputs[i : i + 1].clone())
            except (RuntimeError, ValueError) as error:
                return f"it fails on a single record ({str(error).splitlines()[0]})"
            differs = (alone[0] - together[i]).abs().max() > _TOLERANCE * together[i].abs().max()
            if alone.shape[1:] != together.shape[1:] or bool(differs):
                return _MIXES
    return None


_MIXES = (
    "its output for a record depends on the records beside it, so clipping one gradient or upload does "
    "not bound the influence of its owner; use layers that treat each record on its own"
)


def _gradient_of_others(probe: nn.Module, inputs: Tensor) -> str | None:
    """Return a refusal if the first record's output has a gradient with respect to other records."""
    import torch

    if not inputs.is_floating_point():
        return None
    probe_inputs = inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(probe(probe_inputs)[0].sum(), probe_inputs, allow_unused=True)
    return _MIXES if gradient is not None and bool(gradient[1:].any()) else None


def _changed_buffer(before: nn.Module, after: nn.Module) -> str | None:
    import torch

    buffers_after = dict(after.named_buffers())
    for name, buffer in before.named_buffers():
        if name not in buffers_after or not torch.equal(
            buffer.nan_to_num(), buffers_after[name].nan_to_num()
        ):
            return name
    return next((name for name in buffers_after if name not in dict(before.named_buffers())), None)


def _which_dropout(module: nn.Module) -> str:
    from torch import nn

    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            return f", layer {name or 'model'} ({type(layer).__name__})"
    return ""
