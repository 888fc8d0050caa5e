"""Runs with everything a report tells of, and a reader of its page."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedpriv import cli

SMALL = ("dataset=digits", "algorithm=dp_fl", "accountant=rdp", "rounds=4", "evaluation_interval=2")
_PICTURE = "data:image/png;base64,"
_VOID = {"meta", "img", "br"}


@dataclass
class Element:
    """An element of a page, with the text in it and in what it holds."""

    name: str
    attributes: dict[str, str | None]
    text: str = ""


@dataclass
class Read(HTMLParser):
    """A page: its elements in order; fails where one is not closed."""

    source: str
    elements: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[Element] = []
        self.feed(self.source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self.elements.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().name == tag

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, name: str, **attributes: str) -> list[Element]:
        return [
            e
            for e in self.elements
            if e.name == name
            and attributes.items() <= {k: v or "" for k, v in e.attributes.items()}.items()
        ]

    @property
    def text(self) -> str:
        return " ".join(self.all("body")[0].text.split())

    def table(self, caption: str) -> str:
        """The text of the table whose caption begins so."""
        found = [t.text for t in self.all("table") if t.text.startswith(caption)]
        assert len(found) == 1
        return found[0]

    @property
    def numbers(self) -> dict:
        """What the page's script reads."""
        return json.loads(self.all("script", id="numbers")[0].text)["charts"]

    def check(self) -> None:
        """What holds of every report."""
        ids = Counter(e.attributes["id"] for e in self.elements if "id" in e.attributes)
        assert [name for name, n in ids.items() if n > 1] == []
        for link in self.all("a"):
            assert link.attributes["href"][0] == "#"
            assert link.attributes["href"][1:] in ids
        for element in self.elements:
            assert not any(name.startswith("on") for name in element.attributes)
            assert element.attributes.get("src", _PICTURE).startswith(_PICTURE)
            assert element.name not in ("iframe", "object", "embed", "link", "form", "base")
        (style,) = self.all("style")
        assert not any(words in style.text for words in ("@import", "url(", "http"))
        scripts = self.all("script")
        assert [s.attributes.get("type") for s in scripts] == ["application/json", None]
        plots = self.all("div", role="group", **{"class": "plot"})
        assert {p.attributes["id"] for p in plots} == set(self.numbers)
        pictures = [e for e in self.all("svg") if e.attributes.get("role") == "img"]
        assert len(pictures) == len(plots)
        for picture in pictures:
            assert all(name in ids for name in picture.attributes["aria-labelledby"].split())
        assert all(b.attributes["type"] == "button" for b in self.all("button"))


@pytest.fixture
def read():
    """(file) → its page, checked."""

    def run(file: Path) -> Read:
        page = Read(file.read_text(encoding="utf-8"))
        page.check()
        return page

    return run


@pytest.fixture
def folder(ran, tmp_path) -> Path:
    """A finished run, to be changed."""
    return Path(shutil.copytree(ran(*SMALL).folder, tmp_path / "run"))


@pytest.fixture
def sweep(ran, tmp_path) -> Path:
    """Jobs 0 to 2 of a sweep: two noises, of the first two seeds."""
    for job, settings in enumerate(
        (("seed=0",), ("seed=1",), ("noise_schedule.noise_multiplier=20",))
    ):
        there = Path(shutil.copytree(ran(*SMALL, *settings).folder, tmp_path / "sweep" / f"{job}"))
        facts = json.loads((there / "environment.json").read_text())
        overrides = [*SMALL, *settings]
        (there / "environment.json").write_text(json.dumps(facts | {"overrides": overrides}))
    task = ["algorithm=dp_fl", "noise_schedule.noise_multiplier=8,20"]
    text = json.dumps({"hydra": {"overrides": {"task": task}}})
    (tmp_path / "sweep" / "multirun.yaml").write_text(text)
    return tmp_path / "sweep"


@pytest.fixture(scope="session")
def grid(tmp_path_factory) -> Path:
    """A folder with four finished runs made by ``fedpriv train``: two noises, two seeds."""
    folder = tmp_path_factory.mktemp("grid")
    for noise in (8, 16):
        for seed in (0, 1):
            status = cli.run([
                "train", "algorithm=dp_fl", "epsilon=null", "rounds=4", "evaluation_interval=2",
                f"noise_schedule.noise_multiplier={noise}", f"seed={seed}",
                f"runtime.run_dir={folder / f'noise{noise}-seed{seed}'}", "runtime.plots=false",
                "runtime.progress=none",
            ])  # fmt: skip
            assert status == 0
    return folder
