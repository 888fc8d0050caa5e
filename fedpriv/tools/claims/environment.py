"""An environment for the packages of a row: exact versions, wheels only, the wheel's digest compared."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedpriv.common.endings import ended_by_signals
from fedpriv.common.notices import complain
from fedpriv.data.storage import cache_folder
from fedpriv.tools import environments
from fedpriv.tools.claims.row import ClaimRow, folder
from fedpriv.tools.environments import (
    EnvironmentFailure,
    Installer,
    complete,
    interpreter,
    make_environment,
    run_command,
)


class ClaimError(EnvironmentFailure):
    """A wheel is not the one that the row names, or a demonstration printed no result."""


def ready(row: ClaimRow) -> Path | None:
    """Return the interpreter that has the packages of a row already, or None.

    A row without packages is about fedpriv or a text: fedpriv's own interpreter runs it. The packages of any
    other row have an environment of their own, where nobody has changed them.
    """
    if not row.packages:
        return Path(sys.executable)
    return interpreter(_environment(row)) if complete(_environment(row)) else None


def made(row: ClaimRow) -> Path:
    """Return the interpreter of the row's environment, and make the environment if there is none.

    Raises:
        EnvironmentFailure: A package cannot be had, or its wheel is not the one that the row names.
    """
    found = ready(row)
    if found is not None:
        return found

    def fill(installer: Installer) -> None:
        also = [str(name) for name in row.demonstration.get("also") or []]
        with tempfile.TemporaryDirectory() as folder_of_wheels:
            wheels = []
            for package in row.packages:
                installer.download(
                    f"{package['name']}=={package['version']}", Path(folder_of_wheels)
                )
                wheel = _checked(Path(folder_of_wheels), package)
                wheels.append((wheel, package.get("dependencies", True)))
            for name in also:
                if name.startswith("torch=="):
                    installer.install_torch(name.removeprefix("torch=="))
            if also:
                installer.install(*also)
            for wheel, with_dependencies in wheels:
                installer.install(str(wheel), dependencies=with_dependencies)

    complain("making the environment", command="fedpriv claims")
    return make_environment(_environment(row), fill)


def installed(row: ClaimRow) -> list[str]:
    """Return names and versions of all packages in the row's environment; none for a row without packages."""
    return environments.installed(_environment(row)) if row.packages else []


def run_script(row: ClaimRow, python: Path) -> dict[str, Any]:
    """Run the demonstration of a row and return the JSON that it prints last.

    Raises:
        EnvironmentFailure: The script fails, takes too long, or prints something else.
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
        printed = run_command([str(python), str(folder() / name), *arguments], f"run {name}",
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
