"""Mutation check: plant small faults in the code and count how many the tests catch.

Three steps, each one command::

    pytest -n 2 --cov=fedpriv --cov-context=test --cov-report= --junit-xml=tests.xml
    python scripts/mutation_check.py choose mutants.json --seed COMMIT --count 200
    python scripts/mutation_check.py run mutants.json
    python scripts/mutation_check.py run mutants.json --stage covering --contexts .coverage --junit tests.xml

``choose`` draws the places and the changes at random from the seed. ``run`` plants one mutant at a
time in a copy of the repository and runs tests up to the first failure: ``--stage near`` runs those
of the mutant's module, ``--stage covering`` those that run the changed line, nearest and fastest
first, and ``--stage all`` the default suite. A later stage takes what the earlier ones did not
catch. Each answer is a file beside ``mutants.json``, so that an interrupted check goes on. The
mutations are those of cosmic-ray without those that only change texts or annotations. Packages:
``pip install cosmic-ray pytest-cov``.
"""

import argparse
import ast
import difflib
import importlib
import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# the code of the guarantee: privacy, per-sample gradients, and the files that one round walks through
PLACES = ("fedpriv/privacy/**/*.py", "fedpriv/engine/*.py", "fedpriv/algorithms/*.py")
ARITHMETIC = ("Add", "Sub", "Mul", "Div")
ORDER = ("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE")
OTHER = (
    "AddNot", "NumberReplacer", "ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak", "ReplaceFalseWithTrue", "ReplaceTrueWithFalse", "ZeroIterationForLoop",
    "ReplaceUnaryOperator_USub_UAdd", "ReplaceUnaryOperator_Delete_Not", "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is",
)  # fmt: skip

LIBRARIES = (
    "torch",
    "pandas",
    "scipy.stats",
    "scipy.signal",
    "scipy.optimize",
    "matplotlib",
)  # not pytest plugins


def operators() -> dict[str, list[str]]:
    """Return the mutations [kind of place: names of cosmic-ray's operators]."""
    kinds = {name: [f"core/{name}"] for name in OTHER}
    for prefix, names in (("Binary", ARITHMETIC), ("Comparison", ORDER)):
        for name in names:
            others = [
                f"core/Replace{prefix}Operator_{name}_{other}" for other in names if other != name
            ]
            kinds[f"{prefix}_{name}"] = others
    return kinds


def ignored_lines(source: str) -> set[int]:
    """Return the lines whose changes no test should see: messages, docstrings, annotations, imports."""
    lines: set[int] = set()

    def ignore(node: ast.AST | None) -> None:
        if node is not None and hasattr(node, "lineno"):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)) or (
            isinstance(node, ast.AnnAssign) and node.value is None
        ):
            ignore(node)
        elif isinstance(node, ast.Assert):
            ignore(node.msg)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            ignore(node)
        elif isinstance(node, ast.arg):
            ignore(node.annotation)
        elif isinstance(node, ast.FunctionDef) and node.returns is not None:
            ignore(node.returns)
    return lines


def places(root: Path) -> list[dict[str, Any]]:
    """Return every place that can be mutated, with the operators that apply to it."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    result = []
    for path in sorted({p for pattern in PLACES for p in root.glob(pattern)}):
        source = path.read_text()
        ignored = ignored_lines(source)
        tree = get_ast(source)
        nodes = list(ast_nodes(tree))
        for kind, names in operators().items():
            positions = []
            for node in nodes:
                positions += get_operator(names[0])().mutation_positions(node)
            for occurrence, ((first, _), (last, _)) in enumerate(positions):
                if not ignored.intersection(range(first, last + 1)):
                    result.append(
                        {
                            "file": str(path.relative_to(root)),
                            "line": first,
                            "kind": kind,
                            "occurrence": occurrence,
                            "operators": names,
                        }
                    )
    return result


def mutate(root: Path, mutant: dict[str, Any]) -> str:
    """Return the text of the file with the fault of ``mutant`` planted."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source = (root / mutant["file"]).read_bytes()
    changed = mutate_code(source, get_operator(mutant["operator"])(), mutant["occurrence"])
    if changed is None or changed == source.decode():
        raise ValueError(f"the mutation changes nothing: {mutant}")
    return changed


def choose(arguments: argparse.Namespace) -> None:
    """Draw ``--count`` mutants from the seed and write them with their diffs."""
    generator = random.Random(arguments.seed)
    mutants = []
    candidates = places(ROOT)
    for place in generator.sample(candidates, arguments.count):
        mutant = {**place, "operator": generator.choice(place.pop("operators"))}
        mutant.pop("operators", None)
        before = (ROOT / mutant["file"]).read_text().splitlines()
        after = mutate(ROOT, mutant).splitlines()
        mutant["diff"] = "\n".join(difflib.unified_diff(before, after, lineterm="", n=1))
        mutants.append(mutant)
    arguments.mutants.write_text(json.dumps(mutants, indent=1))
    print(f"{len(mutants)} of {len(candidates)} places -> {arguments.mutants}")


def covering_tests(contexts: Path, junit: Path, mutant: dict[str, Any]) -> list[tuple[float, str]]:
    """Return (seconds, test) for the tests that run the mutant's line, nearest and fastest first."""
    from coverage.numbits import register_sqlite_functions

    seconds = {}
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        seconds[f"{case.get('classname')}::{case.get('name')}"] = float(case.get("time") or 0)
    connection = sqlite3.connect(contexts)
    register_sqlite_functions(connection)
    rows = connection.execute(
        "select distinct c.context from line_bits b join file f on f.id = b.file_id"
        " join context c on c.id = b.context_id where f.path like ? and num_in_numbits(?, b.numbits)",
        (f"%/{mutant['file']}", mutant["line"]),
    )
    tests = {context.rsplit("|", 1)[0] for (context,) in rows if context}
    parts = set(Path(mutant["file"]).with_suffix("").parts)

    def order(test: str) -> tuple[int, float]:
        path = Path(test.split("::")[0])
        near = len(parts & set(path.parts)) + 3 * (path.stem.removeprefix("test_") in parts)
        return -near, duration(test)

    def duration(test: str) -> float:
        path, _, name = test.partition("::")
        return seconds.get(f"{path.removesuffix('.py').replace('/', '.')}::{name}", 1.0)

    return [(duration(test), test) for test in sorted(tests, key=order)]


def run_tests(copy: Path, tests: list[str] | None, limit: float) -> tuple[str, str]:
    """Run the tests in ``copy`` up to the first failure, in a forked process that has the libraries loaded.

    Returns:
        ``caught`` or ``survived``, and the test that failed.
    """
    import pytest

    options = ["-p", "no:cacheprovider", "-x", "-q", "--tb=no", "-rfE"]
    if tests is not None:
        (copy / ".tests").write_text("\n".join(tests))
        options += ["-n", "0", "@.tests"]
    output = copy / ".output"
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(copy)
        with output.open("w") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        sys.path.insert(0, str(copy))
        os.environ["PYTHONPATH"] = str(copy)
        sys.dont_write_bytecode = True
        status = 3
        try:
            status = int(pytest.main(options))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    ends = time.monotonic() + limit
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > ends:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "caught", f"no answer in {limit:.0f} s"
        time.sleep(0.05)
    if os.waitstatus_to_exitcode(done[1]) in (0, 5):
        return "survived", ""
    lines = output.read_text().splitlines()
    return "caught", next(
        (x for x in lines if x.startswith(("FAILED", "ERROR"))), "\n".join(lines[-5:])
    )


def nearest_tests(copy: Path, mutant: dict[str, Any]) -> list[str]:
    """Return the test files of the mutant's module, or of its folder where the module has none."""
    module = Path(mutant["file"]).relative_to("fedpriv")
    folder = copy / "tests" / module.parent
    files = sorted(folder.glob(f"test_{module.stem}*.py")) or sorted(folder.glob("test_*.py"))
    return [str(path.relative_to(copy)) for path in files]


def run(arguments: argparse.Namespace) -> None:
    """Run the tests of one stage for each mutant that no earlier stage caught."""
    mutants = json.loads(arguments.mutants.read_text())
    answers = arguments.mutants.with_suffix("")
    answers.mkdir(exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"  # a process with threads cannot be forked
    for library in LIBRARIES:
        importlib.import_module(library)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "fedpriv"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
        if run_tests(copy, nearest_tests(copy, mutants[0]), 900.0)[0] == "caught":
            raise SystemExit(f"tests fail without a fault:\n{(copy / '.output').read_text()}")
        for number, mutant in enumerate(mutants):
            answer = answers / f"{number}_{arguments.stage}.json"
            results = [
                json.loads(path.read_text())["result"] for path in answers.glob(f"{number}_*.json")
            ]
            if number % arguments.parts != arguments.part or answer.exists() or "caught" in results:
                continue
            started = time.monotonic()
            tests, limit = None, 3600.0
            if arguments.stage == "near":
                tests, limit = nearest_tests(copy, mutant), 300.0
            elif arguments.stage == "covering":
                timed = covering_tests(arguments.contexts, arguments.junit, mutant)
                ends = itertools.accumulate(seconds for seconds, _ in timed)
                tests = [
                    test
                    for (_, test), end in zip(timed, ends, strict=True)
                    if end <= arguments.seconds
                ]
                limit = 120 + 5 * arguments.seconds
            path = copy / mutant["file"]
            original = path.read_text()
            path.write_text(mutate(copy, mutant))
            try:
                result, test = ("survived", "") if tests == [] else run_tests(copy, tests, limit)
            finally:
                path.write_text(original)
            seconds = round(time.monotonic() - started, 1)
            count = None if tests is None else len(tests)
            answer.write_text(
                json.dumps({"result": result, "test": test, "tests": count, "seconds": seconds})
            )
            place = f"{mutant['file']}:{mutant['line']} {mutant['operator']}"
            print(f"{number} {place}: {result} in {seconds} s by {count} tests {test}", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    chooser = commands.add_parser("choose")
    chooser.add_argument("--seed", required=True)
    chooser.add_argument("--count", type=int, default=200)
    chooser.set_defaults(command=choose)
    runner = commands.add_parser("run")
    runner.add_argument("--contexts", type=Path)
    runner.add_argument("--junit", type=Path)
    runner.add_argument(
        "--seconds", type=float, default=120.0, help="time of the tests for one mutant"
    )
    runner.add_argument("--stage", choices=("near", "covering", "all"), default="near")
    runner.add_argument("--part", type=int, default=0)
    runner.add_argument("--parts", type=int, default=1)
    runner.set_defaults(command=run)
    for command in (chooser, runner):
        command.add_argument("mutants", type=Path)
    arguments = parser.parse_args()
    arguments.command(arguments)


if __name__ == "__main__":
    main()
