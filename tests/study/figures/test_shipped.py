"""The figures that fedpriv ships: every one reads, and says what its paper says."""

from __future__ import annotations

import functools

import pytest
from loops import for_each
from omegaconf import DictConfig

from fedpriv.common.config import compose, options
from fedpriv.experiment.build import build_parts
from fedpriv.study.figures.computed import read_computed
from fedpriv.study.figures.definition import Figure
from fedpriv.study.figures.jobs import at
from fedpriv.study.figures.reading import read_figure

ALL = [name for name, _ in options("figure")]
COMPUTED = ("wei/fig3", "wei/theorem2")
TRAINED = (  # tests of their own
    "privacy/three_epsilons",
    "privacy/certified_backdoors",
    "mechanisms/ftrl_error",
)
NAMES = [name for name in ALL if name not in (*COMPUTED, *TRAINED)]
EPSILONS = ("epsilon", "epsilon_published", "epsilon_sound")
STATED = {
    ("fig4", "mnist", "test_accuracy"): {
        "adaptive_noise": 93.56, "sigma3": 92.87, "sigma4": 92.86, "sigma6": 92.34,
    },
    ("fig4", "fashion_mnist", "test_accuracy"): {
        "adaptive_noise": 78.48, "sigma2": 77.28, "sigma3": 77.03, "sigma4": 75.14,
    },
    ("fig5", "mnist", "test_accuracy"): {"adap_dpfl": 94.15, "sigma3": 92.87},
    ("fig5", "fashion_mnist", "test_accuracy"): {"adap_dpfl": 79.56, "sigma2": 77.28},
    ("fig6", "mnist", "noise_multiplier"): {"adaptive_noise": 3.03},
    ("fig6", "fashion_mnist", "noise_multiplier"): {"adaptive_noise": 2.11},
}  # fmt: skip


@functools.cache
def composed(*overrides: str) -> DictConfig:
    return compose(overrides)


@functools.cache
def shipped(name: str) -> Figure:
    return read_figure(composed(f"+figure={name}").figure, name)


@functools.cache
def data_set(*overrides: str) -> str:
    """The name of the data set of a run that can be built."""
    config = composed(*overrides).copy()
    if "discretization" in config.accountant:
        config.accountant.discretization = 0.005  # what it finds is tested elsewhere
    return build_parts(config).dataset.name


def of_the_paper(name: str) -> Figure:
    return shipped(f"adap_dpfl/{name}")


@for_each("name", NAMES)
def test_every_figure_reads(name):
    figure = shipped(name)
    assert figure.groups
    assert figure.axes


@for_each("name", NAMES)
def test_a_number_is_stated_at_one_of_the_points(name):
    figure = shipped(name)
    curves = {curve.name: curve for group in figure.groups for curve in group.curves}
    for said in (*figure.stated, *figure.orderings):
        for curve in said.curves:
            at = figure.points_of(curves[curve])
            assert said.point in at or at == (None,)


@pytest.mark.parametrize("name", COMPUTED)
def test_a_computed_figure_can_be_drawn(name):
    drawing = read_computed(composed(f"+figure={name}").figure, name).draw()
    assert drawing.caption
    assert drawing.findings
    for panel in (panel for row in drawing.rows for panel in row):
        joined = [line for line in panel.lines if line.joined]
        assert len({line.colour for line in joined}) == len(joined)


def first_point(figure: Figure, curve) -> tuple[str, ...]:
    """The overrides of a curve at its first point, and those of the point if it is a named choice."""
    point = figure.points_of(curve)[0]
    chosen = figure.points is not None and figure.points.choices and point is not None
    return (*at(curve.overrides, point), *(figure.points.overrides(point) if chosen else ()))


@pytest.mark.few(4)
@pytest.mark.parametrize("name", NAMES)
def test_every_curve_of_every_figure_can_run(name):
    """In one of its groups, and the first of each group."""
    seen = set()
    for group in shipped(name).groups:
        for curve in group.curves:
            if curve is not group.curves[0] and curve.overrides in seen:
                continue
            seen.add(curve.overrides)
            own = first_point(shipped(name), curve)
            assert f"dataset={data_set(*group.overrides, *own)}" in group.overrides


@pytest.mark.few(5)
@pytest.mark.parametrize("name", NAMES)
def test_every_figure_composes_at_the_quick_scale(name):
    figure = shipped(name)
    assert figure.quick or figure.points
    group = figure.groups[0]
    own = first_point(figure, group.curves[0])
    config = composed(*group.overrides, *own, *figure.quick).copy()
    if "discretization" in config.accountant:
        config.accountant.discretization = 0.005
    assert build_parts(config).settings.rounds <= 500 or figure.points


def test_a_curve_of_one_name_is_the_same_in_every_figure_of_a_work():
    seen: dict[tuple[str, str], object] = {}
    for name in NAMES:
        figure = shipped(name)
        for group in figure.groups:
            for curve in group.curves:
                assert seen.setdefault((figure.work, curve.name), curve) == curve


def test_a_group_of_one_name_has_the_same_overrides_in_every_figure_of_a_work():
    seen: dict[tuple[str, str], object] = {}
    for name in NAMES:
        figure = shipped(name)
        for group in figure.groups:
            same = (group.title, group.overrides)
            assert seen.setdefault((figure.work, group.name), same) == same


@for_each("name", NAMES)
def test_no_two_curves_of_a_panel_have_one_colour(name):
    for group in shipped(name).groups:
        colours = [curve.colour for curve in group.curves]
        assert len(set(colours)) == len(colours)


@pytest.mark.thorough
@for_each("name", NAMES)
def test_an_axis_of_epsilon_goes_from_zero_to_the_budget_of_every_run(name):
    figure = shipped(name)
    limits = {
        axes.x_limits
        for axes in figure.axes
        if axes.x in EPSILONS and axes.vacuous_above is None and axes.name != "ends"
    }
    for group in figure.groups if limits else ():
        for curve in group.curves:
            config = composed(*group.overrides, *curve.overrides)
            assert limits == {(0, config.epsilon)}


@pytest.mark.parametrize(("name", "group", "column"), STATED)
def test_the_stated_numbers_are_those_of_the_paper(name, group, column):
    stated = {
        s.curves[0]: s.value
        for s in of_the_paper(name).stated
        if (s.group, s.column) == (group, column)
    }
    assert stated == STATED[name, group, column]


@pytest.mark.parametrize("sigma", [2, 3, 4, 6])
def test_a_curve_of_constant_noise_has_the_noise_of_its_name(sigma):
    curves = {c.name: c for g in of_the_paper("fig4").groups for c in g.curves}
    parts = build_parts(composed("dataset=mnist", *curves[f"sigma{sigma}"].overrides))
    assert parts.noise_schedule.noise_multiplier(0) == sigma
    assert parts.clipper.initial == 1.0


STUDY = ("table1", "fig2", "poly", "fig7", "fig8")


@pytest.mark.few(3)
@pytest.mark.parametrize("name", STUDY)
def test_the_study_has_a_local_epsilon_at_which_training_works_and_one_at_which_it_does_not(name):
    per_report = set()
    for group in shipped(f"ldp_clipping/{name}").groups:
        parts = build_parts(composed(*group.overrides, *group.curves[-1].overrides))
        assert parts.partition.clients >= 1000
        assert len(group.seeds) >= 3
        per_report.add(parts.noise_schedule.epsilon_per_draw)
    assert {8, 1} <= per_report
