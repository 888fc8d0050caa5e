"""Parts of the user's own: one Python file and one YAML each, and what is missing is one sentence."""

from __future__ import annotations

import json
import textwrap

import pandas as pd
import pytest

from fedpriv.privacy.accountants import RdpAccountant
from fedpriv.privacy.core.events import parse_event

QUICK = ("rounds=6", "runtime.progress=none", "runtime.plots=false", "runtime.run_dir=run")


@pytest.fixture
def own(tmp_path):
    """(group, YAML below the comment, Python code) → the name of its option, ``mine``; CODE stands for the
    module."""
    count = [0]

    def write(group: str, yaml: str, code: str, name: str = "mine") -> None:
        count[0] += 1
        module = "own_" + "".join(c for c in tmp_path.name if c.isalnum()) + str(count[0])
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(code))
        folder = tmp_path / "yamls" / group
        folder.mkdir(parents=True, exist_ok=True)
        text = textwrap.dedent(yaml).replace("CODE", module)
        (folder / f"{name}.yaml").write_text(text)

    return write


@pytest.fixture
def run(command):
    return lambda *overrides: command("train", "--config-dir", "yamls", *QUICK, *overrides)


def summary(tmp_path) -> dict:
    return json.loads((tmp_path / "run" / "summary.json").read_text())


FEDAVGM = """
from fedpriv.algorithms import DpFl

class Mine(DpFl):
    pass
"""
YAML = """
# @package _global_
# mine
defaults: [dp_fl, _self_]
{protocol}
algorithm:
  _target_: CODE.Mine
  name: mine
"""


def test_an_algorithm_of_ones_own_inherits_no_published_claim(own, run, tmp_path):
    own("algorithm", YAML.format(protocol=""), FEDAVGM)
    assert run("algorithm=mine").status == 0
    privacy = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert privacy["epsilon_published"] is None
    assert privacy["views"]["published"] is None
    assert "Published: none." in (tmp_path / "run" / "privacy.txt").read_text()
    assert pd.read_csv(tmp_path / "run" / "metrics.csv")["epsilon_published"].isna().all()
    assert pd.read_csv(tmp_path / "run" / "ledger.csv")["event_published"].isna().all()
    said = run("algorithm=mine", "budget_view=published", "runtime.run_dir=other")
    assert said.status == 2
    assert "budget_view must be sound with algorithm=mine" in said.sentence


def test_a_claim_that_it_sets_itself_is_its_own(own, run, tmp_path):
    code = FEDAVGM.replace(
        "    pass",
        "    def __init__(self, *args, **settings):\n"
        "        super().__init__(*args, **settings)\n"
        "        from fedpriv.privacy.mechanisms.claims import adap_dpfl\n"
        "        self.claim = adap_dpfl()\n",
    )
    own("algorithm", YAML.format(protocol=""), code)
    assert run("algorithm=mine").status == 0
    assert json.loads((tmp_path / "run" / "privacy.json").read_text())["epsilon_published"] > 0


@pytest.mark.thorough
def test_an_algorithm_may_name_the_protocol_whose_numbers_it_takes(own, run, command):
    own("algorithm", YAML.format(protocol="protocol: dp_fl"), FEDAVGM)
    own("algorithm", YAML.format(protocol=""), FEDAVGM, "bare")
    words = {
        name: " ".join(run(f"algorithm={name}", "dry_run=true", "dataset=mnist").out.split())
        for name in ("mine", "bare", "dp_fl")
    }
    for name, rate in (("mine", "0.013"), ("bare", "0.1"), ("dp_fl", "0.013")):
        assert f"sample rate {rate} " in words[name]
    on_adult = " ".join(run("algorithm=mine", "dry_run=true", "dataset=adult").out.split())
    assert "sample rate 0.1 " in on_adult  # there are no numbers for it


def test_a_protocol_that_is_not_there_is_named(own, run):
    own("algorithm", YAML.format(protocol="protocol: dp_fll"), FEDAVGM)
    said = run("algorithm=mine")
    assert said.status == 2
    assert "protocol must be one of" in said.sentence
    assert "did you mean dp_fl?" in said.sentence


BREAST_CANCER = """
import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from fedpriv.data.records import LoadedDataset, Records

class Mine:
    name = "breast_cancer"
    train_records = 455
    input_shape = (30,)
    classes = 2

    def load(self):
        x, y = load_breast_cancer(return_X_y=True)
        x = torch.tensor((x - x.mean(0)) / x.std(0), dtype=torch.float32)
        all = Records(x, torch.tensor(y, dtype=torch.int64))
        test = np.arange(0, len(y), 5)
        train = np.setdiff1d(np.arange(len(y)), test)
        return LoadedDataset(train=all.subset(train), test=all.subset(test))
"""
DATA = "# mine\n_target_: CODE.Mine\n"
ON_MINE = ("algorithm=dp_fl", "dataset=mine", "partition=iid", "algorithm.learning_rate=0.1")


def test_a_data_set_of_ones_own(own, run, tmp_path):
    own("dataset", DATA, BREAST_CANCER)
    said = run(*ON_MINE, "rounds=30", "epsilon=null")
    assert said.status == 0, said.err
    assert summary(tmp_path)["test_accuracy"] > 0.8


@pytest.mark.few(2)
@pytest.mark.parametrize("attribute", ["name", "train_records", "input_shape", "classes", "load"])
def test_what_a_data_set_lacks_is_one_sentence(attribute, own, run):
    line = "def load(self)" if attribute == "load" else f"    {attribute} = "
    own("dataset", DATA, BREAST_CANCER.replace(line, line.replace(attribute, "other"), 1))
    said = run(*ON_MINE)
    assert said.status == 2
    wanted = "read, encode" if attribute == "load" else attribute
    assert f"dataset needs {wanted}: " in said.sentence


def test_a_public_split_that_nobody_sized_is_one_sentence(own, run):
    own("dataset", DATA, BREAST_CANCER)
    said = run("algorithm=adap_dpfl", "dataset=mine", "partition=iid")
    assert said.status == 2
    assert "(validation_records, of a class of your own)" in said.sentence


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("train_records = 455", "train_records = 456", "is 456, but the loaded records have 455"),
        ("(30,)", "(31,)", "input_shape is (31,), but the loaded records have (30,)"),
        ("return LoadedDataset(", "return dict(", "load must return a LoadedDataset"),
    ],
)  # fmt: skip
def test_data_that_are_not_what_was_said_end_before_the_first_round(old, new, sentence, own, run):
    own("dataset", DATA, BREAST_CANCER.replace(old, new))
    said = run(*ON_MINE)
    assert said.status == 2
    assert sentence in said.sentence


def test_a_schedule_of_ones_own_is_charged_round_by_round(own, run, tmp_path):
    code = """
    from fedpriv.privacy.noise_schedules import NoiseSchedule

    class Mine(NoiseSchedule):
        def noise_multiplier(self, round_index):
            return 6.0 - 0.5 * round_index
    """
    own("noise_schedule", "# mine\n_target_: CODE.Mine\n", code)
    assert run("algorithm=dp_fl", "noise_schedule=mine").status == 0
    ledger = pd.read_csv(tmp_path / "run" / "ledger.csv")
    events = [parse_event(text).event.noise_multiplier for text in ledger["event_sound"]]
    assert events == [6.0, 5.5, 5.0, 4.5, 4.0, 3.5]


def test_an_accountant_of_ones_own_decides_what_is_enforced(own, run, tmp_path):
    code = """
    from fedpriv.privacy.accountants import RdpAccountant

    class Mine(RdpAccountant):
        def __init__(self):
            super().__init__("2..8")
    """
    own("accountant", "# mine\n_target_: CODE.Mine\n", code)
    assert run("algorithm=dp_fl", "accountant=mine").status == 0
    event = parse_event(pd.read_csv(tmp_path / "run" / "ledger.csv")["event_sound"][0])
    expected = RdpAccountant("2..8").epsilon_of({event: 6}, 1e-5, "add_or_remove")
    assert summary(tmp_path)["epsilon"] == expected


@pytest.mark.few(2)
@pytest.mark.parametrize("group", ["clipper", "noise_schedule", "accountant", "algorithm"])
def test_a_class_of_another_kind_is_one_sentence(group, own, run):
    own(group, "# mine\n_target_: CODE.Mine\n", "class Mine:\n    pass\n")
    chosen = [f"{group}=mine"] if group == "algorithm" else ["algorithm=dp_fl", f"{group}=mine"]
    said = run(*chosen)
    assert said.status == 2
    assert f"{group} needs a class that extends fedpriv." in said.sentence


@pytest.mark.parametrize(
    ("target", "sentence"),
    {
        "CODE.Another": "clipper._target_ cannot be imported: No module named 'CODE.Another'",
        "nowhere_at_all.Mine": "clipper._target_ cannot be imported: No module named 'nowhere_at_all'",
    }.items(),
)
def test_a_class_that_is_not_there_is_one_sentence(target, sentence, own, run, tmp_path):
    own("clipper", f"# mine\n_target_: {target}\n", "class Mine:\n    pass\n")
    said = run("algorithm=dp_fl", "clipper=mine")
    assert said.status == 2
    module = next(tmp_path.glob("own_*.py")).stem
    assert sentence.replace("CODE", module) in said.sentence
    assert "Error" not in said.sentence


def test_a_module_that_does_not_find_another_says_so(own, run):
    own("clipper", "# mine\n_target_: CODE.Mine\n", "import nowhere_at_all\n")
    said = run("algorithm=dp_fl", "clipper=mine")
    assert said.status == 2
    assert "No module named 'nowhere_at_all'" in said.sentence


def test_what_a_class_does_not_implement_is_one_sentence(own, run):
    code = """
    from fedpriv.privacy.clippers import Clipper

    class Mine(Clipper):
        def bound(self, round_index, clients):
            return 1.0
    """
    own("clipper", "# mine\n_target_: CODE.Mine\n", code)
    said = run("algorithm=dp_fl", "clipper=mine")
    assert said.status == 2
    assert "clip_norm" in said.sentence


def statement(tmp_path) -> str:
    return " ".join((tmp_path / "run" / "privacy.txt").read_text().split())


def test_every_target_outside_fedpriv_is_a_caveat_of_the_statement(own, run, tmp_path):
    """Once a model alone was."""
    own("algorithm", YAML.format(protocol=""), FEDAVGM)
    own("dataset", DATA, BREAST_CANCER)
    plain = "from fedpriv.{room} import {base}\n\nclass Mine({base}):\n    pass\n"
    for group, room, base, arguments in (
        ("clipper", "privacy.clippers", "ConstantClipper", "clip_norm: 0.5"),
        ("noise_schedule", "privacy.noise_schedules", "ConstantNoise", "noise_multiplier: 4.0"),
        ("accountant", "privacy.accountants", "PldAccountant", ""),
        ("partition", "data.partitions", "Iid", "clients: 3\nseed: 0"),
        ("model", "models", "Logistic", "seed: 0"),
    ):
        own(
            group, f"# mine\n_target_: CODE.Mine\n{arguments}\n", plain.format(room=room, base=base)
        )
    groups = ("dataset", "clipper", "noise_schedule", "accountant", "partition", "model")
    assert run("algorithm=mine", *(f"{group}=mine" for group in groups), "rounds=1").status == 0
    caveats = json.loads((tmp_path / "run" / "privacy.json").read_text())["caveats"]
    (said,) = (one for one in caveats if one.startswith("Code outside fedpriv takes part"))
    for group in (*groups, "algorithm"):
        assert f"{group} (own_" in said
    assert "Code outside fedpriv takes part: accountant (own_" in statement(tmp_path)


def test_parts_of_fedpriv_alone_have_no_such_caveat(command, tmp_path):
    assert command("train", "algorithm=dp_fl", *QUICK).status == 0
    assert "outside fedpriv" not in statement(tmp_path)


def test_a_server_step_that_returns_nothing_is_a_sentence(plug_in):
    code = """
        from fedpriv.algorithms.dp_fl import DpFl

        class Mine(DpFl):
            def server_step(self, problem):
                pass
    """
    said = plug_in("algorithm", "Mine", code, "rounds=2", "epsilon=null")
    assert said.status == 2
    assert "Mine.server_step must return an object with a method apply" in said.sentence


def test_an_attribute_that_hides_a_method_is_one_sentence(own, run):
    code = """
    from fedpriv.privacy.clippers import ConstantClipper

    class Mine(ConstantClipper):
        def __init__(self):
            super().__init__(clip_norm=1.0)
            self.start = 6
    """
    own("clipper", "# mine\n_target_: CODE.Mine\n", code)
    said = run("algorithm=dp_fl", "clipper=mine")
    assert said.status == 2
    assert "clipper: Mine has an attribute start, which hides the method" in said.sentence


def test_cohorts_of_correlated_noise_follow_the_mechanism_of_the_run(own, run, tmp_path):
    code = """
    from fedpriv.algorithms import DpFtrl

    class Mine(DpFtrl):
        def mechanism(self, clipper, schedule):
            super().mechanism(clipper, schedule)
            made = super().mechanism(clipper, schedule)
            super().mechanism(clipper, schedule)
            return made
    """
    yaml = YAML.format(protocol="").replace("dp_fl,", "dp_ftrl,")
    own("algorithm", yaml, code)
    said = run(
        "algorithm=mine", "algorithm.participation=min_separation", "algorithm.min_separation=3",
        "algorithm.clients_per_round=3", "epsilon=8",
    )  # fmt: skip
    assert said.status == 0, said.err
