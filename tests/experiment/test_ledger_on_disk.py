"""The ledger grows with the run: a killed run has its cost, and rounds that are run again are compared."""

from __future__ import annotations

import csv
from contextlib import contextmanager
from pathlib import Path

import pytest
from feature_runs import FEATURES, NORMALIZED

from fedpriv.algorithms.trainer import Trainer
from fedpriv.common import notices
from fedpriv.common.errors import ReleaseError
from fedpriv.experiment.observers import Metrics
from fedpriv.privacy.core.names import SOUND
from fedpriv.privacy.mechanisms import OpenRound
from fedpriv.store.ledger_file import COLUMNS, read_ledger

NOISE = ("noise_schedule=constant", "noise_schedule.noise_multiplier=2")
RECORDS = ("algorithm=dp_fl", *NOISE)
CENTRAL = ("algorithm=cdp_fedavg", "algorithm.client_rate=0.5", "noise_schedule=constant")
KINDS = {
    "records": (*RECORDS, "algorithm.local_steps=2"),
    "the best round decides": ("algorithm=adap_dpfl", "noise_schedule.beta=0.99"),
    "a secret cohort": CENTRAL,
    "bits": ("algorithm=ldp_fedsgd", "clipper=quantile"),
    "correlated": ("algorithm=dp_ftrl", "algorithm.min_separation=2", *NOISE),
    "aborted rounds": (
        "algorithm=ddp_fedavg", *NOISE, "algorithm.dropout=0.3", "algorithm.tolerated_dropouts=2",
    ),
    "statistics": (*FEATURES, *NORMALIZED, *RECORDS, "rounds=6"),
    "lots of a fixed size": (*RECORDS, "algorithm.sampling=fixed_size", "partition=dirichlet"),
}  # fmt: skip
RUN = ("rounds=6", "epsilon=null", "runtime.checkpoint_interval=100", "partition.clients=8")


class Died(BaseException):
    """Stands for the end of the process."""


@contextmanager
def dying(monkeypatch, kind: type, name: str, call: int):
    """Let the ``call``-th call of a method be the last thing that happens."""
    real, calls = getattr(kind, name), [0]

    def counted(*arguments):
        calls[0] += 1
        if calls[0] == call:
            raise Died
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(kind, name, counted)
        with pytest.raises(Died):
            yield


@pytest.fixture
def killed(train, monkeypatch, tmp_path):
    """(overrides, after: rounds) → the folder of a run that was killed with the checkpoint of its start."""

    def run(*overrides: str, after: int = 4, name: str = "killed") -> Path:
        with dying(monkeypatch, Metrics, "see", after):
            train(*RUN, *overrides, name=name)
        return tmp_path / name

    return run


def samples(folder: Path) -> int:
    """The largest number of samples that a client is charged for."""
    ledger = read_ledger(folder / "ledger.csv", SOUND)
    return max(sum(counts.values()) for counts in ledger.of_client.values())


def other_release(folder: Path, which: int) -> int:
    """Change the digest of the round with this index among those after the checkpoint, as another processor
    would; return its number."""
    path = folder / "ledger.csv"
    rounds = [row for row in csv.reader(path.read_text().splitlines()) if len(row[-1]) == 16]
    path.write_text(path.read_text().replace(rounds[which][-1], "0" * 16))
    return int(rounds[which][-2])


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_has_its_cost_and_goes_on_as_if_it_had_not_been(
    kind, killed, train, assert_same_run
):
    """Once the cost of the rounds after the checkpoint was lost."""
    folder = killed(*KINDS[kind])
    found = read_ledger(folder / "ledger.csv", SOUND)
    four = train(*KINDS[kind], *RUN, "rounds=4", name="four")
    assert found.neighbours == read_ledger(four.folder / "ledger.csv", SOUND).neighbours
    if kind not in ("the best round decides", "aborted rounds"):  # σ, or streams, follow T there
        assert samples(folder) == samples(four.folder)
    train(*KINDS[kind], *RUN, f"resume={folder}", name="killed")
    whole = train(*KINDS[kind], *RUN, name="whole")
    assert_same_run(folder, whole.folder)
    assert (folder / "ledger.csv").read_text().startswith(",".join(COLUMNS) + "\n")


def test_the_cost_of_a_killed_run_is_told_at_its_own_delta(killed, command):
    said = command("account", "--run", str(killed(*RECORDS)), "--accountant", "rdp")
    assert said.status == 0, said.err
    assert "1e-05" in said.out


def test_a_round_is_on_disk_before_anything_of_it_is_computed(train, monkeypatch, tmp_path):
    with dying(monkeypatch, Trainer, "round", 3):
        train(*RECORDS, *RUN, name="killed")
    rows = (tmp_path / "killed" / "ledger.csv").read_text().splitlines()
    assert [row.rsplit(",", 2)[1] for row in rows] == ["round", "1", "2", "3"]
    assert rows[-1].endswith(",3,")  # nobody read what it released
    assert samples(tmp_path / "killed") == 3


def test_what_was_released_is_on_disk_before_anybody_reads_it(train, monkeypatch, tmp_path):
    with dying(monkeypatch, Metrics, "see", 1):
        train(*RECORDS, *RUN, name="killed")
    *_, row = csv.reader((tmp_path / "killed" / "ledger.csv").read_text().splitlines())
    assert len(row[-1]) == 16


def test_a_secret_cohort_never_stands_in_a_file(killed):
    folder = killed(*CENTRAL, "runtime.diagnostics=false")
    rows = [*csv.DictReader((folder / "ledger.csv").read_text().splitlines())]
    assert {row["clients"] for row in rows} == {"0-7"}
    text = (folder / "ledger.csv").read_text().splitlines()
    assert all(len(line) < 130 for line in text[1:])


@pytest.mark.parametrize("name", ["killed", "secret"])
def test_rounds_of_a_published_run_are_synced_to_disk(name, killed, monkeypatch):
    synced = []
    monkeypatch.setattr("fedpriv.store.ledger_file.os.fsync", synced.append)
    before = len(synced)
    killed(*RECORDS, f"publish={str(name == 'secret').lower()}", name=name)
    rounds = 4
    others = len(synced) - before
    assert (others >= 2 * rounds) is (name == "secret")


def test_a_row_that_was_half_written_is_of_a_round_that_never_began(killed, train, assert_same_run):
    folder = killed(*RECORDS)
    path = folder / "ledger.csv"
    whole, *_ = path.read_text().rsplit("\n", 2)
    last = path.read_text().splitlines()[-1]
    path.write_text(f"{whole}\n{last[:60]}")
    assert samples(folder) == 3
    train(*RECORDS, *RUN, f"resume={folder}", name="killed")
    assert_same_run(folder, train(*RECORDS, *RUN, name="whole").folder)


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_simulation_says_that_a_round_came_out_otherwise_and_charges_both(kind, killed, train):
    folder = killed(*KINDS[kind])
    planned = train(*KINDS[kind], *RUN, name="whole")
    number = other_release(folder, -1)
    notices.take()
    result = train(*KINDS[kind], *RUN, f"resume={folder}", name="killed")
    assert f"round {number} was run before and released something else" in notices.take()[0]
    steps = 2 if kind == "records" else 1
    assert samples(folder) > samples(planned.folder)
    if kind in ("records", "a secret cohort"):
        assert samples(folder) == samples(planned.folder) + steps
        assert result.privacy["epsilon_sound"] > planned.privacy["epsilon_sound"]
    assert "run again after a crash" in " ".join(result.privacy["caveats"])
    again = train(*KINDS[kind], *RUN, f"resume={folder}", name="killed")
    assert again.privacy["epsilon_sound"] == result.privacy["epsilon_sound"]
    assert again.privacy["caveats"] == result.privacy["caveats"]


@pytest.mark.thorough
def test_what_was_charged_twice_counts_against_the_budget(killed, train):
    budget = (*RECORDS, "noise_schedule.noise_multiplier=10", "epsilon=1", "rounds=null")
    whole = train(*RUN, *budget, name="whole")
    assert whole.stop_reason == "budget"
    folder = killed(*budget)
    other_release(folder, 2)
    result = train(*RUN, *budget, f"resume={folder}", name="killed")
    assert result.stop_reason == "budget"
    assert result.summary["rounds"] == whole.summary["rounds"] - 2
    assert result.privacy["epsilon_sound"] <= 1


def test_a_published_run_stops_where_a_round_comes_out_otherwise(killed, train):
    folder = killed(*RECORDS, "publish=true")
    other_release(folder, 2)
    before = (folder / "ledger.csv").read_text()
    with pytest.raises(ReleaseError, match="round 3 was run before and released something else"):
        train(*RECORDS, *RUN, "publish=true", f"resume={folder}", name="killed")
    assert before.splitlines()[3:] == (folder / "ledger.csv").read_text().splitlines()[3:]
    assert not (folder / "public").exists()


def test_two_crashes_count_every_release_once(killed, train, monkeypatch):
    folder = killed(*RECORDS)
    other_release(folder, 1)
    with dying(monkeypatch, Metrics, "see", 3):
        train(*RECORDS, *RUN, f"resume={folder}", name="killed")
    assert samples(folder) == 4 + 2  # rounds 2 and 3 came again; the first is the same
    train(*RECORDS, *RUN, f"resume={folder}", name="killed")
    assert samples(folder) == 6 + 2


def test_an_own_part_that_forgets_is_found_out(plug_in, command, monkeypatch, tmp_path):
    """Its state is not saved, so that the rounds after the checkpoint come out otherwise."""
    code = """
        from dataclasses import replace

        from fedpriv.algorithms import CdpFedAvg
        from fedpriv.algorithms.uploads import LocalChanges


        class Growing(LocalChanges):
            count = 0

            def of(self, round_index, clients):
                self.count += 1
                batch = super().of(round_index, clients)
                return replace(batch, uploads=batch.uploads * (self.count % 3 - 1))


        class Mine(CdpFedAvg):
            def uploads(self, problem):
                return Growing(problem, *self._local)
    """
    few = ("partition.clients=8", "algorithm.client_rate=0.9", "runtime.checkpoint_interval=2")
    with dying(monkeypatch, Metrics, "see", 4):
        plug_in("algorithm", "Mine", code, *few, base="cdp_fedavg")
    (module,) = (path.stem for path in tmp_path.glob("plugin_*.py"))
    said = command("train", "--config-dir", "yamls", "resume=run", "--allow", module)
    assert said.status == 0, said.err
    assert "round 3 was run before and released something else" in " ".join(said.err.split())
    assert samples(tmp_path / "run") == 6 + 2


def test_the_digest_is_that_of_every_released_bit(monkeypatch, train):
    digests, real = [], OpenRound.digest.fget
    monkeypatch.setattr(
        OpenRound, "digest", property(lambda self: digests.append(real(self)) or digests[-1])
    )
    for name, more in (("one", ""), ("again", ""), ("other", "noise_seed=1")):
        train(*RECORDS, *RUN, "rounds=2", *filter(None, [more]), name=name)
    one, again, other = digests[:2], digests[2:4], digests[4:]
    assert one == again
    assert not {*one} & {*other}
