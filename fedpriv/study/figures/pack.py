"""``fedpriv figure pack``: a figure with all that made it in one archive, for the review of an artefact."""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import write_atomically
from fedpriv.store.packed import LEDGER, pack_runs
from fedpriv.store.run_folders import runs_of_figure
from fedpriv.store.saved import refuse_no_file
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.comparison import templates
from fedpriv.study.figures.definition import choice_of, names_file
from fedpriv.study.figures.jobs import plan_figure
from fedpriv.study.figures.make import DEFINITION, FILES
from fedpriv.study.figures.reading import compose_safely, load_file
from fedpriv.tools.report.privacy_paragraph import PARAGRAPH

NOT_COVERED = (
    "It holds seeds and exact values of the data, as run folders do; no epsilon covers these. Hand it on "
    "only if the data are public. Data files and modules of your own are left out: put them beside it."
)
_TIME = (1980, 1, 1, 0, 0, 0)  # a fixed date: the same figure gives the same bytes


def pack_figure(name: str, outputs: Path, archive: Path, config_dir: Path | None = None) -> None:
    """Write a figure, its definition, data, runs and statements to an archive.

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
        config = compose_safely(choice_of(name), config_dir)
        plan_figure(config, name, lambda overrides: compose_safely(overrides, config_dir))
    runs = [run for run in map(StoredRun, runs_of_figure(folder)) if run.finished]
    # Name in the archive → file. The definition has its own name, from which the figure's folder is named.
    files = {entry: folder / entry for entry in (*FILES, "report.html", PARAGRAPH)}
    if own is not None:
        files[own.name] = folder / DEFINITION
    for baseline in values.get("baselines") or []:
        table = str(baseline.get("csv", ""))  # under the path that the figure's file names
        if own is not None and table and not table.startswith("/") and ".." not in table:
            files[table] = own.parent / table
    yamls = [] if config_dir is None else sorted(config_dir.rglob("*.yaml"))
    for path in yamls:
        refuse_no_file(path)
        files[f"yamls/{path.relative_to(config_dir or Path()).as_posix()}"] = path
    for run in runs:
        files[f"statements/{run.path.name}.txt"] = run.path / "privacy.txt"
    again = name if own is None else own.name
    readme = (
        templates()
        .get_template("pack.md.jinja")
        .render(
            name=name,
            definition="" if own is None else own.name,
            yamls=yamls,
            finished=len(runs),
            again=f"{again} --config-dir yamls" if yamls else again,
        )
    )
    with tempfile.TemporaryDirectory() as temporary:
        files["runs.zip"] = Path(temporary) / "runs.zip"
        pack_runs([run.path for run in runs], files["runs.zip"], (LEDGER,))
        contents = {entry: file.read_bytes() for entry, file in files.items() if file.is_file()}
    contents["README.md"] = readme.encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        for entry, content in contents.items():
            zipped.writestr(zipfile.ZipInfo(entry, _TIME), content, zipfile.ZIP_DEFLATED, 9)
    write_atomically(archive, lambda file: file.write(buffer.getvalue()), "wb")
