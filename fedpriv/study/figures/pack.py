"""``fedpriv figure pack``: a figure with all that made it in one archive, for the review of an artefact."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import write_atomically
from fedpriv.experiment.own_code import own_modules, own_targets
from fedpriv.store.packed import LEDGER, pack_runs
from fedpriv.store.run_folders import runs_of_figure
from fedpriv.store.saved import refuse_no_file, saved_rows
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.comparison import templates
from fedpriv.study.figures.definition import choice_of, names_file
from fedpriv.study.figures.jobs import plan_figure
from fedpriv.study.figures.make import DEFINITION
from fedpriv.study.figures.reading import compose_safely, load_file

NOT_COVERED = (
    "It holds seeds and exact values of the data, as run folders do; no epsilon covers these. Hand it on "
    "only if the data are public."
)
LEFT_OUT = "Left out: data files and modules of your own. The README names those to put beside it."
_TIME = (1980, 1, 1, 0, 0, 0)  # a fixed date: the same figure gives the same bytes
_FILES = (
    "figure.yaml", "figure.csv", "ends.csv", "runs.csv", "figure.png", "figure.pdf", "figure.svg",
    "comparison.md", "report.html", "privacy.tex",
)  # fmt: skip


def pack_figure(name: str, outputs: Path, archive: Path, config_dir: Path | None = None) -> None:
    """Write a figure, its definition, data, runs, statements and versions to an archive.

    Args:
        name: The figure: its file, or its name.
        outputs: The output folder, ``runtime.output_dir``.
        archive: The archive.
        config_dir: Folder with the user's own YAMLs. The archive gets all of them.

    Raises:
        ConfigError: The figure has not been made, a file cannot be read, or a job cannot be composed, as
            where it needs ``config_dir``.
        WriteError: The archive cannot be written.
    """
    own = Path(name) if names_file(name) else None
    values = {} if own is None else load_file(own)
    folder = outputs / "figures" / (name if own is None else str(values.get("name") or own.stem))
    if not (folder / "figure.csv").is_file():
        raise ConfigError(f"{folder} has no figure yet; fedpriv figure {name} makes it")
    if own is not None or config_dir is not None:  # else a reviewer could not make the figure again
        config = compose_safely([choice_of(name)], config_dir)
        plan_figure(config, name, lambda overrides: compose_safely(overrides, config_dir))
    runs = [run for run in map(StoredRun, runs_of_figure(folder)) if run.finished]
    contents: dict[str, bytes] = {}
    for baseline in values.get("baselines") or []:
        table = Path(str(baseline.get("csv") or ""))  # under the path that the figure's file names
        if own is not None and table.name and not table.is_absolute() and ".." not in table.parts:
            contents[str(table)] = (own.parent / table).read_bytes()
    for entry in _FILES:
        if (folder / entry).is_file():
            # Under the name of the user's file, from which the figure's folder has its name.
            named = own.name if own is not None and entry == DEFINITION else entry
            contents[named] = (folder / entry).read_bytes()
    yamls = [] if config_dir is None else sorted(config_dir.rglob("*.yaml"))
    for path in yamls:
        refuse_no_file(path)
        contents[f"yamls/{path.relative_to(config_dir or Path()).as_posix()}"] = path.read_bytes()
    with tempfile.TemporaryDirectory() as temporary:
        pack_runs([run.path for run in runs], Path(temporary) / "runs.zip", (LEDGER,))
        contents["runs.zip"] = (Path(temporary) / "runs.zip").read_bytes()
    for run in runs:
        if (statement := run.path / "privacy.txt").is_file():
            contents[f"statements/{run.path.name}.txt"] = statement.read_bytes()
    lines, beside = _facts(runs)
    contents["versions.txt"] = "".join(f"{line}\n" for line in lines).encode()
    source = [line for line in lines if line.startswith("fedpriv ")]
    if not any(line.startswith("fedpriv commit") for line in source):
        source.append("commit unknown")
    readme = (
        templates()
        .get_template("pack.md.jinja")
        .render(
            name=name,
            definition="" if own is None else own.name,
            yamls=yamls,
            finished=len(runs),
            missing=len(saved_rows(folder / "runs.csv")) - 1 - len(runs),
            source=", ".join(source),
            again=f"{name if own is None else own.name}{' --config-dir yamls' if yamls else ''}",
            beside=beside,
        )
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        for entry, content in {"README.md": readme.encode(), **contents}.items():
            zipped.writestr(zipfile.ZipInfo(entry, _TIME), content, zipfile.ZIP_DEFLATED, 9)
    write_atomically(archive, lambda file: file.write(buffer.getvalue()), "wb")


def _facts(runs: Sequence[StoredRun]) -> tuple[list[str], list[str]]:
    """Return a line for each package with its versions, and the files that runs read beside the archive."""
    versions: dict[str, dict[str, None]] = {}
    targets, data = dict[str, None](), dict[str, None]()
    for run in runs:
        facts = {**run.versions, "python": run.environment.get("python")}
        facts["fedpriv commit"] = run.environment.get("commit")
        for package, version in facts.items():
            if version is not None:
                versions.setdefault(package, {})[str(version)] = None
        targets |= dict.fromkeys(own_targets(run.values).values())
        named = (v for k, v in run.values.items() if k.startswith("dataset.") and "path" in k)
        data |= dict.fromkeys(str(value) for value in named if value is not None)
    lines = [f"{package} {' or '.join(found)}" for package, found in sorted(versions.items())]
    return lines, [*own_modules(targets), *data]
