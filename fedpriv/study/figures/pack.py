"""``fedpriv figure pack``: a figure with all that made it in one archive, for the review of an artefact."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import write_atomically
from fedpriv.common.words import counted
from fedpriv.experiment.own_code import own_modules, own_targets
from fedpriv.store.packed import LEDGER, pack_runs
from fedpriv.store.run_folders import runs_of_figure
from fedpriv.store.saved import saved_rows
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.figure_file import Baseline, read_figure_file
from fedpriv.study.figures.loading import compose_safely
from fedpriv.study.figures.make import DEFINITION
from fedpriv.study.figures.overrides import choice_of, names_file, refuse_file_without_ending
from fedpriv.study.figures.own_yamls import used_yamls
from fedpriv.study.figures.planning import plan_figure

NOT_COVERED = (
    "It holds seeds and exact values of the data, as run folders do; no epsilon covers these. Hand it on "
    "only if the data are public."
)
LEFT_OUT = "Left out: data files and modules of your own. The README names those to put beside it."
_YAMLS = "yamls"  # folder of the user's own YAMLs in the archive
_TIME = (1980, 1, 1, 0, 0, 0)  # a fixed date: the same figure gives the same bytes
_FILES = (
    "figure.yaml", "figure.csv", "ends.csv", "runs.csv", "figure.png", "figure.pdf", "figure.svg",
    "comparison.md", "report.html", "privacy.tex",
)  # fmt: skip


def pack_figure(name: str, outputs: Path, out: Path | None, config_dir: Path | None = None) -> Path:
    """Write a figure, its definition, data, runs, statements and versions to an archive.

    Args:
        name: The figure: its file, or its name.
        outputs: The output folder, ``runtime.output_dir``.
        out: The archive; None: ``<figure>.zip`` in the working folder.
        config_dir: Folder with the user's own YAMLs. The archive gets those that the figure uses.

    Returns:
        The archive.

    Raises:
        ConfigError: The figure has not been made, a file cannot be read, or a job cannot be composed, as
            where it needs ``config_dir``.
        WriteError: The archive cannot be written.
    """
    refuse_file_without_ending(name)
    own = read_figure_file(Path(name)) if names_file(name) else None
    title = name if own is None else own.folder
    folder = outputs / "figures" / title
    if not (folder / "figure.csv").is_file():
        raise ConfigError(f"{folder} has no figure yet; fedpriv figure {name} makes it")
    overrides = _overrides(name, config_dir)
    archive = out or Path(f"{title.replace('/', '_')}.zip")
    finished = [path for path in runs_of_figure(folder) if StoredRun(path).finished]
    missing = len(saved_rows(folder / "runs.csv")) - 1 - len(finished)
    contents: list[tuple[str, bytes]] = []
    for file in (folder / entry for entry in _FILES):
        if file.is_file():
            # Under the name of the user's file, from which the figure's folder has its name.
            entry = own.path.name if own is not None and file.name == DEFINITION else file.name
            contents.append((entry, file.read_bytes()))
    if own is not None:
        contents[:0] = _tables(own.baselines, own.path.parent)
    yamls = [] if config_dir is None else used_yamls(config_dir, overrides)
    if config_dir is not None:
        contents += [
            (f"{_YAMLS}/{path.as_posix()}", (config_dir / path).read_bytes()) for path in yamls
        ]
    with tempfile.TemporaryDirectory() as temporary:
        runs = Path(temporary) / "runs.zip"
        pack_runs(finished, runs, (LEDGER,))
        contents.append(("runs.zip", runs.read_bytes()))
    for path in finished:
        statement = path / "privacy.txt"
        if statement.is_file():
            contents.append((f"statements/{path.name}.txt", statement.read_bytes()))
    versions = _versions(finished)
    contents.append(("versions.txt", "".join(f"{line}\n" for line in versions).encode()))
    source = [line for line in versions if line.startswith("fedpriv ")]
    if not any(line.startswith("fedpriv commit") for line in source):
        source.append("commit unknown")
    definition = None if own is None else own.path.name
    counts = (len(finished), missing)
    readme = _readme(name, definition, counts, bool(yamls), ", ".join(source), _beside(finished))
    write_atomically(
        archive, lambda file: file.write(_zipped([("README.md", readme.encode()), *contents])), "wb"
    )
    return archive


def _overrides(name: str, config_dir: Path | None) -> list[str]:
    """Return every override of a figure and its runs; composing them finds out that none is unknown."""
    if config_dir is None and not names_file(name):
        return []
    config = compose_safely([choice_of(name)], config_dir)
    _, jobs = plan_figure(config, name, lambda given: compose_safely(given, config_dir))
    return [choice_of(name), *dict.fromkeys(o for job in jobs for o in job.overrides)]


def _tables(baselines: Sequence[Baseline], folder: Path) -> list[tuple[str, bytes]]:
    """Return the CSVs of baselines under the paths that the figure's file names."""
    return [
        (b.csv, (folder / b.csv).read_bytes())
        for b in baselines
        if b.csv is not None and not Path(b.csv).is_absolute() and ".." not in Path(b.csv).parts
    ]


def _beside(runs: Sequence[Path]) -> list[str]:
    """Return the files that runs read and the archive lacks: the user's modules and data files."""
    targets, data = dict[str, None](), dict[str, None]()
    for path in runs:
        values = StoredRun(path).values
        targets |= dict.fromkeys(own_targets(values).values())
        named = (v for key, v in values.items() if key.startswith("dataset.") and "path" in key)
        data |= dict.fromkeys(str(value) for value in named if value is not None)
    return [*own_modules(targets), *data]


def _versions(runs: Sequence[Path]) -> list[str]:
    """Return a line for each package of the runs, with every version that a run had."""
    versions: dict[str, dict[str, None]] = {}
    for path in runs:
        stored = StoredRun(path)
        facts = {**stored.versions, "python": stored.environment.get("python")}
        commit = stored.environment.get("commit")
        for name, version in {**facts, "fedpriv commit": commit}.items():
            if version is not None:
                versions.setdefault(name, {})[str(version)] = None
    return [f"{name} {' or '.join(found)}" for name, found in sorted(versions.items())]


def _readme(
    name: str,
    definition: str | None,
    counts: tuple[int, int],
    yamls: bool,
    source: str,
    beside: Sequence[str],
) -> str:
    """Return the text that tells a reviewer what is in the archive and how to repeat it.

    Args:
        name: The figure.
        definition: The user's file that defines the figure, as the archive names it; None without one.
        counts: Number of finished and of missing runs.
        yamls: True if the archive has YAMLs of the user's own.
        source: Version and commit of fedpriv.
        beside: Files to put beside the archive's.
    """
    runs, missing = counts
    again = f"{definition or name}{f' --config-dir {_YAMLS}' if yamls else ''}"
    lines = [
        f"# {name}",
        "",
        f"Made by fedpriv from {counted(runs, 'finished run')}.",
        *([f"{counted(missing, 'run')} of the figure are missing, see comparison.md."] * bool(missing)),
        "",
        "| file | content |",
        "| --- | --- |",
        *([f"| {definition} | definition of the figure |"] if definition else []),
        *([f"| {_YAMLS}/ | YAMLs of options that fedpriv does not have |"] if yamls else []),
        "| figure.png, figure.pdf, figure.csv | the picture, and every point drawn |",
        "| ends.csv, runs.csv | the end of every run; the state of every run |",
        "| comparison.md, report.html | tables, differences, joint ε, provenance |",
        "| runs.zip, statements/ | configuration, results, ledger and privacy statement of every run |",
        "| versions.txt | versions of the packages |",
        "",
        NOT_COVERED.replace("It holds", "The runs hold").replace("Hand it on", "Hand them on"),
        "",
        f"fedpriv is installed from its source ({source}); no package index has it. In a checkout of this "
        "version:",
        "",
        "```",
        "pip install .",
        "```",
        "",
        "Draw the figure again from the runs, in the folder of this file, which takes seconds:",
        "",
        "```",
        f"fedpriv figure {again} --draw --reuse runs.zip",
        "```",
        "",
        f"`fedpriv figure {again}` makes the runs anew.",
        "",
        *(
            [f"These files are not in the archive; put them beside it first: {', '.join(beside)}.", ""]
            if beside
            else []
        ),
    ]  # fmt: skip
    return "\n".join(lines)


def _zipped(contents: Sequence[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in dict(contents).items():
            archive.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()
