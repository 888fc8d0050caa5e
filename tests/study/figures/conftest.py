"""A figure of two curves and two seeds on digits, as a mapping, as a YAML, and made once."""

from __future__ import annotations

import copy
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from fedpriv import cli
from fedpriv.common.config import compose
from fedpriv.store import plots
from fedpriv.study.figures.definition import Figure
from fedpriv.study.figures.jobs import Job, JobMaker
from fedpriv.study.figures.reading import read_figure

sys.path.append(str(Path(__file__).parent))  # for the modules beside the tests

from points import POINTS

BASE = {"scale": "paper", "seeds": None, "reuse": [], "draw_only": False}
TINY = {
    "work": "ours",
    "title": "Tiny",
    "quick": ["rounds=2"],
    "panels": {
        "digits": {
            "title": "Digits",
            "overrides": ["dataset=digits", "epsilon=null", "rounds=4", "evaluation_interval=2"],
            "seeds": [0, 1],
        }
    },
    "curves": {
        "loud": {
            "label": "loud noise",
            "colour": "blue",
            "overrides": ["algorithm=dp_fl", "noise_schedule.noise_multiplier=16"],
        },
        "quiet": {
            "label": "quiet noise",
            "colour": "orange",
            "overrides": ["algorithm=dp_fl", "noise_schedule.noise_multiplier=8"],
        },
    },
    "show": {"digits": ["loud", "quiet"]},
    "x": "round",
    "metric": {"accuracy": "test_accuracy"},
    "stated": [{"panel": "digits", "curve": "loud", "metric": "accuracy", "value": 80}],
}
HEAD = """\
# @package _global_
# digits: two noise multipliers
defaults:
  - /work: base
  - _self_
"""
QUIET = ("runtime.progress=none",)


def write_yaml(folder: Path, values: dict, name: str = "tiny") -> None:
    path = folder / "mine" / "figure" / "own" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + yaml.safe_dump({"figure": values}, allow_unicode=True))


@pytest.fixture(scope="module", autouse=True)
def empty_pdfs():
    """``figure.pdf`` takes a quarter of the time of a picture, and no test here reads it."""
    save = plots.save_picture

    def saved(figure, path, *more):
        return path.write_bytes(b"") if path.name == "figure.pdf" else save(figure, path, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "save_picture", saved)
        yield


@pytest.fixture
def tiny() -> dict:
    """What the YAML's ``figure`` says; the test may change it."""
    return copy.deepcopy(TINY)


@pytest.fixture
def read():
    """(mapping, name) → the figure."""

    def run(values: dict, name: str = "own/tiny") -> Figure:
        return read_figure(OmegaConf.create({**BASE, **values}), name)

    return run


@pytest.fixture
def figure(read, tiny) -> Figure:
    return read(tiny)


@pytest.fixture
def jobs_of(tmp_path):
    """(figure, common overrides, stores) → its jobs."""

    def run(figure: Figure, *common: str, stores: tuple[Path, ...] = ()) -> list[Job]:
        places = stores or (tmp_path / "outputs" / "runs",)
        return JobMaker(compose, places, common).jobs(figure)

    return run


@pytest.fixture
def make(command, tmp_path, tiny):
    """(arguments) → the outcome of ``fedpriv figure own/tiny`` of ``tiny`` as it is now."""

    def run(*arguments: str):
        write_yaml(tmp_path, tiny)
        return command("figure", "own/tiny", "--config-dir", "mine", *QUIET, *arguments)

    return run


@pytest.fixture
def write(tmp_path, tiny):
    """() → writes ``tiny`` into ``mine``."""
    return lambda name="tiny": write_yaml(tmp_path, tiny, name)


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """The output folder with the figure and its four finished runs: read only, copy to change."""
    folder = tmp_path_factory.mktemp("made")
    write_yaml(folder, TINY)
    status = cli.run([
        "figure", "own/tiny", "--config-dir", str(folder / "mine"), *QUIET,
        f"runtime.output_dir={folder / 'outputs'}",
    ])  # fmt: skip
    assert status == 0
    return folder / "outputs"


@pytest.fixture
def tiny_over_points() -> dict:
    """Two curves without privacy at three learning rates, and a reference at none."""
    rounds = {
        f"t{n}": {"label": f"T = {n}", "colour": colour, "overrides": [f"rounds={n}"]}
        for n, colour in ((1, "blue"), (2, "orange"))
    }
    reference = {
        "label": "reference", "colour": "black", "at": "once", "overrides": ["rounds=4"],
    }  # fmt: skip
    return copy.deepcopy({
        "work": "ours",
        "title": "Points",
        "quick": ["evaluation_interval=1"],
        **POINTS,
        "panels": {
            "digits": {
                "title": "Digits",
                "overrides": ["algorithm=fedsgd", "dataset=digits"],
                "seeds": [0, 1],
            }
        },
        "curves": {**rounds, "reference": reference},
        "show": {"digits": ["t1", "t2", "reference"]},
        "metric": {
            "loss": {"column": "test_loss", "x_scale": "log", "band": "sd"},
            "rounds": "round",
            "map": {"column": "test_accuracy", "kind": "map", "best": "high"},
        },
        "stated": [{"curve": "t1", "metric": "rounds", "value": 1, "x": 0.5}],
        "orderings": [{"metric": "loss", "curves": ["reference", "t1"], "x": 2}],
    })  # fmt: skip


@pytest.fixture
def there(made, tmp_path) -> Path:
    """The output folder of a figure that is made already."""
    return Path(shutil.copytree(made, tmp_path / "outputs"))
