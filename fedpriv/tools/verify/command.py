"""The command ``fedpriv verify``, which runs all checks of a configuration and shows their table."""

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
from fedpriv.experiment.stamps import stamp_of, write_stamp
from fedpriv.tools.verify.checks import all_checks
from fedpriv.tools.verify.subject import Subject
from fedpriv.tools.verify.table import FALSE_ALARM, failed, judged, show


def run(options: SimpleNamespace) -> int:
    """Verify one configuration, print the table, and return the exit status, which is 1 if a check failed.

    Where all checks passed, a stamp is written that lets this code publish runs (``publish=true``), if the
    configuration has code of the user's own. The current folder is added to ``sys.path``.

    Args:
        options: The arguments of the command: overrides, seed, rounds, synthetic, config_dir and json, the
            file that the results are written to.

    Raises:
        ConfigError: An argument or the configuration is not allowed.
    """
    try:
        text = options.seed
        seed = arguments.seed("--seed", int(text) if text.isdigit() else text)
    except ArgumentError as error:
        raise error.within("") from None
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a _target_ may name a module in the working folder
    folder = None if options.config_dir is None else Path(options.config_dir)
    config = configuration.compose(list(options.overrides), folder)
    stamp = stamp_of(config)
    subject = Subject(config, seed, options.rounds, options.synthetic, later=True)
    if subject.parts.settings.runtime.progress != "none":
        subject.steps.say = partial(complain, command="verify")
    checks = judged(all_checks(subject))
    parts = subject.parts
    title = f"{parts.algorithm.name} on {parts.dataset.name}: {subject.rounds} rounds, seed {seed}"
    show(title, checks)
    failures = failed(checks)
    if failures:
        console().print(f"{len(failures)} of {len(checks)} checks failed.")
    else:
        console().print(f"{len(checks)} checks, none failed.")
    if stamp is not None and not failures:
        facts = {"overrides": list(options.overrides), "seed": seed, "rounds": subject.rounds}
        write_stamp(stamp, {**facts, "synthetic": options.synthetic})
        console().print(f"stamp for publish=true with this code: {stamp}")
    if options.json is not None:
        facts = {
            "algorithm": parts.algorithm.name,
            "dataset": parts.dataset.name,
            "overrides": list(options.overrides),
            "seed": seed,
            "synthetic": options.synthetic,
            "rounds": subject.rounds,
            "false_alarm": FALSE_ALARM,
            "passed": not failures,
            "checks": [check.as_json() for check in checks],
        }
        write_json(options.json, facts)
        console().print(f"written: {options.json}")
    return 1 if failures else 0
