"""Parts refuse what they cannot be combined with: a plan, a dry run and a run in one sentence."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from omegaconf import OmegaConf

import fedpriv
from fedpriv.common.config import flatten
from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.groups import GROUPS, options
from fedpriv.data.digits import Digits
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.contracts import conflicts
from fedpriv.experiment.run import check
from fedpriv.privacy.clippers import ConstantClipper

QUIET = ["dataset=digits", "runtime.progress=none", "runtime.plots=false", "rounds=1"]
VALUES = {
    "epsilon": ("null", "2"),
    "budget_view": ("sound", "published"),
    "publish": ("true",),
    "publish_test_metrics": ("true",),
    "paired": ("one",),
    "audit": ("epsilon:4", "epsilon:4:mislabelled"),
    "runtime.engine": ("fast", "opacus"),
    "runtime.diagnostics": ("false",),
    "partition.clients": ("1", "40"),
    "algorithm.clients_per_round": ("1", "50"),
    "algorithm.trust": ("local", "central", "distributed"),
    "algorithm.shares": ("skellam",),
    "algorithm.noise": ("as_printed",),
    "algorithm.clients": ("3",),
    "attack.attackers": ("0", "50"),
    "attack.boost": ("replacement",),
    "noise_schedule.epsilon": ("1",),
    "clipper.reading": ("unclipped",),
}


def configuration(draw: random.Random) -> list[str]:
    """Return some options and keys at random, many of which do not go together."""
    groups = draw.sample([group for group in GROUPS if group != "dataset"], draw.randint(1, 5))
    chosen = [f"{group}={draw.choice([name for name, _ in options(group)])}" for group in groups]
    try:
        config = fedpriv.compose([*QUIET, *chosen])
    except FedprivError:
        return chosen
    present = set(flatten(OmegaConf.to_container(config)))
    usable = [key for key in sorted(VALUES) if "." not in key or key in present]
    keys = draw.sample(usable, draw.randint(0, 3))
    return [*chosen, *(f"{key}={draw.choice(VALUES[key])}" for key in keys)]


def sentence(action, *overrides: str) -> str:
    """Return the error that an action on a configuration ends with, or nothing."""
    try:
        action(fedpriv.compose([*QUIET, *overrides]))
    except FedprivError as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "batch", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 40))]
)
@pytest.mark.usefixtures("wide_cells")
def test_plan_dry_run_and_run_refuse_in_one_sentence(batch, tmp_path, monkeypatch):
    """A run that is not refused is not made in the quick batch: others are about these."""
    monkeypatch.chdir(tmp_path)
    draw, refused = random.Random(f"conflicts {batch}"), 0
    for _ in range(15 if batch else 8):
        chosen = configuration(draw)
        planned = sentence(build_parts, *chosen)
        dry = sentence(fedpriv.run, *chosen, "dry_run=true")
        if planned:
            refused += 1
            swept = sentence(lambda config: check(config, {}), *chosen)
            assert dry == swept == planned, chosen
        if dry or batch:
            made = sentence(fedpriv.run, *chosen)
            assert made == dry or "diverged in round" in made, chosen
    assert refused


class Few(ConstantClipper):
    """A clipper for few clients."""

    def conflicts(self, parts):
        if parts.partition.clients > 9:
            yield ConfigError(
                "partition.clients", parts.partition.clients, "<= 9 with this clipper"
            )


class Unbounded(Few):
    unbounded = True


class Forgetful(ConstantClipper):
    def conflicts(self, parts):
        return None


def sentences(part: str, value: object) -> list[str]:
    parts = build_parts(fedpriv.compose(["dataset=digits", "algorithm=dp_fl", "rounds=1"]))
    return [str(error) for error in conflicts(replace(parts, **{part: value}))]


def test_a_part_of_ones_own_refuses_what_it_says():
    assert sentences("clipper", Few(1.0)) == [
        "partition.clients must be <= 9 with this clipper, got 10"
    ]


def test_what_the_base_class_refuses_stays_refused_and_all_is_said():
    first, second = sentences("clipper", Unbounded(1.0))
    assert first.startswith("clipper=none leaves the sensitivity unbounded")
    assert second.startswith("partition.clients must be <= 9")


def test_an_answer_of_nothing_refuses_nothing():
    assert sentences("clipper", Forgetful(1.0)) == []


class Bare:
    """A data set that extends nothing of fedpriv."""

    name, train_records, input_shape, classes = "bare", 1437, (1, 8, 8), 10

    def load(self):
        return Digits(0).load()


class Picky(Bare):
    def conflicts(self, parts):
        yield ConfigError("algorithm", parts.algorithm.name, "another with these data")


@pytest.mark.parametrize("name", ["Bare", "Picky"])
def test_a_data_set_that_extends_nothing_refuses_what_data_sets_do(name):
    config = fedpriv.compose(["dataset=digits", "algorithm=dp_fl", "rounds=1"])
    config.dataset = {"_target_": f"{__name__}.{name}"}
    if name == "Bare":
        build_parts(config)
    else:
        with pytest.raises(
            ConfigError, match="algorithm must be another with these data, got dp_fl"
        ):
            build_parts(config)
    config.noise_schedule = fedpriv.compose(["noise_schedule=validation_decay"]).noise_schedule
    with pytest.raises(ConfigError, match=f"needs validation_records: .*{name} has none"):
        build_parts(config)
    config = fedpriv.compose(["algorithm=dp_fl", "rounds=1", "warm_start.records=public"])
    config.dataset = {"_target_": f"{__name__}.{name}"}
    with pytest.raises(ConfigError, match=r"split that warm_start\.records=public reads"):
        build_parts(config)
