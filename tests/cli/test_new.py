"""``fedpriv new``: skeletons run as they are written, and nothing is written over."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest

from fedpriv.cli.skeletons import SKELETONS

SHORT = ("rounds=1", "runtime.progress=none", "runtime.plots=false")


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", SKELETONS)
def test_a_skeleton_runs_as_it_is_written(kind, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"own_{kind}"
    said = command("new", kind, name)
    assert said.status == 0, said.err
    (line,) = (line for line in said.out.splitlines() if line.startswith("run:"))
    run = command(*shlex.split(line)[2:], *SHORT)
    assert run.status == 0, run.err
    compile((tmp_path / f"test_{name}.py").read_text("utf-8"), name, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("kind", SKELETONS)
def test_the_test_of_a_skeleton_passes(kind, command, tmp_path):
    command("new", kind, f"slow_{kind}", "--to", str(tmp_path))
    said = subprocess.run(
        ["python", "-m", "pytest", "-q", "-n", "0", f"test_slow_{kind}.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.skipif(shutil.which("ruff") is None, reason="ruff is not installed")
def test_skeletons_are_clean(command, tmp_path):
    for kind in SKELETONS:
        command("new", kind, f"clean_{kind}", "--to", str(tmp_path))
    rules = ["--select", "E,F,W,I,B,D,N,UP,SIM,RET", "--ignore", "D107,D203,D213"]
    for words in (["check", *rules], ["format", "--check"]):
        said = subprocess.run(
            ["ruff", *words, "--isolated", "--line-length", "100", str(tmp_path)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert said.returncode == 0, said.stdout


@pytest.mark.parametrize("file", ["mine.py", "test_mine.py", "my_yamls/clipper/mine.yaml"])
def test_nothing_is_written_over(file, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("my own")
    said = command("new", "clipper", "mine")
    assert said.status == 2
    assert said.sentence.startswith(f"fedpriv: {file} exists")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / file]
    assert (tmp_path / file).read_text() == "my own"


@pytest.mark.parametrize(
    ("name", "words"),
    [("Mine", "small letters"), ("my-clipper", "small letters"), ("../mine", "small letters"),
     ("class", "small letters"), ("quantile", "fedpriv list clipper"), ("json", "my_json"),
     ("torch", "my_torch")],
)  # fmt: skip
def test_a_name_that_cannot_be_is_refused(name, words, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = command("new", "clipper", name)
    assert said.status == 2
    assert words in said.sentence
    assert f"got {name}" in said.sentence
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_kind_comes_with_those_there_are(command):
    said = command("new", "cliper", "mine")
    assert said.status == 2
    assert "did you mean clipper?" in said.sentence


def test_a_folder_that_cannot_be_is_one_sentence(command, tmp_path):
    (tmp_path / "file").write_text("")
    said = command("new", "clipper", "mine", "--to", str(tmp_path / "file"))
    assert said.status == 1
    assert "cannot be written" in said.sentence
