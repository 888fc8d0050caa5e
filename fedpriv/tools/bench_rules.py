"""The command ``fedpriv bench --aggregation``: time and memory of a round of each aggregation rule.

Each rule is measured in a process of its own: peaks of memory are those of a process, and no rule finds the
memory that another one left. Uploads are made up: 100 clients, 1.2 million parameters, a fifth of them moved.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from fedpriv import aggregation
from fedpriv.aggregation import RobustAggregation
from fedpriv.aggregation.robust import RobustRule
from fedpriv.common.console import console
from fedpriv.common.files import write_json
from fedpriv.common.groups import option_of
from fedpriv.engine import FlatModel, tune_allocator
from fedpriv.experiment.machine import processor
from fedpriv.store.table import Column, Table

CLIENTS, SIZE = 100, 1_200_000
SECONDS, MEMORY = 3.0, 0.3
"""Bars: seconds of a round, and memory beside the uploads as a share of theirs."""
_WARM_UP = 1000  # coordinates


def run(repeats: int, threads: int | None = None, json_path: Path | None = None) -> int:
    """Time a round of each rule that does not look at all subsets, and print time and memory.

    Args:
        repeats: Timed rounds of each rule.
        threads: Threads of torch; None: torch's own choice.
        json_path: File that the numbers are also written to; None: no file.

    Returns:
        The exit status, which is 0: a bar that is not met is a finding, not a failure.
    """
    threads = threads or torch.get_num_threads()
    conditions = {
        "torch": torch.__version__,
        "processor": processor(),
        "threads": threads,
        "clients": CLIENTS,
        "parameters": SIZE,
    }
    console().print(", ".join(f"{key} {value}" for key, value in conditions.items()))
    columns = (Column(name, right=True) for name in ("median", "memory beside the uploads"))
    table, rows = Table("a round", ("rule", *columns, "bars")), []
    for option in measured_rules():
        row = measured(option, repeats, threads)
        rows.append({"rule": option, **row})
        met = row["seconds"] <= SECONDS and row["memory"] <= MEMORY
        seconds, memory = f"{row['seconds']:.2f} s", f"{row['memory']:.0%}"
        table.add(option, seconds, memory, "met" if met else "not met")
    console().print(table)
    console().print(f"bars: ≤ {SECONDS:g} s and ≤ {MEMORY:.0%} of the uploads' own memory")
    if json_path is not None:
        write_json(json_path, {"conditions": conditions, "settings": rows})
    return 0


def measured_rules() -> dict[str, type[RobustAggregation]]:
    """Return the robust rules that do not look at all subsets, by option."""
    parts = (getattr(aggregation, name) for name in aggregation.__all__)
    kinds = [
        part for part in parts if isinstance(part, type) and issubclass(part, RobustAggregation)
    ]
    by_option = {
        option_of("aggregation", kind()): kind for kind in kinds if kind is not RobustAggregation
    }
    return {option: kind for option, kind in by_option.items() if not kind.looks_at_subsets}


def measured(option: str, repeats: int, threads: int) -> dict[str, float]:
    """Measure a rule in a process of its own.

    Args:
        option: The rule.
        repeats: Timed rounds.
        threads: Threads of torch.

    Returns:
        The median time of a round in seconds, and its peak memory beside the uploads, as a share of theirs.
    """
    command = [sys.executable, "-m", __name__, option, str(repeats), str(threads)]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    row: dict[str, float] = json.loads(process.stdout)
    return row


def main(option: str, repeats: str, threads: str) -> None:
    """Measure a rule in this process, and print the numbers as JSON."""
    torch.set_num_threads(int(threads))
    tune_allocator()
    kind = measured_rules()[option]
    generator = torch.Generator().manual_seed(0)
    uploads = torch.empty(CLIENTS, SIZE)
    for (
        row
    ) in uploads:  # row by row: the peak before the rule must not be above that of the uploads
        row.normal_(generator=generator)
    uploads[: CLIENTS // 5] += 3.0
    weights, clients = torch.full((CLIENTS,), 1.0 / CLIENTS), np.arange(CLIENTS)

    def start(rows: torch.Tensor) -> RobustRule:
        rule = kind().start(FlatModel(torch.nn.Linear(1, 1)))
        rule.trust(lambda *_: rows[-1])
        return rule

    few = uploads[:, :_WARM_UP].clone()
    start(few).combine(0, clients, few, weights)  # imports and thread pools are no part of a round
    rule, times, before = start(uploads), [], _peak()
    for t in range(int(repeats)):
        began = time.perf_counter()
        rule.combine(t, clients, uploads, weights)
        times.append(time.perf_counter() - began)
    memory = (_peak() - before) / (uploads.numel() * uploads.element_size())
    print(json.dumps({"seconds": float(np.median(times)), "memory": memory}))


def _peak() -> float:
    """Return the largest memory of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


if __name__ == "__main__":
    main(*sys.argv[1:])
