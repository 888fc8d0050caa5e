"""The benchmark runs and reports; what it measures is not asserted."""

from __future__ import annotations

import json

import pytest
import torch

from fedpriv.common.errors import ConfigError
from fedpriv.tools import bench_clients as clients
from fedpriv.tools import bench_gradients as gradients
from fedpriv.tools.bench import run


def test_it_prints_and_writes_every_row_and_bar(tmp_path, capsys):
    path = tmp_path / "bench.json"
    assert run(1, ["mlp"], 1, str(path)) == 0
    report = json.loads(path.read_text())
    ten_clients, one_client, isolated, *training = report["settings"]
    rows = {row["row"] for row in ten_clients["rows"]}
    assert {gradients.PLAIN, gradients.FAST, gradients.ROUND} <= rows
    assert {bar["row"] for bar in ten_clients["bar"]} <= rows
    assert one_client["bar"] == isolated["bar"] == []
    assert gradients.ISOLATED in {row["row"] for row in isolated["rows"]}
    assert [setting["setting"] for setting in training] == [
        "mlp, 50 clients × 5 steps × 10 records",
        "mlp, 50 clients × 1 step × 128 records",
        "mlp, 50 clients × 5 steps × 128 records",
        "mlp, 50 clients × 5 steps × 10 records, each clipped",
    ]
    assert {clients.LOOP, clients.ROUND} <= {row["row"] for row in training[0]["rows"]}
    printed = capsys.readouterr().out
    assert "mlp, 10 × 78 records" in printed
    assert "fedpriv bench --peers" in printed
    assert printed.count("met") >= len(ten_clients["bar"])


def test_the_number_of_threads_is_restored():
    before = torch.get_num_threads()
    run(1, [], before + 1)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    "arguments", [{"repeats": 0}, {"models": ["resnet"]}, {"threads": 0}, {"repeats": "many"}]
)
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ConfigError, match=r"bench\."):
        run(**arguments)


@pytest.mark.parametrize("other", [("--accounting",), ("--workers", "2"), ("--peers",)])
def test_a_device_is_for_the_engines_alone(command, other):
    said = command("bench", "--device", "cuda", *other)
    assert (said.status, "--device is for the gradient engines" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("device", "why"), [("tpu", "auto, cpu, cuda or cuda:N"), ("cuda:99", "one that is present")]
)
def test_a_wrong_device_is_refused(command, device, why):
    said = command("bench", "--device", device)
    assert (said.status, f"--device must be {why}" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--workers", "2", "--growth", "g"), "--workers and --growth measure different things"),
        (
            ("--accounting", "--aggregation"),
            "--accounting and --aggregation measure different things",
        ),
        (("--growth", "g", "--model", "cnn"), "--model is not for --growth"),
        (("--growth", "g", "--json", "j.json"), "--json is not for --growth"),
        (("--accounting", "--threads", "1"), "--threads is not for --accounting"),
        (("--model", "text"), "--model text needs --workers"),
        (("--workers", "5000"), "--workers must be <= "),
        (("--threads", "5000"), "--threads must be <= "),
    ],
)
def test_flags_that_exclude_each_other_are_refused(command, tmp_path, flags, why):
    said = command("bench", *flags)
    assert (said.status, why in said.err) == (2, True)
    assert not (tmp_path / "g").exists()
