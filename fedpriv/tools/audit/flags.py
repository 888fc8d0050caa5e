"""The flags of ``fedpriv audit``. Nothing heavy is imported here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import click

from fedpriv.common.flags import (
    CommandGroup,
    Names,
    NewFile,
    OneOf,
    PathParam,
    Whole,
    flag,
    switch,
    table_flag,
    together,
)
from fedpriv.data.names import CANARIES, NONMEMBERS
from fedpriv.tools.audit import request
from fedpriv.tools.audit.request import EPSILON, MEMBERSHIP, PROPERTIES, PROPERTY

_EXAMPLES = """\b
examples:
  fedpriv audit membership outputs/<run folder>
  fedpriv audit membership outputs/runs/* --csv leakage.csv
  fedpriv audit property outputs/<run folder> --property intensity
  fedpriv audit epsilon outputs/<run folder>
  fedpriv audit epsilon --scores scores.csv --delta 1e-5
  fedpriv train audit=membership
"""
_QUESTION = "Does what a client sends tell something about its data that the task does not ask?"
_WHO = "test (default), or held_out: training records that no client has"
_SHADOWS = "shadow runs to train for lira and rmia, an even number, at most 64; default 0"
_KINDS = (
    "direction: gradients of one direction; mislabelled: copies of training inputs with wrong labels, found "
    "by queries of the final model; default: the kind that the run planted, else direction"
)
_TABLE = rb"\A(run,[^\n]*(auc|canaries)|[^\n]*,assumes\r?\n)"  # the header of what --csv writes
_RUNS = f"folder of the shadow runs; default {request.MembershipOptions().shadow_runs}"
_ALLOWED = "code outside fedpriv that the run's configuration may name; may be given again"
_CHOICES = ", ".join(PROPERTIES) + " (CSV: client,value); default intensity"
_of_members, _of_clients = request.MembershipOptions(), request.PropertyOptions("intensity")


def _count(name: str, words: str, default: int) -> Any:
    return flag(name, "N", f"{words}; default {default}", default=str(default))


_of_every_audit = together(
    flag("--seed", "S", "seed of every draw; default 0", default="0"),
    flag("--csv", "FILE", "a row for each run", NewFile(".csv", mark=_TABLE)),
    table_flag,
    flag("--allow", "MODULE", _ALLOWED, multiple=True),
    flag("--device", "DEVICE", "auto (default), cpu, cuda", default="auto"),
)
_shared = together(
    click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=PathParam()),
    _count("--snapshots", "largest number of snapshots, spread evenly", _of_members.snapshots),
    _of_every_audit,
)


@click.group(
    cls=CommandGroup,
    no_args_is_help=False,
    short_help="what attacks find out about a run: fedpriv audit membership --help",
    epilog=_EXAMPLES,
)
def audit() -> None:
    """Attack a run: membership and property inference, and ε from below."""


@audit.command(MEMBERSHIP, short_help="Which records were trained on?", epilog=_EXAMPLES)
@flag("--nonmembers", "SET", _WHO, OneOf(NONMEMBERS), default=_of_members.nonmembers)
@_count("--records", "largest number of members, and of non-members", _of_members.records)
@flag("--shadows", "N", _SHADOWS, default=str(_of_members.shadows))
@flag("--jobs", "N", "shadow runs at a time, each in a process; default 1", Whole(), default=1)
@flag("--shadow-runs", "DIR", _RUNS, PathParam(), default=_of_members.shadow_runs)
@_shared
def membership(**flags: object) -> int:
    """Find out which records were trained on.

    The attacks use the loss, how far the loss fell, the gradients at the run's snapshots, and with --shadows
    LiRA and RMIA. Writes <run>/audit/membership.json, .csv and .png.
    """
    return _run(kind=MEMBERSHIP, **flags)


@audit.command(PROPERTY, short_help=_QUESTION, epilog=_EXAMPLES)
@flag("--property choice", "CHOICE", _CHOICES, Names(PROPERTIES), default=_of_clients.choice)
@_count("--clients", "largest number of clients, half of them to learn from", _of_clients.clients)
@_shared
def property_(**flags: object) -> int:
    """Find out whether what a client sends tells something about its data that the task does not ask.

    Needs a run with runtime.snapshot_interval. Writes <run>/audit/property-<choice>.json and .csv.
    """
    return _run(kind=PROPERTY, **flags)


@audit.command(EPSILON, short_help="How much does it really leak, at least?", epilog=_EXAMPLES)
@click.argument("runs", nargs=-1, metavar="RUN...", type=PathParam())
@flag("--canaries", "M", "canaries of each training; default: those planted, else 1000 (500 apart)")
@flag("--canary", "KIND", _KINDS, OneOf(CANARIES))
@flag("--repetitions", "R", "trainings with canaries of their own; default 1", default="1")
@flag("--confidence", "P", "confidence of all bounds together; default 0.95", default="0.95")
@flag("--scores", "FILE", "scores of another framework: CSV, score and included", PathParam())
@flag("--delta", "D", "with --scores: δ of the guarantee that is audited")
@switch("--independent", "train each canary in a run of its own; with --scores: they were")
@_of_every_audit
def epsilon(**flags: object) -> int:
    """Find out how much a run really leaks, at least.

    Canaries are trained on and looked for: a run that was made with audit=epsilon has its own, another one is
    trained again with them. Writes <run>/audit/epsilon.json and .csv.
    """
    if not flags["runs"] and flags["scores"] is None:
        raise click.UsageError("Missing argument 'RUN...' (or --scores FILE).")
    return _run(kind=EPSILON, **flags)


def _run(**flags: object) -> int:
    from fedpriv.tools.audit.command import run

    return run(SimpleNamespace(**flags))
