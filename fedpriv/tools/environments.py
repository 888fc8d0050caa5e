"""Environments for packages that are not fedpriv's: wheels only, torch without CUDA.

An environment is made under another name and renamed when it is complete. What is interrupted or fails leaves
nothing, and two commands at once do not disturb each other.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fedpriv.common.endings import ended_by_signals
from fedpriv.common.errors import FedprivError

CPU_TORCH = "https://download.pytorch.org/whl/cpu"
"""Index of torch without CUDA. The wheel of the package index brings several GB of CUDA on Linux."""
_LIMIT = 900  # seconds for a step
_UNREACHABLE = re.compile(r"connection broken by|Could not fetch URL|Temporary failure in name")


class EnvironmentFailure(FedprivError):
    """An environment cannot be made; nothing half-made is left."""


class Installer:
    """Installs wheels into an environment.

    Args:
        environment: Folder of the environment.
    """

    def __init__(self, environment: Path):
        self.python = interpreter(environment)
        self.pip = [str(self.python), "-m", "pip", "--disable-pip-version-check", "-q"]

    def download(self, requirement: str, folder: Path) -> None:
        """Download the wheel of a package, without its dependencies, into a folder.

        Raises:
            EnvironmentFailure: The package cannot be had as a wheel.
        """
        options = ["--no-deps", "--only-binary", ":all:", "-d", str(folder)]
        run_command([*self.pip, "download", *options, requirement], f"download {requirement}")

    def install(self, *requirements: str, dependencies: bool = True) -> None:
        """Install packages, or wheels by their paths.

        Raises:
            EnvironmentFailure: A package cannot be had as a wheel.
        """
        options = ["--only-binary", ":all:", *([] if dependencies else ["--no-deps"])]
        names = ", ".join(Path(requirement).name for requirement in requirements)
        run_command([*self.pip, "install", *options, *requirements], f"install {names}")

    def install_torch(self, version: str) -> None:
        """Install a version of torch without CUDA.

        Raises:
            EnvironmentFailure: The version cannot be had as a wheel.
        """
        if sys.platform == "linux":
            first = [*self.pip, "install", "--only-binary", ":all:", "--no-deps", "--retries", "1"]
            name = f"torch=={version}+cpu"
            run_command([*first, "--extra-index-url", CPU_TORCH, name], f"install {name}")
        self.install(f"torch=={version}")


def interpreter(environment: Path) -> Path:
    """Return the interpreter of an environment."""
    return environment / "bin" / "python"


def installed(environment: Path) -> list[str]:
    """Return names and versions of all packages in a complete environment."""
    lines = (environment / "complete").read_text("utf-8").splitlines()
    return [line.partition(" @ ")[0] for line in lines if line.strip()]


def complete(environment: Path) -> bool:
    """Return whether the environment was made to its end."""
    return (environment / "complete").exists() and interpreter(environment).exists()


def make_environment(environment: Path, fill: Callable[[Installer], None]) -> Path:
    """Make an environment unless it is there, and return its interpreter.

    Args:
        environment: Folder of the environment.
        fill: Function that installs what belongs into it.

    Raises:
        EnvironmentFailure: A package cannot be had, or the folder cannot be written.
    """
    if complete(environment):
        return interpreter(environment)
    try:
        environment.parent.mkdir(parents=True, exist_ok=True)
        with ended_by_signals(), tempfile.TemporaryDirectory(
            prefix=".unfinished-", dir=environment.parent
        ) as unfinished:  # fmt: skip
            folder = Path(unfinished) / "environment"
            run_command([sys.executable, "-m", "venv", str(folder)], "make an environment")
            installer = Installer(folder)
            fill(installer)
            freeze = run_command([*installer.pip, "freeze"], "list what is installed")
            (folder / "complete").write_text(freeze, "utf-8")
            if not complete(environment):  # another command may have made it meanwhile
                shutil.rmtree(environment, ignore_errors=True)
                os.rename(folder, environment)
    except OSError as error:
        raise EnvironmentFailure(f"cannot make {environment}: {error.strerror or error}") from None
    return interpreter(environment)


def run_command(
    command: Sequence[str],
    what: str,
    *,
    limit: float = _LIMIT,
    environment: Mapping[str, str] | None = None,
    within: str | None = None,
) -> str:
    """Run a command and return what it prints; a failure is one sentence with its last line.

    The command has a session of its own, so that it is ended with everything that it started.

    Raises:
        EnvironmentFailure: The command fails, or takes longer than ``limit`` seconds.
    """
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", env=environment, cwd=within, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise EnvironmentFailure(f"cannot {what}: {error.strerror}") from None
    with process:
        try:
            printed, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            raise EnvironmentFailure(
                f"cannot {what}: not finished after {limit:g} seconds"
            ) from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        lines = (errors or printed).strip().splitlines() or ["no message"]
        unreachable = "pip" in command and _UNREACHABLE.search(errors)
        reason = "the package index cannot be reached" if unreachable else lines[-1][:300]
        raise EnvironmentFailure(f"cannot {what}: {reason}")
    return printed
