"""A torch module of one's own as the model: what its constructor is given, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fedpriv.common.attributes import is_own
from fedpriv.common.errors import ConfigError
from fedpriv.models import Mlp
from fedpriv.models.fit import build_for
from fedpriv.models.own_module import factory_of


class Net(nn.Module):
    """A network that takes what follows from the data by the names that torch has."""

    def __init__(self, in_features, num_classes, width=4):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(in_features, width), nn.Linear(width, num_classes)
        )

    def forward(self, inputs):
        return self.layers(inputs)


class Plain(nn.Sequential):
    """A network that takes nothing."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(6, 3))


class AnyKeys(Plain):
    """A network that takes any key."""

    def __init__(self, **keys):
        super().__init__()
        self.keys = keys


class Pair(Plain):
    """A network that returns two tensors."""

    def forward(self, inputs):
        return super().forward(inputs), inputs


class Deep(Plain):
    """A network with an argument that nothing gives."""

    def __init__(self, depth):
        super().__init__()


def built(kind, **settings):
    return factory_of(kind, {"seed": 0, **settings}).build((2, 3), 3)


def test_a_module_gets_what_follows_from_the_data():
    module = built(Net)
    assert (module.layers[1].in_features, module.layers[2].out_features) == (6, 3)


def test_keys_are_arguments_of_the_constructor():
    assert built(Net, width=9).layers[1].out_features == 9


def test_a_key_of_the_configuration_goes_before_the_data():
    with pytest.raises(ConfigError, match=r"Net cannot read records of shape \(2, 3\)"):
        built(Net, in_features=7)


def test_a_module_that_asks_for_nothing_is_built_as_it_is():
    assert built(Plain)(torch.zeros(1, 2, 3)).shape == (1, 3)


def test_defaults_of_the_replaced_option_are_left_out():
    assert built(Plain, hidden=32)  # of model=mlp
    assert built(AnyKeys, hidden=32, depth=2).keys == {"depth": 2}


def test_initial_weights_follow_from_the_seed():
    one, same, other = (factory_of(Net, {"seed": seed}).build((6,), 3) for seed in (1, 1, 2))
    values = [module.layers[1].weight for module in (one, same, other)]
    assert torch.equal(values[0], values[1])
    assert not torch.equal(values[0], values[2])


def test_the_module_counts_as_code_of_ones_own_with_its_name():
    factory = factory_of(Net, {})
    assert is_own(factory)
    assert (type(factory).__name__, type(factory).__module__) == ("Net", __name__)


@pytest.mark.parametrize("target", [Mlp, dict, len, None])
def test_what_is_no_module_is_left_to_hydra(target):
    assert factory_of(target, {}) is None


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        (Plain, {"hidden": 31}, "Plain takes no hidden"),
        (Net, {"widht": 3}, "takes no widht; did you mean width"),
        (Deep, {}, r"Deep needs depth; add \+model\.depth"),
    ],
)
def test_keys_that_do_not_fit_are_named(kind, settings, words):
    with pytest.raises(ConfigError, match=words):
        factory_of(kind, settings)


def test_a_module_without_a_logit_for_each_class_is_refused():
    with pytest.raises(ConfigError, match=r"Plain must return .*\[n, 4\].*got \[2, 3\]"):
        factory_of(Plain, {}).build((2, 3), 4)
    with pytest.raises(ConfigError, match="got a tuple"):
        built(Pair)


class Typo(Plain):
    """A network whose forward asks for a layer that is not there."""

    def forward(self, inputs):
        return self.layer(inputs)


class Unprepared(Plain):
    """A network that forgets to call the constructor of torch's module."""

    def __init__(self):
        self.layer = nn.Linear(6, 3)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        (Net, {"width": 0}, "parameter layers.1.weight has no elements"),
        (Net, {"width": "big"}, "could not be built: TypeError: "),
        (Typo, {}, "its forward failed: AttributeError: "),
        (Unprepared, {}, "could not be built: AttributeError: "),
    ],
)
def test_mistakes_in_the_code_of_a_module_are_one_sentence_about_it(kind, settings, words):
    data = SimpleNamespace(
        input_shape=(2, 3), classes=3, vocabulary_size=None, released_statistics=None
    )
    with pytest.raises(ConfigError) as refused:
        build_for(factory_of(kind, {"seed": 0, **settings}), data)
    assert f"model: {kind.__module__}.{kind.__name__} " in str(refused.value)
    assert words in str(refused.value)
    assert settings.get("width") == 0 or f"{__file__}, line " in str(refused.value)
