"""Mistakes of the command line of ``fedpriv train``: all of them are told at once.

Hydra, and the parts of a run, stop at the first mistake. Here the wrong words are put right or left out, and
the rest is tried again.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep
from hydra.errors import HydraException

from fedpriv.common.config import compose
from fedpriv.common.errors import ConfigError, all_of, nearest, show
from fedpriv.common.groups import ADDED, GROUPS, options
from fedpriv.common.option_keys import defaults_of_root
from fedpriv.common.own_targets import config_dir_of
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.train_arguments import FLAGS_WITH_VALUE

_MOST_TRIES = 30
_SWITCHES = ("dry_run", "publish", "isolate_records", "publish_test_metrics")


# ---- words that are neither a flag nor an override


def refuse_words(arguments: Sequence[str]) -> None:
    """Raise ConfigError for words without ``=``, with the override that was probably meant.

    All other mistakes of the command line are told with them.
    """
    errors: list[ConfigError] = []
    rest: list[str] = []
    remaining = list(arguments)
    while remaining:
        word = remaining.pop(0)
        if word in FLAGS_WITH_VALUE:
            rest += [word, *remaining[:1]]
            del remaining[:1]
        elif word.startswith(("-", "~", "=")) or not word.strip():
            rest.append(word)  # of Hydra's, or unreadable
        elif len(values := _values(word, remaining)) > 1:  # seed=0 1 2
            words = " ".join([word, *remaining[: len(values) - 1]])
            meant = f"{word.partition('=')[0]}={','.join(values)}"
            errors.append(ConfigError(f"{words}: the values of a sweep have no blanks: -m {meant}"))
            del remaining[: len(values) - 1]
            rest.append(meant)
        elif "=" in word.strip("=") or (word.endswith("=") and not _alone(remaining[:1])):
            rest.append(word)
        else:
            used, meaning, text = _meaning(word, remaining)
            errors.append(ConfigError(text))
            del remaining[:used]
            rest += [meaning] if meaning else []
    if errors:
        raise all_of([*errors, *_further_mistakes(rest)])


def _values(word: str, after: Sequence[str]) -> list[str]:
    """Return the values of an override, of which some are in words after it: ``seed=0 1 2``."""
    key, _, value = word.partition("=")
    if not key or not re.fullmatch(r"[\d.e,+-]+", value):
        return []
    numbers = itertools.takewhile(lambda text: re.fullmatch(r"[\d.e,+-]*\d,?", text), after)
    return [text.strip(",") for text in (value, *numbers)]


def _alone(words: Sequence[str]) -> bool:
    return bool(words) and "=" not in words[0].strip("=") and not words[0].startswith(("-", "~"))


def _meaning(word: str, after: Sequence[str]) -> tuple[int, str | None, str]:
    """Return what a word without ``=`` probably means.

    Returns:
        How many of the words ``after`` it belong to it, the override that was meant, and the message.
    """
    follows = after[0] if _alone(after[:1]) else None
    if word.endswith("="):  # dataset= mnist
        meant = f"{word}{follows}"
        return 1, meant, f"{word} {follows}: an override has no blanks: {meant}"
    if follows is not None and follows.startswith("="):  # dataset = mnist, dataset =mnist
        value = [follows[1:]] if follows[1:] else list(after[1:2])
        meant = f"{word}={''.join(value)}"
        used = 1 if follows[1:] else 2
        return used, meant, f"{word} = {''.join(value)}: an override has no blanks: {meant}"
    if _is_key(word) and follows is not None and not _is_key(follows):  # dataset mnist
        meant = f"{word}={follows}"
        return 1, meant, f"{word} {follows}: keys and values are joined by =, as in {meant}"
    return 0, *_of_one_word(word)


def _of_one_word(word: str) -> tuple[str | None, str]:
    """Return the override that a single word means, if that is clear, and the message."""
    name = word.replace("-", "_")
    groups = [group for group in GROUPS if name in dict(options(group))]
    if re.fullmatch(r"[\d.,-]+", word):
        return None, (
            f"{word} stands alone: the values of a sweep are joined by commas, without blanks, as in "
            "-m seed=0,1,2"
        )
    if groups:
        meant = f"{groups[0]}={name}"
        return meant, f"{word} is an option of {groups[0]}: write {meant}"
    if name == "resume":
        return None, "resume needs the folder of a run: resume=FOLDER"
    if name in _SWITCHES:
        return f"{name}=true", f"{word} needs a value: write {name}=true"
    if name in GROUPS:
        known = ", ".join(option for option, _ in options(name))
        return None, f"{word} needs an option: {name}=OPTION, one of {known}"
    if os.path.isdir(word):
        return None, f"{word} is a folder; a run is continued with resume={word}"
    if word.endswith((".yaml", ".yml")):
        return None, (
            f"{word}: train reads no single file; YAMLs of your own are options of groups, in folders named "
            "like them (clipper/mine.yaml): --config-dir FOLDER clipper=mine"
        )
    near = nearest(word, _root_keys(), cutoff=0.7)
    if near is not None:
        return None, f"{word} needs a value: {near}=VALUE"
    return None, f"{show(word)} is no override: write key=value, as in rounds=100 or dataset=mnist"


def _is_key(word: str) -> bool:
    return word in (*GROUPS, *_root_keys()) or bool(re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", word))


def _root_keys() -> list[str]:
    return [key for key in defaults_of_root() if "." not in key]


# ---- all mistakes of the overrides


def with_further_mistakes(error: ConfigError, overrides: Sequence[str]) -> ConfigError:
    """Return an error of composing, together with the other mistakes of the same overrides.

    Args:
        error: The first mistake, from :func:`fedpriv.common.config.explain`.
        overrides: The arguments that could not be composed.
    """
    without = _without(error, overrides)
    return error if without is None else all_of([error, *_further_mistakes(without)])


def _without(error: ConfigError, overrides: Sequence[str]) -> list[str] | None:
    """Return the overrides with the wrong ones put right or left out; None if none is known to be wrong.

    A wrong option of an unknown meaning decides which keys there are, so that nothing more can be said.
    """
    blamed = dict(error.blamed)
    if not blamed and (match := re.match(r"unknown key ([\w.]+)", error.key)):
        blamed = {o: None for o in overrides if o.lstrip("+").startswith(f"{match[1]}=")}
    options_unknown = any(
        meant is None and o.lstrip("+").partition("=")[0] in (*GROUPS, *ADDED)
        for o, meant in blamed.items()
    )
    # The keys of a figure's runs are composed by the figure.
    of_figure = any(o.lstrip("+").startswith(("figure=", "figure.file=")) for o in overrides)
    if options_unknown or of_figure or not any(o in blamed for o in overrides):
        return None
    replaced = (blamed.get(o, o) for o in overrides)
    return [o for o in replaced if o is not None]


def _further_mistakes(arguments: Sequence[str]) -> list[ConfigError]:
    """Return the mistakes of arguments, of which each mistake is left out once it is found."""
    config_dir = config_dir_of(arguments)
    overrides = [word for word in _first_of_each_sweep(arguments) if "hydra" not in word]
    found: list[ConfigError] = []
    for _ in range(_MOST_TRIES):
        try:
            build_parts(compose(overrides, config_dir))
            break
        except ConfigError as error:
            found += error.mistakes or [error]
            without = _without(error, overrides)
            if without is None:
                break
            overrides = without
        except Exception:  # the first mistake is told; this one when it has been mended
            break
    return found


def _first_of_each_sweep(arguments: Sequence[str]) -> list[str]:
    """Return the overrides among arguments, those of a sweep with their first value."""
    overrides: list[str] = []
    awaited = False
    for word in arguments:
        is_value, awaited = awaited, word in FLAGS_WITH_VALUE
        if is_value or word.startswith("-"):
            continue
        try:
            (parsed,) = OverridesParser.create().parse_overrides([word])
            sweep = parsed.value() if parsed.is_choice_sweep() else None
        except HydraException:
            sweep = None
        if isinstance(sweep, ChoiceSweep) and sweep.list:
            word = f"{word.partition('=')[0]}={sweep.list[0]}"
        overrides.append(word)
    return overrides
