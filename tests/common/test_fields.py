"""Declared fields: what a constructor takes, what it refuses, and in which words."""

from __future__ import annotations

import importlib
import inspect

import attrs
import pytest

from fedpriv.common import fields
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import (
    advised,
    declared,
    field,
    not_null,
    number,
    one_of,
    or_null,
    same_as,
    set_apart,
    when,
    whole,
)


@declared
class Clip:
    norm: float = field(number(above=0), alias="clip_norm", help="the clip norm")
    floor: float = field(number(above=0, at_most="clip_norm"), default=0.5, help="the smallest")
    kind: str = field(one_of(("bits", "counts")), default="bits", help="what is asked")
    bins: int = field(
        when(lambda part, value: part.kind == "counts", whole(at_least=1, at_most=9)),
        default=None,
        help="how many bins",
    )
    rounds: int | None = field(
        or_null(whole(at_least=1)), default=None, kw_only=True, help="of the run"
    )

    def __attrs_post_init__(self) -> None:
        self.seen = []


def test_arguments_keep_their_order_names_and_defaults():
    parameters = inspect.signature(Clip).parameters.values()
    assert [(p.name, p.default, p.kind.name) for p in parameters] == [
        ("clip_norm", inspect.Parameter.empty, "POSITIONAL_OR_KEYWORD"),
        ("floor", 0.5, "POSITIONAL_OR_KEYWORD"),
        ("kind", "bits", "POSITIONAL_OR_KEYWORD"),
        ("bins", None, "POSITIONAL_OR_KEYWORD"),
        ("rounds", None, "KEYWORD_ONLY"),
    ]


def test_values_get_their_type_and_are_plain_attributes():
    clip = Clip(2, kind="counts", bins=4.0, rounds=7.0)
    assert vars(clip) == {
        "norm": 2.0, "floor": 0.5, "kind": "counts", "bins": 4, "rounds": 7, "seen": []
    }  # fmt: skip
    assert (type(clip.norm), type(clip.bins)) == (float, int)
    clip.norm = "changed later, unchecked"
    assert clip != Clip(2, kind="counts", bins=4)


@pytest.mark.parametrize(
    ("arguments", "argument", "value", "allowed"),
    [
        ({"clip_norm": -1}, "clip_norm", -1, "> 0"),
        ({"clip_norm": "x"}, "clip_norm", "x", "a number > 0"),
        ({"clip_norm": None}, "clip_norm", None, "a number > 0"),
        ({"clip_norm": 1, "floor": 2}, "floor", 2, "<= 1, which is clip_norm"),
        ({"clip_norm": 1, "kind": "nothing"}, "kind", "nothing", "one of bits, counts"),
        ({"clip_norm": 1, "kind": "counts"}, "bins", None, "a whole number >= 1 and <= 9"),
        ({"clip_norm": 1, "rounds": 0}, "rounds", 0, "a whole number >= 1"),
    ],
)
def test_a_refused_value_is_named_with_its_argument_and_what_is_allowed(
    arguments, argument, value, allowed
):
    with pytest.raises(ArgumentError) as refused:
        Clip(**arguments)
    error = refused.value
    assert (error.argument, error.value, error.allowed) == (argument, value, allowed)


def test_what_is_not_declared_or_missing_is_pythons_own_error():
    with pytest.raises(TypeError, match="unexpected keyword argument 'nrom'"):
        Clip(1, nrom=2)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'clip_norm'"):
        Clip()


def test_null_may_be_refused_in_words_of_its_own_and_an_error_may_say_what_to_do():
    @declared
    class Noise:
        rounds: int = field(
            not_null(whole(at_least=1), "given where nothing else ends it"), default=None, help="T"
        )
        sigma: float = field(advised(number(above=0), "none is noise=none"), default=1, help="σ")

    with pytest.raises(ArgumentError, match="rounds must be given where nothing else ends it, got"):
        Noise()
    with pytest.raises(ArgumentError, match="sigma must be > 0, got 0") as refused:
        Noise(3, 0)
    assert refused.value.hint == "none is noise=none"


def test_a_subclass_with_a_constructor_of_its_own_hands_the_arguments_on():
    class Own(Clip):
        def __init__(self, *arguments, trimmed: int = 2, **settings):
            super().__init__(*arguments, **settings)
            self.trimmed = trimmed

    own = Own(3, floor=1, trimmed=5)
    assert (own.norm, own.floor, own.trimmed, own.seen) == (3.0, 1.0, 5, [])
    with pytest.raises(ArgumentError, match="floor must be <= 3, which is clip_norm, got 4"):
        Own(3, floor=4)


def test_a_declared_subclass_may_move_change_and_leave_out_fields():
    @declared
    class Other(Clip):
        bins: int = field(whole(), default=1, help="another range")
        floor: float = same_as(Clip, "floor", default=0.25)
        kind: str = set_apart("counts")

    assert list(inspect.signature(Other).parameters) == ["clip_norm", "bins", "floor", "rounds"]
    other = Other(1, 0)
    assert (other.bins, other.floor, other.kind, other.seen) == (0, 0.25, "counts", [])
    with pytest.raises(TypeError, match="kind"):
        Other(1, kind="bits")


def test_a_field_is_described_in_a_line_with_its_unit_and_what_is_allowed():
    @declared
    class Described:
        share: float = field(number(above=0, below=1), default=0.5, unit="γ", help="not clipped")
        floor: float = field(number(above=0, at_most="share"), default=0.1, help="the smallest")
        lot: int | None = field(
            when(lambda part, value: value is not None, whole(at_least=1, at_most=9)),
            default=None,
            unit="records",
            help="cut",
        )
        kind: str | None = field(or_null(one_of(("bits", "counts"))), default="bits", help="kind")
        plain: int = field(fields.unchecked(""), default=1, help="this or {part.that}")
        that = "something else"

    assert [fields.describe(Described, one) for one in attrs.fields(Described)] == [
        "not clipped [γ] (number > 0 and < 1)",
        "the smallest (number > 0 and <= share)",
        "cut [records] (whole number >= 1 and <= 9 or null)",
        "kind (bits, counts or null)",
        "this or something else",
    ]


@pytest.mark.parametrize(
    "module",
    [
        "fedpriv.privacy.clippers",
        "fedpriv.privacy.noise_schedules",
        "fedpriv.data.partitions",
        "fedpriv.data.cifar10",
        "fedpriv.data.text_comments",
        "fedpriv.data.text_shakespeare",
        "fedpriv.algorithms",
        "fedpriv.attacks.backdoor",
    ],
)
def test_every_argument_of_a_part_says_in_a_line_what_it_is(module):
    kinds = [kind for kind in vars(importlib.import_module(module)).values() if attrs.has(kind)]
    assert kinds
    for kind in kinds:
        for one in attrs.fields(kind):
            if one.init:
                line = one.metadata["help"]
                assert line, f"{kind.__name__}.{one.alias}"
                assert not line.endswith("."), f"{kind.__name__}.{one.alias}: {line}"


def test_number_and_whole_are_checked_by_the_functions_of_checks():
    """One wording for arguments that are declared and for those that a function checks."""
    with pytest.raises(ArgumentError, match="x must be >= 0 and < 1, got 1"):
        fields.number(at_least=0, below=1)("x", 1, None)
    with pytest.raises(ArgumentError, match=r"x must be a whole number >= 0, got 1\.5"):
        fields.whole()("x", 1.5, None)
