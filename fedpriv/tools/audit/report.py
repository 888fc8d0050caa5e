"""What an audit leaves behind: tables on the terminal, JSON, CSV and a picture in ``<run>/audit``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedpriv.common.files import saying_where, write_csv
from fedpriv.common.words import percent_up
from fedpriv.store.colours import COLOURS
from fedpriv.store.display import console
from fedpriv.store.folder import RunFolder
from fedpriv.store.plots import Line, Panel, draw_panels
from fedpriv.store.stored_run import StoredRun, add_to_summary
from fedpriv.store.table import Column, Table
from fedpriv.tools.audit import epsilon_report
from fedpriv.tools.audit.epsilon_audit import EpsilonAudit
from fedpriv.tools.audit.membership import RATES, MembershipAudit, Outcome
from fedpriv.tools.audit.property_inference import PropertyAudit
from fedpriv.tools.audit.statistics import Estimate

_COLOURS = tuple(c for name, c in COLOURS.items() if name not in ("black", "grey"))
"""Of attacks: black is the bound, grey chance."""
Audit = MembershipAudit | PropertyAudit | EpsilonAudit


def write(folder: RunFolder, audit: Audit) -> list[Path]:
    """Write the files of one audit and return them. Raises WriteError if the folder cannot be written."""
    stem = folder.audit / _stem(audit)
    files = [stem.with_name(f"{stem.name}.{ending}") for ending in ("json", "csv")]
    with saying_where(folder.audit):
        folder.audit.mkdir(exist_ok=True)
        folder.write_json(files[0], audit.as_json())
        write_csv(files[1], _table(audit))
        if isinstance(audit, MembershipAudit):
            files.append(stem.with_name(f"{stem.name}.png"))
            draw_panels([files[-1]], [[roc_panel(audit)]], "", _caption(audit))
    if StoredRun(folder).finished:
        add_to_summary(folder, {})
    return files


def _stem(audit: Audit) -> str:
    """``property-label-3`` of ``label:3``; of a file its name alone."""
    if not isinstance(audit, PropertyAudit):
        return "membership" if isinstance(audit, MembershipAudit) else "epsilon"
    name, _, argument = audit.options.choice.partition(":")
    return f"property-{name}-{Path(argument).stem}" if argument else f"property-{name}"


def _table(audit: Audit) -> pd.DataFrame:
    if isinstance(audit, EpsilonAudit):
        return epsilon_report.frame(audit)
    if isinstance(audit, PropertyAudit):
        return audit.clients
    return pd.DataFrame([outcome.row() for outcome in (*audit.outcomes, audit.blind)])


def row(audit: Audit) -> dict[str, object]:
    """One audit as a row of the table of several runs."""
    if isinstance(audit, EpsilonAudit):
        return epsilon_report.row(audit)
    found = {key: value for key, value in audit.subject.items() if key != "finished"}
    if isinstance(audit, PropertyAudit):
        facts = audit.as_json()
        keys = ("auc", "auc_low", "auc_high", "auc_of_record_counts")
        return {**found, "property": audit.options.choice, **{key: facts[key] for key in keys}}
    for outcome in (*audit.outcomes, audit.blind):
        own = outcome.row()
        found |= {f"{outcome.attack}_{key}": own[key] for key in own if key != "attack"}
    return found


def show(audits: Sequence[Audit]) -> None:
    """Print one audit in full, or several with a row each."""
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
    said: dict[str, list[str]] = {}
    for audit in audits:
        warnings = audit.warnings if isinstance(audit, MembershipAudit) else audit.warnings()
        for warning in warnings:
            said.setdefault(warning, []).append(_name(audit))
    for warning, runs in said.items():
        out.print((f"{', '.join(runs)}: " if many else "") + warning, style="yellow")


def _membership(audit: MembershipAudit) -> Table:
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
    counts = audit.clients.groupby("role").size()
    table = _titled(
        f"Property inference on {_name(audit)}: {audit.meaning}", "observer sees", "clients", "AUC"
    )
    clients = f"{counts['auxiliary']} to learn from, {counts['target']} targets"
    table.add(audit.sees, clients, _shown(audit.auc))
    table.add("the number of records alone", "", _shown(audit.baseline), style="dim")
    return table


def _several(audits: Sequence[Audit]) -> Table:
    if properties := [audit for audit in audits if isinstance(audit, PropertyAudit)]:
        title = f"Property inference: {properties[0].options.choice}"
        table = _titled(title, "run", "ε sound", "AUC")
        for own in properties:
            table.add(_name(own), _epsilon(own), _shown(own.auc))
        return table
    memberships = [audit for audit in audits if isinstance(audit, MembershipAudit)]
    first = memberships[0]
    names = [f"AUC {outcome.attack}" for outcome in (*first.outcomes, first.blind)]
    table = _titled("Membership inference", "run", "ε sound", *names, "largest TPR at 1 % FPR")
    for audit in memberships:
        rates = [o.rates["tpr_at_1_percent"] for o in audit.outcomes]
        best = max((rate for rate in rates if rate), key=lambda rate: rate.value, default=None)
        aucs = (_shown(outcome.auc) for outcome in (*audit.outcomes, audit.blind))
        table.add(_name(audit), _epsilon(audit), *aucs, _percent(best))
    return table


def _titled(title: str, *columns: str) -> Table:
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
    """The folder's name; of a run of a sweep, which is called by its number, the sweep's as well."""
    path = Path(str(audit.subject["run"]))
    return f"{path.parent.name}/{path.name}" if path.name.isdigit() else path.name


def _epsilon(audit: Audit) -> str:
    epsilon = audit.subject["epsilon_sound"]
    return "none" if epsilon is None else f"{float(epsilon):.3g}"


def roc_panel(audit: MembershipAudit) -> Panel:
    """ROC curves with both axes logarithmic, down to one false positive."""
    lowest = 1.0 / audit.each
    diagonal = Line("chance", "grey", (lowest, 1.0), (lowest, 1.0), dashed=True, thin=True)
    lines = [diagonal]
    for outcome, colour in zip((*audit.outcomes, audit.blind), _COLOURS, strict=False):
        fpr, tpr = outcome.curve
        seen = np.append(fpr[1:] > fpr[:-1], True) & (fpr > 0)  # the end of every step
        lines.append(
            Line(
                f"{outcome.attack}, AUC {outcome.auc.value:.3f}",
                colour,
                fpr[seen],
                tpr[seen],
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
    epsilon = audit.subject["epsilon_sound"]
    sound = "no differential privacy" if epsilon is None else f"sound ε = {float(epsilon):.3g}"
    return (
        f"{audit.each} members and {audit.each} non-members ({audit.options.nonmembers}); {sound}"
    )
