"""Commands ``fedpriv figure`` and ``fedpriv plot``; this module imports nothing heavy.

The flags of ``fedpriv figure`` become overrides of ``fedpriv train -m +figure=<name>``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from fedpriv.common.errors import ConfigError
from fedpriv.common.flags import (
    Command,
    Names,
    NewFile,
    OneOf,
    PathParam,
    Whole,
    flag,
    switch,
)
from fedpriv.common.groups import options as options_of
from fedpriv.study.figures.definition import choice_of, for_choice, names_file

_FIGURE_EXAMPLES = """\b
examples:
  fedpriv figure accuracy.yaml --dry-run            jobs, epsilon and hours, before anything runs
  fedpriv figure accuracy.yaml --jobs 2
  fedpriv figure adap_dpfl/fig4 --quick
  fedpriv figure pack accuracy.yaml                 for the review of an artefact
"""
_FIGURES = Names(lambda: (name for name, _ in options_of("figure")))
_BAND = OneOf(("t", "sd", "range", "bootstrap", "none"))
_ORDER, _PICTURE = OneOf(("setting", "end")), NewFile(".png", ".pdf", ".svg")
_LIST = "every figure (or those below a name, such as wei) in a line; of one figure its runs"
_FORCE = switch("--force", "write over files that are there")


@click.command(
    cls=Command,
    short_help="a figure of your own from a YAML, or of a published work: fedpriv figure --list",
    epilog=_FIGURE_EXAMPLES,
)
@click.argument(
    "words", nargs=-1, metavar="[pack] [NAME | FILE.yaml] [KEY=VALUE]...", type=_FIGURES
)
@switch("--list", _LIST)
@switch("--dry-run", "show the runs, and of a file their rounds, epsilon and time; start none")
@switch("--draw", "run nothing, draw what is there")
@switch("--quick", "seed 0, on digits where possible; comparison.md says what it shows")
@flag("--seeds", "0,1,2", "instead of the figure's own")
@flag("--jobs", "N", "so many runs at a time, each in a process", Whole())
@flag(
    "--reuse", "DIR", "a further folder, or runs.zip, of finished runs", PathParam(), multiple=True
)
@flag("--config-dir", "DIR", "a folder with YAMLs of your own", PathParam(folder=True))
@flag("--out", "FILE", "of pack: the archive; default: <figure>.zip", NewFile(".zip"))
@_FORCE
def figure(words: Sequence[str], **flags: object) -> int:
    """Run the missing runs of a figure, and draw the figure.

    FILE.yaml is a figure of your own (x, curves, seeds, metric, baselines); NAME is a figure of a published
    work, such as adap_dpfl/fig4. Several runs go in parallel with --jobs. The command writes figure.csv,
    figure.png, figure.pdf, comparison.md and report.html to outputs/figures/<name>; given again, it runs what
    is missing. Overrides of any key (KEY=VALUE) apply to all runs of the figure. pack writes a finished
    figure with its definition, data, runs, privacy statements and versions to an archive.
    """
    names = [word for word in words if "=" not in word]
    given = [word for word in words if "=" in word]
    options = SimpleNamespace(**flags)
    if pack := names[:1] == ["pack"]:
        del names[0]
    if len(names) > 1:
        raise ConfigError(f"fedpriv figure takes one name, got {' and '.join(names)}")
    name = names[0] if names else ""
    file = Path(f"{name}.yaml")
    if name and not names_file(name) and file.is_file():
        folders = (None, Path(options.config_dir)) if options.config_dir else (None,)
        if not any(
            name == known for folder in folders for known, _ in options_of("figure", folder)
        ):
            raise ConfigError(
                f"there is no figure {name}; for the file here: fedpriv figure {file}"
            )
    if pack:
        return _pack(name, given, options)
    if options.out is not None:
        raise ConfigError("--out", str(options.out), "left out but with fedpriv figure pack")
    settings = [*overrides_of(options), *given]
    if options.list:
        from fedpriv.study.figures.catalogue import show_figures

        show_figures(settings, options.config_dir, name)
        return 0
    if not name:
        raise ConfigError("fedpriv figure needs a name, such as adap_dpfl/fig4, or --list")
    launcher = []
    if options.jobs is not None:
        from fedpriv.experiment.machine import refuse_many_processes

        refuse_many_processes("--jobs", options.jobs)
        launcher = ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={options.jobs}"]
    print(f"{name}: composing its runs", flush=True)  # first, since imports take a while
    from fedpriv.train import main as train

    folder = ["--config-dir", options.config_dir] if options.config_dir else []
    train(["-m", *folder, choice_of(name), *for_choice(name, settings), *launcher])
    return 0


def _pack(name: str, overrides: Sequence[str], options: SimpleNamespace) -> int:
    """Pack one finished figure."""
    key = "runtime.output_dir"
    if not name:
        raise ConfigError("fedpriv figure pack needs one figure: fedpriv figure pack FILE.yaml")
    if other := [word for word in overrides if not word.startswith(f"{key}=")]:
        raise ConfigError("fedpriv figure pack", other[0], f"without overrides but {key}")
    from fedpriv.study.figures.pack import LEFT_OUT, NOT_COVERED, pack_figure

    outputs = overrides[-1].partition("=")[2] if overrides else "outputs"
    config_dir = Path(options.config_dir) if options.config_dir else None
    archive = options.out or Path(
        f"{Path(name).stem if names_file(name) else name.replace('/', '_')}.zip"
    )
    _refuse_present([archive], options.force)
    pack_figure(name, Path(outputs), archive, config_dir)
    print(f"packed: {archive} ({archive.stat().st_size / 1000:,.0f} kB). {NOT_COVERED} {LEFT_OUT}")
    return 0


def _refuse_present(files: Iterable[Path], force: bool) -> None:
    """Raise ConfigError for files that are there already, unless they may be written over."""
    for file in files:
        if file.exists() and not force:
            raise ConfigError("--out", file, "a new file", "--force writes over it")


def overrides_of(flags: SimpleNamespace) -> list[str]:
    """Return the overrides that the flags of ``fedpriv figure`` stand for.

    Raises:
        ConfigError: ``--seeds`` is not a list of whole numbers.
    """
    settings = []
    if flags.quick:
        settings.append("figure.scale=quick")
    if flags.seeds is not None:
        seeds = flags.seeds.split(",")
        if not all(seed.strip().isascii() and seed.strip().isdigit() for seed in seeds):
            raise ConfigError("--seeds", flags.seeds or "nothing", "whole numbers, such as 0,1,2")
        settings.append(f"figure.seeds=[{','.join(str(int(seed)) for seed in seeds)}]")
    if flags.reuse:
        quoted = ",".join("'" + folder.replace("'", "\\'") + "'" for folder in flags.reuse)
        settings.append(f"figure.reuse=[{quoted}]")
    if flags.draw:
        settings.append("figure.draw_only=true")
    if flags.dry_run:
        settings.append("dry_run=true")
    return settings


class _Plot(Command):
    """The command ``fedpriv plot``, whose object is the command as the user gave it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = shlex.join(["fedpriv", "plot", *args])
        return super().parse_args(ctx, args)


@click.command(
    cls=_Plot, short_help="overlay finished runs, any column against any: fedpriv plot --help"
)
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", type=PathParam())
@flag("--x", "COLUMN", "default: round")
@flag("--y", "COLUMN", "default: test_accuracy", default="test_accuracy")
@flag("--points", "KEY", "the ends of the runs against a setting, or spent, or epsilon_sound")
@flag("--along", "KEY", "with --points of a result: what a curve's points differ in, or epsilon")
@switch("--each", "a line for every run")
@flag("--band", "KIND", "t (95 %), sd, range, bootstrap or none; default: t", _BAND, default="t")
@flag("--title", "TEXT", "above the picture")
@flag("--x-label", "TEXT", "of the x axis")
@flag("--y-label", "TEXT", "of the y axis")
@flag("--label", "OLD:NEW", "another name of a line; may be repeated", multiple=True)
@flag("--order", "ORDER", "by setting, or from the highest end", _ORDER, default="setting")
@flag("--log", "AXES", "logarithmic axes: x, y or xy", OneOf(("x", "y", "xy")))
@flag("--width", "COLUMNS", "one or two columns of a paper", OneOf(("one", "two")))
@flag("--font-size", "POINTS", "of the labels; default: 8", click.FloatRange(4, 24), default=8.0)
@flag("--out", "FILE", "may be repeated", _PICTURE, multiple=True, default=("plot.png",))
@_FORCE
@click.pass_obj
def plot(command: str, **flags: Any) -> int:
    """Overlay runs in one picture, any column of metrics.csv against any other.

    FOLDER is a run folder, or a folder that holds run folders. Runs that differ only in their seeds become
    one line, their mean, with Student's 95 % interval as band. --points draws the ends of the runs of a sweep
    against a setting or a result: a curve for each combination of the other settings, and × where all runs
    failed. The command writes the picture (.png, .pdf or .svg) and, beside it, the drawn values (.csv), and
    the command with the caption (.txt).
    """
    tables = (flags["out"][0].with_suffix(ending) for ending in (".csv", ".txt"))
    _refuse_present([*flags["out"], *tables], flags["force"])
    if flags["points"] is None and flags["along"] is not None:
        raise ConfigError("fedpriv plot takes --along with --points only")
    if flags["points"] is not None and (flags["x"] is not None or flags["each"]):
        raise ConfigError("fedpriv plot takes --points without --x and --each")
    from fedpriv.study.figures.overlay import run

    return run(SimpleNamespace(**{**flags, "x": flags["x"] or "round", "command": command}))
