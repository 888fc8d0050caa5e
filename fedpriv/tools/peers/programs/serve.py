"""Answer the requests of ``fedpriv bench --peers``: a JSON line in, a JSON line out.

The programs of this folder run in environments of their own and import nothing of fedpriv.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

Step = Callable[[], object]


def serve(open_row: Callable[..., Step], packages: tuple[str, ...]) -> None:
    """Open a row, then time a step for each request, until the input ends.

    A timed step follows an untimed one: in training, a step follows another step.

    Args:
        open_row: Function from the keys of the first request to the step of the row.
        packages: Packages whose versions are told.
    """
    if cores := os.environ.get("PEER_CORES"):  # what knows nothing of OMP_NUM_THREADS counts these
        os.sched_setaffinity(0, list(os.sched_getaffinity(0))[: int(cores)])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the libraries print must not come between the answers

    def tell(**answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        step = open_row(**json.loads(sys.stdin.readline()))
        step()
        tell(versions={name: version(name) for name in packages})
        for _ in sys.stdin:
            step()
            start = time.perf_counter()
            step()
            tell(seconds=time.perf_counter() - start)
    except BaseException as error:
        tell(error=f"{type(error).__name__}: {error}"[:500])
        raise
