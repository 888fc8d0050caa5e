"""``publish=true``: secrets from the operating system, and a folder that may be given away."""

from __future__ import annotations

import json
import stat

import pandas as pd
import pytest
import torch
import yaml

from fedpriv.experiment import machine

RUN = ("algorithm=dp_fl", "epsilon=1", "rounds=4", "evaluation_interval=2", "publish=true")
FILES = {"model.pt", "privacy.txt", "privacy.json", "config.yaml"}


@pytest.fixture
def published(ran):
    return ran(*RUN)


def names(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_public_folder_holds_what_the_statement_covers_and_nothing_else(published):
    public = published.folder / "public"
    assert names(public) == FILES
    words = " ".join((public / "privacy.txt").read_text().split())
    assert words.endswith("This folder may be published.")
    assert words.startswith("Every training record of every client is protected by (")
    assert "Simulation" not in words
    model = torch.load(public / "model.pt", weights_only=True)
    assert model.keys() == torch.load(published.folder / "model.pt", weights_only=True).keys()


def test_no_seed_and_no_path_is_in_it(published):
    config = yaml.safe_load((published.folder / "public" / "config.yaml").read_text())
    assert config["algorithm"]["name"] == "dp_fl"
    text = yaml.safe_dump(config)
    for word in ("seed", "runtime", "path"):
        assert f"{word}:" not in text
    key = (published.folder / "secret_key").read_text().strip()
    for path in (published.folder / "public").iterdir():
        assert key.encode() not in path.read_bytes()
        assert bytes.fromhex(key) not in path.read_bytes()


def test_the_key_has_256_bits_and_its_owner_alone_may_read_it(published):
    file = published.folder / "secret_key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(bytes.fromhex(file.read_text())) == 32


def test_diagnostics_are_off(published):
    folder = published.folder
    assert not (folder / "clients.csv").exists()
    metrics = pd.read_csv(folder / "metrics.csv")
    assert metrics["train_loss"].isna().all()
    assert metrics["gradient_norm"].isna().all()
    assert "seconds" not in metrics
    assert published.summary["seconds"] is None


def test_metrics_are_public_where_the_test_records_are(train):
    result = train(*RUN, "publish_test_metrics=true")
    assert names(result.folder / "public") == FILES | {"metrics.csv"}
    metrics = pd.read_csv(result.folder / "public" / "metrics.csv")
    assert metrics["test_accuracy"].notna().any()


def test_two_such_runs_have_nothing_in_common(train):
    one, other = (train(*RUN, name=name) for name in ("one", "other"))
    weights = [
        torch.load(result.folder / "public" / "model.pt", weights_only=True)
        for result in (one, other)
    ]
    assert not any(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_the_statement_of_the_run_names_the_secret(published):
    words = " ".join((published.folder / "privacy.txt").read_text().split())
    assert "The folder public/ may be published" in words
    assert "secret_key" in words
    assert json.loads((published.folder / "privacy.json").read_text())["randomness"] == (
        "the operating system's entropy"
    )


# ---- resume


@pytest.fixture
def stopped(train, tmp_path):
    """() → the folder of a published run that was stopped after its first round."""

    def run(name: str = "stopped"):
        stop = tmp_path / "stop"
        stop.touch()
        result = train(*RUN, f"runtime.stop_file={stop}", name=name)
        stop.unlink()
        assert result.stop_reason == "interrupted"
        return result.folder

    return run


def test_an_interrupted_one_has_no_public_folder_and_goes_on(stopped, train):
    folder = stopped()
    assert not (folder / "public").exists()
    words = " ".join((folder / "privacy.txt").read_text().split())
    assert "Nothing of this run may be published: the run has not ended" in words
    result = train(*RUN, f"resume={folder}", name="stopped")
    assert result.stop_reason == "rounds"
    assert names(folder / "public") == FILES


def test_resuming_gives_the_run_it_would_have_been(stopped, train, monkeypatch):
    """With the same key: resumed or not, bit for bit."""
    folder = stopped()
    key = (folder / "secret_key").read_text()
    resumed = train(*RUN, f"resume={folder}", name="stopped")
    from fedpriv.experiment import assemble

    def same_key(run_folder):
        run_folder.secret_key.write_text(key)

    monkeypatch.setattr(assemble, "create_key", same_key)
    whole = train(*RUN, name="whole")
    weights = [
        torch.load(result.folder / "model.pt", weights_only=True) for result in (resumed, whole)
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.few(1)
@pytest.mark.parametrize("damage", ["gone", "short", "binary"])
def test_without_its_key_it_does_not_go_on(damage, stopped, command):
    folder = stopped()
    key = folder / "secret_key"
    if damage == "gone":
        key.unlink()
    else:
        key.write_bytes(b"abcd" if damage == "short" else b"\xff" * 64)
    said = command("train", *RUN, f"resume={folder}")
    assert said.status == 2
    assert "secret_key is missing or damaged" in said.sentence


def test_with_another_key_it_does_not_go_on(stopped, command):
    folder = stopped()
    (folder / "secret_key").write_text("00" * 32 + "\n")
    said = command("train", *RUN, f"resume={folder}")
    assert said.status == 2
    assert "the secret key have changed since" in said.sentence


def test_it_goes_on_elsewhere_where_no_round_is_run_again(stopped, train, monkeypatch):
    """Rounds that are run again are compared by their digests (test_ledger_on_disk)."""
    folder = stopped()
    monkeypatch.setattr(machine, "processor", lambda: "another one")
    assert train(*RUN, f"resume={folder}", name="stopped").stop_reason == "rounds"


def test_a_table_that_was_cut_since_is_not_filled_up(stopped, command):
    """It was filled with 17,970 zeros, and published."""
    folder = stopped()
    (folder / "metrics.csv").write_text("round\n")
    said = command("train", *RUN, f"resume={folder}")
    assert said.status == 2
    assert "metrics.csv is not the table that its checkpoint was written with" in said.sentence
    assert not (folder / "public").exists()


def test_a_simulation_goes_on_anywhere(train, tmp_path, monkeypatch):
    stop = tmp_path / "stop"
    stop.touch()
    simulation = RUN[:-1]
    folder = train(*simulation, f"runtime.stop_file={stop}", name="simulated").folder
    stop.unlink()
    monkeypatch.setattr(machine, "processor", lambda: "another one")
    result = train(*simulation, f"resume={folder}", name="simulated")
    assert result.stop_reason == "rounds"


def test_other_data_behind_the_same_path_are_not_gone_on_with(train, tmp_path, command):
    """Of any run: what was released of the old records and of the new ones would differ by no noise."""
    path = tmp_path / "own.txt"
    rows = [f"{i} {i % 7} {int(i > 50)}" for i in range(100)]
    path.write_text("\n".join(rows) + "\n")
    stop = tmp_path / "stop"
    stop.touch()
    run = ("algorithm=dp_fl", "dataset=ipums", f"dataset.path={path}", "partition.clients=2",
           "dataset.scale={centre: [50, 3], width: [50, 3]}", "rounds=3", "epsilon=null")  # fmt: skip
    folder = train(*run, f"runtime.stop_file={stop}", name="own").folder
    stop.unlink()
    path.write_text("\n".join(["77 3 1", *rows[1:]]) + "\n")
    said = command("train", *run, f"resume={folder}")
    assert said.status == 2
    assert "the configuration names, or the secret key have changed since" in said.sentence


def test_a_run_whose_epsilon_protects_nobody_has_no_public_folder(train):
    result = train(
        "algorithm=dp_fl",
        "epsilon=null",
        "rounds=2",
        "publish=true",
        "noise_schedule.noise_multiplier=0.05",
    )
    assert not (result.folder / "public").exists()
    words = " ".join((result.folder / "privacy.txt").read_text().split())
    assert "Nothing of this run may be published: its sound epsilon is" in words


def test_a_delta_that_publishes_a_record_outright_has_no_public_folder(train):
    result = train(*RUN[:1], "delta=0.02", *RUN[1:])
    assert not (result.folder / "public").exists()
    words = " ".join((result.folder / "privacy.txt").read_text().split())
    assert "its delta, 0.02, is not smaller than one over the number it protects" in words


def test_an_audit_of_a_published_run_is_refused(command):
    said = command("train", *RUN, "audit=membership")
    assert said.status == 2
    assert "audit must be null with publish=true" in said.sentence


@pytest.mark.thorough
def test_where_the_public_folder_is_and_why_there_is_none_is_shown(command):
    lines = ("runtime.progress=lines", "runtime.plots=false", "runtime.run_dir=run")
    assert "public:     run/public" in command("train", *RUN, *lines).out
    none = command("train", *RUN, *lines[:2], "runtime.run_dir=other", "delta=0.02").out
    assert "public:     nothing: its delta" in " ".join(none.split("\n")).replace(
        "public: ", "public: "
    )


@pytest.mark.thorough
def test_a_figure_cannot_have_published_runs(command):
    said = command("figure", "adap_dpfl/fig5", "--quick", "publish=true")
    assert said.status == 2
    assert "publish must be false in a figure" in said.sentence


def test_the_key_is_null_by_default_so_that_fingerprints_stay():
    import fedpriv
    from fedpriv.common.config import fingerprint, identity

    config = fedpriv.compose([])
    assert config.publish is None
    assert config.publish_test_metrics is None
    found = identity(config)
    old = {k: v for k, v in found.items() if not k.startswith("publish")}
    assert fingerprint(found) == fingerprint(old)


def test_a_key_left_by_a_run_that_never_began_is_replaced(tmp_path, train):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "secret_key").write_text("00" * 32)
    result = train(*RUN)
    assert (result.folder / "secret_key").read_text().strip() != "00" * 32
