"""Trackers: other places than the run folder where a run is shown. None of them changes a run.

The packages behind them are extras of fedpriv and are imported when a run begins.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import declared, field, one_of, or_null, own_check, text
from fedpriv.experiment.tracker import TrackedRun, Tracker
from fedpriv.store.table import pairs

__all__ = [
    "MlflowTracker",
    "TensorBoardTracker",
    "TrackedRun",
    "Tracker",
    "WandbTracker",
]


# ---- TensorBoard event files, by PyTorch's writer


_COMPARED = ("test_accuracy", "test_loss", "epsilon", "epsilon_published", "epsilon_sound")
"""Metrics in the table of parameters (HPARAMS)."""


@declared
class TensorBoardTracker(Tracker):
    """TensorBoard event files: scalars, parameters (HPARAMS) and the privacy statement as text.

    A resumed run purges the rounds that come again, as is usual in TensorBoard.
    """

    package = "tensorboard"

    _parent: str | None = field(
        or_null(text),
        default=None,
        alias="folder",
        help="folder in which each run gets its own folder; null: tensorboard/ in the run folder",
    )

    def __attrs_post_init__(self) -> None:
        self._writer: Any = None

    def begin(self, run: TrackedRun) -> Mapping[str, str]:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        folder = run.place(self._parent, "tensorboard")
        self._round = run.rounds_done
        # Points after the checkpoint are purged: the resumed run computes these rounds again.
        self._writer = SummaryWriter(str(folder), purge_step=self._round + 1 if run.kept else None)
        experiment, start, self._end = hparams(dict(run.parameters), dict.fromkeys(_COMPARED, 0.0))
        self._writer.file_writer.add_summary(experiment)
        self._writer.file_writer.add_summary(start)
        return {"name": folder.name}

    def log(self, round_number: int, values: Mapping[str, float]) -> None:
        self._round = round_number
        for name, value in values.items():
            self._writer.add_scalar(name, value, round_number)

    def flush(self) -> None:
        self._writer.flush()

    def finish(
        self, summary: Mapping[str, object], files: Sequence[Path], stop_reason: str
    ) -> None:
        self._writer.add_text("summary", pairs("", summary.items()).markdown(), self._round)
        for file in files:
            lines = file.read_text(encoding="utf-8").splitlines()
            code_block = "\n".join(f"    {line}" for line in lines)  # Markdown shows it as it is
            self._writer.add_text(file.name, code_block, self._round)
        self._writer.file_writer.add_summary(self._end)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


# ---- MLflow: a tracking server, or a database or folder of one's own


_FINGERPRINT = "fedpriv.fingerprint"
_AT_ONCE = {"metrics": 1000, "params": 100}  # the most that a server takes in one request
_LONGEST = 500  # characters of a parameter
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # else MLflow tries for many minutes to reach a server
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
"""Environment variables of MLflow, unless the user has set them."""


def _address(name: str, value: Any) -> str:
    """Return the address of a tracking server, which may hold no password because run folders keep it."""
    uri = checks.text(name, value)
    if "@" in urlsplit(uri).netloc:
        raise ArgumentError(
            name,
            "one with a user or password",
            "without them: run folders keep it",
            "use MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
        )
    return uri


@declared
class MlflowTracker(Tracker):
    """Metrics, parameters, and the statement as artefacts of a run in an MLflow experiment.

    User name and password come from MLflow's environment variables.
    """

    package = "mlflow"

    _uri: str | None = field(
        or_null(own_check(_address, "text")),
        default=None,
        help="server or database (sqlite:///mlflow.db); null: MLFLOW_TRACKING_URI, else MLflow's choice",
    )
    _experiment: str = field(text, default="fedpriv", help="MLflow experiment that the run joins")

    def __attrs_post_init__(self) -> None:
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
            # A resumed run repeats rounds after its checkpoint. The server keeps what it has of them.
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

        experiment = self._client.get_experiment_by_name(self._experiment)
        if experiment is not None:
            return experiment.experiment_id
        try:
            return self._client.create_experiment(self._experiment)
        except MlflowException:  # another job of a sweep may have made it meanwhile
            experiment = self._client.get_experiment_by_name(self._experiment)
            if experiment is None:
                raise
            return experiment.experiment_id

    def _existing(self, run: TrackedRun) -> str | None:
        """Return the id of the MLflow run that was begun earlier, if it exists and has this configuration."""
        from mlflow.exceptions import MlflowException

        try:
            tags = self._client.get_run(run.kept["id"]).data.tags
        except (KeyError, MlflowException):
            return None
        return run.kept["id"] if tags.get(_FINGERPRINT) == run.fingerprint else None

    def _last_step(self) -> int:
        """Return the last round that is tracked, so that rounds which come again are not entered twice."""
        names = self._client.get_run(self._id).data.metrics
        steps = (m.step for n in names for m in self._client.get_metric_history(self._id, n))
        return max(steps, default=0)

    def _log_parameters(self, parameters: Mapping[str, object]) -> None:
        from mlflow.entities import Param

        entries = iter([Param(key, str(value)[:_LONGEST]) for key, value in parameters.items()])
        while batch := list(islice(entries, _AT_ONCE["params"])):
            self._client.log_batch(self._id, params=batch)

    def log(self, round_number: int, values: Mapping[str, float]) -> None:
        if round_number > self._tracked_to:
            self._tracked_to = round_number
            self._pending += _metrics(values, round_number)

    def flush(self) -> None:
        while self._pending:
            batch = self._pending[: _AT_ONCE["metrics"]]
            self._client.log_batch(self._id, metrics=batch)
            del self._pending[: len(batch)]

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


# ---- Weights & Biases, online or offline


MODES = ("online", "offline")
_SECONDS = {"init_timeout": 30.0, "finish_timeout": 120.0}  # to wait for a server


def _texts(name: str, value: Any) -> list[str]:
    return [checks.text(name, tag) for tag in checks.sequence(name, value)]


@declared
class WandbTracker(Tracker):
    """Metrics, configuration, summary, and the statement as an artefact of a run in Weights & Biases.

    Offline runs stay in ``wandb/`` in the working folder (WANDB_DIR) until ``wandb sync`` sends them. They
    are not in the run folder, which must have no links. wandb collects nothing by itself: no code, git,
    command line, packages, console or machine.
    """

    package = "wandb"

    _project: str = field(text, default="fedpriv", help="project that the run joins")
    _entity: str | None = field(or_null(text), default=None, help="user or team; null: your own")
    _group: str | None = field(
        or_null(text), default=None, help="name of a group of runs; null: no group"
    )
    _tags: list[str] = field(own_check(_texts, "list of texts"), default=(), help="tags of the run")
    _mode: str | None = field(
        or_null(one_of(MODES)), default=None, help="null: WANDB_MODE, else online"
    )

    def __attrs_post_init__(self) -> None:
        self._run: Any = None
        self._failed = True  # unless the run finishes

    def refuse_unusable(self) -> None:
        super().refuse_unusable()
        if (self._mode or os.environ.get("WANDB_MODE", "online")) != "online":
            return
        import wandb

        if not wandb.login(prompt=False, verify=False):
            raise ConfigError(
                "tracker.wandb.mode",
                "online",
                "offline where nobody is logged in",
                "wandb login, or WANDB_API_KEY, logs in",
            )

    def begin(self, run: TrackedRun) -> Mapping[str, str]:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        kept = run.kept.get("id", "")
        # An id in the run folder that this run did not make could join somebody else's run.
        is_ours = re.fullmatch(re.escape(run.fingerprint) + "-[0-9a-f]{1,16}", kept)
        name = kept if is_ours else f"{run.fingerprint}-{time.time_ns():x}"
        self._run = wandb.init(
            project=self._project,
            entity=self._entity,
            group=self._group,
            tags=self._tags,
            name=run.name,
            id=name,
            resume="allow",
            config=dict(run.parameters),
            settings=wandb.Settings(**_quiet(self._mode)),
        )
        return {"id": name}

    def log(self, round_number: int, values: Mapping[str, float]) -> None:
        if round_number >= self._run.step:  # the server has the rounds before
            self._run.log(dict(values), step=round_number)

    def finish(
        self, summary: Mapping[str, object], files: Sequence[Path], stop_reason: str
    ) -> None:
        import wandb

        self._run.summary.update(dict(summary))
        statement = wandb.Artifact(f"privacy-{self._run.id}", type="privacy-statement")
        for file in files:
            statement.add_file(str(file))
        self._run.log_artifact(statement)
        self._failed = stop_reason in ("interrupted", "diverged")

    def close(self) -> None:
        if self._run is not None:
            self._run.finish(exit_code=int(self._failed))


def _quiet(mode: str | None) -> dict[str, Any]:
    """Return settings under which wandb sends nothing about the machine, and prints nothing."""
    return {
        **({} if mode is None else {"mode": mode}),
        **_SECONDS,
        "silent": True,
        "console": "off",
        "save_code": False,
        "disable_code": True,
        "disable_git": True,
        "host": "",
        "x_disable_meta": True,
        "x_disable_stats": True,
        "x_disable_machine_info": True,
        "x_save_requirements": False,
    }
