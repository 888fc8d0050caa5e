"""``fedpriv claims``: the list, a row, a run, and what is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from fedpriv.cli.commands import run
from fedpriv.tools import environments
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

    monkeypatch.setattr(environments, "run_command", run)


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
