"""Page of a report: its frame, one run in full, or several runs beside each other."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Iterator, Sequence
from importlib.resources import files

from fedpriv.common.words import counted, span
from fedpriv.store.pairs import INTERVALS
from fedpriv.tools.report import sections
from fedpriv.tools.report.charts import FRAME, Chart, draw, legend_of
from fedpriv.tools.report.curves import MOST_RUNS, epsilon_chart, run_charts, sweep_charts
from fedpriv.tools.report.gather import ReportedRun
from fedpriv.tools.report.labels import common, differences, labels, short_names
from fedpriv.tools.report.markup import Markup, folded, joined, json_block, table, tag

_MOST_VALUES = 12  # values of a key that are shown in a line
MOST_DETAILS = 40  # runs of a page that are shown in full; further runs have a row and curves


class Page:
    """Sections of a report, and the numbers of their charts.

    Args:
        title: Heading of the page.
        lead: Text or markup below the heading.
    """

    def __init__(self, title: str, lead: object = ""):
        self.title = title
        self._lead = lead
        self._sections: list[tuple[str, Markup]] = []
        self._numbers: dict[str, object] = {}

    def add(self, heading: str, *content: object, scope: bool = False) -> None:
        """Add a section, unless the content is empty.

        Args:
            heading: Heading of the section.
            *content: Content; whatever is not Markup is escaped.
            scope: True where one legend switches the curves of all charts of the section.
        """
        inner = joined(content)
        if inner:
            name = f"s{len(self._sections)}"
            top = tag("h2", heading, id=name)
            whole = tag("section", top, inner, aria_labelledby=name, data_scope=scope)
            self._sections.append((heading, whole))

    def charts(self, charts: Sequence[Chart], legend: bool = True) -> Markup:
        """Draw charts in a grid, and keep their numbers for the page's script.

        Args:
            charts: Charts to draw.
            legend: True where each chart has a legend of its own.

        Returns:
            The grid, which the caller adds to a section; empty without charts.
        """
        if not charts:
            return Markup("")
        # The prefix keeps ids apart: a page has several grids of charts.
        pictures, prefix = [], f"c{len(self._numbers)}-"
        for index, chart in enumerate(charts):
            name = f"{prefix}{index}"
            picture, self._numbers[name] = draw(chart, name, legend)
            pictures.append(picture)
        return tag("div", joined(pictures), class_="charts")

    def html(self) -> str:
        """Return the whole file, with the numbers of all charts that :meth:`charts` drew.

        A content security policy allows the page's own script, by its digest, and no network. So even a text
        that was escaped wrongly could load nothing and run nothing.
        """
        package = files("fedpriv.tools.report")
        style, script = (
            Markup(package.joinpath(name).read_text(encoding="utf-8").strip())
            for name in ("page.css", "page.js")
        )
        # The policy names the one script that may run by its SHA-256, so no other can be slipped in by a
        # text.
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
    """Add the sections of one run in full."""
    page.add(
        "Summary",
        sections.key_numbers(run),
        sections.three_epsilons(run),
        sections.omniscience(run),
        sections.exact_values(run),
    )
    # What can be claimed comes before the curves: a reader may stop there.
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
    """Return the line below the heading of a run's page: its name and when it began."""
    started = run.environment.get("started")
    when = f", begun {started}" if isinstance(started, str) else ""
    return tag("p", f"Run {run.name}{when}")


def add_runs(page: Page, runs: Sequence[ReportedRun], sweep: Sequence[str] | None) -> None:
    """Add the sections of several runs beside each other.

    All runs have a row. The first :data:`~fedpriv.tools.report.curves.MOST_RUNS` have curves, and the first
    :data:`MOST_DETAILS` are shown in full, folded.

    Args:
        page: Page that the sections are added to.
        runs: The runs.
        sweep: Overrides that began the runs as a sweep, or None.
    """
    # The same names are in the table, in the legend and in the headings below, so that a reader finds a
    # run again.
    names = labels(runs)
    page.add(
        "Runs",
        _rows(runs, names),
        _means(runs, names),
    )
    drawn = sweep_charts(runs[:MOST_RUNS], names[:MOST_RUNS])
    if drawn:
        curves = [curve for chart in drawn for curve in chart.curves]
        legend = legend_of(curves) if len({curve.key for curve in curves}) > 1 else ""
        note = "Runs that differ only in their seeds look alike and are switched together."
        if len(runs) > MOST_RUNS:
            note += f" Drawn are the first {MOST_RUNS} runs."
        charts = page.charts(drawn, legend=False)
        page.add("Curves", tag("p", note, class_="note"), legend, charts, scope=True)
    page.add("Configuration", *_configuration(runs))
    shown = zip(runs[:MOST_DETAILS], names, short_names(runs), strict=False)
    details = [
        _details(run, f"{short_name}: {name}", f"r{index}")
        for index, (run, name, short_name) in enumerate(shown)
    ]
    if len(runs) > MOST_DETAILS:
        limit = f"The first {MOST_DETAILS} runs; fedpriv report of its folder tells of any other."
        details.insert(0, tag("p", limit, class_="note"))
    page.add("Each run", *details)
    if sweep is not None:
        line = shlex.join(["fedpriv", "train", "-m", *sweep])
        page.add("How to repeat it", sections.command("The sweep again", line))


def _rows(runs: Sequence[ReportedRun], names: Sequence[str]) -> Markup:
    """Return a table with a row for each run."""
    several = len(set(names)) > 1
    head = ["run", *(["settings"] if several else []), "seed", "rounds", "test accuracy"]
    backdoor = any(run.end("backdoor_accuracy") is not None for run in runs)
    head += ["backdoor accuracy"] if backdoor else []
    head += [f"ε {word}" for _, word in sections.EPSILONS] + ["δ"]
    rows = []
    for index, (run, name, link) in enumerate(zip(runs, names, short_names(runs), strict=True)):
        if index < MOST_DETAILS:
            # Only runs that are shown in full have a place to link to.
            link = tag("a", link, href=f"#r{index}")
        delta = run.summary.get("delta", run.statement.get("delta"))
        rows.append((
            link, *([name] if several else []), "–" if run.seed is None else run.seed,
            sections.rounds_words(run), sections.percent(run.end("test_accuracy")),
            *([sections.percent(run.end("backdoor_accuracy"))] if backdoor else []),
            *(sections.epsilon_words(run.end(key)) for key, _ in sections.EPSILONS),
            "–" if delta is None else tag("span", delta, class_="whole"),
        ))  # fmt: skip
    return table(counted(len(runs), "run"), head, rows, sorts=True)


def _means(runs: Sequence[ReportedRun], names: Sequence[str]) -> Markup:
    """Return a table of means over the runs that differ only in their seeds, empty without such runs."""
    groups: dict[str, list[ReportedRun]] = {}
    for run, name in zip(runs, names, strict=True):
        groups.setdefault(name, []).append(run)
    # Means of one run each would repeat the table above.
    if all(len(group) == 1 for group in groups.values()):
        return Markup("")
    rows = []
    for name, group in groups.items():
        accuracies = [100 * a for run in group if (a := run.end("test_accuracy")) is not None]
        sound = [e for run in group if (e := run.end("epsilon_sound")) is not None]
        low, high = (sections.epsilon_words(end(sound, default=None)) for end in (min, max))
        rows.append((name, len(group), sections.mean_words(accuracies), span(low, high)))
    head = ("settings", "runs", f"test accuracy (%), mean ± {INTERVALS}", "ε sound")
    return table("Over seeds", head, rows, sorts=True)


def _configuration(runs: Sequence[ReportedRun]) -> Iterator[Markup]:
    """Yield a table of the keys in which runs differ, and a folded table of the keys that all share."""
    differing, same = differences(runs), common(runs)
    if differing:
        caption = f"The {counted(len(differing), 'key')} in which the runs differ"
        if len(runs) > MOST_RUNS:  # a column for each run would not fit any screen
            cells = []
            for key, values in differing.items():
                different = list(dict.fromkeys(value or "none" for value in values))
                omitted = len(different) - _MOST_VALUES
                more = f", {omitted} more" if omitted > 0 else ""
                cells.append((key, ", ".join(different[:_MOST_VALUES]) + more))
            yield table(caption, ("key", "values"), cells)
        else:
            head = ("key", *short_names(runs))
            yield table(caption, head, [(key, *values) for key, values in differing.items()])
    if same:
        inner = table("Common to all runs", ("key", "value"), list(same.items()))
        yield folded(f"The {len(same)} keys that all runs have alike", inner)


def _details(run: ReportedRun, title: str, place: str) -> Markup:
    """Return everything about one of several runs, folded."""
    parts = [
        ("Summary", sections.key_numbers(run)),
        ("", sections.three_epsilons(run)),
        ("Privacy", sections.statement(run)),
        ("Ledger", sections.ledger(run, of_many=True) if sections.is_private(run) else ""),
        ("Audits", joined(sections.audits(run))),
        ("Environment", sections.environment(run)),
        ("How to repeat it", sections.repeat(run)),
    ]
    inner = [
        element
        for heading, content in parts
        if content
        for element in (tag("h3", heading) if heading else "", content)
    ]
    return folded(title, *inner, place=place)
