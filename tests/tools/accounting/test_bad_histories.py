"""Files that are no history of releases: one sentence each, and nothing in them is run."""

from __future__ import annotations

import json
import os
import pickle
import zipfile

import pytest
import torch
from dp_accounting import dp_event
from histories import (
    DELTA,
    EXPONENTIAL,
    GAUSSIAN,
    described,
    fixed_lots,
    flower,
    opacus,
    plain,
    poisson,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.tools.accounting.event_json import CLASSES, NotAnEvent, releases_of

# ---- files that are none


def deep(levels: int) -> dict:
    event: dict = plain(GAUSSIAN)
    for _ in range(levels):
        event = {"class_name": "SelfComposedDpEvent", "count": 1, "event": event}
    return event


BAD_EVENTS = [
    ({"class_name": "OsSystem"}, "class_name must be one of"),
    ({"class_name": "GaussianDPEvent", "noise_multiplier": 1}, "did you mean GaussianDpEvent"),
    ({"class_name": "GaussianDpEvent"}, "has no noise_multiplier"),
    ({"class_name": "GaussianDpEvent", "noise_multiplier": "1"}, "must be a number"),
    ({"class_name": "GaussianDpEvent", "noise_multiplier": -1}, "noise_multiplier must be"),
    ({"class_name": "GaussianDpEvent", "noise_multiplier": True}, "noise_multiplier must be"),
    ({"class_name": "GaussianDpEvent", "noise_multiplier": 1, "more": 2}, "unknown field more"),
    ({"class_name": "SelfComposedDpEvent", "count": 0, "event": plain(GAUSSIAN)}, "count must be"),
    ({"class_name": "SelfComposedDpEvent", "count": 10**9, "event":
        {"class_name": "SelfComposedDpEvent", "count": 10**9, "event": plain(GAUSSIAN)}}, "more than"),
    ({"class_name": "ComposedDpEvent", "events": 3}, "must be a list"),
    ({"class_name": "PoissonSampledDpEvent", "sampling_probability": 2, "event": plain(GAUSSIAN)}, "<= 1"),
    ({"class_name": "PoissonSampledDpEvent", "sampling_probability": 0.1, "event":
        plain(dp_event.NonPrivateDpEvent())}, "event.event must be one mechanism"),
    ({"class_name": "SampledWithoutReplacementDpEvent", "source_dataset_size": 2, "sample_size": 3,
      "event": plain(GAUSSIAN)}, "at most source_dataset_size"),
    (deep(30), "nested more than 20"),
    (described("ExponentialMechanism"), "has no epsilon"),
    (described("ExponentialMechanism", epsilon=0), "epsilon must be"),
    (described("ExponentialMechanism", epsilon=float("nan")), "epsilon must be finite"),
    (described("PermuteAndFlip", epsilon=-1), "epsilon must be"),
    (described("PermuteAndFlip", epsilon=[1]), "epsilon must be a number"),
    (described("PermuteAndFlip", epsilon=1e9), "<= 1e+06"),
    (described("EpsilonDelta", epsilon=1.0, delta=1.0), "delta must be >= 0 and < 1"),
    (described("EpsilonDelta", epsilon=1.0), "has no delta"),
    (described("DiscreteGaussian", sigma=0, sensitivity=1, dimension=1), "sigma must be"),
    (described("DiscreteGaussian", sigma=1, sensitivity=1, dimension=0), "dimension must be a whole number"),
    (described("ZC", rho=-0.1, xi=0), "rho must be"),
    (described("RandomizedResponse", noise_parameter=1.5, num_buckets=2), "noise_parameter must be"),
    (poisson(0.1, plain(dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(1.0), 2))),
        "or Gaussians composed"),
    (poisson(0.1, poisson(0.1, EXPONENTIAL)), "one mechanism on one sample"),
    (poisson(0.0, EXPONENTIAL), "sampling_probability must be >= 1e-100"),
    (fixed_lots(10, 11, EXPONENTIAL), "at most source_dataset_size"),
    (described("SampledWithReplacement"), "not priced: a unit can be in a lot drawn with replacement"),
    (described("Unsupported"), "not priced: it says that its mechanism is not described"),
    (described("RepeatAndSelect"), "is not priced"),
    (described("SingleEpochTreeAggregation"), "is not priced"),
    (described("MixtureOfGaussians"), "is not priced"),
    ([], "no history"),
    ({"class_name": "NoOpDpEvent"}, "no releases"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("event", "words"), BAD_EVENTS, ids=lambda v: v[:20] if isinstance(v, str) else ""
)
def test_events_that_are_none(refused, event, words):
    said = refused("bad.json", {"event": event} if event else {})
    assert words in said
    assert "bad.json" in said


class Boom:
    def __reduce__(self):
        return os.system, ("touch exploded",)


def test_nothing_in_a_file_is_run(refused, place):
    said = refused("bomb.pt", {"history": [Boom()], "mechanism": "rdp"})
    assert "bomb.pt cannot be read" in said
    assert not (place / "exploded").exists()


def test_a_file_that_was_cut_short_is_refused(refused, place):
    torch.save(opacus(), place / "whole.pt")
    whole = (place / "whole.pt").read_bytes()
    text = json.dumps(opacus(entries=[[1.5, 0.04, 2250]]))
    for share in (0.1, 0.5, 0.9, 0.999):
        assert "cut.pt" in refused("cut.pt", whole[: int(len(whole) * share)])
        assert "it is not JSON" in refused("cut.json", text[: int(len(text) * share)])


def test_other_pickles_are_not_opened(refused, place):
    """Neither a plain pickle nor torch's older format, whatever the name of the file."""
    torch.save(opacus(), place / "old.pt", _use_new_zipfile_serialization=False)
    for name in ("old.pt", "new.pt", "new.json"):
        content = (place / "old.pt").read_bytes() if name == "old.pt" else pickle.dumps(Boom())
        assert name in refused(name, content)
    assert not (place / "exploded").exists()


def test_flags_that_no_choice_mends_are_told_themselves(refused):
    rows = "".join(f"4,.1,{client}\n" for client in range(1001))
    assert "more than 1,000 clients" in refused(
        "run.csv", f"noise_multiplier,sample_rate,client\n{rows}"
    )


def test_a_compressed_archive_is_refused(refused, place):
    torch.save(opacus(), place / "whole.pt")
    with (
        zipfile.ZipFile(place / "whole.pt") as whole,
        zipfile.ZipFile(place / "small.zip", "w", zipfile.ZIP_DEFLATED) as small,
    ):
        for member in whole.infolist():
            small.writestr(member.filename, whole.read(member) + bytes(100_000))
    assert "cannot be read" in refused("again.pt", (place / "small.zip").read_bytes())


BAD_FILES = [
    ("state.pt", {"mechanism": "rdp"}, "no state of an Opacus accountant"),
    ("state.pt", opacus("xyz"), "mechanism, one of rdp, gdp, prv"),
    ("state.pt", opacus(entries="abc"), "a list"),
    ("state.pt", opacus(entries=[]), "no releases"),
    ("state.pt", opacus(entries=[(1.0, 0.1)]), "history entry 1: not (noise multiplier"),
    ("state.pt", opacus(entries=[(1.0, 0.1, 5), (1.0, "x", 5)]), "history entry 2"),
    ("state.pt", opacus(entries=[(0.0, 0.1, 5)]), "noise_multiplier must be"),
    ("state.pt", opacus(entries=[(1.0, 1.1, 5)]), "sample_rate must be"),
    ("state.pt", opacus(entries=[(1.0, 0.1, 2.5)]), "steps must be"),
    ("state.pt", opacus(entries=[(float("nan"), 0.1, 2)]), "noise_multiplier must be finite"),
    ("state.pt", [1, 2], "no state of an Opacus accountant"),
    ("state.pt", opacus(entries=[(torch.ones(2), 0.1, 2)]), "not three numbers"),
    ("state.json", "{", "it is not JSON"),
    ("state.json", "[]", "not a JSON object"),
    ("state.json", "[" * 100_000, "it is not JSON"),
    ("state.json", {}, "no history"),
    ("state.json", {"event": plain(GAUSSIAN), "extra": 1}, "unknown key extra"),
    ("state.json", {"event": plain(GAUSSIAN), "neighbours": "odd"}, "one of add_or_remove, replace_one"),
    ("state.json", {"compositions": []}, "no config"),
    ("state.json", {**flower(), "compositions": []}, "no releases"),
    ("state.json", {**flower(), "schema_version": 2}, "schema_version must be 1"),
    ("state.json", {**flower(), "schema_version": [1]}, "schema_version must be 1"),
    ("state.json", {**flower(), "compositions": [3]}, "composition 1"),
    ("state.json", {**flower(), "compositions": [{"event": {"noise_multiplier": [1], "sample_size": 1,
        "population_size": 2}}]}, "composition 1: noise_multiplier must be"),
    ("state.json", flower("other"), "sampling_method must be one of"),
    ("state.json", flower("without-replacement"), "composition 1"),
    ("state.json", flower(count=0), "steps must be"),
    ("run.csv", "", "needs a column noise_multiplier"),
    ("run.csv", "noise_multiplier\n", "at least one row"),
    ("run.csv", "noise_multiplier,colour\n1,red\n", "column colour is unknown"),
    ("run.csv", "noise_multiplier,sample_rate\n1,.1\n0,.1\n", "line 3: noise_multiplier must be"),
    ("run.csv", "noise_multiplier,sample_rate\n1,x\n", "line 2: sample_rate must be"),
    ("run.csv", "noise_multiplier,sample_rate,sampling\n1,.1,odd\n", "line 2: sampling must be one of"),
    ("run.csv", "noise_multiplier,sample_rate,neighbours\n1,.1,add_or_remove\n1,.1,replace_one\n", "line 3"),
    ("run.csv", "noise_multiplier,sample_rate\n,.1\n", "line 2: noise_multiplier is missing"),
    ("run.csv", "noise_multiplier,sample_rate\n1\n", "line 2"),
    ("run.csv", "noise_multiplier,sample_rate,steps\n1,.1,\n", "line 2: steps is empty"),
    ("run.csv", "noise_multiplier,steps,sampling,client\n8,3,none,ann\n8,6,none,", "last cell is empty"),
    ("state.json", '{"history": [[1.5, 0.04, 2250]], "history": [[9, 0.04, 1]], "mechanism": "rdp"}',
        "the key history is there twice"),
    ("event.json", '{"event": {"class_name": "GaussianDpEvent", "noise_multiplier": 1,'
        ' "noise_multiplier": 9}}',
        "the key noise_multiplier is there twice"),
    ("run.csv", b"noise_multiplier\n\xff\xfe\n", "readable CSV"),
    ("run.pkl", b"\x80\x04K\x01.", "it is not"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "words"), BAD_FILES, ids=lambda v: v[:24] if isinstance(v, str) else ""
)
def test_files_that_are_no_history(refused, name, content, words):
    said = refused(name, content)
    assert words in said
    assert name in said


def test_a_folder_a_missing_file_and_flags_that_contradict(command, place):
    (place / "folder").mkdir()
    (place / "run.csv").write_text("noise_multiplier,sample_rate\n1,.1\n")
    told = ("--sampling", "poisson", "--neighbours", "add_or_remove")
    for words, said in (
        (("--history", "folder"), "not a file"),
        (("--history", "absent.csv"), "not there"),
        (("--history", "run.csv", "--steps", "3"), "--steps cannot be given with --history"),
        (("--history", "run.csv", "--schedule", "run.csv"), "--schedule cannot be given"),
        (("--history", "run.csv", "--view", "sound"), "--view cannot be given"),
        (("--history", "run.csv", "--run", "folder"), "--history cannot be given with --run"),
    ):
        found = command("account", *words, *DELTA)
        assert found.status == 2
        assert said in found.err
    assert "--delta must be given" in command("account", "--history", "run.csv", *told).err


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**12) | st.floats() | st.sampled_from(CLASSES),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["class_name", "event", "events", "count", "noise_multiplier", "sample_size",
                         "sampling_probability", "source_dataset_size", "noise_parameter", "epsilon", "delta",
                         "sigma", "sensitivity", "dimension", "rho", "xi"]),
        inner, max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


@given(value=JSON, neighbours=st.sampled_from([ADD_OR_REMOVE, REPLACE_ONE]))
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
def test_any_json_is_events_or_one_sentence(value, neighbours):
    try:
        found = list(releases_of(value, neighbours))
    except NotAnEvent:
        return
    assert all(isinstance(event, dp_event.DpEvent) and n >= 1 for event, n in found)
