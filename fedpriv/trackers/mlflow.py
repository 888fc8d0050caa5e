"""MLflow: a tracking server, or a database or folder of one's own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.trackers.base import TrackedRun, Tracker

_FINGERPRINT = "fedpriv.fingerprint"
_AT_ONCE = {"metrics": 1000, "params": 100}  # what a server takes in a request
_LONGEST = 500  # characters of a parameter
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # of a server that is away: else it tries for many minutes
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
"""How MLflow behaves, unless the user says otherwise."""


class MlflowTracker(Tracker):
    """Metrics, parameters, and the statement as artefacts of a run in an MLflow experiment.

    ``uri``: of the tracking server, ``sqlite:///mlflow.db`` and the like; null: MLflow's own choice
    (MLFLOW_TRACKING_URI). User name and password come from MLflow's environment variables.
    """

    package = "mlflow"

    def __init__(self, uri: str | None, experiment: str):
        self._uri = None if uri is None else checks.text("uri", uri)
        if "@" in urlsplit(self._uri or "").netloc:
            raise ArgumentError(
                "uri",
                "one with a user or password",
                "without them: run folders keep it",
                "use MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
            )
        self._experiment = checks.text("experiment", experiment)
        self._client: Any = None
        self._id: str | None = None
        self._pending: list[Any] = []
        self._status = "FAILED"  # unless the run finishes

    def begin(self, run: TrackedRun) -> Mapping[str, str]:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(tracking_uri=self._uri)
        self._tracked_to = 0
        self._id = self._existing(run)
        if self._id is not None:
            self._client.update_run(self._id, status="RUNNING")
            self._tracked_to = self._last_step()
            return {"id": self._id}
        tags = {_FINGERPRINT: run.fingerprint}
        made = self._client.create_run(self._experiment_id(), run_name=run.name, tags=tags)
        self._id = made.info.run_id
        self._log_parameters(run.parameters)
        return {"id": self._id}

    def _experiment_id(self) -> str:
        from mlflow.exceptions import MlflowException

        found = self._client.get_experiment_by_name(self._experiment)
        if found is not None:
            return found.experiment_id
        try:
            return self._client.create_experiment(self._experiment)
        except MlflowException:  # another job of a sweep was faster
            found = self._client.get_experiment_by_name(self._experiment)
            if found is None:
                raise
            return found.experiment_id

    def _existing(self, run: TrackedRun) -> str | None:
        """The run that was begun earlier, if it is there and of this configuration."""
        from mlflow.exceptions import MlflowException

        try:
            tags = self._client.get_run(run.kept["id"]).data.tags
        except (KeyError, MlflowException):
            return None
        return run.kept["id"] if tags.get(_FINGERPRINT) == run.fingerprint else None

    def _last_step(self) -> int:
        """The last round that is tracked: those that come again are not entered twice."""
        names = self._client.get_run(self._id).data.metrics
        steps = (m.step for n in names for m in self._client.get_metric_history(self._id, n))
        return max(steps, default=0)

    def _log_parameters(self, parameters: Mapping[str, object]) -> None:
        from mlflow.entities import Param

        entries = iter([Param(key, str(value)[:_LONGEST]) for key, value in parameters.items()])
        while some := list(islice(entries, _AT_ONCE["params"])):
            self._client.log_batch(self._id, params=some)

    def log(self, round_number: int, values: Mapping[str, float]) -> None:
        if round_number > self._tracked_to:
            self._tracked_to = round_number
            self._pending += _metrics(values, round_number)

    def flush(self) -> None:
        while self._pending:
            some = self._pending[: _AT_ONCE["metrics"]]
            self._client.log_batch(self._id, metrics=some)
            del self._pending[: len(some)]

    def finish(
        self, summary: Mapping[str, object], files: Sequence[Path], stop_reason: str
    ) -> None:
        self.flush()
        for name, value in summary.items():
            self._client.set_tag(self._id, name, value)
        for file in files:
            self._client.log_artifact(self._id, str(file))
        self._status = {"interrupted": "KILLED", "diverged": "FAILED"}.get(stop_reason, "FINISHED")

    def close(self) -> None:
        if self._id is not None:
            self._client.set_terminated(self._id, self._status)


def _metrics(values: Mapping[str, float], step: int) -> Iterator[Any]:
    from mlflow.entities import Metric

    now = int(1000 * time.time())
    return (Metric(name, value, now, step) for name, value in values.items())
