"""The flags of ``fedpriv bench``. Nothing heavy is imported here."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from fedpriv.common.errors import ConfigError
from fedpriv.common.flags import Command, NewFile, OneOf, PathParam, Whole, flag, switch, table_flag
from fedpriv.experiment.machine import cores, refuse_many_processes

_JSON = rb'\A\{\s*"conditions":'  # beginning of the file; only such a file is written over
_PAGE = rb"\A# Speed beside other libraries\n"
_INSTEAD = ("peers", "accounting", "workers", "aggregation", "growth")
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
@flag("--device", "DEVICE", "of the gradient engines: cpu (default), cuda, cuda:1", default="cpu")
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
@switch("--peers", "instead: the same work in Opacus, JAX, pfl-research and Flower, in turn")
@flag("--write", "FILE", "with --peers: the page of the numbers, in Markdown", NewFile(mark=_PAGE))
@flag(
    "--environments",
    "DIR",
    "with --peers: where the libraries are installed; default: the cache",
    PathParam(),
)
@switch("--yes", "with --peers: download the libraries without asking")
@table_flag
def bench(**options: Any) -> int:
    """Measure the speed of the gradient engines (or of what a flag names) on this machine.

    --peers installs other libraries in environments of their own and measures them beside fedpriv.
    """
    given = SimpleNamespace(**options)
    _refuse_flags_of_others(given)
    if given.peers:
        from fedpriv.tools.peers.command import run as speed_of_peers

        return speed_of_peers(given)
    for name in ("write", "environments", "yes"):
        if options[name]:
            raise ConfigError(f"--{name} needs --peers, as in fedpriv bench --peers --{name}")
    if given.accounting:
        from fedpriv.tools.accounting.speed import run as accounting_speed

        # An answer takes seconds, where a row of the engines takes milliseconds.
        return accounting_speed(min(given.repeats, 5))
    few, models = min(given.repeats, 5), tuple(dict.fromkeys(given.model))
    if given.workers is not None:
        from fedpriv.tools.bench_workers import run as speed_of_workers

        return speed_of_workers(given.workers, few, models, given.threads, given.json)
    if given.aggregation:
        from fedpriv.tools.bench_rules import run as speed_of_rules

        return speed_of_rules(few, given.threads, given.json)
    if given.growth is not None:
        from fedpriv.tools.bench_growth import run as growth_of_runs

        return growth_of_runs(Path(given.growth))
    from fedpriv.tools.bench import run as engine_speed

    return engine_speed(
        given.repeats, models or _MODELS, given.threads, given.json, device=given.device
    )


def _refuse_flags_of_others(given: SimpleNamespace) -> None:
    """Raise ConfigError for flags that exclude each other, or that what is measured does not heed."""
    instead = [name for name in _INSTEAD if getattr(given, name) not in (None, False)]
    if len(instead) > 1:
        raise ConfigError(
            f"--{instead[0]} and --{instead[1]} measure different things: give one of them"
        )
    if given.device != "cpu" and instead:
        raise ConfigError(f"--device is for the gradient engines, not for --{instead[0]}")
    if given.model and instead and instead[0] not in ("peers", "workers"):
        raise ConfigError(f"--model is not for --{instead[0]}, which has its own models")
    for name in ("json", "threads"):
        if getattr(given, name) is not None and instead and instead[0] in ("accounting", "growth"):
            raise ConfigError(f"--{name} is not for --{instead[0]}, which does not heed it")
    if given.workers is not None:
        refuse_many_processes("--workers", given.workers)
    if given.threads is not None and given.threads > cores():
        allowed = f"<= {cores()}, the cores of this machine: more of them wait for each other"
        raise ConfigError("--threads", given.threads, allowed)
    if "text" in given.model and given.workers is None:
        raise ConfigError(
            "--model text needs --workers, as in fedpriv bench --workers 2 --model text"
        )
