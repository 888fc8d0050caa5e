"""Shell completion for ``fedpriv`` and for the overrides after ``fedpriv train``.

The scripts take the offers as text, never as code. Names of files are left to the shell, which quotes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

from fedpriv.common.errors import FedprivError, show
from fedpriv.common.groups import GROUPS, LISTED, OPTION, TARGET, conf_dir, options

_BASH = r"""
_fedpriv() {
    local line="${COMP_LINE:0:$COMP_POINT}" choice cut=
    local word="${line##*[[:space:]]}"
    # bash splits words at '=' and ':': leave out what stands there already
    case "$COMP_WORDBREAKS" in *=*) cut="${word%"${word##*[=:]}"}";; esac
    COMPREPLY=()
    while IFS= read -r choice; do
        COMPREPLY+=("${choice#"$cut"}")
    done < <(COMP_LINE="$line" fedpriv _complete 2>/dev/null)
    case "${COMPREPLY[0]-}" in *[=.:/]) compopt -o nospace 2>/dev/null;; esac
    return 0
}
complete -o default -F _fedpriv fedpriv
"""
_ZSH = r"""
(( $+functions[compdef] )) || { autoload -U compinit && compinit }
_fedpriv() {
    local -a choices
    local line="${(j: :)words[1,CURRENT-1]} $PREFIX"
    choices=("${(@f)$(COMP_LINE="$line" fedpriv _complete 2>/dev/null)}")
    choices=(${choices:#})
    if (( $#choices )); then
        compadd -S '' -- ${(M)choices:#*[=.:/]}
        compadd -- ${choices:#*[=.:/]}
    else
        compset -P '*[=:]'
        _files
    fi
}
compdef _fedpriv fedpriv
"""
_FISH = r"""
function __fedpriv_offers
    set -g __fedpriv_choices (env COMP_LINE=(commandline -cp) fedpriv _complete 2>/dev/null)
    set -q __fedpriv_choices[1]
end
complete -c fedpriv -n __fedpriv_offers -f -a '$__fedpriv_choices'
"""
_HARMLESS = re.compile(r"[\w=.,:/+~-]+")
"""Texts without a special meaning on a command line: bash inserts them without quotes."""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def candidates(line: str, command: click.Command) -> list[str]:
    """Return the offers for the last word of a command line.

    Offers that a shell would have to quote are left out.

    Args:
        line: The command line up to the cursor, which begins with ``fedpriv``.
        command: The click command ``fedpriv``.

    Returns:
        The offers; none where the words before the last one are wrong, or where the shell completes names of
        files.
    """
    words = split_arg_string(line)[1:]
    last = words.pop() if words and not line[-1:].isspace() else ""
    try:
        items = ShellComplete(command, {}, "fedpriv", "").get_completions(words, last)
    except FedprivError:  # the words before are wrong already
        return []
    # Files and folders are items of other types, which the shell completes by itself.
    offers = (item.value for item in items if item.type == "plain")
    return [text for text in offers if _HARMLESS.fullmatch(text)]


class Overrides(click.ParamType):
    """Parameters ``key=value`` and ``group=option`` after ``fedpriv train``, which Hydra reads."""

    name = "override"

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem]:
        config_dir = ctx.params.get("config_dir")
        given = ctx.params.get(param.name) or ()
        offers = _overrides(incomplete, given, Path(config_dir) if config_dir else None)
        return [CompletionItem(text) for text in offers if text.startswith(incomplete)]


def _overrides(last: str, given: Sequence[str], config_dir: Path | None) -> Iterator[str]:
    """Yield the overrides that may replace the word ``last`` after those that are ``given``.

    Options in the folder ``config_dir`` of the user's own YAMLs are offered too.
    """
    # Hydra's ``+`` adds and ``~`` deletes a key; the sign stays in front of every offer.
    sign = last[: len(last) - len(last.lstrip("+~"))]
    key, equals, value = last[len(sign) :].partition("=")
    folders = [conf_dir()] if config_dir is None else [conf_dir(), config_dir]
    if equals and (key in LISTED or any((folder / key).is_dir() for folder in folders)):
        head = value[: value.rfind(",") + 1]  # with -m there may be several options
        names = {name for folder in folders for name, _ in options(key, folder)}
        yield from sorted(f"{sign}{key}={head}{name}" for name in names)
    elif equals:
        # The default, which shows in what form the value is written.
        default = _keys(given, config_dir).get(key)
        if isinstance(default, (bool, int, float, str)) and not value:
            yield f"{last}{show(default)}"
    else:
        end = "" if sign == "~" else "="
        groups = [f"{name}{end}" for name in GROUPS]
        keys = [f"{name}{end}" for name in _keys(given, config_dir)]
        # One part of a key is offered at a time: clipper. and then alpha=
        level = len(key[: key.rfind(".") + 1])
        parts = (name[: name.find(".", level) + 1 or None] for name in groups + keys)
        yield from dict.fromkeys(f"{sign}{part}" for part in parts)
        if sign in ("", "+"):
            for group in ("experiment", "recipe"):
                yield from (f"+{group}={name}" for name, _ in options(group))
            yield "+figure="


def _keys(given: Sequence[str], config_dir: Path | None) -> dict[str, object]:
    """Return the keys and values of the configuration with the groups that the ``given`` words choose."""
    from omegaconf.errors import OmegaConfBaseException

    from fedpriv.common.config import as_tree, compose, flatten

    choices = [
        w for w in given if w.partition("=")[0].lstrip("+") in (*GROUPS, "experiment", "recipe")
    ]
    try:
        # Without words such as ``clipper=flat,quantile``, which are no single configuration. Plain values
        # change no key.
        tree = as_tree(compose([c for c in choices if "," not in c], config_dir))
    except (FedprivError, OmegaConfBaseException):
        # A word that is wrong or unfinished: the keys of the default configuration are better than none.
        tree = as_tree(compose())
    return {
        key: value for key, value in flatten(tree).items() if not key.endswith((TARGET, OPTION))
    }
