"""A tracker that tests look into: it notes what it is given in a file of a folder."""

from __future__ import annotations

import json

from fedpriv.experiment.trackers import Tracker

NOTES = "+tracker.notes={_target_: noting.Notes}"
"""The override that chooses it."""


class Notes(Tracker):
    """Parameters, the values of each round, summary and statement, in ``notes.json``."""

    def __init__(self, folder=None):
        self.parent = folder

    def begin(self, run):
        self.file = run.place(self.parent, "notes") / "notes.json"
        self.notes = {"parameters": dict(run.parameters), "rounds": []}
        if run.rounds_done and self.file.exists():
            earlier = json.loads(self.file.read_text())["rounds"]
            self.notes["rounds"] = [row for row in earlier if row[0] <= run.rounds_done]
        self.flush()
        return {"name": self.file.parent.name}

    def log(self, round_number, values):
        self.notes["rounds"].append([round_number, dict(values)])

    def flush(self):
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.notes))

    def finish(self, summary, files, stop_reason):
        self.notes["summary"] = dict(summary)
        self.notes["files"] = {file.name: file.read_text() for file in files}
        self.flush()
