"""Fixtures of every room: quiet runs into a temporary folder, and the command itself."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, here and in children
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what children import is compiled once

import hypothesis
import pytest

sys.path.append(str(Path(__file__).parent))

import composing
from law_examples import examples

import fedpriv
from fedpriv import cli
from fedpriv.experiment.run import RunResult

REPOSITORY = Path(__file__).parents[1]
REAL_DATA = os.environ.get("FEDPRIV_DATA")
QUIET = ("runtime.progress=none", "runtime.plots=false")
sys.dont_write_bytecode = False  # and so are the tests themselves
gc.disable()  # until all tests are collected: they stay to the end

# A slow machine is no defect.
hypothesis.settings.register_profile("untimed", deadline=None, max_examples=examples(100))
hypothesis.settings.load_profile("untimed")

QUICK = (
    "attacks", "cli/test_listing.py", "common", "data", "engine", "models", "privacy",
    "test_architecture.py", "test_cli.py", "test_cli_fuzz.py", "test_packaging.py",
)  # fmt: skip
"""What ``pytest -m quick`` runs: rooms of parts, which run no experiment, but for …"""
NOT_QUICK = (
    "common/test_config.py", "common/test_dp_accounting_shim.py",
    "common/test_groups.py", "common/test_workers.py", "common/test_torchvision_shim.py",
    "data/test_cifar10.py", "engine/test_text.py", "models/test_images.py",
    "privacy/accountants/test_composition.py", "privacy/accountants/test_pld.py",
    "privacy/accountants/test_prv.py", "privacy/accountants/test_without_replacement.py",
    "privacy/clippers/test_adap.py", "privacy/clippers/test_histogram.py",
    "privacy/mechanisms/test_noise_against_the_ledger.py", "privacy/test_calibration.py",
    "privacy/core/test_columns.py", "privacy/core/test_noise.py",
)  # fmt: skip
"""… these, which take long."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    cases: Counter[str] = Counter()
    in_quick: dict[Path, bool] = {}
    for item in items:
        name = item.nodeid.partition("[")[0]
        cases[name] += 1
        few = item.get_closest_marker("few")
        if few is not None and cases[name] > few.args[0]:
            item.add_marker("thorough")
        if item.path not in in_quick:
            place = item.path.relative_to(here).as_posix()
            in_quick[item.path] = place.startswith(QUICK) and place not in NOT_QUICK
        if in_quick[item.path] and not any(
            item.get_closest_marker(m) for m in ("slow", "thorough")
        ):
            item.add_marker("quick")


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the garbage collector need not search it."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def composed_once():
    """What is composed again is what was composed before."""
    with pytest.MonkeyPatch.context() as patch:
        composing.compose_once(patch)
        composing.compose_commands_once(patch)
        composing.read_yamls_once(patch)
        composing.merge_yamls_once(patch)
        composing.list_defaults_once(patch)
        composing.copy_repositories_shallowly(patch)
        composing.map_choices_where_asked(patch)
        composing.parse_interpolations_once(patch)
        composing.copy_configurations_in_one_piece(patch)
        composing.call_plainly(patch)
        composing.probe_models_once(patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def written_soon():
    """Every run waits a dozen times for the disk, against a loss of power that no test has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it said."""

    status: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The one line of an error, which is all that standard error holds."""
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("fedpriv: "), self.err
        return lines[0]


@contextmanager
def in_wide_cells() -> Iterator[None]:
    """Context in which PLD has cells 30 times as wide and beside it RDP few orders."""
    from fedpriv.privacy.accountants import PldAccountant, RdpAccountant, composition, pld

    cell = PldAccountant._cell
    with pytest.MonkeyPatch.context() as patch:
        for module in (composition, pld):
            patch.setattr(module, "_RDP", RdpAccountant("2..32"))
        patch.setattr(PldAccountant, "_cell", lambda *about: 30 * cell(*about))
        yield


@pytest.fixture
def wide_cells():
    """For a test of something else than ε."""
    with in_wide_cells():
        yield


IN_WIDE_CELLS = ("experiment/", "privacy/test_larger_cohort", "study/test_search", "tools/audit/")


@pytest.fixture(scope="module", autouse=True)
def wide_cells_in_a_room(request):
    """Rooms whose tests compare runs with one another; what tests ε itself has ``EXACT = True``."""
    place = request.path.relative_to(Path(__file__).parent).as_posix()
    if not place.startswith(IN_WIDE_CELLS) or getattr(request.module, "EXACT", False):
        yield
        return
    with in_wide_cells():
        yield


@pytest.fixture
def mnist_folder() -> str:
    """The folder with the real MNIST files."""
    if not REAL_DATA or not (Path(REAL_DATA) / "MNIST" / "raw").is_dir():
        pytest.skip("needs the real MNIST files: set FEDPRIV_DATA to the folder that holds MNIST/")
    return REAL_DATA


def last_of_each_key(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of ``fedpriv train`` with the last value of each key, where it first stood."""
    if tuple(arguments[:1]) != ("train",):
        return list(arguments)
    plain = re.compile(r"(?!\+?(?:recipe|experiment)=)\+?([^-+~=][^=]*)=")
    last: dict[object, str] = {}
    for place, argument in enumerate(arguments):
        match = plain.match(argument)
        last[match[1] if match else place] = argument
    return list(last.values())


@pytest.fixture
def train(tmp_path):
    """(overrides, name) → the result of a quiet run into ``tmp_path / name``."""

    def run(*overrides: str, name: str = "run") -> RunResult:
        folder = f"runtime.run_dir={tmp_path / name}"
        return fedpriv.run(fedpriv.compose([*QUIET, folder, *overrides]))

    return run


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """(overrides) → the result of a quiet run, made once for all tests of a module that read it."""
    results: dict[tuple[str, ...], RunResult] = {}

    def run(*overrides: str) -> RunResult:
        if overrides not in results:
            folder = f"runtime.run_dir={tmp_path_factory.mktemp('ran') / 'run'}"
            results[overrides] = fedpriv.run(fedpriv.compose([*QUIET, folder, *overrides]))
        return results[overrides]

    return run


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """(arguments) → the outcome of ``fedpriv <arguments>`` in this process, in ``tmp_path``.

    Of overrides with one key only the last is given, so that tests can build on common arguments;
    ``verbatim=True`` leaves them all.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments: str, verbatim: bool = False) -> Outcome:
        capsys.readouterr()
        try:
            status = cli.run(list(arguments if verbatim else last_of_each_key(arguments)))
        except SystemExit as end:
            status = end.code or 0
        said = capsys.readouterr()
        return Outcome(status, said.out, said.err)

    return run


@pytest.fixture
def start(tmp_path):
    """(arguments, environment) → a started process ``python -m fedpriv <arguments>``."""
    started = []

    def run(*arguments: str, **environment: str) -> subprocess.Popen:
        path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            [sys.executable, "-m", "fedpriv", *last_of_each_key(arguments)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture
def process(start):
    """(arguments, environment) → the outcome of ``fedpriv <arguments>`` in a process of its own."""

    def run(*arguments: str, **environment: str) -> Outcome:
        child = start(*arguments, **environment)
        out, err = child.communicate()
        return Outcome(child.returncode, out, err)

    return run
