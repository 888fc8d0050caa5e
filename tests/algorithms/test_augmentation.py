"""Copies of images: what they are, whose they are, and that a record counts once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedpriv.algorithms import DpFl, DpFlServer
from fedpriv.algorithms.augmentation import Augmentation
from fedpriv.algorithms.augmented import AugmentedRows, moved
from fedpriv.common.errors import ArgumentError
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.engine import cross_entropy
from fedpriv.models import Mlp
from fedpriv.models.base import ModelFactory
from fedpriv.privacy.clippers import ConstantClipper
from fedpriv.privacy.core.sampling import draws_of_copies

COPIES = {"augmentation_multiplicity": 3, "random_flip": True, "random_crop": 2}
STREAMS = SecretStreams.simulated(0, 0)


# ---- one copy


def words(count: int, copies: int, seed: int = 0) -> np.ndarray:
    return np.random.Generator(np.random.Philox(seed)).integers(
        2**64, size=(count, copies), dtype=np.uint64
    )


@pytest.mark.parametrize("fill", ["reflect", "zeros"])
def test_a_copy_is_cut_out_of_the_image_with_its_border_and_mirrored(fill):
    images = torch.randn(2, 3, 6, 5)
    border = functional.pad(images, (2, 2, 2, 2), "reflect" if fill == "reflect" else "constant")
    every = [(f, d, r) for f in (0, 1) for d in range(-2, 3) for r in range(-2, 3)]
    moves = torch.tensor([every, every[::-1]], dtype=torch.int32)
    found = moved(images, moves, fill)
    for i in range(2):
        for j, (mirrored, down, right) in enumerate(moves[i].tolist()):
            cut = border[i, :, 2 + down : 8 + down, 2 + right : 7 + right]
            assert torch.equal(found[i, j], cut.flip(2) if mirrored else cut)


def test_a_pixel_that_is_not_a_number_does_not_get_into_the_border():
    image = torch.full((1, 1, 3, 3), torch.nan)
    found = moved(image, torch.tensor([[[0, 2, 0]]]), "zeros")
    assert found[0, 0, 0].isnan().tolist() == [[True] * 3, [False] * 3, [False] * 3]


def test_every_move_is_as_likely_as_any_other():
    drawn = Augmentation(3, True, 2, "reflect").moves(words(20_000, 3))
    assert drawn.shape == (20_000, 3, 3)
    flips, down, right = drawn.reshape(-1, 3).T
    cells = np.bincount((flips * 5 + down + 2) * 5 + right + 2, minlength=50)
    assert len(cells) == 50
    assert np.all(abs(cells - 1200) < 5 * np.sqrt(1200))


@pytest.mark.parametrize(("flip", "crop"), [(True, 0), (False, 3)])
def test_what_is_not_asked_for_does_not_happen(flip, crop):
    drawn = Augmentation(2, flip, crop, "zeros").moves(words(200, 2))
    assert bool(drawn[..., 0].any()) == flip
    assert sorted(np.unique(drawn[..., 1:])) == list(range(-crop, crop + 1))


def test_the_ends_of_the_words_are_the_ends_of_the_moves():
    ends = np.array([[0, 2**64 - 1]], dtype=np.uint64)
    assert Augmentation(2, True, 4, "zeros").moves(ends).tolist() == [[[0, -4, -4], [1, 4, 4]]]


# ---- whose draws


def test_a_record_has_the_same_copies_whoever_else_is_in_the_lot():
    records = np.array([40, 3, 17, 25, 8])
    everyone = draws_of_copies(STREAMS, records, records, 4, 2, 0, 1)
    for lot in ([17], [3, 25], [8, 40, 17], []):
        lot = np.array(lot, dtype=int)
        places = [records.tolist().index(i) for i in lot]
        assert np.array_equal(
            draws_of_copies(STREAMS, records, lot, 4, 2, 0, 1), everyone[places].reshape(-1, 4)
        )


def test_each_round_step_and_client_has_draws_of_its_own():
    records = np.arange(6)
    found = {
        draws_of_copies(STREAMS, records, records, 2, *place).tobytes()
        for place in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    }
    assert len(found) == 4
    assert STREAMS.sampling("lot", 0, 0, 0).bits(12).tobytes() not in found


# ---- in a round


def as_it_is(self, words):
    """Draws that move nothing."""
    return np.zeros((*words.shape, 3), dtype=np.int32)


class Network(ModelFactory):
    """Every kind of layer that a network of images has."""

    def build(self, input_shape, classes):
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3, padding=1),
            torch.nn.GroupNorm(2, 4),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(256, classes),
        )


@pytest.mark.parametrize("engine", ["fast", "opacus"])
def test_the_mean_over_a_record_s_copies_is_clipped(computation, lots_sampled, engine):
    clip_norm, client, t = 0.3, 4, 5
    training = computation(
        clipper=ConstantClipper(clip_norm), model=Network(0), engine=engine, **COPIES
    )
    sums, outcome = training.released(t, cohort=[client])
    context, own = training.context, training.context.data.clients[client]
    lot = np.array(sorted(lots_sampled[-1]))
    records = context.data.train.subset(lot)
    drawn = draws_of_copies(context.streams, own, lot, 3, t, 0, client)
    moves = torch.from_numpy(training.algorithm.augmentation.moves(drawn))
    copies = moved(records.inputs, moves, "reflect")
    model, expected, norms = context.model, torch.zeros(context.model.size), []
    for inputs, target in zip(copies, records.targets, strict=True):
        loss = cross_entropy(model(inputs), target.expand(3)).mean()
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, model.parameters())])
        norms.append(float(gradient.norm()))
        expected += gradient * min(1.0, clip_norm / norms[-1])
    assert min(norms) > clip_norm
    assert (sums[0] - expected).norm() < 5e-5 * expected.norm()  # measured norms are upper bounds
    assert outcome.gradient_norm == pytest.approx(np.mean(norms), rel=1e-4)
    assert len(outcome.norms) == len(lot)  # records, not copies


@pytest.mark.parametrize("steps", [1, 2])
def test_copies_that_are_the_image_itself_change_nothing(computation, monkeypatch, steps):
    monkeypatch.setattr(Augmentation, "moves", as_it_is)
    settings = {"local_steps": steps, "clipper": ConstantClipper(0.5), "model": Mlp(0, 16)}
    uploads = [computation(**settings, **keys).play()[0] for keys in ({}, COPIES)]
    torch.testing.assert_close(uploads[1], uploads[0], rtol=1e-4, atol=1e-6)


def test_nor_do_they_at_a_server_that_steps(serve, monkeypatch):
    monkeypatch.setattr(Augmentation, "moves", as_it_is)
    plain, copied = (
        serve(DpFlServer("dp_fl_server", sample_rate=0.5, **keys), clipper=ConstantClipper(0.5))
        for keys in ({}, COPIES)
    )
    sums = [one.released(3)[0] for one in (plain, copied)]
    torch.testing.assert_close(sums[1], sums[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("steps", [1, 2])
def test_lots_are_those_of_training_without_copies(computation, lots_sampled, steps):
    computation(local_steps=steps).play()
    plain = lots_sampled[-steps:]
    computation(local_steps=steps, **COPIES).play()
    assert lots_sampled[-steps:] == plain


def test_a_round_gives_the_same_again_and_another_round_something_else(computation):
    training = computation(**COPIES)
    first, again, other = (training.released(t)[0] for t in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("steps", [1, 2])
def test_empty_lots_have_no_copies(computation, steps):
    uploads, outcome = computation(sample_rate=1e-9, local_steps=steps, **COPIES).play()
    assert not uploads.any()
    assert len(outcome.norms) == 0


def test_copies_are_made_for_a_block_at_a_time(serve, monkeypatch):
    asked = []
    read = AugmentedRows.__getitem__

    def noted(self, place):
        asked.append(len(read(self, place)))
        return read(self, place)

    monkeypatch.setattr(AugmentedRows, "__getitem__", noted)
    monkeypatch.setattr("fedpriv.engine.lots.BLOCK_RECORDS", 90)
    serve(DpFlServer("dp_fl_server", **COPIES)).released(0)
    assert max(asked) <= 90 // COPIES["augmentation_multiplicity"]
    assert sum(asked) == 1437


# ---- settings


@pytest.mark.parametrize("algorithm", [DpFl, DpFlServer])
def test_without_multiplicity_there_are_no_copies(algorithm):
    keys = {"sample_rate": 0.5}
    assert algorithm("name", **keys).augmentation is None
    found = algorithm("name", **keys, **COPIES).augmentation
    assert dataclasses.astuple(found) == (3, True, 2, "reflect")


@pytest.mark.parametrize(
    ("keys", "argument"),
    [
        ({"augmentation_multiplicity": 4}, "augmentation_multiplicity"),
        ({"augmentation_multiplicity": 0, "random_flip": True}, "augmentation_multiplicity"),
        ({"augmentation_multiplicity": 2000, "random_flip": True}, "augmentation_multiplicity"),
        ({"augmentation_multiplicity": 2.5, "random_flip": True}, "augmentation_multiplicity"),
        ({"augmentation_multiplicity": 4, "random_flip": "yes"}, "random_flip"),
        ({"augmentation_multiplicity": 4, "random_crop": -1}, "random_crop"),
        ({"augmentation_multiplicity": 4, "random_crop": 2, "crop_fill": "edge"}, "crop_fill"),
        ({"augmentation_multiplicity": 4, "random_flip": True, "crop_fill": "zeros"}, "crop_fill"),
        ({"random_flip": True}, "random_flip"),
        ({"random_crop": 4}, "random_crop"),
        ({"crop_fill": "zeros"}, "crop_fill"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(keys, argument):
    with pytest.raises(ArgumentError) as refused:
        DpFl("name", sample_rate=0.5, **keys)
    assert refused.value.argument == argument


def test_flip_and_shifts_are_read_from_bits_of_their_own():
    """Bit 0 flips, bits 1 to 32 shift down, bits 33 to 63 to the right."""
    copies = Augmentation(4, flip=True, crop=2, fill="zeros")
    moves = copies.moves(np.array([[0, 1, 1 << 32, 1 << 63]], dtype=np.uint64))
    assert moves.tolist() == [[[0, -2, -2], [1, -2, -2], [0, 0, -2], [0, -2, 0]]]
