"""Runs of wandb without a network: what is written for ``wandb sync``, and what is not."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("wandb", reason="needs pip install '.[wandb]'")

RUN = (
    "algorithm=dp_fl", "rounds=10", "evaluation_interval=2", "runtime.plots=false", "tracker=wandb",
    "runtime.checkpoint_interval=4",
)  # fmt: skip
REPOSITORY = Path(__file__).parents[2]
_BLOCK = 32768


def fedpriv_in(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """The command in a process of its own, whose wandb keeps nothing outside ``folder``."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    places = {f"WANDB_{kind}_DIR": str(folder / "kept") for kind in ("DATA", "CACHE", "CONFIG")}
    own |= {"HOME": str(folder), "PYTHONPATH": str(REPOSITORY)} | places
    return subprocess.run(
        [sys.executable, "-m", "fedpriv", *arguments],
        cwd=folder, env=own | environment, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def records(path: Path) -> Iterator[Any]:
    """The records of a ``.wandb`` file, which is a log in LevelDB's format."""
    from wandb.proto import wandb_internal_pb2

    data, place, part = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if (left := _BLOCK - place % _BLOCK) < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        part += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            record = wandb_internal_pb2.Record()
            record.ParseFromString(part)
            part = b""
            yield record


def stored(folder: Path) -> list[list[Any]]:
    """The records of every session, in their order."""
    return [list(records(path)) for path in sorted(folder.glob("wandb/offline-run-*/*.wandb"))]


def values(items: Any) -> dict[str, Any]:
    return {item.key or item.nested_key[0]: json.loads(item.value_json) for item in items}


def history(session: list[Any]) -> list[dict[str, Any]]:
    return [values(r.history.item) for r in session if r.WhichOneof("record_type") == "history"]


@pytest.fixture(scope="module")
def tracked(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wandb")
    done = fedpriv_in(folder, "train", *RUN, "runtime.run_dir=run", WANDB_MODE="offline")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder


def test_metrics_parameters_and_statement_are_there(tracked):
    (session,) = stored(tracked)
    rows = history(session)
    assert [row["_step"] for row in rows] == list(range(1, 11))
    summary = json.loads((tracked / "run/summary.json").read_text())
    for name in ("epsilon", "epsilon_published", "epsilon_sound", "test_accuracy", "test_loss"):
        assert rows[-1][name] == pytest.approx(summary[name])
    (begun,) = (r.run for r in session if r.WhichOneof("record_type") == "run")
    parameters = values(begun.config.update)
    assert parameters["algorithm.name"] == "dp_fl"
    assert (begun.project, begun.display_name) == ("fedpriv", "run")
    (artifact,) = (r.artifact for r in session if r.WhichOneof("record_type") == "artifact")
    assert artifact.type == "privacy-statement"
    named = {entry.path for entry in artifact.manifest.contents}
    assert named == {"privacy.txt", "privacy.json", "summary.json"}


def test_wandb_collects_nothing_by_itself(tracked):
    (session,) = stored(tracked)
    kinds = {record.WhichOneof("record_type") for record in session}
    assert kinds <= {
        "header",
        "run",
        "telemetry",
        "history",
        "summary",
        "artifact",
        "exit",
        "metric",
        "footer",
        "final",
    }
    (begun,) = (r.run for r in session if r.WhichOneof("record_type") == "run")
    assert begun.host == ""
    assert not begun.HasField("git") or begun.git.commit == ""
    files = [p.name for p in tracked.glob("wandb/offline-run-*/files/*")]
    assert files == []


def test_a_run_folder_has_no_links(tracked):
    assert [path for path in (tracked / "run").rglob("*") if path.is_symlink()] == []


def test_a_run_that_goes_on_is_the_same_run(tmp_path):
    from fedpriv.store.stored_run import StoredRun

    stop = tmp_path / "stop"
    first = fedpriv_in(
        tmp_path, "train", *(one for one in RUN if one != "rounds=10"), "rounds=60",
        "epsilon=null", "runtime.run_dir=run",
        f"runtime.stop_file={stop}", "tracker.wandb.mode=offline",
        f"+tracker.stopper={{_target_: stopper.Stopper, file: {stop}}}",
        PYTHONPATH=f"{REPOSITORY}{os.pathsep}{own_code(tmp_path)}",
    )  # fmt: skip
    assert first.returncode == 130, first.stderr
    assert "tracker.wandb.mode=offline" in first.stderr
    stop.unlink()
    before = StoredRun(tmp_path / "run").trackers["wandb"]
    again = fedpriv_in(
        tmp_path, "train", "resume=run", "tracker=wandb", "tracker.wandb.mode=offline"
    )
    assert again.returncode == 0, again.stderr
    sessions = stored(tmp_path)
    begun = [
        r.run.run_id
        for session in sessions
        for r in session
        if r.WhichOneof("record_type") == "run"
    ]
    assert begun == [before["id"]] * 2
    steps = [row["_step"] for session in sessions for row in history(session)]
    assert steps == list(range(1, 61))


def own_code(folder: Path) -> Path:
    """A tracker that asks for the run's end after its fifth round."""
    place = folder / "code"
    place.mkdir()
    (place / "stopper.py").write_text(
        "from pathlib import Path\n"
        "from fedpriv.experiment.trackers import Tracker\n"
        "class Stopper(Tracker):\n"
        "    def __init__(self, file): self.file = Path(file)\n"
        "    def begin(self, run): return {}\n"
        "    def log(self, round_number, values):\n"
        "        if round_number == 5: self.file.touch()\n"
        "    def finish(self, summary, files, stop_reason): pass\n"
    )
    return place


def test_nobody_logged_in_is_one_sentence_before_the_run(tmp_path):
    done = fedpriv_in(tmp_path, "train", *RUN, "runtime.run_dir=run", WANDB_MODE="online")
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1] == (
        "fedpriv: tracker.wandb.mode must be offline where nobody is logged in, got online; wandb login, or "
        "WANDB_API_KEY, logs in"
    )
    assert not (tmp_path / "run").exists()


def test_a_server_that_is_away_is_a_warning(tmp_path, monkeypatch):
    done = fedpriv_in(
        tmp_path, "train", *RUN, "runtime.run_dir=run", "runtime.progress=lines",
        WANDB_BASE_URL="http://127.0.0.1:9", WANDB_API_KEY="0" * 40,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "tracker wandb failed and is left out" in " ".join(done.stderr.split())
    assert "0" * 40 not in "".join(
        p.read_text(errors="replace") for p in (tmp_path / "run").glob("*.*")
    )
