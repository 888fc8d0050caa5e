"""The rooms of ARCHITECTURE.md: imports point down, without circles, and secrets are drawn in named rooms."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedpriv

PACKAGE = Path(fedpriv.__file__).parent
ROOMS = (  # from the top; a room imports from those below it, and from itself
    ("__main__",),
    ("cli",),
    ("completion",),
    ("listing",),
    ("figures",),
    ("report",),
    ("train",),
    ("audit", "bench", "leaderboard", "search", "verify"),
    ("accounting",),
    ("experiment",),
    ("attacks",),
    ("algorithms",),
    ("trackers",),
    ("runs",),
    ("results",),
    ("engine",),
    ("privacy",),
    ("models",),
    ("features",),
    ("data",),
    ("config",),
    ("groups",),
    ("common",),
)
LEVEL = {name: len(ROOMS) - place for place, names in enumerate(ROOMS) for name in names}


def modules() -> dict[str, ast.Module]:
    """Every module of the package by its name below it."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if name != "__init__":  # the package's own door
            found[name.removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return found


MODULES = modules()


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
                if inner in MODULES or module:
                    yield inner if inner in MODULES else module
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "fedpriv":
                    yield ".".join(alias.name.split(".")[1:])


def room(name: str) -> str:
    return name.split(".")[0]


@pytest.mark.parametrize("name", list(MODULES))
def test_no_import_points_upward(name):
    upward = [
        other
        for other in imported(MODULES[name], typing=True)
        if other and room(other) != room(name) and LEVEL[room(other)] >= LEVEL[room(name)]
    ]
    assert upward == []


def circles() -> list[list[str]]:
    """Modules that import each other, however far round: strongly connected components of two or more."""
    graph = {
        name: {o for o in imported(tree, typing=True) if o in MODULES and o != name}
        for name, tree in MODULES.items()
    }
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
    assert circles() == []


# ---- randomness: who may draw what

SECRET = {
    "common.secret_streams",  # the streams themselves
    "privacy.sampling",  # lots, cohorts, batches
    "privacy.noise",  # normals on their grid
    "privacy.mechanisms.round",  # the noise of every release
    "privacy.mechanisms.matrix",  # the same, correlated over rounds
    "privacy.matrix.cohorts",  # who takes part
    "privacy.mechanisms.shares",  # who drops out; the streams of a discrete round
    "privacy.masks",  # of keys that it is given
    "privacy.mechanisms.randomized_response",  # flipped bits, from a stream it is given
    "audit.contributions",  # an observer's own, with a key of its own
    "search.secret_trials",  # how many trials, and what they try
    "audit.epsilon.trial",  # of trainings that are audited and thrown away
    "audit.certified",  # of trainings that vote
    "bench",  # of no run
    "verify",  # runs under keys of its own
}
PUBLIC = {
    "common.random_streams", "models", "data", "attacks", "audit", "bench", "verify",
    "algorithms.problem",  # records that read no data
    "privacy.monte_carlo",  # samples that a price is found by
}  # fmt: skip
OPERATING_SYSTEM = {
    "experiment.secrets",  # the key of a published run, and of a secret number of trials
    "leaderboard.trial",  # the noise_seed of a check, which nobody may choose
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
    ("algorithms.uploads", "shuffle"),  # of privacy.sampling
    ("figures.jobs", "sampling"),
}


@pytest.mark.parametrize("name", list(MODULES))
def test_random_numbers_are_drawn_in_named_rooms(name):
    called = {c for c in calls(MODULES[name]) if (name, c) not in DRAWING}
    if not lies_in(name, SECRET | MAKE_STREAMS):
        assert called & SECRET_CALLS == set()
    if not lies_in(name, PUBLIC | {"privacy.sampling"}):
        assert called & PUBLIC_CALLS == set()
    if not lies_in(name, OPERATING_SYSTEM):
        assert called & SYSTEM_CALLS == set()
    modules = {
        a.name for n in ast.walk(MODULES[name]) if isinstance(n, ast.Import) for a in n.names
    }
    if name != "common.random_streams":
        assert "random" not in modules


def test_python_s_generator_is_seeded_for_own_code_and_nothing_is_drawn_from_it():
    used = {
        node.attr
        for node in ast.walk(MODULES["common.random_streams"])
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "random"
    }
    assert used == {"getstate", "seed", "setstate"}


@pytest.mark.parametrize(
    "code",
    [
        "torch.randn(3)", "np.random.default_rng(0)", "streams.noise('x', 0)", "values.normal_()",
        "streams.sampling('lot', 0)", "os.urandom(8)",
    ],
)  # fmt: skip
def test_the_search_finds_what_it_is_for(code):
    assert calls(ast.parse(code)) & (SECRET_CALLS | PUBLIC_CALLS | SYSTEM_CALLS)
