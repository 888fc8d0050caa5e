"""The errors that a user may see: each is one plain sentence, with the exit status of the command.

An exception that is no :class:`FedprivError` is a defect of fedpriv, and the command shows its traceback.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


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

    Example:
        >>> print(ConfigError("clipper.clip_norm", -1, "> 0"))
        clipper.clip_norm must be > 0, got -1
    """

    exit_status = 2

    def __init__(self, key: str, value: object = None, allowed: str = "", hint: str = ""):
        self.key, self.value, self.allowed, self.hint = key, value, allowed, hint
        sentence = f"{key} must be {allowed}, got {_got(value)}" if allowed else key
        super().__init__(f"{sentence}; {hint}" if hint else sentence)


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


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name closest to ``name``, by the whole name or its last part; None if none is close.

    Differences of case, and of hyphens, blanks and underscores, do not count.

    Args:
        name: The name that was typed.
        known: The names that exist.
        cutoff: Smallest similarity from 0 to 1, as in :func:`difflib.get_close_matches`.

    Example:
        >>> nearest("lerning", ["averaging", "algorithm.learning_rate"])
        'algorithm.learning_rate'
    """
    typed, names = _plain(name), list(reversed(list(known)))
    by_text = {_plain(re.split(r"[./]", one)[-1]): one for one in names}
    by_text |= {_plain(one): one for one in names}
    match = (
        difflib.get_close_matches(typed, by_text, n=1, cutoff=0.85)
        or [text for text in reversed(by_text) if typed and text.startswith(typed)]
        or [text for text in reversed(by_text) if typed and text.endswith(f"_{typed}")]
        or difflib.get_close_matches(typed, by_text, n=1, cutoff=cutoff)
    )
    return by_text[match[0]] if match else None


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")


def did_you_mean(name: object, known: Iterable[object], start: str = "") -> str:
    """Return ``start`` and a hint at the known name closest to ``name``; empty if none is close."""
    near = nearest(str(name), map(str, known))
    return f"{start}did you mean {near}?" if near else ""
