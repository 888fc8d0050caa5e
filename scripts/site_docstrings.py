"""Extension of Griffe for mkdocs.yml: docstrings as the site's reference page shows them.

The code is written for readers of the code; two of its habits are no Markdown. ``Example:`` is a section that
Griffe calls ``Examples:``, and would otherwise read as text, and ``:meth:`name``` is a role of Sphinx.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_SECTION = re.compile(r"^Example:$", re.MULTILINE)
_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`~?([^`]+)`")


def as_markdown(docstring: str) -> str:
    """Return a docstring with its examples as a section of Griffe and its names as code.

    >>> as_markdown("See :meth:`run`.")
    'See `run`.'
    """
    return _ROLE.sub(r"`\1`", _SECTION.sub("Examples:", docstring))


class SiteDocstrings(Extension):
    """Rewrites every docstring before it is parsed."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of an object that was loaded."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
