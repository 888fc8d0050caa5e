"""Runs on a tiny data set of texts, and models that do not read what a data set holds."""

from __future__ import annotations

import sys
from types import ModuleType

import pandas as pd
import pytest
import torch

import fedpriv
from fedpriv.data.records import LoadedDataset, Records

LENGTH, VOCABULARY = 8, 12
SMALL = ("model.layers=1", "model.hidden=8", "model.embedding=6")
DP_FL = (
    "algorithm=dp_fl", "noise_schedule=constant", "partition=iid", "partition.clients=4",
    "algorithm.sample_rate=0.5", "epsilon=null", "rounds=2", "evaluation_interval=1",
)  # fmt: skip


class TinyTexts:
    """Texts of up to eight tokens; the label is whether token 2 occurs, the next token its successor."""

    name = "tiny"
    train_records, test_records, validation_records = 120, 40, 20
    input_shape, vocabulary_size = (LENGTH,), VOCABULARY

    def __init__(self, task: str):
        self.task = task
        self.classes = VOCABULARY if task == "language_model" else 2

    def load(self) -> LoadedDataset:
        return LoadedDataset(self._records(120, 0), self._records(40, 1))

    def _records(self, n: int, seed: int) -> Records:
        stream = torch.Generator().manual_seed(seed)
        start = torch.randint(1, VOCABULARY, (n, 1), generator=stream)
        tokens = (start + torch.arange(LENGTH) - 1) % (VOCABULARY - 1) + 1
        lengths = torch.randint(0, LENGTH + 1, (n, 1), generator=stream)
        tokens = tokens.masked_fill(torch.arange(LENGTH) >= lengths, 0)
        if self.task == "language_model":
            return Records(tokens, torch.nn.functional.pad(tokens[:, 1:], (0, 1)))
        return Records(tokens, (tokens == 2).any(1).long())


@pytest.fixture
def compose(tmp_path, monkeypatch):
    """(overrides) → the configuration, with dataset=tiny among the options."""
    module = ModuleType("tiny_texts")
    module.TinyTexts = TinyTexts
    monkeypatch.setitem(sys.modules, "tiny_texts", module)
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "tiny.yaml").write_text(
        "_target_: tiny_texts.TinyTexts\ntask: classification\n"
    )

    def with_tiny(*overrides: str):
        folder = f"runtime.run_dir={tmp_path / 'run'}"
        quiet = ("runtime.progress=none", "runtime.plots=false", folder)
        return fedpriv.compose([*quiet, "dataset=tiny", *overrides], config_dir=tmp_path)

    return with_tiny


def metrics_of(result) -> pd.DataFrame:
    return pd.read_csv(result.folder / "metrics.csv")


@pytest.mark.few(1)
@pytest.mark.parametrize("engine", ["fast", "opacus"])
def test_a_classifier_trains_with_every_record_clipped(compose, engine):
    clipper = ("clipper=constant", "clipper.clip_norm=1")
    config = compose(*DP_FL, *clipper, "model=lstm_classifier", *SMALL, f"runtime.engine={engine}")
    metrics = metrics_of(fedpriv.run(config))
    assert len(metrics) == 2
    assert metrics.test_loss.notna().all()
    assert (metrics.gradient_norm > 0).all()
    assert metrics.clip_norm.eq(1).all()


@pytest.mark.thorough
def test_a_language_model_learns_the_next_token(compose):
    config = compose(
        "algorithm=fedavg", "partition=iid", "partition.clients=2", "model=lstm_lm", *SMALL,
        "dataset.task=language_model", "rounds=60", "algorithm.sample_rate=0.5",
        "algorithm.optimizer=adam", "algorithm.learning_rate=0.03", "evaluation_interval=60",
    )  # fmt: skip
    assert metrics_of(fedpriv.run(config)).test_accuracy.iloc[-1] > 0.9


@pytest.mark.few(1)
@pytest.mark.parametrize("task", ["classification", "language_model"])
def test_the_first_bound_of_adap_is_measured_on_random_tokens(compose, task):
    model = "lstm_classifier" if task == "classification" else "lstm_lm"
    adap = ("clipper=adap", "clipper.initial_clip_norm=null")
    config = compose(*DP_FL, *adap, f"model={model}", *SMALL, f"dataset.task={task}")
    assert (metrics_of(fedpriv.run(config)).clip_norm > 0).all()
