"""A clipper or noise schedule in the place of that of the algorithm's paper is said in plan and statement."""

from __future__ import annotations

import pytest

import fedpriv
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.plan import make_plan


def said(*overrides: str) -> list[str]:
    plan = make_plan(build_parts(fedpriv.compose([*overrides, "dataset=digits"])))
    return [words for words in plan.caveats if " its own " in words]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("overrides", "keys"),
    [
        (["adap_dpfl", "noise_schedule=calibrated", "rounds=2"], ["noise_schedule=calibrated"]),
        (["adap_dpfl", "clipper=constant"], ["clipper=constant"]),
        (["wei_crd", "noise_schedule=calibrated", "rounds=2"], ["noise_schedule=calibrated"]),
        (["dp_fl", "aggregation=median"], ["aggregation=median"]),
        (["cdp_fedavg", "aggregation=bucketed_median"], ["aggregation=bucketed_median"]),
        (["wei_cdp", "noise_schedule=constant", "rounds=2"], ["noise_schedule=constant"]),
        (
            ["adap_dpfl", "clipper=constant", "noise_schedule=constant"],
            ["noise_schedule=constant", "clipper=constant"],
        ),
    ],
)
def test_a_replaced_part_is_named_with_the_algorithms_own(overrides, keys):
    sentences = said(f"algorithm={overrides[0]}", *overrides[1:])
    assert len(sentences) == len(keys)
    for sentence, key in zip(sentences, keys, strict=True):
        assert sentence.startswith(f"{overrides[0]} with {key} instead of its own ")


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm=adap_dpfl"],
        ["algorithm=wei_crd"],
        ["algorithm=dp_fl", "noise_schedule=calibrated", "rounds=2"],
        ["algorithm=dp_fl", "clipper=quantile", "clipper.split=false"],
        ["algorithm=fedavg"],
        ["algorithm=fedavg", "aggregation=median"],
    ],
)
def test_parts_of_the_paper_and_plain_ones_need_no_word(overrides):
    assert said(*overrides) == []


def test_the_statement_says_it(train):
    result = train("algorithm=adap_dpfl", "noise_schedule=constant", "rounds=1")
    assert "noise_schedule=constant instead of its own validation_decay" in str(
        result.privacy["caveats"]
    )
