from __future__ import annotations

import pytest
import torch
from torch import nn

from fedpriv.common.errors import ConfigError
from fedpriv.models import Cnn, Logistic, Mlp
from fedpriv.models.checks import PROBES, refuse_own_randomness, refuse_record_mixing

MIXING = {
    "BatchNorm1d": nn.BatchNorm1d(4),
    "BatchNorm2d": nn.BatchNorm2d(4),
    "BatchNorm2d without parameters": nn.BatchNorm2d(4, affine=False),
    "BatchNorm2d, frozen": nn.BatchNorm2d(4).requires_grad_(False),
    "SyncBatchNorm": nn.SyncBatchNorm(4),
    "InstanceNorm2d with statistics": nn.InstanceNorm2d(4, track_running_stats=True),
}
IMAGES = torch.rand(PROBES, 1, 28, 28)


def refuse(module: nn.Module, inputs: torch.Tensor = IMAGES, per_record: bool = True) -> None:
    refuse_record_mixing(module, inputs, per_record=per_record)


@pytest.mark.parametrize("per_record", [True, False])
@pytest.mark.parametrize("name", MIXING)
def test_a_layer_that_mixes_records_is_refused_with_name_reason_and_remedy(name, per_record):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Sequential(MIXING[name]))
    with pytest.raises(ConfigError) as caught:
        refuse(model, per_record=per_record)
    message = str(caught.value)
    assert f"layer 1.0 ({name.split()[0].rstrip(',')})" in message
    assert "use GroupNorm" in message
    assert "\n" not in message


def test_the_reason_for_batch_norm_is_the_other_records():
    with pytest.raises(ConfigError, match="by the other records of its batch"):
        refuse(nn.BatchNorm1d(3))


def test_an_embedding_scaled_by_frequency_is_refused():
    with pytest.raises(ConfigError, match="scale_grad_by_freq=False"):
        refuse(nn.Embedding(5, 3, scale_grad_by_freq=True))


def test_a_layer_opacus_cannot_treat_names_its_counterpart():
    with pytest.raises(ConfigError, match=r"\(LSTM\) .* opacus.layers"):
        refuse(nn.LSTM(3, 4))


class Probe(nn.Module):
    """A linear layer behind something of one's own."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(28 * 28, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.linear(self.own(inputs.flatten(1)))


class Centred(Probe):
    def own(self, rows):
        return rows - rows.mean(0)


class CentredByConstants(Probe):
    """The mean is taken for a number, so that no gradient tells of it."""

    def own(self, rows):
        return rows - rows.mean(0).detach()


class Counting(Probe):
    """Keeps a statistic of what it saw, and uses it for nothing."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(28 * 28))

    def own(self, rows):
        self.seen += rows.detach().sum(0)
        return rows


class NeedsSeveral(Probe):
    def own(self, rows):
        if len(rows) < 2:
            raise ValueError("at least two records")
        return rows


class Barely(Probe):
    """A leak too small to see in the output: the gradient shows it."""

    def own(self, rows):
        return rows + 1e-6 * rows.sum()


class ClosedGate(Probe):
    """Mixes records once training has opened a gate that starts at zero."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(28 * 28))

    def own(self, rows):
        return rows + self.gate * rows.mean(0).detach()


class InLargeBatches(Probe):
    """Mixes records only where there are many."""

    def own(self, rows):
        return rows - rows.mean(0) if len(rows) > 30 else rows


class WhenLarge(Probe):
    """Mixes records only where one is large."""

    def own(self, rows):
        return rows / rows.abs().amax().clamp_min(10.0)


OWN = {
    ClosedGate: "depends on the records beside it",
    InLargeBatches: "depends on the records beside it",
    WhenLarge: "depends on the records beside it",
    Centred: "depends on the records beside it",
    CentredByConstants: "depends on the records beside it",
    Barely: "depends on the records beside it",
    Counting: "its buffer seen changes in training",
    NeedsSeveral: "fails on a single record .at least two records.",
}


@pytest.mark.parametrize("module", OWN)
def test_a_module_is_refused_by_what_it_does(module):
    made = module()
    before = {name: value.clone() for name, value in made.state_dict().items()}
    with pytest.raises(ConfigError, match=OWN[module]):
        refuse(made)
    for name, value in made.state_dict().items():  # looked at, not touched
        assert torch.equal(value, before[name])


@pytest.mark.parametrize(
    ("factory", "arguments"),
    [
        (Cnn, {}),
        (Cnn, {"activation": "tempered_sigmoid", "weight_standardization": True}),
        (Mlp, {}),
        (Logistic, {}),
    ],
)
def test_our_models_pass(factory, arguments):
    module = factory(0, **arguments).build((1, 28, 28), 10)
    refuse(module)
    refuse_own_randomness(module, IMAGES)


@pytest.mark.parametrize("layer", [nn.GroupNorm(1, 1), nn.LayerNorm(28), nn.InstanceNorm2d(1)])
def test_layers_that_treat_each_record_alone_pass(layer):
    module = nn.Sequential(layer, nn.Flatten(), nn.Linear(784, 3))
    refuse(module)
    refuse_own_randomness(module, IMAGES)


def test_tokens_are_looked_at_too():
    module = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(24, 2))
    refuse(module, torch.randint(0, 5, (4, 6)))


@pytest.mark.filterwarnings("ignore:dropout2d. Received a 2-D input")
@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.Dropout2d(0.3), nn.AlphaDropout(0.1)])
def test_a_model_that_draws_random_numbers_is_refused(layer):
    module = nn.Sequential(nn.Flatten(), nn.Linear(784, 30), nn.Sequential(layer))
    with pytest.raises(ConfigError) as caught:
        refuse_own_randomness(module, IMAGES)
    assert f"layer 2.0 ({type(layer).__name__})" in str(caught.value)
    assert "no seed of the run controls" in str(caught.value)


def test_dropout_of_nothing_passes_and_the_global_generator_is_left_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Linear(784, 3))
    after_build = torch.get_rng_state()
    refuse(module)
    refuse_own_randomness(module, IMAGES)
    assert torch.equal(torch.get_rng_state(), after_build)
    assert not torch.equal(before, after_build)
