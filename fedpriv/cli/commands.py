"""The commands of ``fedpriv``: their flags, their dispatch, and known errors as one sentence.

Exit status: 0 done; 1 a failure while running; 2 usage or configuration; 130 after Ctrl-C.
"""

from __future__ import annotations

import difflib
import os
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
from click.shell_completion import CompletionItem

from fedpriv.cli.completion import SCRIPTS, Overrides, candidates
from fedpriv.common import endings, startup
from fedpriv.common.errors import (
    ConfigError,
    FedprivError,
    Interrupted,
    WriteError,
    nearest,
    show,
)
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
from fedpriv.common.groups import LISTED, options, train_help
from fedpriv.common.notices import complain, take
from fedpriv.study.figures.command import figure
from fedpriv.tools.accounting.flags import account, calibrate
from fedpriv.tools.audit.flags import audit
from fedpriv.tools.evaluate import evaluate
from fedpriv.tools.report.command import plot, report
from fedpriv.tools.run_flags import runs

_EXAMPLES = """\b
examples:
  fedpriv train                                   Adap DP-FL on handwritten digits, under a minute
  fedpriv train algorithm=dp_fl dry_run=true      rounds and epsilon, before anything runs
  fedpriv train -m noise_schedule.noise_multiplier=3,4,6 seed=0,1,2
  fedpriv train resume=outputs/<run folder>
  fedpriv runs outputs --sort -test_accuracy
  fedpriv evaluate outputs/<run folder> --data new.csv
  fedpriv figure accuracy.yaml                    a figure of your own: curves, seeds, baselines
  fedpriv figure adap_dpfl/fig4 --jobs 2
  fedpriv plot outputs/<run folder> outputs/<another> --y test_loss
  fedpriv report outputs/<run folder>
  fedpriv account --noise-multiplier 3 --sample-rate 0.013 --steps 7921 --delta 1e-5
  fedpriv calibrate --epsilon 2 --sample-rate 0.013 --steps 7921 --delta 1e-5
  fedpriv audit membership outputs/<run folder>
  fedpriv verify algorithm=cdp_fedavg
  fedpriv list clipper quantile                  keys, defaults, units, ranges
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``fedpriv`` and exit with its status; the entry point of the console script.

    Args:
        arguments: The words after ``fedpriv``; None for those of the process.
    """
    # The status of a command that Ctrl-C ends outside of ``run``.
    status = Interrupted.exit_status
    output = sys.stdout = None if sys.stdout is None else endings.Output(sys.stdout)
    try:
        endings.heed_interrupts()
        startup.begin()
        status = run(sys.argv[1:] if arguments is None else list(arguments))
        endings.ignore_interrupts()
    except KeyboardInterrupt:  # before the first or after the last line of the command
        endings.ignore_interrupts()
        _say("interrupted")
    # What was printed may still wait in a buffer. Only a flush tells whether the disk is full or the
    # reader gone.
    status = _flushed(output, status)
    startup.end()
    sys.exit(status)


def _flushed(output: endings.Output | None, status: int) -> int:
    """Return the exit status after everything that was printed has reached its reader."""
    if output is None:
        return status
    try:
        output.flush()
    except BrokenPipeError:
        return status or _without_reader()
    if output.failure is None:
        return status
    return _failed(WriteError("standard output", output.failure)) if status == 0 else status


def _without_reader() -> int:
    # Else Python would try to write the rest at its exit, and fail with a traceback.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def run(arguments: list[str]) -> int:
    """Run one command and return its exit status. Known errors are printed as one sentence.

    Args:
        arguments: The words after ``fedpriv``.
    """
    try:
        take()  # drop the notices of an earlier command in the same process
        with fedpriv.make_context("fedpriv", arguments or ["--help"]) as context:
            status = fedpriv.invoke(context)
        # After the command, so that notices do not stand in the middle of a table.
        for text in take():
            _say(text)
        return status
    except click.exceptions.Exit as done:  # after --help and --version
        return done.exit_code
    except click.UsageError as error:
        return _failed(_in_a_sentence(error))
    except BrokenPipeError:  # the reader of the output has gone, as with | head
        return _without_reader()
    except BaseException as error:
        known_error = endings.as_sentence(error)
        if known_error is None:
            raise
        return _failed(known_error)


def _failed(error: FedprivError) -> int:
    _say(str(error))
    return error.exit_status


def _say(text: str) -> None:
    with suppress(OSError):  # nobody reads standard error any more
        if sys.stdout is not None:
            sys.stdout.flush()
        complain(text)


def _in_a_sentence(error: click.UsageError) -> ConfigError:
    if isinstance(error, click.NoSuchOption) and error.ctx:
        path, name = error.ctx.command_path, error.option_name
        near = nearest(name, _flags(error.ctx.command))
        hint = f"did you mean {near}?" if near else f"see {path} --help"
        return ConfigError(f"{path} does not know {show(name)}; {hint}")
    # click quotes what was typed, which may be pages long.
    message = textwrap.shorten(error.format_message(), 200, placeholder=" ...").rstrip(".")
    prefix, command = "", None
    if error.ctx is not None:
        prefix, command = f"{error.ctx.command_path}: ", error.ctx.command
    # click names no command, and the user needs one.
    if message == "Missing command" and isinstance(command, CommandGroup):
        message += f": {', '.join(command.commands)}"
    return ConfigError(f"{prefix}{message[:1].lower()}{message[1:]}")


def _flags(command: click.Command) -> list[str]:
    known = [name for option in command.params for name in option.opts]
    return [name for name in known if name.startswith("--")]


def _version(context: click.Context, _: Any, wanted: bool) -> None:
    from importlib.metadata import PackageNotFoundError, version

    if not wanted or context.resilient_parsing:
        return
    try:
        print(f"fedpriv {version('fedpriv')}")
    except PackageNotFoundError:
        print("fedpriv (not installed)")
    context.exit()


_SETTINGS = {"help_option_names": ["-h", "--help"], "terminal_width": 100}


@click.group(cls=CommandGroup, context_settings=_SETTINGS, epilog=_EXAMPLES)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version,
    help="Show the version and exit.",
)  # fmt: skip
def fedpriv() -> None:
    """Experiments in differentially private federated learning."""


class _Train(click.Command):
    """The command ``fedpriv train``, whose arguments Hydra parses.

    The flags of Hydra are declared here too, so that a wrong flag is refused in one sentence and TAB offers
    the right ones.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            # A flag that is nearly one of Hydra's was meant as such. Any other was meant as a key.
            name = error.option_name
            begins = any(known.startswith(f"{name}-") for known in _flags(self))
            if begins or difflib.get_close_matches(name, _flags(self), cutoff=0.85):
                raise
            raise _dashed(error.option_name, given) from None
        # The words go to Hydra as they were typed: click would have sorted flags from the rest.
        ctx.params["given"] = given
        return []


def _dashed(flag: str, given: list[str]) -> ConfigError:
    """Return the error for a key that was written as a flag: ``--dataset mnist`` for ``dataset=mnist``."""
    # Both ``--dataset=mnist`` and ``--dataset mnist`` are understood.
    index = next((i for i, word in enumerate(given) if word.startswith(flag)), len(given))
    key, _, value = "".join(given[index : index + 1] or [flag]).partition("=")
    written, key = key, key.replace("-", "_").lstrip("_")
    value = value or "".join(given[index + 1 : index + 2]) or "..."
    return ConfigError(
        f"fedpriv train does not know {show(written)}: keys are written without dashes, "
        f"{show(key + '=' + value)}; see fedpriv train --help"
    )


_HYDRA_FLAGS = together(
    *(click.option(*names.split(), is_flag=True) for names in (
        "--help -h", "--hydra-help", "--version", "--resolve", "--run -r", "--multirun -m",
        "--shell-completion -sc",
    )),
    *(click.option(*names.split()) for names in (
        "--config-dir -cd", "--config-path -cp", "--config-name -cn", "--package -p",
        "--experimental-rerun", "--allow",
    )),
    click.option("--cfg", "-c", type=Names(("job", "hydra", "all"))),
    click.option("--info", "-i", is_flag=False, flag_value="all"),
)  # fmt: skip


@fedpriv.command(
    cls=_Train, add_help_option=False, short_help="run an experiment, or a sweep of them with -m"
)
@click.argument("words", nargs=-1, type=Overrides())
@_HYDRA_FLAGS
def train(given: list[str], config_dir: str | None, **_: Any) -> int:
    """Run an experiment, or a sweep of them with -m."""
    if {"--help", "-h"} & set(given):
        extra = Path(config_dir) if config_dir and os.path.isdir(config_dir) else None
        print(train_help(extra))
        return 0
    from fedpriv.train import main as hydra_main

    hydra_main(given)
    return 0


for _command in (runs, evaluate, figure, plot, report, account, calibrate):
    fedpriv.add_command(_command)


class _OptionsOfGroup(Names):
    """Names of the options of the group that is the argument before."""

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem]:
        # click has parsed the words before, so the group is known while the option is completed.
        group = ctx.params["group"]
        names = [name for name, _ in options(group)] if group in LISTED else []
        return Names(names).shell_complete(ctx, param, incomplete)


@fedpriv.command(
    "list", short_help="groups, their options and ready-made experiments; the keys of an option"
)
@click.argument("group", required=False, type=Names(LISTED))
@click.argument("option", required=False, type=_OptionsOfGroup(()))
@flag("--config-dir", "DIR", "a folder with YAMLs of your own", PathParam(folder=True))
@switch("--all", "every option of every group, one line each")
@table_flag
def list_(group: str | None, option: str | None, config_dir: str | None, all: bool) -> int:
    """List groups, with the names of their options and ready-made experiments.

    GROUP: only this group, e.g. clipper, with all keys of its options. OPTION: only this option, e.g.
    quantile.
    """
    from fedpriv.cli.listing import show_groups

    show_groups(group, option, Path(config_dir) if config_dir else None, all)
    return 0


@fedpriv.group(
    cls=CommandGroup,
    invoke_without_command=True,
    short_help="which data sets are present and where; fedpriv data download mnist",
)
@flag("--path", "DIR", "look here instead of FEDPRIV_DATA or the cache", PathParam())
@click.pass_context
def data(context: click.Context, path: str | None) -> int:
    """Print which data sets are present and where."""
    # ``fedpriv data`` alone shows the table; ``fedpriv data download`` must not.
    if context.invoked_subcommand is None:
        from fedpriv.cli.listing import show_data

        show_data(path)
    return 0


_NAMES = ("mnist", "fashion_mnist", "emnist", "cifar10", "adult", "shakespeare")


@data.command(
    help=f"Fetches a data set (NAME: {', '.join(_NAMES)}) and verifies its checksums.",
    short_help="fetch a data set and verify its checksums",
)
@click.argument("name", type=Names(_NAMES))
@flag("--to", "DIR", "the folder; default: FEDPRIV_DATA, else the cache", PathParam())
def download(name: str, to: str | None) -> int:
    """Fetch a data set and verify its checksums."""
    from fedpriv.data.catalogue import download as fetch

    status = fetch(name, to)
    print(f"{status.name}: complete, checksums {status.checksums}, in {status.where}")
    return 0


fedpriv.add_command(audit)
# The beginning of the file that the command writes. Only such a file is written over.
_VERIFY_JSON = rb'(?s)\A\{\s*"(algorithm|adapter)":.*"false_alarm":'
_VERIFY_EXAMPLES = """\b
examples:
  fedpriv verify                                    the default run, a few seconds
  fedpriv verify algorithm=cdp_fedavg clipper=quantile
  fedpriv verify --config-dir yamls algorithm=mine --json verify.json
  fedpriv verify --adapter my_mechanism.py          code that is not fedpriv's
"""


@fedpriv.command(
    short_help="test that a configuration's mechanism does what its ledger says",
    epilog=_VERIFY_EXAMPLES,
)
@click.argument("overrides", nargs=-1, type=Overrides())
@flag("--config-dir", "DIR", "a folder with YAMLs of your own", PathParam(folder=True))
@flag("--json", "FILE", "also write the table here", NewFile(mark=_VERIFY_JSON))
@flag("--seed", "S", "of every draw of the test, default 0", default="0")
@flag("--rounds", "N", "of each run; default 8, or 4 where a round takes long", Whole())
@switch("--synthetic", "made-up records in the place of the data set's")
@flag("--adapter", "FILE[:make]", "verify this adapter of other code, and no configuration")
@flag("--python", "PATH", "the interpreter that runs the adapter; default: this one")
@flag("--time-limit", "SECONDS", "of a round of the adapter, default 60")
@table_flag
def verify(**flags: Any) -> int:
    """Test that the mechanism of a configuration does what its ledger says.

    The tests are of noise, sensitivity, independence and sampling, and of whether anything else is released.
    Takes the overrides of fedpriv train, or, with --adapter, code that is not fedpriv's. Exit status 1: a
    check failed.
    """
    options = SimpleNamespace(**flags)
    of_adapter = {"--python": options.python, "--time-limit": options.time_limit}
    of_configuration = {
        "an override": options.overrides, "--config-dir": options.config_dir,
        "--rounds": options.rounds, "--synthetic": options.synthetic,
    }  # fmt: skip
    refused, why = of_adapter, "needs --adapter"
    if options.adapter is not None:
        refused, why = of_configuration, "does not go with --adapter, which runs no configuration"
    for name, value in refused.items():
        if value:
            raise ConfigError(f"fedpriv verify: {name} {why}")
    if options.adapter is not None:
        from fedpriv.tools.adapters.command import run as run_adapter

        return run_adapter(options)
    from fedpriv.tools.verify.command import run

    return run(options)


@fedpriv.command(short_help='shell completion: eval "$(fedpriv completion bash)"')
@click.argument("shell", type=OneOf(tuple(SCRIPTS)))
def completion(shell: str) -> int:
    """Print the completion script of bash, zsh or fish: eval "$(fedpriv completion bash)"."""
    print(SCRIPTS[shell].strip())
    return 0


@fedpriv.command("_complete", hidden=True)
def complete() -> int:
    """Print what may stand at the end of the command line in COMP_LINE, one offer a line."""
    for offer in candidates(os.environ.get("COMP_LINE", ""), fedpriv):
        print(offer)
    return 0


if __name__ == "__main__":
    main()
