"""Refuses layers that let one record change the gradient of another.

Clipping a record's gradient bounds that record's influence only if the gradient depends on this
record alone. Batch normalisation breaks that, and running statistics of private data are released
without noise. Opacus knows the usual layers; what it passes by is checked here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.common.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn


def refuse_record_mixing(module: nn.Module) -> None:
    """Raise unless every layer treats each record on its own.

    Raises:
        ConfigError: Names the first offending layer, the reason and what to use instead.
    """
    for name, layer in module.named_modules():
        reason = _reason(layer)
        if reason:
            where = f"layer {name or 'model'} ({type(layer).__name__})"
            raise ConfigError(
                f"model cannot be trained with differential privacy: {where} {reason}"
            )


def _reason(layer: nn.Module) -> str | None:
    from opacus.validators import ModuleValidator
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
    validator = ModuleValidator.VALIDATORS.get(type(layer))
    if validator is None or not validator(layer):
        return None
    return "has no per-record gradients in Opacus; use its counterpart in opacus.layers"
