"""What can be said about a sweep before its first run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from omegaconf import DictConfig

from fedpriv.common.errors import FedprivError
from fedpriv.config import with_protocol
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import make_plan
from fedpriv.privacy.noise_schedules import ConstantNoise, ExponentialNoise, StepNoise

_KEY = "epsilon="
Job = Sequence[str]


def only_moves_the_end(batch: Sequence[Job], compose: Callable[[Job], DictConfig]) -> str | None:
    """That epsilon sets the length of runs and not their noise, where it does; the jobs that differ in their
    epsilon alone are compared, of the first such settings."""
    first = [override for override in batch[0] if not override.startswith(_KEY)]
    jobs = [job for job in batch if [o for o in job if not o.startswith(_KEY)] == first]
    values = [o.removeprefix(_KEY) for job in jobs for o in job if o.startswith(_KEY)]
    try:
        ends = [_ends(build_parts(with_protocol(compose(job)))) for job in jobs]
    except FedprivError:  # the run says so
        return None
    if len(set(values)) < 2 or None in ends or len(set(ends)) < 2:
        return None
    return (
        f"epsilon={','.join(dict.fromkeys(values))} moves only the end of the runs, as the noise multiplier "
        "does not depend on it; noise_schedule=calibrated rounds=T calibrates it to each epsilon"
    )


def _ends(parts: Parts) -> int | None:
    """After how many rounds the run ends; None where its noise depends on epsilon, or has none."""
    fixed = isinstance(parts.noise_schedule, ConstantNoise | ExponentialNoise | StepNoise)
    return make_plan(parts).rounds if parts.algorithm.private and fixed else None
