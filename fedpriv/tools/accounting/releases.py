"""What is to be accounted for: releases from flags, from a schedule file, or from the ledger of a run."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from dp_accounting import dp_event

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.words import counted
from fedpriv.privacy.accountants import Accountant
from fedpriv.privacy.accountants.composition import CompositionAccountant, largest
from fedpriv.privacy.calibration import MOST_NOISE, RepeatedRelease
from fedpriv.privacy.core.names import BUDGET_VIEWS, PUBLISHED, SOUND
from fedpriv.privacy.core.trade_off import TradeOff, trade_off_of
from fedpriv.store.stored_run import StoredRun
from fedpriv.tools.accounting import arguments

Stages = tuple[tuple[dp_event.DpEvent, int], ...]


@dataclass(frozen=True)
class Releases:
    """What one or several clients released, in the order of release, under one relation.

    ``histories``: the distinct histories of the clients; ε is that of the worst.
    """

    lines: tuple[tuple[str, str], ...]
    neighbours: str
    histories: tuple[Stages, ...]
    published: Accountant | None = None
    """The accountant of the theorem whose view this is."""
    claimed: bool = False
    """Whether these are the releases as a work's theorem counts them, not as they were made."""
    noise_adapts: bool = False
    """Whether the noise followed released values, so that an epsilon as if it were fixed is no guarantee."""
    guaranteed: float | None = None
    """What does hold then, at :attr:`run_delta`: the budget of its filter."""
    run_delta: float | None = None
    stated: TradeOff | None = None
    """How well any attack can do by the run's own statement."""

    @property
    def steps(self) -> int:
        """The most draws any client made."""
        return max(sum(count for _, count in stages) for stages in self.histories)

    def events(self) -> set[dp_event.DpEvent]:
        return {event for stages in self.histories for event, _ in stages}

    @cached_property
    def largest(self) -> dict[Stages, dict[dp_event.DpEvent, int]]:
        """The histories that no other one contains, and what each comes to: one of them is the worst."""
        found = {stages: composed(stages) for stages in self.histories}
        kept = largest(list(found.values()))
        return {stages: own for stages, own in found.items() if any(own is k for k in kept)}

    def epsilon(self, accountant: Accountant, delta: float) -> float:
        """ε of the worst client."""
        compositions = self.largest.values()
        return max(accountant.epsilon_of(c, delta, self.neighbours) for c in compositions)

    def deltas(self, accountant: Accountant, epsilons: np.ndarray) -> np.ndarray:
        """δ of the worst client at each of ``epsilons``."""
        compositions = self.largest.values()
        found = [accountant.deltas_of(c, epsilons, self.neighbours) for c in compositions]
        return np.max(found, axis=0)

    def curve(self, accountant: Accountant, delta: float, steps: list[int]) -> list[float]:
        """ε of the worst client after the first so many draws, ascending."""
        curves = [
            accountant.epsilons_after(between(stages, steps), delta, self.neighbours)
            for stages in self.largest
        ]
        return [max(epsilons) for epsilons in zip(*curves, strict=True)]

    def is_bound(self, accountant: CompositionAccountant, delta: float, epsilon: float) -> bool:
        """Whether ``epsilon`` is the accountant's quick bound rather than its own epsilon."""
        bounds = (accountant.bound(c, delta, self.neighbours) for c in self.largest.values())
        return epsilon > 0 and max(bounds) == epsilon

    def refusal(self, accountant: Accountant) -> str | None:
        """Why the accountant cannot account for this, or ``None``."""
        reasons = (accountant.supports(event, self.neighbours) for event in self.events())
        return next((reason for reason in reasons if reason), None)


def composed(stages: Stages) -> dict[dp_event.DpEvent, int]:
    """How often each event comes."""
    composition: dict[dp_event.DpEvent, int] = {}
    for event, count in stages:
        composition[event] = composition.get(event, 0) + count
    return composition


def between(stages: Stages, steps: Iterable[int]) -> Iterator[dict[dp_event.DpEvent, int]]:
    """What is drawn up to each of ``steps``, ascending, after the one before."""
    left, before = list(reversed(stages)), 0
    for step in steps:
        part: dict[dp_event.DpEvent, int] = {}
        wanted, before = step - before, step
        while wanted and left:
            event, count = left.pop()
            taken = min(count, wanted)
            part[event] = part.get(event, 0) + taken
            wanted -= taken
            if taken < count:
                left.append((event, count - taken))
        yield part


def from_flags(options: SimpleNamespace) -> Releases:
    """The same release ``--steps`` times."""
    release = arguments.release(options)
    sampled = release.sampling != "none"
    names = arguments.MECHANISM if sampled else ("noise_multiplier", "steps")
    arguments.require(options, names, "(or --schedule FILE, or --run FOLDER)")
    if not sampled:
        arguments.refuse(options, ("sample_rate",), "with --sampling none")
    multiplier = arguments.noise_multiplier(options.noise_multiplier)
    rate = arguments.sample_rate(options.sample_rate) if sampled else 1.0
    steps = arguments.whole("steps", options.steps)
    lines = (
        ("noise multiplier", f"{multiplier:g}"),
        ("sampling", sampling_words(release, rate)),
        ("steps", str(steps)),
        ("neighbours", release.neighbours),
    )
    event = release.event(multiplier, rate)
    return Releases(lines, release.neighbours, (((event, steps),),))


def sampling_words(release: RepeatedRelease, sample_rate: float) -> str:
    """How lots are drawn, in words."""
    if release.sampling == "none":
        return "none: every record takes part every time"
    if release.sampling == "without_replacement":
        lot = release.lot_size(sample_rate)
        return f"lots of {lot} of {release.records} records without replacement"
    cap = "" if release.max_lot_size is None else f", at most {release.max_lot_size} records"
    return f"Poisson, sample rate {sample_rate:g}{cap}"


def from_schedule(options: SimpleNamespace) -> Releases:
    """A CSV with a row for each stretch: noise_multiplier and, if wanted, sample_rate and steps.

    Other columns are left alone, so the metrics.csv of a run with one query a lot is such a file; its
    ledger (``--run``) holds the other queries too.
    """
    arguments.refuse(options, ("noise_multiplier", "steps"), "with --schedule, which holds them")
    release = arguments.release(options)
    if release.sampling == "none":
        arguments.refuse(options, ("sample_rate",), "with --sampling none")
    if not options.schedule:
        raise ConfigError("--schedule", "nothing", "a readable CSV file")
    path = Path(options.schedule)
    stages: list[tuple[dp_event.DpEvent, int]] = []
    for line, row in rows_of(path):
        rate = _rate(path, line, row, release, options.sample_rate)
        multiplier = _field(path, line, row, "noise_multiplier", above=0, at_most=MOST_NOISE)
        steps = _field(path, line, row, "steps", whole=True) if row.get("steps") else 1
        stages.append((release.event(multiplier, rate), int(steps)))
    total = sum(count for _, count in stages)
    distinct = len({event for event, _ in stages})
    lines = (
        (
            "schedule",
            f"{path}: {counted(total, 'step')}, {counted(distinct, 'distinct release')}",
        ),
        ("sampling", release.sampling),
        ("neighbours", release.neighbours),
    )
    return Releases(lines, release.neighbours, (tuple(stages),))


def rows_of(path: Path, flag: str = "--schedule") -> Iterator[tuple[int, dict[str, str]]]:
    """(line number, row) of the CSV that ``flag`` names, which has a header. Raises ConfigError."""
    kind = f"a {flag.removeprefix('--')}"
    found = False
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            names = [name.strip() for name in reader.fieldnames or []]
            repeated = sorted({name for name in names if names.count(name) > 1})
            if repeated:
                raise ConfigError(f"{path}, line 1: two columns are named {', '.join(repeated)}")
            if "noise_multiplier" not in names:
                raise ConfigError(
                    f"{path}, line 1: {kind} needs a column noise_multiplier (and may have "
                    f"sample_rate and steps), found {', '.join(names) or 'nothing'}"
                )
            reader.fieldnames = names
            for row in reader:
                if None in row or None in row.values():
                    raise ConfigError(
                        f"{path}, line {reader.line_num}: {len(names)} values expected, as in the header"
                    )
                found = True
                yield reader.line_num, {name: text.strip() for name, text in row.items()}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(flag, str(path), f"a readable CSV file ({reason})") from None
    if not found:
        raise ConfigError(f"{path}: {kind} needs at least one row below its header")


def _rate(
    path: Path, line: int, row: Mapping[str, str], release: RepeatedRelease, given: str | None
) -> float:
    if release.sampling == "none":
        if "sample_rate" in row:
            raise ConfigError(
                f"--sampling none contradicts the column sample_rate of {path}, line {line}"
            )
        return 1.0
    if "sample_rate" in row:
        if given is not None:
            raise ConfigError(f"--sample-rate cannot be given: {path} has a column sample_rate")
        return _field(path, line, row, "sample_rate", above=0, at_most=1)
    if given is None:
        raise ConfigError(
            f"--sample-rate must be given: {path} has no column sample_rate (or --sampling none)"
        )
    return arguments.sample_rate(given)


def _field(
    path: Path, line: int, row: Mapping[str, str], name: str, whole: bool = False, **bounds: float
) -> float:
    try:
        try:
            value: object = float(row[name])
        except ValueError:
            value = row[name]
        if whole:
            return checks.whole(name, value, at_least=1, at_most=10**9)
        return checks.number(name, value, **bounds)
    except ArgumentError as error:
        raise ConfigError(f"{path}, line {line}: {error}") from None


def from_run(options: SimpleNamespace) -> Releases:
    """What the clients of a finished (or interrupted) run released, by its ledger."""
    arguments.refuse(
        options,
        (*arguments.MECHANISM, *arguments.RELEASE, "schedule"),
        "with --run, whose ledger holds what was released",
    )
    view = SOUND if options.view is None else options.view
    if view not in BUDGET_VIEWS:
        raise ConfigError("--view", view, "one of " + ", ".join(BUDGET_VIEWS))
    run = stored_run(options)
    ledger, facts = run.ledger(view), run.statement
    clients, distinct = len(ledger.of_client), len(ledger.histories)
    lines = (
        ("run folder", str(run.path)),
        ("view", f"{view}: {VIEW_WORDS[view]}"),
        (
            "clients",
            f"the worst of {clients} that took part, {counted(distinct, 'distinct history')}",
        ),
        ("neighbours", ledger.neighbours),
    )
    adapts = bool(facts.get("noise_adapts"))
    return Releases(
        lines,
        ledger.neighbours,
        ledger.histories,
        published=theorem(run) if view == PUBLISHED else None,
        claimed=view == PUBLISHED,
        noise_adapts=adapts,
        guaranteed=facts.get("epsilon_sound") if adapts else None,
        run_delta=facts.get("delta"),
        stated=trade_off_of(facts.get("privacy_profile")) if adapts and view == SOUND else None,
    )


VIEW_WORDS = {SOUND: "what really happened", PUBLISHED: "what the work's analysis charges"}


def stored_run(options: SimpleNamespace) -> StoredRun:
    """Return the run of ``--run``, refused with a hint where it cannot be one."""
    path = Path(options.run_folder)
    if not options.run_folder or not path.is_dir():
        raise ConfigError("--run", options.run_folder or "nothing", "an existing run folder")
    run = StoredRun(path)
    inside = sorted(p.parent.name for p in path.glob("*/ledger.csv"))
    if not run.files.ledger.exists() and inside:
        raise ConfigError("--run", str(path), f"a run folder, such as {path / inside[-1]}")
    return run


def theorem(run: StoredRun) -> Accountant | None:
    """The accountant of the published claim of the run's algorithm, if that is one of fedpriv's."""
    from fedpriv.experiment.consent import TARGET, is_shipped
    from fedpriv.experiment.instantiate import instantiate

    try:
        config = run.configuration
        if not is_shipped(f"algorithm.{TARGET}", config.algorithm._target_):
            return None  # one of the user's own has no theorem
        claim = instantiate(config, "algorithm").claim
    except ConfigError:  # of another version: only this row is lost
        return None
    return None if claim is None else claim.accountant()


def read_delta(options: SimpleNamespace) -> str | None:
    """``--delta``, or the δ of the run."""
    if options.delta is not None or options.run_folder is None:
        return options.delta
    delta = stored_run(options).statement.get("delta")
    return None if delta is None else str(delta)
