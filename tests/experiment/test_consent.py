"""Commands that fedpriv suggests: nothing that the user gave is lost."""

import shlex

from omegaconf import OmegaConf

from fedpriv.common.files import write_json
from fedpriv.common.words import quoted
from fedpriv.experiment.consent import command_again, resume_command
from fedpriv.experiment.train_arguments import with_resumed_overrides
from fedpriv.store.folder import RunFolder


def test_a_suggested_command_keeps_all_but_what_belongs_to_one_run():
    given = (
        "algorithm=dp_fl", "publish=true", "publish_test_metrics=true", "runtime.device=cpu", "resume=x",
        "hydra/launcher=joblib", "+tracker=wandb", "dry_run=true", "tracker.project=p",
    )  # fmt: skip
    assert command_again("train", given) == (
        "fedpriv train algorithm=dp_fl publish_test_metrics=true"
    )


def test_a_suggested_value_replaces_that_of_the_same_key():
    given = ("algorithm=dp_fl", "publish_test_metrics=false", "seed=1")
    assert command_again("verify", given, "publish_test_metrics=true") == (
        "fedpriv verify algorithm=dp_fl seed=1 publish_test_metrics=true"
    )


def test_a_run_in_a_folder_with_an_odd_name_is_continued_by_the_suggested_command(tmp_path):
    folder = RunFolder(tmp_path / "it's, here\\")
    folder.path.mkdir()
    given = ["algorithm=dp_fl", f"runtime.output_dir={quoted(tmp_path)}", "runtime.run_dir=x"]
    write_json(folder.environment, {"overrides": given})
    command = resume_command(folder.path, OmegaConf.create())
    _, _, *arguments = shlex.split(command)
    assert with_resumed_overrides(arguments) == [*given[:2], *arguments]
