"""Hundreds of random command lines: each does something or ends in one sentence, never in a traceback."""

from __future__ import annotations

import random
from collections.abc import Iterator

import click
import pytest

from fedpriv.cli import fedpriv
from fedpriv.cli.completion import candidates
from fedpriv.common.errors import ConfigError
from fedpriv.tools.accounting import account, calibrate

VALUES = (
    "", " ", "0", "-1", "1", "3", "0.5", "1e-5", "nan", "inf", "-inf", "1e308", "1e-320", "9" * 40,
    "9" * 5000, "²", "abc", "é", "a b", "a,b", ",", "1..64", "64..2", "none", "poisson", "rdp",
    "pld,prv", "published", "label:", "label:3", "file:nowhere", "mnist", "clipper", "adap_dpfl/fig4",
    "seed=1", "=", "==", "+seed=1", "~seed", ".", "..", "/", "/dev/null", "nowhere/x.csv", "x.png", "x.csv",
    "x" * 300 + ".png", "x" * 5000, "$(touch X)", "*", "-", "--", "---", "-x", "--x", "--=", "--help=3",
)  # fmt: skip
LINES = 50


def leaves(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command and the words that lead to it."""
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))


def line(draw: random.Random) -> list[str]:
    """A command, some of its flags with values or without, and words that may be anything."""
    path, command = draw.choice(list(leaves(fedpriv)))
    words = [draw.choice(VALUES) for _ in range(draw.choice([0, 1, 1, 2]))]
    flags = [name for option in command.params for name in option.opts if name.startswith("-")]
    for flag in draw.choices(flags, k=draw.choice([0, 1, 2, 4])) if flags else []:
        value = draw.choice(VALUES)
        words += draw.choice([[flag, value], [f"{flag}={value}"], [flag], [flag[:-1], value]])
    if draw.random() < 0.1:
        draw.shuffle(words)
    return [*(path if draw.random() < 0.97 else path[:-1]), *words]


@pytest.fixture
def quick(monkeypatch):
    """What takes long is left out; flags are read all the same."""
    for name in (
        "fedpriv.train.main",
        "fedpriv.study.figures.catalogue.show_figures", "fedpriv.data.catalogue.dataset_status",
        "fedpriv.tools.verify.command.all_checks",
    ):  # fmt: skip
        monkeypatch.setattr(name, lambda *_, **__: [])

    def refuse(*_: object) -> None:
        raise ConfigError("left out")

    monkeypatch.setattr("fedpriv.data.catalogue.download", refuse)
    monkeypatch.setattr(account, "answer_of", refuse)
    monkeypatch.setattr(calibrate, "_accountant", refuse)


@pytest.mark.few(3)
@pytest.mark.parametrize("batch", [0, 2, 3, 1])  # the last one takes long
def test_any_line_ends_in_an_answer_or_in_a_sentence(batch, command, quick):
    draw = random.Random(f"command line {batch}")
    for _ in range(LINES):
        arguments = line(draw)
        said = command(*arguments)
        assert "Traceback" not in said.err, ascii(arguments)
        if said.status:
            assert said.status == 2, ascii(arguments)
            # One sentence, or one for each run that cannot be audited.
            for sentence in said.err.splitlines():
                assert sentence.startswith("fedpriv: "), ascii(arguments)
                assert len(sentence) < 1000, ascii(arguments)


@pytest.mark.parametrize("batch", range(2))
def test_any_line_can_be_completed(batch, command):
    draw = random.Random(f"completed {batch}")
    for _ in range(LINES):
        words = " ".join(w for w in line(draw) if not w.startswith("+figure"))
        assert isinstance(candidates(f"fedpriv {words}", fedpriv), list), words
