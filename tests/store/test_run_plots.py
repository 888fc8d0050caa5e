"""Panels of a run: labels of clients, few and many."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedpriv.store import run_plots
from fedpriv.store.plots import draw_bars


@pytest.mark.parametrize("clients", [3, 300, 2500])
def test_each_label_keeps_its_share_of_the_records(clients):
    counts = np.random.default_rng(0).integers(0, 9, size=(clients, 4))
    panel = run_plots._labels(counts)
    assert len(panel.counts) == min(clients, 1000)
    # Groups differ by one client at most, of which a mean takes no notice.
    shares = panel.counts.sum(axis=0) / panel.counts.sum()
    np.testing.assert_allclose(shares, counts.sum(axis=0) / counts.sum(), atol=0.01)


@pytest.mark.parametrize("clients", [3, 300])
def test_bars_and_bands_end_where_the_records_of_a_client_do(clients):
    counts = 1 + np.random.default_rng(0).integers(0, 9, size=(clients, 4))
    axis = Figure().subplots()
    draw_bars(axis, run_plots._labels(counts))
    axis.figure.draw_without_rendering()
    assert axis.dataLim.x1 == counts.sum(axis=1).max()
    assert (axis.get_ylim()) == (clients - 0.5, -0.5)
    labels = [text.get_text() for text in axis.get_legend().get_texts()]
    assert labels == ["0", "1", "2", "3"]
