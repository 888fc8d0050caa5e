"""A dry run foretells the sound ε that the finished run reports."""

from __future__ import annotations

import pytest

RARE = ("algorithm=cdp_fedavg", "algorithm.client_rate=0.02", "partition.clients=200", "rounds=3")
QUIET = ("runtime.progress=none", "runtime.plots=false")


def sound_in_the_plan(command, *overrides: str) -> str | None:
    said = command("train", *overrides, "dry_run=true")
    assert said.status == 0, said.err
    rows = [line.split("│")[1:3] for line in said.out.splitlines() if line.startswith("│")]
    return {name.strip(): words for name, words in rows}.get("sound epsilon")


@pytest.mark.parametrize("budget", ["epsilon=8", "epsilon=null"])
def test_the_plan_states_what_the_run_will_report(command, train, budget):
    planned = sound_in_the_plan(command, *RARE, budget)
    reported = train(*RARE, budget, *QUIET).privacy["epsilon_sound"]
    number, _, words = planned.strip().partition(" ")
    assert 0 <= float(number) - reported <= 1e-6
    assert words.startswith("by PLD")


@pytest.mark.parametrize(
    "overrides",
    [
        ("algorithm=cdp_fedavg",),  # RDP is nearly as tight
        (*RARE, "accountant=pld"),
        ("algorithm=dp_fl", "algorithm.sampling=fixed_size"),  # depends on the client's records
        ("algorithm=adap_dpfl",),  # noise that adapts: the budget is reported
        ("algorithm=fedavg",),
        (*RARE, "noise_schedule.noise_multiplier=0.05", "epsilon=null"),  # either is vacuous
    ],
)
def test_there_is_no_second_number_where_it_is_no_better(command, overrides):
    assert sound_in_the_plan(command, *overrides) is None
