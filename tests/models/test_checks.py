from __future__ import annotations

import pytest
from torch import nn

from fedpriv.common.errors import ConfigError
from fedpriv.models import Cnn, Logistic, Mlp
from fedpriv.models.checks import refuse_record_mixing

MIXING = {
    "BatchNorm1d": nn.BatchNorm1d(4),
    "BatchNorm2d": nn.BatchNorm2d(4),
    "BatchNorm2d without parameters": nn.BatchNorm2d(4, affine=False),
    "BatchNorm2d, frozen": nn.BatchNorm2d(4).requires_grad_(False),
    "SyncBatchNorm": nn.SyncBatchNorm(4),
    "InstanceNorm2d with statistics": nn.InstanceNorm2d(4, track_running_stats=True),
}


@pytest.mark.parametrize("name", MIXING)
def test_a_layer_that_mixes_records_is_refused_with_name_reason_and_remedy(name):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Sequential(MIXING[name]))
    with pytest.raises(ConfigError) as caught:
        refuse_record_mixing(model)
    message = str(caught.value)
    assert f"layer 1.0 ({name.split()[0].rstrip(',')})" in message
    assert "use GroupNorm" in message
    assert "\n" not in message


def test_the_reason_for_batch_norm_is_the_other_records():
    with pytest.raises(ConfigError, match="by the other records of its batch"):
        refuse_record_mixing(nn.BatchNorm1d(3))


def test_an_embedding_scaled_by_frequency_is_refused():
    with pytest.raises(ConfigError, match="scale_grad_by_freq=False"):
        refuse_record_mixing(nn.Embedding(5, 3, scale_grad_by_freq=True))


def test_a_layer_opacus_cannot_treat_names_its_counterpart():
    with pytest.raises(ConfigError, match=r"\(LSTM\) .* opacus.layers"):
        refuse_record_mixing(nn.LSTM(3, 4))


@pytest.mark.parametrize("factory", [Cnn, Mlp, Logistic])
def test_our_models_pass(factory):
    refuse_record_mixing(factory(0).build((1, 28, 28), 10))


def test_layers_that_treat_each_record_alone_pass():
    layers = [nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.InstanceNorm2d(4), nn.Dropout(0.1)]
    refuse_record_mixing(nn.Sequential(*layers, nn.Embedding(5, 4)).eval())
