"""The rooms of ARCHITECTURE.md: imports point down, without circles, and secrets are drawn in named rooms."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from loops import for_each

import fedpriv

PACKAGE = Path(fedpriv.__file__).parent
ROOMS = (  # from the top; a room imports from those below it, and from itself
    ("__main__",),
    ("cli",),
    ("study.figures",),
    ("study",),
    ("train",),
    ("tools.adapters",),
    ("tools.report", "tools.verify"),
    ("tools", "tools.accounting", "tools.audit"),
    ("experiment",),
    ("attacks",),
    ("algorithms",),
    ("aggregation",),
    ("store",),
    ("engine",),
    ("privacy",),
    ("privacy.clippers",),
    ("privacy.mechanisms",),
    ("privacy.accountants", "privacy.matrix"),
    ("privacy.core",),
    ("models",),
    ("features",),
    ("data",),
    ("common",),
)
"""Folders with modules, each for itself: a folder's own modules are one room, each folder below it another.
The modules of the top folder are rooms of one module."""
TOP = ("__main__", "train")
LEVEL = {name: len(ROOMS) - place for place, names in enumerate(ROOMS) for name in names}


def sources() -> list[Path]:
    """The modules of the package."""
    return sorted(PACKAGE.rglob("*.py"))


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Return every module of the package by its name below it, parsed when a test first asks."""
    found = {}
    for path in sources():
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if name != "__init__":  # the package's own door
            found[name.removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imported(tree: ast.Module, *, typing: bool) -> Iterator[str]:
    """What a module imports of this package, wherever the import stands; ``typing``: for annotations too."""
    skipped: set[ast.AST] = set()
    if not typing:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                skipped.update(ast.walk(node))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fedpriv":
            module = ".".join(node.module.split(".")[1:])
            for alias in node.names:
                inner = f"{module}.{alias.name}".lstrip(".")
                if inner in modules() or module:
                    yield inner if inner in modules() else module
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "fedpriv":
                    yield ".".join(alias.name.split(".")[1:])


def room(name: str) -> str:
    """Return the folder that a module stands in; a module of the top folder is a room of its own."""
    if (PACKAGE / name.replace(".", "/")).is_dir():
        return name
    return name.rpartition(".")[0] or name


def test_there_are_no_more_rooms_than_one_remembers():
    assert {room(name) for name in modules()} == set(LEVEL)
    folders = set(LEVEL) - set(TOP)
    assert len(folders) <= 29
    assert len({name.partition(".")[0] for name in folders}) <= 15


def test_every_room_says_what_is_in_it():
    for folder in set(LEVEL) - set(TOP):
        words = ast.get_docstring(modules()[folder])
        assert words, folder
        assert len(words.splitlines()) <= 11, folder


def test_a_class_name_stands_for_one_thing():
    """A reader who searches for a class finds one; classes inside functions count, too."""
    homes: dict[str, list[str]] = {}
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(name)
    assert len(homes) > 400
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


@for_each("name", modules)
def test_no_import_points_upward(name):
    upward = [
        other
        for other in imported(modules()[name], typing=True)
        if other and room(other) != room(name) and LEVEL[room(other)] >= LEVEL[room(name)]
    ]
    assert upward == []


def graph_of_modules() -> dict[str, set[str]]:
    return {
        name: {o for o in imported(tree, typing=True) if o in modules() and o != name}
        for name, tree in modules().items()
    }


def graph_of_rooms() -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {name: set() for name in LEVEL}
    for name, others in graph_of_modules().items():
        graph[room(name)] |= {room(other) for other in others} - {room(name)}
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Nodes that import each other, however far round: strongly connected components of two or more."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen, stack = set(), [start]
        while stack:
            for other in graph.get(stack.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
        reach[start] = seen
    found = {
        tuple(sorted({start, *(o for o in reach[start] if start in reach.get(o, ()))}))
        for start in graph
        if start in reach[start]
    }
    return [list(circle) for circle in sorted(found)]


def test_no_modules_import_each_other():
    assert circles(graph_of_modules()) == []


def test_no_rooms_import_each_other():
    assert circles(graph_of_rooms()) == []


# ---- randomness: who may draw what

SECRET = {
    "common.secret_streams",  # the streams themselves
    "privacy.core.sampling",  # lots, cohorts, batches
    "privacy.core.noise",  # normals on their grid
    "privacy.mechanisms.round",  # the noise of every release
    "privacy.mechanisms.matrix",  # the same, correlated over rounds
    "privacy.matrix.cohorts",  # who takes part
    "privacy.mechanisms.shares",  # who drops out; the streams of a discrete round
    "privacy.core.masks",  # of keys that it is given
    "privacy.mechanisms.randomized_response",  # flipped bits, from a stream it is given
    "tools.audit.contributions",  # an observer's own, with a key of its own
    "study.search_secret_trials",  # how many trials, and what they try
    "tools.audit.epsilon_trial",  # of trainings that are audited and thrown away
    "tools.audit.certified",  # of trainings that vote
    "tools.verify",  # runs under keys of its own
}
PUBLIC = {
    "common.random_streams", "models", "engine.probe", "data", "attacks", "tools.audit", "tools.verify",
    "tools.adapters",  # data of checks, seeds of foreign runs
    "aggregation",  # buckets and coordinates of rules, which read released uploads
    "algorithms.run_context",  # records that read no data
    "algorithms.warm_start",  # the order of records before the first round
}  # fmt: skip
OPERATING_SYSTEM = {
    "experiment.secrets",  # the key of a published run, and of a secret number of trials
}

SECRET_CALLS = {"sampling", "noise", "standard_normals", "Stream", "Noise"}
SECRET_CALLS |= {"simulated", "of_run"}
PUBLIC_CALLS = {
    "numpy_stream", "torch_stream", "stream_key", "default_rng", "Generator", "Philox", "rand", "randn",
    "randint", "randperm", "normal", "bernoulli", "multinomial", "manual_seed", "normal_", "uniform_",
    "kaiming_normal_", "exponential_", "rand_like", "randn_like", "randint_like", "shuffle", "getrandbits",
}  # fmt: skip
SYSTEM_CALLS = {"urandom", "token_hex", "token_bytes", "SystemRandom"}
MAKE_STREAMS = {
    "experiment.secrets",
    "experiment.assemble",
}  # of the run's digest, or of nobody's yet


def calls(tree: ast.Module) -> set[str]:
    """The last names of everything that is called."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                found.add(node.func.attr)
            elif isinstance(node.func, ast.Name):
                found.add(node.func.id)
    return found


def lies_in(name: str, rooms: set[str]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


DRAWING = {  # what is called where without being random: each looked at
    ("privacy.mechanisms.gaussian", "Noise"),  # applies what the round's streams give
    ("privacy.mechanisms.round", "Noise"),
    ("algorithms.uploads", "shuffle"),  # of privacy.core.sampling
    ("study.figures.jobs", "sampling"),
}


@for_each("name", modules)
def test_random_numbers_are_drawn_in_named_rooms(name):
    called = {c for c in calls(modules()[name]) if (name, c) not in DRAWING}
    if not lies_in(name, SECRET | MAKE_STREAMS):
        assert called & SECRET_CALLS == set()
    if not lies_in(name, PUBLIC | {"privacy.core.sampling"}):
        assert called & PUBLIC_CALLS == set()
    if not lies_in(name, OPERATING_SYSTEM):
        assert called & SYSTEM_CALLS == set()
    imports = {
        a.name for n in ast.walk(modules()[name]) if isinstance(n, ast.Import) for a in n.names
    }
    if name not in ("common.random_streams", "tools.adapters.server"):  # which looks at its state
        assert "random" not in imports


def test_python_s_generator_is_seeded_for_own_code_and_nothing_is_drawn_from_it():
    used = {
        node.attr
        for node in ast.walk(modules()["common.random_streams"])
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "random"
    }
    assert used == {"getstate", "seed", "setstate"}


ONE_WRITER = {  # what one module alone calls, and who else may: frames that move while a run goes on
    "from matplotlib": {"store.plots"},
    "from rich.table import": {"store.table", "experiment.reporter"},
    "csv.writer(": {"common.files"},
    ".to_csv(": {"common.files", "data.table_files"},  # the latter in a hint
    ", file=sys.stderr": {"common.notices", "study.figures.make", "__main__"},  # tracebacks
}


@pytest.mark.parametrize("call", ONE_WRITER)
def test_pictures_tables_files_and_complaints_are_made_in_one_place(call):
    found = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for path in sources()
        if call in path.read_text(encoding="utf-8")
    }
    assert found == ONE_WRITER[call]


def test_no_file_is_excepted_from_the_limits_of_functions():
    root = Path(__file__).parents[1]
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]
    assert {"C901", "PLR0913"} <= set(settings["lint"]["select"])
    excepted = settings["lint"]["per-file-ignores"].values()
    assert all(rule.startswith("D") for rules in excepted for rule in rules)  # docstrings alone
    excepted = re.compile(r"noqa(?!:)|noqa:.*(C901|PLR0913)")
    here = Path(__file__)
    found = [
        path.relative_to(root).as_posix()
        for folder in ("fedpriv", "hydra_plugins", "scripts", "tests")
        for path in (root / folder).rglob("*.py")
        if path != here and excepted.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []


PARTS = {
    *("dataset", "partition", "model", "clipper", "schedule", "noise_schedule", "accountant"),
    *("algorithm", "attack", "aggregation", "trigger", "tracker", "sampling", "cohorts"),
}


def test_no_part_is_asked_for_an_attribute_with_a_default():
    """What a part need not have is in its base class, with the default."""
    asked = [
        f"{name}: {ast.unparse(node)}"
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "getattr"
        and len(node.args) == 3
        and ast.unparse(node.args[0]).rpartition(".")[2] in PARTS
        and ast.unparse(node.args[1]) != "'build'"  # a model without it is refused in a sentence
    ]
    assert asked == []
