"""Mutation check: plant small faults in the code and count how many the tests catch.

    python scripts/mutation_check.py choose mutants.json --seed COMMIT --count 200
    python scripts/mutation_check.py run mutants.json answers
    python scripts/mutation_check.py run mutants.json answers --stage covering --contexts .coverage \\
        --junit tests.xml
    python scripts/mutation_check.py run mutants.json later --before answers

``choose`` draws the places and the changes at random from the seed, with ``--stays COMMIT`` among the lines
that this later commit still has. ``run`` plants one mutant at a time in a copy of the repository (or of
``--source``) and runs tests up to the first failure: ``--stage near`` runs those of the mutant's module,
``--stage covering`` those that run the changed line, nearest and fastest first (of ``pytest --cov=fedpriv
--cov-context=test --junit-xml=tests.xml``), and ``--stage all`` the default suite. A later stage takes what
the earlier ones did not catch. ``--before`` takes what earlier answers caught, the test that caught it
first. Each answer is a file in the folder, so that an interrupted check goes on. The mutations are those of
cosmic-ray without those that only change texts or annotations. Packages: ``pip install cosmic-ray
pytest-cov``. ``tests/mutants.json`` is the list that every larger change is held against.
"""

import argparse
import ast
import difflib
import functools
import importlib
import itertools
import json
import os
import random
import re
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


LIMIT = 900.0  # seconds for the tests of one mutant
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+)")


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


@functools.cache
def lines_that_stay(file: str, commit: str) -> set[int]:
    """Return the numbers of the lines of a file that a later commit has, too."""
    later = subprocess.run(
        ["git", "show", f"{commit}:{file}"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    matcher = difflib.SequenceMatcher(
        None, (ROOT / file).read_text().splitlines(), later, autojunk=False
    )
    return {
        line + 1
        for block in matcher.get_matching_blocks()
        for line in range(block.a, block.a + block.size)
    }


def stays(place: dict[str, Any], commit: str | None) -> bool:
    """Return whether the line of a place is in the later commit; True without one."""
    return commit is None or place["line"] in lines_that_stay(place["file"], commit)


def choose(arguments: argparse.Namespace) -> None:
    """Draw ``--count`` mutants from the seed and write them with their diffs."""
    generator = random.Random(arguments.seed)
    mutants = []
    candidates = [place for place in places(ROOT) if stays(place, arguments.stays)]
    for place in generator.sample(candidates, arguments.count):
        mutant = {**place, "operator": generator.choice(place.pop("operators"))}
        mutant.pop("operators", None)
        before = (ROOT / mutant["file"]).read_text().splitlines()
        after = mutate(ROOT, mutant).splitlines()
        header = f"a/{mutant['file']}", f"b/{mutant['file']}"
        mutant["diff"] = (
            "\n".join(difflib.unified_diff(before, after, *header, lineterm="", n=2)) + "\n"
        )
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


def plant(copy: Path, mutant: dict[str, Any]) -> bool:
    """Plant the fault in a copy of the repository; False where the code is no longer there."""
    command = ["patch", "-p1", "--quiet", "--no-backup-if-mismatch", "--reject-file=-"]
    return (
        subprocess.run(command, cwd=copy, input=mutant["diff"], text=True, check=False).returncode
        == 0
    )


def run(arguments: argparse.Namespace) -> None:
    """Run the tests of one stage for each mutant that no earlier stage caught."""
    mutants = json.loads(arguments.mutants.read_text())
    arguments.answers.mkdir(exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"  # a process with threads cannot be forked
    for library in LIBRARIES:
        importlib.import_module(library)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "fedpriv"
        subprocess.run(["git", "clone", "-q", str(arguments.source), str(copy)], check=True)
        for number, mutant in enumerate(mutants):
            answer = arguments.answers / f"{number}_{arguments.stage}.json"
            if number % arguments.parts != arguments.part or answer.exists():
                continue
            if "caught" in (one["result"] for one in earlier(arguments.answers, number)):
                continue
            first: list[str] = []
            if arguments.before is not None:
                caught = [
                    one for one in earlier(arguments.before, number) if one["result"] == "caught"
                ]
                if not caught:
                    continue
                first = [test for one in caught for test in FAILED.findall(one["test"])]
            started = time.monotonic()
            if not plant(copy, mutant):
                result, test = "gone", ""
            else:
                result, test = catch(copy, mutant, arguments, first)
            subprocess.run(["git", "checkout", "-q", "fedpriv"], cwd=copy, check=True)
            seconds = round(time.monotonic() - started, 1)
            answer.write_text(json.dumps({"result": result, "test": test, "seconds": seconds}))
            place = f"{mutant['file']}:{mutant['line']} {mutant['operator']}"
            print(f"{number} {place}: {result} in {seconds} s {test}", flush=True)


def earlier(answers: Path, number: int) -> list[dict[str, Any]]:
    """Return the answers so far about a mutant."""
    return [json.loads(path.read_text()) for path in answers.glob(f"{number}_*.json")]


def catch(
    copy: Path, mutant: dict[str, Any], arguments: argparse.Namespace, first: list[str]
) -> tuple[str, str]:
    """Run the tests of the stage, before them ``first``; returns what :func:`run_tests` does."""
    there = [test for test in first if (copy / test.partition("::")[0]).exists()]
    if there:
        answer = run_tests(copy, there, LIMIT)
        if answer[0] == "caught" and FAILED.search(answer[1]):
            return answer
    if arguments.stage == "all":
        return run_tests(copy, None, 3600.0)
    if arguments.stage == "near":
        return run_tests(copy, nearest_tests(copy, mutant), LIMIT)
    timed = covering_tests(arguments.contexts, arguments.junit, mutant)
    ends = itertools.accumulate(seconds for seconds, _ in timed)
    tests = [test for (_, test), end in zip(timed, ends, strict=True) if end <= arguments.seconds]
    return run_tests(copy, tests, LIMIT + 5 * arguments.seconds) if tests else ("survived", "")


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
    chooser.add_argument("--stays", help="a commit whose lines alone are changed")
    runner.add_argument("--before", type=Path, help="earlier answers; what these caught is run")
    runner.add_argument("--source", type=Path, default=ROOT, help="the checkout that is tested")
    for command in (chooser, runner):
        command.add_argument("mutants", type=Path)
    runner.add_argument("answers", type=Path, help="the folder of the answers")
    arguments = parser.parse_args()
    arguments.command(arguments)


if __name__ == "__main__":
    main()
