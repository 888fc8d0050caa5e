"""``fedpriv verify``: composes the configuration, runs the checks, prints and writes the table."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from fedpriv.common import checks as arguments
from fedpriv.common import config as configuration
from fedpriv.common.console import console
from fedpriv.common.errors import ArgumentError
from fedpriv.common.files import write_json
from fedpriv.common.notices import complain
from fedpriv.experiment.stamps import lacks_isolation, stamp_of, write_stamp
from fedpriv.tools.verify.checks import all_checks
from fedpriv.tools.verify.subject import Subject
from fedpriv.tools.verify.table import FALSE_ALARM, failed, judged, show


def run(given: SimpleNamespace) -> int:
    """Verify one configuration; returns the exit status."""
    seed = _seed(given.seed)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # so that a _target_ may name a module of the user's own
    folder = None if given.config_dir is None else Path(given.config_dir)
    config = configuration.compose(list(given.overrides), folder)
    stamp = stamp_of(config)
    subject = Subject(config, seed, given.rounds, given.synthetic, later=True)
    if subject.parts.settings.runtime.progress != "none":
        subject.steps.say = partial(complain, command="verify")
    found = judged(all_checks(subject))
    parts = subject.parts
    title = f"{parts.algorithm.name} on {parts.dataset.name}: {subject.rounds} rounds, seed {seed}"
    show(title, found)
    wrong = failed(found)
    words = (
        f"{len(wrong)} of {len(found)} checks failed"
        if wrong
        else f"{len(found)} checks, none failed"
    )
    console().print(f"{words}.")
    if stamp is not None and not wrong and lacks_isolation(config):
        console().print(
            "no stamp for publish=true: a run with a model of your own is published only with "
            "isolate_records=true; verify it with that key"
        )
    elif stamp is not None and not wrong:
        facts = {"overrides": list(given.overrides), "seed": seed, "rounds": subject.rounds}
        write_stamp(stamp, {**facts, "synthetic": given.synthetic})
        console().print(f"stamp for publish=true with this code: {stamp}")
    if given.json is not None:
        facts = {
            "algorithm": parts.algorithm.name,
            "dataset": parts.dataset.name,
            "overrides": list(given.overrides),
            "seed": seed,
            "synthetic": given.synthetic,
            "rounds": subject.rounds,
            "false_alarm": FALSE_ALARM,
            "passed": not wrong,
            "checks": [check.as_json() for check in found],
        }
        write_json(given.json, facts)
        console().print(f"written: {given.json}")
    return 1 if wrong else 0


def _seed(text: str) -> int:
    try:
        return arguments.seed("--seed", int(text) if text.isdigit() else text)
    except ArgumentError as error:
        raise error.within("") from None
