"""The plots of a run: titles, axes of ε, and a flat sound line that is explained."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedpriv.store import plots, run_plots
from fedpriv.store.stored_run import StoredRun

DP_FL = ("algorithm=dp_fl", "rounds=6", "evaluation_interval=2")
ADAPTIVE = ("algorithm=adap_dpfl", "rounds=6", "evaluation_interval=2")


@pytest.fixture
def drawn(ran, monkeypatch, tmp_path):
    """(overrides) → figure by the name of its file, not written."""

    def run(*overrides: str) -> dict[str, Figure]:
        figures: dict[str, Figure] = {}
        monkeypatch.setattr(
            plots,
            "save_picture",
            lambda figure, path, dpi: figures.update({path.stem: figure}),
        )
        stored = StoredRun(ran(*overrides).folder)
        labels = np.ones((10, 10), dtype=int)
        run_plots.plot_run(stored.files, stored.statement, labels)
        return figures

    return run


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def test_every_plot_has_a_title_and_the_name_of_the_run(drawn, ran):
    figures = drawn(*ADAPTIVE)
    assert set(figures) == set(run_plots.TITLES)
    for name, figure in figures.items():
        assert figure.get_suptitle() == run_plots.TITLES[name]
        assert [text.get_text() for text in figure.texts[-1:]] == [ran(*ADAPTIVE).folder.name]


def test_an_axis_of_epsilon_starts_where_the_data_start(drawn):
    figures = drawn(*DP_FL)
    for name in ("accuracy_by_epsilon", "loss_by_epsilon"):
        axis = figures[name].axes[0]
        values = np.concatenate([line.get_xdata() for line in axis.lines])
        low, high = axis.get_xlim()
        assert 0 < low <= np.nanmin(values)
        assert high >= np.nanmax(values)
    assert figures["accuracy_by_round"].axes[0].get_xlim()[0] == 0


def test_a_flat_sound_line_is_explained(drawn):
    assert legend(drawn(*ADAPTIVE)["epsilon"]) == [
        run_plots.FILTERED, "published", "running value of the filter",
    ]  # fmt: skip
    assert legend(drawn(*DP_FL)["epsilon"]) == ["sound", "published", "enforced"]


def test_without_privacy_there_is_no_epsilon(drawn):
    figures = drawn("algorithm=fedavg", "rounds=2")
    assert not [name for name in figures if "epsilon" in name or "noise" in name]


@pytest.mark.thorough
def test_a_run_that_is_plotted_says_nothing_on_standard_error(command):
    done = command("train", "algorithm=dp_fl", "rounds=2", "runtime.progress=none")
    assert (done.status, done.err) == (0, "")
