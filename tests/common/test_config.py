"""How configurations compose: options, protocols of a data set, who wins, run identity."""

from __future__ import annotations

import shlex

import hydra
import hypothesis
import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import assume, given
from hypothesis import strategies as st

import fedpriv
from fedpriv.common.config import (
    GONE,
    GROUPS,
    as_tree,
    fingerprint,
    flatten,
    identity,
    identity_of_values,
    options,
)
from fedpriv.common.errors import ConfigError
from fedpriv.common.option_keys import keys_of_option
from fedpriv.experiment.build import build_parts

ORDERS_OF_THE_PAPER = tuple(float(order) for order in range(2, 65))


def parts_of(*overrides: str):
    return build_parts(fedpriv.compose(overrides))


@pytest.mark.parametrize("group", GROUPS)
def test_every_option_says_in_a_line_what_it_is(group):
    assert all(words for _, words in options(group))


@pytest.mark.few(3)
@pytest.mark.parametrize("algorithm", ["adap_dpfl", "dp_fl", "fedavg"])
@pytest.mark.parametrize("dataset", ["digits", "mnist", "fashion_mnist", "cifar10", "adult"])
def test_every_algorithm_composes_with_every_data_set(algorithm, dataset):
    parts = parts_of(f"algorithm={algorithm}", f"dataset={dataset}")
    assert (parts.algorithm.name, parts.dataset.name) == (algorithm, dataset)


def test_mnist_brings_the_numbers_of_the_paper():
    parts = parts_of("dataset=mnist")
    assert (parts.partition.clients, parts.partition.shards) == (10, 400)
    assert type(parts.model).__name__ == "Cnn"
    assert parts.algorithm.sample_rate == 0.013
    assert (parts.algorithm.optimizer, parts.algorithm.learning_rate) == ("adam", 0.002)
    assert (parts.noise_schedule.initial, parts.noise_schedule.beta) == (6.0, 0.9999)
    assert parts.clipper.alpha == 1.0
    assert parts.accountant.orders == ORDERS_OF_THE_PAPER
    assert parts.accountant.conversion == "classical"


def test_fashion_mnist_brings_the_numbers_of_the_paper():
    parts = parts_of("dataset=fashion_mnist")
    assert parts.algorithm.learning_rate == 0.001
    assert (parts.noise_schedule.initial, parts.noise_schedule.beta) == (4.0, 0.9998)
    assert parts.clipper.alpha == 0.01
    assert parts.accountant.orders == ORDERS_OF_THE_PAPER
    assert parts.accountant.conversion == "classical"


def test_the_baseline_on_mnist_has_the_noise_of_the_command_line():
    parts = parts_of("algorithm=dp_fl", "dataset=mnist", "noise_schedule.noise_multiplier=3")
    assert type(parts.clipper).__name__ == "ConstantClipper"
    assert parts.clipper.initial == 1.0
    assert parts.noise_schedule.noise_multiplier(0) == 3.0


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("choice", "default"),
    [
        ("partition=iid", "dataset=mnist"),
        ("model=logistic", "dataset=mnist"),
        ("clipper=constant", "algorithm=adap_dpfl"),
        ("noise_schedule=exponential", "algorithm=adap_dpfl"),
        ("clipper=automatic", "algorithm=dp_fl"),
    ],
)
def test_an_option_of_the_command_line_beats_the_one_of_data_set_or_algorithm(choice, default):
    group = choice.partition("=")[0]
    alone = fedpriv.compose([choice])[group]["_target_"]
    assert fedpriv.compose([choice, default])[group]["_target_"] == alone
    assert fedpriv.compose([default, choice])[group]["_target_"] == alone


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("algorithm.sample_rate", 0.5),
        ("algorithm.learning_rate", 0.25),
        ("noise_schedule.noise_multiplier", 2.5),
        ("clipper.alpha", 0.75),
        ("epsilon", 5.0),
        ("evaluation_interval", 3),
    ],
)
def test_a_value_of_the_command_line_beats_the_protocol(key, value):
    config = fedpriv.compose(["dataset=mnist", f"{key}={value}"])
    node = config
    for name in key.split("."):
        node = node[name]
    assert node == value


FROM_EPSILON = ("calibrated", "larger_cohort", "uniform_budget", "recalculated")


@pytest.mark.few(2)
@pytest.mark.parametrize("clipper", [name for name, _ in options("clipper") if name != "none"])
@pytest.mark.parametrize(
    "schedule", [n for n, _ in options("noise_schedule") if n not in ("none", *FROM_EPSILON)]
)
def test_a_replaced_group_never_receives_a_key_of_the_protocol(clipper, schedule):
    parts = parts_of(
        "dataset=mnist", f"clipper={clipper}", f"noise_schedule={schedule}", "rounds=99"
    )
    assert parts.noise_schedule.noise_multiplier(0) == 6.0


@pytest.mark.parametrize(
    ("preset", "dataset"), [("published_mnist", "mnist"), ("published_fashion", "fashion_mnist")]
)
def test_the_published_presets_read_and_charge_as_the_paper(preset, dataset):
    parts = parts_of(f"+experiment=adap_dpfl/{preset}")
    assert (parts.algorithm.name, parts.dataset.name) == ("adap_dpfl", dataset)
    assert parts.clipper.reading == "unclipped"
    assert parts.settings.budget_view == "published"
    assert parts.noise_schedule.initial == {"mnist": 6.0, "fashion_mnist": 4.0}[dataset]


def test_the_benchmark_of_pfl_research_has_its_settings(wide_cells):
    parts = parts_of("+experiment=pfl/cifar10")
    algorithm, schedule = parts.algorithm, parts.noise_schedule
    assert (parts.partition.clients, parts.even_share, algorithm.client_rate) == (1000, 50, 0.05)
    assert (algorithm.local_epochs, algorithm.batch_size, algorithm.local_learning_rate) == (
        1,
        10,
        0.1,
    )
    assert (algorithm.optimizer, algorithm.learning_rate, parts.clipper.initial) == (
        "sgd",
        1.0,
        0.4,
    )
    assert (schedule.epsilon, schedule.delta, schedule.population, schedule.cohort) == (
        2,
        1e-6,
        10**6,
        1000,
    )
    assert (parts.settings.epsilon, parts.settings.delta) == (None, 1e-6)
    assert parts.dataset.normalize  # else ten points of accuracy are missing after 70 rounds
    module = parts.model.build(parts.dataset.input_shape, parts.dataset.classes)
    assert sum(p.numel() for p in module.parameters()) == 1_626_442


def test_the_benchmark_without_privacy_and_with_few_labels_is_two_choices_more():
    parts = parts_of(
        "+experiment=pfl/cifar10",
        "partition=dirichlet_equal",
        "noise_schedule=none",
        "clipper=none",
    )
    assert (parts.partition.clients, parts.partition.alpha, parts.without_noise) == (
        1000,
        0.1,
        True,
    )


def test_the_command_line_beats_a_preset():
    parts = parts_of("+experiment=adap_dpfl/published_mnist", "clipper.reading=sound")
    assert parts.clipper.reading == "sound"


def test_all_seeds_follow_the_seed():
    config = fedpriv.compose(["seed=7"])
    assert (config.partition.seed, config.model.seed, config.noise_seed) == (7, 7, 7)


def test_each_seed_can_be_set_on_its_own():
    config = fedpriv.compose(["seed=7", "noise_seed=1", "partition.seed=2", "model.seed=3"])
    assert (config.partition.seed, config.model.seed, config.noise_seed) == (2, 3, 1)


@pytest.mark.parametrize(
    "override",
    ["runtime.device=cpu", "runtime.plots=false", "runtime.threads=3", "dry_run=true",
     "resume=elsewhere", "dataset.path=elsewhere"],
)  # fmt: skip
def test_what_cannot_change_a_result_is_not_part_of_the_identity(override):
    plain = fedpriv.compose(["dataset=mnist"])
    assert identity(fedpriv.compose(["dataset=mnist", override])) == identity(plain)


@pytest.mark.parametrize(
    "override",
    ["seed=1", "noise_seed=1", "epsilon=1", "partition.seed=1", "clipper=constant",
     "evaluation_interval=7", "accountant.conversion=classical"],
)  # fmt: skip
def test_what_changes_a_result_is_part_of_the_identity(override):
    assert identity(fedpriv.compose([override])) != identity(fedpriv.compose())


def test_the_path_of_a_file_without_a_known_checksum_is_part_of_the_identity():
    one, other = (fedpriv.compose(["dataset=ipums", f"dataset.path={p}"]) for p in ("a", "b"))
    assert identity(one) != identity(other)


def test_the_identity_holds_resolved_values():
    assert identity(fedpriv.compose(["seed=5"]))["partition.seed"] == 5


def test_composing_an_unknown_group_raises_a_sentence_with_the_nearest_name():
    with pytest.raises(ConfigError, match="unknown key algoritm; did you mean algorithm"):
        fedpriv.compose(["algoritm=dp_fl"])


def test_a_key_of_an_attack_needs_one():
    with pytest.raises(ConfigError, match=r"unknown key attack.trigger: .*attack=OPTION"):
        fedpriv.compose(["attack.trigger.size=3"])


def test_keys_of_a_part_of_a_group_are_listed_with_the_part():
    chosen = ["attack=label_flip", "attack.sorce=3"]
    with pytest.raises(ConfigError) as refused:
        fedpriv.compose(chosen)
    assert "did you mean attack.trigger.source" in str(refused.value)
    assert "trigger.target" in str(refused.value)


settings = st.dictionaries(
    st.text(min_size=1, max_size=6),
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6)),
    max_size=6,
)


@pytest.mark.thorough
@hypothesis.settings(max_examples=10)
@given(settings, st.randoms())
def test_the_order_of_keys_does_not_change_the_fingerprint(values, random):
    items = list(values.items())
    random.shuffle(items)
    assert fingerprint(dict(items)) == fingerprint(values)


@given(settings, st.text(min_size=1, max_size=6))
def test_a_key_that_is_null_does_not_count(values, key):
    values.pop(key, None)
    assert fingerprint({**values, key: None}) == fingerprint(values)


@given(settings, st.text(min_size=1, max_size=6), st.integers(-(2**53), 2**53))
def test_a_whole_number_is_the_same_as_a_float(values, key, number):
    assert fingerprint({**values, key: number}) == fingerprint({**values, key: float(number)})


@given(settings, st.text(min_size=1, max_size=6), st.integers(), st.integers())
def test_a_changed_number_changes_the_fingerprint(values, key, one, other):
    assume(one != other)
    assert fingerprint({**values, key: one}) != fingerprint({**values, key: other})


@given(settings, st.text(min_size=1, max_size=6), st.text())
def test_a_key_that_is_added_changes_the_fingerprint(values, key, value):
    values.pop(key, None)
    assert fingerprint({**values, key: value}) != fingerprint(values)


def test_a_number_and_its_text_are_different():
    assert fingerprint({"a": 2}) != fingerprint({"a": "2"})


def test_a_whole_number_in_a_list_is_the_same_as_a_float():
    assert fingerprint({"a": [2, 3]}) == fingerprint({"a": [2.0, 3.0]})


def test_the_fingerprint_of_a_run_stays_what_it_is():
    """Folders of finished runs are found by it."""
    assert fingerprint({"a.b": 2.0, "a.c": None, "d": "x"}) == fingerprint({"d": "x", "a.b": 2})
    assert fingerprint({"a.b": 2, "d": "x"}) == "99e93dbb714c"


def test_no_stop_file_is_part_of_the_identity():
    plain = identity(fedpriv.compose())
    assert identity(fedpriv.compose(["runtime.stop_file=stop"])) == plain


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["+recipe="], r"\+recipe must be one option; see fedpriv list recipe"),
        (["+recipe=null"], r"\+recipe must be one option"),
        (["+recipe=[mnist_local_eps1,mnist_local_eps2]"], r"\+recipe must be one option"),
        (["+recipe=mnist_local_eps1", "+recipe=mnist_local_eps2"], "are two ready-made"),
        (["+recipe=mnist_local_eps1", "+experiment=wei/published_mnist"], "are two ready-made"),
    ],
)
def test_one_ready_made_configuration_at_most(overrides, sentence):
    with pytest.raises(ConfigError, match=sentence):
        fedpriv.compose(overrides)


def numbers_of_options() -> set[float]:
    """All numbers that are a default of some option."""
    texts = (
        key.default
        for group in GROUPS
        for name, _ in options(group)
        for key in keys_of_option(group, name)
    )
    values = (yaml.safe_load(text) for text in texts if not text.startswith(("[", "{", "$", "'")))
    return {value for value in values if type(value) in (int, float)}


@pytest.mark.parametrize("number", sorted(numbers_of_options()))
def test_a_number_counts_by_its_value_however_it_is_typed(number):
    spellings = {repr(number), repr(float(number)), f"{number:.17e}"}
    typed = [OverridesParser.create().parse_override(f"key={text}").value() for text in spellings]
    assert len({fingerprint(identity_of_values({"key": value, "seed": 0})) for value in typed}) == 1


def test_a_key_below_a_group_that_is_null_or_gone_leaves_the_run_what_it_is():
    config = fedpriv.compose(["algorithm=ddp_fedavg"])
    values = flatten(as_tree(config))
    more = {"clipper.later": None, "attack.trigger.later": None, **GONE}
    assert identity_of_values({**values, **more}) == identity(config)
    changed = dict.fromkeys(GONE, "another")
    assert identity_of_values({**values, **changed}) != identity(config)


def test_parts_count_by_their_option_and_own_parts_by_their_class():
    values = {"clipper._target_": "fedpriv.anywhere.Constant", "clipper._option_": "constant"}
    assert identity_of_values(values) == {"clipper": "constant"}
    values["clipper._target_"] = "mine.Constant"
    assert identity_of_values(values) == {"clipper._target_": "mine.Constant"}


def test_a_name_of_another_class_is_refused():
    with pytest.raises(
        ConfigError, match=r"clipper\._option_ must be adap, as .* runs.*got constant"
    ):
        parts_of("clipper=constant", "clipper._target_=fedpriv.privacy.clippers.AdapClipper")


def test_another_application_of_hydra_keeps_its_configuration(tmp_path):
    (tmp_path / "app.yaml").write_text("mine: 1\n")
    with hydra.initialize_config_dir(str(tmp_path), version_base="1.2"):
        assert fedpriv.compose(["algorithm=dp_fl"]).algorithm.name == "dp_fl"
        assert hydra.compose("app") == {"mine": 1}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("dataset.labels=[<=50K, >50K]", ["<=50K", ">50K"]),
        ("dataset.label=a(b)", "a(b)"),
        (
            "dataset.ranges={'age (years)': [18, 80], hours: [0, 60]}",
            {"age (years)": [18, 80], "hours": [0, 60]},
        ),
        ("dataset.categories={job: [a&b, 'x, y', no]}", {"job": ["a&b", "x, y", "no"]}),
    ],
)
def test_an_override_that_cannot_be_read_is_shown_as_it_can(written, value):
    with pytest.raises(ConfigError, match="cannot read the override") as caught:
        fedpriv.compose(["dataset=csv", written])
    (remedy,) = shlex.split(str(caught.value).partition("; write ")[2])
    config = fedpriv.compose(["dataset=csv", remedy])
    assert as_tree(config)["dataset"][written.partition("=")[0].partition(".")[2]] == value


@pytest.mark.parametrize(
    ("overrides", "noise"),
    [
        ((), 12),
        (("noise_schedule.noise_multiplier=9",), 5),
        (("clipper.split=false",), 5),
        (("clipper.bit_noise=3",), 3),
        (("clipper=per_layer_quantile",), 12),
    ],
)
def test_noise_on_bits_follows_the_noise_multiplier_where_its_default_is_too_small(
    overrides, noise
):
    config = fedpriv.compose(["algorithm=dp_fl", "clipper=quantile", *overrides])
    assert config.clipper.bit_noise == noise


def test_client_level_runs_on_a_table_have_rounds_also_by_a_yaml_that_takes_over_csv(tmp_path):
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "mine.yaml").write_text("# x\ndefaults: [csv, _self_]\nlabel: y\n")
    for algorithm in ("cdp_fedavg", "naseri_cdp"):
        for dataset in ("csv", "mine"):
            chosen = [f"algorithm={algorithm}", f"dataset={dataset}"]
            config = fedpriv.compose([*chosen, "clipper.clip_norm=3"], tmp_path)
            found = (
                config.rounds,
                config.noise_schedule.noise_multiplier,
                config.clipper.clip_norm,
            )
            assert found == (100, 2.5, 3)
    assert fedpriv.compose(["algorithm=cdp_fedavg", "dataset=adult"]).rounds is None
    assert fedpriv.compose(["algorithm=dp_fl", "dataset=csv"]).rounds is None
