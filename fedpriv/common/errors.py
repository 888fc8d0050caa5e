"""The errors that a user may see: each is one plain sentence, with the exit status of the command.

An exception that is no :class:`FedprivError` is a defect of fedpriv, and the command shows its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType


class FedprivError(Exception):
    """A failure while running, described in one sentence.

    Attributes:
        exit_status: The exit status of a command that fails by it.

    Example:
        >>> import fedpriv
        >>> try:
        ...     fedpriv.compose(["algorithm=nothing"])
        ... except fedpriv.FedprivError as error:
        ...     print(str(error)[:32])
        unknown algorithm option nothing
    """

    exit_status = 1


class ConfigError(FedprivError):
    """A configuration that cannot run; raised before the first round.

    Args:
        key: The configuration key; without ``allowed`` the whole sentence.
        value: The refused value.
        allowed: The values that are allowed.
        hint: A remedy, appended to the sentence.

    Attributes:
        mistakes: The mistakes of an error that tells several; empty for any other error. See :func:`all_of`.
        blamed: Words of the command line that are wrong → the words that were probably meant, or None.

    Example:
        >>> print(ConfigError("clipper.clip_norm", -1, "> 0"))
        clipper.clip_norm must be > 0, got -1
    """

    exit_status = 2
    mistakes: tuple[ConfigError, ...] = ()
    blamed: Mapping[str, str | None] = MappingProxyType({})

    def __init__(self, key: str, value: object = None, allowed: str = "", hint: str = ""):
        self.key, self.value, self.allowed, self.hint = key, value, allowed, hint
        sentence = f"{key} must be {allowed}, got {_got(value)}" if allowed else key
        super().__init__(f"{sentence}; {hint}" if hint else sentence)


def all_of(errors: Sequence[ConfigError]) -> ConfigError:
    """Return several mistakes of one configuration as one error, with a line for each of them.

    Args:
        errors: The mistakes, at least one. The error of a single mistake is returned as it is.

    Example:
        >>> print(all_of([ConfigError("seed", -1, ">= 0"), ConfigError("rounds", 0, ">= 1")]))
        2 mistakes:
          seed must be >= 0, got -1
          rounds must be >= 1, got 0
    """
    lines = list(dict.fromkeys(str(error) for error in errors))
    if len(lines) == 1:
        return errors[0]
    together = ConfigError("\n  ".join((f"{len(lines)} mistakes:", *lines)))
    together.mistakes = tuple(errors)
    return together


class ArgumentError(ValueError):
    """A constructor argument that is not allowed.

    The part does not know its configuration group. The builder does, and makes a ConfigError with the full
    key by :meth:`within`.

    Args:
        argument: Name of the argument.
        value: The refused value.
        allowed: The values that are allowed.
        hint: A remedy.

    Example:
        >>> error = ArgumentError("clip_norm", -1, "> 0")
        >>> print(error.within("clipper"))
        clipper.clip_norm must be > 0, got -1
    """

    def __init__(self, argument: str, value: object, allowed: str, hint: str = ""):
        self.argument, self.value, self.allowed, self.hint = argument, value, allowed, hint
        super().__init__(f"{argument} must be {allowed}, got {_got(value)}")

    def within(self, group: str) -> ConfigError:
        """Return this error as one of the configuration key ``group.argument``."""
        key = f"{group}.{self.argument}" if group else self.argument
        return ConfigError(key, self.value, self.allowed, self.hint)


class WriteError(FedprivError):
    """A file that could not be written, for example on a full disk or in a read-only folder."""

    def __init__(self, path: object, error: OSError):
        super().__init__(f"{path} cannot be written: {error.strerror or error}")


class WorkerError(FedprivError):
    """A process that shared the computation of a run is gone, or does not answer."""


class ReleaseError(FedprivError):
    """A value that would leave a client or the server without being announced, noised and charged."""


class DataError(FedprivError):
    """Data that is absent, unreadable or does not match its checksum; raised before the first round.

    Example:
        >>> print(DataError("cannot read table.csv: Permission denied"))
        cannot read table.csv: Permission denied
    """

    exit_status = 2


class Interrupted(FedprivError):
    """A run that was stopped by a signal; its checkpoint is in the run folder."""

    exit_status = 130


def _got(value: object) -> str:
    """Return a refused value for a message; an empty text reads ``nothing``."""
    return show(value) if show(value).strip() else "nothing"


def show(value: object) -> str:
    """Return a value as a user would type it, cut to 80 characters in one line.

    >>> show(None), show(True), show(0.5)
    ('null', 'true', '0.5')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value).replace("\n", " ")
    return text if len(text) <= 80 else text[:77] + "..."


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Return the known name closest to ``name``; None if no known name is close.

    Args:
        name: The name that was typed.
        known: The names that exist.
        cutoff: Smallest similarity from 0 to 1, as in :func:`difflib.get_close_matches`.
    """
    known = list(known)
    plain = {candidate: _plain(candidate) for candidate in reversed(known)}
    by_plain = {text: candidate for candidate, text in plain.items()}
    if _plain(name) in by_plain:
        return by_plain[_plain(name)]
    match = difflib.get_close_matches(name, known, n=1, cutoff=max(cutoff, 0.85))
    last_part = [candidate for candidate in known if candidate.endswith((f"/{name}", f"_{name}"))]
    if last_part and name and not match:
        return last_part[0]
    match = match or difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    if match:
        return match[0]
    match = difflib.get_close_matches(_plain(name), by_plain, n=1, cutoff=cutoff)
    if match:
        return by_plain[match[0]]
    prefixed = [
        candidate for candidate in known if candidate.startswith(name) or name.startswith(candidate)
    ]
    return prefixed[0] if prefixed and name else None


def nearest_key(name: str, keys: Iterable[str]) -> str | None:
    """Return the dotted key closest to ``name``; None if no key is close.

    The whole key is compared, its last part, and as many words of the last part as ``name`` has.

    Example:
        >>> nearest_key("lerning", ["averaging", "algorithm.learning_rate"])
        'algorithm.learning_rate'
    """
    keys = list(keys)
    ends = {key.rpartition(".")[2]: key for key in reversed(keys)}
    words = name.count("_") + 1
    starts = {"_".join(end.split("_")[:words]): key for end, key in ends.items()}
    by_text = starts | ends | {key: key for key in keys}
    match = difflib.get_close_matches(_plain(name), by_text, n=1, cutoff=0.8)
    return by_text[match[0]] if match else nearest(name, keys)


def _plain(name: str) -> str:
    """Return a name without differences of case, and of hyphens, blanks and underscores."""
    return name.lower().replace("-", "_").replace(" ", "_")


def did_you_mean(name: object, known: Iterable[object], start: str = "") -> str:
    """Return ``start`` and a hint at the known name closest to ``name``; empty if none is close."""
    near = nearest(str(name), map(str, known))
    return f"{start}did you mean {near}?" if near else ""


def unreadable_override(override: str) -> ConfigError:
    """Return the error for an override that Hydra cannot parse."""
    error = ConfigError(
        f"cannot read the override {show(override)}; write key=value, and quote values with special "
        "characters: 'key=\"a, b\"'"
    )
    error.blamed = {override: None}
    return error
