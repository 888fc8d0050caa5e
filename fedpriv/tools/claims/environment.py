"""An environment for the packages of a row: exact versions, wheels only, the wheel's digest compared."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedpriv.common.errors import FedprivError
from fedpriv.data.storage import cache_folder
from fedpriv.tools.claims.row import ClaimRow, folder

TORCH = "torch>=2.6,<2.14"  # 2.14 pulls several GB of CUDA packages on a machine without a GPU
_LIMIT = 900  # seconds for a step


class ClaimError(FedprivError):
    """A demonstration could not be run; nothing half-made is left."""


def ready(row: ClaimRow) -> Path | None:
    """Return the interpreter that has the packages of a row already, or None."""
    if all(_version(package["name"]) == package["version"] for package in row.packages):
        return Path(sys.executable)
    python = _environment(row) / "bin" / "python"
    return python if (_environment(row) / "complete").exists() and python.exists() else None


def made(row: ClaimRow) -> Path:
    """Return the interpreter of the row's environment, and make the environment if there is none.

    Raises:
        ClaimError: A package cannot be had, or its wheel is not the one that the row names.
    """
    interpreter = ready(row)
    if interpreter is not None:
        return interpreter
    environment = _environment(row)
    _run([sys.executable, "-m", "venv", "--clear", str(environment)], "make an environment")
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q"]
    also = [str(name) for name in row.demonstration.get("also") or []]
    with tempfile.TemporaryDirectory() as wheels:
        install = []
        for package in row.packages:
            pinned = f"{package['name']}=={package['version']}"
            _run([*pip, "download", "--no-deps", "--only-binary", ":all:", "-d", wheels, pinned],
                 f"download {pinned}")  # fmt: skip
            install.append((_checked(Path(wheels), package), package.get("dependencies", True)))
        if also:
            _run([*pip, "install", "--only-binary", ":all:", *also], f"install {', '.join(also)}")
        for wheel, with_dependencies in install:
            options = [] if with_dependencies else ["--no-deps"]
            _run([*pip, "install", "--only-binary", ":all:", *options, str(wheel)],
                 f"install {wheel.name}")  # fmt: skip
    (environment / "complete").touch()
    return environment / "bin" / "python"


def run_script(row: ClaimRow, python: Path) -> dict[str, Any]:
    """Run the demonstration of a row and return the JSON that it prints last.

    Raises:
        ClaimError: The script fails, takes too long, or prints something else.
    """
    name, *arguments = row.script
    environment = {**os.environ, "PYTHONHASHSEED": "0", "FLWR_TELEMETRY_ENABLED": "0"}
    environment.pop("PYTHONPATH", None)
    limit = 60 + 20 * int(row.demonstration.get("seconds") or 30)
    with tempfile.TemporaryDirectory() as empty:
        printed = _run([str(python), str(folder() / name), *arguments], f"run {name}",
                       limit=limit, environment=environment, within=empty)  # fmt: skip
    try:
        told = json.loads(printed.strip().splitlines()[-1])
        return {"measured": dict(told["measured"]), "control": dict(told["control"])}
    except (ValueError, IndexError, KeyError, TypeError):
        raise ClaimError(f"claim {row.name}: {name} printed no result") from None


def _environment(row: ClaimRow) -> Path:
    key = json.dumps([row.packages, row.demonstration.get("also"), sys.version], sort_keys=True)
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]
    return cache_folder() / "claims" / f"{row.packages[0]['name']}-{digest}"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _checked(wheels: Path, package: Mapping[str, Any]) -> Path:
    """Return the downloaded wheel of a package, whose digest is the one that the row names."""
    key = str(package["name"]).lower().replace("-", "_")
    wheel = next(path for path in wheels.glob("*.whl") if path.name.lower().startswith(f"{key}-"))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != package["sha256"]:
        raise ClaimError(
            f"{wheel.name} has the digest {digest}, and the row names {package['sha256']}: not run"
        )
    return wheel


def _run(
    command: list[str], what: str, *, limit: int = _LIMIT,
    environment: Mapping[str, str] | None = None, within: str | None = None,
) -> str:  # fmt: skip
    """Run a command and return what it prints; a failure is one sentence with its last line."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False,
                              env=environment, cwd=within, stdin=subprocess.DEVNULL)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ClaimError(f"cannot {what}: not finished after {limit} seconds") from None
    except OSError as error:
        raise ClaimError(f"cannot {what}: {error.strerror}") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise ClaimError(f"cannot {what}: {lines[-1][:300]}")
    return done.stdout
