"""The measuring of ``fedpriv bench``: rows that take turns, ratios to a floor, and bars to meet."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class TimedStep:
    """A row to time; one call of ``step`` is one measurement."""

    name: str
    step: Callable[[], object]


@dataclass(frozen=True)
class Bar:
    """The demand that ``row`` takes at most ``at_most`` times as long as ``reference``."""

    row: str
    reference: str
    at_most: float

    def __str__(self) -> str:
        if self.at_most < 1:
            return f"≥ {1 / self.at_most:g} × faster than {self.reference}"
        return f"≤ {self.at_most:g} × {self.reference}"


@dataclass(frozen=True)
class Benchmark:
    """Rows that are timed in turn and compared.

    Attributes:
        name: Title of the table.
        floor: Name of the row that ratios refer to.
        rows: What is timed.
        bars: Ratios that are demanded of some rows.
    """

    name: str
    floor: str
    rows: tuple[TimedStep, ...]
    bars: tuple[Bar, ...] = ()


@dataclass(frozen=True)
class Result:
    """The median milliseconds of each row of a benchmark."""

    setting: Benchmark
    median_ms: dict[str, float]

    def ratio(self, row: str, reference: str) -> float:
        """Return the median of ``row`` divided by the median of ``reference``."""
        return self.median_ms[row] / self.median_ms[reference]

    def as_dict(self) -> dict[str, object]:
        """Return the medians, ratios and bars in the layout of the ``--json`` file."""
        floor = self.setting.floor
        return {
            "setting": self.setting.name,
            "floor": floor,
            "rows": [
                {"row": name, "median_ms": ms, "ratio": self.ratio(name, floor)}
                for name, ms in self.median_ms.items()
            ],
            "bar": [
                {
                    "row": bar.row,
                    "reference": bar.reference,
                    "at_most": bar.at_most,
                    "ratio": self.ratio(bar.row, bar.reference),
                    "met": self.ratio(bar.row, bar.reference) <= bar.at_most,
                }
                for bar in self.setting.bars
            ],
        }


def measure(setting: Benchmark, repeats: int, finish: Callable[[], object] | None = None) -> Result:
    """Time the rows in turn, so that other work of the machine slows down all rows alike.

    Each timed call follows an untimed call of the same row. A step of training follows another step of
    training, so the caches must not be full of another row's data.

    Args:
        setting: The rows.
        repeats: Number of timed calls of each row; the median counts.
        finish: Function that waits until the device has done all that was begun; None: nothing runs on after
            a call.
    """
    wait = finish or (lambda: None)
    times: dict[str, list[float]] = {row.name: [] for row in setting.rows}
    for _ in range(repeats):
        for row in setting.rows:
            row.step()
            wait()
            start = time.perf_counter()
            row.step()
            wait()
            times[row.name].append(1e3 * (time.perf_counter() - start))
    return Result(setting, {name: statistics.median(values) for name, values in times.items()})
