from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from fedpriv.common.errors import ArgumentError
from fedpriv.data.digits import Digits


@pytest.fixture(scope="module")
def loaded():
    return Digits(normalize=False).load()


def test_records_have_the_announced_shape_and_type(loaded):
    for records, count in ((loaded.train, 1437), (loaded.test, 360)):
        assert records.inputs.shape == (count, *Digits.input_shape)
        assert records.inputs.dtype == torch.float32
        assert records.targets.shape == (count,)
        assert records.targets.dtype == torch.int64
    assert (Digits.train_records, Digits.test_records) == (1437, 360)
    assert loaded.client_ids is None


def test_pixels_lie_between_zero_and_one(loaded):
    assert loaded.train.inputs.min() == 0
    assert loaded.train.inputs.max() == 1


def test_normalized_images_have_mean_zero_and_std_one_each(loaded):
    inputs = Digits().load().train.inputs
    assert torch.allclose(inputs.mean(dim=(1, 2, 3)), torch.zeros(1437), atol=1e-6)
    assert torch.allclose(inputs.std(dim=(1, 2, 3)), torch.ones(1437), atol=1e-5)


def test_normalizing_an_image_reads_no_other_image(loaded):
    image = loaded.train.inputs[7]
    assert torch.allclose(Digits().load().train.inputs[7], (image - image.mean()) / image.std())


def test_train_and_test_together_are_all_records(loaded):
    pixels, labels = load_digits(return_X_y=True)
    everything = sorted(map(tuple, np.column_stack([pixels / 16, labels]).tolist()))
    parts = [
        np.column_stack([r.inputs.reshape(-1, 64).double(), r.targets])
        for r in (loaded.train, loaded.test)
    ]
    assert sorted(map(tuple, np.concatenate(parts).tolist())) == everything


def test_the_split_keeps_the_share_of_each_class(loaded):
    train, test = (np.bincount(r.targets, minlength=10) for r in (loaded.train, loaded.test))
    assert np.all(np.abs(test - (train + test) / 5) < 1)


def test_the_split_is_the_same_every_time(loaded):
    assert torch.equal(Digits(normalize=False).load().test.inputs, loaded.test.inputs)


def test_status_says_that_the_data_come_with_scikit_learn():
    status = Digits().present()
    assert (status.present, status.where, status.checksums) == (True, "scikit-learn", "packaged")
    assert status.usable


@pytest.mark.parametrize("value", [0, 1437, 2.5, None])
def test_validation_records_must_leave_training_records(value):
    with pytest.raises(ArgumentError, match=r"validation_records must be a whole number >= 1 and"):
        Digits(validation_records=value)
