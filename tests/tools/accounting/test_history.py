"""``fedpriv account --history``: what other frameworks ran, at their own numbers, and files that are none."""

from __future__ import annotations

import json
import os
import warnings
import zipfile
from pathlib import Path

import attrs
import pytest
import torch
from dp_accounting import dp_event
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedpriv.privacy.accountants import GdpAccountant, PldAccountant, RdpAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.sampling import PoissonSampling
from fedpriv.tools.accounting.event_json import CLASSES, NotAnEvent, releases_of

DELTA = ("--delta", "1e-5")
POISSON = PoissonSampling(0.04).event(1.5)


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def history(answer, place):
    """What is said of a file with this content."""

    def ask(name: str, content: object, *flags: str, delta: tuple[str, ...] = DELTA) -> dict:
        if name.endswith(".pt"):
            torch.save(content, place / name)
        else:
            text = content if isinstance(content, str) else json.dumps(content)
            (place / name).write_text(text)
        return answer("account", "--history", name, *delta, *flags)

    return ask


@pytest.fixture
def refused(command, place):
    """The sentence with which a file is refused."""

    def ask(name: str, content: object, *flags: str) -> str:
        if isinstance(content, bytes):
            (place / name).write_bytes(content)
        elif name.endswith(".pt"):
            torch.save(content, place / name)
        else:
            (place / name).write_text(content if isinstance(content, str) else json.dumps(content))
        said = command("account", "--history", name, *DELTA, *flags)
        assert said.status == 2, said.out
        assert len(said.err.strip().splitlines()) == 1
        assert "Traceback" not in said.err
        return said.err

    return ask


def epsilon(found: dict, name: str) -> float:
    return found["accountants"][name]["epsilon"]["1e-05"]


def opacus(mechanism: str = "rdp", entries: object = None) -> dict:
    return {"history": [(1.5, 0.04, 2250)] if entries is None else entries, "mechanism": mechanism}


# ---- Opacus


@pytest.mark.parametrize("name", ["state.pt", "state.json"])
@pytest.mark.parametrize("mechanism", ["rdp", "gdp", "prv"])
def test_an_opacus_state_costs_what_opacus_says(history, name, mechanism):
    """Opacus, tests/accountants_test.py: RDP 7.32911117143 of σ = 1.5, q = .04, T = 2250."""
    found = history(name, opacus(mechanism), "--accountant", "rdp")
    assert epsilon(found, "rdp") == pytest.approx(7.32911117143, rel=2e-3)
    assert mechanism in found["releases"]["history"]
    assert "assumed" in found["releases"]["sampling"]
    assert "assumed" in found["releases"]["neighbours"]


def test_what_opacus_itself_saves_is_read(history):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants import RDPAccountant

        accountant = RDPAccountant()
        for sigma in (1.1, 1.1, 1.3):
            accountant.step(noise_multiplier=sigma, sample_rate=0.01)
        known = accountant.get_epsilon(1e-5)
    checkpoint = {
        "module_state_dict": {"w": torch.zeros(3)},
        "privacy_accountant_state_dict": accountant.state_dict(),
    }
    for name, content in (("state.pt", accountant.state_dict()), ("checkpoint.pt", checkpoint)):
        found = history(name, content, "--accountant", "rdp")
        assert epsilon(found, "rdp") <= known * (1 + 1e-9)
        assert epsilon(found, "rdp") == pytest.approx(known, rel=0.05)
        assert found["steps"] == 3


def test_flags_say_what_opacus_does_not(history):
    found = history("state.pt", opacus(entries=[(8.0, 0.01, 10)]), "--sampling", "none")
    assert epsilon(found, "gdp") == pytest.approx(
        GdpAccountant().epsilon_of({dp_event.GaussianDpEvent(8.0): 10}, 1e-5, ADD_OR_REMOVE)
    )
    assert found["releases"]["sampling"] == "none (by its flag)"
    shuffled = history("state.pt", opacus(entries=[(8.0, 0.01, 10)]), "--sampling",
                       "without_replacement", "--records", "1000", "--accountant", "rdp")  # fmt: skip
    assert shuffled["neighbours"] == REPLACE_ONE


# ---- CSV


def test_a_csv_of_stretches(history):
    found = history(
        "run.csv",
        "noise_multiplier,sample_rate,steps\n1.5,.04,20\n1.5,.04,25\n",
        "--accountant", "pld",
    )  # fmt: skip
    assert epsilon(found, "pld") == PldAccountant().epsilon_of({POISSON: 45}, 1e-5, ADD_OR_REMOVE)
    assert "assumed: neither a column nor a flag says" in found["releases"]["sampling"]


def test_a_csv_says_sampling_and_neighbours(history):
    found = history(
        "run.csv",
        "noise_multiplier,sample_rate,sampling,neighbours,records\n4,.1,without_replacement,replace_one,100\n"
        "8,,none,replace_one,\n",
        "--accountant",
        "rdp",
    )
    assert found["neighbours"] == REPLACE_ONE
    assert found["releases"]["sampling"] == "without_replacement and none (the file tells)"
    assert found["steps"] == 2


def test_the_worst_client_of_a_csv_is_priced_with_what_all_released(history):
    found = history(
        "run.csv",
        "noise_multiplier,steps,sampling,client\n8,3,none,ann\n8,6,none,bob\n4,1,none,\n",
        "--accountant", "gdp",
    )  # fmt: skip
    events = {dp_event.GaussianDpEvent(8.0): 6, dp_event.GaussianDpEvent(4.0): 1}
    assert epsilon(found, "gdp") == GdpAccountant().epsilon_of(events, 1e-5, ADD_OR_REMOVE)
    assert "the worst of 2 clients" in found["releases"]["history"]


def test_a_flag_is_for_what_no_column_says(history, refused):
    rows = "noise_multiplier,steps\n1.5,10\n"
    assert history("run.csv", rows, "--sample-rate", ".04")["steps"] == 10
    assert "sample_rate is missing" in refused("run.csv", rows)
    both = "noise_multiplier,sample_rate,sampling\n1.5,.04,poisson\n"
    assert "--sampling cannot be given" in refused("run.csv", both, "--sampling", "none")
    assert "--sample-rate cannot be given" in refused("run.csv", both, "--sample-rate", ".1")


def test_a_row_that_says_nothing_is_told_apart(history):
    rows = "noise_multiplier,sample_rate,sampling\n4,.1,poisson\n8,.1,\n"
    found = history("run.csv", rows, "--accountant", "rdp")
    assert "assumed" in found["releases"]["sampling"]
    flag = history(
        "run.csv", rows.replace("poisson", ""), "--sampling", "poisson", "--accountant", "rdp"
    )
    assert found["accountants"] == flag["accountants"]
    assert "by its flag" in flag["releases"]["sampling"]


def test_too_many_clients_are_refused(refused):
    rows = "".join(f"4,none,{client}\n" for client in range(1001))
    assert "more than 1,000 clients" in refused(
        "run.csv", f"noise_multiplier,sampling,client\n{rows}"
    )


# ---- events of dp_accounting


def plain(event: dp_event.DpEvent) -> dict:
    """As the documentation writes it."""

    def value(own: object) -> object:
        if isinstance(own, dp_event.DpEvent):
            return plain(own)
        return [value(part) for part in own] if isinstance(own, (list, tuple)) else own

    fields = {f.name: value(getattr(event, f.name)) for f in attrs.fields(type(event))}
    return {"class_name": type(event).__name__, **fields}


GAUSSIAN = dp_event.GaussianDpEvent(2.0)
EVENTS = [
    (
        dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.04, GAUSSIAN), 7),
        ADD_OR_REMOVE,
    ),
    (dp_event.ComposedDpEvent([GAUSSIAN, dp_event.NoOpDpEvent(), GAUSSIAN]), ADD_OR_REMOVE),
    (dp_event.LaplaceDpEvent(3.0), ADD_OR_REMOVE),
    (dp_event.PoissonSampledDpEvent(0.1, dp_event.LaplaceDpEvent(3.0)), ADD_OR_REMOVE),
    (dp_event.DiscreteLaplaceDpEvent(0.3, 1), ADD_OR_REMOVE),
    (dp_event.RandomizedResponseDpEvent(0.3, 2), REPLACE_ONE),
    (dp_event.NonPrivateDpEvent(), ADD_OR_REMOVE),
    (dp_event.PoissonSampledDpEvent(1.0, GAUSSIAN), ADD_OR_REMOVE),
]


@pytest.mark.parametrize(("event", "neighbours"), EVENTS, ids=lambda v: type(v).__name__[:24])
def test_events_cost_what_dp_accounting_says(history, event, neighbours):
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

    from fedpriv.privacy.core.rdp import RELATION

    known = PLDAccountant(RELATION[neighbours]).compose(event).get_epsilon(1e-5)
    found = history(
        "e.json", {"event": plain(event), "neighbours": neighbours}, "--accountant", "pld"
    )
    assert float(epsilon(found, "pld")) == pytest.approx(known, rel=1e-3)
    assert found["releases"]["neighbours"] == f"{neighbours} (the file tells)"


def test_a_cap_is_kept():
    event = dp_event.TruncatedSubsampledGaussianDpEvent(100, 0.1, 20, 2.0)
    found = list(releases_of(plain(event), ADD_OR_REMOVE))
    assert found == [(event, 1)]


def test_an_event_alone_is_a_history(history):
    found = history("e.json", {"module_name": "dp_accounting.dp_event", **plain(GAUSSIAN)})
    assert "assumed" in found["releases"]["neighbours"]
    assert (
        "flag"
        in history("e.json", plain(GAUSSIAN), "--neighbours", REPLACE_ONE)["releases"]["neighbours"]
    )


@pytest.mark.parametrize("kind", ["gaussian", "without_replacement"])
def test_replacing_moves_two_clip_norms(history, kind):
    """As dp_accounting's PLD takes it; its RDP does not double."""
    event, halved = GAUSSIAN, dp_event.GaussianDpEvent(1.0)
    if kind == "without_replacement":
        event, halved = (
            dp_event.SampledWithoutReplacementDpEvent(100, 10, e) for e in (event, halved)
        )
    found = history(
        "e.json", {"event": plain(event), "neighbours": REPLACE_ONE}, "--accountant", "rdp"
    )
    assert epsilon(found, "rdp") == RdpAccountant().epsilon_of({halved: 1}, 1e-5, REPLACE_ONE)


def test_gaussians_on_one_sample_are_one():
    pair = dp_event.ComposedDpEvent([GAUSSIAN, dp_event.SelfComposedDpEvent(GAUSSIAN, 3)])
    found = list(releases_of(plain(dp_event.PoissonSampledDpEvent(0.1, pair)), ADD_OR_REMOVE))
    assert found == [(dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(1.0)), 1)]


# ---- Flower


def flower(
    sampling: str = "no-amplification", relation: str = "add-or-remove-one", count: int = 5
) -> dict:
    return {
        "schema_version": 1, "backend": "rdp",
        "config": {"target_delta": 1e-5, "population_size": 100, "neighboring_relation": relation,
                   "sampling_method": sampling, "max_epsilon": None},
        "orders": [2.0],
        "compositions": [{"event": {"noise_multiplier": 4.0, "sample_size": 10, "population_size": 100},
                          "count": count}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("sampling", "relation", "event"),
    [
        ("no-amplification", "add-or-remove-one", dp_event.GaussianDpEvent(4.0)),
        ("poisson", "add-or-remove-one", PoissonSampling(0.1).event(4.0)),
        ("without-replacement", "replace-one", dp_event.SampledWithoutReplacementDpEvent(
            100, 10, dp_event.GaussianDpEvent(2.0))),
    ],
)  # fmt: skip
def test_a_flower_accountant(history, sampling, relation, event):
    found = history("f.json", flower(sampling, relation), "--accountant", "rdp", delta=())
    relation = relation.replace("-", "_").removesuffix("_one") if "add" in relation else REPLACE_ONE
    assert epsilon(found, "rdp") == RdpAccountant().epsilon_of({event: 5}, 1e-5, relation)
    assert found["delta"] == [1e-5]  # of its budget
    assert "the file tells" in found["releases"]["sampling"]


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
        plain(dp_event.NonPrivateDpEvent())}, "event.event must be one GaussianDpEvent"),
    ({"class_name": "SampledWithoutReplacementDpEvent", "source_dataset_size": 2, "sample_size": 3,
      "event": plain(GAUSSIAN)}, "at most source_dataset_size"),
    (deep(30), "nested more than 20"),
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
    assert "--delta must be given" in command("account", "--history", "run.csv").err


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**12) | st.floats() | st.sampled_from(CLASSES),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["class_name", "event", "events", "count", "noise_multiplier", "sample_size",
                         "sampling_probability", "source_dataset_size", "noise_parameter"]),
        inner, max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


@given(value=JSON, neighbours=st.sampled_from([ADD_OR_REMOVE, REPLACE_ONE]))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_json_is_events_or_one_sentence(value, neighbours):
    try:
        found = list(releases_of(value, neighbours))
    except NotAnEvent:
        return
    assert all(isinstance(event, dp_event.DpEvent) and n >= 1 for event, n in found)
