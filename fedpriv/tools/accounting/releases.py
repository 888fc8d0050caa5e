"""The releases to account for: from flags, from a schedule file, or from the ledger of a run."""

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
from fedpriv.privacy.accountants.composition import largest
from fedpriv.privacy.calibration import MOST_NOISE, RepeatedRelease
from fedpriv.privacy.core.names import BUDGET_VIEWS, PUBLISHED, SOUND
from fedpriv.privacy.core.trade_off import TradeOff, trade_off_of
from fedpriv.store.stored_run import StoredRun
from fedpriv.tools.accounting import arguments

Stages = tuple[tuple[dp_event.DpEvent, int], ...]


@dataclass(frozen=True)
class Releases:
    """The releases of one or several clients, in order, under one adjacency.

    Attributes:
        lines: What the table says about the releases: pairs of a name and a text.
        neighbours: The adjacency.
        histories: The distinct histories of the clients. The ε of these releases is that of the worst client.
        published: The accountant of the theorem of a run's work, in the published view.
        claimed: Whether the releases are counted as a work's theorem counts them, not as they were made.
        noise_adapts: Whether the noise followed released values. An ε that treats it as fixed is no
            guarantee.
        guaranteed: The ε that does hold if the noise adapts: the budget of the run's filter, at
            ``run_delta``.
        run_delta: δ of the run.
        stated: The trade-off curve of the run's own statement, which bounds every attack.
    """

    lines: tuple[tuple[str, str], ...]
    neighbours: str
    histories: tuple[Stages, ...]
    published: Accountant | None = None
    claimed: bool = False
    noise_adapts: bool = False
    guaranteed: float | None = None
    run_delta: float | None = None
    stated: TradeOff | None = None

    @property
    def steps(self) -> int:
        """Largest number of draws of any client."""
        return max(sum(count for _, count in stages) for stages in self.histories)

    def events(self) -> set[dp_event.DpEvent]:
        """Return the distinct events of all clients."""
        return {event for stages in self.histories for event, _ in stages}

    @cached_property
    def largest(self) -> dict[Stages, dict[dp_event.DpEvent, int]]:
        """Histories that no other history contains, each with its composition.

        The worst client has one of them, so the others need not be priced.
        """
        compositions = {stages: composed(stages) for stages in self.histories}
        maximal = largest(list(compositions.values()))
        return {
            stages: composition
            for stages, composition in compositions.items()
            if any(composition is other for other in maximal)
        }

    def worst(self, accountant: Accountant, delta: float) -> dict[dp_event.DpEvent, int]:
        """Return the composition of the worst client."""
        compositions = list(self.largest.values())
        if len(compositions) == 1:
            return compositions[0]
        return max(compositions, key=lambda c: accountant.epsilon_of(c, delta, self.neighbours))

    def deltas(self, accountant: Accountant, epsilons: np.ndarray) -> np.ndarray:
        """Return δ(ε) of the worst client [e].

        Args:
            accountant: The accountant to ask.
            epsilons: Values of ε [e].
        """
        compositions = self.largest.values()
        by_history = [accountant.deltas_of(c, epsilons, self.neighbours) for c in compositions]
        return np.max(by_history, axis=0)

    def curve(self, accountant: Accountant, delta: float, steps: list[int]) -> list[float]:
        """Return ε(δ) of the worst client after each number of draws.

        A client with fewer draws keeps its last ε.

        Args:
            accountant: The accountant to ask.
            delta: δ.
            steps: Numbers of draws, ascending.
        """
        curves = [
            accountant.epsilons_after(between(stages, steps), delta, self.neighbours)
            for stages in self.largest
        ]
        return [max(epsilons) for epsilons in zip(*curves, strict=True)]

    def refusal(self, accountant: Accountant) -> str | None:
        """Return why the accountant cannot account for these releases, or None if it can."""
        reasons = (accountant.supports(event, self.neighbours) for event in self.events())
        return next((reason for reason in reasons if reason), None)


def composed(stages: Stages) -> dict[dp_event.DpEvent, int]:
    """Return how often each event occurs.

    Example:
        >>> event = dp_event.GaussianDpEvent(1.0)
        >>> composed(((event, 2), (event, 3)))
        {GaussianDpEvent(noise_multiplier=1.0): 5}
    """
    composition: dict[dp_event.DpEvent, int] = {}
    for event, count in stages:
        composition[event] = composition.get(event, 0) + count
    return composition


def between(stages: Stages, steps: Iterable[int]) -> Iterator[dict[dp_event.DpEvent, int]]:
    """Yield, for each of ``steps`` (ascending), the events after the previous number up to this one.

    Example:
        >>> low, high = dp_event.GaussianDpEvent(1.0), dp_event.GaussianDpEvent(2.0)
        >>> [list(part.values()) for part in between(((low, 3), (high, 3)), [2, 4])]
        [[2], [1, 1]]
    """
    # Reversed, so that ``pop`` takes the earliest stage.
    remaining, previous = list(reversed(stages)), 0
    for step in steps:
        part: dict[dp_event.DpEvent, int] = {}
        missing, previous = step - previous, step
        while missing and remaining:
            event, count = remaining.pop()
            taken = min(count, missing)
            part[event] = part.get(event, 0) + taken
            missing -= taken
            if taken < count:
                remaining.append((event, count - taken))
        yield part


def from_flags(options: SimpleNamespace) -> Releases:
    """Return one kind of release, ``--steps`` times.

    Args:
        options: The values of the flags, None for a flag that is absent.

    Raises:
        ConfigError: A flag is missing or out of range.
    """
    release = arguments.release(options)
    sampled = release.sampling != "none"
    names = arguments.MECHANISM if sampled else ("noise_multiplier", "steps")
    arguments.require(options, names, "(or --schedule FILE, or --run FOLDER)")
    if not sampled:
        arguments.refuse(options, ("sample_rate",), "with --sampling none")
    multiplier = arguments.noise_multiplier(options.noise_multiplier)
    rate = arguments.sample_rate(options.sample_rate) if sampled else 1.0
    steps = arguments.whole("steps", options.steps)
    event = arguments.checked(lambda: release.event(multiplier, rate))
    lines = (
        ("noise multiplier", f"{multiplier:g}"),
        ("sampling", sampling_words(release, rate)),
        ("steps", str(steps)),
        ("neighbours", release.neighbours),
    )
    return Releases(lines, release.neighbours, (((event, steps),),))


def sampling_words(release: RepeatedRelease, sample_rate: float) -> str:
    """Return how lots are drawn, in words.

    Args:
        release: The kind of release.
        sample_rate: The sample rate, which gives the size of lots without replacement.
    """
    if release.sampling == "none":
        return "none: every record takes part every time"
    if release.sampling == "without_replacement":
        lot = release.lot_size(sample_rate)
        return f"lots of {lot} of {release.records} records without replacement"
    cap = "" if release.max_lot_size is None else f", at most {release.max_lot_size} records"
    return f"Poisson, sample rate {sample_rate:g}{cap}"


def from_schedule(options: SimpleNamespace) -> Releases:
    """Return the releases of the CSV of ``--schedule``: one row for each stretch of equal releases.

    A row has ``noise_multiplier`` and, optionally, ``sample_rate`` and ``steps``. Other columns are ignored,
    so the metrics.csv of a run with one query per lot is such a file. The ledger of the run (``--run``) holds
    its other queries too.

    Args:
        options: The values of the flags, None for a flag that is absent.

    Raises:
        ConfigError: The file cannot be read, or a flag contradicts it.
    """
    arguments.refuse(options, ("noise_multiplier", "steps"), "with --schedule, which holds them")
    release = arguments.release(options)
    if release.sampling == "none":
        arguments.refuse(options, ("sample_rate",), "with --sampling none")
    if not options.schedule:
        raise ConfigError("--schedule", "nothing", "a readable CSV file")
    path = Path(options.schedule)
    stages: list[tuple[dp_event.DpEvent, int]] = []
    for line, row in _rows_of(path):
        rate = _rate(path, line, row, release, options.sample_rate)
        multiplier = _field(path, line, row, "noise_multiplier", above=0, at_most=MOST_NOISE)
        steps = _field(path, line, row, "steps", whole=True) if row.get("steps") else 1
        try:
            stages.append((release.event(multiplier, rate), int(steps)))
        except ArgumentError as error:
            raise ConfigError(f"{path}, line {line}: {error}") from None
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


def _rows_of(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line number, row) of a CSV with a header, without blanks around the cells.

    Raises:
        ConfigError: The file cannot be read, has no row, lacks the column ``noise_multiplier``, names a
            column twice, or has a row of another length. It may be raised after some rows.
    """
    has_rows = False
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            names = [name.strip() for name in reader.fieldnames or []]
            # csv.DictReader would silently keep the last of them.
            repeated = sorted({name for name in names if names.count(name) > 1})
            if repeated:
                raise ConfigError(f"{path}, line 1: two columns are named {', '.join(repeated)}")
            if "noise_multiplier" not in names:
                raise ConfigError(
                    f"{path}, line 1: a schedule needs a column noise_multiplier (and may have "
                    f"sample_rate and steps), found {', '.join(names) or 'nothing'}"
                )
            reader.fieldnames = names
            for row in reader:
                # DictReader puts surplus cells under None, and fills missing ones with None.
                if None in row or None in row.values():
                    raise ConfigError(
                        f"{path}, line {reader.line_num}: {len(names)} values expected, as in the header"
                    )
                has_rows = True
                yield reader.line_num, {name: text.strip() for name, text in row.items()}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, UnicodeDecodeError):
            reason = "it is not text in UTF-8"
        raise ConfigError("--schedule", str(path), f"a readable CSV file ({reason})") from None
    if not has_rows:
        raise ConfigError(f"{path}: a schedule needs at least one row below its header")


def _rate(
    path: Path, line: int, row: Mapping[str, str], release: RepeatedRelease, given: str | None
) -> float:
    """Return the sample rate of a row, from its column or from the flag."""
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
    """Return a number of a row within its bounds."""
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
    """Return the releases of the clients of a finished or interrupted run, from its ledger.

    In the published view, the releases are counted as the work's own theorem counts them.

    Args:
        options: The values of the flags, None for a flag that is absent.

    Raises:
        ConfigError: The folder holds no run, or a flag contradicts its ledger.
    """
    arguments.refuse(
        options,
        (*arguments.MECHANISM, *arguments.RELEASE, "schedule"),
        "with --run, whose ledger holds what was released",
    )
    view = SOUND if options.view is None else options.view
    if view not in BUDGET_VIEWS:
        raise ConfigError("--view", view, "one of " + ", ".join(BUDGET_VIEWS))
    run = stored_run(options)
    # What a run notes at its start stands for the statement of a run that was killed.
    ledger, facts = run.ledger(view), {**(run.environment.get("guarantee") or {}), **run.statement}
    clients, distinct = len(ledger.of_client), len(ledger.histories)
    lines = (
        ("run folder", str(run.path)),
        ("view", f"{view}: {VIEW_WORDS[view]}"),
        (
            "clients",
            f"the worst of {clients} that took part, {counted(distinct, 'distinct history')}",
        ),
        ("neighbours", ledger.neighbours),
        *(("declared by", str(name)) for name in facts.get("declared_by") or ()),
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
    """Return the run of ``--run``.

    Raises:
        ConfigError: The folder is absent, or holds runs instead of being one; the hint names one of them.
    """
    path = Path(options.run_folder)
    if not options.run_folder or not path.is_dir():
        raise ConfigError("--run", options.run_folder or "nothing", "an existing run folder")
    run = StoredRun(path)
    inside = sorted(p.parent.name for p in path.glob("*/ledger.csv"))
    if not run.files.ledger.exists() and inside:
        raise ConfigError("--run", str(path), f"a run folder, such as {path / inside[-1]}")
    return run


def theorem(run: StoredRun) -> Accountant | None:
    """Return the accountant of the published claim of the run's algorithm, or None if it has no claim."""
    from fedpriv.common.groups import TARGET
    from fedpriv.experiment.consent import is_shipped
    from fedpriv.experiment.instantiate import instantiate

    try:
        config = run.configuration
        if not is_shipped(f"algorithm.{TARGET}", config.algorithm._target_):
            return None  # an algorithm of the user's own has no theorem
        claim = instantiate(config, "algorithm").claim
    except ConfigError:  # a run of another version: only the row of the theorem is missing
        return None
    return None if claim is None else claim.accountant()
