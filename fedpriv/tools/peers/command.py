"""``fedpriv bench --peers``: environments, measurements, the table and the page."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import torch

from fedpriv.common import files
from fedpriv.common.console import console
from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.notices import complain
from fedpriv.engine import tune_allocator
from fedpriv.experiment.machine import processor
from fedpriv.store.folder import own_commit_words
from fedpriv.store.table import Column, Table
from fedpriv.tools.peers.measure import LEAST_PAIRS, compare, comparisons, judged, load
from fedpriv.tools.peers.packages import PEERS, announcement, missing, python_of
from fedpriv.tools.peers.page import page

MODELS = ("cnn", "mlp")


def run(options: SimpleNamespace) -> int:
    """Measure fedpriv beside other libraries, print the numbers, and write them.

    Args:
        options: Flags of ``fedpriv bench``. ``repeats`` is the number of pairs of each row; fewer than
            ``LEAST_PAIRS`` become as many.

    Returns:
        The exit status, which is 0: a goal that is not met is a finding, not a failure.

    Raises:
        ConfigError: A model has no comparison, or the download was not agreed to.
    """
    models = tuple(dict.fromkeys(options.model)) or MODELS
    for model in models:
        if model not in MODELS:
            raise ConfigError("--model", model, f"one of {', '.join(MODELS)} with --peers")
    root = None if options.environments is None else Path(options.environments).absolute()
    _agree(root, options.yes)
    pythons: dict[str, Path | str] = {}
    for peer in PEERS:
        try:
            pythons[peer.name] = python_of(peer, root)
        except FedprivError as error:
            pythons[peer.name] = str(error)
            complain(f"{peer.name} is left out: {error}", command="fedpriv bench")
    threads = options.threads or os.cpu_count() or 1
    report: dict[str, Any] = {"conditions": _conditions(threads), "comparisons": []}
    for comparison in _measured(models, threads, max(options.repeats, LEAST_PAIRS), pythons):
        # Written after each comparison: what was measured is kept when the command is interrupted.
        report["comparisons"].append(comparison)
        report["conditions"]["load at the end"] = load()
        if options.json is not None:
            files.write_json(options.json, report)
        if options.write is not None:
            files.write_text(options.write, page(report))
    return 0


def _agree(environments: Path | None, yes: bool) -> None:
    """Say what will be downloaded, and ask unless ``yes``."""
    peers = missing(environments)
    if not peers:
        return
    complain(announcement(peers, environments), command="fedpriv bench")
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("fedpriv bench --peers downloads and runs packages: add --yes")
    if not click.confirm("download and run?", err=True):
        raise ConfigError("fedpriv bench --peers: nothing downloaded")


def _conditions(threads: int) -> dict[str, Any]:
    return {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "fedpriv": own_commit_words(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "tuned allocator": tune_allocator(),
        "load at the beginning": load(),
    }


def _measured(
    models: Sequence[str], threads: int, pairs: int, pythons: dict[str, Path | str]
) -> Iterator[dict[str, Any]]:
    """Yield each comparison when it was measured and printed."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for comparison in (c for model in models for c in comparisons(model, threads)):
            with ExitStack() as held:
                ours = {way.name: way.opened(held) for way in comparison.ours}
                results = [
                    compare(row, ours, pythons[row.peer.name], pairs, threads)
                    for row in comparison.rows
                ]
            told = judged(comparison, results)
            _print(told)
            yield told
    finally:
        torch.set_num_threads(before)


def _print(comparison: dict[str, Any]) -> None:
    ways = comparison["ours"]
    names = (*(f"fedpriv, {way}" for way in ways), "library", "fedpriv is faster by")
    columns = (Column(name, right=True) for name in names)
    table = Table(f"{comparison['model']}: {comparison['work']}", ("library", *columns))
    for row in comparison["rows"]:
        if "failure" in row:
            table.add(row["row"], *("" for _ in ways), "", f"not measured: {row['failure']}")
            continue
        low, high = row["quartiles"]
        table.add(
            row["row"], *(f"{row['ours'][way]:.2f} ms" for way in ways),
            f"{row['theirs_ms']:.2f} ms", f"{row['times_faster']:.2f} × ({low:.2f} to {high:.2f})",
        )  # fmt: skip
    console().print(table)
    goal = comparison["goal"]
    reached = "not measured" if goal["reached"] is None else f"{goal['reached']:.2f} ×"
    verdict = {True: ": met", False: ": not met", None: ""}[goal["met"]]
    console().print(
        f"goal: {goal['times_faster']:g} × {' or '.join(goal['rows'])}; measured {reached}{verdict}"
    )
