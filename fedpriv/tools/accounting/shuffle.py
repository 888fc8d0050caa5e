"""``fedpriv account --shuffle``: ε of local reports that reach the server shuffled."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from types import SimpleNamespace

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import json_text
from fedpriv.privacy.shuffling import (
    BIT,
    PURE,
    epsilon_of_shuffled,
    gaussian_report,
    secure_sum_epsilon,
)
from fedpriv.store.display import console
from fedpriv.store.table import Column, Table
from fedpriv.tools.accounting import arguments

_OTHERS = (
    *("sample_rate", "steps", "sampling", "neighbours", "records", "max_lot_size", "schedule"),
    *("run_folder", "view", "accountant", "orders", "conversion", "plot"),
)
_shown = partial(arguments.rounded_up, digits=2)
_GAIN = 0.99  # an ε above this share of ε₀ is shown as "no gain"


@dataclass(frozen=True)
class ShuffleCost:
    """ε of n local reports, each ε₀-DP by itself, in the shuffle model.

    The δ is that of the command. A Gaussian report is (ε₀, δ₀)-DP instead, with a δ₀ so small that n
    reports take a tenth of δ.

    Attributes:
        report_epsilon: ε₀ of one report.
        reports: n.
        shuffled: ε of any pure (or Gaussian) reports after shuffling.
        shuffled_bits: ε of flipped bits after shuffling; None for Gaussian reports.
        secure_sum: ε of a secure sum of bits with the same accuracy; None for Gaussian reports.
    """

    report_epsilon: float
    reports: int
    shuffled: float
    shuffled_bits: float | None
    secure_sum: float | None


def run(options: SimpleNamespace) -> int:
    """Compute the costs, print them, and return the exit status.

    Args:
        options: The values of the flags, None for a flag that is absent.

    Raises:
        ConfigError: The flags contradict one another, or a report is too noisy or too exact to be priced.
    """
    arguments.refuse(options, _OTHERS, "with --shuffle")
    if (options.report_epsilon is None) == (options.noise_multiplier is None):
        raise ConfigError(
            "--shuffle needs --report-epsilon of pure reports, or --noise-multiplier of Gaussian ones"
        )
    if options.delta is None:
        raise ConfigError("--delta must be given, such as --delta 1e-6")
    delta = arguments.delta(options.delta)
    counts = [arguments.whole("shuffle", text) for text in options.shuffle.split(",")]
    if options.report_epsilon is not None:
        texts = options.report_epsilon.split(",")
        epsilons = [arguments.number("report_epsilon", text, above=0, at_most=50) for text in texts]
        rows = [
            ShuffleCost(
                epsilon,
                reports,
                epsilon_of_shuffled(epsilon, reports, delta, PURE),
                epsilon_of_shuffled(epsilon, reports, delta, BIT),
                secure_sum_epsilon(epsilon, reports, delta),
            )
            for epsilon in epsilons
            for reports in counts
        ]
    else:
        multiplier = arguments.noise_multiplier(options.noise_multiplier)
        rows = []
        for reports in counts:
            # A Gaussian report is not purely private: part of δ is spent on the tails of the reports.
            of_report = partial(gaussian_report, multiplier, reports, delta)
            epsilon, report_delta = arguments.checked(of_report)
            shuffled = epsilon_of_shuffled(epsilon, reports, delta, PURE, report_delta)
            rows.append(ShuffleCost(epsilon, reports, shuffled, None, None))
    if options.json:
        print(json_text({"delta": delta, "rows": [asdict(row) for row in rows]}), end="")
    else:
        _show(rows, delta)
    return 0


def _show(rows: list[ShuffleCost], delta: float) -> None:
    bits = rows[0].shuffled_bits is not None
    names = ("of a report", "reports", "shuffled", *(["bits, shuffled", "secure sum"] * bits))
    title = f"Epsilon of one round at delta = {delta:g}"
    table = Table(title, (Column(name, right=True) for name in names))
    for row in rows:
        of_bits: tuple[str, ...] = ()
        if row.shuffled_bits is not None and row.secure_sum is not None:
            of_bits = (_shown_gain(row, row.shuffled_bits), _shown(row.secure_sum))
        table.add(
            _shown(row.report_epsilon),
            f"{row.reports:,}",
            _shown_gain(row, row.shuffled),
            *of_bits,
        )
    out = console()
    out.print(table)
    if bits:
        out.print(
            "secure sum: of the clients' bits, as accurate as from flipped ones, with shares of Gaussian "
            "noise"
        )
    out.print("neighbours: one client's report replaced; T rounds at delta each cost at most T times "
              "epsilon, at T times delta")  # fmt: skip


def _shown_gain(row: ShuffleCost, epsilon: float) -> str:
    return "no gain" if epsilon > _GAIN * row.report_epsilon else _shown(epsilon)
