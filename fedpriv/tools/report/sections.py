"""Sections of a report about one run: numbers, statement, ledger, audits, environment, commands."""

from __future__ import annotations

import base64
import math
import re
import shlex
import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from fedpriv.common.words import counted, digits_down, quoted, round_up
from fedpriv.data.names import MISLABELLED
from fedpriv.store.caveats import SEES_HIDDEN
from fedpriv.store.pairs import spread_words
from fedpriv.store.searches import STATEMENT, is_search
from fedpriv.store.stored_run import StoredAudit
from fedpriv.tools.report.gather import ReportedRun, as_number
from fedpriv.tools.report.labels import full
from fedpriv.tools.report.markup import Markup, folded, joined, listed, table, tag

_LEDGER_ROWS = (20, 10)  # first and last rows of a long ledger that are shown
_LONG = re.compile(r"\d+\.\d{6,40}(e-?\d{1,3})?")  # a number with more digits than are shown
_HUGE = 1e6  # larger ε are shown roughly
LEDGER_WORDS = {
    "event_sound": "event (sound)",
    "neighbours_sound": "adjacency (sound)",
    "event_published": "event (published)",
    "neighbours_published": "adjacency (published)",
    "queries": "queries and their noise",
    "noise_std": "noise, standard deviation",
    "sensitivity": "sensitivity",
    "draws_per_client": "times per client",
    "clients": "clients",
    "claimed_of_everyone": "claimed of everyone",
}
EPSILONS = (
    ("epsilon", "enforced"),
    ("epsilon_published", "published"),
    ("epsilon_sound", "sound"),
)


def epsilon_names(run: ReportedRun) -> list[tuple[str, str]]:
    """Return key and name of the three ε. The first is composed rather than enforced without a budget."""
    composed = run.statement.get("private") is True and run.statement.get("budget") is None
    return [(key, "composed" if composed and key == "epsilon" else word) for key, word in EPSILONS]


def epsilon_words(value: float | None) -> str:
    """Return ε rounded up to three decimals, or roughly where it is too large to protect anybody."""
    if value is None:
        return "none"
    # Digits of such an ε would suggest a precision that means nothing.
    return f"{value:.2g}" if _HUGE <= value < math.inf else round_up(value)


def percent(value: float | None) -> str:
    """Return a share in percent, or a dash for None."""
    return "–" if value is None else f"{100 * value:.2f} %"


def mean_words(values: Sequence[float]) -> str:
    """Return mean and interval over seeds, or a dash without values."""
    if not values:
        return "–"
    spread = spread_words(np.array(values), "{:.2f}".format)
    return f"{statistics.fmean(values):.2f}{spread}"


def title_of(run: ReportedRun) -> str:
    """Return algorithm, data set and seed, or the folder's name where these are not known."""
    algorithm = run.summary.get("algorithm") or run.identity.get("algorithm.name")
    dataset = run.summary.get("dataset") or run.identity.get("dataset")
    if not algorithm or not dataset:
        return run.name
    return f"{algorithm} on {dataset}" + ("" if run.seed is None else f", seed {run.seed}")


def rounds_words(run: ReportedRun) -> str:
    """Return the number of rounds, and why the run stopped."""
    rounds = run.rounds
    shown = "none yet" if rounds is None else f"{rounds:,.0f}"
    stop = run.summary.get("stop_reason")
    mark = ", diverging" if run.summary.get("diverging") else ""
    return f"{shown} (stopped by: {stop}{mark})" if stop else f"{shown} (not finished)"


def key_numbers(run: ReportedRun) -> Markup:
    """Return the numbers that a reader looks for first, as cards."""
    pairs: list[tuple[str, object]] = [("test accuracy", percent(run.end("test_accuracy")))]
    if run.end("backdoor_accuracy") is not None:
        pairs.append(("backdoor accuracy", percent(run.end("backdoor_accuracy"))))
    if is_private(run):
        pairs += [(f"ε {word}", epsilon_words(run.end(key))) for key, word in epsilon_names(run)]
        if (delta := as_number(run.summary.get("delta", run.statement.get("delta")))) is not None:
            pairs.append(("δ", f"{delta:g}"))
    else:
        pairs.append(("privacy", _no_epsilon(run)))
    pairs.append(("rounds", rounds_words(run)))
    if (aborted := as_number(run.summary.get("aborted_rounds"))) is not None:
        pairs.append(("aborted rounds", f"{aborted:,.0f}"))
    if sigma := as_number(run.summary.get("noise_multiplier")):  # a σ of 0 is not shown
        pairs.append(("σ in the last round", f"{sigma:.4g}"))
    if (seconds := as_number(run.summary.get("seconds"))) is not None:
        pairs.append(("time in rounds", f"{seconds:,.0f} s"))
    cards = (tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs)
    return tag("dl", *cards, class_="cards")


def _no_epsilon(run: ReportedRun) -> str:
    """Return the entry for privacy of a run without ε. A run without privacy says so in its statement."""
    if run.statement.get("private") is False:
        return "none"
    search = run.path.absolute().parent
    if not run.statement and is_search(search):
        return f"that of the search: {search.name}/{STATEMENT}"
    return "not stated"


def is_private(run: ReportedRun) -> bool:
    """Return whether any ε was computed."""
    private = run.statement.get("private")
    # A run without a statement yet is private if it has computed an ε.
    return private if isinstance(private, bool) else run.end("epsilon") is not None


def three_epsilons(run: ReportedRun) -> Markup:
    """Return a table of enforced, published and sound ε, each with its reason."""
    if not is_private(run):
        return Markup("")
    rows = [
        (word, epsilon_words(run.end(key)), run.reason(key) or "–")
        for key, word in epsilon_names(run)
    ]
    return table("The three ε of the worst client", ("", "ε", "reason"), rows)


def exact_values(run: ReportedRun) -> Markup:
    """Return a warning about exact values of private data, empty for a run without diagnostics."""
    if not run.statement.get("diagnostics"):
        return Markup("")
    warning = "This page shows exact values of private data, which the mechanism does not release."
    return tag("p", warning, class_="note")


def omniscience(run: ReportedRun) -> Markup:
    """Return a warning about attackers that see what the trust model hides; empty where there are none."""
    if not run.summary.get("omniscient"):
        return Markup("")
    return tag("p", f"Simulated {SEES_HIDDEN}: no finite ε is sound.", class_="note")


def statement(run: ReportedRun) -> Markup:
    """Return privacy.txt as headings, paragraphs, lists and a table of its aligned rows."""
    if not run.statement_text:
        return tag("p", "There is no privacy statement (privacy.txt) yet.", class_="note")
    elements = []
    for index, block in enumerate(run.statement_text.strip().split("\n\n")):
        if rows := _aligned_rows(block):
            elements.append(table("", ("", ""), rows))
            continue
        lines, items = [], []
        for line in block.splitlines():
            if line.startswith("- "):
                items.append(line[2:].strip())
            elif items:
                items[-1] += f" {line.strip()}"
            else:
                lines.append(line.strip())
        # One line without a full stop is a heading, such as \"Details\", or \"Caveats\" above a list.
        if len(lines) == 1 and lines[0][-1:] not in ".:":
            elements.append(tag("h3", lines[0]))
        elif lines:
            headline = "headline" if index == 0 else None
            elements.append(tag("p", " ".join(lines), class_=headline))
        if items:
            elements.append(listed(items))
    return joined(elements)


def _aligned_rows(block: str) -> list[list[str]]:
    """Return the rows (name, value) of a block in which all values begin in one column, else no rows."""
    rows: list[list[str]] = []
    for line in block.splitlines():
        name, _, value = line.partition("  ")
        if rows and not name and value:
            rows[-1][1] += f" {value.strip()}"
        elif name and value:
            rows.append([name, value.strip()])
        else:
            return []
    return rows


def ledger(run: ReportedRun, of_many: bool = False) -> Markup:
    """Return ledger.csv as a table, without the middle of a long ledger.

    Columns that are the same in every row are said once, above the table.
    """
    if not run.ledger_rows or not run.ledger_rows[1:]:
        return tag("p", "There is no ledger (ledger.csv) here.", class_="note")
    names, *rows = run.ledger_rows
    columns = {i: [row[i] if i < len(row) else "" for row in rows] for i in range(len(names))}
    # Of a ledger with one row, all columns stay in the table.
    same = {i: cells[0] for i, cells in columns.items() if len(set(cells)) == 1 < len(cells)}
    used = [i for i, cells in columns.items() if any(cells) and i not in same]
    first, last = (5, 3) if of_many else _LEDGER_ROWS
    # A gap of one row would take the place of that row.
    omitted = len(rows) - first - last
    # Six digits are shown; ledger.csv has all of them.
    shown = [
        [_LONG.sub(lambda m: f"{float(m[0]):.6g}", columns[i][row]) for i in used]
        for row in range(len(rows))
    ]
    if omitted > 1:
        gap = [f"… {counted(omitted, 'row')} more", *[""] * (len(used) - 1)]
        shown = [*shown[:first], gap, *shown[-last:]]
    note = (
        "Each row is a kind of release: its event in both views, the standard deviation of its noise and its "
        "sensitivity (lowest..highest over clients and rounds), how often it was made, and by which clients."
    )
    head = [LEDGER_WORDS.get(names[i], names[i]) for i in used]
    alike = [
        f"{LEDGER_WORDS.get(names[i], names[i])} {value}" for i, value in same.items() if value
    ]
    if alike:
        note += f" The same in every row: {'; '.join(alike)}."
    caption = f"Ledger: {counted(len(rows), 'kind')} of release"
    return joined([tag("p", note, class_="note"), table(caption, head, shown)])


def audits(run: ReportedRun) -> Iterator[Markup]:
    """Yield the results of the run's audits."""
    for audit in run.audits:
        attacks = audit.facts.get("attacks")
        yield tag("h3", audit.name)
        if isinstance(attacks, dict):
            rows = [*attacks.items(), ("blind (no model)", audit.facts.get("blind"))]
            yield _membership(audit, [(name, f) for name, f in rows if isinstance(f, dict)])
        elif isinstance(audit.facts.get("found"), list):
            yield _epsilon_from_below(audit)
        else:
            yield _property(audit)
        if audit.picture is not None:
            yield picture(audit.picture, f"ROC curves of {audit.name}", "audit")
        warnings = audit.facts.get("warnings")
        if isinstance(warnings, list) and warnings:
            yield listed(warnings)


def _membership(audit: StoredAudit, rows: Sequence[tuple[str, dict[str, object]]]) -> Markup:
    """Return a table of a membership audit; ``rows`` are the names and facts of the attacks."""
    columns = (("auc", "AUC"), ("tpr_at_1_percent", "TPR at 1 % FPR"),
               ("tpr_at_0.1_percent", "TPR at 0.1 % FPR"))  # fmt: skip
    caption = (
        f"Membership inference: {audit.facts.get('members')} members, {audit.facts.get('nonmembers')} "
        "non-members, 95 % intervals"
    )
    head = ("attack", *(label for _, label in columns))
    return table(
        caption, head, [(name, *(_estimate(f, key) for key, _ in columns)) for name, f in rows]
    )


def _epsilon_from_below(audit: StoredAudit) -> Markup:
    """Return a table of the lower bounds of ε by a canary audit."""
    facts = audit.facts
    rows = [f for f in facts["found"] if isinstance(f, dict)]
    kind = "wrong labels" if facts.get("canary") == MISLABELLED else "of one gradient direction"
    caption = (
        f"ε from below: {facts.get('canaries')} canaries (one {facts.get('unit')}), {kind}, "
        f"δ = {facts.get('delta')}, confidence {facts.get('confidence')}. Only a bound refutes a claim of a "
        "smaller ε."
    )
    keys = ("kind", "method", "observer")
    cells = []
    for row in rows:
        epsilon = as_number(row.get("epsilon"))
        shown = "–" if epsilon is None else digits_down(epsilon)
        cells.append((*(str(row.get(key)) for key in keys), shown))
    return table(caption, ("kind of number", "method", "observer", "ε at least"), cells)


def _property(audit: StoredAudit) -> Markup:
    """Return a table of a property audit."""
    facts = audit.facts
    rows = [
        (facts.get("observer_sees", "all"), _estimate(facts, "auc")),
        ("the number of records alone", _estimate(facts, "auc_of_record_counts")),
    ]
    caption = f"Property inference: {facts.get('meaning', audit.name)}"
    return table(caption, ("observer sees", "AUC, 95 % interval"), rows)


def _estimate(facts: dict[str, object], key: str) -> str:
    """Return an estimate as text, such as ``0.512 [0.498, 0.526]``, or a dash where there is none.

    The ends of its interval are ``facts[f"{key}_low"]`` and ``facts[f"{key}_high"]``; without them the value
    alone is shown.
    """
    value, low, high = (as_number(facts.get(k)) for k in (key, f"{key}_low", f"{key}_high"))
    if value is None:
        return "–"
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def picture(content: bytes, description: str, kind: str | None = None) -> Markup:
    """Return a PNG as an element with its data; ``kind`` is the element's class in page.css."""
    data = base64.b64encode(content).decode()
    return tag("img", src=f"data:image/png;base64,{data}", alt=description, class_=kind)


def environment(run: ReportedRun) -> Markup:
    """Return environment.json as a table, with a row for each version."""
    facts = dict(run.environment)
    if not facts:
        return tag("p", "There is no environment.json here.", class_="note")
    versions = facts.pop("versions", None)
    rows = [
        (key, full(value))
        for key, value in facts.items()
        if key not in ("schema_version", "command", "overrides") and not isinstance(value, dict)
    ]
    if isinstance(versions, dict):
        rows += [(name, full(value)) for name, value in versions.items() if value is not None]
    return table("Environment", (), rows)


def repeat(run: ReportedRun) -> Markup:
    """Return the commands that repeat the run, go on with it, and examine it further."""
    # Quoted, as the command is meant to be copied into a shell.
    folder, parts = shlex.quote(str(run.path)), []
    if run.overrides is None:
        parts.append(
            tag("p", "Begun from Python, or its overrides are withheld: see the configuration.")
        )
    else:
        # Overrides that would write into the existing folder are left out.
        overrides = [
            o for o in run.overrides if o.lstrip("+").partition("=")[0] not in _OF_THE_PROCESS
        ]
        parts.append(command("The run again", shlex.join(["fedpriv", "train", *overrides])))
    if run.resumable:
        resume = shlex.quote(f"resume={quoted(run.path)}")
        parts.append(command("Go on from its checkpoint", f"fedpriv train {resume}"))
    if run.files.ledger.is_file():
        title = "Its ledger under other accountants and δ"
        parts.append(command(title, f"fedpriv account --run {folder}"))
    if run.files.model.is_file():
        parts.append(command("A membership audit", f"fedpriv audit membership {folder}"))
    note = "Read overrides from somebody else's folder before you run them: they can name any code."
    return joined([*parts, tag("p", note, class_="note")])


_OF_THE_PROCESS = ("resume", "dry_run", "runtime.run_dir", "runtime.reuse", "runtime.stop_file")


def command(title: str, line: str) -> Markup:
    """Return a command line under its title."""
    return joined([tag("p", f"{title}:"), tag("pre", tag("code", line))])


def configuration(run: ReportedRun) -> Markup:
    """Return a folded table of every key, with the keys that cannot change a result last."""
    rows = [(k, full(v)) for k, v in {**run.identity, **run.runtime}.items()]
    return folded(f"All {len(rows)} keys", table("Configuration", ("key", "value"), rows))
