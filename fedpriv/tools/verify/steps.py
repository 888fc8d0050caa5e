"""What a verification is doing, said as it goes on: it can take minutes."""

from __future__ import annotations

import time
from collections.abc import Callable

_SECONDS = 5.0
"""Between two lines about runs of one step."""


class Steps:
    """The step that a verification is at, and how many runs it has made in it.

    Attributes:
        say: Takes a line; None: nothing is said.
    """

    def __init__(self) -> None:
        self.say: Callable[[str], None] | None = None
        self._name, self._done, self._said = "", 0, 0.0
        self._runs: int | None = None

    def begin(self, name: str, runs: int | None = None) -> None:
        """Begin a step of so many runs (None: not known before)."""
        self._name, self._runs, self._done, self._said = name, runs, 0, 0.0

    def run(self) -> None:
        """Note that a run of the step begins, and say so: of the first one, then now and again."""
        self._done += 1
        now = time.monotonic()
        if self.say is None or now - self._said < _SECONDS:
            return
        self._said = now
        of = "" if self._runs is None or self._done > self._runs else f" of {self._runs}"
        self.say(f"{self._name}, run {self._done}{of}")
