"""README and the documentation: links lead somewhere, commands are understood, Python blocks run.

Commands that train are planned (``dry_run=true``), those of figures listed; the others run as they stand.
``pip`` and downloads are left to who installs.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from loops import for_each

from fedpriv.tools.audit import classifier

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOT_HERE = ("fedpriv data download", "fedpriv completion")
ON_CLUSTERS = (
    "hydra/launcher=submitit_slurm",
    "hydra/launcher=ray",
    "hydra/launcher=lab",
    "sbatch",
)
TESTED_ELSEWHERE = (
    "figures.md",
    "own-baseline.md",
    "extend-a-study.md",
    "question-to-figure.md",
    "extend.md",
    "clusters.md",
    "trackers.md",
    "own-table.md",
    "trained-models.md",
    "own-dataset.md",
    "adapters.md",
)
QUIET = ("runtime.progress=none", "runtime.plots=false")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def fences(text: str) -> list[tuple[str, str, str]]:
    """(line before, language, code) of every fenced block."""
    found, before, inside = [], "", None
    for line in text.splitlines():
        if inside is None and line.startswith("```"):
            inside = (before, line.removeprefix("```"), [])
        elif inside is not None and line.startswith("```"):
            found.append((*inside[:2], "\n".join(inside[2]) + "\n"))
            inside = None
        elif inside is not None:
            inside[2].append(line)
        elif line.strip():
            before = line
    return found


def blocks(page: Path, language: str) -> list[str]:
    return [code for _, own, code in fences(page.read_text("utf-8")) if own == language]


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), flags=re.M)
    plain = (re.sub(r"[^\w\- ]", "", heading.replace("`", "")).strip() for heading in headings)
    return {words.lower().replace(" ", "-") for words in plain}


@for_each("page", PAGES)
def test_every_link_leads_somewhere(page):
    links = re.findall(
        r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S)
    )
    for link in links:
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if target.is_relative_to(ROOT / "outputs") and not (ROOT / "outputs").exists():
            continue  # an installed package
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 110


def test_every_page_is_in_the_navigation():
    listed = (ROOT / "mkdocs.yml").read_text("utf-8")
    for page in PAGES[1:]:
        assert page.relative_to(ROOT / "docs").as_posix() in listed


def commands() -> list[tuple[str, str]]:
    found = [
        (name(page), line)
        for page in PAGES
        if page.name not in TESTED_ELSEWHERE
        for block in blocks(page, "")
        for line in block.splitlines()
        if line.startswith("fedpriv ")
    ]
    return [one for one in dict.fromkeys(found) if not one[1].startswith(NOT_HERE)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A finished run with snapshots, whose property and members can be asked about."""
    import fedpriv
    from fedpriv.experiment.run import run

    folder = tmp_path_factory.mktemp("docs") / "run"
    parts = ["partition=fixed_size", "partition.clients=30", "partition.records=40"]
    overrides = ["algorithm=dp_fl", *parts, "rounds=4", "runtime.snapshot_interval=2", *QUIET]
    config = fedpriv.compose([*overrides, f"runtime.run_dir={folder}"])
    run(config, overrides=overrides)  # noted as the command does, so that it can be resumed
    return folder


@pytest.mark.few(1)
@pytest.mark.parametrize(("page", "line"), commands(), ids=lambda value: value[:60])
def test_a_command_is_understood(page, line, finished, command):
    if any(launcher in line for launcher in ON_CLUSTERS):
        pytest.skip("needs a cluster: tests/cluster")
    for words in ("outputs/<run folder>", "outputs/multirun/<sweep>", "FOLDER"):
        line = line.replace(words, str(finished))
    words = shlex.split(line)[1:]
    if words[0] == "figure" and "--list" not in words:
        words = [w.replace("outputs/reference", str(ROOT / "outputs" / "reference")) for w in words]
        words = [word for word in words if word not in ("--draw", "--quick")]
        words.append("--list")  # planning all of its runs takes a minute for some
    elif words[0] == "train" and "--cfg" not in words and "--help" not in words:
        words.append("dry_run=true")
    elif words[0] in ("plot", "runs"):
        words = [str(finished) if w in ("outputs/runs", "outputs") else w for w in words]
    elif words[:2] == ["audit", "property"]:
        words[words.index("intensity")] = "label:6"
    elif "--shadows" in words:
        words[words.index("--shadows") + 1] = "4"
        words[words.index("--jobs") + 1] = "1"
    elif "--scores" in words:  # of another framework
        rows = "".join(f"{(number * 7) % 13},{number % 2}\n" for number in range(60))
        file = Path(words[words.index("--scores") + 1])
        file.write_text("score,included\n" + rows, encoding="utf-8")
    elif "--schedule" in words:  # the line before it on the page writes the file
        Path(words[words.index("--schedule") + 1]).write_text(
            "noise_multiplier,sample_rate\n1,.1\n"
        )
    said = command(*words)
    not_at_hand = (" not found: ", "0 CUDA device(s) found")  # real data, a GPU
    refused = words[0] == "train" and any(what in said.err for what in not_at_hand)
    assert said.status == 0 or refused, said.err


@pytest.fixture(autouse=True)
def light(monkeypatch, wide_cells):
    """What a command finds is tested elsewhere: few trees, nothing trained to verify."""
    monkeypatch.setattr(classifier, "TREES", 5)
    monkeypatch.setattr("fedpriv.tools.verify.command.all_checks", lambda subject: [])


ELSEWHERE = (
    "extend.md", "others-audited.md", "own-dataset.md", "own-table.md", "trained-models.md",
)  # fmt: skip
PYTHON = [p for p in PAGES if p.name not in ELSEWHERE and blocks(p, "python")]


@pytest.mark.few(1)
@pytest.mark.parametrize("page", PYTHON, ids=name)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for code in blocks(page, "python"):
        exec(compile(code, name(page), "exec"), scope)


def examples() -> dict[str, tuple[dict[str, str], list[str]]]:
    """Section of the page on parts of one's own → (files to write, command)."""
    found = {}
    sections = (ROOT / "docs" / "extend.md").read_text("utf-8").split("\n## ")[1:]
    sections.append((ROOT / "docs" / "guide" / "own-dataset.md").read_text("utf-8")[2:])
    for section in sections:
        title, _, body = section.partition("\n")
        files: dict[str, str] = {}
        lines: list[str] = []
        for before, language, code in fences(body):
            if language:
                files[re.findall(r"`([\w/]+\.(?:py|yaml))`", before)[-1]] = code
            else:
                lines += code.splitlines()
        if files:
            found[title] = (files, [line for line in lines if line.startswith("fedpriv ")])
    return found


def test_every_kind_of_part_has_an_example():
    assert list(examples()) == [
        "A clipper", "A noise schedule", "An accountant", "An algorithm",
        "An aggregation rule", "An aggregation rule against malicious clients", "A data set",
        "A model", "An attack", "An attack without a trigger", "An attack that remembers", "A figure",
        "A data set of your own",
    ]  # fmt: skip


def test_the_examples_are_the_plug_ins_that_the_tests_try_hard():
    plugins = ROOT / "tests" / "experiment" / "plugins"
    shown = {file: text for files, _ in examples().values() for file, text in files.items()}
    for path in (*plugins.glob("*.py"), *plugins.rglob("*.yaml")):
        name = path.relative_to(plugins).as_posix().replace("yamls/", "my_yamls/")
        assert shown[name] == path.read_text("utf-8"), name


@pytest.mark.few(4)
@pytest.mark.parametrize("title", examples())
def test_an_example_runs_as_it_stands(title, command, tmp_path):
    files, lines = examples()[title]
    assert len(files) == (1 if title == "A figure" else 2)
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    (line,) = lines
    short = ["--quick"] if title == "A figure" else ["rounds=3", "runtime.plots=false"]
    said = command(*shlex.split(line)[1:], "runtime.progress=none", *short)
    assert said.status == 0, said.err
