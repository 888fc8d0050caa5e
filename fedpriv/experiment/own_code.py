"""Digests of the user's own code that a run depends on, and of what the objects of this code hold.

Two runs with the same seed must not have the same noise if they compute something different, even if only the
content of a file has changed. So the files that ``_target_`` names outside fedpriv count, and all files that
these import. The standard library and installed packages do not count. What an object of the user's own has
read when the run begins is in its attributes, which count too.
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
from typing import TYPE_CHECKING

from fedpriv.common.groups import TARGET
from fedpriv.experiment.consent import targets

if TYPE_CHECKING:
    pass


def own_targets(identity: Mapping[str, object]) -> dict[str, str]:
    """Return the code outside fedpriv that a flat configuration names.

    Args:
        identity: The configuration by dotted key.

    Returns:
        By key, mostly a group: the value of its ``_target_``. Lists of parts may hold some, too.
    """
    named = [(key, value) for key, value in identity.items() if key.rpartition(".")[2] == TARGET]
    for key, value in identity.items():
        named += targets(value, f"{key}.")
    return {
        key.removesuffix(TARGET).rstrip("."): str(target)
        for key, target in sorted(named)
        if not str(target).startswith("fedpriv.")
    }


def digest_of_targets(targets: Iterable[str]) -> str:
    """Return the SHA-256 of the user's files behind dotted names, with all that these import.

    Names of modules and contents of files count, and not where the files are. A name that cannot be found, or
    is of an installed package, counts for nothing.
    """
    files = _files_of(targets)
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\n".encode())
        digest.update(hashlib.sha256(files[name].read_bytes()).digest())
    return digest.hexdigest()


def _files_of(targets: Iterable[str]) -> dict[str, Path]:
    """Return, by module, the user's own files behind dotted names and all that they import."""
    files: dict[str, Path] = {}
    for target in targets:
        _collect(target, files)
    return files


def _collect(name: str, files: dict[str, Path]) -> None:
    """Add the files of a dotted name's packages and module to ``files``, and of all that they import."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        module = ".".join(parts[:length])
        if module in files:
            continue
        spec = _spec(module)
        if spec is None or not _is_own(spec):
            return  # a submodule of somebody else's package is not the user's own either
        if spec.origin is None:  # a folder without __init__.py
            continue
        files[module] = Path(spec.origin)
        # The file is entered above before its imports are followed, so modules that import one another end.
        for imported in _imports(files[module], spec):
            _collect(imported, files)


def _is_own(spec: ModuleSpec) -> bool:
    if spec.name.partition(".")[0] in {"fedpriv", *sys.stdlib_module_names}:
        return False
    if spec.origin is None:
        return True
    path = Path(spec.origin).resolve()
    return path.is_file() and not any(path.is_relative_to(root) for root in _installed())


def _installed() -> list[Path]:
    """Return the folders in which packages are installed, also of an environment that this one extends."""
    roots = [*site.getsitepackages(), site.getusersitepackages()]
    roots += [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    roots += [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    return [Path(root).resolve() for root in roots]


def _imports(path: Path, spec: ModuleSpec) -> Iterator[str]:
    """Yield the dotted names that a source file imports, anywhere in it."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # not Python, so it imports nothing
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
