"""Shell completion of the command and of what follows ``fedpriv train``."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedpriv.cli import fedpriv
from fedpriv.cli.completion import SCRIPTS, candidates
from fedpriv.common.groups import GROUPS, options


def test_the_commands_are_offered():
    shown = [name for name, command in fedpriv.commands.items() if not command.hidden]
    assert candidates("fedpriv ", fedpriv) == shown
    assert candidates("fedpriv tr", fedpriv) == ["train"]


def test_the_options_of_a_group_are_offered():
    expected = {f"clipper={name}" for name, _ in options("clipper")}
    assert set(candidates("fedpriv train clipper=", fedpriv)) == expected


def test_a_begun_option_is_completed():
    assert candidates("fedpriv train clipper=au", fedpriv) == ["clipper=automatic"]


def test_the_groups_are_offered_after_a_blank():
    found = candidates("fedpriv train ", fedpriv)
    assert {f"{group}=" for group in GROUPS} <= set(found)
    assert not [c for c in found if c.startswith("hydra")]


def test_the_keys_of_the_chosen_option_are_offered():
    assert "clipper.clip_norm=" in candidates("fedpriv train clipper=constant clipper.c", fedpriv)


def test_ready_made_experiments_are_offered():
    assert "+experiment=adap_dpfl/published_mnist" in candidates("fedpriv train +exp", fedpriv)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fedpriv list cl", ["clipper"]),
        ("fedpriv list clipper q", ["quantile"]),
        ("fedpriv data ", ["download"]),
        ("fedpriv data download m", ["mnist"]),
        ("fedpriv data download a", ["adult"]),
        ("fedpriv completion z", ["zsh"]),
        ("fedpriv nonsense ", []),
    ],
)
def test_the_other_commands_complete_their_arguments(line, expected):
    assert candidates(line, fedpriv) == expected


@pytest.mark.parametrize(
    "line", ["fedpriv train nonsense=", "fedpriv train ((", "fedpriv train =="]
)
def test_nonsense_offers_nothing_and_does_not_fail(line):
    assert candidates(line, fedpriv) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script_of_a_shell(shell, command):
    assert command("completion", shell).out.strip() == SCRIPTS[shell].strip()


NASTY = ("$(touch X)", "`touch Y`", "a b.yaml", "c;d", "e'f", "*")


@pytest.fixture
def environment(tmp_path):
    """A PATH on which ``fedpriv`` is this one; nothing of the user's shell."""
    stub = tmp_path / "bin" / "fedpriv"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\nexec {sys.executable} -m fedpriv "$@"\n')
    stub.chmod(0o755)
    repository = Path(__file__).parents[2]
    return {
        **os.environ,
        "HOME": str(tmp_path),
        "ZDOTDIR": str(tmp_path),
        "TERM": "dumb",
        "PATH": f"{stub.parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{repository}:{os.environ.get('PYTHONPATH', '')}",
    }


@pytest.fixture
def nasty(tmp_path):
    """A folder with files whose names a shell would run, split or expand."""
    folder = tmp_path / "nasty"
    folder.mkdir()
    for name in NASTY:
        (folder / name).touch()
    return folder


def unchanged(folder: Path) -> bool:
    return sorted(path.name for path in folder.iterdir()) == sorted(NASTY)


@pytest.fixture
def bash(environment, tmp_path):
    """(line, folder) → what the function that bash calls offers for it."""
    if shutil.which("bash") is None:
        pytest.skip("needs bash")

    def offered(line: str, folder: Path = tmp_path, breaks: str = " =:") -> list[str]:
        program = (
            'eval "$(fedpriv completion bash)"; COMP_WORDBREAKS=$1; COMP_LINE=$2; COMP_POINT=${#2}; '
            'shift 2; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
            'compopt() { :; }; _fedpriv fedpriv; printf "%s\\0" "${COMPREPLY[@]}"'
        )
        words = re.findall(r"[=:]|[^=: ]+", line) + [""] * line.endswith(" ")
        answer = subprocess.run(
            ["bash", "-c", program, "bash", breaks, line, *words],
            capture_output=True, text=True, check=True, env=environment, cwd=folder,
        )  # fmt: skip
        assert answer.stderr == ""
        return [word for word in answer.stdout.split("\0") if word]

    return offered


SHOW_LINE = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        "bind 'set enable-bracketed-paste off'; bind -x '\"\\C-o\": printf \"<<%s>>\\n\" \"$READLINE_LINE\"'",
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        "show() { print -r -- \"<<$BUFFER>>\" }; zle -N show; bindkey '^O' show; LISTMAX=1000",
    ),
}  # fmt: skip


@pytest.fixture(params=["bash", "zsh"])
def typed(request, environment):
    """(text, folder) → the command line after the text and a TAB were typed at a real prompt."""
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    pty = pytest.importorskip("pty", reason="needs pseudo-terminals")
    program, show = SHOW_LINE[shell]

    def line(text: str, folder: Path) -> str:
        ours, theirs = pty.openpty()
        child = subprocess.Popen(
            program, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=folder,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        try:
            os.write(ours, f'eval "$(fedpriv completion {shell})"; {show}; echo rea""dy\n'.encode())
            read_until(ours, rb"ready\r?\n")
            os.write(ours, f"{text}\t\x0f".encode())
            return read_until(ours, rb"<<(.*?)>>").decode()
        finally:
            child.kill()
            child.wait()
            os.close(ours)

    return line


def read_until(terminal: int, pattern: bytes) -> bytes:
    """The first group (or all) of what matches in what a terminal shows."""
    shown = b""
    while not (match := re.search(pattern, shown)):
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, shown
        shown += os.read(terminal, 4096)
    return match.group(match.lastindex or 0)


@pytest.mark.thorough
@pytest.mark.parametrize("word", ["", "key=./", "dataset.path=./", "./", "key=*", "key=./$"])
def test_no_file_name_is_run_by_completing_in_bash(word, bash, nasty):
    bash(f"fedpriv train {word}", nasty)
    assert unchanged(nasty)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("begun", "names"),
    [("a", [r"a\ b.yaml"]), (r"\$", [r"\$\(touch\ X\)"])],
)
def test_a_file_is_completed_and_quoted_at_a_real_prompt(begun, names, typed, nasty):
    assert typed(f"fedpriv train key=./{begun}", nasty) == f"fedpriv train key=./{names[0]} "
    assert unchanged(nasty)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("fedpriv tra", "fedpriv train "),
        ("fedpriv train clipper=au", "fedpriv train clipper=automatic "),
        ("fedpriv train noise_schedule.noise", "fedpriv train noise_schedule.noise_multiplier="),
        ("fedpriv plot ./a", r"fedpriv plot ./a\ b.yaml "),
        ("fedpriv train key=./", "fedpriv train key=./"),
    ],
)
def test_a_tab_at_a_real_prompt(text, line, typed, nasty):
    assert typed(text, nasty) == line
    assert unchanged(nasty)


@pytest.fixture
def fish(environment):
    """(line, folder) → what fish would put in place of the last word."""
    if shutil.which("fish") is None:
        pytest.skip("needs fish")

    def offered(line: str, folder: Path) -> list[str]:
        program = "fedpriv completion fish | source; complete -C $argv[1]"
        answer = subprocess.run(
            ["fish", "--no-config", "-c", program, line],
            capture_output=True, text=True, check=True, env=environment, cwd=folder,
        )  # fmt: skip
        assert answer.stderr == ""
        return [row.partition("\t")[0] for row in answer.stdout.splitlines()]

    return offered


def test_no_file_name_is_run_by_completing_in_fish(fish, nasty):
    assert {f"key=./{name}" for name in NASTY} == set(fish("fedpriv train key=./", nasty))
    assert unchanged(nasty)


def test_fish_completes_an_option(fish, nasty):
    assert fish("fedpriv train clipper=au", nasty) == ["clipper=automatic"]


def test_an_option_whose_name_a_shell_would_run_is_not_offered(tmp_path):
    (tmp_path / "clipper").mkdir()
    for name in ("gentle", *NASTY):
        (tmp_path / "clipper" / f"{name}.yaml").touch()
    found = candidates(f"fedpriv train --config-dir {tmp_path} clipper=", fedpriv)
    assert set(found) == {f"clipper={name}" for name, _ in options("clipper")} | {"clipper=gentle"}


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
    assert candidates(line, fedpriv) == expected
