"""The commands ``fedpriv leaderboard add``, ``attack``, ``check`` and ``write``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.files import saying_where, write_text
from fedpriv.common.words import counted, round_up
from fedpriv.store.display import console
from fedpriv.tools.leaderboard.entry import (
    FEWEST_ORDERED_SEEDS,
    AttackedReproduction,
    LeaderboardEntry,
    read_entries,
    read_entry,
    write_entry,
)
from fedpriv.tools.leaderboard.gather import file_name, gather
from fedpriv.tools.leaderboard.page import page
from fedpriv.tools.leaderboard.trial import again, margin
from fedpriv.tools.leaderboard.under_attack import measure_worst_case, worst_case_again


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


def attack_entry(path: Path, attack_set: int, seeds: int | None, out: Path, instead: bool) -> int:
    """Run the entry under every attack of a set, add its worst case to its file, and return the exit status.

    Args:
        path: File of the entry.
        attack_set: Version of the attack set.
        seeds: Number of seeds under each attack; None: all of the entry.
        out: Folder below which the run folders are made, and stay.
        instead: Replace the worst case that the entry has already.

    Raises:
        ConfigError: The entry has a worst case already and ``instead`` is false, or cannot be attacked.
        FedprivError: A run fails, or the file changed in the meantime.
    """
    entry = read_entry(path)
    if entry.worst_case is not None and not instead:
        raise ConfigError(f"{path} has a worst case; --replace puts the new one in its place")
    say = console().print
    worst_case = measure_worst_case(entry, path, attack_set, seeds, out, say)
    write_entry(path, replace(_reread(path, entry), worst_case=worst_case))
    if worst_case.attack is None:
        say(f"no attack of set {attack_set} goes with the configuration of {path}")
    else:
        say(f"worst case: {worst_case.attack}: {path}")
        if worst_case.seeds < FEWEST_ORDERED_SEEDS:
            say(f"fewer than {FEWEST_ORDERED_SEEDS} seeds do not order the attacks")
    return 0


def check_entry(path: Path, runs: int, out: Path) -> int:
    """Run the entry again, add the accepted runs to its file, and return the exit status.

    Where the entry has a worst case, it is also run under every attack of its set. If one run does not agree,
    none is added.

    Args:
        path: File of the entry.
        runs: Number of runs, and of runs under each attack.
        out: Folder below which the run folders are made, and stay.

    Raises:
        FedprivError: A run does not agree with the entry, or the file changed in the meantime.
    """
    entry = read_entry(path)
    say = console().print
    verdicts = again(entry, path, runs, out, say)
    problems = [problem for verdict in verdicts for problem in verdict.problems]
    attacked: list[AttackedReproduction] = []
    if entry.worst_case is not None:
        attacked, found = worst_case_again(entry, path, runs, out, say)
        problems += found
    if problems:
        raise FedprivError(f"{path} is not accepted: {'; '.join(dict.fromkeys(problems))}")
    current = _reread(path, entry)
    checks = (*current.checks, *(verdict.check for verdict in verdicts))
    if current.worst_case is not None:
        attacked_checks = (*current.worst_case.checks, *attacked)
        current = replace(current, worst_case=replace(current.worst_case, checks=attacked_checks))
    write_entry(path, replace(current, checks=checks))
    say(f"accepted: {path}")
    return 0


def _reread(path: Path, entry: LeaderboardEntry) -> LeaderboardEntry:
    """Return the entry as its file has it now, possibly with more checks, since runs may take hours.

    Raises:
        FedprivError: Something else than the checks has changed.
    """
    current = read_entry(path)
    if _without_checks(current) != _without_checks(entry):
        raise FedprivError(f"{path} changed while it was run; run the command again")
    return current


def _without_checks(entry: LeaderboardEntry) -> LeaderboardEntry:
    worst_case = entry.worst_case and replace(entry.worst_case, checks=())
    return replace(entry, checks=(), worst_case=worst_case)


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
