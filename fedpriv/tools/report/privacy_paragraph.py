"""The paragraph of a paper about the privacy of its runs, in LaTeX."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedpriv.common.checks import is_number
from fedpriv.common.errors import ConfigError
from fedpriv.common.words import counted, printable, round_up, span
from fedpriv.privacy.core.names import RELATION_WORDS, SOUND
from fedpriv.privacy.core.trust import TRUSTS
from fedpriv.store.folder import RunFolder
from fedpriv.store.joint_privacy import joint_privacy
from fedpriv.store.run_folders import runs_of_figure
from fedpriv.store.saved import saved_text
from fedpriv.store.stored_run import StoredRun
from fedpriv.store.table import latex_text
from fedpriv.tools.report.gather import find

PARAGRAPH = "privacy.tex"
"""Name of the paragraph in the folder of a user's own figure."""


def privacy_paragraph(runs: Sequence[StoredRun], warning: str = "") -> str:
    """Return a LaTeX paragraph: unit, neighbours, δ, ε, accountant, randomness, and the cost of all runs.

    Args:
        runs: The runs that the paper reports on, and those tried beside these.
        warning: A sentence about how the reported runs were chosen.

    Raises:
        ConfigError: A run cannot be read.
    """
    finished = [run for run in runs if run.finished]
    private = [run for run in finished if run.statement.get("private")]
    sentences = [] if private else ["None of these runs has a privacy guarantee."]
    by_view: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for run in private:
        view = run.statement["views"][SOUND]
        key = (str(view["unit"]), str(view["neighbours"]), str(view["trust"]))
        by_view.setdefault(key, []).append(run.statement)
    for (unit, neighbours, trust), statements in by_view.items():
        sentences += _guarantee(unit, neighbours, trust, statements)
    if any(run.statement.get("randomness") == "seeds of the configuration" for run in private):
        sentences.append(
            "Noise and sampling follow from the seeds of the configuration, so the guarantee is that of the "
            "mechanism and holds as long as the seeds are secret; these runs are simulations."
        )
    for joint in joint_privacy(runs):
        if len(joint.runs) > 1 or joint.not_included or math.isnan(joint.epsilon):
            sentences += joint.sentences()
    if len(finished) < len(runs):
        left_out = counted(len(runs) - len(finished), "run")
        sentences.append(f"No guarantee is stated for {left_out} that did not end.")
    text = _POWER.sub(_in_powers, "\n".join(map(latex_text, sentences)))
    head = f"% from the privacy statements of {counted(len(runs), 'run')}, by fedpriv"
    head += f"\n% {printable(warning)}" if warning else ""
    return f"{head}\n\\paragraph{{Privacy.}}\n{text}\n"


_POWER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]\d+)\b")


def _in_powers(number: re.Match[str]) -> str:
    """Return a number such as 1e-05 as ``$10^{-5}$``."""
    factor = "" if number[1] == "1" else rf"{number[1]} \cdot "
    return f"${factor}10^{{{int(number[2])}}}$"


def paragraph_of_folders(given: Sequence[str]) -> str:
    """Return the paragraph about all runs, and all runs of figures, in the folders.

    Raises:
        ConfigError: A folder has neither run nor figure, or a run cannot be read.
    """
    run_paths, figures = find(given)
    for path in (*run_paths, *figures):
        RunFolder(path).refuse_links()  # a link may lead anywhere
    texts = [(path / PARAGRAPH) for path in figures if (path / PARAGRAPH).is_file()]
    if len(figures) == 1 and texts and not run_paths:
        lines = saved_text(texts[0]).splitlines()
        return "".join(f"{printable(line)}\n" for line in lines)
    of_figures = [run for path in figures for run in runs_of_figure(path)]
    paths = dict.fromkeys([*run_paths, *of_figures])
    if not paths:
        raise ConfigError(f"{', '.join(given)}: no run is there whose privacy could be stated")
    return privacy_paragraph([StoredRun(path) for path in paths])


_CELLS = re.compile(r"PLD, cells of (\S+\d)")
_IN_PLAIN_WORDS = r"privacy loss distributions (PLD) with a discretization of \1"


def _guarantee(
    unit: str, neighbours: str, trust: str, statements: Sequence[Mapping[str, Any]]
) -> Iterable[str]:
    """Yield the sentences about the runs with one unit, adjacency and trust."""
    runs = "The run protects" if len(statements) == 1 else f"{len(statements)} runs protect"
    yield (
        f"{runs} one {unit} ({unit}-level differential privacy; neighbouring data sets: "
        f"{RELATION_WORDS[neighbours]}) against {TRUSTS[trust].observer} ({trust} trust)."
    )
    epsilons = [s.get("epsilon_sound") for s in statements]
    finite = [float(e) for e in epsilons if is_number(e) and math.isfinite(e)]
    deltas = sorted({float(s["delta"]) for s in statements})
    delta = span(*(f"{d:g}" for d in (deltas[0], deltas[-1])))
    if finite:
        epsilon = span(round_up(min(finite)), round_up(max(finite)))
        each = " for each run by itself" if len(finite) > 1 else ""
        yield f"We report (ε, δ) with ε = {epsilon} at δ = {delta}{each}."
    if infinite := len(epsilons) - len(finite):
        yield f"For {counted(infinite, 'run')} no finite ε holds."
    reasons = dict.fromkeys(
        str(s["reasons"]["epsilon_sound"]).partition(";")[0]
        for s in statements
        if isinstance(s.get("reasons"), dict) and "epsilon_sound" in s["reasons"]
    )
    yield f"ε was accounted for by: {_CELLS.sub(_IN_PLAIN_WORDS, '; '.join(reasons))}."
