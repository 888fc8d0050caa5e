"""The baseline of Adap DP-FL, as flags."""

from __future__ import annotations

BASELINE = ("--noise-multiplier", "3", "--sample-rate", "0.013", "--steps", "7921")


DELTA = ("--delta", "1e-5")
