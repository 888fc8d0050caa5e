"""What is on disk of a run that may be given away."""

from __future__ import annotations

import pytest
import torch
from planted import RECORDS

from fedpriv.common.files import write_tensors
from fedpriv.experiment import report


@pytest.fixture
def with_a_canary(monkeypatch):
    """The model that is published holds a training record beside its weights."""
    write = report._write_model

    def plant(run):
        write(run)
        canary = run.loop.context.data.train.inputs[0]
        state = torch.load(run.folder.model, weights_only=True)
        write_tensors(run.folder.model, {**state, "example": canary})

    monkeypatch.setattr(report, "_write_model", plant)


@pytest.mark.thorough
def test_a_canary_in_a_public_file(caught, with_a_canary):
    assert "files: files in public/" in caught(*RECORDS)
