"""The page on trained models: its private runs are planned, and its plain torch says what fedpriv says."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import fedpriv
from fedpriv.models import Cnn

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "trained-models.md"
PYTHON = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), flags=re.M | re.S)


def test_the_runs_with_a_public_encoder_are_planned(command, tmp_path):
    halves, *_ = PYTHON
    compile(halves, "halves.py", "exec")
    for name in ("train", "test"):
        images = np.zeros((40, 28, 28), dtype=np.uint8)
        np.savez(tmp_path / f"{name}.npz", image=images, label=np.arange(40) % 5 + 5)
    state = Cnn(seed=0).build((1, 28, 28), 5).state_dict()
    torch.save({n: v for n, v in state.items() if not n.startswith("9.")}, tmp_path / "digits04.pt")
    lines = re.findall(r"^fedpriv (train .*)$", PAGE.read_text("utf-8"), flags=re.M)
    told = [command(*shlex.split(line), "dry_run=true") for line in lines]
    assert [said.status for said in told] == [0, 0]
    assert "lacks 9.weight, 9.bias" in told[1].err


def test_plain_torch_predicts_what_fedpriv_does(train, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = pd.DataFrame({"age": np.arange(0, 100, 5), "sex": ["f", "m"] * 10})
    rows.assign(y=["old", "young"] * 10).to_csv("people.csv", index=False)
    rows[["sex", "age"]].to_csv("new.csv", index=False)
    train(
        *(
            "dataset=csv",
            "dataset.path=people.csv",
            "dataset.label=y",
            "dataset.ranges={age: [0, 90]}",
        ),
        *("dataset.categories={sex: [f, m]}", "model=logistic", "algorithm=fedavg", "rounds=2"),
        *("partition=iid", "partition.clients=2"),
    )
    predicted = fedpriv.load("run").predict("new.csv")
    monkeypatch.setitem(sys.modules, "fedpriv", None)  # its import fails
    capsys.readouterr()
    exec(compile(PYTHON[-1], "plain.py", "exec"), {})
    said = eval(capsys.readouterr().out)
    assert [("old", "young")[number] for number in said] == predicted.tolist()
