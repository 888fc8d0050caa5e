"""The commit whose code made an entry, and that code in a folder of its own."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from pathlib import Path

import fedpriv
from fedpriv.common.errors import ConfigError, show

PARTS = ("fedpriv", "conf", "hydra_plugins")
"""What of a checkout runs."""


def checkout() -> Path:
    """The git checkout that fedpriv runs from. Raises ConfigError where it is an installed package."""
    root = Path(fedpriv.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        raise ConfigError(
            f"an entry names a commit of fedpriv, and {root} is no git checkout: run fedpriv from one"
        )
    return root


def full_commit(described: object, where: object) -> str:
    """The commit of a run, in 40 digits, from what its environment.json says: a name by ``git describe``.
    Raises ConfigError for a run of code that no commit has."""
    if not isinstance(described, str):
        raise ConfigError(f"{where} was made by an installed package, whose commit is not known")
    if described.endswith("-dirty"):
        raise ConfigError(f"{where} was made by code with changes that are not committed")
    found = re.fullmatch(r"(?:[\w.-]+-g)?([0-9a-f]{7,40})|([\w.][\w.-]*)", described, re.ASCII)
    commit = found and _commit(checkout(), found[1] or f"refs/tags/{found[2]}")
    if not commit:
        raise ConfigError(
            f"{where} was made by commit {show(described)}, which this checkout lacks"
        )
    return commit


def refuse_foreign_commit(commit: str, where: object) -> None:
    """Raise ConfigError for a commit that is not in the history of what is checked out: its code is run, and
    so it must be code that the reader has already."""
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
    """Put the code of a commit into a folder. Raises ConfigError."""
    archive = _git(checkout(), "archive", "--format=tar", commit, *PARTS)
    if archive is None:
        raise ConfigError(
            f"commit {commit[:12]} cannot be read, or lacks one of {', '.join(PARTS)}"
        )
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(target, filter="data")


def _commit(root: Path, name: str) -> str | None:
    found = _git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    return None if found is None else found.decode("ascii").strip()


def _git(root: Path, *words: str) -> bytes | None:
    """What git says; None where it fails."""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, check=False)
    except OSError:
        raise ConfigError("fedpriv leaderboard needs git, which is not installed") from None
    return done.stdout if done.returncode == 0 else None
