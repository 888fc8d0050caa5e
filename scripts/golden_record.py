"""A record of what fedpriv computes, to show that a change of its inside changes no result.

    python scripts/golden_record.py make DIR [--fast] [--jobs 2] [--only NAME ...] [--source CHECKOUT]
    python scripts/golden_record.py compare BEFORE AFTER [--numbers] [--only NAME ...]
    python scripts/golden_record.py archives [--source CHECKOUT]
    python scripts/golden_record.py list

``make`` runs the cases of ``golden_cases.py`` and writes what they gave to ``DIR/<case>/``, as text:
``plan.txt`` (of ``dry_run=true``), ``console.txt``, ``status.txt``, ``files.txt`` (names of all files),
every table, statement and audit of the run folder, and a line with a SHA-256 for every tensor of
``model.pt`` and of the snapshots. Left out are seconds, dates, versions, commits, the path of the checkout
and pictures. ``compare`` prints, for each file that differs, its first line that does, and exits with 1 if
there is any. With ``--numbers`` it compares results alone: tables, ledgers, epsilon, delta, digests of
tensors, exit statuses and names of files, but no console, plan or prose, and nothing that ``GONE`` lists.
``archives`` draws every committed figure from the runs of its work's ``runs.zip``: each archived run has to
be found by a figure, and means have to be those of the committed ``figure.csv`` within 1e-4 (relative
above 1: archives have six digits).

``--source`` is the checkout whose fedpriv runs; default: the one this script is in. ``--only`` takes
patterns such as ``wei_*``; ``--fast`` takes the cases for every commit. With ``--data`` (default
FEDPRIV_DATA) cases on real files run as well; without it they are left out of the record.

Only the command line and ``fedpriv.run(fedpriv.compose(...))`` are used, as users use them.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import fnmatch
import hashlib
import io
import json
import multiprocessing
import os
import random
import re
import shlex
import shutil
import sys
import tempfile
import time
import unittest.mock
import zipfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import golden_cases as given

QUIET = [
    *("runtime.progress=lines", "runtime.plots=false", "runtime.device=cpu", "runtime.threads=1"),
    "evaluation_interval=2",
]
PUBLISHED = {"plan.txt", "status.txt", "ledger.csv", "privacy.json"}
"""What ``publish=true``, whose secrets are the operating system's, gives every time alike."""
LEFT_OUT_FILES = {"config.yaml", "environment.json", "checkpoint.pt", "secret_key"}
LEFT_OUT_KEYS = {"seconds", "cpu_seconds", "test_records", "files"}
"""Of JSON and columns of CSV: times, digests of files that hold times, and what older versions did not
write; times in other texts: :func:`shortened`."""
NO_NUMBERS = ("plan.txt", "console.txt", "then.txt", "privacy.txt", ".log", ".md")
"""Ends of names of files that ``compare --numbers`` leaves out."""
GONE = {"checkpoint_before.pt"}
"""Fields of JSON, columns of CSV and names in ``files.txt`` that were removed on purpose."""
RUNS_OF_FIGURES = {("outputs", "runs"), ("outputs", "reused")}
"""Folders of which names alone are kept."""
SESSIONS = 3
"""A resumed case is stopped after so many single rounds, then runs to its end."""


# ---- the cases


def table(text: str) -> dict[str, str]:
    """Lines ``name words``; an indented line goes on with the one before."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\n\s+", " ", "\n".join(lines))
    return {line.split()[0]: line.partition(" ")[2].strip() for line in joined.splitlines()}


def expand(words: str, data: str) -> list[str]:
    """The words with every ``@macro`` replaced by its own; ``$DATA``: the folder of real files."""
    macros, found = table(given.MACROS), []
    for word in shlex.split(words.replace("$DATA", data)):
        found += expand(macros[word], data) if word.startswith("@") else [word]
    return found


def cases() -> dict[str, tuple[str, str]]:
    """Name → (kind, words). Each algorithm goes with every rule and attack; most pairs are refused."""
    texts = {
        "run": given.RUNS + given.OWN_CODE,
        "short": given.REFUSED,
        "resumed": given.RESUMED,
        "publish": given.PUBLISH,
        "command": given.COMMANDS,
    }
    found = {name: (kind, words) for kind, t in texts.items() for name, words in table(t).items()}
    pairs = {rule: f"aggregation={rule}" for rule in given.RULES.split()} | table(given.ATTACKS)
    for algorithm, words in table(given.ALGORITHMS).items():
        found[f"of_{algorithm}"] = ("short", words)
        for name, more in pairs.items():
            found[f"of_{algorithm}_{name}"] = ("short", f"{words} {more}")
    for work in table(given.FIGURES):
        found[f"figures_{work}"] = ("command", figure_commands(work)[0])
    return found


def figure_commands(work: str) -> list[str]:
    """The commands that make the quick figures of a work."""
    return [
        f"FEDPRIV_DATA=$DATA figure {work}/{name} --quick runtime.device=cpu runtime.threads=1"
        for name in table(given.FIGURES)[work].split()
    ]


def follow_ups() -> dict[str, list[str]]:
    """Name of a case → the commands that follow it in its folder."""
    found = {name: commands.split(";") for name, commands in table(given.THEN).items()}
    return found | {f"figures_{work}": figure_commands(work)[1:] for work in table(given.FIGURES)}


# ---- a worker


def begin(work: str, source: str) -> None:
    """Set up a process before it imports torch."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in ("FEDPRIV_DATA", "FORCE_COLOR", "COLUMNS"):
        os.environ.pop(name, None)
    os.environ["XDG_CACHE_HOME"] = str(Path(work) / "cache")
    os.environ["PYTHONPATH"] = f"{source}:{work}/own"
    os.chdir(work)
    sys.path[:0] = [source, f"{work}/own"]
    import fedpriv

    if not Path(fedpriv.__file__).is_relative_to(source):
        raise SystemExit(f"fedpriv was imported from {fedpriv.__file__}, not from {source}")


def command(words: list[str]) -> dict[str, str]:
    """What ``fedpriv <words>`` prints, its exit status, and its table where it is asked for one."""
    from fedpriv.cli import main

    if words[0].startswith("FEDPRIV_DATA="):
        name, value = words[0].split("=")
        with unittest.mock.patch.dict(os.environ, {name: value}):
            return command(words[1:])
    out, err = io.StringIO(), io.StringIO()
    status: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as end:
            status = end.code
        except Exception as error:
            status = f"{type(error).__name__}: {error}"
    printed = f"{out.getvalue()}--- errors\n{err.getvalue()}--- status {status}\n"
    texts = {"console.txt": printed, "status.txt": f"{status}\n"}
    if "--json" in words and out.getvalue().startswith(("{", "[")):
        texts["printed.json"] = out.getvalue()
    if "csv" in words:
        texts["printed.csv"] = without_columns(out.getvalue())
    return texts


def stop_after_rounds(words: list[str]) -> None:
    """Begin a run into ``run`` and stop it after each of its first rounds."""
    import fedpriv

    if "algorithm=wei_cdp_optimal" in words:  # the runs that it searches are not to be stopped
        command(["train", *words, "runtime.run_dir=store"])
    Path("stop").touch()
    overrides = [*words, "runtime.stop_file=stop", "runtime.run_dir=run", "runtime.progress=none"]
    for session in range(SESSIONS):
        resume = ["resume=run"] if session else []
        fedpriv.run(fedpriv.compose([*overrides, *resume]))
    Path("stop").unlink()


def record(name: str, kind: str, words: list[str], then: list[list[str]], folder: str) -> float:
    """Run one case and write its record to ``folder``; returns the seconds it took."""
    began = time.perf_counter()
    Path(name).mkdir()
    with contextlib.chdir(name):
        texts = outcome(kind, words, then)
    shutil.rmtree(name)
    out = Path(folder) / name
    out.mkdir(parents=True)
    for key, text in texts.items():
        if text and (kind != "publish" or key in PUBLISHED):
            (out / key).write_text(shortened(text))
    return time.perf_counter() - began


def outcome(kind: str, words: list[str], then: list[list[str]]) -> dict[str, str]:
    """What a case says and leaves in the working folder: name of the record's file → text."""
    texts: dict[str, str] = {}
    if kind == "command":
        texts |= command(words)
    else:
        train = ["train", *QUIET, *words]
        if kind != "short":
            texts["plan.txt"] = command([*train, "dry_run=true"])["console.txt"]
        if kind == "resumed":
            stop_after_rounds([*QUIET, *words])
            train.append("resume=run")
        texts |= command([*train, "runtime.run_dir=run"])
    for number, follows in enumerate(then, start=1):
        prefix = f"then{number}_" if number > 1 else "then_"
        texts |= {prefix + key: text for key, text in command(follows).items()}
    paths = [path for path in sorted(Path().rglob("*")) if path.is_file()]
    texts["files.txt"] = "".join(f"{path}\n" for path in paths)
    for path in paths:
        if path.name not in LEFT_OUT_FILES and path.parts[:2] not in RUNS_OF_FIGURES:
            key = path.relative_to("run") if path.is_relative_to("run") else path
            texts[str(key).replace("/", "__")] = content(path)
    return texts


# ---- what is kept of a file


def content(path: Path) -> str:
    """A file of a run folder as text; empty for one that is not kept."""
    if path.suffix == ".pt":
        return tensors(path)
    if path.suffix == ".csv":
        return without_columns(path.read_text())
    if path.suffix == ".json":
        return json.dumps(without_keys(json.loads(path.read_text())), indent=1) + "\n"
    return path.read_text() if path.suffix in (".txt", ".log", ".md") else ""


def tensors(path: Path) -> str:
    """A line for every leaf of a torch file: of a tensor its type, shape and digest."""
    import torch

    def leaves(value: object, name: str) -> list[str]:
        if isinstance(value, dict):
            return [line for k, v in value.items() for line in leaves(v, f"{name}.{k}")]
        if not isinstance(value, torch.Tensor):
            return [f"{name} {value!r}"]
        data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        shape = tuple(value.shape)
        return [f"{name} {value.dtype} {shape} {hashlib.sha256(data).hexdigest()}"]

    return "\n".join(leaves(torch.load(path, weights_only=False), "")) + "\n"


def without_columns(text: str, left_out: set[str] = LEFT_OUT_KEYS) -> str:
    rows = list(csv.reader(io.StringIO(text)))
    kept = [i for i, key in enumerate(rows[0]) if key not in left_out] if rows else []
    return "".join(",".join(row[i] for i in kept if i < len(row)) + "\n" for row in rows)


def without_keys(value: object, left_out: set[str] = LEFT_OUT_KEYS) -> object:
    if isinstance(value, dict):
        return {k: without_keys(v, left_out) for k, v in value.items() if k not in left_out}
    return [without_keys(v, left_out) for v in value] if isinstance(value, list) else value


def without_prose(value: object) -> object:
    """A JSON value without its texts of several words, and without what ``GONE`` lists."""
    if isinstance(value, dict):
        return {k: without_prose(v) for k, v in value.items() if k not in GONE and " " not in k}
    if isinstance(value, list):
        return [without_prose(item) for item in value]
    return None if isinstance(value, str) and " " in value.strip() else value


def shortened(text: str) -> str:
    """Without lines that come by the clock, times, who drew a figure when, and the checkout."""
    lines = (line for line in text.splitlines(keepends=True) if not re.match(r"round \d+  ", line))
    kept = re.sub(r"(time (?: *│)? *)\d+:\d+(:\d+)?", r"\1-:--", "".join(lines))
    kept = re.sub(r"YAMLs: .*?conf;", "YAMLs: conf;", kept)
    return re.sub(r"(?m)^- drawn .* by (commit|installed) .*$", "- drawn", kept)


def numbers(name: str, text: str) -> str:
    """The part of a record's file that ``--numbers`` compares."""
    if name.endswith(".json"):
        return json.dumps(without_prose(json.loads(text)), indent=1)
    if name.endswith("files.txt"):
        return "".join(
            line for line in text.splitlines(True) if Path(line.strip()).name not in GONE
        )
    return without_columns(text, GONE) if name.endswith(".csv") else text


# ---- make, compare, list


def write_data(folder: Path) -> None:
    """A play of six roles, the tweets of a few users, and code and YAMLs of a user's own."""
    draw = random.Random(0)
    words = ["to", "be", "or", "not", "that", "is", "the", "question", "whether", "nobler"]

    def speech(n: int) -> str:
        return " ".join(draw.choice(words) for _ in range(n))

    play = "\n\n".join(f"ROLE{i}:\n{speech(40)}. to be or not. {speech(20)}" for i in range(6))
    rows = [
        f'"{4 * draw.randrange(2)}","1","Mon Apr 06 22:19:45 PDT 2009","NO_QUERY","user{i % 24}",'
        f'"{draw.choice(("miley ", "", "", ""))}{speech(6)}"\n'
        for i in range(240)
    ]
    for name, text in {
        "data/tinyshakespeare/input.txt": play,
        "data/sentiment140/sentiment140.subset.csv": "".join(rows),
        **given.OWN_FILES,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def wanted(name: str, patterns: list[str] | None) -> bool:
    return not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def make(options: argparse.Namespace) -> int:
    """Run the cases in a few processes; 1 if one of them could not be recorded."""
    patterns = [*(options.only or []), *(given.FAST.split() if options.fast else [])]
    chosen = {name: case for name, case in cases().items() if wanted(name, patterns)}
    if not options.data or not Path(options.data).is_dir():
        real = [n for n, c in chosen.items() if "$DATA" in " ".join(expand(c[1], "$DATA"))]
        chosen = {name: case for name, case in chosen.items() if name not in real}
        print(f"without a folder of real files (--data) left out: {' '.join(real)}")
    then, folder = follow_ups(), options.folder.resolve()
    data = str(Path(options.data).resolve())
    for name in chosen:
        shutil.rmtree(folder / name, ignore_errors=True)
    began, failed, took = time.perf_counter(), [], {}
    with tempfile.TemporaryDirectory() as work:
        write_data(Path(work))
        spawn, source = multiprocessing.get_context("spawn"), str(options.source.resolve())
        with ProcessPoolExecutor(options.jobs, spawn, begin, (work, source)) as pool:
            jobs = {}
            for name, (kind, words) in chosen.items():
                follows = [expand(c, data) for c in then.get(name, [])]
                job = pool.submit(record, name, kind, expand(words, data), follows, str(folder))
                jobs[job] = name
            for job in as_completed(jobs):
                if error := job.exception():
                    failed.append(jobs[job])
                    print(f"{jobs[job]}: {type(error).__name__}: {error}", flush=True)
                else:
                    took[jobs[job]] = job.result()
    slowest = ", ".join(f"{n} {took[n]:.0f} s" for n in sorted(took, key=took.get)[:-9:-1])
    print(f"{len(took)} cases in {time.perf_counter() - began:.0f} s, slowest: {slowest}")
    return 1 if failed else 0


def files(folder: Path, options: argparse.Namespace) -> dict[str, str]:
    """Name → text of the files of a record that are compared."""
    paths = {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*")) if p.is_file()}
    chosen = {n: p for n, p in paths.items() if wanted(n.partition("/")[0], options.only)}
    if not options.numbers:
        return {name: path.read_text() for name, path in chosen.items()}
    return {
        name: numbers(name, path.read_text())
        for name, path in chosen.items()
        if not name.endswith(NO_NUMBERS) and path.name not in GONE
    }


def compare(options: argparse.Namespace) -> int:
    """Print every file that differs with its first line that does."""
    before, after = files(options.before, options), files(options.after, options)
    if not before or not after:
        print("there is no record")
        return 1
    if options.both:
        common = {name.partition("/")[0] for name in before} & {n.partition("/")[0] for n in after}
        before, after = (
            {name: text for name, text in texts.items() if name.partition("/")[0] in common}
            for texts in (before, after)
        )
    different = 0
    for name in sorted({*before, *after}):
        if name not in before or name not in after:
            different += 1
            print(f"{name}: only in {options.before if name in before else options.after}")
            continue
        lines = [texts[name].split("\n") for texts in (before, after)]
        if lines[0] == lines[1]:
            continue
        different += 1
        longest = max(map(len, lines))
        padded = [text + ["(no line)"] * (longest - len(text)) for text in lines]
        at = next(i for i, (a, b) in enumerate(zip(*padded, strict=True)) if a != b)
        print(f"{name}, line {at + 1}:\n  - {padded[0][at]}\n  + {padded[1][at]}")
    total = len({name.partition("/")[0] for name in {*before, *after}})
    print(f"{different} of {len({*before, *after})} files of {total} cases differ")
    return 1 if different else 0


def draw_archived(work: str, source: str, figures: list[str]) -> tuple[list[str], set[str]]:
    """Draw figures of a work from its archive; returns what is wrong, and the names of the runs."""
    import pandas as pd

    wrong, used = [], set()
    reference = Path(source, "outputs", "reference")
    for figure in figures:
        words = ["figure", figure, "--draw", "--reuse", str(reference / work / "runs.zip")]
        status = command(words)["status.txt"].strip()
        drawn, committed = Path("outputs", "figures", figure), reference / figure
        if status != "0":
            wrong.append(f"{figure}: exit status {status}")
            continue
        used |= {Path(run).name for run in pd.read_csv(drawn / "runs.csv")["run"]}
        now, then = (pd.read_csv(folder / "figure.csv") for folder in (drawn, committed))
        columns = [name for name in ("x", "y", "mean") if name in then]
        for name in columns:
            allowed = 1e-4 * then[name].abs().clip(lower=1)
            if len(now) != len(then) or ((now[name] - then[name]).abs() > allowed).any():
                wrong.append(f"{figure}: {name} of figure.csv is not what is committed")
    return wrong, used


def archives(options: argparse.Namespace) -> int:
    """Draw the committed figures from the archived runs; 1 if a run or a number is missing."""
    source, problems = options.source.resolve(), []
    with tempfile.TemporaryDirectory() as work:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, spawn, begin, (work, str(source))) as pool:
            jobs = {}
            for archive in sorted(source.glob("outputs/reference/*/runs.zip")):
                tables = sorted(archive.parent.glob("*/ends.csv"))
                figures = [f"{archive.parent.name}/{table.parent.name}" for table in tables]
                jobs[archive] = pool.submit(
                    draw_archived, archive.parent.name, str(source), figures
                )
            for archive, job in jobs.items():
                names = {name.partition("/")[0] for name in zipfile.ZipFile(archive).namelist()}
                wrong, used = job.result()
                unused = sorted(names - used)
                print(
                    f"{archive.parent.name}: {len(names) - len(unused)} of {len(names)} runs found"
                )
                problems += [*wrong, *(f"{archive}: no figure finds {name}" for name in unused)]
    print("\n".join(problems) or "every archived run is found, and every mean is as committed")
    return 1 if problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    making = commands.add_parser("make", help="run the cases and write their record")
    making.add_argument("folder", type=Path)
    making.add_argument("--fast", action="store_true", help="the cases for every commit")
    making.add_argument("--jobs", type=int, default=2)
    making.add_argument("--source", type=Path, default=Path(__file__).parents[1])
    making.add_argument(
        "--data", default=os.environ.get("FEDPRIV_DATA", ""), help="the folder of real files"
    )
    making.set_defaults(run=make)
    comparing = commands.add_parser("compare", help="what differs between two records")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--numbers", action="store_true", help="results alone, no prose")
    comparing.add_argument("--both", action="store_true", help="only cases of both records")
    comparing.set_defaults(run=compare)
    for one in (making, comparing):
        one.add_argument("--only", nargs="+", metavar="NAME", help="names or patterns of cases")
    archived = commands.add_parser("archives", help="draw the committed figures from archived runs")
    archived.add_argument("--jobs", type=int, default=2)
    archived.add_argument("--source", type=Path, default=Path(__file__).parents[1])
    archived.set_defaults(run=archives)
    listing = commands.add_parser("list", help="the cases")
    listing.set_defaults(
        run=lambda _: print("\n".join(f"{n:27}{c[1]}" for n, c in cases().items()))
    )
    options = parser.parse_args()
    return options.run(options) or 0


if __name__ == "__main__":
    sys.exit(main())
