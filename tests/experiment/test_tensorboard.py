"""Event files, read back by TensorBoard itself."""

from __future__ import annotations

import pytest

from fedpriv.experiment.reporter import Reporter

pytest.importorskip("tensorboard", reason="needs pip install '.[tensorboard]'")

SMALL = (
    "algorithm=dp_fl", "rounds=10", "evaluation_interval=2", "runtime.checkpoint_interval=4",
    "tracker=tensorboard",
)  # fmt: skip


class Died(BaseException):
    """Stands for the end of the process."""


def read(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def steps(events, name):
    return [event.step for event in events.Scalars(name)]


def test_metrics_parameters_and_statement_are_there(train):
    result = train(*SMALL)
    events = read(result.folder / "tensorboard")
    assert steps(events, "epsilon") == list(range(1, 11))
    assert steps(events, "test_accuracy") == [2, 4, 6, 8, 10]
    for name in ("epsilon", "epsilon_published", "epsilon_sound", "test_accuracy"):
        last = events.Scalars(name)[-1].value
        assert last == pytest.approx(result.summary[name], rel=1e-6)
    (text,) = events.Tensors("privacy.txt/text_summary")
    said = text.tensor_proto.string_val[0].decode()
    words = [line.strip() for line in said.splitlines()]
    statement = (result.folder / "privacy.txt").read_text()
    assert words == [line.strip() for line in statement.splitlines()]
    assert (
        events.SummaryMetadata("_hparams_/session_start_info").plugin_data.plugin_name == "hparams"
    )


def test_a_run_that_died_goes_on_without_a_round_twice(train, tmp_path, monkeypatch):
    def show(self, row):
        if row["round"] == 8:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Reporter, "show", show)
        with pytest.raises(Died):
            train(*SMALL, name="died")
    train(*SMALL, f"resume={tmp_path / 'died'}", name="died")
    events = read(tmp_path / "died" / "tensorboard")
    assert steps(events, "epsilon") == list(range(1, 11))


def test_runs_lie_side_by_side_in_a_folder_of_ones_own(train, tmp_path):
    for seed in (0, 1):
        train(
            *SMALL,
            f"tracker.tensorboard.folder={tmp_path / 'logs'}",
            f"seed={seed}",
            name=f"run{seed}",
        )
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["run0", "run1"]
    assert steps(read(tmp_path / "logs" / "run1"), "epsilon") == list(range(1, 11))
