from __future__ import annotations

import copy
import importlib
import itertools
import shutil
import signal
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

import fedpriv
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.data.digits import Digits
from fedpriv.data.federated import federate
from fedpriv.data.partitions import Iid
from fedpriv.data.records import Records
from fedpriv.experiment.build import build_parts
from fedpriv.features import Hog, Scattering, dataset, public_statistics
from fedpriv.features.base import ReleasedStatistics
from fedpriv.features.dataset import Featured

SMALL = {"scales": 1, "angles": 4, "groups": 5}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fedpriv" / "encoded"


def test_coefficients_take_the_place_of_images_and_labels_stay():
    plain, featured = Digits(), Featured(Digits(), Scattering(**SMALL))
    images, found = plain.load(), featured.load()
    assert featured.input_shape == tuple(found.train.inputs.shape[1:]) == (5, 4, 4)
    assert found.train.inputs.dtype == torch.float32
    assert torch.equal(found.test.targets, images.test.targets)
    assert (featured.name, featured.classes) == (plain.name, plain.classes)
    expected = Scattering(**SMALL)
    some = expected.normalize(expected.coefficients(images.test.inputs[:20]).half())
    assert torch.allclose(found.test.inputs[:20], some, atol=1e-6)


def test_computed_once_and_then_read_with_the_same_numbers(cache, capsys, monkeypatch):
    first = Featured(Digits(), Scattering(**SMALL)).load()
    assert "once" in capsys.readouterr().err
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setattr(Scattering, "coefficients", lambda self, images: pytest.fail("again"))
    again = Featured(Digits(), Scattering(**SMALL)).load()
    assert torch.equal(again.train.inputs, first.train.inputs)
    # normalization is no part of what is kept
    other = Featured(Digits(), Scattering(1, 4, normalization="none")).load()
    assert not torch.equal(other.train.inputs, first.train.inputs)


@pytest.fixture
def torch_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def in_the_pool() -> bool:
    return threading.current_thread().name.startswith("features")


@pytest.mark.parametrize("features", [Scattering(**SMALL), Hog(cell=2)], ids=["scattering", "hog"])
def test_the_number_of_threads_changes_no_bit(features, cache, monkeypatch, torch_threads):
    found, exact = {}, type(features).coefficients
    for threads in (1, 2, 4):
        together = threading.Barrier(threads, timeout=60)

        def waiting(self, images, together=together):
            if in_the_pool():
                together.wait()  # until so many threads compute a block; there are eight blocks
            return exact(self, images)

        monkeypatch.setattr(type(features), "coefficients", waiting)
        shutil.rmtree(cache, ignore_errors=True)
        torch_threads(threads)
        found[threads] = Featured(Digits(), features).load()
        assert torch.get_num_threads() == threads
    for part in ("train", "test"):
        one, two, four = (getattr(found[threads], part).inputs for threads in (1, 2, 4))
        assert torch.equal(one, two)
        assert torch.equal(one, four)


def test_features_of_ones_own_are_computed_by_one_thread(torch_threads):
    torch_threads(4)
    names = set()

    def noting(coefficients):
        names.add(threading.current_thread().name)
        return coefficients

    Featured(Digits(), Own(noting)).load()
    assert len({name for name in names if name.startswith("features")}) == 1


def test_an_interrupt_keeps_nothing_and_ends_the_threads(cache, monkeypatch, torch_threads):
    torch_threads(2)
    exact, blocks = Scattering.coefficients, itertools.count(1)

    def interrupted(self, images):
        if in_the_pool() and next(blocks) == 3:
            signal.raise_signal(signal.SIGINT)
        return exact(self, images)

    monkeypatch.setattr(Scattering, "coefficients", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            Featured(Digits(), Scattering(**SMALL)).load()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not cache.exists()
    assert not [t.name for t in threading.enumerate() if t.name.startswith("features")]
    assert torch.get_num_threads() == 2


def test_progress_is_a_bar_on_a_terminal_and_else_one_line(cache, capsys, monkeypatch):
    Featured(Digits(), Scattering(**SMALL)).load()
    assert capsys.readouterr().err == "computing scattering of 1,797 images (once: they are kept)\n"
    shutil.rmtree(cache)
    monkeypatch.setenv("FORCE_COLOR", "1")  # by which rich takes standard error for a terminal
    monkeypatch.setenv("TERM", "xterm")
    Featured(Digits(), Scattering(**SMALL)).load()
    assert "100%" in capsys.readouterr().err


OWN = """
from fedpriv.features import Features

class Scaled(Features):
    name = "scaled"

    def key(self):
        return "scaled"

    def shape(self, image):
        return image

    def coefficients(self, images):
        return FACTOR * images
"""


def test_features_of_ones_own_are_computed_again_once_their_file_has_changed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for factor in (2, 30):  # of another length, so that Python compiles it again
        (tmp_path / "own_features.py").write_text(OWN.replace("FACTOR", str(factor)))
        monkeypatch.delitem(sys.modules, "own_features", raising=False)
        importlib.invalidate_caches()
        own = importlib.import_module("own_features").Scaled(normalization="none")
        found = Featured(Digits(), own).load().test.inputs
        assert torch.allclose(found, factor * Digits().load().test.inputs, rtol=1e-3)


class Own(Scattering):
    """For a plug-in that does otherwise than it should."""

    def __init__(self, otherwise):
        super().__init__(**SMALL)
        self.otherwise = otherwise

    def coefficients(self, images):
        return self.otherwise(super().coefficients(images))


def test_coefficients_that_depend_on_other_images_are_refused():
    centred = Own(lambda found: found - found.mean(0))
    with pytest.raises(
        ConfigError, match=r"Own.coefficients must be a function of each image by itself"
    ):
        Featured(Digits(), centred).load()


def test_coefficients_of_another_shape_than_said_are_refused():
    with pytest.raises(
        ConfigError, match=r"return a tensor \[8, \*\(5, 4, 4\)\], as shape says, got \[8, 5\]"
    ):
        Featured(Digits(), Own(lambda found: found.mean((2, 3)))).load()


@pytest.mark.parametrize("groups", [1, 5])
def test_groups_of_channels_of_each_record_have_mean_0_and_variance_1(groups):
    used = Scattering(1, 4, groups=groups)
    images = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    found = used.normalize(used.coefficients(images)).unflatten(1, (groups, -1)).flatten(2)
    assert torch.allclose(found.mean(2), torch.zeros(6, groups), atol=1e-5)
    assert torch.allclose(found.var(2, unbiased=False), torch.ones(6, groups), atol=0.2)


def test_statistics_are_of_each_channel_and_repeated_for_colours():
    used = Scattering(normalization="statistics", statistics="fashion_mnist")
    mean, variance = public_statistics.of(used.key(), "fashion_mnist", 81)
    assert len(mean) == len(variance) == 81
    assert min(variance) > 0
    colour = torch.tensor(mean * 3)[None, :, None, None] + torch.zeros(2, 243, 4, 4)
    assert float(used.normalize(colour).abs().max()) < 1e-4


def test_statistics_that_clients_release_leave_the_records_as_they_are():
    released = {"statistics_noise_multiplier": 8, "statistics_clip_norm": 1}
    used = Featured(Digits(), Scattering(1, 4, "released", **released))
    plain = Featured(Digits(), Scattering(1, 4, "none"))
    assert torch.equal(used.load().train.inputs, plain.load().train.inputs)
    assert used.released_statistics == ReleasedStatistics(8.0, 1.0, channels=5)
    assert plain.released_statistics is None
    assert any("statistics that the clients release" in note for note in used.notes)


@pytest.mark.parametrize("name", ["mnist", "emnist", "femnist"])
def test_statistics_of_records_that_are_protected_are_refused(name):
    dataset = type("Named", (Digits,), {"name": name})()
    words = "features.statistics must be those of another data set, got mnist"
    with pytest.raises(ConfigError, match=words):
        Featured(dataset, Scattering(normalization="statistics", statistics="mnist"))
    Featured(dataset, Scattering(normalization="statistics", statistics="fashion_mnist"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"scales": 0}, "scales must be a whole number >= 1"),
        ({"normalization": "batch"}, "normalization must be one of groups, statistics, released, none"),
        ({"normalization": "statistics"}, "statistics must be one of fashion_mnist, mnist, got null"),
        ({"normalization": "statistics", "statistics": "mnist", "scales": 1}, "of the default sizes"),
        ({"statistics": "mnist"}, "null unless normalization=statistics or released"),
        ({"groups": 0}, "groups must be"),
        ({"normalization": "released"}, "statistics_noise_multiplier must be a number > 0"),
        ({"normalization": "released", "statistics_noise_multiplier": 8}, "statistics_clip_norm must be a"),
        ({"statistics_clip_norm": 1}, "statistics_clip_norm must be null unless normalization=released"),
    ],
)  # fmt: skip
def test_arguments_that_are_not_allowed(arguments, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        Scattering(**arguments)


@pytest.mark.parametrize(
    ("arguments", "shape", "sentence"),
    [
        ({"groups": 2}, (1, 8, 8), r"features.groups must be a divisor of the 81 channels, got 2"),
        (
            {"scales": 4},
            (1, 8, 8),
            r"features.scales must be <= 3: images have 8 x 8 pixels, got 4",
        ),
        ({}, (8,), "holds no images"),
    ],
)
def test_data_that_have_no_such_features(arguments, shape, sentence):
    dataset = type("Shaped", (Digits,), {"input_shape": shape})()
    with pytest.raises(ConfigError, match=sentence):
        Featured(dataset, Scattering(**arguments))


def test_text_has_no_such_features():
    text = type("Text", (Digits,), {"vocabulary_size": 9})()
    with pytest.raises(
        ConfigError, match="features must be none with this data set, got scattering"
    ):
        Featured(text, Scattering())


def test_it_can_be_copied_and_asked_for_what_it_has_not():
    featured = copy.deepcopy(Featured(Digits(), Scattering(**SMALL)))
    assert featured.name == "digits"
    assert featured.vocabulary_size is None


# ---- which records a run has been made with


def data(validation: bool = False, **changes):
    dataset = Featured(Digits(), Scattering(**{**SMALL, **changes}))
    return federate(dataset, Iid(clients=4, seed=0), validation=validation, seed=0)


def test_the_digest_is_of_the_images_not_of_the_last_digits_of_coefficients(monkeypatch, cache):
    before = data()
    for file in cache.iterdir():
        file.unlink()
    exact = Scattering.coefficients
    monkeypatch.setattr(Scattering, "coefficients", lambda self, x: exact(self, x) * 1.001)
    after = data()
    assert not torch.equal(before.train.inputs, after.train.inputs)
    assert before.digest == after.digest


def test_the_digest_tells_other_records_and_changed_ones_apart():
    plain = data()
    changed = Records(plain.train.inputs + 1, plain.train.targets)
    digests = {
        plain.digest,
        data(validation=True).digest,
        data(angles=2, groups=3).digest,
        replace(plain, train=changed).digest,
        replace(plain, train=plain.train.subset(np.arange(1000)[::-1].copy())).digest,
        replace(plain, clients=plain.clients[::-1]).digest,
    }
    assert len(digests) == 6


def test_the_statement_tells_of_the_copy_and_of_public_statistics():
    plain = Featured(Digits(), Scattering(**SMALL))
    assert any("cache" in words for words in plain.caveats)
    other = Featured(Digits(), Scattering(normalization="statistics", statistics="mnist"))
    assert any("mnist, which are taken as public" in words for words in other.caveats)
    assert other.caveats[: len(plain.caveats)] == plain.caveats


def test_nobody_else_reads_what_is_kept(cache):
    Featured(Digits(), Scattering(**SMALL)).load()
    assert cache.stat().st_mode & 0o077 == 0


def test_an_attack_on_pixels_needs_pixels():
    words = "attack.trigger needs images .features=none., which dataset=digits does not have"
    settings = ["features=scattering", "attack=pixel_pattern", "algorithm=fedavg", "rounds=2"]
    with pytest.raises(ConfigError, match=words):
        build_parts(fedpriv.compose(settings))


def test_in_a_log_a_line_tells_now_and_then_how_far_the_computation_is(cache, capsys, monkeypatch):
    monkeypatch.setattr(dataset, "_SECONDS_BETWEEN_LINES", -1.0)
    Featured(Digits(), Scattering(**SMALL)).load()
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"{Scattering.name}: {percent:.0%} done" for percent in np.arange(1, 9) / 8
    ]
