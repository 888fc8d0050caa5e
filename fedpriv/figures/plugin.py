"""The Hydra sweeper ``hydra/sweeper=curves``: the runs of a figure, for any launcher.

Hydra takes plugins only from modules below ``hydra_plugins``. Rather than install such a package
beside fedpriv's, the class is put into one that exists in this process alone, and taken out again
before a launcher sends Hydra's state to workers, which could not import it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
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

        _unregister()
        return make_figure(self.config, self.hydra_context, self.launcher, arguments)


CurvesSweeper.__module__ = "hydra_plugins.fedpriv"


def register() -> None:
    """Make ``hydra/sweeper=curves`` known to Hydra in this process."""
    known = Plugins.instance()  # looks for installed plugins, so before there is one of our making
    for name in ("hydra_plugins", CurvesSweeper.__module__):
        if name not in sys.modules:
            sys.modules[name] = ModuleType(name)
            sys.modules[name].__path__ = []
    sys.modules[CurvesSweeper.__module__].CurvesSweeper = CurvesSweeper  # type: ignore[attr-defined]
    known.register(CurvesSweeper)


def _unregister() -> None:
    known = Plugins.instance()
    known.class_name_to_class.pop(f"{CurvesSweeper.__module__}.{CurvesSweeper.__name__}", None)
    for classes in known.plugin_type_to_subclass_list.values():
        if CurvesSweeper in classes:
            classes.remove(CurvesSweeper)
