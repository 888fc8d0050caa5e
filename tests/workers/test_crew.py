"""How rank 0 hands out chunks: order, costs, a bounded window, lost and failing workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import numpy as np
import pytest
import torch

from fedpriv.common.errors import FedprivError, ReleaseError, WorkerError
from fedpriv.workers import crew as crews
from fedpriv.workers.crew import ChunkCosts, Crew
from fedpriv.workers.link import LostError
from fedpriv.workers.packing import unpack


class Link:
    """A link to a worker that squares the tasks."""

    def __init__(self, answer=lambda task: {"answer": task**2, "seconds": 0.1, "cpu": 0.1}):
        self.answer, self.states, self.tasks = answer, [], []

    def send_packed(self, state: torch.Tensor, seconds: float) -> None:
        self.states.append(unpack(state, {})["round"])

    def send(self, message: Mapping[str, object], seconds: float) -> None:
        self.tasks.append(message["task"])

    def receive(self, seconds: float) -> dict:
        return self.answer(self.tasks[-1])


class Worker:
    def __init__(self, rank: int, link: Link):
        self.rank, self.link, self.begun = rank, link, 0

    def lost(self, error: LostError) -> WorkerError:
        self.link = None
        return WorkerError(f"rank {self.rank} is lost: {error}")

    def begin_again(self) -> None:
        self.link, self.begun = Link(), self.begun + 1

    def kill(self) -> None:
        pass

    def close(self) -> None:
        pass


class Work:
    def round_state(self):
        return {}

    def sent(self, task):
        return task

    def clients(self, task):
        return np.array([task])


def crew_of(*links: Link, workers=None, **settings) -> Crew:
    workers = workers or [Worker(rank, link) for rank, link in enumerate(links, 1)]
    return Crew(workers, Work(), {}, ChunkCosts(np.arange(100)), timeout=9, **settings)


def squares(crew: Crew, tasks, round_index: int = 1, here=lambda task: task**2) -> list[int]:
    return list(crew.answers(tasks, here, round_index))


@pytest.fixture(autouse=True)
def compared_by_value(monkeypatch):
    """The answers of these tests are plain numbers."""
    monkeypatch.setattr(Crew, "_refuse_other_bits", lambda self, answer, again, rank: None)


@pytest.mark.parametrize("count", [2, 3, 5, 90])
def test_answers_come_in_the_order_of_the_tasks(count):
    links = Link(), Link()
    assert squares(crew_of(*links), range(count)) == [task**2 for task in range(count)]
    assert all(link.tasks for link in links[: count - 1])


def test_the_longest_are_computed_first():
    link = Link()
    squares(crew_of(link), [5, 80, 7, 60], here=lambda task: task**2)
    assert link.tasks[0] == 80


def test_one_task_is_computed_here():
    link = Link()
    assert squares(crew_of(link), [7]) == [49]
    assert not link.states


def test_the_state_of_a_round_is_sent_once_to_each_worker():
    link = Link()
    crew = crew_of(link)
    for round_index in (1, 1, 2):
        squares(crew, range(4), round_index)
    assert link.states == [1, 2]


def test_no_more_answers_wait_than_the_window(monkeypatch):
    """While rank 0 computes the first task, a worker computes those that may wait for it, and no others."""
    monkeypatch.setattr(crews, "WINDOW", 3)
    monkeypatch.setattr(ChunkCosts, "of", lambda self, clients: float(clients[0] in (0, 1)))
    link, ahead = Link(), []

    def here(task):
        if task == 1:  # the worker has task 0 and goes on
            time.sleep(0.3)
            ahead.extend(link.tasks)
        return task**2

    crew = crew_of(link)
    step = crew.answers(list(range(30)), here, 1)
    assert list(step) == [task**2 for task in range(30)]
    assert max(ahead) < 1 + crews.WINDOW + 2


def test_a_lost_worker_ends_the_step():
    def gone(task):
        raise LostError("gone")

    with pytest.raises(WorkerError, match="rank 2 is lost: gone"):
        squares(crew_of(Link(), Link(gone)), range(9))


def test_a_lost_worker_that_may_be_lost_is_replaced_in_the_next_round(capsys):
    def gone(task):
        raise LostError("gone")

    crew = crew_of(Link(gone), restarts=1)
    assert squares(crew, range(5)) == [task**2 for task in range(5)]
    assert "rank 1 is lost: gone; its chunk is computed again" in capsys.readouterr().out
    assert squares(crew, range(5), 2) == [task**2 for task in range(5)]
    assert crew.workers[0].begun == 1
    assert crew.workers[0].link.tasks


@pytest.mark.parametrize(
    ("kind", "expected"), [("ReleaseError", ReleaseError), ("FedprivError", FedprivError)]
)
def test_an_error_of_a_worker_is_raised_here(kind, expected):
    def fails(task):
        return {"error": "not scaled", "kind": kind}

    with pytest.raises(expected, match="not scaled"):
        squares(crew_of(Link(fails)), range(4))


def test_an_error_here_leaves_no_worker_waiting():
    def fails(task):
        raise ReleaseError("here")

    link = Link()
    with pytest.raises(ReleaseError, match="here"):
        squares(crew_of(link), range(4), here=fails)
    assert len(link.tasks) >= 1


def test_a_second_interrupt_ends_the_step_at_once_whatever_becomes_of_the_workers(capsys):
    killed = threading.Event()

    def gone(task):
        killed.wait(30)
        raise LostError("gone")

    def interrupted(task):
        raise KeyboardInterrupt

    class Killed(Worker):
        def kill(self):
            self.link = None
            killed.set()

        def lost(self, error):
            raise ValueError("seek of closed file")

    crew = crew_of(restarts=1, workers=[Killed(1, Link(gone))])
    with pytest.raises(KeyboardInterrupt):
        squares(crew, range(4), here=interrupted)
    assert capsys.readouterr().out == ""


def test_a_worker_that_hangs_while_rank_0_fails_is_given_up():
    failed = threading.Event()

    def hangs(task):
        failed.wait(30)
        raise LostError("no answer within 9 s")

    def fails(task):
        failed.set()
        raise ReleaseError("here")

    crew = crew_of(Link(hangs))
    with pytest.raises(ReleaseError, match="here"):
        squares(crew, range(4), here=fails)
    assert crew.workers[0].link is None


def test_costs_follow_what_was_measured():
    costs = ChunkCosts(np.array([10, 10, 40]))
    assert costs.of(np.array([2])) == 4 * costs.of(np.array([0]))
    costs.note(np.array([0]), 5.0)
    assert costs.of(np.array([0])) == pytest.approx(5.0)
    assert costs.of(np.array([1, 2])) == pytest.approx(25.0)  # not measured: as those that were
    costs.note(np.array([], dtype=int), 1.0)
