"""The errors a user may see: one plain sentence each, with the exit status the command ends with.

Anything that is not a :class:`FedprivError` is a defect of fedpriv and shows its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedprivError(Exception):
    """A failure while running, told in one sentence."""

    exit_status = 1


class ConfigError(FedprivError):
    """A configuration that cannot run; raised before the first round.

    ``ConfigError("clipper.clip_norm", -1, "> 0")`` reads
    ``clipper.clip_norm must be > 0, got -1``.
    """

    exit_status = 2

    def __init__(self, key: str, value: object = None, allowed: str = "", hint: str = ""):
        self.key, self.value, self.allowed, self.hint = key, value, allowed, hint
        sentence = f"{key} must be {allowed}, got {_got(value)}" if allowed else key
        super().__init__(f"{sentence}; {hint}" if hint else sentence)


class ArgumentError(ValueError):
    """A constructor argument that is not allowed; the caller that knows the group names the key."""

    def __init__(self, argument: str, value: object, allowed: str, hint: str = ""):
        self.argument, self.value, self.allowed, self.hint = argument, value, allowed, hint
        super().__init__(f"{argument} must be {allowed}, got {_got(value)}")

    def within(self, group: str) -> ConfigError:
        """This error as one of the config key ``group.argument``."""
        key = f"{group}.{self.argument}" if group else self.argument
        return ConfigError(key, self.value, self.allowed, self.hint)


class WriteError(FedprivError):
    """A file that could not be written: a full disk, a closed folder."""

    def __init__(self, path: object, error: OSError):
        super().__init__(f"{path} cannot be written: {error.strerror or error}")


class ReleaseError(FedprivError):
    """Something would leave a client or the server that was not announced, noised and charged."""


class DataError(FedprivError):
    """Data that is absent, unreadable or not what its checksum says; found before the first round."""

    exit_status = 2


class Interrupted(FedprivError):
    """The run was stopped by a signal; its checkpoint is in the run folder."""

    exit_status = 130


def _got(value: object) -> str:
    """Return a refused value; an empty text is named."""
    return show(value) if show(value).strip() else "nothing"


def show(value: object) -> str:
    """A value as a user would type it, cut to a line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value).replace("\n", " ")
    return text if len(text) <= 80 else text[:77] + "..."


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """The known name closest to ``name``, if one is close enough to be meant."""
    known = list(known)
    match = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    if match:
        return match[0]
    prefixed = [k for k in known if k.startswith(name) or name.startswith(k)]
    return prefixed[0] if prefixed and name else None


def did_you_mean(name: object, known: Iterable[object], start: str = "") -> str:
    """Return a hint, after ``start``, at the known name closest to ``name``; empty if none is close."""
    near = nearest(str(name), map(str, known))
    return f"{start}did you mean {near}?" if near else ""
