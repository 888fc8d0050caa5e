"""The flags of ``fedpriv audit``, told to argparse; imports nothing heavy."""

from __future__ import annotations

import argparse
from typing import Any

from fedpriv.audit.request import (
    KINDS,
    MEMBERSHIP,
    NONMEMBERS,
    PROPERTIES,
    PROPERTY,
    MembershipOptions,
    PropertyOptions,
)

VALUES = {"--nonmembers": NONMEMBERS, "--property": PROPERTIES}
"""What may follow a flag, for completion."""

_EXAMPLES = """\
examples:
  fedpriv audit membership outputs/<run folder>
  fedpriv audit membership outputs/runs/* --csv leakage.csv
  fedpriv audit property outputs/<run folder> --property intensity
  fedpriv train audit=membership
"""
_DESCRIPTION = {
    MEMBERSHIP: "Which records were trained on? Attacks by the loss, by how far it fell, and by the "
    "gradients at the run's snapshots. Writes <run>/audit/membership.json, .csv and .png.",
    PROPERTY: "Does what a client sends tell something about its data that the task does not ask? Needs a "
    "run with runtime.snapshot_interval. Writes <run>/audit/property-<choice>.json and .csv.",
}


def add_audit(commands: Any, words: str) -> argparse.ArgumentParser:
    """The subcommand ``audit`` and its own: membership, property."""
    parser = commands.add_parser("audit", help=words, **_layout(words))
    kinds = parser.add_subparsers(metavar="kind", required=True, dest="kind")
    for kind in KINDS:
        own = kinds.add_parser(
            kind, help=_DESCRIPTION[kind].partition("?")[0] + "?", **_layout(_DESCRIPTION[kind])
        )
        own.add_argument("runs", nargs="+", metavar="RUN", help="a run folder")
        (_membership if kind == MEMBERSHIP else _property)(own)
        own.add_argument("--seed", metavar="S", default=0, help="of every draw, default 0")
        own.add_argument("--csv", metavar="FILE", help="a row for each run")
        own.add_argument("--device", default="auto", help="auto (default), cpu, cuda")
    return parser


def _layout(description: str) -> dict[str, Any]:
    return {
        "description": description,
        "epilog": _EXAMPLES,
        "formatter_class": lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=96),
        "allow_abbrev": False,
    }


def _membership(parser: argparse.ArgumentParser) -> None:
    defaults = MembershipOptions()
    parser.add_argument(
        "--nonmembers",
        metavar="SET",
        default=defaults.nonmembers,
        help="test (default), or held_out: training records that no client has",
    )
    parser.add_argument(
        "--records",
        metavar="N",
        default=defaults.records,
        help=f"so many members and as many non-members, default {defaults.records}",
    )
    _snapshots(parser, defaults.snapshots)


def _property(parser: argparse.ArgumentParser) -> None:
    defaults = PropertyOptions("intensity")
    parser.add_argument(
        "--property",
        metavar="CHOICE",
        dest="choice",
        default=defaults.choice,
        help=", ".join(PROPERTIES) + " (CSV: client,value); default intensity",
    )
    parser.add_argument(
        "--clients",
        metavar="N",
        default=defaults.clients,
        help=f"at most so many, half of them to learn from; default {defaults.clients}",
    )
    _snapshots(parser, defaults.snapshots)


def _snapshots(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--snapshots",
        metavar="N",
        default=default,
        help=f"at most so many, spread evenly; default {default}",
    )
