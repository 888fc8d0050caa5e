"""An experiment: its parts built and checked, its plan, the one round loop, checkpoint and resume."""
