"""Joint queries as rows of a checkpoint.

A row is a plain form, which many joint queries share, and the floats in which they differ. A sampling or a
query is stored as its class and its fields, whose values are numbers and texts. Classes of the user's own are
found again by name, among the classes that the run's code defines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any

from fedpriv.common.errors import ConfigError, show
from fedpriv.privacy.core.sampling import Sampling
from fedpriv.privacy.mechanisms.joint import JointQuery
from fedpriv.privacy.mechanisms.query import Query

Form = tuple[Any, ...]


def joint_row(joint: JointQuery) -> tuple[Form, list[float]]:
    """Return the form and the floats of a joint query.

    Raises:
        ConfigError: A field is not plain, so a checkpoint cannot hold it.
    """
    sampling, *queries = (_part(part) for part in (joint.sampling, *joint.queries))
    form = (sampling[0], tuple(query[0] for query in queries))
    return form, [number for part in (sampling, *queries) for number in part[1]]


def joint_of(form: Form, floats: Iterator[float]) -> JointQuery:
    """Return the joint query that :func:`joint_row` was given.

    Args:
        form: Its form.
        floats: Its floats; exactly these are consumed.

    Raises:
        ConfigError: The run's code does not define a class of the form.
    """
    sampling, queries = form
    return JointQuery(
        _made(Sampling, sampling, floats), tuple(_made(Query, query, floats) for query in queries)
    )


def _part(part: object) -> tuple[Form, list[float]]:
    form: list[tuple[Any, ...]] = []
    floats: list[float] = []
    kind: Any = type(part)
    for name in _names(kind) or vars(part):
        value = getattr(part, name)
        if isinstance(value, Real) and not isinstance(value, Integral):
            form.append((name,))
            floats.append(float(value))
        else:
            form.append((name, _plain(part, name, value)))
    return (_name(kind), tuple(form)), floats


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


@cache
def _names(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass; none for another class."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def _plain(part: object, name: str, value: Any) -> Any:
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, Real) and not isinstance(value, bool):
        return float(value)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, tuple):
        return tuple(_plain(part, name, item) for item in value)
    raise ConfigError(
        f"{type(part).__name__}.{name} must be a number, a text or a tuple of them, because a checkpoint "
        f"holds nothing else, got {show(value)}"
    )


def _made(base: type, form: Form, floats: Iterator[float]) -> Any:
    name, fields_of_part = form
    kind = _known(base).get(name)
    if kind is None:
        raise ConfigError(
            f"resume: the checkpoint holds releases of {name}, which the code of this run does not define"
        )
    # Around the constructor, whose arguments need not be the attributes. A field without a value is a float.
    part: Any = object.__new__(kind)
    for field, *value in fields_of_part:
        object.__setattr__(part, field, value[0] if value else next(floats))
    return part


def _known(base: type) -> dict[str, type]:
    classes, pending = {}, [base]
    while pending:
        kind = pending.pop()
        classes[_name(kind)] = kind
        pending += kind.__subclasses__()
    return classes
