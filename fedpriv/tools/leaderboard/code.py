"""The commit whose code made an entry, and an exported copy of that code."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from pathlib import Path

import fedpriv
from fedpriv.common.errors import ConfigError, show

PARTS = ("fedpriv", "conf", "hydra_plugins")
"""The folders of a checkout that a run needs."""


def checkout() -> Path:
    """Return the git checkout that fedpriv runs from.

    Raises:
        ConfigError: fedpriv runs from an installed package.
    """
    root = Path(fedpriv.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        raise ConfigError(
            f"an entry names a commit of fedpriv, and {root} is no git checkout: run fedpriv from one"
        )
    return root


def full_commit(described: object, where: object) -> str:
    """Return the 40 digits of the commit that made a run.

    Args:
        described: The commit in the run's environment.json, as ``git describe`` names it.
        where: The run, for messages.

    Raises:
        ConfigError: No commit of this checkout has the code that made the run.
    """
    if not isinstance(described, str):
        raise ConfigError(f"{where} was made by an installed package, whose commit is not known")
    if described.endswith("-dirty"):
        raise ConfigError(f"{where} was made by code with changes that are not committed")
    match = re.fullmatch(r"(?:[\w.-]+-g)?([0-9a-f]{7,40})|([\w.][\w.-]*)", described, re.ASCII)
    commit = match and _commit(checkout(), match[1] or f"refs/tags/{match[2]}")
    if not commit:
        raise ConfigError(
            f"{where} was made by commit {show(described)}, which this checkout lacks"
        )
    return commit


def refuse_foreign_commit(commit: str, where: object) -> None:
    """Raise ConfigError for a commit that is not in the history of the checkout.

    The code of the commit will be executed, so it must be code that the reader already has.
    """
    root = checkout()
    if (
        _commit(root, commit) is None
        or _git(root, "merge-base", "--is-ancestor", commit, "HEAD") is None
    ):
        raise ConfigError(
            f"{where}: commit {commit[:12]} is not in the history of {root}; git pull, or ask for an entry "
            "of a commit that is"
        )


def export(commit: str, target: Path) -> None:
    """Write the code of a commit into the folder ``target``.

    Raises:
        ConfigError: git cannot read the commit, or the commit lacks one of :data:`PARTS`.
    """
    archive = _git(checkout(), "archive", "--format=tar", commit, *PARTS)
    if archive is None:
        raise ConfigError(
            f"commit {commit[:12]} cannot be read, or lacks one of {', '.join(PARTS)}"
        )
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(target, filter="data")


def _commit(root: Path, name: str) -> str | None:
    digits = _git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    return None if digits is None else digits.decode("ascii").strip()


def _git(root: Path, *arguments: str) -> bytes | None:
    """Return the standard output of a git command, or None where the command fails."""
    line = ["git", "-C", str(root), *arguments]
    try:
        result = subprocess.run(line, capture_output=True, check=False)
    except OSError:
        raise ConfigError("fedpriv leaderboard needs git, which is not installed") from None
    return result.stdout if result.returncode == 0 else None
