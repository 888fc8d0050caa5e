"""A figure's YAML: what it becomes, and the sentence for everything that is wrong in it."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.study.figures.loading import load_section
from fedpriv.study.figures.reading import read_figure


def put(values: dict, path: str, value: object) -> None:
    """``put(values, "stated.0.curve", …)``."""
    *way, last = path.split(".")
    node = values
    for name in way:
        node = node[int(name)] if isinstance(node, list) else node.setdefault(name, {})
    node[int(last) if isinstance(node, list) else last] = value


@pytest.fixture
def refused(read, tiny):
    """(path, value) → the sentence with which the figure is refused."""

    def run(path: str, value: object) -> str:
        put(tiny, path, value)
        with pytest.raises(ConfigError) as caught:
            read(tiny)
        return str(caught.value)

    return run


def test_the_curves_are_those_shown_in_their_order(read, tiny):
    tiny["show"]["digits"] = ["quiet", "loud"]
    assert [c.name for c in read(tiny).groups[0].curves] == ["quiet", "loud"]


def test_a_curve_that_is_not_shown_is_not_there(read, tiny):
    tiny["show"]["digits"] = ["quiet"]
    tiny["stated"] = []
    assert [c.name for c in read(tiny).groups[0].curves] == ["quiet"]


def test_the_seeds_of_the_figure_replace_those_of_the_groups(read, tiny):
    assert read({**tiny, "seeds": [7, 5]}).groups[0].seeds == (7, 5)


def test_the_quick_scale_has_seed_zero_only(read, tiny):
    assert read({**tiny, "scale": "quick"}).groups[0].seeds == (0,)


def test_the_quick_scale_shows_a_group_under_its_title_there(read, tiny):
    tiny["groups"]["digits"]["quick"] = "other data"
    assert read({**tiny, "scale": "quick"}).groups[0].title == "other data"
    assert read(tiny).groups[0].title == tiny["groups"]["digits"]["title"]


def test_the_quick_scale_leaves_out_a_group_with_all_that_is_stated_about_it(read, tiny):
    tiny["groups"]["more"] = {**tiny["groups"]["digits"], "quick": False}
    tiny["show"]["more"] = tiny["show"]["digits"]
    tiny["stated"].append({**tiny["stated"][0], "group": "more"})
    quick = read({**tiny, "scale": "quick"})
    assert {group.name for group in quick.groups} == {"digits"}
    assert {stated.group for stated in quick.stated} == {"digits"}
    assert len(read(tiny).groups) == 2


def test_a_group_alone_stays_at_the_quick_scale(read, tiny):
    tiny["groups"]["digits"]["quick"] = False
    assert len(read({**tiny, "scale": "quick"}).groups) == 1


def test_a_quick_title_is_a_text(refused, tiny):
    tiny["scale"] = "quick"
    assert "figure.groups.digits.quick" in refused("groups.digits.quick", 3)


def test_the_quick_scale_with_seeds_has_those(read, tiny):
    assert read({**tiny, "scale": "quick", "seeds": [3]}).groups[0].seeds == (3,)


def test_the_quick_scale_goes_to_a_folder_of_its_own(read, tiny):
    assert read(tiny).folder == "own/tiny"
    assert read({**tiny, "scale": "quick"}).folder == "own/tiny_quick"


def test_a_deviation_without_words_is_none(read, tiny):
    tiny["deviations"] = {"one": "differs", "two": ""}
    assert read(tiny).deviations == {"one": "differs"}


def test_overrides_of_the_users_own_win_over_the_quick_scale(read, tiny):
    tiny |= {"scale": "quick", "quick": ["rounds=2", "evaluation_interval=1"]}
    changed = replace(read(tiny), changed=("rounds=3", "epsilon=1"))
    assert changed.altered == ("evaluation_interval=1", "rounds=3", "epsilon=1")
    assert changed.folder == "own/tiny_quick_changed"


def test_limits_become_pairs_of_numbers(read, tiny):
    tiny["axes"]["accuracy"] |= {"x_limits": [0, 2], "y_limits": {"digits": [10, 90.5]}}
    (axes,) = read(tiny).axes
    assert axes.x_limits == (0.0, 2.0)
    assert axes.y_limits == {"digits": (10.0, 90.5)}


@pytest.mark.parametrize(
    ("path", "value", "key", "allowed"),
    [
        ("work", None, "figure.work", "a text"),
        ("title", "  ", "figure.title", "a text"),
        ("scale", "papr", "figure.scale", "one of paper, quick"),
        ("draw_only", "yes", "figure.draw_only", "true or false"),
        ("quick", "rounds=2", "figure.quick", "a list"),
        ("reuse", "runs", "figure.reuse", "a list"),
        ("seeds", [0, 0], "figure.seeds", "different"),
        ("seeds", [], "figure.seeds", "one seed or several"),
        ("seeds", [-1], "figure.seeds", "a whole number >= 0"),
        ("seeds", 3, "figure.seeds", "a list of seeds"),
        ("groups", {}, "figure.groups", "a group of keys"),
        ("groups.digits", None, "figure.groups.digits", "a group of keys"),
        ("groups.digits.title", 3, "figure.groups.digits.title", "a text"),
        ("groups.digits.overrides", "epsilon=2", "figure.groups.digits.overrides", "a list"),
        ("groups.digits.overrides", [3], "figure.groups.digits.overrides", "a text"),
        ("groups.digits.seeds", [1, 1], "figure.groups.digits.seeds", "different"),
        ("groups.digits.seeds", [], "figure.groups.digits.seeds", "one seed or several"),
        ("groups.digits.seeds", None, "figure.groups.digits.seeds", "a list of seeds"),
        ("groups.digits.seeds", "0,1", "figure.groups.digits.seeds", "a list of seeds"),
        ("groups.digits.seeds", [0.5], "figure.groups.digits.seeds", "a whole number"),
        ("curves", {}, "figure.curves", "a group of keys"),
        ("curves.loud", "blue", "figure.curves.loud", "a group of keys"),
        ("curves.loud.label", None, "figure.curves.loud.label", "given"),
        ("curves.loud.label", 16, "figure.curves.loud.label", "a text"),
        ("curves.loud.colour", "bleu", "figure.curves.loud.colour", "one of blue, orange"),
        ("curves.loud.colour", "#0072B2", "figure.curves.loud.colour", "one of blue, orange"),
        ("curves.loud.overrides", "algorithm=dp_fl", "figure.curves.loud.overrides", "a list"),
        ("curves.loud.overrides", [""], "figure.curves.loud.overrides", "a text"),
        ("curves.loud.minutes", 3, "figure.curves.loud.minutes", ""),
        ("curves.loud.minutes", {"digits": "3 min"}, "figure.curves.loud.minutes", ""),
        ("show", None, "figure.show", "a group of keys"),
        ("show.digit", ["loud"], "figure.show.digit", "one of the groups digits"),
        ("show.digits", "loud", "figure.show.digits", "a list of curves"),
        ("show.digits", [], "figure.show.digits", ""),
        ("show.digits", ["loud", "loud"], "figure.show.digits", ""),
        ("axes", {}, "figure.axes", "a group of keys"),
        ("axes.accuracy.x", "epsilom", "figure.axes.accuracy.x", "one of round, epsilon"),
        ("axes.accuracy.x", None, "figure.axes.accuracy.x", "given"),
        ("axes.accuracy.y", "accuracy", "figure.axes.accuracy.y", "one of round, epsilon"),
        ("axes.accuracy.lines", "client", "figure.axes.accuracy.lines", "one of curves, clients"),
        ("axes.accuracy.lines", "clients", "figure.axes.accuracy.y", "one of round, gradient_norm"),
        ("axes.accuracy.x_limits", [2, 0], "figure.axes.accuracy.x_limits", "from < to"),
        ("axes.accuracy.x_limits", [1, 1], "figure.axes.accuracy.x_limits", "from < to"),
        ("axes.accuracy.x_limits", [0], "figure.axes.accuracy.x_limits", "from < to"),
        ("axes.accuracy.x_limits", 2, "figure.axes.accuracy.x_limits", "[from, to]"),
        ("axes.accuracy.x_limits", [0, "two"], "figure.axes.accuracy.x_limits", "a number"),
        ("axes.accuracy.x_limits", [0, math.inf], "figure.axes.accuracy.x_limits", "finite"),
        ("axes.accuracy.x_label", 3, "figure.axes.accuracy.x_label", "a text"),
        ("axes.accuracy.y_limits", [0, 1], "figure.axes.accuracy.y_limits", ""),
        ("axes.accuracy.y_limits", {"digits": [1, 0]}, "figure.axes.accuracy.y_limits.digits", "<"),
        ("axes.accuracy.y_limits", {"digit": [0, 1]}, "figure.axes.accuracy.y_limits", "digits"),
        ("axes.accuracy.y_scale", "ln", "figure.axes.accuracy.y_scale", "one of linear, log"),
        ("stated", 80, "figure.stated", "a list"),
        ("stated", [80], "figure.stated.0", "a group of keys"),
        ("stated.0.group", "mnist", "figure.stated.0.group", "one of digits"),
        ("stated.0.curve", "lowd", "figure.stated.0.curve", "one of loud, quiet"),
        ("stated.0.column", "accuracy", "figure.stated.0.column", "one of test_accuracy"),
        ("stated.0.value", "80 %", "figure.stated.0.value", "a number"),
        ("stated.0.value", None, "figure.stated.0.value", "given"),
        ("deviations", "many", "figure.deviations", ""),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_its_key_and_what_is_allowed(
    path, value, key, allowed, refused
):
    sentence = refused(path, value)
    assert key in sentence
    assert allowed in sentence


@pytest.mark.parametrize("value", ["bleu", "Blue", 3])
def test_the_sentence_repeats_the_value(value, refused):
    assert refused("curves.loud.colour", value).endswith(f"got {value}")


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("titel", "title"),
        ("stated_", "stated"),
        ("groups.digits.seed", "seeds"),
        ("groups.digits.override", "overrides"),
        ("curves.loud.color", "colour"),
        ("curves.loud.minuts", "minutes"),
        ("axes.accuracy.x_limit", "x_limits"),
        ("stated.0.valu", "value"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(path, nearest, refused):
    sentence = refused(path, "something")
    assert f"unknown key figure.{path}" in sentence
    assert f"did you mean {nearest}?" in sentence


@pytest.mark.parametrize("path", ["curves.loud.name", "axes.accuracy.name"])
def test_a_name_is_not_given_twice(path, refused):
    assert f"unknown key figure.{path}" in refused(path, "other")


def test_an_unknown_curve_is_refused_with_the_nearest_one(refused):
    sentence = refused("show.digits", ["loud", "quite"])
    assert sentence.startswith("figure.show.digits: no curve quite; did you mean quiet?")
    assert "known: loud, quiet" in sentence


def test_a_number_stated_of_a_curve_that_is_not_shown_is_refused(refused):
    sentence = refused("show.digits", ["quiet"])
    assert sentence == "figure.stated.0.curve must be one of quiet, got loud"


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("group", "mnist", "figure.orderings.0.group must be one of digits, got mnist"),
        ("column", "loss", "figure.orderings.0.column must be one of test_accuracy"),
        ("curves", ["lowd"], "figure.orderings.0.curves: no curve shown lowd; did you mean loud?"),
        ("curves", "loud", "figure.orderings.0.curves must be a list of curve"),
        ("curve", ["loud"], "unknown key figure.orderings.0.curve; did you mean curves?"),
    ],
)
def test_a_wrong_ordering_is_refused(path, value, words, tiny, refused):
    tiny["orderings"] = [
        {"group": "digits", "column": "test_accuracy", "curves": ["quiet", "loud"]}
    ]
    assert words in refused(f"orderings.0.{path}", value)


def test_an_unknown_key_on_the_command_line_is_refused_with_the_nearest_one(make):
    said = make("figure.seds=[0]")
    assert said.status == 2
    assert "figure.seds" in said.sentence
    assert "figure.seeds" in said.sentence


def test_a_wrong_value_on_the_command_line_is_refused(make):
    said = make("figure.scale=papr")
    assert said.status == 2
    assert said.sentence == "fedpriv: figure.scale must be one of paper, quick, got papr"


WRONG = (
    None, "", " ", "x", "seed=1", "é\n\nü", "x" * 5000, 0, -1, 0.5, 1e300, math.nan, math.inf, True,
    [], {}, [[]], [{}], [None], [1, "a"], ["a", "a"], list(range(999)), {"a": 1}, {1: 2}, {None: 1},
)  # fmt: skip


def places(node: dict | list, above: tuple = ()) -> Iterator[tuple]:
    """Where every value of nested keys and lists is."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from places(value, (*above, key))


@pytest.mark.parametrize("name", ["adap_dpfl/fig4", "naseri/membership", "wei/fig7"])
def test_whatever_is_written_anywhere_is_read_or_refused_in_one_line(name):
    whole = load_section(name)
    draw = random.Random(name)
    for place in draw.sample(sorted(places(whole), key=str), 120):
        for value in draw.sample(WRONG, 3):
            values = copy.deepcopy(whole)
            node = values
            for key in place[:-1]:
                node = node[key]
            node[place[-1]] = value
            try:
                assert read_figure(values, name).run_count
            except ConfigError as error:
                sentence = str(error)
                assert sentence.startswith(("figure", "unknown key figure"))
                assert "\n" not in sentence
                assert len(sentence) < 2000
