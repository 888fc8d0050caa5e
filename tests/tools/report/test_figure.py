"""The page of a figure."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

REFERENCE = Path(__file__).parents[3] / "outputs" / "reference"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="
)
TEXT = """# Figure 1: noise

Somebody 2022. Scale: paper.

![figure](figure.png)

| | curve | stated | ours |
|---|---|---|---|
| Digits | loud | 90 | **80** |

- runs:
  - digits/loud/seed 0: `run-a`
  - digits/quiet/seed 0: `run-b`
"""


@pytest.fixture
def figure(tmp_path) -> Path:
    folder = tmp_path / "outputs" / "figures" / "work" / "fig1"
    folder.mkdir(parents=True)
    (folder / "comparison.md").write_text(TEXT)
    (folder / "figure.png").write_bytes(PNG)
    return folder


def test_it_holds_picture_and_comparison(figure, command, read):
    assert command("report", str(figure)).status == 0
    page = read(figure / "report.html")
    assert page.all("h1")[0].text == "Figure 1: noise"
    assert [e.text for e in page.all("h2")] == ["Picture", "Comparison"]
    (image,) = page.all("img")
    assert base64.b64decode(image.attributes["src"].partition(",")[2]) == PNG
    assert image.attributes["alt"] == "Figure 1: noise"
    assert page.all("strong")[0].text == "80"


def test_a_picture_that_is_none_is_not_embedded(figure, command, read):
    (figure / "figure.png").write_text("<svg onload=alert(1)>")
    command("report", str(figure))
    page = read(figure / "report.html")
    assert page.all("img") == []
    assert "The picture (figure.png) is absent" in page.text


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name", ["adap_dpfl/fig1", "adap_dpfl/fig5", "wei/fig6", "wei/theorem2", "naseri/membership"]
)
def test_figures_of_the_repository_have_a_page(name, command, read, tmp_path):
    if not (REFERENCE / name).is_dir():
        pytest.skip("needs the figures of the repository")
    said = command("report", str(REFERENCE / name), "--out", "page.html")
    assert (said.status, said.err) == (0, "")
    assert (tmp_path / "page.html").stat().st_size < 2_000_000
    page = read(tmp_path / "page.html")
    assert len(page.all("img")) == 1
    assert len(page.all("h2")) == 2


def test_runs_and_figures_go_into_one_page(figure, folder, command, read, tmp_path):
    assert command("report", str(folder), str(figure)).status == 0
    page = read(tmp_path / "report.html")
    assert page.all("h1")[0].text == "1 run and 1 figure"
    assert "Figure 1: noise: Comparison" in [e.text for e in page.all("h2")]
