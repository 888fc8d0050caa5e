"""Digests of the code of the user's own that a run rests on, and of what its objects hold.

Two runs of one seed must not have the same noise if they compute something else, also where that stands in
a file behind the same name. So the files that ``_target_`` names outside fedpriv, and all that these
import, count; the standard library and installed packages do not. What an object of the user's own has read
when the run begins is in its attributes, which count too.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from fedpriv.common.exact import attributes_of, exact_digest
from fedpriv.experiment.consent import TARGET, targets

if TYPE_CHECKING:
    from fedpriv.algorithms.run_context import RunContext


def own_targets(identity: Mapping[str, object]) -> dict[str, str]:
    """Return what a flat configuration names outside fedpriv: the key of each ``_target_``, mostly a group,
    and what it names. Lists may hold some, too."""
    named = [(key, value) for key, value in identity.items() if key.rpartition(".")[2] == TARGET]
    for key, value in identity.items():
        named += targets(value, f"{key}.")
    return {
        key.removesuffix(TARGET).rstrip("."): str(target)
        for key, target in sorted(named)
        if not str(target).startswith("fedpriv.")
    }


def digest_of_targets(targets: Iterable[str]) -> str:
    """SHA-256 of the files behind dotted names, and of those they import, in hexadecimal digits."""
    found = _files_of(targets)
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(f"{name}\n".encode())
        digest.update(hashlib.sha256(found[name].read_bytes()).digest())
    return digest.hexdigest()


def digest_of_parts(context: RunContext, targets: Iterable[str]) -> str:
    """Return a digest of what the parts of a run hold once they are made: the numbers, text and arrays in
    attributes of objects, and in the modules that ``targets`` name or that these import. Paths do not
    count, nor do objects of other packages."""
    targets = list(targets)
    packages = {"fedpriv", *(target.partition(".")[0] for target in targets)}
    mechanism, attackers = context.mechanism, context.attack
    attack = None if attackers is None else attackers.settings
    parts = [mechanism.algorithm, context.clipper, mechanism.schedule, context.model.module, attack]
    if context.rule is not None:
        parts += [context.rule.settings, context.rule.rule]
    names = [name for name in sorted(_files_of(targets)) if name in sys.modules]
    modules = {name: _digest_of_module(sys.modules[name]) for name in names}
    return exact_digest(tuple(parts), modules, attributes=partial(_held, packages=packages))


_MODULES: WeakKeyDictionary[ModuleType, str] = WeakKeyDictionary()
"""The digests of modules as the first run of the process found them: what runs leave in globals (a list of
what was seen, say) must not tell the next run in the process from the same one elsewhere."""


def _digest_of_module(module: ModuleType) -> str:
    """Return a digest of what a module and its classes held when it was first asked for."""
    if module not in _MODULES:
        classes = [held for held in vars(module).values() if isinstance(held, type)]
        own = [_named(kind) for kind in classes if kind.__module__ == module.__name__]
        packages = {module.__name__.partition(".")[0]}
        held = partial(_held, packages=packages)
        _MODULES[module] = exact_digest(_named(module), own, attributes=held)
    return _MODULES[module]


def _named(owner: object) -> dict[str, Any]:
    """Return what a module or class holds, but for classes and what Python itself sets."""
    held = {name: value for name, value in vars(owner).items() if not name.startswith("__")}
    return _without_paths({k: v for k, v in held.items() if not isinstance(v, type)})


def _without_paths(held: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out absolute paths: the folder that code lies in is no part of what it computes."""
    return {k: v for k, v in held.items() if not (isinstance(v, str) and os.path.isabs(v))}


def _held(value: Any, packages: Collection[str]) -> Mapping[str, Any]:
    """Return the attributes of an object of these packages; of a module's, those that its user set."""
    import torch

    if isinstance(value, torch.nn.Module):  # its parameters have a digest of their own
        usual = vars(torch.nn.Module()).keys() - {"_modules", "_buffers"}
        return _without_paths({k: v for k, v in vars(value).items() if k not in usual})
    of_packages = type(value).__module__.partition(".")[0] in packages
    return _without_paths(attributes_of(value)) if of_packages else {}


def _files_of(targets: Iterable[str]) -> dict[str, Path]:
    """The files of the user's own behind dotted names, and of those they import, by module."""
    found: dict[str, Path] = {}
    for target in targets:
        _collect(target, found)
    return found


@functools.cache
def files_of(module: str) -> dict[str, Path]:
    """Return the files behind a module of the user's own and all of the user's that it imports, by name; none
    for a module of fedpriv, of Python or of an installed package."""
    found: dict[str, Path] = {}
    _collect(module, found)
    return found


def _collect(name: str, found: dict[str, Path]) -> None:
    """The files of a dotted name's packages and module; what is not one's own is not even looked up."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        module = ".".join(parts[:length])
        if module in found:
            continue
        spec = _spec(module)
        if spec is None or not _is_own(spec):
            return
        if spec.origin is None:  # a folder without __init__.py
            continue
        found[module] = Path(spec.origin)
        for imported in _imports(found[module], spec):
            _collect(imported, found)


def _is_own(spec: ModuleSpec) -> bool:
    if spec.name.partition(".")[0] in {"fedpriv", *sys.stdlib_module_names}:
        return False
    if spec.origin is None:
        return True
    path = Path(spec.origin).resolve()
    return path.is_file() and not any(path.is_relative_to(root) for root in _installed())


def _installed() -> list[Path]:
    """Return the folders in which packages are installed, also those of an environment below this one."""
    roots = [*site.getsitepackages(), site.getusersitepackages()]
    roots += [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    roots += [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    return [Path(root).resolve() for root in roots]


def _imports(path: Path, spec: ModuleSpec) -> Iterator[str]:
    """The dotted names that a source file imports, wherever in it."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # not Python: it is read as it is
        return
    package = spec.name if spec.submodule_search_locations else spec.name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                try:
                    base = importlib.util.resolve_name("." * node.level + base, package or None)
                except ImportError:
                    continue
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
