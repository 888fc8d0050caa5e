"""Canaries in a run: what its observers see of them, for the audit of ε once it has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import torch

from fedpriv.algorithms.run_context import RunContext
from fedpriv.algorithms.trainer import ClientComputation
from fedpriv.attacks.canaries import PlantedCanaries
from fedpriv.attacks.canary_scores import Kind, WatchedComputation, WatchedDirections
from fedpriv.attacks.mislabelled import PlantedMislabelled, WatchedMislabelled
from fedpriv.data.names import DIRECTION, MISLABELLED
from fedpriv.experiment.loop import Loop
from fedpriv.experiment.observers import Quiet
from fedpriv.store.canary_file import CanaryFile
from fedpriv.store.folder import RunFolder


def watch_canaries(loop: Loop) -> WatchedComputation:
    """Let every release of the loop be looked at."""
    watched = watched_computation(loop.trainer.computation, loop.context)
    loop.trainer.computation = cast(
        "ClientComputation", watched
    )  # it passes on what else it is asked
    return watched


def watched_computation(
    computation: ClientComputation, context: RunContext, alone: bool = False
) -> WatchedComputation:
    """Return the clients' computation of a run, watched for the canaries of the run."""
    watched = WatchedMislabelled if kind_of(context) == MISLABELLED else WatchedDirections
    return watched(computation, context, cast("PlantedCanaries", context.canaries), alone)


def kind_of(context: RunContext) -> str:
    """Of the canaries in it."""
    return MISLABELLED if isinstance(context.canaries, PlantedMislabelled) else DIRECTION


class CanaryScores(Quiet):
    """``audit/canaries.json``: coins and scores, when the run has ended."""

    name = "canaries"

    def __init__(self, loop: Loop, folder: RunFolder, state: Mapping[str, Any] | None):
        self._loop, self._folder = loop, folder
        self._watched = cast("WatchedComputation", loop.trainer.computation)
        if state is None:
            self._before = loop.context.model.flat.clone()
            return
        self._before = state["weights_before"]
        self._watched.scores = state["scores"].double().numpy().copy()
        kinds = [Kind.of_plain(values) for values in state["kinds"]]
        self._watched.released = Counter(dict(zip(kinds, state["counts"], strict=True)))

    def scores(self) -> dict[str, list[float]]:
        """By observer."""
        before = self._before.to(self._loop.context.model.device)
        found = self._watched.scores_by_observer(before)
        return {observer: scores.tolist() for observer, scores in found.items()}

    def close(self) -> None:
        coins = cast("PlantedCanaries", self._loop.context.canaries).canaries.coins
        kinds = [{**kind.plain(), "count": n} for kind, n in self._watched.released.items()]
        file = CanaryFile(
            coins.tolist(), self.scores(), kinds, self._loop.rounds_done, False,
            kind_of(self._loop.context),
        )  # fmt: skip
        self._folder.audit.mkdir(exist_ok=True)
        self._folder.write_json(self._folder.canaries, file.plain())

    def state_dict(self) -> dict[str, object]:
        released = self._watched.released
        return {
            "weights_before": self._before,
            "scores": torch.from_numpy(self._watched.scores.copy()),
            "kinds": [kind.plain() for kind in released],
            "counts": list(released.values()),
        }
