"""Canaries in a run: the scores that its observers see, for the audit of ε after the run."""

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
from fedpriv.common.files import write_json
from fedpriv.data.names import DIRECTION, MISLABELLED
from fedpriv.experiment.loop import Loop
from fedpriv.experiment.observers import Quiet
from fedpriv.store.canary_file import CanaryFile
from fedpriv.store.folder import RunFolder


def watch_canaries(loop: Loop) -> WatchedComputation:
    """Watch every release of the loop for the canaries, and return the watching computation.

    The loop computes through it from now on; it changes no release.

    Args:
        loop: The loop of a run with planted canaries.
    """
    watched = watched_computation(loop.trainer.computation, loop.context)
    # It passes every other call on to the computation that it watches.
    loop.trainer.computation = cast("ClientComputation", watched)
    return watched


def watched_computation(
    computation: ClientComputation, context: RunContext, alone: bool = False
) -> WatchedComputation:
    """Return the clients' computation of a run, watched for the canaries of the run.

    Args:
        computation: The clients' computation.
        context: The context of the run, with planted canaries.
        alone: No client but the canaries' takes part.
    """
    kind = WatchedMislabelled if kind_of(context) == MISLABELLED else WatchedDirections
    return kind(computation, context, cast("PlantedCanaries", context.canaries), alone)


def kind_of(context: RunContext) -> str:
    """Return the kind of the canaries in a run."""
    return MISLABELLED if isinstance(context.canaries, PlantedMislabelled) else DIRECTION


class CanaryScores(Quiet):
    """The file ``audit/canaries.json``: coins and scores of the canaries, written when the run has ended.

    Args:
        loop: The loop, whose canaries are watched (:func:`watch_canaries`).
        folder: The run folder.
        state: The state that a checkpoint holds; None for a new run.
    """

    name = "canaries"

    def __init__(self, loop: Loop, folder: RunFolder, state: Mapping[str, Any] | None):
        self._loop, self._folder = loop, folder
        self._watched = cast("WatchedComputation", loop.trainer.computation)
        if state is None:
            # The observer of the final model alone compares it with these initial weights. A resumed run
            # begins with other weights, so the checkpoint holds them.
            self._before = loop.context.model.flat.clone()
            return
        self._before = state["weights_before"]
        self._watched.scores = state["scores"].double().numpy().copy()
        kinds = [Kind.of_plain(values) for values in state["kinds"]]
        self._watched.released = Counter(dict(zip(kinds, state["counts"], strict=True)))

    def scores(self) -> dict[str, list[float]]:
        """Return the score of each canary, by observer."""
        before = self._before.to(self._loop.context.model.device)
        by_observer = self._watched.scores_by_observer(before)
        return {observer: scores.tolist() for observer, scores in by_observer.items()}

    def close(self) -> None:
        coins = cast("PlantedCanaries", self._loop.context.canaries).canaries.coins
        kinds = [{**kind.plain(), "count": n} for kind, n in self._watched.released.items()]
        file = CanaryFile(
            coins.tolist(), self.scores(), kinds, self._loop.rounds_done, False,
            kind_of(self._loop.context),
        )  # fmt: skip
        self._folder.audit.mkdir(exist_ok=True)
        write_json(self._folder.canaries, file.plain())

    def state_dict(self) -> dict[str, object]:
        released = self._watched.released
        return {
            "weights_before": self._before,
            "scores": torch.from_numpy(self._watched.scores.copy()),
            "kinds": [kind.plain() for kind in released],
            "counts": list(released.values()),
        }
