"""Print how large the project is: code, scripts, tests and words, and refuse more ``# fmt: skip`` than today.

    python scripts/count_code_lines.py

Lines of code leave out blank lines, comments, and docstrings (of attributes, too). Lines of scripts and
tests are all of them. Words are those of README, ARCHITECTURE, CONTRIBUTING, docs/ with its notebooks, and
the comments of conf/.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = ("fedpriv", "hydra_plugins")
FMT_SKIPS = 513
"""Today's number of lines that the formatter is told to skip; it may only fall."""


def size(source: str) -> tuple[int, int]:
    """Return the lines of code and the syntax nodes of a Python source."""
    nodes = list(ast.walk(ast.parse(source)))
    described: set[int] = set()
    for node in nodes:
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            described.update(range(value.lineno, (value.end_lineno or value.lineno) + 1))
    lines = sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in described
        for number, line in enumerate(source.splitlines(), start=1)
    )
    return lines, len(nodes)


def words() -> int:
    """Return the number of words of the documentation."""
    texts = [path.read_text() for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))]
    for notebook in ROOT.glob("docs/**/*.ipynb"):
        texts += ["".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"]]
    for path in ROOT.glob("conf/**/*.yaml"):
        texts += [line.partition("#")[2] for line in path.read_text().splitlines()]
    return sum(len(text.split()) for text in texts) - len(
        (ROOT / "CHANGELOG.md").read_text().split()
    )


def main() -> int:
    lines: Counter[str] = Counter()
    nodes: Counter[str] = Counter()
    skips = 0
    for folder in (*CODE, "scripts", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            skips += source.count("fmt: skip")
            if folder not in CODE:
                lines[folder] += len(source.splitlines())
                continue
            room = path.relative_to(ROOT / folder).parts[0] if folder == "fedpriv" else folder
            lines[room], nodes[room] = (
                now + more
                for now, more in zip((lines[room], nodes[room]), size(source), strict=True)
            )
    for room in sorted(nodes):
        print(f"{room:<16} {lines[room]:>7,} lines of code {nodes[room]:>8,} syntax nodes")
    code = sum(lines[room] for room in nodes)
    print(f"{'code':<16} {code:>7,} lines of code {nodes.total():>8,} syntax nodes")
    print(f"{'scripts':<16} {lines['scripts']:>7,} lines\n{'tests':<16} {lines['tests']:>7,} lines")
    print(f"{'documentation':<16} {words():>7,} words\n{'fmt: skip':<16} {skips:>7,}")
    if skips > FMT_SKIPS:
        print(f"{skips} lines are kept from the formatter, {skips - FMT_SKIPS} more than allowed")
    return 1 if skips > FMT_SKIPS else 0


if __name__ == "__main__":
    sys.exit(main())
