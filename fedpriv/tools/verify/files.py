"""A published run in a folder of its own, pinned to the reference: what it leaves on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from fedpriv.common import config as configuration
from fedpriv.common.errors import ConfigError
from fedpriv.common.files import write_text
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.checkpoint import Origin
from fedpriv.experiment.loop import Round
from fedpriv.experiment.machine import numeric_environment
from fedpriv.experiment.observers import Quiet
from fedpriv.experiment.report import write_report
from fedpriv.experiment.running import Run
from fedpriv.experiment.stamps import lacks_isolation
from fedpriv.store.folder import RunFolder
from fedpriv.tools.verify.interventions import AS_IT_IS, Variation
from fedpriv.tools.verify.probes import Probe, Recording
from fedpriv.tools.verify.subject import Subject
from fedpriv.tools.verify.table import Check

ROUNDS = 2
"""So many are published."""
_NOT_COMPARED = (
    "checkpoint.pt",
    "checkpoint_before.pt",
    "config.yaml",
    "environment.json",
    "secret_key",
)
"""What holds exact statistics or chance, and says so."""


@dataclass(frozen=True)
class Published:
    """``public``: what may be given away; ``beside``: what else holds no exact statistic; by name."""

    public: dict[str, bytes] = field(default_factory=dict)
    beside: dict[str, bytes] = field(default_factory=dict)
    recording: Recording | None = None


class _Ends(Quiet):
    """Ends a run after so many rounds, by its stop file, and shows nothing of it."""

    def __init__(self, stop_file: Path, rounds: int):
        self._file, self._rounds = stop_file, rounds

    def see(self, done: Round) -> None:
        if done.number >= self._rounds:
            self._file.touch()

    def show(self, row: object) -> None:
        pass


def published(
    subject: Subject,
    config: DictConfig,
    pinned: Recording | None = None,
    sampling: str | None = None,
    noise: str = "A",
    variation: Variation = AS_IT_IS,
) -> Published:
    """Return what a run of this configuration leaves, with the subject's data changed by ``variation``."""
    with tempfile.TemporaryDirectory(prefix="fedpriv-verify-") as place:
        chosen = config.copy()
        chosen.runtime.stop_file = str(Path(place) / "stop")
        chosen.runtime.run_dir = str(Path(place) / "run")
        parts = build_parts(chosen)  # its data are the subject's
        loop = subject.loop(variation, parts)
        loop.context.streams = subject.streams(sampling or subject.sampling_name, noise)
        probe = Probe(loop, pinned=pinned)
        folder = RunFolder(chosen.runtime.run_dir).create()
        folder.write_json(folder.environment, {})
        shown = chosen.copy()
        shown.runtime.stop_file = shown.runtime.run_dir = None
        write_text(folder.config, configuration.dump(shown))
        context = loop.context
        numerics = numeric_environment(context.model.device, 1, context.engine.name, context.chunk)
        run = Run(loop, folder, Origin(configuration.identity(shown), "verify", numerics), None)
        ends = _Ends(Path(chosen.runtime.stop_file), ROUNDS)
        run.go(ends, probe, ends)
        write_report(run, "rounds")
        return Published(
            read(folder.public),
            {
                n: d
                for n, d in read(folder.path).items()
                if not n.startswith(("public/", *_NOT_COMPARED))
            },
            probe.recording,
        )


def publishable(config: DictConfig) -> tuple[DictConfig | None, str]:
    """Return the same run with ``publish=true`` and its metrics, or None and why it cannot be published."""
    if lacks_isolation(config):
        return None, "isolate_records must be true with publish=true and a model of your own"
    chosen = config.copy()
    OmegaConf.set_struct(chosen, False)
    chosen.publish, chosen.publish_test_metrics, chosen.tracker = True, True, None
    chosen.runtime.reuse, chosen.runtime.plots, chosen.runtime.progress = False, False, "none"
    chosen.evaluation_interval = ROUNDS
    try:
        build_parts(chosen)
    except ConfigError as error:
        return None, str(error)
    return chosen, ""


def check(one: Published, other: Published) -> Iterator[Check]:
    """Test that the files of a published run are the same."""
    for what, a, b in (
        ("files in public/", one.public, other.public),
        ("tables and statements of the run", one.beside, other.beside),
    ):
        if not a and not b:
            continue
        differing = sorted(name for name in {*a, *b} if a.get(name) != b.get(name))
        yield Check(
            "files",
            what,
            f"{len(differing)} of {len(a)} differ",
            "0 differ",
            passed=not differing,
            note=f"{', '.join(differing)} changes with the records, though every release is the same",
        )


def read(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, by its name."""
    if not folder.is_dir():
        return {}
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
