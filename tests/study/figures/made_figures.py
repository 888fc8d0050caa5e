"""What lies in the output folder of a figure that was made."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

SLIM = ("config.yaml", "summary.json", "metrics.csv", "environment.json", "privacy.json")


FAILING = """
from fedpriv.privacy.clippers import ConstantClipper

class Failing(ConstantClipper):
    def observe(self, *released):
        raise RuntimeError("a defect of the clipper")
"""


def tiny_folder(tmp_path: Path) -> Path:
    return tmp_path / "outputs" / "figures" / "own" / "tiny"


def changed_folder(tmp_path: Path) -> Path:
    return tmp_path / "outputs" / "figures" / "own" / "tiny_changed"


def comparison(tmp_path: Path) -> str:
    return (tiny_folder(tmp_path) / "comparison.md").read_text()


def runs(outputs: Path) -> list[Path]:
    return sorted((outputs / "runs").iterdir()) if (outputs / "runs").is_dir() else []


def names(outputs: Path) -> list[str]:
    return [path.name for path in runs(outputs)]


def without_seconds(run: Path) -> pd.DataFrame:
    return pd.read_csv(run / "metrics.csv").drop(columns="seconds")


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }
