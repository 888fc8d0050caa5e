"""Parts of an algorithm's paper that a run replaces: noise schedule, its clipper, its mean of uploads."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fedpriv.common.groups import conf_dir, option_of

_PLAIN = ("constant", "calibrated", "none")
"""Options that are no work's own: constant noise, given or found for a budget, and a fixed clip norm."""
_OWN = re.compile(r"^ *- override /(clipper|noise_schedule): *(\w+)", re.MULTILINE)
_LACKS = {
    "noise_schedule": "the noise does not change as in the paper",
    "clipper": "gradients or updates are not clipped as in the paper",
}
_NO_MEAN = "the server does not average uploads as in the paper, whose analysis is of the mean"


def replaced_parts(name: str, parts: Mapping[str, object]) -> list[str]:
    """Return a sentence for each part of an algorithm's paper that a run has replaced by another.

    Args:
        name: Name of the algorithm. Only one with a YAML in fedpriv has parts of its own.
        parts: The run's noise schedule and clipper, by group, and a rule instead of the mean (aggregation),
            where the paper has a published analysis.
    """
    path = conf_dir() / "algorithm" / f"{name}.yaml"
    if not re.fullmatch(r"\w+", name) or not path.is_file():
        return []
    own = dict(_OWN.findall(path.read_text(encoding="utf-8")))
    sentences = []
    for group, words in _LACKS.items():
        given, expected = option_of(group, parts[group]), own.get(group, _PLAIN[0])
        if expected not in _PLAIN and given != expected:
            sentences.append(f"{name} with {group}={given} instead of its own {expected}: {words}.")
    if (rule := parts.get("aggregation")) is not None:
        given = option_of("aggregation", rule)
        sentences.append(f"{name} with aggregation={given} instead of its own mean: {_NO_MEAN}.")
    return sentences
