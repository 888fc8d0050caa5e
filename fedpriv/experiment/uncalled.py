"""Refusals of methods of the user's own classes that nothing calls, before the first round.

Without them a median that is written as ``server_step`` of a client-level algorithm, which has no such
method, would run as a mean and be reported as a median. The source code tells what is called. A public name
of an own class counts as called if

- own code uses the name, outside of the method of that name, or
- fedpriv does: a class of fedpriv that the own class extends has the name, and the name is reached from those
  that other modules or classes of fedpriv use, through the methods as the own class has them.

A part that extends no class of fedpriv (a data set, a trigger) is known by its names alone.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fedpriv
from fedpriv.common.attributes import PACKAGE
from fedpriv.common.errors import ConfigError, nearest
from fedpriv.experiment.own_code import files_of
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.signatures import refuse_wrong_signatures

_LOOK_ON = ("tools/verify/", "tools/audit/", "experiment/second_draw.py", "experiment/uncalled.py")
"""Modules that call a part's methods to check them: a method that only these call changes no run."""
_HOOKS = {
    "algorithm": (
        *("server_step", "uploads", "denominator", "sampling_of", "client_sampling", "mechanism"),
        "start",
    ),
    "clipper": ("clip_norm", "factors", "query", "statistic", "observe"),
    "noise_schedule": ("noise_multiplier", "observe", "loss_query"),
    "aggregation": (
        *("start", "aggregate", "needs", "check_cohort", "buckets"),
        *("reads_validation", "describe", "linear"),
    ),
    "rule": ("combine",),
    "attack": ("attacks_in", "attackers_among", "start", "forged"),
    "attackers": ("observe", "constrain", "forge"),
    "attack.trigger": ("plant", "misfit", "describe"),
    "server step": ("apply", "weights"),
    "uploads": ("of", "of_records"),
}
"""Methods by which the parts of a group differ. A refusal names those that the class has."""
_STATE = ("state_dict", "load_state_dict")
_SAVED = ("work", "uploads", "accountant")
"""Parts whose state a checkpoint holds (``own_state``), though their classes in fedpriv have no state."""
_ELSEWHERE = {
    "attack": "what attackers plant is the trigger's: plant(data, honest, stream) of attack.trigger; what "
    "they send follows from attack.dp_steps, boost and boosted, or from the attackers that start(data) "
    "returns",
}


def refuse_uncalled(group: str, part: Any) -> None:
    """Raise ConfigError for a public method of an own class that nothing calls, naming methods to use.

    Names that begin with an underscore are not looked at.

    Args:
        group: The group of the part, or another name for the message.
        part: The part; one whose classes are all fedpriv's, or of installed packages, is never refused.
    """
    for kind, name in _uncalled(part):
        if name in _STATE and group in _SAVED:
            continue
        inherited, group_of = _contract(type(part)), group.partition(".")[0]
        base = next((k for k in type(part).__mro__ if _is_ours(k)), None)
        usable = [hook for hook in _HOOKS.get(group, ()) if hook in inherited and hook != name]
        hint = f"{base.__name__} has {', '.join(usable)}" if base is not None and usable else ""
        if near := nearest(name, sorted(inherited - {name})):
            hint = f"did you mean {near}?" if not hint else f"{hint}; did you mean {near}?"
        if group in _ELSEWHERE:
            hint = _ELSEWHERE[group]
        level = f" ({part.unit} level)" if group_of == "algorithm" else ""
        raise ConfigError(
            f"{group}: nothing calls {kind.__name__}.{name}{level}, so it would change nothing; "
            + (f"{hint}; " if hint else "")
            + f"rename it _{name} if it is only for you"
        )


def refuse_unasked(parts: Parts) -> None:
    """Raise ConfigError for a method of an own clipper or schedule that needs another method to be called.

    A ``statistic``, say, is computed only where ``query`` returns one.
    """
    clipper, schedule = parts.clipper, parts.noise_schedule
    listens = schedule.reads_validation or schedule.loss_query is not None
    for group, part, method, called, needed in (
        ("clipper", clipper, "statistic", clipper.asks_ever(), "query that returns one"),
        ("clipper", clipper, "part_norms", clipper.parts is not None, "parts"),
        ("noise_schedule", schedule, "observe", listens, "loss_query, or reads_validation = True"),
    ):
        home = next((kind for kind in type(part).__mro__ if method in vars(kind)), None)
        if home is not None and not _is_ours(home) and not called:
            raise ConfigError(
                f"{group}: nothing calls {home.__name__}.{method}, so it would change nothing; it needs "
                f"{needed}"
            )


def refuse_uncalled_by_trainer(trainer: Any) -> None:
    """Raise ConfigError for uncalled or uncallable methods of what an algorithm makes when it starts.

    These are its server step, its uploads and so on.
    """
    computation = trainer.computation
    parts = {
        "trainer": trainer,
        "work": computation,
        "server step": trainer.server,
        "optimizer": trainer.optimizer,
        "uploads": computation.uploads,
    }
    for name, part in parts.items():
        if part is not None:
            refuse_wrong_signatures(name, part)
            refuse_uncalled(name, part)
    if trainer.context.rule is not None:
        _refuse_unused_rule(trainer)


def _refuse_unused_rule(trainer: Any) -> None:
    """Raise ConfigError for an own algorithm or server step that does not let the rule combine uploads."""
    from fedpriv.algorithms.server_steps import (
        ServerStep,
    )  # imported late: a dry run needs no torch

    algorithm = trainer.context.mechanism.algorithm
    if trainer.computation.combines:
        return
    if not algorithm.row_per_client:
        raise ConfigError(
            f"aggregation: {type(algorithm).__name__}.start adds uploads up before a rule sees each; use "
            "the start of the class that it extends, or aggregation=mean"
        )
    server = type(trainer.server)
    if not _reaches(server, "apply", ServerStep.average):
        raise ConfigError(
            f"aggregation: {server.__name__}.apply does not call self.average(cohort, uploads), which is the "
            "weighted sum or what the rule makes of the uploads; call it, or use aggregation=mean"
        )


def _reaches(kind: type, first: str, wanted: Any) -> bool:
    """Return whether a method of a class, or any method that it calls by name, is ``wanted``."""
    todo, done = [(first, 0)], set()
    while todo:
        name, start = todo.pop()
        index = _home(kind, name, start)
        if index is None or (name, index) in done:
            continue
        done.add((name, index))
        method = vars(kind.__mro__[index])[name]
        if method is wanted:
            return True
        todo += [(called, index + 1 if of_super else 0) for called, of_super in _calls(method)]
    return False


def _home(kind: type, name: str, first: int) -> int | None:
    """Return the index of the class that defines a name, in the method resolution order from ``first`` on."""
    return next((i for i in range(first, len(kind.__mro__)) if name in vars(kind.__mro__[i])), None)


def _uncalled(part: Any) -> Iterator[tuple[type, str]]:
    """Yield each public name that nothing calls, with the own class that defines it."""
    kinds = [kind for kind in type(part).__mro__ if files_of(kind.__module__)]
    if not kinds:
        return
    trees = [tree for kind in kinds for tree in _trees(kind.__module__)]
    contract, loose = _contract(type(part)), not any(map(_is_ours, type(part).__mro__))
    live = None  # computed when needed, as it reads all of fedpriv
    for kind in kinds:
        for name, value in vars(kind).items():
            if name.startswith("_") or inspect.isclass(value):
                continue
            method = callable(value) or hasattr(value, "__get__")
            if not method and (name in contract or name not in _hooks_of_relatives(type(part))):
                continue  # a constant of the own class, or one that its class in fedpriv has
            if any(_uses(tree, name) for tree in trees):
                continue
            if loose and name in _used_outside(frozenset()):
                continue
            # An inherited name must be reached from fedpriv; a new name must be asked for by getattr.
            if name in contract:
                live = _live(type(part)) if live is None else live
                if name in live or not method:
                    continue
            elif not loose and name in _asked_for():
                continue
            yield kind, name


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith(PACKAGE)


def _contract(kind: type) -> frozenset[str]:
    """Return the public names of all base classes that are not the user's own."""
    names: set[str] = set()
    for base in kind.__mro__:
        if base is not object and not files_of(base.__module__):
            names |= {*vars(base), *getattr(base, "__annotations__", {})}
    return frozenset(name for name in names if not name.startswith("_"))


def _hooks_of_relatives(kind: type) -> frozenset[str]:
    """Return the public names of all classes of fedpriv with the same root, as all algorithms have one."""
    roots = [base for base in kind.__mro__ if _is_ours(base)]
    names: set[str] = set()
    todo = roots[-1:]
    while todo:
        base = todo.pop()
        if _is_ours(base):
            names |= {name for name in vars(base) if not name.startswith("_")}
        todo += base.__subclasses__()
    return frozenset(names)


# ---- what fedpriv calls


def _live(kind: type) -> set[str]:
    """Return the inherited names that fedpriv calls from outside of the base classes."""
    bases = [base for base in kind.__mro__ if _is_ours(base)]
    names = {name for base in kind.__mro__ for name in vars(base)}
    used = _used_outside(frozenset(base.__module__ for base in bases))
    used |= _used_beside(frozenset((base.__module__, base.__name__) for base in bases))
    todo = [(name, 0) for name in names if name in used or name.startswith("__")]
    done: set[tuple[str, int]] = set()
    while todo:
        name, first = todo.pop()
        index = _home(kind, name, first)
        if index is None or (name, index) in done:
            continue
        done.add((name, index))
        value = vars(kind.__mro__[index])[name]
        todo += [(called, index + 1 if of_super else 0) for called, of_super in _calls(value)]
    return {name for name, _ in done}


def _calls(value: Any) -> list[tuple[str, bool]]:
    """Return each attribute that a method reads of any object, and whether of ``super()``."""
    wrapped = [getattr(value, name, None) for name in ("fget", "func", "__func__")]
    function = next((inner for inner in wrapped if inner is not None), value)
    if not inspect.isfunction(function):
        return []
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):
        return []
    attributes = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value
            of_super = isinstance(owner, ast.Call) and getattr(owner.func, "id", None) == "super"
            attributes.append((node.attr, of_super))
    return attributes


@functools.cache
def _sources() -> dict[str, str]:
    """Return the source of each module of fedpriv by its name, without those that only check parts."""
    root = Path(fedpriv.__file__).parent
    sources = {}
    for path in root.rglob("*.py"):
        relative = path.relative_to(root).as_posix()
        if not relative.startswith(_LOOK_ON):
            module = f"fedpriv.{relative.removesuffix('.py').replace('/', '.')}"
            sources[module] = path.read_text("utf-8")
    return sources


@functools.cache
def _used_outside(homes: frozenset[str]) -> frozenset[str]:
    """Return the attributes and quoted names that modules of fedpriv other than ``homes`` use."""
    text = "\n".join(text for name, text in _sources().items() if name not in homes)
    text = re.sub(r"\bfedpriv(?:\.\w+)+", "", text)  # names of modules, in imports and prose
    return frozenset(re.findall(r"\.([A-Za-z]\w*)\b", text)) | frozenset(
        re.findall(r'"(\w+)"', text)
    )


@functools.cache
def _used_beside(bases: frozenset[tuple[str, str]]) -> frozenset[str]:
    """Return the attributes of other objects that classes in the modules of base classes use.

    Args:
        bases: Module and name of each base class; base classes themselves are not looked at.
    """
    attributes = set()
    for module in {module for module, _ in bases}:
        for node in ast.parse(_sources().get(module, "")).body:
            if not isinstance(node, ast.ClassDef) or (module, node.name) in bases:
                continue
            attributes |= {
                inner.attr
                for inner in ast.walk(node)
                if isinstance(inner, ast.Attribute) and getattr(inner.value, "id", "self") != "self"
            }
    return frozenset(attributes)


@functools.cache
def _asked_for() -> frozenset[str]:
    """Return the attributes that fedpriv asks parts for, though the parts need not have them."""
    text = "\n".join(_sources().values())
    return frozenset(re.findall(r'(?:getattr|hasattr)\([^()]*?,\s*"(\w+)"', text))


# ---- what own code calls


@functools.cache
def _trees(module: str) -> tuple[ast.Module, ...]:
    """Return the syntax trees of a module of the user's own and of all the user's modules that it imports."""
    trees = []
    for path in files_of(module).values():
        try:
            trees.append(ast.parse(path.read_bytes()))
        except (OSError, SyntaxError, ValueError):
            continue
    return tuple(trees)


def _uses(tree: ast.AST, name: str) -> bool:
    """Return whether code reads an attribute of this name, or quotes it, outside of functions so named."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            continue
        if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load):
            return True
        if isinstance(node, ast.Constant) and node.value == name:
            return True
        if _uses(node, name):
            return True
    return False
