"""A figure's keys: what they become, and the sentence for everything that is wrong in them."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import yaml

from fedpriv.common.config import compose
from fedpriv.common.errors import ConfigError
from fedpriv.study.figures.comparison import compare
from fedpriv.study.figures.reading import (
    compose_safely,
    key_label,
    plain_section,
    read_figure,
    read_numbers,
    read_own,
)
from fedpriv.study.figures.series import frame_of

OWN = {"x": {"epsilon": [1, 2]}, "metric": "accuracy"}


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


@pytest.fixture
def own(tmp_path):
    """(keys beside x and metric) → the figure of a file of the user's own."""

    def run(**keys: object):
        path = tmp_path / "fig.yaml"
        path.write_text(yaml.safe_dump({**OWN, **keys}))
        return read_own({"file": str(path)}, compose)

    return run


@pytest.fixture
def own_refused(own):
    """(keys) → the sentence with which the file is refused."""

    def run(**keys: object) -> str:
        with pytest.raises(ConfigError) as caught:
            own(**keys)
        assert "fig.yaml: " in str(caught.value)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return run


def test_the_curves_are_those_shown_in_their_order(read, tiny):
    tiny["show"]["digits"] = ["quiet", "loud"]
    assert [c.name for c in read(tiny).groups[0].curves] == ["quiet", "loud"]
    tiny["show"], tiny["stated"] = {"digits": ["quiet"]}, []
    assert [c.name for c in read(tiny).groups[0].curves] == ["quiet"]


def test_without_show_every_panel_has_every_curve(read, tiny):
    del tiny["show"]
    assert [c.name for c in read(tiny).groups[0].curves] == ["loud", "quiet"]


def test_whose_settings_the_runs_have_stands_in_the_comparison(read, tiny):
    own = read({**tiny, "whose": "ours: smaller models"})
    assert (
        compare(own, frame_of([]), {}, "", "")
        .splitlines()[2]
        .endswith("Scale: ours: smaller models.")
    )
    assert compare(read(tiny), frame_of([]), {}, "", "").splitlines()[2].endswith("Scale: paper.")


def test_base_comes_before_the_overrides_of_a_panel(read, tiny):
    (group,) = read({**tiny, "base": "model=mlp"}).groups
    assert group.overrides == ("model=mlp", *tiny["panels"]["digits"]["overrides"])


def test_the_seeds_of_the_figure_replace_those_of_the_panels(read, tiny):
    assert read({**tiny, "seeds": [7, 5]}).groups[0].seeds == (7, 5)


def test_the_quick_scale_has_seed_zero_and_a_folder_of_its_own(read, tiny):
    quick = read({**tiny, "scale": "quick"})
    assert (quick.groups[0].seeds, quick.folder) == ((0,), "own/tiny_quick")
    assert read({**tiny, "scale": "quick", "seeds": [3]}).groups[0].seeds == (3,)


def test_the_quick_scale_leaves_out_a_panel_with_all_that_is_stated_about_it(read, tiny):
    tiny["panels"]["more"] = {**tiny["panels"]["digits"], "quick": False}
    tiny["show"]["more"] = tiny["show"]["digits"]
    tiny["stated"].append({**tiny["stated"][0], "panel": "more"})
    quick = read({**tiny, "scale": "quick"})
    assert {group.name for group in quick.groups} == {"digits"}
    assert {stated.group for stated in quick.stated} == {"digits"}
    assert len(read(tiny).groups) == 2


def test_overrides_of_the_users_own_win_over_the_quick_scale(read, tiny):
    tiny |= {"scale": "quick", "quick": ["rounds=2", "evaluation_interval=1"]}
    changed = replace(read(tiny), changed=("rounds=3", "epsilon=1"))
    assert changed.altered == ("evaluation_interval=1", "rounds=3", "epsilon=1")
    assert changed.folder == "own/tiny_quick_changed"


def test_keys_of_a_metric_hold_for_all_metrics_where_they_stand_at_the_top(read, tiny):
    tiny |= {"x_limits": [0, 2], "band": "sd", "y_limits": [10, 90.5]}
    tiny["metric"] = {"accuracy": "test_accuracy", "norm": {"column": "clip_norm", "x": "epsilon"}}
    accuracy, norm = read(tiny).axes
    assert (accuracy.x_limits, accuracy.band) == ((0.0, 2.0), "sd")
    assert accuracy.y_limits == (10.0, 90.5)
    assert (norm.x, norm.x_limits, norm.band) == ("epsilon", None, "sd")


def test_choices_are_drawn_as_a_map(read, tiny):
    tiny["x"] = {"a": {"label": "A", "overrides": ["epsilon=1"]}, "b": {"overrides": ["epsilon=2"]}}
    tiny |= {
        "stated": [{"curve": "loud", "metric": "accuracy", "value": 80, "x": "A"}],
        "x_quick": ["b"],
    }
    figure = read(tiny)
    assert figure.axes[0].kind == "map"
    assert [figure.points.words(at) for at in figure.points.values] == ["A", "b"]
    assert read({**tiny, "scale": "quick"}).points.values == (1,)


WRONG_KEYS = [
    ("scale", "papr", "scale", "one of paper, quick"),
    ("draw_only", "yes", "draw_only", "true or false"),
    ("quick", "rounds", "quick", "overrides such as"),
    ("reuse", 3, "reuse", "folders"),
    ("seeds", [0, 0], "seeds", "at least one seed, all of them different"),
    ("seeds", [-1], "seeds", "a whole number >= 0"),
    ("seeds", "all", "seeds", "how many seeds (5), or a list"),
    ("panels", {}, "panels", "keys with their values"),
    ("panels.digits.title", 3, "panels.digits.title", "a text"),
    ("panels.digits.overrides", "dataset", "panels.digits.overrides", "overrides such as"),
    ("panels.digits.overrides", [3], "panels.digits.overrides", "a text"),
    ("panels.digits.seeds", [1, 1], "panels.digits.seeds", "different"),
    ("panels.digits.seed", 1, "panels.digits.seed", "did you mean seeds?"),
    ("curves", {}, "curves", "keys with their values"),
    ("curves.loud.label", 16, "curves.loud.label", "a text"),
    ("curves.loud.colour", "bleu", "curves.loud.colour", "one of blue, orange"),
    ("curves.loud.color", "blue", "curves.loud.color", "did you mean colour?"),
    ("curves.loud.minutes", {"digits": "3 min"}, "curves.loud.minutes.digits", "a number"),
    ("curves.loud.at", "no", "curves.loud.at", "one of all, once"),
    ("curves.loud.at", [1, "b"], "curves.loud.at", "numbers"),
    ("show", 3, "show", "a group of keys"),
    ("show.digit", ["loud"], "show.digit", "one of digits"),
    ("show.digits", "loud", "show.digits", "a list of names"),
    ("show.digits", ["loud", "loud"], "show.digits", "different"),
    ("show.digits", ["loud", "quite"], "show.digits", "did you mean quiet?"),
    ("metric", None, "metric", "given, such as metric: accuracy"),
    ("metric.accuracy", "acuracy", "metric.accuracy", "did you mean accuracy?"),
    ("metric", ["loss", "loss"], "metric", "different"),
    ("metric", "membership_auc", "metric", "one of accuracy, loss, round"),
    ("metric.accuracy", {"lable": "x"}, "metric.accuracy.lable", "one of column, x, x_label"),
    ("kind", "client", "kind", "one of lines, clients"),
    ("kind", "clients", "metric.accuracy", "one of round, gradient_norm"),
    ("kind", "map", "kind", "one of lines, clients"),
    ("x", None, "x", "a key with its values ({epsilon: [1, 2]}), or one of"),
    ("x", "epsilom", "x", "did you mean epsilon?"),
    ("x", {"epsilon": []}, "x.epsilon", "at least one number"),
    ("x", {"epsilon": [1, 1]}, "x.epsilon", "different"),
    ("x", {"clipper": ["adap"]}, "x.clipper", "options and texts belong under curves or panels"),
    ("x", {"seed": [1, 2]}, "x", "the figure has seeds: [0, 1, 2]"),
    ("x", {"epsilon": [1], "rounds": [2]}, "x", "a key with its values"),
    ("x_limits", [2, 0], "x_limits", "from < to"),
    ("x_limits", 2, "x_limits", "[from, to]"),
    ("x_limits", [0, "two"], "x_limits", "a number"),
    ("x_label", 3, "x_label", "a text"),
    ("x_scale", "ln", "x_scale", "one of linear, log"),
    ("vacuous_above", 3, "vacuous_above", "one of work, title"),
    ("y_limits", {"digits": [0, 1]}, "y_limits", "[from, to]"),
    ("band", "se", "band", "one of t, range, sd"),
    ("stated", 80, "stated", "a list"),
    ("stated", [80], "stated.0", "a group of keys"),
    ("stated.0.panel", "mnist", "stated.0.panel", "one of digits"),
    ("stated.0.curve", "lowd", "stated.0.curve", "out of loud, quiet"),
    ("stated.0.metric", "clip_norm", "stated.0.metric", "one of accuracy, loss, test_accuracy"),
    ("stated.0.value", "80 %", "stated.0.value", "a number"),
    ("stated.0.x", 3, "stated.0.x", "absent"),
    ("stated.0.valu", 3, "stated.0.valu", "did you mean value?"),
    ("orderings", [{"metric": "loss", "curves": ["lowd"]}], "orderings.0.curves", "mean loud?"),
    ("deviations", "many", "deviations", "a group of keys"),
    ("titel", "x", "titel", "did you mean title?"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "key", "allowed"), WRONG_KEYS)
def test_a_wrong_value_is_refused_with_its_key_and_what_is_allowed(
    path, value, key, allowed, refused
):
    sentence = refused(path, value)
    assert sentence.startswith(f"figure.{key} must be ")
    assert allowed in sentence


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("metric.loss.x", "round", "figure.metric.loss.x must be a key with its values"),
        ("metric.loss.kind", "heat", "figure.metric.loss.kind must be one of lines, map"),
        ("metric.map.best", "least", "figure.metric.map.best must be one of low, high"),
        ("x_quick", 1, "figure.x_quick must be a list of numbers"),
        ("curves.t1.at", [0.5, 1], "figure.curves.t1.at must be all, once, or some of 0.1, 0.5, 2"),
        ("stated.0.x", None, "figure.stated.0.x must be a number"),
        ("stated.0.curve", "reference", "figure.stated.0.x must be absent"),
        ("orderings.0.x", "all", "figure.orderings.0.x must be a number"),
    ],
)
def test_what_does_not_fit_a_figure_over_values_is_refused(
    path, value, words, read, tiny_over_points
):
    put(tiny_over_points, path, value)
    with pytest.raises(ConfigError) as caught:
        read(tiny_over_points)
    assert str(caught.value).startswith(words)


def test_what_is_wrong_on_the_command_line_is_refused(make):
    said = make("figure.seds=[0]")
    assert (said.status, "figure.seeds" in said.sentence) == (2, True)
    said = make("figure.scale=papr")
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


@pytest.mark.parametrize(
    "name", ["adap_dpfl/fig4", "naseri/membership", "wei/fig7", "robust/landscape", "pfl/cifar10"]
)
def test_whatever_is_written_anywhere_is_read_or_refused_in_one_line(name):
    whole = plain_section(compose_safely([f"+figure={name}"]).figure)
    draw = random.Random(name)
    for place in draw.sample(sorted(places(whole), key=str), 120):
        for value in draw.sample(WRONG, 3):
            values = copy.deepcopy(whole)
            node = values
            for key in place[:-1]:
                node = node[key]
            node[place[-1]] = value
            try:
                assert read_figure(values, name).groups
            except ConfigError as error:
                sentence = str(error)
                assert sentence.startswith("figure.")
                assert "\n" not in sentence
                assert len(sentence) < 2000


def test_curves_are_all_combinations_of_values(own):
    curves = own(curves={"algorithm": ["dp_fl", "fedavg"], "clipper.alpha": [0.1]}).groups[0].curves
    assert [c.label for c in curves] == ["dp_fl, alpha = 0.1", "fedavg, alpha = 0.1"]
    assert curves[0].overrides == ("algorithm=dp_fl", "clipper.alpha=0.1")


def test_curves_of_a_file_are_overrides_or_keys(own):
    keys = {"colour": "red", "overrides": "algorithm=adap_dpfl", "at": [1]}
    ours, theirs = own(curves={"Ours": "rounds=3", "Theirs": keys}).groups[0].curves
    assert (ours.label, ours.colour, ours.overrides) == ("Ours", "blue", ("rounds=3",))
    assert (theirs.label, theirs.colour, theirs.points) == ("Theirs", "red", (1,))


def test_the_x_of_a_file_is_in_order_and_may_be_a_column(own):
    assert own(x={"epsilon": [4, 1, 2.5]}).points.values == (1, 2.5, 4)
    assert own(x="round").axes[0].x == "round"


def test_a_title_is_made_of_the_axes_unless_it_is_given(own):
    assert own().title == "test accuracy (%) over ε asked for"
    assert own(title="").title == ""


def test_seeds_are_a_number_or_a_list(own):
    assert own(seeds=3).groups[0].seeds == (0, 1, 2)
    assert own(seeds=[7, 5]).groups[0].seeds == (7, 5)


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("epsilon", "ε asked for"),
        ("noise_schedule.noise_multiplier", "σ (noise multiplier)"),
        ("algorithm.learning_rate", "learning rate"),
    ],
)
def test_an_axis_over_a_key_is_named_in_words(key, label):
    assert key_label(key) == label


def test_a_csv_is_read_by_its_columns(tmp_path):
    (tmp_path / "b.csv").write_text("low,y,x,high\n40,50,2,60\n30,40,1,50\n")
    found = read_numbers("csv", tmp_path / "b.csv")
    assert found == [
        {"x": 1, "y": 40, "low": 30, "high": 50},
        {"x": 2, "y": 50, "low": 40, "high": 60},
    ]


def test_a_csv_with_seeds_is_averaged(own, tmp_path):
    (tmp_path / "b.csv").write_text("x,seed,y\n1,0,40\n1,1,50\n1,2,60\n")
    (mark,) = own(baselines=[{"label": "b", "csv": "b.csv"}]).marks
    assert mark.value == pytest.approx(50)
    assert mark.low < 50 < mark.high
    assert mark.source == "b.csv"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("base", "dataset", ("base", "overrides", "dataset")),
        ("base", "seed=3", ("base", "seed=3", "seeds:")),
        ("base", "epsilon=2", ("base", "epsilon", "without the key of x")),
        ("base", "hydra/launcher=ray", ("base", "hydra/launcher=ray", "fedpriv figure FILE")),
        ("base", "dataset='digits", ("base", "overrides")),
        ("curves", {"algorithm": []}, ("curves.algorithm", "at least one value")),
        ("curves", {"algorithm": ["a"], "rounds": "3"}, ("curves.rounds", "a list, as its")),
        ("curves", ["dp_fl"], ("curves", "keys with their values")),
        ("curves", {"algorithm": ["a", "a"]}, ("curves.algorithm", "different")),
        ("name", "../up", ("name", "../up")),
        ("baselines", {"label": "a"}, ("baselines", "a list")),
        ("baselines", [{"label": "a"}], ("baselines.0", "run, csv and value")),
        ("baselines", [{"label": "a", "value": 3, "colour": 1}], ("baselines.0.colour",)),
        ("baselines", [{"value": 3}], ("baselines.0.label", "a text")),
        ("baselines", [{"label": "a", "value": "x"}], ("baselines.0.value", "a number")),
        ("baselines", [{"label": "a", "value": 0.9}], ("baselines.0.value", "percent", "0.9")),
        ("baselines", [{"label": "a", "value": 550}], ("baselines.0.value", "from 0 to 100")),
        ("baselines", [{"label": "a", "value": 9, "as": "bar"}], ("baselines.0.as", "line, points")),
        ("baselines", [{"label": "a", "value": 9, "as": "points"}], ("baselines.0.x", "given")),
        ("baselines", [{"label": "a", "csv": "no.csv"}], ("baselines.0.csv", "no.csv", "existing")),
        ("baselines", [{"label": "a", "value": 9, "panel": "p"}], ("baselines.0.panel", "p")),
        ("baselines", [{"label": "a", "value": 9, "metric": "loss"}], ("baselines.0.metric",)),
        ("baselines", [{"label": "runs", "value": 9}], ("baselines.0.label", "no curve")),
        ("baselines", [{"label": "a", "run": "rounds=2", "x": 3}], ("baselines.0.x", "one of label, run")),
        ("baselines", [{"label": "a", "run": "algorithm=fedavg", "as": "points"}], ("line",)),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_is_one_sentence_with_file_and_key(key, value, words, own_refused):
    sentence = own_refused(**{key: value})
    for word in words:
        assert word in sentence


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("nothing and no row", "columns x and y")),
        ("x,y\n", ("no row",)),
        ("epsilon,accuracy\n1,50\n", ("epsilon, accuracy", "columns x and y")),
        ("x,y,low\n1,50,40\n", ("x, y, low",)),
        ("x,y\n1,fifty\n", ("fifty", "line 2", "column y")),
        ("x,y\n1\n", ("nothing", "line 2", "column y")),
        ("x,y\n1,0.5\n2,0.6\n", ("0.6", "percent")),
    ],
)
def test_wrong_columns_and_cells_of_a_csv_are_refused(text, words, own_refused, tmp_path):
    (tmp_path / "b.csv").write_text(text)
    sentence = own_refused(baselines=[{"label": "b", "csv": "b.csv"}])
    for word in ("baselines.0.csv", *words):
        assert word in sentence


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no file .*no\.yaml"):
        read_own({"file": str(tmp_path / "no.yaml")}, compose)


def test_numbers_of_a_logarithmic_axis_are_above_zero(own_refused):
    assert "x.epsilon" in own_refused(x={"epsilon": [0, 1]}, x_scale="log")
    baseline = {"label": "b", "value": 10, "x": 0}
    assert "baselines.0.x" in own_refused(x_scale="log", baselines=[baseline])


@pytest.fixture
def mine(tmp_path):
    """(text) → the folder with it as the figure own/tiny, and a work of the user's own."""

    def write(text: str):
        for path, content in (
            ("figure/own/tiny.yaml", text),
            ("work/ours.yaml", "# @package figure\ndefaults:\n  - base\n  - _self_\nnotes: ours\n"),
        ):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(content)
        return tmp_path

    return write


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "figure: [",
        "figure: {a: 1, a: 2}",
        "- a",
        "\t",
        "figure: 3",
        "defaults: 3",
    ],
)
@pytest.mark.parametrize("flag", ["--list", "--draw"])
def test_a_yaml_that_is_no_figure_is_refused_in_a_sentence(flag, text, mine, command):
    mine(f"# @package _global_\n{text}")
    said = command("figure", "own/tiny", flag, "--config-dir", ".")
    assert said.status == 2
    assert "figure" in said.sentence
