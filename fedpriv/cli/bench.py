"""The flags of ``fedpriv bench``. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from fedpriv.common.flags import Command, NewFile, OneOf, PathParam, Whole, flag, switch, table_flag

_JSON = rb'\A\{\s*"conditions":'  # beginning of the file; only such a file is written over
_MODELS = ("cnn", "mlp", "logistic")  # as in fedpriv.tools.bench, which imports torch


@click.command(
    cls=Command, short_help="speed of the gradient engines (or --accounting) on this machine"
)
@flag("--repeats", "N", "timed runs of each row; default 20", Whole(), default=20)
@flag(
    "--model",
    "NAME",
    ", ".join(_MODELS) + ", text (with --workers); default: all",
    OneOf((*_MODELS, "text")),
    multiple=True,
)
@flag("--threads", "N", "default: torch's choice", Whole())
@flag("--json", "FILE", "also write the figures here", NewFile(mark=_JSON))
@switch("--accounting", "instead: accounting for thousands of noise multipliers")
@flag("--workers", "N", "instead: rounds over N processes beside those of one", Whole())
@switch("--aggregation", "instead: a round of each aggregation rule, its time and memory")
@flag(
    "--growth",
    "FOLDER",
    "instead: time and memory up to a million clients, written there",
    PathParam(),
)
@table_flag
def bench(
    repeats: int,
    model: Sequence[str],
    threads: int | None,
    json: Path | None,
    accounting: bool,
    workers: int | None,
    aggregation: bool,
    growth: str | None,
) -> int:
    """Measure the speed of the gradient engines (or of what a flag names) on this machine.

    scripts/bench_peers.py, in a checkout, compares them with other libraries.
    """
    if accounting:
        from fedpriv.tools.accounting.speed import run as accounting_speed

        # An answer takes seconds, where a row of the engines takes milliseconds.
        return accounting_speed(min(repeats, 5))
    if workers is not None:
        from fedpriv.tools.bench_workers import run as speed_of_workers

        return speed_of_workers(workers, min(repeats, 5), tuple(model), threads, json)
    if aggregation:
        from fedpriv.tools.bench_rules import run as speed_of_rules

        return speed_of_rules(min(repeats, 5), threads, json)
    if growth is not None:
        from fedpriv.tools.bench_growth import run as growth_of_runs

        return growth_of_runs(Path(growth))
    from fedpriv.tools.bench import run as engine_speed

    return engine_speed(repeats, tuple(dict.fromkeys(model or _MODELS)), threads, json)
