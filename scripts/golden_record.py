"""A record of what fedpriv computes, to show that a change of its inside changes no result.

    python scripts/golden_record.py make DIR [--jobs 2] [--only NAME ...] [--source CHECKOUT]
    python scripts/golden_record.py compare BEFORE AFTER [--only NAME ...]
    python scripts/golden_record.py list

``make`` runs some 270 small cases and writes what they gave to ``DIR/<case>/``, normalised to text:
``plan.txt`` (of ``dry_run=true``), ``console.txt`` and exit status, every table, statement and audit of the
run folder, and a line with a SHA-256 for every tensor of ``model.pt`` and of the snapshots. Left out are
seconds, dates, versions, commits, the path of the checkout and pictures; nothing else. Runs have relative
paths, so no run folder is named. ``compare`` prints, for each file that differs, its first line that does,
and exits with 1 if there is any.

``--source`` is the checkout whose fedpriv runs; default: the one this script is in. ``--only`` takes
patterns such as ``wei_*``. With ``--data`` (default FEDPRIV_DATA) cases on real files run as well;
where it lacks them they are left out of the record.

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
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from golden_cases import COMMANDS, MACROS, PUBLISH, REFUSED, RESUMED, RUNS, THEN

QUIET = [
    *("runtime.progress=lines", "runtime.plots=false", "runtime.device=cpu", "runtime.threads=1"),
    "evaluation_interval=2",
]
PUBLISHED = {"plan.txt", "ledger.csv", "privacy.json"}
"""What ``publish=true``, whose secrets are the operating system's, gives every time alike."""
LEFT_OUT_FILES = {"config.yaml", "environment.json", "checkpoint.pt", "secret_key"}
LEFT_OUT_KEYS = {"seconds", "cpu_seconds", "test_records", "files"}
"""Of JSON and columns of CSV: times, digests of files that hold times, and what older versions did not
write; times in other texts: :func:`shortened`."""
SESSIONS = 3
"""A resumed case is stopped after so many single rounds, then runs to its end."""


# ---- the cases


def table(text: str) -> dict[str, str]:
    """Lines ``name words``; an indented line goes on with the one before."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\n\s+", " ", "\n".join(lines))
    return dict(re.split(r"\s+", line, maxsplit=1) for line in joined.splitlines())


def expand(words: str, data: str) -> list[str]:
    """The words with every ``@macro`` replaced by its own; ``$DATA``: the folder of real files."""
    macros, found = table(MACROS), []
    for word in shlex.split(words.replace("$DATA", data)):
        found += expand(macros[word], data) if word.startswith("@") else [word]
    return found


def cases() -> dict[str, tuple[str, str]]:
    """Name → (kind, words)."""
    texts = {"run": RUNS + REFUSED, "resumed": RESUMED, "publish": PUBLISH, "command": COMMANDS}
    return {name: (kind, words) for kind, t in texts.items() for name, words in table(t).items()}


# ---- a worker


def begin(work: str, source: str) -> None:
    """Set up a process before it imports torch."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in ("FEDPRIV_DATA", "FORCE_COLOR", "COLUMNS"):
        os.environ.pop(name, None)
    os.environ["XDG_CACHE_HOME"] = str(Path(work) / "cache")
    os.chdir(work)
    sys.path.insert(0, source)
    import fedpriv

    if not Path(fedpriv.__file__).is_relative_to(source):
        raise SystemExit(f"fedpriv was imported from {fedpriv.__file__}, not from {source}")


def command(words: list[str]) -> str:
    """What ``fedpriv <words>`` prints, and its exit status."""
    from fedpriv.cli import main

    out, err = io.StringIO(), io.StringIO()
    status: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as end:
            status = end.code
        except Exception as error:
            status = f"{type(error).__name__}: {error}"
    return f"{out.getvalue()}--- errors\n{err.getvalue()}--- status {status}\n"


def stop_after_rounds(words: list[str]) -> None:
    """Begin a run into ``run`` and stop it after each of its first rounds."""
    import fedpriv

    if "algorithm=wei_cdp_optimal" in words:  # the runs that it searches are not to be stopped
        command(["train", *words, "runtime.run_dir=store"])
    Path("stop").touch()
    given = [*words, "runtime.stop_file=stop", "runtime.run_dir=run", "runtime.progress=none"]
    for session in range(SESSIONS):
        resume = ["resume=run"] if session else []
        fedpriv.run(fedpriv.compose([*given, *resume]))
    Path("stop").unlink()


def record(name: str, kind: str, words: list[str], then: list[str], folder: str) -> float:
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


def outcome(kind: str, words: list[str], then: list[str]) -> dict[str, str]:
    """What a case says and leaves in the working folder: name of the record's file → text."""
    texts: dict[str, str] = {}
    if kind == "command":
        texts["console.txt"] = command(words)
    else:
        train = ["train", *QUIET, *words]
        texts["plan.txt"] = command([*train, "dry_run=true"])
        if kind == "resumed":
            stop_after_rounds([*QUIET, *words])
            train.append("resume=run")
        texts["console.txt"] = command([*train, "runtime.run_dir=run"])
    if then:
        texts["then.txt"] = command(then)
    for path in sorted(Path().rglob("*")):
        if path.is_file() and path.name not in LEFT_OUT_FILES:
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


def without_columns(text: str) -> str:
    rows = list(csv.reader(io.StringIO(text)))
    kept = [i for i, key in enumerate(rows[0]) if key not in LEFT_OUT_KEYS] if rows else []
    return "".join(",".join(row[i] for i in kept if i < len(row)) + "\n" for row in rows)


def without_keys(value: object) -> object:
    if isinstance(value, dict):
        return {k: without_keys(v) for k, v in value.items() if k not in LEFT_OUT_KEYS}
    return [without_keys(v) for v in value] if isinstance(value, list) else value


def shortened(text: str) -> str:
    """Without lines that come by the clock, times, who drew a figure when, and the checkout."""
    lines = (line for line in text.splitlines(keepends=True) if not re.match(r"round \d+  ", line))
    kept = re.sub(r"(time (?: *│)? *)\d+:\d+(:\d+)?", r"\1-:--", "".join(lines))
    kept = re.sub(r"YAMLs: .*?conf;", "YAMLs: conf;", kept)
    return re.sub(r"(?m)^- drawn .* by (commit|installed) .*$", "- drawn", kept)


# ---- make, compare, list


def write_data(folder: Path) -> None:
    """A play of six roles and the tweets of a few users."""
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
        "tinyshakespeare/input.txt": play,
        "sentiment140/sentiment140.subset.csv": "".join(rows),
    }.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)


def wanted(name: str, patterns: list[str] | None) -> bool:
    return not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def make(options: argparse.Namespace) -> int:
    """Run the cases in a few processes; 1 if one of them could not be recorded."""
    chosen = cases()
    chosen = {name: case for name, case in chosen.items() if wanted(name, options.only)}
    if not options.data or not Path(options.data).is_dir():
        real = [n for n, c in chosen.items() if "$DATA" in " ".join(expand(c[1], "$DATA"))]
        chosen = {name: case for name, case in chosen.items() if name not in real}
        print(f"without a folder of real files (--data) left out: {' '.join(real)}")
    then, folder = table(THEN), options.folder.resolve()
    for name in chosen:
        shutil.rmtree(folder / name, ignore_errors=True)
    began, failed, took = time.perf_counter(), [], {}
    with tempfile.TemporaryDirectory() as work:
        write_data(Path(work) / "data")
        pool = ProcessPoolExecutor(
            options.jobs,
            multiprocessing.get_context("spawn"),
            begin,
            (work, str(options.source.resolve())),
        )
        with pool:
            jobs = {
                pool.submit(
                    record,
                    name,
                    kind,
                    expand(words, options.data),
                    expand(then.get(name, ""), options.data),
                    str(folder),
                ): name
                for name, (kind, words) in chosen.items()
            }
            for job in as_completed(jobs):
                error = job.exception()
                if isinstance(error, BrokenProcessPool):
                    print(f"a worker ended: {error}")
                    return 1
                if error:
                    failed.append(jobs[job])
                    print(f"{jobs[job]}: {type(error).__name__}: {error}", flush=True)
                else:
                    took[jobs[job]] = job.result()
    slowest = ", ".join(f"{n} {took[n]:.0f} s" for n in sorted(took, key=took.get)[:-6:-1])
    print(f"{len(took)} cases in {time.perf_counter() - began:.0f} s, slowest: {slowest}")
    return 1 if failed else 0


def files(folder: Path) -> dict[str, Path]:
    return {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*")) if p.is_file()}


def compare(options: argparse.Namespace) -> int:
    """Print every file that differs with its first line that does."""
    before, after = (
        {n: p for n, p in files(folder).items() if wanted(n.partition("/")[0], options.only)}
        for folder in (options.before, options.after)
    )
    if not before or not after:
        print("there is no record")
        return 1
    different = 0
    for name in sorted({*before, *after}):
        if name not in before or name not in after:
            different += 1
            print(f"{name}: only in {options.before if name in before else options.after}")
            continue
        lines = [p.read_text().split("\n") for p in (before[name], after[name])]
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    making = commands.add_parser("make", help="run the cases and write their record")
    making.add_argument("folder", type=Path)
    making.add_argument("--jobs", type=int, default=2)
    making.add_argument("--source", type=Path, default=Path(__file__).parents[1])
    making.add_argument(
        "--data", default=os.environ.get("FEDPRIV_DATA", ""), help="the folder of real files"
    )
    making.set_defaults(run=make)
    comparing = commands.add_parser("compare", help="what differs between two records")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.set_defaults(run=compare)
    for one in (making, comparing):
        one.add_argument("--only", nargs="+", metavar="NAME", help="names or patterns of cases")
    listing = commands.add_parser("list", help="the cases")
    listing.set_defaults(
        run=lambda _: print("\n".join(f"{n:27}{c[1]}" for n, c in cases().items()))
    )
    options = parser.parse_args()
    return options.run(options) or 0


if __name__ == "__main__":
    sys.exit(main())
