"""Methods of the user's own classes that nothing calls, refused before the first round.

Without this a median that is written as ``server_step`` of a client-level algorithm, which has no such
method, would run as a mean and be called a median. What is called is read from the source: a public name of
an own class counts as called where

- own code uses it (outside of the method of that name), or
- fedpriv does: a class of fedpriv that the own class extends has the name, and it is reached from the names
  that other modules of fedpriv use, through the methods as the own class has them.

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
    "aggregation": ("start", "describe", "linear"),
    "rule": ("combine",),
    "attack": ("attacks_in", "attackers_among", "start"),
    "attackers": ("observe", "constrain", "forge"),
    "attack.trigger": ("plant", "misfit", "describe"),
    "server step": ("apply", "weights"),
    "uploads": ("of", "of_records"),
}
"""By group: the methods by which parts differ, named in a refusal where the class has them."""
_STATE = ("state_dict", "load_state_dict")
_SAVED = ("work", "uploads", "accountant")
"""Parts whose state a checkpoint holds (``own_state``) though their classes in fedpriv have none."""
_ELSEWHERE = {
    "attack": "what attackers plant is the trigger's: plant(data, honest, stream) of attack.trigger; what "
    "they send follows from attack.dp_steps, boost and boosted, or from the attackers that start(data) "
    "returns",
}


def refuse_uncalled(group: str, part: Any) -> None:
    """Raise ConfigError naming a public method of an own class that nothing calls, and what to use."""
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
    """Raise ConfigError for a method of an own clipper or schedule that is called only where another one says
    so, and does not."""
    clipper, schedule = parts.clipper, parts.noise_schedule
    listens = schedule.reads_validation or schedule.loss_query is not None
    for group, part, method, called, needed in (
        ("clipper", clipper, "statistic", clipper.asks_ever(), "query that returns one"),
        ("clipper", clipper, "part_norms", clipper.parts is not None, "parts"),
        ("clipper", clipper, "observe_restored", clipper.transforms, "transforms = True"),
        ("clipper", clipper, "transform", clipper.transforms, "transforms = True"),
        ("noise_schedule", schedule, "observe", listens, "loss_query, or reads_validation = True"),
    ):
        home = next((kind for kind in type(part).__mro__ if method in vars(kind)), None)
        if home is not None and not _is_ours(home) and not called:
            raise ConfigError(
                f"{group}: nothing calls {home.__name__}.{method}, so it would change nothing; it needs "
                f"{needed}"
            )


def refuse_uncalled_by_trainer(trainer: Any) -> None:
    """The same, and signatures, for what an algorithm makes of itself once it starts: its server step,
    uploads and so on."""
    computation = trainer.computation
    parts = {
        "trainer": trainer,
        "work": computation,
        "server step": trainer.server,
        "optimizer": trainer.optimizer,
        "uploads": computation.uploads,
    }
    for what, part in parts.items():
        if part is not None:
            refuse_wrong_signatures(what, part)
            refuse_uncalled(what, part)
    if trainer.context.rule is not None:
        _refuse_unused_rule(trainer)


def _refuse_unused_rule(trainer: Any) -> None:
    """Raise ConfigError for an own algorithm or server step that does not let the rule combine uploads."""
    from fedpriv.algorithms.server_steps import ServerStep  # a dry run does without torch

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
    """Return whether a method of a class, or any method that it calls by name, is the one wanted."""
    todo, done = [(first, 0)], set()
    while todo:
        name, place = todo.pop()
        place = next(
            (i for i in range(place, len(kind.__mro__)) if name in vars(kind.__mro__[i])), -1
        )
        if place < 0 or (name, place) in done:
            continue
        done.add((name, place))
        method = vars(kind.__mro__[place])[name]
        if method is wanted:
            return True
        todo += [(called, place + 1 if above else 0) for called, above in _calls(method)]
    return False


def _uncalled(part: Any) -> Iterator[tuple[type, str]]:
    """(own class, public name) of all that nothing calls."""
    kinds = [kind for kind in type(part).__mro__ if files_of(kind.__module__)]
    if not kinds:
        return
    trees = [tree for kind in kinds for tree in _trees(kind.__module__)]
    contract, loose = _contract(type(part)), not any(map(_is_ours, type(part).__mro__))
    live = None
    for kind in kinds:
        for name, value in vars(kind).items():
            if name.startswith("_") or inspect.isclass(value):
                continue
            method = callable(value) or hasattr(value, "__get__")
            if not method and (name in contract or name not in _hooks_of_relatives(type(part))):
                continue  # a constant of its own, or one that its class has
            if any(_uses(tree, name) for tree in trees):
                continue
            if loose and _is_mentioned(name):
                continue
            if name in contract:
                live = _live(type(part)) if live is None else live
                if name in live or not method:
                    continue
            elif not loose and _is_asked_for(name):
                continue
            yield kind, name


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith(PACKAGE)


def _contract(kind: type) -> frozenset[str]:
    """The public names of the classes that are not the user's own among those that one extends."""
    found: set[str] = set()
    for base in kind.__mro__:
        if base is not object and not files_of(base.__module__):
            found |= {*vars(base), *getattr(base, "__annotations__", {})}
    return frozenset(name for name in found if not name.startswith("_"))


def _hooks_of_relatives(kind: type) -> frozenset[str]:
    """The public names of all classes of fedpriv that have the same root, as all algorithms do."""
    roots = [base for base in kind.__mro__ if _is_ours(base)]
    found: set[str] = set()
    todo = roots[-1:]
    while todo:
        base = todo.pop()
        found |= (
            {name for name in vars(base) if not name.startswith("_")} if _is_ours(base) else set()
        )
        todo += base.__subclasses__()
    return frozenset(found)


# ---- what fedpriv calls


def _live(kind: type) -> set[str]:
    """Return the inherited names that fedpriv calls from outside the modules of the base classes."""
    homes = {base.__module__ for base in kind.__mro__ if _is_ours(base)}
    names = {name for base in kind.__mro__ for name in vars(base)}
    used = _used_outside(frozenset(homes))
    todo = [(name, 0) for name in names if name in used or name.startswith("__")]
    done: set[tuple[str, int]] = set()
    while todo:
        name, first = todo.pop()
        place = next(
            (i for i in range(first, len(kind.__mro__)) if name in vars(kind.__mro__[i])), None
        )
        if place is None or (name, place) in done:
            continue
        done.add((name, place))
        value = vars(kind.__mro__[place])[name]
        for called, above in _calls(value):
            todo.append((called, place + 1 if above else 0))
    return {name for name, _ in done}


def _calls(value: Any) -> list[tuple[str, bool]]:
    """(attribute, whether of ``super()``) of all that a method reads of any object."""
    functions = [getattr(value, what, None) for what in ("fget", "func", "__func__")]
    function = next((one for one in functions if one is not None), value)
    if not inspect.isfunction(function):
        return []
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            of = node.value
            above = isinstance(of, ast.Call) and getattr(of.func, "id", None) == "super"
            found.append((node.attr, above))
    return found


@functools.cache
def _sources() -> dict[str, str]:
    """The text of each module of fedpriv that does more than to look on, by its name."""
    root = Path(fedpriv.__file__).parent
    found = {}
    for path in root.rglob("*.py"):
        place = path.relative_to(root).as_posix()
        if not place.startswith(_LOOK_ON):
            found[f"fedpriv.{place.removesuffix('.py').replace('/', '.')}"] = path.read_text(
                "utf-8"
            )
    return found


@functools.cache
def _used_outside(homes: frozenset[str]) -> frozenset[str]:
    """The attributes, and quoted names, that modules of fedpriv other than ``homes`` use."""
    text = "\n".join(text for name, text in _sources().items() if name not in homes)
    text = re.sub(r"\bfedpriv(?:\.\w+)+", "", text)  # names of modules, in imports and prose
    return frozenset(re.findall(r"\.([A-Za-z]\w*)\b", text)) | _quoted(text)


def _is_mentioned(name: str) -> bool:
    return name in _used_outside(frozenset())


@functools.cache
def _asked_for() -> frozenset[str]:
    text = "\n".join(_sources().values())
    return frozenset(re.findall(r'(?:getattr|hasattr)\([^()]*?,\s*"(\w+)"', text))


def _is_asked_for(name: str) -> bool:
    """Whether fedpriv asks parts for an attribute that they need not have."""
    return name in _asked_for()


def _quoted(text: str) -> frozenset[str]:
    return frozenset(re.findall(r'"(\w+)"', text))


# ---- what own code calls


@functools.cache
def _trees(module: str) -> tuple[ast.Module, ...]:
    """The syntax trees of a module of the user's own and of all of the user's that it imports."""
    found = []
    for path in files_of(module).values():
        try:
            found.append(ast.parse(path.read_bytes()))
        except (OSError, SyntaxError, ValueError):
            continue
    return tuple(found)


def _uses(tree: ast.AST, name: str) -> bool:
    """Whether code reads an attribute of this name, or has it as a text, outside of functions so called."""
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
