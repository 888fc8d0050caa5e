"""``python -m fedpriv`` is the ``fedpriv`` command."""

from fedpriv.cli import main

main()
