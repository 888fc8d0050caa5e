"""An experiment: its parts built and checked, its plan, the one round loop, checkpoint and resume."""

from fedpriv.experiment.build import build_parts
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import Plan, make_plan
from fedpriv.experiment.settings import Settings

__all__ = ["Parts", "Plan", "Settings", "build_parts", "make_plan"]
