"""Refuse files of more than 400 lines: beyond that there are two things in one.

python scripts/check_file_lengths.py
"""

from __future__ import annotations

import sys
from pathlib import Path

MOST_LINES = 400
FOLDERS = ("fedpriv", "hydra_plugins", "scripts", "tests")


def too_long(root: Path) -> list[tuple[int, str]]:
    """Return (lines, path) of each Python file below ``root`` that is too long, the longest first."""
    found = []
    for folder in FOLDERS:
        for path in (root / folder).rglob("*.py"):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > MOST_LINES:
                found.append((lines, path.relative_to(root).as_posix()))
    return sorted(found, reverse=True)


def main() -> int:
    found = too_long(Path(__file__).parents[1])
    for lines, path in found:
        sys.stdout.write(f"{path} has {lines} lines, {lines - MOST_LINES} too many\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
