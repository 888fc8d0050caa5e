"""Refuse files of more than 400 lines, docstrings not counted: beyond that there are two things in one.

python scripts/check_file_lengths.py
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

MOST_LINES = 400
FOLDERS = ("fedpriv", "hydra_plugins", "scripts", "tests")


def lines_without_docstrings(source: str) -> int:
    """Return the number of lines of a module, without those of its docstrings."""
    strings = [
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    documentation = sum((s.end_lineno or s.lineno) - s.lineno + 1 for s in strings)
    return len(source.splitlines()) - documentation


def too_long(root: Path) -> list[tuple[int, str]]:
    """Return (lines, path) of each Python file below ``root`` that is too long, the longest first."""
    files = []
    for folder in FOLDERS:
        for path in (root / folder).rglob("*.py"):
            lines = lines_without_docstrings(path.read_text(encoding="utf-8"))
            if lines > MOST_LINES:
                files.append((lines, path.relative_to(root).as_posix()))
    return sorted(files, reverse=True)


def main() -> int:
    """Print the files that are too long; return 1 if there are any."""
    files = too_long(Path(__file__).parents[1])
    for lines, path in files:
        sys.stdout.write(f"{path} has {lines} lines, {lines - MOST_LINES} too many\n")
    return 1 if files else 0


if __name__ == "__main__":
    sys.exit(main())
