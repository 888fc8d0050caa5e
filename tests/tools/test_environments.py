"""Environments of packages that are not fedpriv's: made whole or not at all, failures in one sentence."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from fedpriv.tools import environments
from fedpriv.tools.environments import EnvironmentFailure, make_environment, run_command


@pytest.fixture
def quick_venv(monkeypatch):
    """Replace the commands by what they leave behind; yields the commands."""
    commands: list[list[str]] = []

    def run(command, what, **_):  # type: ignore[no-untyped-def]
        commands.append(list(command))
        if command[1:3] == ["-m", "venv"]:
            (Path(command[-1]) / "bin").mkdir(parents=True)
            (Path(command[-1]) / "bin" / "python").touch()
        return "package==1.0\n"

    monkeypatch.setattr(environments, "run_command", run)
    return commands


def test_an_environment_is_made_once(quick_venv, tmp_path):
    folder = tmp_path / "cache" / "one"
    python = make_environment(folder, lambda installer: installer.install("package==1.0"))
    assert python == folder / "bin" / "python"
    assert (folder / "complete").read_text() == "package==1.0\n"
    made = len(quick_venv)
    assert make_environment(folder, lambda installer: pytest.fail("made again")) == python
    assert len(quick_venv) == made


def test_an_environment_whose_python_is_gone_is_made_again(quick_venv, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "complete").touch()
    assert make_environment(tmp_path / "one", lambda installer: None).exists()
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_wheels_alone_are_installed(quick_venv, tmp_path):
    make_environment(tmp_path / "one", lambda installer: installer.install("package==1.0"))
    (install,) = [command for command in quick_venv if "install" in command]
    assert install[install.index("--only-binary") + 1] == ":all:"


@pytest.mark.skipif(sys.platform != "linux", reason="torch has a wheel without CUDA elsewhere")
def test_torch_comes_without_cuda(quick_venv, tmp_path):
    make_environment(tmp_path / "one", lambda installer: installer.install_torch("2.13.0"))
    assert any("torch==2.13.0+cpu" in command for command in quick_venv)


def test_a_failure_leaves_nothing(quick_venv, tmp_path):
    def fill(installer):  # type: ignore[no-untyped-def]
        raise EnvironmentFailure("cannot install package==9: no such version")

    with pytest.raises(EnvironmentFailure, match="no such version"):
        make_environment(tmp_path / "one", fill)
    assert list(tmp_path.iterdir()) == []


def test_what_was_installed_is_told(quick_venv, tmp_path):
    make_environment(tmp_path / "one", lambda installer: None)
    assert environments.installed(tmp_path / "one") == ["package==1.0"]


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("connection broken by 'X'\nERROR: No matching", "the package index cannot be reached"),
        ("ERROR: No matching distribution found", "No matching distribution found"),
    ],
)  # fmt: skip
def test_a_failure_of_pip_is_one_sentence(printed, reason):
    script = f"import sys; sys.exit({printed!r})"
    with pytest.raises(EnvironmentFailure, match=f"cannot download it: .*{reason}$"):
        run_command([sys.executable, "-c", script, "pip"], "download it")


def test_a_step_that_takes_too_long_is_ended():
    with pytest.raises(EnvironmentFailure, match="cannot wait: not finished after 1 seconds"):
        run_command([sys.executable, "-c", "import time; time.sleep(600)"], "wait", limit=1)


def test_a_step_is_ended_with_all_that_it_started(tmp_path):
    script = (
        "import subprocess, sys\n"
        "started = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],\n"
        "                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "sys.exit(str(started.pid))"
    )
    with pytest.raises(EnvironmentFailure) as failure:
        run_command([sys.executable, "-c", script], "start")
    stat = Path(f"/proc/{str(failure.value).rpartition(' ')[2]}/stat")
    # A process that was ended is a zombie until init has collected it.
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
