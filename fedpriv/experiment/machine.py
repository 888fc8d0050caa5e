"""The device and the threads a run uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.common.errors import ConfigError

if TYPE_CHECKING:
    import torch

_SMALL = 2e6  # parameters × records below which a second thread costs more than it brings


def choose_threads(wanted: int | None, work: float) -> int:
    """Set torch's threads: ``wanted``, or 1 for a small problem, or torch's own choice.

    ``work`` (parameters × records per step) decides, never a timing, so a run takes the same path
    everywhere. Returns the number in force.
    """
    import torch

    if wanted is not None:
        torch.set_num_threads(wanted)
    elif work < _SMALL:
        torch.set_num_threads(1)
    return torch.get_num_threads()


def resolve_device(name: str) -> torch.device:
    """``auto`` → cuda if there is one, else cpu. Raises ConfigError for a device that is absent."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError("runtime.device", name, "auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError("runtime.device", name, "auto, cpu, cuda or cuda:N")
    if device.type == "cuda":
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= found:
            raise ConfigError(
                "runtime.device", name, f"one that is present: {found} CUDA device(s) found"
            )
    return device
