"""An adapter in this process: tests of checks need no pipe."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from fedpriv.tools.adapters.claim import read_claim
from fedpriv.tools.adapters.command import all_checks
from fedpriv.tools.adapters.server import Adapter
from fedpriv.tools.adapters.subject import AdapterSubject
from fedpriv.tools.verify.table import Check, judged


class LocalAdapter:
    """What ``AdapterProcess`` offers, with the server's own adapter and without its process."""

    file = Path(__file__).with_name("mutants.py")

    def __init__(self, make):
        self.adapter, self.calls = Adapter(make), 0
        self.facts, _ = self.adapter.facts()

    def runs(self, requests):
        return [self._run(request) for request in requests]

    def _run(self, request):
        answers = []
        for data in request.data:
            self.calls += 1
            arrays = [np.array(array) for array in data]
            run = {"seed": request.seed, **request.more}
            with warnings.catch_warnings():  # those of the adapter are its own
                warnings.simplefilter("ignore")
                reply, values = self.adapter.round(run, arrays, first=not answers)
            answers.append((dict(zip(reply["values"], values, strict=True)), reply["charged"]))
        return answers


def subject_of(make, seed: int = 0) -> AdapterSubject:
    adapter = LocalAdapter(make)
    facts = adapter.facts
    return AdapterSubject(adapter, read_claim(facts["claim"], facts["holds_still"]), seed)


def checks_of(make, seed: int = 0) -> list[Check]:
    """The judged checks of an adapter made by ``make``."""
    return judged(list(all_checks(subject_of(make, seed))))
