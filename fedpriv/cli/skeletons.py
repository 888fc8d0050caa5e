"""Skeletons that ``fedpriv new`` writes: for each kind of part a module, a YAML and the words of its test.

A skeleton is a small part that runs as it stands. ``NAME`` stands for the name of the part and ``CLASS`` for
that of its class.
"""

from __future__ import annotations

from dataclasses import dataclass

TEST = '''"""Tests of the OPTION NAME: a run with it does what its ledger says."""

from pathlib import Path

from fedpriv.cli.commands import run

HERE = Path(__file__).parent
OVERRIDES = [WORDS]


def test_a_run_does_what_its_ledger_says(monkeypatch):
    """``fedpriv verify`` holds noise, clip norms and clients against the ledger."""
    monkeypatch.chdir(HERE)
    assert run(["verify", "--config-dir", "my_yamls", *OVERRIDES]) == 0
'''
ATTACK_TEST = '''"""Tests of the attack NAME: a run with it ends and measures MEASURED."""

from pathlib import Path

import fedpriv

HERE = Path(__file__).parent
OVERRIDES = [WORDS]


def test_a_run_measures_how_far_the_attack_gets(monkeypatch, tmp_path):
    """``fedpriv verify`` brings attackers of its own, so an attack is run."""
    monkeypatch.chdir(HERE)
    monkeypatch.syspath_prepend(HERE)
    short = ["rounds=2", "runtime.plots=false", f"runtime.run_dir={tmp_path / 'run'}"]
    config = fedpriv.compose([*OVERRIDES, *short], config_dir="my_yamls")
    assert 0 <= fedpriv.run(config).summary["MEASURED"] <= 1
'''


@dataclass(frozen=True)
class Skeleton:
    """The files of a skeleton for one kind of part.

    Attributes:
        group: The group of the configuration.
        about: What the skeleton is, in a line.
        module: Text of the Python module.
        yaml: Text of the YAML.
        overrides: Overrides of a run with the part.
        test: Text of the test.
    """

    group: str
    about: str
    module: str
    yaml: str
    overrides: tuple[str, ...]
    test: str = TEST


_CLIPPER = '''"""The clipper NAME."""

import torch
from fedpriv.common import checks
from fedpriv.privacy.clippers import Clipper


class CLASS(Clipper):
    """C_t = initial_clip_norm * decay^t, which the ledger charges as sensitivity."""

    def __init__(self, initial_clip_norm, decay):
        self.initial = checks.number("initial_clip_norm", initial_clip_norm, above=0)
        self.decay = checks.number("decay", decay, above=0, at_most=1)

    def clip_norm(self, round_index, holders):
        """Return the clip norm of each holder [h]: of the round and of released values."""
        value = self.initial * self.decay**round_index
        return torch.full((len(holders),), value, device=holders.device)
'''
_CLIPPER_YAML = """# a clip norm that shrinks by a factor in each round
_target_: NAME.CLASS
initial_clip_norm: 1.0  # clip norm of the first round
decay: 0.99  # factor of each further round
"""

_SCHEDULE = '''"""The noise schedule NAME."""

from fedpriv.common import checks
from fedpriv.privacy.noise_schedules import NoiseSchedule


class CLASS(NoiseSchedule):
    """σ_t = first * decay^t, at least last: both the noise added and the noise charged."""

    def __init__(self, first, decay, last):
        self.first = checks.number("first", first, above=0)
        self.decay = checks.number("decay", decay, above=0, at_most=1)
        self.last = checks.number("last", last, above=0)

    def noise_multiplier(self, round_index):
        """Return the noise multiplier of a round, counted from 0."""
        return max(self.last, self.first * self.decay**round_index)
'''
_SCHEDULE_YAML = """# a noise multiplier that shrinks by a factor in each round
_target_: NAME.CLASS
first: 8.0  # noise multiplier of the first round
decay: 0.99  # factor of each further round
last: 4.0  # the smallest noise multiplier
"""

_ALGORITHM = '''"""The algorithm NAME: DP-SGD on each client, and a server step of its own."""

from fedpriv.algorithms import DpFl
from fedpriv.algorithms.server_steps import WeightedAverage


class CLASSServer(WeightedAverage):
    """Momentum: v <- momentum v + (weighted average of the changes), w <- w + v."""

    def __init__(self, model, records_per_client, momentum):
        super().__init__(model, records_per_client)
        self.momentum, self.velocity = momentum, model.flat.new_zeros(model.size)

    def apply(self, cohort, uploads):
        """Move the global weights, by uploads that are released already."""
        self.velocity.mul_(self.momentum).add_(self.average(cohort, uploads))
        self.model.flat.add_(self.velocity)

    def state_dict(self):
        """Return what the next round needs."""
        return {"velocity": self.velocity.clone()}

    def load_state_dict(self, state):
        """Restore the state of a checkpoint."""
        self.velocity.copy_(state["velocity"])


class CLASS(DpFl):
    """DP-SGD on each client with momentum at the server."""

    def __init__(self, *args, server_momentum=0.9, **settings):
        super().__init__(*args, **settings)
        self.server_momentum = server_momentum

    def server_step(self, context):
        """Return the server step of one run."""
        records = context.data.records_per_client
        return CLASSServer(context.model, records, self.server_momentum)
'''
_ALGORITHM_YAML = """# @package _global_
# DP-SGD on each client with momentum at the server
defaults:
  - dp_fl
  - _self_
protocol: dp_fl  # take the numbers that dp_fl has for each data set
algorithm:
  _target_: NAME.CLASS
  name: NAME
  server_momentum: 0.9  # share of the last step that is kept
"""

_DATASET = '''"""The data set NAME."""

import numpy as np
import torch
from fedpriv.common import checks
from fedpriv.data.base import Dataset
from fedpriv.data.records import LoadedDataset, Records


class CLASS(Dataset):
    """Made-up records of two classes; every fifth one is a test record.

    Scale inputs by constants that are known without the records: a mean or a largest value
    would be a private statistic that no epsilon covers.
    """

    name = "NAME"
    input_shape = (8,)
    classes = 2

    def __init__(self, records):
        self.records = checks.whole("records", records, at_least=10)
        self.train_records = self.records - len(range(0, self.records, 5))

    def load(self):
        """Return training and test records; ``client_ids`` may name their authors."""
        stream = np.random.default_rng(0)
        labels = np.arange(self.records) // 5 % 2
        inputs = stream.normal(size=(self.records, *self.input_shape)) + labels[:, None]
        records = Records(torch.tensor(inputs, dtype=torch.float32), torch.tensor(labels))
        test = np.arange(0, self.records, 5)
        train = np.setdiff1d(np.arange(self.records), test)
        return LoadedDataset(train=records.subset(train), test=records.subset(test))
'''
_DATASET_YAML = """# @package _global_
# made-up records of two classes
defaults:
  - override /partition: iid
  - override /model: logistic
  - _self_
dataset:
  _target_: NAME.CLASS
  records: 1000  # training and test records together
"""

_ATTACK = '''"""The attack NAME."""

from fedpriv.attacks import Backdoor
from fedpriv.attacks.malicious import MaliciousClients
from fedpriv.common import checks


class CLASS(Backdoor):
    """A backdoor whose attackers send a multiple of what they trained."""

    def __init__(self, scale, **backdoor):
        super().__init__(**backdoor)
        self.scale = checks.number("scale", scale, above=0)

    def start(self, data):
        """Return the attackers of one run."""
        return CLASSAttackers(self, data)


class CLASSAttackers(MaliciousClients):
    """Attackers that scale their uploads."""

    def forge(self, round_index, clients, uploads, others):
        """Return what the attackers send [a, d]; the server clips it as it clips every upload."""
        return uploads * self.settings.scale
'''
_ATTACK_YAML = """# a pixel pattern, sent with a larger step
defaults:
  - pixel_pattern
  - _self_
_target_: NAME.CLASS
scale: 2.0  # factor of what the attackers trained
"""

_UNTARGETED = '''"""The attack NAME."""

from fedpriv.attacks import Untargeted
from fedpriv.common import checks


class CLASS(Untargeted):
    """The honest mean, reflected: each attacker sends -scale times the mean that it sees."""

    def __init__(self, scale, **attack):
        super().__init__(**attack)
        self.scale = checks.number("scale", scale, above=0)

    def forged(self, view):
        """Return what the attackers send [a, d], or one upload for all of them [d]."""
        return -self.scale * view.mean
'''
_UNTARGETED_YAML = """# minus the mean of the honest uploads
_target_: NAME.CLASS
attackers: 2  # number of clients that attack
scale: 2.0  # factor of the mean
"""

_AGGREGATION = '''"""The aggregation rule NAME, against f malicious clients."""

from fedpriv.aggregation import RobustAggregation


class CLASS(RobustAggregation):
    """The mean of each coordinate without its f smallest and its f largest numbers."""

    needs = (2, 0)  # the condition n > 2f + 0 on the number n of vectors

    def aggregate(self, vectors, of_round):
        """Return the combination [d] of the vectors [n, d], which are released already."""
        first, last = of_round.tolerated, len(vectors) - of_round.tolerated

        def trimmed(columns):
            return columns.sort(dim=0).values[first:last].mean(dim=0)

        return vectors.by_coordinate(trimmed)
'''
_AGGREGATION_YAML = """# the mean of each coordinate without its f smallest and f largest numbers
_target_: NAME.CLASS
tolerated: 0.2  # f; below 1: a share of a round's clients, rounded up
"""

SKELETONS = {
    "algorithm": Skeleton(
        "algorithm", "a server step after DP-SGD on clients", _ALGORITHM, _ALGORITHM_YAML,
        ("algorithm=NAME", "algorithm.learning_rate=0.03"),
    ),
    "clipper": Skeleton(
        "clipper", "a clip norm for each round", _CLIPPER, _CLIPPER_YAML,
        ("clipper=NAME", "algorithm=dp_fl"),
    ),
    "schedule": Skeleton(
        "noise_schedule", "a noise multiplier for each round", _SCHEDULE, _SCHEDULE_YAML,
        ("noise_schedule=NAME", "algorithm=dp_fl"),
    ),
    "dataset": Skeleton(
        "dataset", "records and labels", _DATASET, _DATASET_YAML,
        ("dataset=NAME", "partition.clients=4", "algorithm=dp_fl"),
    ),
    "attack": Skeleton(
        "attack", "clients that send something else", _ATTACK, _ATTACK_YAML,
        ("attack=NAME", "attack.attackers=2", "algorithm=cdp_fedavg"),
        ATTACK_TEST.replace("MEASURED", "backdoor_accuracy"),
    ),
    "untargeted_attack": Skeleton(
        "attack", "clients that spoil the model", _UNTARGETED, _UNTARGETED_YAML,
        ("attack=NAME", "algorithm=ldp_fedsgd"), ATTACK_TEST.replace("MEASURED", "test_accuracy"),
    ),
    "aggregation": Skeleton(
        "aggregation", "a rule against f malicious clients", _AGGREGATION, _AGGREGATION_YAML,
        ("aggregation=NAME", "algorithm=ldp_fedsgd"),
    ),
}  # fmt: skip
"""Kind of part, as it is typed → its skeleton."""
