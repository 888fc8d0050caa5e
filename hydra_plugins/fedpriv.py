"""The Hydra sweeper ``hydra/sweeper=curves``: the runs of a figure, for any launcher.

Hydra finds plugins in modules below ``hydra_plugins``, a namespace package (no ``__init__.py``) that several
distributions share. It imports this module whenever it starts, so nothing heavy is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict


class CurvesSweeper(Sweeper):
    """Turns curves × seeds into an explicit list of jobs."""

    def __init__(self) -> None:
        self.hydra_context: HydraContext | None = None
        self.config: DictConfig | None = None
        self.launcher: Launcher | None = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        with open_dict(config):  # where launchers keep their own files
            config.hydra.sweep.dir = str(Path(config.runtime.output_dir) / "figures")
        self.hydra_context, self.config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: Sequence[str]) -> Any:
        from fedpriv.figures.make import make_figure

        return make_figure(self.config, self.hydra_context, self.launcher, arguments)
