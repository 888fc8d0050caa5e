"""The gallery: the committed page is what the script writes, with the verdicts of the comparisons."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def gallery():
    if not (ROOT / "outputs").exists():
        pytest.skip("an installed package")
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "scripts" / "gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_script_writes(gallery):
    """After a figure was published: python scripts/gallery.py."""
    assert gallery.PAGE.read_text("utf-8") == gallery.gallery()


def test_every_reference_figure_is_on_the_page(gallery):
    page = gallery.PAGE.read_text("utf-8")
    for picture in gallery.REFERENCE.glob("*/*/figure.png"):
        assert f"../{picture.relative_to(ROOT).as_posix()}" in page


def test_orderings_are_counted(gallery):
    text = "# T\n\n## Orderings\n\n- a: b > c. **Holds.**\n- d: e > f. **Does not hold**; ours: f > e.\n"
    assert gallery.verdict(text) == "Stated orderings that hold: 1 of 2."


def test_the_best_end_is_named_with_its_place_on_the_axis(gallery):
    head = "| | curve | ε | test accuracy (%) |\n|---|---|---|---|\n"
    table = head + "| p | a | 1 | 9.5 ± 1 |\n| p | b | 8 | 70 |\n"
    assert "70 % (b, ε = 8)" in gallery.verdict(f"# T\n\n## Ends of the curves\n\n{table}")


def test_refuted_claims_are_counted(gallery):
    text = (
        "# T\n\n## Findings\n\n- a. The claim is refuted with confidence 0.95.\n- b. Not refuted.\n"
    )
    assert gallery.verdict(text) == "Claims refuted by an audit: 1 of 2."
