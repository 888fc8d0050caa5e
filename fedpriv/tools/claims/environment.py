"""An environment for the packages of a row: exact versions, wheels only, the wheel's digest compared.

An environment is made under another name and renamed when it is complete. What is interrupted or fails leaves
nothing, and two commands at once do not disturb each other.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedpriv.common.endings import ended_by_signals
from fedpriv.common.errors import FedprivError
from fedpriv.common.notices import complain
from fedpriv.data.storage import cache_folder
from fedpriv.tools.claims.row import ClaimRow, folder

CPU_TORCH = "https://download.pytorch.org/whl/cpu"
"""Index of torch without CUDA. The wheel of the package index brings several GB of CUDA on Linux."""
_LIMIT = 900  # seconds for a step
_UNREACHABLE = re.compile(r"connection broken by|Could not fetch URL|Temporary failure in name")


class ClaimError(FedprivError):
    """A demonstration could not be run; nothing half-made is left."""


def ready(row: ClaimRow) -> Path | None:
    """Return the interpreter that has the packages of a row already, or None.

    A row without packages is about fedpriv or a text: fedpriv's own interpreter runs it. The packages of any
    other row have an environment of their own, where nobody has changed them.
    """
    if not row.packages:
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
    try:
        environment.parent.mkdir(parents=True, exist_ok=True)
        with ended_by_signals(), tempfile.TemporaryDirectory(
            prefix=".unfinished-", dir=environment.parent
        ) as unfinished:  # fmt: skip
            complain("making the environment", command="fedpriv claims")
            _make(row, Path(unfinished) / "environment", Path(unfinished))
            if ready(row) is None:  # another command may have made the same environment meanwhile
                shutil.rmtree(environment, ignore_errors=True)
                os.rename(Path(unfinished) / "environment", environment)
    except OSError as error:
        raise ClaimError(f"cannot make {environment}: {error.strerror or error}") from None
    return environment / "bin" / "python"


def _make(row: ClaimRow, environment: Path, temporary: Path) -> None:
    """Make an environment with the packages of a row, and note what was installed."""
    _run([sys.executable, "-m", "venv", str(environment)], "make an environment")
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q"]
    install = [*pip, "install", "--only-binary", ":all:"]
    wheels = []
    for package in row.packages:
        pinned = f"{package['name']}=={package['version']}"
        _run([*pip, "download", "--no-deps", "--only-binary", ":all:", "-d", str(temporary), pinned],
             f"download {pinned}")  # fmt: skip
        wheels.append((_checked(temporary, package), package.get("dependencies", True)))
    also = [str(name) for name in row.demonstration.get("also") or []]
    for name in also:
        if name.startswith("torch==") and sys.platform == "linux":
            _run([*install, "--no-deps", "--retries", "1", "--extra-index-url", CPU_TORCH, f"{name}+cpu"],
                 f"install {name}+cpu")  # fmt: skip
    if also:
        _run([*install, *also], f"install {', '.join(also)}")
    for wheel, with_dependencies in wheels:
        options = [] if with_dependencies else ["--no-deps"]
        _run([*install, *options, str(wheel)], f"install {wheel.name}")
    (environment / "complete").write_text(_run([*pip, "freeze"], "list what is installed"), "utf-8")


def installed(row: ClaimRow) -> list[str]:
    """Return names and versions of all packages in the row's environment; none for a row without packages."""
    if not row.packages:
        return []
    lines = (_environment(row) / "complete").read_text("utf-8").splitlines()
    return [line.partition(" @ ")[0] for line in lines if line.strip()]


def run_script(row: ClaimRow, python: Path) -> dict[str, Any]:
    """Run the demonstration of a row and return the JSON that it prints last.

    Raises:
        ClaimError: The script fails, takes too long, or prints something else.
    """
    name, *arguments = row.script
    limit = 60 + 20 * int(row.demonstration.get("seconds") or 30)
    with ended_by_signals(), tempfile.TemporaryDirectory() as empty:
        environment = {
            **os.environ, "PYTHONHASHSEED": "0", "FLWR_TELEMETRY_ENABLED": "0",
            # Whatever the package keeps between runs is gone with the folder.
            "HOME": empty, "TMPDIR": empty,
        }  # fmt: skip
        environment.pop("PYTHONPATH", None)
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
    """Run a command and return what it prints; a failure is one sentence with its last line.

    The command has a session of its own, so that it is ended with everything that it started.
    """
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", env=environment, cwd=within, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise ClaimError(f"cannot {what}: {error.strerror}") from None
    with process:
        try:
            printed, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            raise ClaimError(f"cannot {what}: not finished after {limit} seconds") from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        lines = (errors or printed).strip().splitlines() or ["no message"]
        unreachable = "pip" in command and _UNREACHABLE.search(errors)
        reason = "the package index cannot be reached" if unreachable else lines[-1][:300]
        raise ClaimError(f"cannot {what}: {reason}")
    return printed
