"""``fedpriv audit``, and the audits that the key ``audit`` asks for at the end of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError, FedprivError, Interrupted
from fedpriv.common.files import write_csv
from fedpriv.common.notices import complain
from fedpriv.data.names import NONMEMBERS
from fedpriv.experiment.machine import refuse_many_processes
from fedpriv.experiment.settings import Settings
from fedpriv.store.display import console, teller
from fedpriv.store.folder import RunFolder
from fedpriv.store.stored_run import StoredRun, add_to_summary
from fedpriv.tools.audit import epsilon_report, report
from fedpriv.tools.audit.epsilon_audit import audit_epsilon
from fedpriv.tools.audit.epsilon_scores_file import evaluate_scores, read_scores
from fedpriv.tools.audit.membership import audit_membership
from fedpriv.tools.audit.property_inference import audit_property
from fedpriv.tools.audit.request import (
    EPSILON,
    MEMBERSHIP,
    EpsilonOptions,
    MembershipOptions,
    Options,
    PropertyOptions,
    check_shadows,
    missing,
    parse_property,
)
from fedpriv.tools.audit.shadow_runs import Training
from fedpriv.tools.audit.subject import open_run


def run(given: SimpleNamespace) -> int:
    """Audit the given runs, print and write the results, and return the exit status.

    If one of several runs cannot be audited, its error is printed and the others still are. The status is
    then that of the last error, else 0.

    Args:
        given: The flags of ``fedpriv audit``, by their names, and ``kind``, the audit.

    Raises:
        FedprivError: A flag is wrong, the only run cannot be audited, or the audit was interrupted.
    """
    if given.kind == EPSILON and given.scores is not None:
        return _audit_scores_file(given)
    if given.kind == EPSILON and given.delta is not None:
        raise ConfigError("--delta goes with --scores: a run is audited at its own delta")
    options = _options_of(given)
    training = Training(say=console().print, allowed=given.allow)
    if given.kind == MEMBERSHIP:
        refuse_many_processes("--jobs", given.jobs)
        training = replace(training, jobs=given.jobs)
    # A folder that is given twice is audited once.
    paths = list(dict.fromkeys(given.runs))
    audits, files, status = [], [], 0
    for path in paths:
        try:
            audits.append(audit(path, options, given.device, training))
            files = report.write(RunFolder(path), audits[-1])
        except FedprivError as error:
            if len(paths) == 1 or isinstance(error, Interrupted):
                raise
            complain(str(error))
            status = error.exit_status
    if not audits:
        return status
    report.show(audits)
    out = console()
    if len(audits) == 1:
        out.print("written: " + ", ".join(map(str, files)))
    if given.csv is not None:
        write_csv(given.csv, pd.DataFrame(report.row(finished) for finished in audits))
        out.print(f"written: {given.csv}")
    return status


def _audit_scores_file(given: SimpleNamespace) -> int:
    """Audit scores from a file of another framework."""
    if given.runs:
        raise ConfigError("--scores takes no run folder: a file of scores names no run")
    for name, unset in (
        ("canaries", None),
        ("canary", None),
        ("repetitions", "1"),
        ("allow", ()),
        ("device", "auto"),
    ):
        if getattr(given, name) != unset:
            raise ConfigError(f"--scores takes no --{name}: nothing is trained")
    if given.delta is None:
        raise ConfigError("--scores needs --delta, of the guarantee that is audited")
    try:
        delta = checks.number("--delta", checks.parsed(given.delta), at_least=0, below=1)
        confidence = read_confidence(given.confidence)
        seed = checks.seed("--seed", checks.parsed(given.seed))
    except ArgumentError as error:
        raise error.within("") from None
    scores = read_scores(given.scores)
    numbers = evaluate_scores(scores, delta, confidence, given.independent, seed)
    out = console()
    out.print(epsilon_report.of_scores(numbers, len(scores), delta, confidence))
    for line in (*epsilon_report.meanings(numbers), *epsilon_report.note_on_ties(scores)):
        out.print(line, style="dim")
    if given.csv is not None:
        write_csv(given.csv, epsilon_report.frame_of(numbers))
        out.print(f"written: {given.csv}")
    return 0


def audit(
    path: str | Path,
    options: Options,
    device: str,
    training: Training,
) -> report.Audit:
    """Make one audit of a run folder.

    Args:
        path: The run folder.
        options: Options of the audit; their class says which audit.
        device: Device to compute on, such as ``auto`` or ``cpu``.
        training: Settings of the trainings that the audit may need.

    Returns:
        The audit, not written yet.

    Raises:
        FedprivError: The run cannot be audited.
    """
    if isinstance(options, EpsilonOptions):
        return audit_epsilon(StoredRun(path), options, device, training.threads, training.allowed)
    subject = open_run(path, device, training.threads, training.allowed)
    if isinstance(options, MembershipOptions):
        return audit_membership(subject, options, training)
    return audit_property(subject, options)


def audit_finished_run(
    asked: Mapping[str, Options], folder: Path, settings: Settings, own_targets: Collection[str]
) -> dict[str, object]:
    """Make the requested audits that a finished run lacks, and add their results to its ``summary.json``.

    Args:
        asked: Options of each requested audit, by kind.
        folder: The run folder.
        settings: Settings of the run.
        own_targets: Modules outside fedpriv that the run's user named.

    Returns:
        What was added to the summary.
    """
    run_folder = RunFolder(folder)
    results: dict[str, object] = {}
    for kind in missing(settings.audit, StoredRun(run_folder).summary):
        runtime = settings.runtime
        training = Training(
            say=teller(runtime.progress),
            threads=runtime.threads,
            stop_file=runtime.stop_file,
            allowed=own_targets,
        )
        finished_audit = audit(folder, asked[kind], runtime.device, training)
        report.write(run_folder, finished_audit)
        results |= finished_audit.summary()
        if settings.runtime.progress != "none":
            report.show([finished_audit])
    if results:
        add_to_summary(run_folder, results)
    return results


def _options_of(given: SimpleNamespace) -> Options:
    """Return the options that the flags describe."""
    try:
        if given.kind == EPSILON:
            return EpsilonOptions(
                None if given.canaries is None else _whole("--canaries", given.canaries, 2),
                given.canary,
                _whole("--repetitions", given.repetitions, at_least=1),
                given.independent,
                read_confidence(given.confidence),
                checks.seed("--seed", checks.parsed(given.seed)),
            )
        snapshots = _whole("--snapshots", given.snapshots, at_least=1)
        seed = checks.seed("--seed", checks.parsed(given.seed))
        if given.kind == MEMBERSHIP:
            nonmembers = checks.one_of("--nonmembers", given.nonmembers, NONMEMBERS)
            records = _whole("--records", given.records, at_least=1)
            shadows = check_shadows("--shadows", checks.parsed(given.shadows))
            return MembershipOptions(
                nonmembers, records, snapshots, seed, shadows, given.shadow_runs
            )
        parse_property(given.choice)
        clients = _whole("--clients", given.clients, at_least=1)
        return PropertyOptions(given.choice, clients, snapshots, seed)
    except ArgumentError as error:
        raise error.within("") from None


def read_confidence(text: str) -> float:
    """Return the confidence of ``--confidence``, above 0.5 and below 1; ArgumentError for anything else."""
    return checks.number("--confidence", checks.parsed(text), above=0.5, below=1)


def _whole(flag: str, value: str, at_least: int) -> int:
    return checks.whole(flag, checks.parsed(value), at_least=at_least)
