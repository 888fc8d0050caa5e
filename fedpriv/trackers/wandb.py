"""Weights & Biases, online or offline."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedpriv.common import checks
from fedpriv.common.errors import ConfigError
from fedpriv.trackers.base import TrackedRun, Tracker

MODES = ("online", "offline")
_SECONDS = {"init_timeout": 30.0, "finish_timeout": 120.0}  # of waiting for a server


class WandbTracker(Tracker):
    """Metrics, configuration, summary, and the statement as an artefact of a run.

    ``mode``: null takes WANDB_MODE, else online. Offline runs lie in ``wandb/`` where one works (WANDB_DIR)
    until ``wandb sync`` sends them; not in the run folder, which has no links. wandb collects nothing by
    itself: no code, git, command line, packages, console or machine.
    """

    package = "wandb"

    def __init__(
        self, project: str, entity: str | None, group: str | None, tags: list[str], mode: str | None
    ):
        self._project = checks.text("project", project)
        self._entity = None if entity is None else checks.text("entity", entity)
        self._group = None if group is None else checks.text("group", group)
        self._tags = [checks.text("tags", tag) for tag in checks.sequence("tags", tags)]
        self._mode = None if mode is None else checks.one_of("mode", mode, MODES)
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
        own = re.fullmatch(re.escape(run.fingerprint) + "-[0-9a-f]{1,16}", kept)
        name = kept if own else f"{run.fingerprint}-{time.time_ns():x}"
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
        if round_number >= self._run.step:  # a server knows those before
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
    """Settings under which wandb tells nothing of the machine, and prints nothing."""
    chosen = {} if mode is None else {"mode": mode}
    return (
        chosen
        | _SECONDS
        | {
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
    )
