"""The flags of ``account`` and ``calibrate``, told to argparse; imports nothing heavy."""

from __future__ import annotations

import argparse
from typing import Any

from fedpriv.privacy.names import (
    ACCOUNTANTS,
    BUDGET_VIEWS,
    CONVERSIONS,
    RELATIONS,
    RELEASE_SAMPLINGS,
)

MECHANISM = ("noise_multiplier", "sample_rate", "steps")
RELEASE = ("sampling", "neighbours", "records", "max_lot_size")
VALUES = {
    "--accountant": ACCOUNTANTS,
    "--sampling": RELEASE_SAMPLINGS,
    "--neighbours": RELATIONS,
    "--conversion": CONVERSIONS,
    "--view": BUDGET_VIEWS,
}
"""What may follow a flag, for completion."""

_ACCOUNT_EXAMPLES = """\
examples:
  fedpriv account --noise-multiplier 3 --sample-rate 0.013 --steps 7921 --delta 1e-5
  fedpriv account --schedule steps.csv --sample-rate 0.013 --delta 1e-5
  fedpriv account --run outputs/<run folder> --view published
"""
_CALIBRATE_EXAMPLES = """\
examples:
  fedpriv calibrate --epsilon 2 --delta 1e-5 --sample-rate 0.013 --steps 7921
  fedpriv calibrate --epsilon 2 --delta 1e-5 --sample-rate 0.013 --noise-multiplier 3
"""


def add_account(commands: Any, words: str) -> argparse.ArgumentParser:
    """The subcommand ``account``."""
    parser = _subcommand(
        commands,
        "account",
        words,
        "Prices releases by every accountant that can: from flags, from a schedule file, or from the "
        "ledger of a run.",
        _ACCOUNT_EXAMPLES,
    )
    _add_mechanism(parser)
    parser.add_argument(
        "--schedule", metavar="FILE", help="CSV: noise_multiplier[,sample_rate][,steps]"
    )
    parser.add_argument("--run", metavar="FOLDER", dest="run_folder", help="a run folder")
    parser.add_argument("--view", metavar="VIEW", help="of the run: sound (default), published")
    parser.add_argument("--delta", metavar="D[,D...]", help="several give the privacy profile")
    parser.add_argument("--accountant", metavar="NAME[,...]", help=", ".join(ACCOUNTANTS))
    _add_rdp_settings(parser)
    parser.add_argument(
        "--plot", metavar="FILE", help="draw epsilon against steps: .png, .pdf, .svg"
    )
    _add_json(parser)
    return parser


def add_calibrate(commands: Any, words: str) -> argparse.ArgumentParser:
    """The subcommand ``calibrate``."""
    parser = _subcommand(
        commands,
        "calibrate",
        words,
        "Solves for whichever of --noise-multiplier, --sample-rate, --steps and --epsilon is left out. "
        "The epsilon of the answer never exceeds the target.",
        _CALIBRATE_EXAMPLES,
    )
    parser.add_argument("--epsilon", metavar="E", help="the target")
    parser.add_argument("--delta", metavar="D")
    _add_mechanism(parser)
    parser.add_argument(
        "--accountant",
        metavar="NAME",
        help=f"{', '.join(ACCOUNTANTS)}; default: the tightest that can account for it",
    )
    _add_rdp_settings(parser)
    _add_json(parser)
    return parser


def _subcommand(
    commands: Any, name: str, words: str, description: str, examples: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=words,
        description=description,
        epilog=examples,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=96),
        allow_abbrev=False,
    )


def _add_mechanism(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is released")
    group.add_argument(
        "--noise-multiplier", metavar="Z", help="noise std / clip norm (whatever the neighbours)"
    )
    group.add_argument("--sample-rate", metavar="Q", help="each record joins a lot with chance Q")
    group.add_argument("--steps", metavar="T", help="how many lots")
    group.add_argument(
        "--sampling", metavar="KIND", help=f"{', '.join(RELEASE_SAMPLINGS)}; default poisson"
    )
    group.add_argument(
        "--neighbours",
        metavar="RELATION",
        help=f"{', '.join(RELATIONS)}; default: replace_one without replacement, else add_or_remove",
    )
    group.add_argument(
        "--records", metavar="N", help="n, for lots without replacement or with a cap"
    )
    group.add_argument("--max-lot-size", metavar="L", help="Poisson lots are cut to L records")


def _add_rdp_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--orders", metavar="A..B", help="of rdp: wide (default), 2..64, 4,8,16")
    parser.add_argument(
        "--conversion", metavar="NAME", help="of rdp: improved (default), classical"
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
