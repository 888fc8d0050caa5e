"""What is computed before anything is clipped is tested, or said to be untested."""

from __future__ import annotations

import json

LOAD = """
import torch
from sklearn.datasets import load_breast_cancer
from fedpriv.data.records import LoadedDataset, Records


class Mine:
    name, train_records, input_shape, classes = "mine", 455, (30,), 2

    def load(self):
        inputs, labels = load_breast_cancer(return_X_y=True)
        inputs = (inputs - inputs.mean(0)) / inputs.std(0)
        records = Records(torch.tensor(inputs, dtype=torch.float32), torch.tensor(labels))
        return LoadedDataset(train=records.subset(torch.arange(455).numpy()), test=records)
"""
ROWS = """
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler


class Mine:
    name, train_records, input_shape, classes = "mine", 455, (30,), 2

    def read(self):
        return list(zip(*load_breast_cancer(return_X_y=True)))

    def encode(self, rows):
        inputs = SCALED
        return torch.tensor(inputs), [int(label) for _, label in rows]
"""
FITTED = "StandardScaler().fit_transform([numbers for numbers, _ in rows])"
DECLARED = "[(numbers / 1000).tolist() for numbers, _ in rows]"
RUN = ("partition=iid", "partition.clients=3", "rounds=2", "epsilon=null")


def statement(tmp_path) -> str:
    return " ".join((tmp_path / "run" / "privacy.txt").read_text().split())


def test_load_alone_is_not_tested_and_not_published(plug_in, tmp_path):
    assert plug_in("dataset", "Mine", LOAD, *RUN).status == 0
    assert statement(tmp_path).startswith("Not tested: plugin_")
    assert json.loads((tmp_path / "run" / "privacy.json").read_text())["untested"].endswith(".Mine")
    said = plug_in("dataset", "Mine", LOAD, *RUN, "publish=true", "runtime.run_dir=b")
    assert "dataset needs read() and encode(rows) with publish=true: nothing tests" in said.sentence


def test_rows_are_tested(plug_in, tmp_path):
    said = plug_in("dataset", "Mine", ROWS.replace("SCALED", FITTED), *RUN)
    assert "dataset: Mine.encode gives a row other numbers alone" in said.sentence
    assert plug_in("dataset", "Mine", ROWS.replace("SCALED", DECLARED), *RUN).status == 0
    assert statement(tmp_path).startswith("Simulation:")
    assert "Nobody checks statistics, label sets, class weights" in statement(tmp_path)


def test_both_methods_are_needed(plug_in):
    said = plug_in("dataset", "Mine", ROWS.replace("def encode", "def other"), *RUN)
    assert "dataset needs encode: Mine has none" in said.sentence


def test_features_that_a_first_call_fits_are_refused(plug_in):
    code = """
    import torch
    from fedpriv.features import Features

    class Mine(Features):
        name = "mine"
        mean = None

        def key(self):
            return "mine"

        def shape(self, image):
            return image

        def coefficients(self, images):
            if self.mean is None:
                self.mean = images[:1].mean(0, keepdim=True)
            return images - self.mean
    """
    said = plug_in("features", "Mine", code, *RUN)
    assert "features: Mine.coefficients must be a function of each image by itself" in said.sentence


UPLOADS = """
from dataclasses import replace

from fedpriv.algorithms import CdpFedAvg
from fedpriv.algorithms.uploads import LocalChanges


class Kept(LocalChanges):
    first = None

    def of(self, round_index, clients):
        batch = super().of(round_index, clients)
        KEEP
        return batch


class Mine(CdpFedAvg):
    def uploads(self, context):
        return Kept(context, 1, None, 0.1)
"""
KEEP = """if self.first is None:
            self.first = batch.uploads[:1].clone()
        batch = replace(batch, uploads=batch.uploads - 0.5 * self.first)"""


def test_uploads_that_keep_those_of_an_earlier_client_are_refused(plug_in, tmp_path):
    given = ("algorithm.local_learning_rate=0.1", "noise_schedule.noise_multiplier=4", *RUN)
    said = plug_in("algorithm", "Mine", UPLOADS.replace("KEEP", KEEP), *given, base="cdp_fedavg")
    assert "algorithm: Kept.of gives a client another upload" in said.sentence
    given += ("runtime.run_dir=b",)
    said = plug_in("algorithm", "Mine", UPLOADS.replace("KEEP", ""), *given, base="cdp_fedavg")
    assert said.status == 0, said.err
