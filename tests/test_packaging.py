"""What pyproject.toml, the citation and the changelog say agrees with each other and with the code."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).parents[1]
PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OWN = {"fedpriv", "hydra_plugins"}
CALLED = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb", "pfl": "pfl"}
"""Distributions of extras by what is imported: they need not be installed."""


def plain(requirement: str) -> str:
    """``pfl[pytorch]>=0.6; python_version < '3.13'`` → ``pfl``"""
    name = re.match(r"[\w.-]+", requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def declared() -> set[str]:
    extras = PROJECT["optional-dependencies"].values()
    return {plain(one) for group in (PROJECT["dependencies"], *extras) for one in group}


def imported(path: Path) -> Iterator[str]:
    """The top-level packages that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


def third_party(folder: str) -> set[str]:
    found = {name for path in (HERE / folder).rglob("*.py") for name in imported(path)}
    return found - OWN - set(sys.stdlib_module_names)


@pytest.mark.thorough
@pytest.mark.parametrize("folder", ["fedpriv", "hydra_plugins"])
def test_every_imported_package_is_declared(folder):
    distributions = packages_distributions()
    found = third_party(folder)
    assert found
    for name in sorted(found):
        candidates = {plain(d) for d in distributions.get(name, [CALLED.get(name, name)])}
        assert candidates & declared(), f"{name} is imported and no dependency of pyproject.toml"


def test_the_search_for_imports_sees_those_within_functions(tmp_path):
    file = tmp_path / "some.py"
    file.write_text(
        "import os.path\ndef f():\n    from scipy.special import ndtri\n    from . import x"
    )
    assert set(imported(file)) == {"os", "scipy"}


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((HERE / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["title"].startswith("fedpriv")
    assert citation["message"]
    assert [author["name"] for author in citation["authors"]] == [PROJECT["authors"][0]["name"]]
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"] == "Apache-2.0"


def test_the_changelog_begins_with_this_version():
    text = (HERE / "CHANGELOG.md").read_text(encoding="utf-8")
    version, date = re.findall(r"^## \[([\d.]+)\] - (\d{4}-\d{2}-\d{2})$", text, re.MULTILINE)[0]
    citation = yaml.safe_load((HERE / "CITATION.cff").read_text(encoding="utf-8"))
    assert version == PROJECT["version"]
    assert date == str(citation["date-released"])


def test_the_licence_is_whole_and_names_its_authors():
    text = (HERE / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert "Copyright 2026 The fedpriv authors" in text


def test_the_version_is_written_once():
    """``fedpriv --version`` and run folders read the installed package's."""
    written = [
        p for p in (HERE / "fedpriv").rglob("*.py") if "__version__ =" in p.read_text("utf-8")
    ]
    assert written == []


def test_the_contributors_guide_names_files_that_are_there():
    text = (HERE / "CONTRIBUTING.md").read_text(encoding="utf-8")
    links = [one for one in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in one]
    assert links
    assert [one for one in links if not (HERE / one).exists()] == []
