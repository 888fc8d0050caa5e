"""Old import paths find what moved, and classes keep their first names in digests."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hydra.utils import _locate
from loops import for_each

import fedpriv
from fedpriv.common.config import conf_dir
from fedpriv.common.exact import exact_digest
from fedpriv.common.moved import FOLDERS, MOVED, current, first_name
from fedpriv.experiment.consent import TARGET, is_shipped, targets
from fedpriv.privacy.clippers.parts import LayerGroups
from fedpriv.privacy.core.sampling import PoissonSampling
from fedpriv.privacy.mechanisms import GaussianQuery, JointQuery
from fedpriv.privacy.mechanisms.rows import joint_of, joint_row
from fedpriv.privacy.noise_schedules import ConstantNoise, ValidationDecay

DIGEST = "c3dae046c9147726308bd36272e674f1b042c72879a52ddce91e11bce7ee2d17"
"""Of version 0.2.0, where these classes stood in privacy/noise_schedules/fixed.py and privacy/sampling.py."""


@for_each("old", sorted(MOVED))
def test_an_old_path_is_the_module_of_the_new_one(old):
    new = importlib.import_module(MOVED[old])
    assert importlib.import_module(old) is new
    assert new.__spec__.name == new.__name__ == MOVED[old]


@for_each("old", sorted(FOLDERS))
def test_an_old_folder_passes_names_on(old):
    folder, new = importlib.import_module(old), importlib.import_module(FOLDERS[old])
    for name in getattr(new, "__all__", ()):
        assert getattr(folder, name) is getattr(new, name)
    with pytest.raises(AttributeError, match=f"module '{old}' has no attribute 'nothing'"):
        _ = folder.nothing
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{old}.nothing'"):
        importlib.import_module(f"{old}.nothing")


def test_nothing_stands_at_an_old_path():
    package = Path(fedpriv.__file__).parent
    for old in MOVED:
        assert not package.joinpath(*old.split(".")[1:]).with_suffix(".py").exists()


def test_old_names_in_imports_of_users():
    from fedpriv.audit.epsilon.guesses import Scores
    from fedpriv.results.folder import RunFolder
    from fedpriv.search.budget import SearchBudget
    from fedpriv.trackers import TensorBoardTracker, Tracker
    from fedpriv.trackers.base import Tracker as Base

    assert Tracker is Base
    assert issubclass(TensorBoardTracker, Base)
    assert {part.__module__ for part in (Scores, RunFolder, SearchBudget)} == {
        "fedpriv.tools.audit.epsilon_guesses",
        "fedpriv.store.folder",
        "fedpriv.study.search_budget",
    }


def test_a_folder_that_a_pull_left_behind_hides_nothing(tmp_path):
    (tmp_path / "trackers" / "__pycache__").mkdir(parents=True)
    program = (
        f"import fedpriv; fedpriv.__path__.append({str(tmp_path)!r}); "
        "import fedpriv.trackers; fedpriv.trackers.TensorBoardTracker"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_pickle_of_an_old_path_is_read():
    class_of = b"cfedpriv.privacy.sampling\nPoissonSampling\n."
    assert pickle.loads(class_of) is PoissonSampling


def test_every_target_of_conf_is_found_and_needs_no_consent():
    found = 0
    for path in sorted(conf_dir().rglob("*.yaml")):
        for _, target in targets(yaml.safe_load(path.read_text("utf-8"))):
            if str(target).startswith("fedpriv."):
                assert callable(_locate(target)), target
                found += 1
    assert found > 70


def test_consent_knows_a_part_by_its_old_and_its_new_path():
    key = f"dataset.{TARGET}"
    old = "fedpriv.data.text.shakespeare.Shakespeare"
    assert current(old) == "fedpriv.data.text_shakespeare.Shakespeare"
    assert is_shipped(key, old)
    assert is_shipped(key, current(old))
    assert not is_shipped(f"model.{TARGET}", old)
    assert not is_shipped(key, "fedpriv.data.text.shakespeare.digest_of")


def test_the_first_name_of_a_class_outlives_its_moves_and_its_renaming():
    assert first_name(PoissonSampling) == "fedpriv.privacy.sampling.PoissonSampling"
    assert first_name(ConstantNoise) == "fedpriv.privacy.noise_schedules.fixed.ConstantNoise"
    decay = "fedpriv.privacy.noise_schedules.validation_decay.ValidationDecay"
    assert first_name(ValidationDecay) == decay
    assert first_name(LayerGroups) == "fedpriv.privacy.clippers.parts.Parts"
    assert first_name(Path) == "pathlib.Path"


def test_a_checkpoint_holds_first_names():
    joint = JointQuery(PoissonSampling(0.25), (GaussianQuery("gradient", 1.5),))
    form, floats = joint_row(joint)
    assert form[0][0] == "fedpriv.privacy.sampling.PoissonSampling"
    assert joint_of(form, iter(floats)) == joint


def test_digests_hold_first_names():
    """The streams of runs with own code rest on such digests."""
    assert exact_digest(ConstantNoise(1.5), PoissonSampling(0.25)) == DIGEST


def test_old_paths_cost_nothing_before_they_are_asked_for():
    program = (
        "import sys, fedpriv; print(*sorted(m for m in sys.modules if m.startswith('fedpriv.')))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == [
        "fedpriv.common",
        "fedpriv.common.dp_accounting_shim",
        "fedpriv.common.moved",
    ]
