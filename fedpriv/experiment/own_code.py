"""A digest of the code of the user's own that a run rests on.

Two runs of one seed must not have the same noise if they compute something else, also where that stands in
a file behind the same name. So the files that ``_target_`` names outside fedpriv, and all that these
import, count; the standard library and installed packages do not.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path


def own_targets(identity: Mapping[str, object]) -> dict[str, str]:
    """Return what a flat configuration names outside fedpriv: the key of each ``_target_``, mostly a group,
    and what it names."""
    return {
        key.removesuffix("_target_").rstrip("."): str(value)
        for key, value in sorted(identity.items())
        if key.rpartition(".")[2] == "_target_" and not f"{value}".startswith("fedpriv.")
    }


def digest_of_targets(targets: Iterable[str]) -> str:
    """SHA-256 of the files behind dotted names, and of those they import, in hexadecimal digits."""
    found: dict[str, Path] = {}
    for target in targets:
        _collect(target, found)
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(f"{name}\n".encode())
        digest.update(hashlib.sha256(found[name].read_bytes()).digest())
    return digest.hexdigest()


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
    """Where packages are installed."""
    roots = [*site.getsitepackages(), site.getusersitepackages()]
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
