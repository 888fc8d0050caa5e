"""The page of a figure."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from fedpriv.store.packed import pack_runs

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
CSV = """group,axes,curve,x,mean,low,high,n
digits,accuracy,loud,1,50,40,60,2
digits,accuracy,loud,2,60,50,70,2
digits,accuracy,quiet,1,70,70,70,1
"""


@pytest.fixture
def figure(tmp_path) -> Path:
    folder = tmp_path / "outputs" / "figures" / "work" / "fig1"
    folder.mkdir(parents=True)
    (folder / "comparison.md").write_text(TEXT)
    (folder / "figure.csv").write_text(CSV)
    (folder / "figure.png").write_bytes(PNG)
    return folder


def test_it_holds_picture_comparison_curves_and_runs(figure, command, read):
    assert command("report", str(figure)).status == 0
    page = read(figure / "report.html")
    assert page.all("h1")[0].text == "Figure 1: noise"
    assert [e.text for e in page.all("h2")] == ["Picture", "Comparison", "Curves", "Runs"]
    (image,) = page.all("img")
    assert base64.b64decode(image.attributes["src"].partition(",")[2]) == PNG
    assert image.attributes["alt"] == "Figure 1: noise"
    assert page.all("strong")[0].text == "80"
    (chart,) = page.numbers.values()
    assert chart["curves"][0] == {
        "key": "loud", "label": "loud", "style": "c0 d0", "x": [1, 2], "y": [50, 60],
        "low": [40, 50], "high": [60, 70],
    }  # fmt: skip
    assert "digits/quiet/seed 0" in page.table("2 runs")


def test_numbers_published_elsewhere_are_not_joined(figure, command, read):
    with (figure / "figure.csv").open("a") as file:
        file.writelines(f"digits,accuracy,Somebody 2021,{x},90,90,90,0\n" for x in (1.5, 3))
    command("report", str(figure))
    (chart,) = read(figure / "report.html").numbers.values()
    loud, quiet, *marks = chart["curves"]
    assert [(m["key"], m["x"], m["y"]) for m in marks] == [
        ("Somebody 2021", [1.5], [90]), ("Somebody 2021", [3], [90]),
    ]  # fmt: skip
    assert len({one["style"] for one in (loud, quiet, *marks)}) == 3


def test_what_its_runs_ended_with_is_looked_up_where_runs_lie(
    figure, folder, command, read, tmp_path
):
    stores = (tmp_path / "outputs" / "runs" / "run-a", figure.parent / "runs" / "run-b")
    for place in stores:
        place.mkdir(parents=True)
        (place / "summary.json").write_bytes((folder / "summary.json").read_bytes())
    command("report", str(figure))
    assert read(figure / "report.html").table("2 runs").count("4 (stopped by: rounds)") == 2


def test_where_its_runs_are_not_found_ends_csv_tells_of_them(figure, command, read):
    row = "digits,loud,0.5,3,run-c,77.25,8904161.7"
    names = "group,curve,point,seed,folder,test_accuracy,epsilon_sound"
    (figure / "ends.csv").write_text(f"{names}\n{row}\n")
    command("report", str(figure))
    rows = read(figure / "report.html").table("1 run")
    for words in ("run-c", "0.5", "test accuracy (%)", "77.25", "8904161.7"):
        assert words in rows


def test_runs_that_are_packed_into_one_file_are_found(figure, folder, command, read, tmp_path):
    folder.rename(tmp_path / "run-a")
    pack_runs([tmp_path / "run-a"], figure.parent / "runs.zip")
    command("report", str(figure))
    assert read(figure / "report.html").table("2 runs").count("4 (stopped by: rounds)") == 1
    (figure.parent / "runs.zip").write_text("no archive")
    said = command("report", str(figure))
    assert (said.status, "runs.zip cannot be read" in said.sentence) == (2, True)


def test_a_path_in_the_figures_files_leads_nowhere(figure, folder, command, read):
    (figure / "runs.csv").write_text(
        f"group,curve,point,seed,state,why,run\ng,c,,0,done,,{folder}\n"
    )
    command("report", str(figure))
    assert "stopped by" not in read(figure / "report.html").table("1 run")


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
    assert page.numbers
    assert len(page.all("h2")) >= 3
    assert name == "wei/theorem2" or "stopped by: " in page.text or "(worst client)" in page.text


def test_runs_and_figures_go_into_one_page(figure, folder, command, read, tmp_path):
    assert command("report", str(folder), str(figure)).status == 0
    page = read(tmp_path / "report.html")
    assert page.all("h1")[0].text == "1 run and 1 figure"
    assert "Figure 1: noise: Comparison" in [e.text for e in page.all("h2")]
