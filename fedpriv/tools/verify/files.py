"""Tests of the files of a published run, which is pinned to the reference and writes into a folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from fedpriv.common import config as configuration
from fedpriv.common.errors import ConfigError
from fedpriv.common.files import write_json, write_text
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.checkpoint import Origin
from fedpriv.experiment.loop import Round
from fedpriv.experiment.machine import numeric_environment
from fedpriv.experiment.observers import Quiet
from fedpriv.experiment.report import write_report
from fedpriv.experiment.running import Run
from fedpriv.store.folder import RunFolder
from fedpriv.tools.verify.interventions import AS_IT_IS, Variation
from fedpriv.tools.verify.probes import Probe, Recording
from fedpriv.tools.verify.subject import Subject
from fedpriv.tools.verify.table import Check

ROUNDS = 2
"""Number of rounds of the published run."""
_NOT_COMPARED = (
    "checkpoint.pt",
    "config.yaml",
    "environment.json",
    "secret_key",
)
"""Files that are documented to hold exact statistics or random keys."""


@dataclass(frozen=True)
class Published:
    """The files of a published run, by their names.

    Attributes:
        public: Files below ``public/``, which may be given away.
        beside: Other files that hold no exact statistics.
        recording: What was seen of the run.
    """

    public: dict[str, bytes]
    beside: dict[str, bytes]
    recording: Recording


class _Ends(Quiet):
    """An observer that ends a run after some rounds by its stop file, and shows nothing."""

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
    """Run a configuration in a temporary folder and return its files.

    Args:
        subject: The subject, whose data are used.
        config: Configuration of the published run.
        pinned: Recording whose releases replace those of the run; None: releases stay.
        sampling: Name of the streams of lots and cohorts; None: those of the subject.
        noise: Name of the streams of the noise.
        variation: Change of the data.
    """
    with tempfile.TemporaryDirectory(prefix="fedpriv-verify-") as temporary:
        chosen = config.copy()
        chosen.runtime.stop_file = str(Path(temporary) / "stop")
        chosen.runtime.run_dir = str(Path(temporary) / "run")
        parts = build_parts(chosen)
        loop = subject.loop(variation, parts)
        loop.context.streams = subject.streams(sampling or subject.sampling_name, noise)
        probe = Probe(loop, pinned=pinned)
        folder = RunFolder(chosen.runtime.run_dir).create()
        write_json(folder.environment, {})
        public_config = chosen.copy()
        # The folder of this run is temporary. Its path would make the files of two runs differ.
        public_config.runtime.stop_file = public_config.runtime.run_dir = None
        write_text(folder.config, configuration.dump(public_config))
        context = loop.context
        numerics = numeric_environment(context.model.device, 1, context.engine.name, context.chunk)
        origin = Origin(configuration.identity(public_config), "verify", numerics, "verify")
        run = Run(loop, folder, origin, None)
        ends = _Ends(Path(chosen.runtime.stop_file), ROUNDS)
        run.go(ends, probe, ends)
        write_report(run, "rounds")
        beside = {
            name: content
            for name, content in read(folder.path).items()
            if not name.startswith(("public/", *_NOT_COMPARED))
        }
        return Published(read(folder.public), beside, probe.recording)


def publishable(config: DictConfig) -> tuple[DictConfig | None, str]:
    """Return the configuration with ``publish=true`` and its metrics, or None and the reason why not."""
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


def check(first: Published, second: Published) -> Iterator[Check]:
    """Test that two published runs left equal files."""
    for kind, a, b in (
        ("files in public/", first.public, second.public),
        ("tables and statements of the run", first.beside, second.beside),
    ):
        if not a and not b:
            continue
        differing = sorted(name for name in {*a, *b} if a.get(name) != b.get(name))
        yield Check(
            "files",
            kind,
            f"{len(differing)} of {len(a)} differ",
            "0 differ",
            passed=not differing,
            note=f"{', '.join(differing)} depends on the records, although every release is the same",
        )


def read(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder, by its relative path."""
    if not folder.is_dir():
        return {}
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
