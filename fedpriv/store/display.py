"""Lines about a run on the console: its plan, the short statement, the summary, times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fedpriv.common.console import console
from fedpriv.common.words import counted, round_up
from fedpriv.store.caveats import DIVERGING, SEES_HIDDEN
from fedpriv.store.columns import WORST
from fedpriv.store.statement import epsilon_rows, headline
from fedpriv.store.table import pairs


def show_plan(lines: Iterable[tuple[str, str]]) -> None:
    """Print the plan of a run as a table of names and values."""
    console().print(pairs("Plan", lines))


def teller(progress: str) -> Callable[[str], None]:
    """Return a function that prints a line about the preparation of a run.

    With ``progress=none`` the function prints nothing.
    """
    return (lambda _: None) if progress == "none" else console().print


def statement_lines(privacy: Mapping[str, Any]) -> str:
    """Return the short privacy statement for the end of a run; privacy.txt has the whole of it."""
    lines = [headline(privacy)]
    if privacy["private"]:
        lines.append("Epsilon of the worst client:")
        lines += [
            f"  {name:<9} {value:<8} {meaning}" for name, value, meaning in epsilon_rows(privacy)
        ]
        lines.append("In full, with caveats: privacy.txt")
    return "\n".join(lines)


def summary_lines(
    summary: Mapping[str, Any], adapts: bool, limited: bool = True
) -> list[tuple[str, str]]:
    """Return the rows (name, value) of the summary table.

    Args:
        summary: The content of ``summary.json``.
        adapts: True if the noise schedule could decay σ; the number of decays is then shown.
        limited: True if a budget limits the ε of the configured accountant.
    """
    rows = [
        ("algorithm", summary["algorithm"]),
        ("data set", summary["dataset"]),
        ("seed", "withheld" if summary["seed"] is None else str(summary["seed"])),
        ("rounds", f"{summary['rounds']} (stopped by: {summary['stop_reason']})"),
    ]
    if summary.get("diverging"):
        rows.append(("diverging", DIVERGING))
    if summary.get("aborted_rounds") is not None:
        rows.append(("aborted rounds", f"{summary['aborted_rounds']} of {summary['rounds']}"))
    if summary["test_accuracy"] is not None:
        rows += [
            ("test accuracy", f"{100 * summary['test_accuracy']:.2f} %"),
            ("test loss", f"{summary['test_loss']:.4f}"),
        ]
    measured_by = zip(WORST, ("own test records", "their labels"), strict=True)
    words = "{:.2f} % (mean of a tenth of the clients, by {})"
    rows += [
        ("worst accuracy", words.format(100 * summary[k], by))
        for k, by in measured_by
        if k in summary
    ]
    if "attackers" in summary:
        attackers = counted(len(summary["attackers"]), "attacker")
        description = f"{attackers}, attacks in {counted(summary['attacked_rounds'], 'round')}"
        if summary["attackers"] and not summary["attacked_rounds"]:
            description += ": that of a model nobody attacked"
        if summary.get("omniscient"):
            description += f"; {SEES_HIDDEN}"
        if summary.get("backdoor_accuracy") is None:
            rows.append(("attack", description))
        else:
            records = counted(summary["backdoor_test_records"], "record")
            rate = f"{100 * summary['backdoor_accuracy']:.2f} % (attack success rate) on {records}"
            rows.append(("backdoor accuracy", f"{rate}; {description}"))
    if summary["epsilon"] is not None:
        decays = f", {counted(summary['noise_decays'], 'decay')}" if adapts else ""
        rows += [
            ("epsilon", _epsilon_words(summary, limited)),
            ("noise multiplier", f"{summary['noise_multiplier']:.4g} in the last round{decays}"),
        ]
    if summary["records_not_finite"]:
        rows.append(("not finite", f"{summary['records_not_finite']} gradients left out"))
    if summary["seconds"] is not None:
        rows.append(("time", duration(summary["seconds"])))
    return rows


def _epsilon_words(summary: Mapping[str, Any], limited: bool) -> str:
    """Describe the sound ε, which is the one to report, with the configured accountant's if that differs."""
    sound, composed = round_up(summary["epsilon_sound"]), round_up(summary["epsilon"])
    description = f"{sound} (sound) at delta {summary['delta']:g}"
    if composed == sound:
        return description
    return f"{description}; {'enforced' if limited else 'composed'}: {composed}"


def duration(seconds: float) -> str:
    """Return a duration as minutes and seconds, or as hours, minutes and seconds.

    >>> duration(75)
    '1:15'
    """
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{secs:02d}" if hours else f"{minutes}:{secs:02d}"
