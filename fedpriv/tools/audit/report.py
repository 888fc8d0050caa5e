"""The results of an audit: tables on the terminal, and JSON, CSV and a picture in ``<run>/audit``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedpriv.common.files import saying_where, write_csv, write_json
from fedpriv.common.words import digits_up, percent_up
from fedpriv.store.colours import COLOURS
from fedpriv.store.display import console
from fedpriv.store.folder import RunFolder
from fedpriv.store.plots import Line, Panel, draw_panels
from fedpriv.store.table import Column, Table
from fedpriv.tools.audit import epsilon_report
from fedpriv.tools.audit.epsilon_audit import EpsilonAudit
from fedpriv.tools.audit.membership import RATES, MembershipAudit, Outcome
from fedpriv.tools.audit.property_inference import PropertyAudit
from fedpriv.tools.audit.statistics import Estimate

_COLOURS = tuple(c for name, c in COLOURS.items() if name not in ("black", "grey"))
"""Colours of the attacks' curves; the bound is black and chance grey."""
Audit = MembershipAudit | PropertyAudit | EpsilonAudit


def write(folder: RunFolder, audit: Audit) -> list[Path]:
    """Write the JSON, the CSV and, for membership, the picture of one audit into the run's folder ``audit``.

    Args:
        folder: The run folder.
        audit: The audit. Files of an earlier audit of the same kind are overwritten.

    Returns:
        The files.

    Raises:
        WriteError: The folder cannot be written.
    """
    if isinstance(audit, MembershipAudit):
        stem = "membership"
        table = pd.DataFrame([outcome.row() for outcome in (*audit.outcomes, audit.blind)])
    elif isinstance(
        audit, PropertyAudit
    ):  # property-label-3 for label:3, the bare name of file:PATH
        name, _, argument = audit.options.choice.partition(":")
        stem = f"property-{name}-{Path(argument).stem}" if argument else f"property-{name}"
        table = audit.clients
    else:
        stem, table = "epsilon", epsilon_report.frame(audit)
    files = [folder.audit / f"{stem}.{ending}" for ending in ("json", "csv")]
    with saying_where(folder.audit):
        folder.audit.mkdir(exist_ok=True)
        write_json(files[0], audit.as_json())
        write_csv(files[1], table)
        if isinstance(audit, MembershipAudit):
            files.append(folder.audit / f"{stem}.png")
            draw_panels([files[-1]], [[roc_panel(audit)]], "", _caption(audit))
    return files


def row(audit: Audit) -> dict[str, object]:
    """Return one audit as a row of the table of several runs."""
    if isinstance(audit, EpsilonAudit):
        return epsilon_report.row(audit)
    facts = {key: value for key, value in audit.subject.items() if key != "finished"}
    if isinstance(audit, PropertyAudit):
        results = audit.as_json()
        keys = ("auc", "auc_low", "auc_high", "auc_of_record_counts")
        return {**facts, "property": audit.options.choice, **{key: results[key] for key in keys}}
    for outcome in (*audit.outcomes, audit.blind):
        facts |= {f"{outcome.attack}_{name}": v for name, v in outcome.estimates().items()}
    return facts


def show(audits: Sequence[Audit]) -> None:
    """Print one audit in full, or several audits with a row each."""
    out, many = console(), len(audits) > 1
    if epsilons := [audit for audit in audits if isinstance(audit, EpsilonAudit)]:
        if many:
            out.print(epsilon_report.several(epsilons, [_name(audit) for audit in epsilons]))
        else:
            out.print(epsilon_report.table(epsilons[0], _name(epsilons[0])))
            for line, style in epsilon_report.notes(epsilons[0]):
                out.print(line, style=style)
    elif many:
        out.print(_several(audits))
    elif isinstance(audits[0], MembershipAudit):
        out.print(_membership(audits[0]))
    elif isinstance(audits[0], PropertyAudit):
        out.print(_property(audits[0]))
    runs_of_warning: dict[str, list[str]] = {}
    for audit in audits:
        warnings = audit.warnings if isinstance(audit, MembershipAudit) else audit.warnings()
        for warning in warnings:
            runs_of_warning.setdefault(warning, []).append(_name(audit))
    for warning, runs in runs_of_warning.items():
        out.print((f"{', '.join(runs)}: " if many else "") + warning, style="yellow")


def _membership(audit: MembershipAudit) -> Table:
    """Return the table of one membership audit."""
    table = _titled(
        f"Membership inference on {_name(audit)}: {audit.each} members, {audit.each} non-members "
        f"({audit.options.nonmembers})",
        "attack",
        "AUC",
        *(f"TPR at {rate:.1%} FPR" for rate in RATES.values()),
    )
    for outcome in audit.outcomes:
        table.add(*_cells(outcome))
    table.add(*_cells(audit.blind), style="dim")
    if audit.bound is not None:
        rates = (percent_up(float(audit.bound.tpr(rate))) for rate in RATES.values())
        table.add("any attack, by the statement", "", *(f"at most {r}" for r in rates))
    return table


def _property(audit: PropertyAudit) -> Table:
    """Return the table of one property audit."""
    counts = audit.clients.groupby("role").size()
    table = _titled(
        f"Property inference on {_name(audit)}: {audit.meaning}", "observer sees", "clients", "AUC"
    )
    clients = f"{counts['auxiliary']} to learn from, {counts['target']} targets"
    table.add(audit.sees, clients, _shown(audit.auc))
    table.add("the number of records alone", "", _shown(audit.baseline), style="dim")
    return table


def _several(audits: Sequence[Audit]) -> Table:
    """Return a table with a row for each membership or property audit."""
    if properties := [audit for audit in audits if isinstance(audit, PropertyAudit)]:
        title = f"Property inference: {properties[0].options.choice}"
        table = _titled(title, "run", "ε sound", "AUC")
        for property_audit in properties:
            name = _name(property_audit)
            table.add(name, _epsilon(property_audit), _shown(property_audit.auc))
        return table
    memberships = [audit for audit in audits if isinstance(audit, MembershipAudit)]
    first = memberships[0]
    names = [f"AUC {outcome.attack}" for outcome in (*first.outcomes, first.blind)]
    table = _titled("Membership inference", "run", "ε sound", *names, "largest TPR at 1 % FPR")
    for audit in memberships:
        rates = [outcome.rates["tpr_at_1_percent"] for outcome in audit.outcomes]
        best = max((rate for rate in rates if rate), key=lambda rate: rate.value, default=None)
        aucs = (_shown(outcome.auc) for outcome in (*audit.outcomes, audit.blind))
        table.add(_name(audit), _epsilon(audit), *aucs, _percent(best))
    return table


def _titled(title: str, *columns: str) -> Table:
    """Return an empty table whose first column is coloured."""
    first, *others = columns
    return Table(title, (Column(first, style="cyan"), *others))


def _cells(outcome: Outcome) -> list[str]:
    name = "blind (no model)" if outcome.attack == "blind" else outcome.attack
    return [name, _shown(outcome.auc), *(_percent(rate) for rate in outcome.rates.values())]


def _shown(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _percent(rate: Estimate | None) -> str:
    if rate is None:
        return "too few non-members"
    return f"{100 * rate.value:.2f} [{100 * rate.low:.2f}, {100 * rate.high:.2f}] %"


def _name(audit: Audit) -> str:
    """Return the name of the run's folder; a numbered run of a sweep also has the name of the sweep."""
    path = Path(str(audit.subject["run"]))
    return f"{path.parent.name}/{path.name}" if path.name.isdigit() else path.name


def _epsilon(audit: Audit) -> str:
    epsilon = audit.subject["epsilon_sound"]
    return "none" if epsilon is None else f"{digits_up(float(epsilon), 3)}"


def roc_panel(audit: MembershipAudit) -> Panel:
    """Return the plot of the ROC curves, with both axes logarithmic, down to one false positive."""
    lowest = 1.0 / audit.each
    diagonal = Line("chance", "grey", (lowest, 1.0), (lowest, 1.0), dashed=True, thin=True)
    lines = [diagonal]
    for outcome, colour in zip((*audit.outcomes, audit.blind), _COLOURS, strict=False):
        fpr, tpr = outcome.curve
        ends = np.append(fpr[1:] > fpr[:-1], True) & (fpr > 0)  # the end of every step of the curve
        lines.append(
            Line(
                f"{outcome.attack}, AUC {outcome.auc.value:.3f}",
                colour,
                fpr[ends],
                tpr[ends],
                thin=outcome is audit.blind,
                dotted=outcome is audit.blind,
            )
        )
    if audit.bound is not None:
        most = np.geomspace(lowest, 1.0, 200)
        label = f"upper bound of any attack: {audit.bound.words}"
        lines.append(Line(label, "black", most, audit.bound.tpr(most), thin=True))
    return Panel(
        title="membership inference",
        x_label="false positive rate",
        y_label="true positive rate",
        lines=tuple(lines),
        x_limits=(lowest, 1.0),
        y_limits=(lowest, 1.0),
        x_log=True,
        y_log=True,
    )


def _caption(audit: MembershipAudit) -> str:
    """Return the line below the plot."""
    epsilon = audit.subject["epsilon_sound"]
    sound = (
        "no differential privacy"
        if epsilon is None
        else f"sound ε = {digits_up(float(epsilon), 3)}"
    )
    return (
        f"{audit.each} members and {audit.each} non-members ({audit.options.nonmembers}); {sound}"
    )
