"""Attackers that see what the trust model hides are named on every table, picture and report."""

from __future__ import annotations

import pytest
import yaml

from fedpriv.store.caveats import SEES_HIDDEN

RUN = ("algorithm=ldp_fedsgd", "noise_schedule=constant", "noise_schedule.noise_multiplier=2", "epsilon=null",
       "partition.clients=6", "rounds=2", "model=logistic", "attack=ipm",
       "attack.knows=[raw_uploads]", "attack.omniscient=true")  # fmt: skip
QUIET = ("runtime.progress=none", "runtime.plots=false")


def in_one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.thorough
def test_a_sweep_a_plot_and_a_report_say_so(command, tmp_path):
    sweep = command("train", "-m", *RUN, *QUIET, "seed=0,1", "hydra.sweep.dir=sweep")
    assert sweep.status == 0, sweep.err
    assert f"in these runs {SEES_HIDDEN}" in in_one_line(sweep.out)
    assert SEES_HIDDEN in in_one_line(command("plot", "sweep").out)
    ends = command("plot", "sweep", "--points", "attack.tau", "--out", "end.png")
    assert SEES_HIDDEN in in_one_line(ends.out)
    assert command("report", "sweep/0").status == 0
    page = next((tmp_path / "sweep" / "0").glob("*.html")).read_text()
    assert SEES_HIDDEN in page


@pytest.mark.thorough
def test_a_figure_says_so_in_its_stamp_and_its_comparison(command, tmp_path, monkeypatch):
    stamps = []
    from fedpriv.study.figures import write

    draw = write.draw_panels

    def noted(*arguments, stamp="", **rest):
        stamps.append(stamp)
        return draw(*arguments, stamp=stamp, **rest)

    monkeypatch.setattr(write, "draw_panels", noted)
    figure = {
        "base": " ".join(RUN),
        "x": {"attack.attackers": [1, 2]},
        "curves": {"algorithm.learning_rate": [0.1]},
        "seeds": 1,
        "metric": "accuracy",
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(figure))
    made = command("figure", "own.yaml", "runtime.progress=none")
    assert made.status == 0, made.err
    assert SEES_HIDDEN in stamps[-1]
    assert SEES_HIDDEN in next(tmp_path.rglob("comparison.md")).read_text()
