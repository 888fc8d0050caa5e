"""Copy figures and their finished runs, made slim, into the reference folder of the repository.

    python scripts/publish_figures.py adap_dpfl --from outputs --to outputs/reference

For every figure of the work that is drawn: figure.csv, ends.csv where there are runs, figure.png (256
colours), figure.pdf, comparison.md. For every run they name, in one file runs.zip: configuration, summary,
privacy statement, provenance, and the evaluated rounds with six digits; ``fedpriv figure <name> --reuse
outputs/reference/<work>/runs.zip`` draws from it. Runs that it held before stay in it. Every other file
stays under 1 MiB; checkpoints, weights and full ledgers stay behind.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from pathlib import Path

import pandas as pd
import yaml
from PIL import Image

from fedpriv.common.files import write_json, write_text
from fedpriv.store.folder import FINISHED, RunFolder
from fedpriv.store.packed import pack_runs, unpack_runs
from fedpriv.store.stored_run import StoredRun

LARGEST = 2**20
FILES = ("figure.csv", "ends.csv", "figure.png", "figure.pdf", "comparison.md")
LARGEST_CLIENTS = 200_000  # bytes: per-client norms are wanted of runs of few rounds only


def publish_figure(source: Path, target: Path) -> set[str]:
    """Copy one figure; the names of the runs it was drawn from."""
    target.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if name != "ends.csv" or (source / name).exists():  # a figure that is computed has no runs
            shutil.copy(source / name, target / name)
    with_few_colours(target / "figure.png")
    if (source / "ends.csv").exists():
        ends = pd.read_csv(source / "ends.csv")
        if "folder" in ends:  # of a figure with points: comparison.md does not name so many runs
            return set(ends["folder"])
    text = (source / "comparison.md").read_text(encoding="utf-8")
    return set(re.findall(r"^  - .*: `([^`]+)`$", text, flags=re.MULTILINE))


def with_few_colours(picture: Path) -> None:
    """256 colours are enough for lines and text, and take a third of the room."""
    image = Image.open(picture).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    image.save(picture, optimize=True)


def publish_run(source: RunFolder, target: RunFolder) -> None:
    """Write the slim copy of a finished run."""
    stored = StoredRun(source)
    summary = stored.summary
    if summary["stop_reason"] not in FINISHED:
        raise SystemExit(f"{source.path} is not a finished run: {summary['stop_reason']}")
    target.path.mkdir(parents=True, exist_ok=True)
    for path in (source.privacy_text, source.privacy_json):
        shutil.copy(path, target.path)
    config = yaml.safe_load(source.config.read_text(encoding="utf-8"))
    config.pop("runtime", None)  # folders of the machine it ran on
    write_text(target.config, yaml.safe_dump(config, sort_keys=False))
    facts = stored.environment
    kept = [
        o for o in facts["overrides"] or [] if not o.startswith(("runtime.", "hydra", "resume="))
    ]
    facts |= {"overrides": kept, "command": " ".join(["fedpriv", "train", *kept])}
    write_json(target.environment, facts)
    metrics = pd.read_csv(source.metrics)
    slim(metrics[metrics["test_accuracy"].notna()], target.metrics)
    if source.clients.exists():
        slim(pd.read_csv(source.clients), target.clients)
        if target.clients.stat().st_size > LARGEST_CLIENTS:
            target.clients.unlink()
    write_json(target.summary, summary)


def pack(names: set[str], source: Path, archive: Path) -> None:
    """Put the runs of these names, made slim, into the file, beside those that it holds."""
    with tempfile.TemporaryDirectory() as work:
        folders = []
        if archive.exists():
            folders = sorted(unpack_runs(archive, Path(work)).iterdir())
        for name in sorted(names - {folder.name for folder in folders}):  # else drawn from the slim
            run, target = RunFolder(source / name), RunFolder(Path(work) / "new" / name)
            if run.summary.exists():
                publish_run(run, target)
                folders.append(target.path)
        pack_runs(folders, archive)


def slim(table: pd.DataFrame, path: Path) -> None:
    write_text(path, table.to_csv(index=False, float_format="%.6g"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", help="such as adap_dpfl")
    parser.add_argument("--from", dest="source", type=Path, default=Path("outputs"))
    parser.add_argument("--to", dest="target", type=Path, default=Path("outputs/reference"))
    options = parser.parse_args()
    figures = sorted((options.source / "figures" / options.work).glob("*/comparison.md"))
    names: set[str] = set()
    for comparison in figures:
        folder = comparison.parent
        if not folder.name.endswith(("_quick", "_changed")):
            names |= publish_figure(folder, options.target / options.work / folder.name)
    pack(names, options.source / "runs", options.target / options.work / "runs.zip")
    for path in (options.target / options.work).rglob("*"):
        if path.is_file() and path.suffix != ".zip" and path.stat().st_size > LARGEST:
            raise SystemExit(f"{path} is larger than 1 MiB")
    print(f"{len(figures)} figures, {len(names)} runs: {options.target / options.work}")


if __name__ == "__main__":
    main()
