"""The page: its frame, one run in full, several beside each other."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Iterator, Sequence
from importlib.resources import files

from fedpriv.common.words import counted, span
from fedpriv.tools.report import sections
from fedpriv.tools.report.charts import FRAME, charts, legend_of
from fedpriv.tools.report.curves import MOST_RUNS, epsilon_chart, run_charts, sweep_charts
from fedpriv.tools.report.gather import ReportedRun
from fedpriv.tools.report.labels import common, differences, labels, short_names
from fedpriv.tools.report.markup import Markup, folded, joined, json_block, table, tag

_MOST_VALUES = 12  # of a key, in a line
MOST_DETAILS = 40
"""Of so many runs of several everything is told; of the others a row and curves."""


class Page:
    """Sections one after the other, and the numbers of their charts."""

    def __init__(self, title: str, lead: object = ""):
        self.title = title
        self._lead = lead
        self._sections: list[tuple[str, Markup]] = []
        self._numbers: dict[str, object] = {}

    def add(self, heading: str, *content: object, scope: bool = False) -> None:
        """A section; ``scope``: its legend switches all its charts. Without content there is none."""
        inner = joined(content)
        if inner:
            name = f"s{len(self._sections)}"
            top = tag("h2", heading, id=name)
            whole = tag("section", top, inner, aria_labelledby=name, data_scope=scope)
            self._sections.append((heading, whole))

    def charts(self, found: Sequence[object], legend: bool = True) -> Markup:
        """The charts, whose numbers the page keeps."""
        if not found:
            return Markup("")
        pictures, numbers = charts(found, f"c{len(self._numbers)}-", legend)  # type: ignore[arg-type]
        self._numbers.update(numbers)
        return pictures

    def html(self) -> str:
        """The whole file."""
        here = files("fedpriv.tools.report")
        style, script = (
            Markup(here.joinpath(name).read_text(encoding="utf-8").strip())
            for name in ("page.css", "page.js")
        )
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        rules = (
            f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
            "base-uri 'none'; form-action 'none'"
        )
        head = tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=rules),
            tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name_="color-scheme", content="light dark"),
            tag("title", f"{self.title} · fedpriv"),
            tag("style", style),
        )
        links = [tag("a", heading, href=f"#s{i}") for i, (heading, _) in enumerate(self._sections)]
        body = tag(
            "body",
            tag("header", tag("h1", self.title), self._lead),
            tag("nav", *links, aria_label="sections"),
            tag("main", *(whole for _, whole in self._sections)),
            json_block({"frame": FRAME, "charts": self._numbers}, "numbers"),
            tag("script", script),
        )
        return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def add_run(page: Page, run: ReportedRun) -> None:
    """One run in full."""
    page.add(
        "Summary",
        sections.notes(run.notes),
        sections.key_numbers(run),
        sections.three_epsilons(run),
        sections.exact_values(run),
    )
    over_rounds = epsilon_chart(run)
    drawn = page.charts([over_rounds] if over_rounds else [])
    page.add("Privacy", tag("div", drawn, tag("div", sections.statement(run)), class_="beside"))
    page.add("Curves", page.charts(run_charts(run)))
    if sections.is_private(run):
        page.add("Ledger", sections.ledger(run))
    page.add("Audits", *sections.audits(run))
    page.add("Configuration", sections.configuration(run) if run.identity else "")
    page.add("Environment", sections.environment(run))
    page.add("How to repeat it", sections.repeat(run))


def lead_of(run: ReportedRun) -> Markup:
    started = run.environment.get("started")
    when = f", begun {started}" if isinstance(started, str) else ""
    return tag("p", f"Run {run.name}{when}")


def add_runs(page: Page, runs: Sequence[ReportedRun], sweep: Sequence[str] | None) -> None:
    """Several runs beside each other; ``sweep``: the words that began them as a sweep."""
    names = labels(runs)
    page.add(
        "Runs",
        *(sections.notes(run.notes) for run in runs),
        _rows(runs, names),
        _means(runs, names),
    )
    drawn = sweep_charts(runs[:MOST_RUNS], names[:MOST_RUNS])
    if drawn:
        keys = [one for chart in drawn for one in chart.curves]
        legend = legend_of(keys) if len({one.key for one in keys}) > 1 else ""
        note = [
            "Runs that differ in nothing but their seeds look alike and are switched together.",
            f"Drawn are the first {MOST_RUNS} runs." if len(runs) > MOST_RUNS else "",
        ]
        words = tag("p", " ".join(note).strip(), class_="note")
        page.add("Curves", words, legend, page.charts(drawn, legend=False), scope=True)
    page.add("Configuration", *_configuration(runs))
    details = [
        _details(run, f"{called}: {name}", f"r{place}")
        for place, (run, name, called) in enumerate(
            zip(runs[:MOST_DETAILS], names, short_names(runs), strict=False)
        )
    ]
    if len(runs) > MOST_DETAILS:
        limit = f"The first {MOST_DETAILS} runs; fedpriv report of its folder tells of any other."
        details.insert(0, tag("p", limit, class_="note"))
    page.add("Each run", *details)
    if sweep is not None:
        line = shlex.join(["fedpriv", "train", "-m", *sweep])
        page.add("How to repeat it", sections.command("The sweep again", line))


def _rows(runs: Sequence[ReportedRun], names: Sequence[str]) -> Markup:
    several = len(set(names)) > 1
    head = ["run", *(["settings"] if several else []), "seed", "rounds", "test accuracy"]
    backdoor = any(run.end("backdoor_accuracy") is not None for run in runs)
    head += ["backdoor accuracy"] if backdoor else []
    head += [f"ε {word}" for _, word in sections.EPSILONS] + ["δ"]
    rows, called = [], short_names(runs)
    for place, (run, name) in enumerate(zip(runs, names, strict=True)):
        link = tag("a", called[place], href=f"#r{place}") if place < MOST_DETAILS else called[place]
        delta = run.summary.get("delta", run.statement.get("delta"))
        rows.append((
            link, *([name] if several else []), "–" if run.seed is None else run.seed,
            sections.rounds_words(run), sections.percent(run.end("test_accuracy")),
            *([sections.percent(run.end("backdoor_accuracy"))] if backdoor else []),
            *(sections.epsilon_words(run.end(key)) for key, _ in sections.EPSILONS),
            "–" if delta is None else tag("span", delta, class_="whole"),
        ))  # fmt: skip
    return table(counted(len(runs), "run"), head, rows)


def _means(runs: Sequence[ReportedRun], names: Sequence[str]) -> Markup:
    """Mean and standard deviation over the runs that differ only in their seeds, if there are such."""
    groups: dict[str, list[ReportedRun]] = {}
    for run, name in zip(runs, names, strict=True):
        groups.setdefault(name, []).append(run)
    if all(len(own) == 1 for own in groups.values()):
        return Markup("")
    rows = []
    for name, own in groups.items():
        accuracies = [100 * a for a in (run.end("test_accuracy") for run in own) if a is not None]
        sounds = [e for e in (run.end("epsilon_sound") for run in own) if e is not None]
        low, high = (sections.epsilon_words(end(sounds, default=None)) for end in (min, max))
        rows.append((name, len(own), sections.mean_sd(accuracies), span(low, high)))
    head = ("settings", "runs", "test accuracy (%), mean ± sd", "ε sound")
    return table("Over seeds", head, rows)


def _configuration(runs: Sequence[ReportedRun]) -> Iterator[Markup]:
    differing, same = differences(runs), common(runs)
    if differing:
        words = f"The {counted(len(differing), 'key')} in which the runs differ"
        if len(runs) > MOST_RUNS:  # a column for each would fill no screen
            cells = [(key, _distinct(all_)) for key, all_ in differing.items()]
            yield table(words, ("key", "values"), cells)
        else:
            head = ("key", *short_names(runs))
            yield table(words, head, [(key, *values) for key, values in differing.items()])
    if same:
        inner = table("Common to all runs", ("key", "value"), list(same.items()))
        yield folded(f"The {len(same)} keys that all runs have alike", inner)


def _distinct(values: Sequence[str]) -> str:
    """The different values in a line, the first of very many."""
    different = list(dict.fromkeys(value or "none" for value in values))
    more = len(different) - _MOST_VALUES
    return ", ".join(different[:_MOST_VALUES]) + (f", {more} more" if more > 0 else "")


def _details(run: ReportedRun, title: str, place: str) -> Markup:
    parts = [
        ("Summary", sections.key_numbers(run)),
        ("", sections.three_epsilons(run)),
        ("Privacy", sections.statement(run)),
        ("Ledger", sections.ledger(run, of_many=True) if sections.is_private(run) else ""),
        ("Audits", joined(sections.audits(run))),
        ("Environment", sections.environment(run)),
        ("How to repeat it", sections.repeat(run)),
    ]
    shown = [tag("h3", heading) if heading else "" for heading, _ in parts]
    inner = [
        x for h, (_, content) in zip(shown, parts, strict=True) if content for x in (h, content)
    ]
    return folded(title, *inner, place=place)
