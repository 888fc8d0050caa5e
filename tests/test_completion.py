"""Shell completion of the command and of what follows ``fedpriv train``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedpriv.cli import COMMANDS, _flags
from fedpriv.completion import candidates, script
from fedpriv.config import GROUPS, options


def test_the_commands_are_offered():
    assert {c.strip() for c in candidates("fedpriv ", COMMANDS, _flags)} == set(COMMANDS)
    assert candidates("fedpriv tr", COMMANDS, _flags) == ["train "]


def test_the_options_of_a_group_are_offered():
    expected = {f"clipper={name}" for name, _ in options("clipper")}
    assert set(candidates("fedpriv train clipper=", COMMANDS, _flags)) == expected


def test_a_begun_option_is_completed():
    assert candidates("fedpriv train clipper=au", COMMANDS, _flags) == ["clipper=automatic"]


def test_the_groups_are_offered_after_a_blank():
    found = candidates("fedpriv train ", COMMANDS, _flags)
    assert {f"{group}=" for group in GROUPS} <= set(found)
    assert not [c for c in found if c.startswith("hydra")]


def test_the_keys_of_the_chosen_option_are_offered():
    assert "clipper.clip_norm=" in candidates(
        "fedpriv train clipper=constant clipper.c", COMMANDS, _flags
    )


def test_ready_made_experiments_are_offered():
    assert "+experiment=adap_dpfl/published_mnist" in candidates(
        "fedpriv train +exp", COMMANDS, _flags
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fedpriv list cl", ["clipper"]),
        ("fedpriv data ", ["download"]),
        ("fedpriv data download m", ["mnist"]),
        ("fedpriv data download a", ["adult"]),
        ("fedpriv completion z", ["zsh"]),
        ("fedpriv nonsense ", []),
        ("", [f"{name} " for name in COMMANDS]),
    ],
)
def test_the_other_commands_complete_their_arguments(line, expected):
    assert candidates(line, COMMANDS, _flags) == expected


@pytest.mark.parametrize(
    "line", ["fedpriv train nonsense=", "fedpriv train ((", "fedpriv train =="]
)
def test_nonsense_offers_nothing_and_does_not_fail(line):
    assert candidates(line, COMMANDS, _flags) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script_of_a_shell(shell, command):
    assert command("completion", shell).out.strip() == script(shell).strip()


@pytest.fixture
def bash(tmp_path):
    """(line) → what a real bash offers for it."""
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    repository = Path(__file__).parents[1]
    stub = tmp_path / "fedpriv"
    stub.write_text(f'#!/bin/sh\nexec {sys.executable} -m fedpriv "$@"\n')
    stub.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": f"{repository}:{os.environ.get('PYTHONPATH', '')}",
    }

    def offered(line: str) -> list[str]:
        program = (
            'eval "$(fedpriv completion bash)"; COMP_LINE="$1"; COMP_POINT=${#1}; '
            'COMP_WORDBREAKS=" ="; _fedpriv; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        answer = subprocess.run(
            ["bash", "-c", program, "bash", line],
            capture_output=True, text=True, check=True, env=environment,
        )  # fmt: skip
        assert answer.stderr == ""
        return answer.stdout.split()

    return offered


def test_a_real_bash_completes_the_options_of_a_group(bash):
    """It splits words at the equals sign, so what stands before it is left out."""
    assert set(bash("fedpriv train clipper=")) == {name for name, _ in options("clipper")}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fedpriv account --sched", ["--schedule"]),
        ("fedpriv account --accountant p", ["pld", "prv"]),
        ("fedpriv calibrate --sampling w", ["without_replacement"]),
        ("fedpriv calibrate --eps", ["--epsilon"]),
        ("fedpriv audit m", ["membership"]),
        ("fedpriv audit membership --non", ["--nonmembers"]),
        ("fedpriv audit membership run --nonmembers h", ["held_out"]),
        ("fedpriv audit property run --property in", ["intensity"]),
    ],
)
def test_flags_and_their_values_are_completed(line, expected):
    assert candidates(line, COMMANDS, _flags) == expected
