"""The keys of an option, with defaults and comments, read from its YAML."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fedpriv.common.groups import GROUPS, options
from fedpriv.common.option_keys import keys_of_option, keys_of_text

TEXT = """\
# an option
_target_: fedpriv.Part
rate: ${oc.select:protocol.rate, 0.1}  # q
size: ${oc.select:protocol.size, ${records_at_most:128}}
own: ${oc.select:algorithm.own_rate, ${oc.select:algorithm.rate, 0.1}}
seed: ${seed}
names: [a, "b # c"]  # who
lines:  # several
  - one
  - two
inside:
  below: 1e-6  # deep
"""


def test_the_keys_of_a_yaml_with_values_and_comments():
    keys = {key.name: key for key in keys_of_text(TEXT)}
    assert {name: (key.default, key.comment) for name, key in keys.items()} == {
        "_target_": ("fedpriv.Part", ""),
        "rate": ("0.1", "q"),
        "size": ("128", ""),
        "own": ("algorithm.own_rate, else algorithm.rate, else 0.1", ""),
        "seed": ("${seed}", ""),
        "names": ('[a, "b # c"]', "who"),
        "lines": ("[one, two]", "several"),
        "inside": ("", ""),
        "inside.below": ("1e-6", "deep"),
    }
    assert [name for name, key in keys.items() if key.by_protocol] == ["rate", "size"]
    for key in keys.values():
        assert TEXT[key.start :].startswith(key.value)
        assert TEXT[key.end] == "\n"


def test_an_empty_yaml_has_no_keys():
    assert list(keys_of_text("# nothing\n")) == []


def test_keys_are_named_as_they_are_typed():
    assert "clipper.min_clip_norm" in {key.name for key in keys_of_option("clipper", "quantile")}
    assert {"epsilon", "algorithm.client_rate"} <= {
        key.name for key in keys_of_option("algorithm", "cdp_fedavg")
    }
    tensorboard = keys_of_option("tracker", "tensorboard")
    assert [key.name for key in tensorboard] == ["tracker.tensorboard.folder"]


@pytest.mark.parametrize(
    ("group", "option", "key", "default"),
    [
        ("algorithm", "dp_fl", "algorithm.random_crop", "null"),
        ("model", "cnn_scattering_1x1", "model.first_kernel", "1"),
        ("model", "cnn_scattering_1x1", "model.width", "64"),
        ("attack", "words", "attack.boost", "1.0"),
        ("algorithm", "wei_cdp_optimal", "algorithm.name", "wei_cdp_optimal"),
    ],
)
def test_keys_of_what_an_option_extends_are_among_its_own(group, option, key, default):
    found = {one.name: one.default for one in keys_of_option(group, option)}
    assert found[key] == default


@pytest.mark.parametrize("option", ["features/none", "aggregation/mean", "tracker/none"])
def test_an_option_that_is_nothing_has_no_keys(option):
    assert keys_of_option(*option.split("/")) == []


@pytest.mark.thorough
def test_every_key_of_every_option_says_what_it_is():
    silent = [
        f"{group}={option}: {key.name}"
        for group in GROUPS
        for option, _ in options(group)
        for key in keys_of_option(group, option)
        if not key.comment
    ]
    assert silent == []


def test_reading_keys_imports_nothing_heavy():
    code = (
        "import sys; from fedpriv.common.option_keys import keys_of_option;"
        "keys_of_option('algorithm', 'dp_fl');"
        "print([m for m in ('numpy', 'torch', 'hydra', 'omegaconf', 'attrs') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
