"""The flags of ``fedpriv account`` and ``fedpriv calibrate``. Nothing heavy is imported here."""

from __future__ import annotations

from types import SimpleNamespace

import click

from fedpriv.common.flags import (
    Command,
    Names,
    NewFile,
    OneOf,
    PathParam,
    flag,
    switch,
    table_flag,
    together,
)
from fedpriv.privacy.core.names import (
    ACCOUNTANTS,
    BUDGET_VIEWS,
    CONVERSIONS,
    RELATIONS,
    RELEASE_SAMPLINGS,
)

_ACCOUNT_EXAMPLES = """\b
examples:
  fedpriv account --noise-multiplier 3 --sample-rate 0.013 --steps 7921 --delta 1e-5
  fedpriv account --schedule steps.csv --sample-rate 0.013 --delta 1e-5
  fedpriv account --schedule steps.csv --statement --delta 1e-5    of a loop of your own
  fedpriv account --run outputs/<run folder> --view published

\b
columns of the CSV, a row for each stretch of equal releases (others are ignored):
  noise_multiplier  std of the noise on the sum of a lot / clip norm; for noise of std s on a
                    mean over m contributions, m s / clip norm. Two sums of one lot (z1, z2)
                    are one row: 1 / sqrt(1 / z1^2 + 1 / z2^2)
  sample_rate       chance of each record (or client) to join a lot; absent with --sampling none
                    (shuffled batches too), or where --sample-rate gives it
  steps             how often, default 1
"""
_CALIBRATE_EXAMPLES = """\b
examples:
  fedpriv calibrate --epsilon 2 --delta 1e-5 --sample-rate 0.013 --steps 7921
  fedpriv calibrate --epsilon 2 --delta 1e-5 --sample-rate 0.013 --noise-multiplier 3
"""
_SAMPLINGS = f"{', '.join(RELEASE_SAMPLINGS)}; default poisson"
_NEIGHBOURS = (
    f"{', '.join(RELATIONS)}; default: replace_one without replacement, else add_or_remove"
)
_ALL = ", ".join(ACCOUNTANTS)
_DRAWN = "draw epsilon against steps: .png, .pdf, .svg"

_released = together(
    flag("--noise-multiplier", "Z", "noise std / clip norm (whatever the neighbours)"),
    flag("--sample-rate", "Q", "each record joins a lot with chance Q"),
    flag("--steps", "T", "number of lots"),
    flag("--sampling", "KIND", _SAMPLINGS, OneOf(RELEASE_SAMPLINGS)),
    flag("--neighbours", "RELATION", _NEIGHBOURS, OneOf(RELATIONS)),
    flag("--records", "N", "n, for lots without replacement or with a cap"),
    flag("--max-lot-size", "L", "Poisson lots are cut to L records"),
)
_settings = together(
    flag("--orders", "A..B", "Rényi orders of rdp: wide (default), 2..64, 4,8,16"),
    flag(
        "--conversion",
        "NAME",
        "from RDP to epsilon: improved (default), classical",
        OneOf(CONVERSIONS),
    ),
    switch("--json", "print JSON instead of a table"),
)


@click.command(
    cls=Command,
    short_help="privacy cost (epsilon) of releases, by every accountant: fedpriv account --help",
    epilog=_ACCOUNT_EXAMPLES,
)
@_released
@flag("--schedule", "FILE", "CSV: noise_multiplier[,sample_rate][,steps]", PathParam())
@switch("--statement", "privacy paragraph and ledger of releases as declared, which were not seen")
@flag("--run run_folder", "FOLDER", "a run folder", PathParam())
@flag("--view", "VIEW", "ledger of the run: sound (default), published", OneOf(BUDGET_VIEWS))
@flag("--delta", "D[,D...]", "delta; several give the privacy profile")
@flag("--accountant", "NAME[,...]", _ALL, Names(ACCOUNTANTS))
@_settings
@flag("--plot", "FILE", _DRAWN, NewFile(".png", ".pdf", ".svg", mark=rb"fedpriv"))
@table_flag
def account(**flags: object) -> int:
    """Print the privacy cost (epsilon) of releases by every accountant that can account for them.

    The releases come from flags, from a schedule file, or from the ledger of a run.
    """
    from fedpriv.tools.accounting.account import run

    return run(SimpleNamespace(**flags))


@click.command(
    cls=Command,
    short_help="calibrate noise multiplier, sample rate or steps to a target epsilon",
    epilog=_CALIBRATE_EXAMPLES,
)
@flag("--epsilon", "E", "the target")
@flag("--delta", "D", "delta, such as 1e-5")
@_released
@flag(
    "--accountant",
    "NAME",
    f"{_ALL}; default: the tightest that can",
    Names(ACCOUNTANTS),
)
@_settings
@table_flag
def calibrate(**flags: object) -> int:
    """Solve for whichever of --noise-multiplier, --sample-rate, --steps and --epsilon is left out.

    The epsilon of the answer never exceeds the target.
    """
    from fedpriv.tools.accounting.calibrate import run

    return run(SimpleNamespace(**flags))
