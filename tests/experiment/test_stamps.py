"""``publish=true`` with code outside fedpriv needs a passing verification of that code."""

from __future__ import annotations

import json

import pytest

from fedpriv.common.config import compose
from fedpriv.experiment.stamps import refuse_without_stamp, stamp_of, write_stamp

CODE = """
from fedpriv.privacy.clippers import ConstantClipper

import {helper}


class Mine(ConstantClipper):
    pass
"""
SHIPPED = ("algorithm=dp_fl", "epsilon=1", "publish=true", "rounds=2")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def given(tmp_path, monkeypatch):
    """The overrides of a run with a clipper of one's own, and the files of its code."""
    name = "own_" + "".join(c for c in tmp_path.name if c.isalnum())
    helper = tmp_path / f"{name}_helper.py"
    helper.write_text("C = 1\n")
    (tmp_path / f"{name}.py").write_text(CODE.format(helper=helper.stem))
    monkeypatch.syspath_prepend(str(tmp_path))
    return (*SHIPPED, f"clipper._target_={name}.Mine"), tmp_path / f"{name}.py", helper


QUICK = ("runtime.progress=none", "runtime.plots=false", "runtime.run_dir=run")


@pytest.mark.parametrize("more", [(), ("dry_run=true",)])
def test_own_code_that_was_not_verified_is_not_published(more, given, command, tmp_path):
    """Once a clipper that scales by the largest norm stood in a public folder with a finite epsilon."""
    said = command("train", *given[0], *QUICK, *more)
    assert said.status == 2
    assert "publish must be false with code outside fedpriv (clipper is own_" in said.sentence
    assert "fedpriv verify" in said.sentence
    assert not (tmp_path / "run").exists()


def test_code_of_fedpriv_alone_needs_no_stamp():
    assert stamp_of(compose(list(SHIPPED))) is None
    refuse_without_stamp(compose(list(SHIPPED)))


def test_a_verification_that_passes_lets_it_be_published(given, command, tmp_path, monkeypatch):
    from fedpriv.tools.verify import command as verify
    from fedpriv.tools.verify.table import Check

    monkeypatch.setattr(verify, "all_checks", lambda subject: [Check("charge", "a", "1", "1")])
    smaller = ("rounds=7", "partition.clients=4", "model=mlp", "seed=3", "publish=false")
    verified = command("verify", *given[0], *smaller, "--synthetic")
    assert verified.status == 0, verified.err
    assert "stamp for publish=true" in verified.out
    said = command("train", *given[0], *QUICK)
    assert said.status == 0, said.err
    words = " ".join((tmp_path / "run" / "public" / "privacy.txt").read_text().split())
    assert "Code outside fedpriv takes part: clipper (own_" in words


def test_a_verification_that_fails_leaves_no_stamp(given, command, monkeypatch):
    from fedpriv.tools.verify import command as verify
    from fedpriv.tools.verify.table import Check

    wrong = Check("charge", "a", "1", "2", passed=False)
    monkeypatch.setattr(verify, "all_checks", lambda subject: [wrong])
    verified = command("verify", *given[0])
    assert verified.status == 1
    assert "stamp" not in verified.out
    assert command("train", *given[0], *QUICK).status == 2


@pytest.mark.thorough
def test_a_run_of_ones_own_code_passes_the_real_checks_and_is_stamped(given, command, monkeypatch):
    from fedpriv.tools.verify import checks
    from fedpriv.tools.verify import command as verify

    few = checks.all_checks
    monkeypatch.setattr(verify, "all_checks", lambda subject: few(subject, 400))
    verified = command("verify", *given[0], "partition=iid", "partition.clients=2", "--rounds", "2")
    assert verified.status == 0, verified.out
    refuse_without_stamp(compose([*given[0], "partition=iid", "partition.clients=5"]))


SAME = {
    "rounds": "rounds=9",
    "seeds": "seed=5",
    "noise": "noise_seed=5",
    "clients": "partition.clients=4",
    "a model of fedpriv's": "model=mlp",
    "how often it is evaluated": "evaluation_interval=2",
    "that its metrics are public": "publish_test_metrics=true",
}
OTHER = {
    "the clip norm": "clipper.clip_norm=2",
    "the noise": "noise_schedule.noise_multiplier=3",
    "the algorithm": "algorithm=adap_dpfl",
    "the sampling": "algorithm.sample_rate=0.2",
    "delta": "delta=1e-6",
    "another partition": "partition=iid",
}


@pytest.mark.parametrize("name", SAME)
def test_what_the_mechanism_does_not_depend_on_may_be_another(name, given):
    assert stamp_of(compose([*given[0], SAME[name]])) == stamp_of(compose(list(given[0])))


@pytest.mark.parametrize("name", OTHER)
def test_what_the_mechanism_depends_on_is_the_same(name, given):
    assert stamp_of(compose([*given[0], OTHER[name]])) != stamp_of(compose(list(given[0])))


@pytest.mark.parametrize("file", [1, 2])
def test_files_of_ones_own_and_what_they_import_are_as_they_were(file, given):
    before = stamp_of(compose(list(given[0])))
    write_stamp(before, {})
    refuse_without_stamp(compose(list(given[0])))
    given[file].write_text(given[file].read_text() + "\n# edited\n")
    assert stamp_of(compose(list(given[0]))) != before


def test_another_fedpriv_needs_another_stamp(given, monkeypatch):
    from fedpriv.experiment import stamps

    before = stamp_of(compose(list(given[0])))
    monkeypatch.setattr(stamps, "_source_digest", lambda: "another")
    assert stamp_of(compose(list(given[0]))) != before


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps({"stamp": "another"})])
def test_a_damaged_stamp_is_none(text, given):
    from fedpriv.common.errors import ConfigError

    path = stamp_of(compose(list(given[0])))
    write_stamp(path, {})
    path.write_text(text)
    with pytest.raises(ConfigError, match="has not passed fedpriv verify"):
        refuse_without_stamp(compose(list(given[0])))
