"""Colours by name: Okabe and Ito's palette, safe for all common colour vision, and a few more.

The module does not import matplotlib, so that a figure's YAML can be checked without it.
"""

from __future__ import annotations

COLOURS = {
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "red": "#D55E00",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    "yellow": "#F0E442",
    "black": "#000000",
    "grey": "#7F7F7F",
    "brown": "#8C564B",
    "olive": "#999933",
}
