"""What the overrides of an entry may say: options of fedpriv's and plain values, no code and no place."""

from __future__ import annotations

import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.tools.leaderboard.overrides import entered, refuse_unsafe

SAFE = (
    "algorithm=dp_fl", "dataset=mnist", "+recipe=mnist_central_eps1", "+experiment=adap_dpfl/published_mnist",
    "epsilon=2", "delta=1e-5", "rounds=null", "averaging=ema", "clipper.clip_norm=.5",
    "noise_schedule.noise_multiplier=-1.5e+3", "accountant.orders=[2,3,4.5]", "algorithm.sampling=poisson",
    "model.seed=3", "partition.clients=100",
)  # fmt: skip
UNSAFE = (
    # code
    "clipper._target_=os.system", "+clipper._target_=os.system", "clipper={_target_:os.system}",
    "clipper.clip_norm={_target_:os.system}", "model=[{_target_:os.system}]", "+model.x=1", "++epsilon=2",
    # Hydra's own, and places
    "hydra.run.dir=x", "hydra/launcher=joblib", "+hydra.sweep.dir=x", "runtime.output_dir=/tmp/x",
    "runtime.run_dir=x", "runtime.stop_file=x", "+runtime.x=1", "dataset.path=/etc", "dataset.download=true",
    "tracker=wandb", "tracker.csv.path=x", "resume=x", "publish=true", "audit=membership", "shadow.half=0",
    # other files
    "model=../../x", "+recipe=../x", "+recipe=/etc/x", "+figure=wei/fig3", "protocol=dp_fl_mnist",
    "model/x=y",    "model@clipper=cnn", "+recipe@x=y", "clipper.x=../y", "clipper.x=a/b",
    # not one plain value
    "seed=${oc.env:HOME}", "epsilon=${oc.env:HOME}", "model=${x}", "epsilon=1,2", "epsilon=range(1,3)",
    "epsilon='1'", "epsilon=", "=1", "epsilon", "~attack", "~epsilon", "epsilon=1 rounds=2", "epsilon=1\n",
    "-m", "--config-dir=x", "--multirun", "", "rounds=`ls`", "rounds=|x", "rounds=<b>", "rounds=[[1]]",
    "attack=label_flip", "seed=1", "noise_seed=1", "epsilon=" + "9" * 100, "unknown=1", "Epsilon=1",
)  # fmt: skip


@pytest.mark.parametrize("override", SAFE)
def test_options_and_plain_values_are_let_through(override):
    assert refuse_unsafe([override], "x.json") == [override]


@pytest.mark.parametrize("override", UNSAFE)
def test_what_names_code_files_or_places_is_refused(override):
    with pytest.raises(ConfigError, match=r"^x\.json: the override .* cannot be in an entry"):
        refuse_unsafe([override], "x.json")


@pytest.mark.parametrize(
    "junk", [None, "epsilon=1", {"epsilon": 1}, [1], [None], [["epsilon=1"]], ["epsilon=1"] * 61]
)
def test_what_is_no_list_of_overrides_is_refused(junk):
    with pytest.raises(ConfigError, match=r"^x\.json: "):
        refuse_unsafe(junk, "x.json")


def test_an_entry_keeps_what_is_not_of_a_seed_or_a_machine():
    left_out = [
        "seed=1",
        "noise_seed=2",
        "runtime.threads=1",
        "dataset.path=/data",
        "tracker=[csv,wandb]",
    ]
    left_out += ["audit=membership", "attack=none", "++runtime.plots=false", "hydra.verbose=true"]
    kept = ["+recipe=x", "dataset=digits", "epsilon=2", "model.seed=1"]
    assert entered([*left_out, *kept], "run") == kept
    with pytest.raises(ConfigError, match="publish=true cannot be in an entry"):
        entered(["publish=true"], "run")
