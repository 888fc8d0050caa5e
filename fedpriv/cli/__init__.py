"""The ``fedpriv`` command: parse, call, and turn known errors into one sentence.

Begin with ``commands``: one click command for each thing that fedpriv does, and the exit statuses. The flags
of ``figure``, ``audit``, ``runs``, ``account`` and others are beside their code, in modules that end with
``flags`` or ``command``. What all commands share is in ``common/flags``. ``completion`` offers what may come
next on the command line. ``listing`` prints the tables of ``fedpriv list`` and ``fedpriv data``.
"""

from fedpriv.cli.commands import (
    complete,
    data,
    download,
    fedpriv,
    list_,
    main,
    run,
    train,
    verify,
)

__all__ = [
    "complete",
    "data",
    "download",
    "fedpriv",
    "list_",
    "main",
    "run",
    "train",
    "verify",
]
