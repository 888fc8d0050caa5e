"""The reference page shows what users extend or call; every public thing is documented; examples are true."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from loops import for_each

import fedpriv

ROOT = Path(__file__).parents[2]
SHOWN = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "reference.md").read_text("utf-8"), flags=re.M)
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(fedpriv.__path__, "fedpriv.")
    if not module.name.endswith("__main__")
)


def resolved(path: str) -> object:
    """Return what a dotted path stands for: a module, or a thing in one."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def shown() -> list[object]:
    """Return the things on the page, and the public ones of the modules on it."""
    things = []
    for thing in map(resolved, SHOWN):
        things.append(thing)
        if isinstance(thing, ModuleType):
            things += [
                t for n, t in vars(thing).items() if not n.startswith("_") and lives_in(t, thing)
            ]
    return things


def lives_in(thing: object, module: ModuleType) -> bool:
    return callable(thing) and getattr(thing, "__module__", None) == module.__name__


def named_by_the_guides() -> set[str]:
    """Return the dotted paths that the guides import from, or name as a class to extend."""
    names = set()
    for page in ("docs/extend.md", "docs/guide/python.md", "docs/guide/trackers.md"):
        text = (ROOT / page).read_text("utf-8")
        for module, imported in re.findall(
            r"^from (fedpriv[\w.]*) import ([\w, ]+)$", text, flags=re.M
        ):
            names |= {f"{module}.{name.strip()}" for name in imported.split(",")}
        names |= set(re.findall(r"`(fedpriv(?:\.\w+)*\.[A-Z]\w+)`", text))
    return names


@for_each("path", named_by_the_guides)
def test_what_the_guides_name_is_on_the_page(path):
    assert any(resolved(path) is thing for thing in shown())


@for_each("thing", shown)
def test_what_is_on_the_page_is_documented(thing):
    documentation = inspect.getdoc(thing)
    assert documentation
    if inspect.isfunction(thing) and len(inspect.signature(thing).parameters) > 3:
        for name in inspect.signature(thing).parameters:
            assert re.search(rf"\b{name}\b", documentation), name


def public_methods(name: str) -> Iterator[tuple[type, str]]:
    """Yield (class, method) of the public classes of a module."""
    module = importlib.import_module(name)
    for thing in list(vars(module).values()):
        if (
            inspect.isclass(thing)
            and lives_in(thing, module)
            and not thing.__name__.startswith("_")
        ):
            for method, value in vars(thing).items():
                named = inspect.isfunction(value) and value.__name__ == method  # else a lambda
                if named and not method.startswith("_"):
                    yield thing, method


def test_every_public_method_is_documented_here_or_where_it_is_declared():
    """Protocols declare methods that classes have without inheriting them."""
    methods = {pair for name in MODULES for pair in public_methods(name)}
    declared = {method for thing, method in methods if inspect.getdoc(getattr(thing, method))}
    assert [(thing, method) for thing, method in methods if method not in declared] == []


def source(name: str) -> str:
    """Return the text of a module without importing it."""
    path = Path(fedpriv.__file__).parent.joinpath(*name.split(".")[1:])
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8")


@pytest.mark.few(55)
@pytest.mark.parametrize("name", [name for name in MODULES if ">>> " in source(name)])
def test_the_examples_of_a_module_are_true(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert outcome.attempted
    assert outcome.failed == 0


def test_every_class_of_the_page_has_an_example():
    classes = [thing for thing in map(resolved, SHOWN) if inspect.isclass(thing)]
    assert len(classes) > 15
    assert [c.__name__ for c in classes if ">>> " not in (c.__doc__ or "")] == []
