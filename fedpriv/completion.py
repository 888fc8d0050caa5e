"""Shell completion for ``fedpriv`` and for the overrides after ``fedpriv train``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fedpriv.accounting import flags as accounting
from fedpriv.audit import flags as audit
from fedpriv.audit.request import KINDS
from fedpriv.config import conf_dir, options

_BASH = """\
_fedpriv() {
    local line="${COMP_LINE:0:$COMP_POINT}" word
    word="${line##* }"
    local choices
    choices=$(COMP_LINE="$line" fedpriv _complete 2>/dev/null)
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
    # bash splits words at '=': leave out what it has already
    case "$COMP_WORDBREAKS" in *=*)
        local cut="${word%"${word##*=}"}" choice kept
        kept=()
        for choice in "${COMPREPLY[@]}"; do kept+=("${choice#"$cut"}"); done
        COMPREPLY=("${kept[@]}");;
    esac
    return 0
}
complete -o nospace -o default -F _fedpriv fedpriv
"""
_ZSH = (
    "(( $+functions[compdef] )) || { autoload -U compinit && compinit }\n"
    "autoload -U +X bashcompinit && bashcompinit\n"
) + _BASH
_FISH = """\
function __fedpriv_complete
    env COMP_LINE=(commandline -cp) fedpriv _complete 2>/dev/null
end
complete -c fedpriv -f -a '(__fedpriv_complete)'
"""


def script(shell: str) -> str:
    """The completion script of a shell, to be evaluated."""
    return {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}[shell]


def candidates(
    line: str, commands: Iterable[str], flags: Callable[[str], Iterable[str]]
) -> list[str]:
    """What may stand in place of the last word of a command line that begins with ``fedpriv``.

    ``flags``: the flags of a command.
    """
    from fedpriv.listing import LISTED

    words = line.split()[1:]
    if line.endswith(" ") or not words:
        words.append("")
    command, last = words[0], words[-1]
    if len(words) == 1:
        return [f"{name} " for name in commands if name.startswith(last)]
    if command == "train":
        return _overrides(words[1:])
    choices: tuple[str, ...] = {
        "list": LISTED,
        "data": (
            ("download",) if len(words) == 2 else ("mnist", "fashion_mnist", "cifar10", "adult")
        ),
        "audit": KINDS if len(words) == 2 else (),
        "completion": ("bash", "zsh", "fish"),
        "figure": tuple(name for name, _ in options("figure")),
    }.get(command, ())
    values = accounting.VALUES | audit.VALUES
    if len(words) > 2 and words[-2] in values:
        choices = values[words[-2]]
    elif last.startswith("-") or (not choices and command in ("account", "calibrate", "bench")):
        choices = tuple(flags(command))
    return [choice for choice in choices if choice.startswith(last)]


def _overrides(words: list[str]) -> list[str]:
    """Hydra's own candidates, and the ready-made experiments."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.utils import create_config_search_path
    from hydra.plugins.completion_plugin import DefaultCompletionPlugin

    loader = ConfigLoaderImpl(create_config_search_path(str(conf_dir())))
    plugin = DefaultCompletionPlugin(loader)
    found = plugin._query(config_name="config", line=" ".join(words))
    last = words[-1]
    if last.startswith("+") or not last:
        presets = [f"+experiment={name}" for name, _ in options("experiment")]
        found += [preset for preset in presets if preset.startswith(last) and preset not in found]
    return [f for f in found if not f.startswith("hydra")] if not last.startswith("h") else found
