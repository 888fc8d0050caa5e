"""The ``fedpriv`` command: parses, dispatches, and turns known errors into one sentence.

Exit status: 0 done; 1 a failure while running; 2 usage or configuration; 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from fedpriv.accounting import flags
from fedpriv.audit.flags import add_audit
from fedpriv.common.errors import ConfigError, FedprivError, nearest
from fedpriv.figures.command import add_figure, add_plot

COMMANDS = {
    "train": "run an experiment, or a sweep of them with -m",
    "figure": "a figure of a published work by one command: fedpriv figure --list",
    "plot": "overlay finished runs, any column against any: fedpriv plot --help",
    "account": "what releases cost, by every accountant: fedpriv account --help",
    "calibrate": "the noise, sample rate or steps that meet an epsilon",
    "list": "groups, their options and ready-made experiments, one line each",
    "data": "which data sets are present and where; fedpriv data download mnist",
    "audit": "what attacks find out from a run: fedpriv audit membership --help",
    "bench": "speed of the gradient engines (or --accounting) on this machine",
    "completion": 'shell completion: eval "$(fedpriv completion bash)"',
}
EXAMPLES = """\
examples:
  fedpriv train                                   Adap DP-FL on handwritten digits, under a minute
  fedpriv train algorithm=dp_fl dry_run=true      rounds and epsilon, before anything runs
  fedpriv train -m noise_schedule.noise_multiplier=3,4,6 seed=0,1,2
  fedpriv train resume=outputs/<run folder>
  fedpriv figure adap_dpfl/fig4 --jobs 2
  fedpriv plot outputs/<run folder> outputs/<another> --y test_loss
  fedpriv account --noise-multiplier 3 --sample-rate 0.013 --steps 7921 --delta 1e-5
  fedpriv calibrate --epsilon 2 --sample-rate 0.013 --steps 7921 --delta 1e-5
  fedpriv audit membership outputs/<run folder>
  fedpriv list clipper
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit status."""
    try:
        return _dispatch(arguments)
    except FedprivError as error:
        _say(f"fedpriv: {error}")
        return error.exit_status
    except KeyboardInterrupt:
        _say("fedpriv: interrupted")
        return 130
    except BrokenPipeError:  # the reader of our output went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _say(text: str) -> None:
    sys.stdout.flush()
    print(text, file=sys.stderr, flush=True)


def _dispatch(arguments: list[str]) -> int:
    command = arguments[0] if arguments else "--help"
    if command == "train":  # Hydra parses the rest, flags included
        from fedpriv.train import main as train

        train(arguments[1:])
        return 0
    if command == "_complete":
        from fedpriv.completion import candidates

        print("\n".join(candidates(os.environ.get("COMP_LINE", ""), COMMANDS, _flags)))
        return 0
    if not command.startswith("-") and command not in COMMANDS:
        near = nearest(command, COMMANDS)
        hint = f"did you mean {near}?" if near else ""
        raise ConfigError("the command", command, "one of " + ", ".join(COMMANDS), hint)
    options, unknown = _parser().parse_known_args(arguments or ["--help"])
    if command == "figure":
        unknown = _name_and_overrides(options, unknown)
    if unknown:
        near = nearest(unknown[0].partition("=")[0], _flags(command))
        hint = f"did you mean {near}?" if near else f"see fedpriv {command} --help"
        raise ConfigError(f"fedpriv {command} does not know {unknown[0]}; {hint}")
    return options.run(options)


def _name_and_overrides(options: argparse.Namespace, unknown: list[str]) -> list[str]:
    """Tell the figure's name from the overrides, in whatever order; returns what is neither."""
    words = [w for w in (options.name, *unknown) if w is not None and not w.startswith("-")]
    options.overrides = [w for w in words if "=" in w]
    names = [w for w in words if "=" not in w]
    options.name = names[0] if names else None
    return [u for u in unknown if u.startswith("-")] + names[1:]


class _Parser(argparse.ArgumentParser):
    """Says in one sentence what is wrong."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}")


def _parser() -> argparse.ArgumentParser:
    """All commands and their flags."""
    parser = _Parser(
        prog="fedpriv",
        description="Experiments in differentially private federated learning.",
        epilog=EXAMPLES,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, max_help_position=16, width=96
        ),
    )
    parser.add_argument("--version", action="version", version=f"fedpriv {_version()}")
    commands = parser.add_subparsers(metavar="command", required=True)
    # shown in the help; _dispatch hands it to Hydra before argparse sees it
    commands.add_parser("train", help=COMMANDS["train"], add_help=False)
    add_figure(commands, COMMANDS["figure"]).set_defaults(run=_figure)
    add_plot(commands, COMMANDS["plot"]).set_defaults(run=_plot)
    flags.add_account(commands, COMMANDS["account"]).set_defaults(run=_account)
    flags.add_calibrate(commands, COMMANDS["calibrate"]).set_defaults(run=_calibrate)
    _add_list(commands)
    _add_data(commands)
    add_audit(commands, COMMANDS["audit"]).set_defaults(run=_audit)
    _add_bench(commands)
    completion = commands.add_parser("completion", help=COMMANDS["completion"])
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    completion.set_defaults(run=_completion)
    return parser


def _add_list(commands) -> None:  # type: ignore[no-untyped-def]
    parser = commands.add_parser("list", help=COMMANDS["list"])
    parser.add_argument("group", nargs="?", help="only this group, e.g. clipper")
    parser.add_argument("--config-dir", type=Path, help="a folder with YAMLs of your own")
    parser.set_defaults(run=_list)


def _add_data(commands) -> None:  # type: ignore[no-untyped-def]
    parser = commands.add_parser("data", help=COMMANDS["data"])
    parser.add_argument("--path", help="look here instead of FEDPRIV_DATA or the cache")
    parser.set_defaults(run=_data)
    actions = parser.add_subparsers(metavar="action")
    fetch = actions.add_parser("download", help="fetch a data set and verify its checksums")
    fetch.add_argument("name", help="mnist, fashion_mnist, emnist, cifar10, adult or shakespeare")
    fetch.add_argument("--to", help="the folder; default: FEDPRIV_DATA, else the cache")
    fetch.set_defaults(run=_download)


BENCH_MODELS = ("cnn", "mlp", "logistic")  # fedpriv.bench knows them, which imports torch


def _add_bench(commands) -> None:  # type: ignore[no-untyped-def]
    parser = commands.add_parser("bench", help=COMMANDS["bench"])
    parser.add_argument("--repeats", type=_positive, default=20, help="timed runs of each row")
    parser.add_argument(
        "--model", action="append", choices=BENCH_MODELS, help="default: all of them"
    )
    parser.add_argument("--threads", type=_positive, help="default: torch's choice")
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    parser.add_argument(
        "--accounting",
        action="store_true",
        help="instead: accounting for thousands of noise multipliers",
    )
    parser.set_defaults(run=_bench)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number >= 1, got {text}")
    return int(text)


def _flags(command: str) -> list[str]:
    """The flags of a command, for completion."""
    found = next(a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    if command not in found.choices:
        return []
    own = found.choices[command]
    kinds = [a for a in own._actions if isinstance(a, argparse._SubParsersAction)]
    parsers = [own, *(parser for kind in kinds for parser in kind.choices.values())]
    names = (name for p in parsers for a in p._actions for name in a.option_strings)
    return list(dict.fromkeys(name for name in names if name.startswith("--")))


def _figure(options: argparse.Namespace) -> int:
    from fedpriv.figures.command import run

    return run(options, options.overrides)


def _plot(options: argparse.Namespace) -> int:
    from fedpriv.figures.overlay import run

    return run(options)


def _account(options: argparse.Namespace) -> int:
    from fedpriv.accounting.account import run

    return run(options)


def _calibrate(options: argparse.Namespace) -> int:
    from fedpriv.accounting.calibrate import run

    return run(options)


def _audit(options: argparse.Namespace) -> int:
    from fedpriv.audit.command import run

    return run(options)


def _list(options: argparse.Namespace) -> int:
    from fedpriv.listing import show_groups

    show_groups(options.group, options.config_dir)
    return 0


def _data(options: argparse.Namespace) -> int:
    from fedpriv.listing import show_data

    show_data(options.path)
    return 0


def _download(options: argparse.Namespace) -> int:
    from fedpriv.data.catalogue import download

    status = download(options.name, options.to)
    print(f"{status.name}: complete, checksums {status.checksums}, in {status.where}")
    return 0


def _bench(options: argparse.Namespace) -> int:
    if options.accounting:
        from fedpriv.accounting.speed import run

        return run(min(options.repeats, 5))
    from fedpriv.bench import run as bench

    models = tuple(dict.fromkeys(options.model or BENCH_MODELS))
    return bench(options.repeats, models, options.threads, options.json)


def _completion(options: argparse.Namespace) -> int:
    from fedpriv.completion import script

    print(script(options.shell))
    return 0


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fedpriv")
    except PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    main()
