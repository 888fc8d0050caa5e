"""An adapter in a process of its own: what it does wrong is one sentence, and its process ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.tools.adapters.claim import read_claim
from fedpriv.tools.adapters.process import AdapterError, AdapterProcess, RoundRaised, RunRequest
from fedpriv.tools.adapters.subject import AdapterSubject

GOOD = """
import numpy as np
claim = {"unit": "client", "neighbours": "add_or_remove", "sampling": "none", "clip_norm": 1.0,
         "noise_multiplier": 1.0, "rounds": 2, "clients": 3}
holds_still = ["seed"]
def round(state, data, seed):
    number = (state or 0) + 1
    return np.sum(data, axis=0) + number, number
"""


@pytest.fixture
def opened(tmp_path):
    """Return a function that opens an adapter with this text; its process is ended with the test."""
    running = []

    def open_(text: str, make: str = "", time_limit: float = 20.0) -> AdapterProcess:
        file = tmp_path / "mine.py"
        file.write_text(text, encoding="utf-8")
        running.append(AdapterProcess(file, make, sys.executable, time_limit))
        return running[-1]

    yield open_
    for process in running:
        process.close()


DATA = [np.arange(3.0), np.ones(3), np.zeros(3)]


def rounds_of(process: AdapterProcess, data=DATA, count: int = 1) -> list[dict]:
    """What the observer sees in the rounds of one run."""
    (answers,) = process.runs([RunRequest(0, [data] * count, {})])
    if isinstance(answers, RoundRaised):
        raise answers
    return [values for values, _ in answers]


def test_numbers_arrive_bit_for_bit_and_the_state_stays_in_the_process(opened):
    process = opened(GOOD)
    data = [array + 1e-17 for array in DATA]
    first, second = rounds_of(process, data, count=2)
    assert np.array_equal(first["update"], np.sum(data, axis=0) + 1)
    assert np.array_equal(second["update"], np.sum(data, axis=0) + 2)
    assert process.facts["claim"]["clients"] == 3


def test_a_new_run_makes_a_new_adapter(opened):
    text = GOOD + "class Mine:\n    claim, holds_still, count = claim, holds_still, 0\n"
    text += "    def round(self, state, data, seed):\n        self.count += 1\n"
    text += "        return np.array([self.count]), None\n"
    process = opened(text, "Mine")
    seen = [*rounds_of(process, count=2), *rounds_of(process)]
    counts = [values["update"] for values in seen]
    assert [float(count[0]) for count in counts] == [1.0, 2.0, 1.0]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise ValueError('no such client')", "a round raised ValueError: no such client (line 7)"),
        ("import sys; sys.exit(3)", "a round called sys.exit (line 7)"),
        ("return 1.0", "round must return (what the observer sees, state), got float"),
        ("return {'a': 'text'}, None", "a round raised ValueError"),
        ("return np.ones(3) * 1j, None", "must be real numbers, got complex ones"),
        ("return np.zeros(1 << 28, dtype=np.int8), None", "has 268,435,456 numbers; at most 134,217,728"),
    ],
)  # fmt: skip
def test_a_round_that_fails_is_a_sentence_and_the_process_goes_on(opened, body, words):
    process = opened(GOOD.partition("    number")[0] + f"    {body}\n")
    for _ in range(2):
        with pytest.raises(RoundRaised) as caught:
            rounds_of(process)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_process_that_ends_is_told_with_its_status_and_last_line(opened):
    process = opened(
        GOOD.partition("    number")[0]
        + "    print('goodbye', flush=True)\n    import os; os._exit(7)\n"
    )
    with pytest.raises(AdapterError, match=r"ended the process \(status 7\): goodbye"):
        rounds_of(process)


def test_a_round_that_hangs_is_ended_with_its_children(opened):
    text = GOOD.partition("    number")[0] + "    import time\n    while True: time.sleep(1)\n"
    process = opened(text, time_limit=0.5)
    with pytest.raises(AdapterError, match=r"took more than 0.5 seconds; --time-limit allows more"):
        rounds_of(process)
    process.close()
    assert process._process.poll() is not None


def test_what_it_prints_is_kept_apart_from_its_answers(opened):
    process = opened(
        "print('hello')\n" + GOOD.replace("    number", "    print('round')\n    number")
    )
    (values,) = rounds_of(process)
    assert np.array_equal(values["update"], np.sum(DATA, axis=0) + 1)
    assert process.printed() == ["hello", "round"]


def test_what_it_prints_does_not_fill_the_disk(opened):
    process = opened(
        GOOD.replace("    number", "    print('x' * (3 << 20), flush=True)\n    number")
    )
    rounds_of(process, count=3)
    process._cut_output()
    assert os.fstat(process._output.fileno()).st_size == 1 << 20
    assert process.printed()[0].startswith("xxx")


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_its_process_ends_with_a_fedpriv_that_is_killed(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(GOOD.partition("    number")[0] + "    while True: pass\n", encoding="utf-8")
    code = (
        "import os, sys, pathlib, numpy as np\n"
        "from fedpriv.tools.adapters.process import AdapterProcess, RunRequest\n"
        "process = AdapterProcess(pathlib.Path(sys.argv[1]), '', sys.executable, 60.0)\n"
        "print(process._process.pid, flush=True)\n"
        "runs = [{'seed': 1, 'data': [0]}]\n"
        "process._send({'do': 'runs', 'clients': [1], 'runs': runs}, [np.ones(3)], '')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=False
    )
    stat = Path(f"/proc/{done.stdout.strip()}/stat")
    assert done.stdout.strip()
    # The process is gone, or it is a zombie that init has not collected yet.
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)


def test_a_copy_that_a_round_forks_does_not_answer(opened):
    process = opened(GOOD.replace("    number", "    import os; os.fork()\n    number"))
    seen = rounds_of(process, count=5)
    assert [float(values["update"][0]) for values in seen] == [2.0, 3.0, 4.0, 5.0, 6.0]


def test_global_seeds_are_noticed(opened):
    process = opened(GOOD.replace("    number", "    np.random.seed(3)\n    number"))
    assert process.touched == set()
    rounds_of(process)
    assert process.touched == {"numpy"}


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("text", "make", "words"),
    [
        ("claim = {}\n", "", "the adapter has no holds_still and no round"),
        (GOOD.replace('["seed"]', '"seed"'), "", "holds_still must be a list of words, got str"),
        (GOOD, "make", "it has no function make"),
        ("import no_such_package\n", "", "No module named 'no_such_package' (line 1)"),
        ("def round(:\n", "", "SyntaxError"),
        (GOOD.replace('"clients": 3', '"clients": object()'), "", "the claim must hold plain values"),
    ],
)  # fmt: skip
def test_an_adapter_that_cannot_be_opened_is_a_sentence(opened, text, make, words):
    with pytest.raises(AdapterError) as caught:
        opened(text, make)
    assert words in str(caught.value)
    assert str(caught.value).startswith("mine.py: opening it raised")


def test_a_python_that_is_not_there_is_a_sentence(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(GOOD)
    with pytest.raises(AdapterError, match="--python no/such/python cannot be started"):
        AdapterProcess(file, "", "no/such/python", 5.0)


def test_a_shape_that_changes_is_a_sentence(opened):
    process = opened(GOOD.replace("+ number, number", "[:number] + number, number"))
    claim = read_claim(process.facts["claim"], process.facts["holds_still"])
    subject = AdapterSubject(process, claim, 0)
    first, second = subject.run(1, [subject.quiet, subject.quiet])
    subject.steady(first, 1)
    with pytest.raises(
        AdapterError, match=r"update has the shape \(2,\) in round 2, and had \(1,\)"
    ):
        subject.steady(second, 2)


CLAIM = {
    "unit": "client", "neighbours": "add_or_remove", "sampling": "poisson", "sample_rate": 0.5,
    "clip_norm": 1.0, "noise_multiplier": 1.0, "rounds": 3,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unit": None}, "claim.unit must be given"),
        ({"clip_norm": None}, "claim.clip_norm must be given"),
        ({"sample_rate": None}, "claim.sample_rate must be given"),
        ({"noise_multiplier": None}, "claim.noise_multiplier must be given, or epsilon, delta and rounds"),
        ({"epsilon": 1.0}, "claim.delta must be given"),
        ({"neighbours": "add_remove"}, "claim.neighbours must be one of add_or_remove"),
        ({"sample_rate": 1.5}, "claim.sample_rate must be > 0 and <= 1, got 1.5"),
        ({"noise_multiplier": -1}, "claim.noise_multiplier must be a number > 0, got -1"),
        ({"denominator": 0}, "claim.denominator must be a number, not 0"),
        ({"rounds": 2.5}, "claim.rounds must be a whole number from 1 to 1,000,000, got 2.5"),
        ({"rounds": None}, "claim.rounds must be given"),
        ({"clip_norm": "1.0"}, "claim.clip_norm must be a number > 0, got '1.0'"),
        ({"epsilon": 1.0, "delta": 0.0}, "verify --adapter judges Gaussian noise only"),
        ({"clip": 1}, "claim has a key that is unknown: clip"),
        ({"sampling": "without_replacement", "sample_size": 99}, "claim.sample_size must be at most 20"),
    ],
)  # fmt: skip
def test_a_claim_that_cannot_be_read_names_key_value_and_what_is_allowed(changes, words):
    claim = {key: value for key, value in {**CLAIM, **changes}.items() if value is not None}
    with pytest.raises(ConfigError) as caught:
        read_claim(claim, ["seed"])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("neighbours", ["add_or_remove", "zero_out"])
@pytest.mark.parametrize("multiplier", [1.0, None])
def test_an_epsilon_that_no_accountant_computes_is_refused(neighbours, multiplier):
    changes = {
        "neighbours": neighbours, "sampling": "without_replacement", "sample_size": 5, "epsilon": 0.01,
        "delta": 1e-5, "noise_multiplier": multiplier,
    }  # fmt: skip
    claim = {key: value for key, value in {**CLAIM, **changes}.items() if value is not None}
    with pytest.raises(
        ConfigError, match=f"no accountant has without_replacement under {neighbours}"
    ):
        read_claim(claim, ["seed"])


def test_what_can_be_held_still_is_checked():
    with pytest.raises(
        ConfigError, match="holds_still must be a list of some of seed, participation"
    ):
        read_claim(CLAIM, ["noise"])


def test_the_least_noise_follows_from_epsilon(wide_cells):
    claim = {k: v for k, v in CLAIM.items() if k != "noise_multiplier"}
    one = read_claim({**claim, "epsilon": 2.0, "delta": 1e-5, "rounds": 1}, ["seed"])
    ten = read_claim({**claim, "epsilon": 2.0, "delta": 1e-5, "rounds": 10}, ["seed"])
    assert one.least
    assert ten.values["update"].noise_multiplier > 1.5 * one.values["update"].noise_multiplier
    assert ten.computed_epsilon(1e-5, 10) == pytest.approx(2.0, rel=1e-3)


def test_noise_is_measured_by_what_one_unit_moves():
    added = read_claim({**CLAIM, "denominator": 10}, [])
    replaced = read_claim({**CLAIM, "denominator": 10, "neighbours": "replace_one"}, [])
    assert added.values["update"].std == pytest.approx(0.1)
    assert replaced.values["update"].std == pytest.approx(0.2)


def test_the_server_needs_no_fedpriv():
    server = Path(sys.modules[AdapterProcess.__module__].__file__).with_name("server.py")
    assert "fedpriv." not in server.read_text("utf-8").replace("fedpriv is not installed.", "")
