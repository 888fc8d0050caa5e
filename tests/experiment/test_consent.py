"""Commands that fedpriv suggests: nothing that the user gave is lost."""

from fedpriv.experiment.consent import command_again


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
