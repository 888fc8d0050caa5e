"""Print the lines of code of each room of the package and of all of it.

python scripts/count_code_lines.py

Blank lines, comments, and docstrings (of attributes, too) are not counted.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path


def code_lines(source: str) -> int:
    """Return how many lines of a Python source are code."""
    described: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            described.update(range(value.lineno, (value.end_lineno or value.lineno) + 1))
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in described
        for number, line in enumerate(source.splitlines(), start=1)
    )


def by_room(package: Path) -> Counter[str]:
    """Return the lines of code of each folder or module directly below the package."""
    lines: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        lines[path.relative_to(package).parts[0]] += code_lines(path.read_text(encoding="utf-8"))
    return lines


def main() -> int:
    lines = by_room(Path(__file__).parents[1] / "fedpriv")
    for room, count in [*sorted(lines.items()), ("total", lines.total())]:
        sys.stdout.write(f"{room:<12} {count:>7,}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
