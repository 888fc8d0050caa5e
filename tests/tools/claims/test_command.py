"""``fedpriv claims``: the list, a row, a run, and what is refused."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path

import pytest

from fedpriv.cli.commands import run
from fedpriv.tools.claims import environment
from fedpriv.tools.claims.row import row_named


def output(capsys, *words: str, status: int = 0):
    assert run(["claims", *words]) == status
    return capsys.readouterr()


def test_the_list_names_every_row_and_how_to_report_an_error(capsys):
    shown = output(capsys, "--table", "markdown")
    assert "`flower-fixed`" in shown.out
    assert "Authors were not contacted" in shown.err


def test_the_list_as_json(capsys):
    rows = json.loads(output(capsys, "--json").out)
    assert {row["verdict"] for row in rows} >= {"not as stated", "no DP claimed"}


def test_a_row_shows_the_correct_setting_and_its_transcript(capsys):
    shown = output(capsys, "show", "flower-fixed").out
    assert "Correct setting:" in shown
    assert "wheel sha256" in shown


def test_a_run_by_closed_form_agrees_with_its_row(capsys, tmp_path):
    path = tmp_path / "claim.txt"
    told = json.loads(
        output(capsys, "run", "cdp-crd-sensitivity", "--json", "--transcript", str(path)).out
    )
    assert told["agrees"]
    assert path.read_text("utf-8").startswith("claim: cdp-crd-sensitivity\n")


def test_an_unknown_row_is_refused_with_the_nearest(capsys):
    assert "flower-fixed" in output(capsys, "show", "flower-fixd", status=2).err


def test_a_row_from_the_text_has_no_run(capsys):
    assert "has no demonstration" in output(capsys, "run", "slides-local", status=2).err


def test_packages_are_not_downloaded_unasked(capsys, monkeypatch):
    monkeypatch.setattr(environment, "made", lambda row: pytest.fail("was made"))
    told = output(capsys, "run", "flower-fixed", status=2).err
    assert "flwr 1.42.0" in told
    assert "MB" in told
    assert "--yes" in told


def test_a_wheel_of_another_digest_is_not_run(tmp_path):
    wheel = tmp_path / "flwr-1.42.0-py3-none-any.whl"
    wheel.write_bytes(b"other")
    package = row_named("flower-fixed").packages[0]
    with pytest.raises(environment.ClaimError, match="not run"):
        environment._checked(tmp_path, package)
    right = {**package, "sha256": hashlib.sha256(b"other").hexdigest()}
    assert environment._checked(tmp_path, right) == wheel


def failing(monkeypatch, tmp_path, error):
    """Let the making of an environment fail at its first use of pip."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def run(command, what, **_):
        if "pip" in command:
            raise error
        Path(command[-1]).mkdir()
        (Path(command[-1]) / "pyvenv.cfg").touch()

    monkeypatch.setattr(environment, "_run", run)


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (environment.ClaimError("cannot download flwr: no index"), 1, "cannot download flwr: no index"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)  # fmt: skip
def test_an_environment_that_cannot_be_made_leaves_nothing(
    capsys, monkeypatch, tmp_path, error, status, sentence
):
    failing(monkeypatch, tmp_path, error)
    transcript = tmp_path / "t.txt"
    words = ("run", "flower-fixed", "--yes", "--transcript", str(transcript))
    told = output(capsys, *words, status=status).err
    assert told.strip().splitlines()[-1].endswith(sentence)
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []
    assert list((tmp_path / "fedpriv" / "claims").iterdir()) == []


def test_size_and_time_are_told_even_if_nobody_is_asked(capsys, monkeypatch, tmp_path):
    failing(monkeypatch, tmp_path, environment.ClaimError("stop"))
    told = output(capsys, "run", "flower-fixed", "--yes", status=1).err
    assert "MB" in told
    assert "seconds" in told


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("connection broken by 'X'\nERROR: No matching", "the package index cannot be reached"),
        ("ERROR: No matching distribution found", "No matching distribution found"),
    ],
)  # fmt: skip
def test_a_failure_of_pip_is_one_sentence(printed, reason):
    script = f"import sys; sys.exit({printed!r})"
    with pytest.raises(environment.ClaimError, match=f"cannot download it: .*{reason}$"):
        environment._run([sys.executable, "-c", script, "pip"], "download it")


def test_a_step_that_takes_too_long_is_ended():
    with pytest.raises(environment.ClaimError, match="cannot wait: not finished after 1 seconds"):
        environment._run([sys.executable, "-c", "import time; time.sleep(600)"], "wait", limit=1)


def test_a_step_is_ended_with_all_that_it_started(tmp_path):
    script = (
        "import subprocess, sys\n"
        "started = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],\n"
        "                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "sys.exit(str(started.pid))"
    )
    with pytest.raises(environment.ClaimError) as failure:
        environment._run([sys.executable, "-c", script], "start")
    stat = Path(f"/proc/{str(failure.value).rpartition(' ')[2]}/stat")
    # A process that was ended is a zombie until init has collected it.
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)


def test_an_environment_whose_python_is_gone_is_made_again(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    row = row_named("flower-fixed")
    old = environment._environment(row)
    old.mkdir(parents=True)
    (old / "complete").touch()

    def make(_, environment_folder, __):
        (environment_folder / "bin").mkdir(parents=True)
        (environment_folder / "bin" / "python").touch()
        (environment_folder / "complete").write_text("numpy==2.0\nflwr @ file:///flwr.whl\n")

    monkeypatch.setattr(environment, "_make", make)
    assert environment.ready(row) is None
    assert environment.made(row) == environment.ready(row) == old / "bin" / "python"
    assert environment.installed(row) == ["numpy==2.0", "flwr"]
    assert list(old.parent.iterdir()) == [old]
