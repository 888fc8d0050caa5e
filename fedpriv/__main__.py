"""The ``fedpriv`` command, also as ``python -m fedpriv``."""

import sys


def main() -> None:
    """Run the command. It is imported here, so that Ctrl-C during the import is one sentence already."""
    try:
        from fedpriv.cli import main as command
    except KeyboardInterrupt:
        print("fedpriv: interrupted", file=sys.stderr)
        sys.exit(130)
    command()


if __name__ == "__main__":
    main()
