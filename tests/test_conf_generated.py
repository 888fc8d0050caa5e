"""conf/ says of a key what the field of its class says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from fedpriv.common.fields import declared, field, number, one_of

SCRIPT = Path(__file__).parents[1] / "scripts" / "generate_conf.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("generate_conf", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.thorough
def test_what_is_checked_in_is_what_the_fields_say(script, capsys):
    outdated = script.main(["--check"])
    assert not outdated, f"run python scripts/generate_conf.py\n{capsys.readouterr().out}"


@declared
class Part:
    norm: float = field(number(above=0), alias="clip_norm", unit="C", help="clip norm")
    power: float = field(number(at_least=0), default=1e-6, help="exponent")
    kind: str = field(one_of(("bits", "counts")), default="bits", help="of what")


def generated(script, *lines: str, own=((),)) -> list[str]:
    text = "# a part\n" + "".join(f"{line}\n" for line in lines)
    new = script.with_fields(text, {(): Part}, own)
    assert new.startswith("# a part\n")
    return new.splitlines()[1:]


def test_a_key_gets_the_default_and_the_description_of_its_field(script):
    assert generated(script, "clip_norm: 3.0", "power: 2  # old", "other: 1  # kept") == [
        "clip_norm: 3.0  # clip norm [C] (number > 0)",
        "power: 1.0e-06  # exponent (number >= 0)",
        "other: 1  # kept",
    ]


def test_a_value_that_means_the_default_stays_as_it_is_written(script):
    assert generated(script, "power: 1e-6", "kind: 'bits'") == [
        "power: 1e-6  # exponent (number >= 0)",
        "kind: 'bits'  # of what (bits, counts)",
    ]


def test_interpolations_stay_and_the_default_inside_follows_the_field(script):
    assert generated(
        script, "power: ${rounds}", "kind: ${oc.select:protocol.kind, counts}  # old"
    ) == [
        "power: ${rounds}  # exponent (number >= 0)",
        "kind: ${oc.select:protocol.kind, bits}  # of what (bits, counts)",
    ]


def test_an_own_value_stays_until_it_is_the_default(script):
    assert generated(script, "power: 2  # own value; old", "kind: bits  # own value") == [
        "power: 2  # own value; exponent (number >= 0)",
        "kind: bits  # of what (bits, counts)",
    ]


def test_an_option_that_extends_another_keeps_its_values(script):
    assert generated(script, "power: 2", own=()) == ["power: 2  # exponent (number >= 0)"]
