"""Command ``fedpriv figure``; this module imports nothing heavy.

The flags of ``fedpriv figure`` become overrides of ``fedpriv train -m +figure=<name>``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import click

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import refuse_present
from fedpriv.common.flags import (
    Command,
    Names,
    NewFile,
    PathParam,
    Whole,
    flag,
    switch,
)
from fedpriv.common.groups import options as options_of
from fedpriv.common.words import quoted
from fedpriv.study.figures.definition import choice_of, names_file

_FIGURE_EXAMPLES = """\b
examples:
  fedpriv figure accuracy.yaml --dry-run            jobs and epsilon, before anything runs
  fedpriv figure accuracy.yaml --jobs 2
  fedpriv figure adap_dpfl/fig4 --quick
  fedpriv figure pack accuracy.yaml                 for the review of an artefact
"""
_FIGURES = Names(lambda: (name for name, _ in options_of("figure")))
_LIST = "every figure (or those below a name, such as wei) in a line; of one figure its runs"


@click.command(
    cls=Command,
    short_help="a figure of your own from a YAML, or of a published work: fedpriv figure --list",
    epilog=_FIGURE_EXAMPLES,
)
@click.argument(
    "words", nargs=-1, metavar="[pack] [NAME | FILE.yaml] [KEY=VALUE]...", type=_FIGURES
)
@switch("--list", _LIST)
@switch("--dry-run", "show the runs, and of a file their rounds and epsilon; start none")
@switch("--draw", "run nothing, draw what is there")
@switch("--quick", "seed 0, on digits where possible; comparison.md says what it shows")
@flag("--seeds", "0,1,2", "instead of the figure's own")
@flag("--jobs", "N", "so many runs at a time, each in a process", Whole())
@flag(
    "--reuse", "DIR", "a further folder, or runs.zip, of finished runs", PathParam(), multiple=True
)
@flag("--config-dir", "DIR", "a folder with YAMLs of your own", PathParam(folder=True))
@flag("--out", "FILE", "of pack: the archive; default: <figure>.zip", NewFile(".zip"))
@switch("--force", "write over an archive that is there")
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
    if name and "/" not in name and Path(f"{name}.yaml").is_file():
        raise ConfigError(f"there is no figure {name}; the file here is fedpriv figure {name}.yaml")
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
    train(["-m", *folder, *choice_of(name, settings), *launcher])
    return 0


def _pack(name: str, overrides: Sequence[str], options: SimpleNamespace) -> int:
    """Pack one finished figure."""
    key = "runtime.output_dir"
    if not name:
        raise ConfigError("fedpriv figure pack needs one figure: fedpriv figure pack FILE.yaml")
    if other := [word for word in overrides if not word.startswith(f"{key}=")]:
        raise ConfigError("fedpriv figure pack", other[0], f"without overrides but {key}")
    from fedpriv.study.figures.pack import NOT_COVERED, pack_figure

    outputs = overrides[-1].partition("=")[2] if overrides else "outputs"
    stem = Path(name).stem if names_file(name) else name.replace("/", "_")
    archive = options.out or Path(f"{stem}.zip")
    refuse_present([archive], options.force)
    config_dir = Path(options.config_dir) if options.config_dir else None
    pack_figure(name, Path(outputs), archive, config_dir)
    print(f"packed: {archive} ({archive.stat().st_size / 1000:,.0f} kB). {NOT_COVERED}")
    return 0


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
        settings.append(f"figure.reuse=[{','.join(map(quoted, flags.reuse))}]")
    if flags.draw:
        settings.append("figure.draw_only=true")
    if flags.dry_run:
        settings.append("dry_run=true")
    return settings
