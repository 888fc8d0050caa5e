"""A figure's own file: what it says, and the sentence for everything that is wrong in it."""

from __future__ import annotations

import pytest
import yaml

from fedpriv.common.errors import ConfigError
from fedpriv.study.figures.figure_file import read_figure_file
from fedpriv.study.figures.figure_keys import Values, key_label
from fedpriv.study.figures.stated_points import StatedPoint

FILE = {"x": {"epsilon": [1, 2]}, "metric": "accuracy"}


@pytest.fixture
def read(tmp_path):
    """(keys beside x and metric) → the content of the file."""

    def run(**keys: object):
        path = tmp_path / "fig.yaml"
        path.write_text(yaml.safe_dump({**FILE, **keys}))
        return read_figure_file(path)

    return run


@pytest.fixture
def refused(read):
    """(keys) → the sentence with which the file is refused."""

    def run(**keys: object) -> str:
        with pytest.raises(ConfigError) as caught:
            read(**keys)
        assert "fig.yaml" in str(caught.value)
        return str(caught.value)

    return run


def baseline_of(read, text: str, tmp_path, **more):
    (tmp_path / "b.csv").write_text(text)
    return read(baselines=[{"label": "b", "csv": "b.csv", **more}]).baselines[0]


def test_a_metric_may_be_named_in_short(read):
    assert read(metric=["accuracy", "loss"]).metric == ("test_accuracy", "test_loss")


def test_the_x_axis_is_a_key_with_its_values_in_order(read):
    assert read(x={"epsilon": [4, 1, 2.5]}).x == Values("epsilon", (1, 2.5, 4))


def test_the_x_axis_may_be_a_column(read):
    assert read(x="round").x == "round"


def test_curves_are_all_combinations_of_values(read):
    curves = read(curves={"algorithm": ["dp_fl", "fedavg"], "clipper.alpha": [0.1]}).curves
    assert [c.overrides for c in curves] == [
        ("algorithm=dp_fl", "clipper.alpha=0.1"),
        ("algorithm=fedavg", "clipper.alpha=0.1"),
    ]
    assert curves[0].label == "dp_fl, alpha = 0.1"


def test_curves_may_have_labels_of_their_own(read):
    (curve,) = read(curves={"Ours": "algorithm=dp_fl rounds=3"}).curves
    assert (curve.label, curve.overrides) == ("Ours", ("algorithm=dp_fl", "rounds=3"))


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


def test_an_empty_title_is_none_at_all(read):
    assert read(title="").title_words == ""


def test_seeds_are_a_number_or_a_list(read):
    assert read(seeds=3).seeds == (0, 1, 2)
    assert read(seeds=[7, 5]).seeds == (7, 5)


def test_a_csv_is_read_by_its_columns(read, tmp_path):
    numbers = baseline_of(read, "low,y,x,high\n40,50,2,60\n30,40,1,50\n", tmp_path).numbers
    assert numbers == (StatedPoint(1, 40, 30, 50), StatedPoint(2, 50, 40, 60))


def test_a_csv_with_seeds_is_averaged(read, tmp_path):
    baseline = baseline_of(read, "x,seed,y\n1,0,40\n1,1,50\n1,2,60\n", tmp_path)
    (number,) = baseline.numbers
    assert number.y == pytest.approx(50)
    assert number.low < 50 < number.high
    assert baseline.source == "b.csv"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("metrik", "loss", ("metrik", "did you mean metric?")),
        ("metric", "acuracy", ("metric", "acuracy", "did you mean accuracy?")),
        ("metric", None, ("metric", "given")),
        ("metric", ["loss", "loss"], ("metric", "different")),
        ("x", None, ("x must be", "epsilon")),
        ("x", {"epsilon": []}, ("x.epsilon", "at least one number")),
        ("x", {"clipper": ["adap", "constant"]}, ("x.clipper", "adap", "curves or panels")),
        ("x", {"epsilon": [1, 1]}, ("x.epsilon", "different")),
        ("x", {"seed": [1, 2]}, ("x", "seed", "seeds: 5")),
        ("x", "rounds", ("x must be", "did you mean round?")),
        ("base", "dataset", ("base", "overrides", "dataset")),
        ("base", "seed=3", ("base", "seed=3", "seeds:")),
        ("base", "epsilon=2", ("base", "epsilon", "x")),
        ("base", "hydra/launcher=ray", ("base", "hydra/launcher=ray", "fedpriv figure FILE")),
        ("base", "dataset='digits", ("base", "overrides")),
        ("curves", {"algorithm": []}, ("curves.algorithm", "at least one value")),
        ("curves", {"algorithm": ["a"], "rounds": "3"}, ("curves.rounds", "a list of values")),
        ("curves", ["dp_fl"], ("curves", "keys with their values")),
        ("curves", {"algorithm": ["a", "a"]}, ("curves.algorithm", "different values")),
        ("seeds", 0, ("seeds", "how many")),
        ("seeds", [1, 1], ("seeds", "different")),
        ("x_scale", "ln", ("x_scale", "linear, log", "ln")),
        ("name", "../up", ("name", "../up")),
        ("baselines", {"label": "a"}, ("baselines", "a list")),
        ("baselines", [{"label": "a"}], ("baselines.0", "run, csv and value")),
        ("baselines", [{"label": "a", "value": 3, "colour": 1}], ("baselines.0", "colour")),
        ("baselines", [{"value": 3}], ("baselines.0.label", "a text")),
        ("baselines", [{"label": "a", "value": "x"}], ("baselines.0.value", "a number")),
        ("baselines", [{"label": "a", "value": 0.9}], ("baselines.0.value", "percent", "0.9")),
        ("baselines", [{"label": "a", "value": 9, "as": "bar"}], ("baselines.0.as", "line, points")),
        ("baselines", [{"label": "a", "value": 9, "as": "points"}], ("baselines.0.x", "given")),
        ("baselines", [{"label": "a", "csv": "no.csv"}], ("baselines.0.csv", "no.csv", "existing")),
        ("baselines", [{"label": "a", "value": 9, "panel": "p"}], ("baselines.0.panel", "p")),
        (
            "baselines",
            [{"label": "a", "value": 9, "metric": "loss"}],
            ("baselines.0.metric", "a metric of the figure"),
        ),
        (
            "baselines",
            [{"label": "a", "value": 9}, {"label": "a", "value": 8}],
            ("baselines", "labels"),
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_with_file_and_key(key, value, words, refused):
    sentence = refused(**{key: value})
    for word in words:
        assert word in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("nothing and no row", "columns x and y")),
        ("x,y\n", ("no row",)),
        ("epsilon,accuracy\n1,50\n", ("epsilon, accuracy", "columns x and y")),
        ("x,y,low\n1,50,40\n", ("x, y, low",)),
        ("x,y\n1,fifty\n", ("fifty", "line 2", "column y")),
        ("x,y\n1\n", ("nothing", "line 2", "column y")),
        ("x,y\n1,50\n1,60\n", ("1 2 times", "seed")),
        ("x,seed,y\n1,0,50\n1,0,60\n", ("1 twice", "seed")),
        ("x,y,low,high\n1,50,60,70\n", ("60, 50, 70", "low <= y <= high")),
        ("x,y\n1,0.5\n2,0.6\n", ("0.6", "percent")),
    ],
)
def test_wrong_columns_and_cells_of_a_csv_are_refused(text, words, refused, tmp_path):
    (tmp_path / "b.csv").write_text(text)
    sentence = refused(baselines=[{"label": "b", "csv": "b.csv"}])
    for word in ("baselines.0.csv", *words):
        assert word in sentence


@pytest.mark.parametrize("text", ["- a\n- b\n", "words", "3", "", "x: [1\n", "x: 1\nx: 2\n"])
def test_a_file_that_is_no_group_of_keys_is_refused(text, tmp_path):
    path = tmp_path / "fig.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"fig\.yaml"):
        read_figure_file(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no file .*no\.yaml"):
        read_figure_file(tmp_path / "no.yaml")


def test_numbers_of_a_logarithmic_axis_are_above_zero(refused):
    assert "x.epsilon" in refused(x={"epsilon": [0, 1]}, x_scale="log")
    baseline = {"label": "b", "value": 10, "x": 0}
    assert "baselines.0.value" in refused(x_scale="log", baselines=[baseline])


def test_a_baseline_is_no_more_than_the_whole(read, refused, tmp_path):
    assert "from 0 to 100" in refused(baselines=[{"label": "b", "value": 550}])
    (tmp_path / "b.csv").write_text("x,y\n1,550\n")
    assert "baselines.0.csv" in refused(baselines=[{"label": "b", "csv": "b.csv"}])
