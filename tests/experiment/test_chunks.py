"""Clients compute in chunks: purely, with the same result whatever the size of a chunk."""

from __future__ import annotations

import os
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
import torch
from chunk_runs import CLIENTS, RECORDS, RUNS

import fedpriv
from fedpriv.algorithms.record_computation import RecordComputation
from fedpriv.algorithms.upload_computation import UploadComputation
from fedpriv.common.config import fingerprint, identity
from fedpriv.common.errors import ReleaseError
from fedpriv.common.exact import exact_digest
from fedpriv.experiment.assemble import make_context
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.machine import chunk_size
from fedpriv.privacy.clippers.step_clip import ChunkAnswer, StepClip


def started(*overrides):
    """The parts of a run that is about to begin, and its work."""
    parts = build_parts(fedpriv.compose(overrides))
    context = make_context(parts, torch.device("cpu"))
    context.mechanism.announce(0)
    return context, parts.algorithm.start(context)


def everything(context, trainer) -> dict[str, str]:
    """A digest of all that a round may change, by its name."""
    parts = {
        "weights": context.model.flat,
        "trainer": trainer.state_dict(),
        "clipper": vars(context.clipper),
        "attack": None if context.attack is None else vars(context.attack),
        "streams": context.streams,
        "buffers": dict(context.model.module.state_dict()),
        "settings": {k: v for k, v in vars(trainer.computation).items() if not hasattr(v, "of")},
    }
    return {name: exact_digest(part) for name, part in parts.items()}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", RUNS)
def test_computing_changes_no_state_and_gives_the_same_bits_again(name):
    context, trainer = started(*RUNS[name])
    computation, cohort = trainer.computation, np.array([0, 2, 3, 5])
    clip = StepClip(context.clipper, 0, computation.holders(cohort))
    holders = len(computation.holders(cohort))
    for step in range(computation.steps):
        added = None
        if step:
            generator = torch.Generator().manual_seed(step)
            added = torch.randn(holders, context.model.size, generator=generator) * 0.01
        local_step = trainer_turn(step, cohort)
        state = computation.step_state(local_step, added, clip, slice(1, 3))
        before, given = everything(context, trainer), exact_digest(state)
        one, other = computation.compute(state), computation.compute(state)
        assert everything(context, trainer) == before
        assert exact_digest(state) == given
        assert one.clients.tolist() == [2, 3]
        for field in fields(one):
            assert exact_digest(getattr(one, field.name)) == exact_digest(
                getattr(other, field.name)
            )
        assert bool(one.sums.any())


def trainer_turn(step: int, cohort: np.ndarray):
    from fedpriv.algorithms.client_computation import LocalStep

    return LocalStep(0, step, cohort)


# ---- the size of a chunk


@pytest.mark.few(1)
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("chunk", [1, 3])
def test_the_size_of_a_chunk_changes_rounding_alone(name, chunk, ran):
    whole, parts = ran(*RUNS[name]), ran(*RUNS[name], f"chunk={chunk}")
    weights = [torch.load(r.folder / "model.pt", weights_only=True) for r in (whole, parts)]
    tolerance = 2e-5  # a step of the grid that sums of clients are rounded to
    for key, value in weights[0].items():
        torch.testing.assert_close(weights[1][key], value, rtol=tolerance, atol=tolerance)
    for file in ("participation.csv", "clients.csv"):
        if (whole.folder / file).exists():
            columns = ["round", "client"] if file == "clients.csv" else slice(None)
            one, other = (pd.read_csv(r.folder / file).loc[:, columns] for r in (whole, parts))
            pd.testing.assert_frame_equal(one, other, check_exact=True)
    if "adapt" not in name and "coordinates" not in name:
        ledgers = [(r.folder / "ledger.csv").read_text() for r in (whole, parts)]
        assert ledgers[0] == ledgers[1]
        metrics = [pd.read_csv(r.folder / "metrics.csv") for r in (whole, parts)]
        for column in ("epsilon", "epsilon_sound", "epsilon_published"):
            pd.testing.assert_series_equal(metrics[0][column], metrics[1][column], check_exact=True)


def test_the_lots_of_clients_do_not_depend_on_the_size_of_a_chunk():
    reads = []
    for chunk in (None, 3):
        context, trainer = started(*RECORDS)
        context.chunk = chunk
        cohort = np.arange(7)
        lots = []
        sample = trainer.computation._lots

        def noting(local_step, sample=sample, lots=lots):
            records, units = sample(local_step)
            lots.append(records.inputs)
            return records, units

        trainer.computation._lots = noting
        clip = StepClip(context.clipper, 0, trainer.computation.holders(cohort))
        trainer.computation.compute_cohort(trainer_turn(0, cohort), None, clip)
        reads.append(lots)
    assert [len(lots) for lots in reads] == [1, 3]
    assert torch.equal(torch.cat(reads[0]), torch.cat(reads[1]))


# ---- a client that is missing, or there twice


def left_out(state):
    return replace(state, local_step=replace(state.local_step, cohort=state.local_step.cohort[1:]))


def twice(state):
    cohort = np.concatenate([state.local_step.cohort[:1], state.local_step.cohort])
    return replace(state, local_step=replace(state.local_step, cohort=cohort))


@pytest.mark.parametrize(
    ("settings", "kind"),
    [(RECORDS, RecordComputation), (CLIENTS, UploadComputation)],
    ids=["records", "clients"],
)
@pytest.mark.parametrize(("fault", "word"), [(left_out, "missing"), (twice, "there twice")])
def test_a_missing_and_a_double_client_end_the_run(settings, kind, fault, word, train, monkeypatch):
    compute = kind.compute

    def faulty(self, state):
        given = fault(state) if 5 in state.local_step.cohort else state
        if kind is RecordComputation:  # their clip norms come and go with them
            positions = np.searchsorted(state.local_step.cohort, given.local_step.cohort)
            given = replace(given, limits=state.limits[torch.from_numpy(positions)])
        return compute(self, given)

    monkeypatch.setattr(kind, "compute", faulty)
    monkeypatch.setattr(
        "fedpriv.algorithms.base.Algorithm.cohort", lambda *_: np.arange(7), raising=True
    )
    with pytest.raises(ReleaseError, match=f"{word} 5; nothing was released"):
        train(*settings, "chunk=5")


def answer(clients, sums, partial=False, scaled=True) -> ChunkAnswer:
    nothing = torch.zeros(0)
    return ChunkAnswer(
        np.array(clients), sums, partial, scaled, nothing, nothing.bool(), nothing.long(), nothing,
        nothing,
    )  # fmt: skip


@pytest.fixture
def clip():
    context, _ = started(*RECORDS)
    return lambda cohort: StepClip(context.clipper, 0, torch.tensor(cohort))


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([[0, 1], [3]], "missing 2"),
        ([[0, 1], [1, 2, 3]], "there twice 1"),
        ([[0, 1], [2, 3, 4]], "not of the cohort 4"),
        ([[2, 3], [0, 1]], "another order"),
    ],
)
def test_answers_of_other_clients_than_the_cohort_are_no_release(chunks, words, clip):
    answers = [answer(own, torch.ones(len(own), 2)) for own in chunks]
    with pytest.raises(ReleaseError, match=words):
        clip([0, 1, 2, 3]).merge(answers, np.arange(4))


def test_sums_that_are_not_of_the_chunks_clients_are_no_release(clip):
    answers = [answer([0, 1], torch.ones(2, 2)), answer([2, 3], torch.ones(1, 2))]
    with pytest.raises(ReleaseError, match="a chunk of 2 clients answered 1 sums, not 2"):
        clip([0, 1, 2, 3]).merge(answers, np.arange(4))


def test_a_chunk_that_did_not_ask_the_clipper_is_no_release(clip):
    answers = [answer([0, 1], torch.ones(2, 2)), answer([2, 3], torch.ones(2, 2), scaled=False)]
    with pytest.raises(ReleaseError, match="the clipper was not asked for its factors"):
        clip([0, 1, 2, 3]).merge(answers, np.arange(4))


def test_partial_sums_are_added_in_the_order_of_the_chunks(clip):
    large, small = torch.full((1, 1), 1e16, dtype=torch.float64), torch.ones(1, 1).double()
    chunks = [answer([k], s, partial=True) for k, s in enumerate((large, small, -large))]
    merged = clip([0]).merge(chunks, np.arange(3), 2.0, 2.0)
    assert merged.values.tolist() == [[(1e16 + 1.0 - 1e16) / 2.0]]
    assert merged.divided_by == 2.0


# ---- the rule and the key


@pytest.mark.parametrize(
    ("cohort", "computation", "size"),
    [
        (10, 1e6, None),  # little to do
        (100, 7.4e7, None),
        (100, 7.5e7, 25),  # four chunks of 5 ms
        (3, 1e12, None),  # no four chunks
        (4, 1e12, 1),
        (5, 2e8, 1),
        (1000, 2e9, 100),
        (1000, 1e15, 15),  # no more than about 64 chunks
        (99.5, 7.5e7, 24),  # expected, not realised
    ],
)
def test_the_rule_makes_at_least_four_chunks_of_much_work(cohort, computation, size):
    assert chunk_size(cohort, computation) == size


def test_the_rule_looks_at_the_configuration_alone(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(128)), raising=False)
    many = started(*RECORDS, "model=mlp", "model.hidden=4000", "algorithm.sample_rate=0.5")[0].chunk
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    one = started(*RECORDS, "model=mlp", "model.hidden=4000", "algorithm.sample_rate=0.5")[0].chunk
    assert many == one == 1
    assert started(*RECORDS)[0].chunk is None
    assert started(*RECORDS, "chunk=3")[0].chunk == 3


@pytest.mark.few(2)
@pytest.mark.parametrize("value", ["0", "-2", "1.5", "many", "[3]"])
def test_another_value_than_a_whole_number_is_refused(value, command):
    said = command("train", *RECORDS, f"chunk={value}")
    assert said.status == 2
    assert "chunk must be a whole number >= 1" in said.sentence
    assert value.strip("[]") in said.sentence


def test_the_key_is_part_of_the_identity_where_it_is_given():
    without, with_chunk = (identity(fedpriv.compose([*RECORDS, *o])) for o in ([], ["chunk=3"]))
    older = {key: value for key, value in without.items() if key != "chunk"}
    assert fingerprint(older) == fingerprint(without) != fingerprint(with_chunk)
