from __future__ import annotations

import pytest

from fedpriv.common.errors import (
    ArgumentError,
    ConfigError,
    DataError,
    FedprivError,
    did_you_mean,
    nearest,
    show,
)


def test_a_configuration_error_reads_as_one_sentence():
    error = ConfigError("clipper.clip_norm", -1, "> 0")
    assert str(error) == "clipper.clip_norm must be > 0, got -1"


def test_a_configuration_error_may_say_what_to_do():
    error = ConfigError("epsilon", 0.1, ">= 0.2", "raise it or set rounds")
    assert str(error) == "epsilon must be >= 0.2, got 0.1; raise it or set rounds"


def test_a_configuration_error_may_be_a_sentence_of_its_own():
    assert str(ConfigError("resume: nothing to resume")) == "resume: nothing to resume"


def test_an_argument_error_reads_as_one_sentence():
    assert str(ArgumentError("beta", 2, "<= 1")) == "beta must be <= 1, got 2"


def test_an_argument_error_becomes_one_of_its_config_key():
    error = ArgumentError("beta", 2, "<= 1", "it never grows").within("noise_schedule")
    assert isinstance(error, ConfigError)
    assert str(error) == "noise_schedule.beta must be <= 1, got 2; it never grows"


def test_an_argument_at_the_root_keeps_its_name():
    assert ArgumentError("delta", 2, "< 1").within("").key == "delta"


@pytest.mark.parametrize(("error", "status"), [(FedprivError, 1), (ConfigError, 2), (DataError, 2)])
def test_each_error_ends_with_its_status(error, status):
    assert error.exit_status == status
    assert issubclass(error, FedprivError)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (2.5, "2.5"),
        ("a\nb", "a b"),
        ([1, 2], "[1, 2]"),
    ],
)
def test_a_value_is_shown_as_a_user_would_type_it(value, shown):
    assert show(value) == shown


def test_a_long_value_is_cut_to_a_line():
    shown = show("x" * 200)
    assert shown == "x" * 77 + "..."
    assert show("x" * 80) == "x" * 80


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fedvag", "fedavg"),
        ("dp_fll", "dp_fl"),
        ("adap", "adap_dpfl"),
        ("completely_else", None),
        ("", None),
    ],
)
def test_the_nearest_known_name_is_offered(name, expected):
    assert nearest(name, ["fedavg", "dp_fl", "adap_dpfl"]) == expected


def test_a_short_beginning_is_enough():
    assert nearest("a", ["fedavg", "adap_dpfl"]) == "adap_dpfl"


def test_nothing_is_near_where_nothing_is_known():
    assert nearest("fedavg", []) is None


def test_the_known_names_may_be_read_once():
    assert nearest("a", iter(["fedavg", "adap_dpfl"])) == "adap_dpfl"


def test_a_hint_is_empty_where_no_name_is_near():
    assert did_you_mean("dp_fll", ["fedavg", "dp_fl"], "; ") == "; did you mean dp_fl?"
    assert did_you_mean("xyz", ["fedavg"], "; ") == ""
