"""``fedpriv bench --peers``: nothing is downloaded unasked, and what is not there is a row."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from fedpriv.tools.environments import EnvironmentFailure
from fedpriv.tools.peers import command as peers_command
from fedpriv.tools.peers import measure, packages


@pytest.fixture
def environments(tmp_path):
    return str(tmp_path / "environments")


def test_nothing_is_downloaded_unasked(command, environments, tmp_path):
    said = command("bench", "--peers", "--environments", environments)
    assert said.status == 2
    for words in ("opacus==1.6.0", "jax==", "flwr[simulation]==", " MB ", environments, "--yes"):
        assert words in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_a_comparison_is_refused(command):
    said = command("bench", "--peers", "--model", "logistic")
    assert (said.status, "--model must be one of cnn, mlp" in said.err) == (2, True)


@pytest.mark.parametrize("flag", [("--write", "page.md"), ("--yes",), ("--environments", "e")])
def test_its_flags_need_it(command, flag):
    said = command("bench", *flag)
    assert (said.status, f"{flag[0]} needs --peers" in said.err) == (2, True)


def test_libraries_that_cannot_be_installed_are_rows_of_the_page(command, tmp_path, monkeypatch):
    def fail(peer, root):  # type: ignore[no-untyped-def]
        raise EnvironmentFailure("cannot install it: the package index cannot be reached")

    monkeypatch.setattr(peers_command, "python_of", fail)
    said = command(
        "bench", "--peers", "--yes", "--model", "mlp", "--threads", "1", "--json", "n.json", "--write", "p.md"
    )  # fmt: skip
    assert said.status == 0
    assert "Opacus is left out" in said.err
    rows = [
        row
        for c in json.loads((tmp_path / "n.json").read_text())["comparisons"]
        for row in c["rows"]
    ]
    assert {row["failure"] for row in rows} == {
        "cannot install it: the package index cannot be reached"
    }
    assert "not measured: cannot install it" in (tmp_path / "p.md").read_text()


def test_a_library_for_older_pythons_is_left_out_before_anything_is_made(monkeypatch, tmp_path):
    monkeypatch.setattr(packages, "sys", SimpleNamespace(version_info=(3, 13, 0)))
    monkeypatch.setattr(packages, "make_environment", lambda *_: pytest.fail("made"))
    with pytest.raises(EnvironmentFailure, match=r"needs Python < 3\.13"):
        packages.python_of(packages.PFL, tmp_path)


def test_every_library_has_a_row(environments):
    rows = [row for c in measure.comparisons("mlp", 2) for row in c.rows]
    assert {row.peer for row in rows} == set(packages.PEERS)
