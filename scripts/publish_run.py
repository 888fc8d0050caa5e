"""Copy a finished run into outputs/reference: evaluated rounds, summary, statement, plots, provenance.

    python scripts/publish_run.py <run folder> outputs/reference/<name>

Every file stays under 1 MiB; checkpoints and the full ledger stay behind.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pandas as pd
import yaml

from fedpriv.common.files import write_text
from fedpriv.results.folder import RunFolder, commit

LARGEST = 2**20


def publish(source: RunFolder, target: Path) -> None:
    """Write the slim copy of a run."""
    summary = source.read_json(source.summary)
    if summary["stop_reason"] not in ("budget", "rounds"):
        raise SystemExit(f"{source.path} is not a finished run: {summary['stop_reason']}")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source.plots, target / "plots")
    for path in (source.summary, source.privacy_text, source.privacy_json):
        shutil.copy(path, target)
    config = yaml.safe_load(source.config.read_text(encoding="utf-8"))
    config.pop("runtime")  # folders of the machine it ran on
    write_text(target / "config.yaml", yaml.safe_dump(config, sort_keys=False))
    metrics = pd.read_csv(source.metrics, dtype=str)
    metrics[metrics["test_accuracy"].notna()].to_csv(target / "metrics.csv", index=False)
    write_text(target / "README.md", provenance(source, summary))
    for path in target.rglob("*"):
        if path.is_file() and path.stat().st_size > LARGEST:
            raise SystemExit(f"{path} is larger than 1 MiB")


def provenance(source: RunFolder, summary: dict) -> str:
    """How the numbers came to be, as a page."""
    made = source.read_json(source.environment)
    overrides = [o for o in made["overrides"] or [] if not o.startswith("runtime.")]
    versions = ", ".join(f"{name} {v}" for name, v in made["versions"].items() if v)
    lines = [
        f"# {summary['algorithm']} on {summary['dataset']}, seed {summary['seed']}",
        "",
        f"- command: `fedpriv train {' '.join(overrides)}`",
        f"- commit: {made['commit']}; plots and statement drawn by {commit()}",
        f"- started: {made['started']}, {summary['seconds'] / 3600:.2f} hours in rounds, "
        f"{made['threads']} thread(s), {made['device']}, python {made['python']}",
        f"- versions: {versions}",
        "- scale: the paper's; one seed",
        "- `metrics.csv` holds the evaluated rounds only",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run_folder", type=Path)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    publish(RunFolder(arguments.run_folder), arguments.target)
