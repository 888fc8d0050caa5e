"""One test over many cheap cases: every case that fails is named."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable


def for_each(
    argument: str, cases: Iterable[object] | Callable[[], Iterable[object]]
) -> Callable[[Callable], Callable]:
    """Call the decorated test with each of ``cases`` as its ``argument``; fail once, with all that failed.

    In the place of ``pytest.mark.parametrize`` where there are hundreds of cases that share nothing which a
    failure could spoil: a test of its own for each case costs more than the case. Cases that take long to
    find are a function, which is called when the test runs.
    """

    def decorate(test: Callable) -> Callable:
        @functools.wraps(test)
        def over_all(**fixtures: object) -> None:
            failures = []
            count = 0
            for case in cases() if callable(cases) else cases:
                count += 1
                try:
                    test(**{argument: case}, **fixtures)
                except Exception as error:
                    failures.append(f"{case}: {type(error).__name__}: {error}")
            assert count
            assert not failures, f"{len(failures)} of {count} failed\n" + "\n".join(failures)

        signature = inspect.signature(test)
        others = [p for name, p in signature.parameters.items() if name != argument]
        over_all.__signature__ = signature.replace(parameters=others)
        return over_all

    return decorate
