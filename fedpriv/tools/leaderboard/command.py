"""The commands ``fedpriv leaderboard add``, ``check`` and ``write``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.files import saying_where, write_text
from fedpriv.common.words import counted, round_up
from fedpriv.store.display import console
from fedpriv.tools.leaderboard.entry import read_entries, read_entry, write_entry
from fedpriv.tools.leaderboard.gather import file_name, gather
from fedpriv.tools.leaderboard.page import page
from fedpriv.tools.leaderboard.trial import again, margin


def add_entry(runs: Sequence[str], folder: Path, instead: bool) -> int:
    """Write the entry of these runs into ``folder`` and return the exit status.

    Args:
        runs: Run folders.
        folder: Folder of the entries; it is made.
        instead: Replace the entry that this configuration has already.

    Raises:
        ConfigError: The runs do not make an entry, or the configuration has an entry already and ``instead``
            is false.
        WriteError: The entry cannot be written.
    """
    entry = gather(runs)
    path = folder / file_name(entry)
    if path.exists() and not instead:
        raise ConfigError(
            f"{path} is the entry of this configuration; --replace puts this one in its place"
        )
    with saying_where(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_entry(path, entry)
    out, sd = console(), "" if entry.sd is None else f" +- {100 * entry.sd:.2f}"
    out.print(
        f"entry: {path}\n{entry.dataset}, {entry.trust} trust, one {entry.unit}: accuracy "
        f"{100 * entry.mean:.2f}{sd} % over {counted(len(entry.runs), 'seed')}, epsilon "
        f"{round_up(entry.epsilon)} at delta = {entry.delta:g}, {entry.cpu_minutes:.2g} CPU minutes a run"
    )
    if entry.sd is None:
        out.print(
            "one seed has no sd: add runs of further seeds, or it is compared by its test error alone"
        )
    tolerance, reason = margin(entry)
    out.print(f"a check accepts accuracies within {100 * tolerance:.2f} points: {reason}")
    return 0


def check_entry(path: Path, runs: int, out: Path) -> int:
    """Run the entry again, add the accepted runs to its file, and return the exit status.

    If one run does not agree, none is added.

    Args:
        path: File of the entry.
        runs: Number of runs.
        out: Folder below which the run folders are made, and stay.

    Raises:
        FedprivError: A run does not agree with the entry, or the file changed in the meantime.
    """
    entry = read_entry(path)
    verdicts = again(entry, path, runs, out, console().print)
    problems = [problem for verdict in verdicts for problem in verdict.problems]
    if problems:
        raise FedprivError(f"{path} is not accepted: {'; '.join(dict.fromkeys(problems))}")
    current = read_entry(path)  # runs may take hours, so the file may have changed
    if replace(current, checks=entry.checks) != entry:
        raise FedprivError(f"{path} changed while it was checked; check it again")
    write_entry(path, replace(current, checks=(*current.checks, *(v.check for v in verdicts))))
    console().print(f"accepted: {path}")
    return 0


def write_page(folder: Path, path: Path, plot: Path | None = None) -> int:
    """Write the page of all entries, and the picture if one is asked for, and return the exit status.

    Args:
        folder: Folder of the entries.
        path: The page; its text above and below the tables stays.
        plot: The picture of accuracy against ε; None: it is not drawn.

    Raises:
        ConfigError: There is no such folder, or one of its JSON files is no entry.
        WriteError: The page cannot be read or written, or the picture cannot be written.
    """
    entries = read_entries(folder)
    with saying_where(path):
        old_page = path.read_text(encoding="utf-8") if path.exists() else ""
    write_text(path, page(old_page, entries))
    console().print(f"{counted(len(entries), 'entry')}: {path}")
    if plot is not None and not entries:
        console().print(f"no entry, so nothing is drawn: {plot}")
    elif plot is not None:
        from fedpriv.tools.leaderboard.picture import draw_entries  # matplotlib is slow to import

        draw_entries(plot, entries)
        console().print(f"accuracy against epsilon: {plot}")
    return 0
