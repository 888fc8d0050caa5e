"""Flags of ``fedpriv figure``, which become overrides of ``fedpriv train -m +figure=<name>``, and of
``fedpriv plot``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fedpriv.common.errors import ConfigError
from fedpriv.figures.overrides import overrides_of


def add_figure(commands: argparse._SubParsersAction, words: str) -> argparse.ArgumentParser:
    """The parser of ``fedpriv figure``."""
    parser = commands.add_parser(
        "figure",
        help=words,
        description="Runs what is missing of a figure of a published work, in parallel with --jobs, "
        "and writes figure.csv, figure.png, figure.pdf and comparison.md to "
        "outputs/figures/<name>. Overrides of any key (key=value) apply to all its runs.",
    )
    parser.add_argument("name", nargs="?", help="such as adap_dpfl/fig4; see --list")
    parser.add_argument(
        "--list",
        action="store_true",
        help="every figure (or those below a name, such as wei), its state and its cost",
    )
    parser.add_argument("--dry-run", action="store_true", help="show the runs, start none")
    parser.add_argument("--draw", action="store_true", help="run nothing, draw what is there")
    parser.add_argument(
        "--quick", action="store_true", help="a few rounds of seed 0, to see that everything works"
    )
    parser.add_argument("--seeds", metavar="0,1,2", help="instead of the figure's own")
    parser.add_argument("--jobs", metavar="N", help="so many runs at a time, each in a process")
    parser.add_argument(
        "--reuse",
        metavar="DIR",
        action="append",
        default=[],
        help="a further folder of finished runs",
    )
    parser.add_argument("--config-dir", metavar="DIR", help="a folder with YAMLs of your own")
    return parser


def add_plot(commands: argparse._SubParsersAction, words: str) -> argparse.ArgumentParser:
    """The parser of ``fedpriv plot``."""
    parser = commands.add_parser(
        "plot",
        help=words,
        description="Overlays runs, any column of metrics.csv against any other. Runs that differ "
        "only in their seeds become one line, their mean, with a band from lowest to highest. "
        "Writes the picture and, beside it, what is drawn as CSV.",
    )
    parser.add_argument("folders", nargs="+", help="run folders, or folders that hold some")
    parser.add_argument("--x", default="round", help="default: round")
    parser.add_argument("--y", default="test_accuracy", help="default: test_accuracy")
    parser.add_argument("--each", action="store_true", help="a line for every run")
    parser.add_argument("--out", default="plot.png", help="a .png, .pdf or .svg; default: plot.png")
    return parser


def run(options: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Make or list figures. Raises ConfigError for flags that cannot be."""
    settings = [*overrides_of(options), *overrides]
    if options.list:
        from fedpriv.figures.catalogue import show_figures

        show_figures(settings, options.config_dir, options.name or "")
        return 0
    if options.name is None:
        raise ConfigError("fedpriv figure needs a name, such as adap_dpfl/fig4, or --list")
    from fedpriv.train import main as train

    place = ["--config-dir", options.config_dir] if options.config_dir else []
    train(["-m", *place, f"+figure={options.name}", *settings, *_launcher(options.jobs)])
    return 0


def _launcher(jobs: str | None) -> list[str]:
    if jobs is None:
        return []
    if not (jobs.isascii() and jobs.isdigit() and int(jobs) >= 1):
        raise ConfigError("--jobs", jobs, "a whole number >= 1")
    return ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={int(jobs)}"]
