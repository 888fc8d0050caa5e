"""The arguments of ``fedpriv train``, brought into the form that Hydra reads: flags first, then overrides.

A resumed run brings the overrides of its folder with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from fedpriv.common.config import MULTIRUN
from fedpriv.common.errors import ConfigError
from fedpriv.common.groups import ADDED, LISTED, conf_dir
from fedpriv.common.notices import complain
from fedpriv.common.words import quoted
from fedpriv.experiment.consent import FLAG
from fedpriv.store.folder import RunFolder, not_resumable
from fedpriv.store.stored_run import StoredRun

_OF_THE_PROCESS = ("resume", "dry_run", "runtime.run_dir", "runtime.reuse", "runtime.stop_file")
FLAGS_WITH_VALUE = {
    "--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn", "--package", "-p",
    "--cfg", "-c",
}  # fmt: skip


def without_allowed(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the modules given with ``--allow``, and the other arguments.

    Both ``--allow MODULE`` and ``--allow=MODULE`` are understood, any number of times.

    Raises:
        ConfigError: The flag has no module, or no run is resumed.
    """
    allowed: list[str] = []
    rest: list[str] = []
    awaited = False
    for argument in arguments:
        if awaited or argument.startswith(f"{FLAG}="):
            allowed.append(argument.removeprefix(f"{FLAG}="))
            awaited = False
        elif argument == FLAG:
            awaited = True
        else:
            rest.append(argument)
    if awaited or not all(allowed):
        raise ConfigError(f"{FLAG} needs a module of your own that a resumed run may name")
    if allowed and resumed(rest) is None:
        raise ConfigError(f"{FLAG} is for resume=FOLDER; your own configuration may name any code")
    return allowed, rest


def note_given_twice(arguments: Sequence[str]) -> None:
    """Tell the user which key or group is given twice with different values: the last value counts.

    Scripts override their own defaults like this. Without a note, a private run might silently become a run
    without privacy.
    """
    values: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.lstrip("+").partition("=")
        if not equals or key.startswith(("-", "~")) or key in ADDED:
            continue
        first = values.get(key, value)
        values[key] = value
        if first != value:
            complain(f"note: {key}={first} and {key}={value} are both given; the last one counts")


def flags_first(arguments: list[str]) -> list[str]:
    """Return the arguments with all overrides after the flags, as Hydra takes overrides in one piece only."""
    flags: list[str] = []
    overrides: list[str] = []
    for argument in arguments:
        is_value = bool(flags) and flags[-1] in FLAGS_WITH_VALUE
        (flags if argument.startswith("-") or is_value else overrides).append(argument)
    return [*flags, *overrides]


def refuse_run_dir(arguments: Sequence[str]) -> None:
    """Raise ConfigError for ``hydra.run.dir``: fedpriv makes the run folder itself."""
    for argument in arguments:
        key, _, value = argument.lstrip("+").partition("=")
        if key == "hydra.run.dir":
            hint = "runtime.run_dir is the run folder, hydra.sweep.dir that of a sweep"
            raise ConfigError(key, value, "left out", hint)


def asks_for_figure(arguments: Sequence[str]) -> bool:
    """Return whether the arguments ask for a figure. Raise ConfigError if they do so without a sweep."""
    if not any(a.startswith(("+figure=", "figure=", "+figure.file=")) for a in arguments):
        return False
    if not MULTIRUN & set(arguments):
        raise ConfigError("a figure is a sweep: add -m, or use fedpriv figure <name>")
    return True


def resumed(arguments: Sequence[str]) -> str | None:
    """Return the value of ``resume=``, however it is written; None for a new run."""
    split = (argument.lstrip("+").partition("=") for argument in arguments)
    chosen = [value for key, _, value in split if key == "resume"]
    return chosen[-1] if chosen and chosen[-1] not in ("", "null") else None


def with_resumed_overrides(arguments: list[str]) -> list[str]:
    """Return the arguments; with ``resume=<folder>``, after the overrides that the folder notes.

    So an override of this command replaces the noted one of the same key. Those that concern the process, the
    trackers, or an output folder elsewhere are left out.

    Raises:
        ConfigError: The folder holds no run, or overrides that no run can have.
    """
    chosen = resumed(arguments)
    if chosen is None:
        return arguments
    folder = RunFolder(_folder_name(chosen))
    if not folder.environment.exists():
        raise not_resumable(str(folder.path))
    try:
        earlier = StoredRun(folder).overrides or []
    except ConfigError as error:
        raise ConfigError(f"resume: {error}; start anew, or repair it") from None
    if not all(map(_is_of_task, earlier)):
        raise ConfigError(
            f"resume: the overrides in {folder.environment} are not those of a run; start anew, or repair it"
        )
    return [*(o for o in earlier if _is_kept(o, folder)), *arguments]


def _is_kept(override: str, folder: RunFolder) -> bool:
    """Return whether an override of a run still counts when the run is resumed.

    It does not where the run would write somewhere else than below the folder it is in.
    """
    key, _, value = override.lstrip("+~").partition("=")
    if key.partition(".")[0].partition("/")[0] == "tracker":
        return False  # trackers send data elsewhere: only the user who resumes may say where
    if key == "runtime.output_dir":
        return folder.path.resolve().is_relative_to(Path(str(_value(value))).resolve())
    return key not in _OF_THE_PROCESS


def _is_of_task(override: str) -> bool:
    """Return whether a run can have this override.

    Settings and flags of Hydra itself are refused, and so is an option from elsewhere (``model=../../x``),
    whose YAML could set them. The folder may be somebody else's.
    """
    key, _, value = override.lstrip("+~").partition("=")
    if not re.fullmatch(r"\w+([./]\w+)*", key) or "hydra" in key.lower():
        return False
    if key == "runtime":  # {output_dir: elsewhere} would escape _is_kept
        return False
    chooses = "/" in key or key in LISTED or (conf_dir() / key).is_dir()
    return not (chooses and any(part in value for part in ("..", "\\", "$")))


def _folder_name(written: str) -> str:
    """Return the value of ``resume=``."""
    name = _value(written)
    if not isinstance(name, str) or not name.strip():
        raise not_resumable(written)
    return name


def _value(written: str) -> object:
    """Return the value of an override as Hydra reads it, without quotes."""
    try:
        return OverridesParser.create().parse_override(f"key={written}").value()
    except HydraException:
        return written


def swept_arguments(
    overrides: Sequence[str],
    over: Mapping[str, Iterable[object]],
    folder: str | Path | None,
    config_dir: str | Path | None,
) -> list[str]:
    """Return the arguments of ``fedpriv train`` for a sweep that is started from Python.

    Args:
        overrides: Arguments as on the command line.
        over: Key → its values.
        folder: Folder of the sweep; None for a new one.
        config_dir: Folder with the user's own YAML files.

    Raises:
        ConfigError: The arguments are one text instead of a list, or a key has no values.
    """
    if isinstance(overrides, str):
        allowed = f"a list of texts, such as [{overrides!r}]"
        raise ConfigError("overrides", overrides, allowed)
    arguments = ["-m", *overrides]
    for key, values in over.items():
        several = isinstance(values, Iterable) and not isinstance(values, str)
        texts = [_override_text(value) for value in (values if several else [values])]
        if not texts:
            raise ConfigError(key, "no value", "one value or more to sweep over")
        arguments.append(f"{key}={','.join(texts)}")
    if folder is not None:
        arguments.append(f"hydra.sweep.dir={quoted(folder)}")
    if config_dir is not None:
        arguments.append(f"--config-dir={config_dir}")
    return arguments


def _override_text(value: object) -> str:
    """Return a value of Python as it is written in an override."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_override_text, value))}]"
    # A list, a mapping or a function in Hydra's grammar stays one. Any other text is one value.
    is_text = isinstance(value, str | Path) and not re.match(r"[\[{]|\w+\(", str(value))
    return quoted(value) if is_text else str(value)
