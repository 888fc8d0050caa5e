"""The page of all claims."""

from __future__ import annotations

from collections.abc import Sequence

from fedpriv.common.words import digits_up
from fedpriv.store.table import Column, Table
from fedpriv.tools.claims.row import REPORT, VERDICTS, ClaimRow

_HEAD = """# Published guarantees, looked at again

`fedpriv claims --write docs/claims.md` writes this page from the rows in `conf/claims`. A row is a
published guarantee or feature: what is stated, what the text or the code shows, and a demonstration, which
takes seconds to minutes and uses synthetic data only.

```
fedpriv claims
fedpriv claims show flower-fixed
fedpriv claims run adap-noise
```

The first command lists all rows, the second prints one row with its stored transcript, the third measures the
numbers of a row again. For a row on software it first makes an environment of up to 1.1 GB in
`~/.cache/fedpriv/claims`. It says how large, and asks. The environments may be deleted at any time.

**How to read it.**

- A verdict is about one version of a text or a package, under the assumption that the row states. It says
  nothing about people, and the rows are in no order of merit.
- Both ε of a row are of the example in its section. ε claimed is printed in the source, or is what the
  source's formula or code gives for the example. Where nothing is claimed, it is left out.
  ε computed is rounded up.
- ε is computed by fedpriv's accountant, and a second time without any accountant: by the best test of two
  Gaussians, or by numerical integration of the privacy loss, which gives an interval.
- A row on software runs the package itself, in an environment of its own, from a wheel with the digest that
  the row names. Nothing of a package is copied into fedpriv. The demonstration of a row of the kind *adapter*
  includes [`fedpriv verify --adapter`](guide/adapters.md). The control is the same measurement on a minimal
  correction or under the correct setting, and must pass. CI compares stored transcripts.
- "No deviation found" names what was checked. It is no proof.
"""


def table(rows: Sequence[ClaimRow]) -> Table:
    """Return the table of all rows, a line for each."""
    columns = (
        Column("claim", code=True), "title", "version", Column("ε claimed", right=True),
        Column("ε computed", right=True), "verdict", "shown by",
    )  # fmt: skip
    result = Table("", columns)
    for row in rows:
        stated, ours = _epsilons(row)
        result.add(
            row.name, row.title, row.version, stated, ours, row.verdict, row.demonstration["kind"]
        )
    return result


def _epsilons(row: ClaimRow) -> tuple[str, str]:
    """Return the stated and our ε of a row as texts, empty where there is none."""
    if row.epsilon is None:
        return "", ""
    stated = row.epsilon["stated"]
    return ("" if stated is None else f"{stated:g}"), digits_up(row.epsilon["ours"])


def page(rows: Sequence[ClaimRow]) -> str:
    """Return the page of all rows."""
    counts = ", ".join(
        f"{sum(row.verdict == verdict for row in rows)} × *{verdict}*" for verdict in VERDICTS
    )
    parts = [_HEAD, f"**{len(rows)} rows:** {counts}.\n\n{REPORT}\n"]
    overview = [
        "| claim | title, version | ε claimed | ε computed | verdict |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        stated, ours = _epsilons(row)
        overview.append(
            f"| [{row.name}](#{row.name}) | {row.title}, {row.version} | {stated} | {ours} | "
            f"{row.judgement} |"
        )
    parts.append("\n".join(overview) + "\n")
    parts += [_section(row) for row in rows]
    return "\n".join(parts)


def _section(row: ClaimRow) -> str:
    """Return the section of a row."""
    lines = [f"## {row.name}", "", f"**{row.title}, {row.version}.** {row.source}", ""]
    lines += [f"- {name}: {text}" for name, text in facts(row)]
    return "\n".join(lines) + "\n"


def facts(row: ClaimRow) -> list[tuple[str, str]]:
    """Return everything that a row says after its title and source, in order."""
    rows = [("**Correct setting**", row.setting)] if row.setting is not None else []
    rows += [
        ("**Verdict**", row.judgement),
        ("Stated", row.stated),
        ("Assumption", row.assumption),
        ("Shown", row.shows),
    ]
    if row.verdict not in ("holds if", "no deviation found"):
        rows.append(("Reason", row.detail))
    if row.epsilon is None:
        rows.append(("ε", f"none: {row.no_epsilon}"))
    else:
        second = _span(row.epsilon["second"], digits=5)
        stated = row.epsilon["stated"]
        rows.append((
            "ε",
            ("" if stated is None else f"{stated:g} claimed; ")
            + f"{digits_up(row.epsilon['ours'])} by our accountant, {second} by the second derivation, at "
            f"δ = {row.epsilon['delta']:g} ({row.epsilon['unit']})".replace("e-0", "e-"),
        ))  # fmt: skip
    rows.append(("Demonstration", _demonstration(row)))
    control = row.demonstration.get("control")
    if control:
        rows.append(("Control", control["text"]))
    rows.append(("Date", f"{row.date:%Y-%m-%d}; {row.contact}"))
    rows.append(("Upstream", row.upstream or "none known"))
    return rows


def _demonstration(row: ClaimRow) -> str:
    kind = row.demonstration["kind"]
    if kind == "none":
        return "none; from the text"
    told = f"{kind}; `fedpriv claims run {row.name}`"
    expected = row.demonstration.get("expect") or {}
    numbers = [f"{name.replace('_', ' ')} {_span(span)}" for name, span in expected.items()]
    packages = [f"{package['name']} {package['version']}" for package in row.packages]
    if packages:
        told += f" with {', '.join(packages)}"
    return f"{told}: {', '.join(numbers)}" if numbers else told


def _span(span: Sequence[float], digits: int = 6) -> str:
    low, high = (f"{end:.{digits}g}" for end in span)
    return low if low == high else f"{low} to {high}"
