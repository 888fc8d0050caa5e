"""The ``fedpriv`` command, also as ``python -m fedpriv``."""

import sys


def main() -> None:
    """Entry point of the console script. It imports the command where Ctrl-C is a sentence already."""
    try:
        from fedpriv.cli import main as command
    except KeyboardInterrupt:
        print("fedpriv: interrupted", file=sys.stderr)
        sys.exit(130)
    command()


if __name__ == "__main__":
    main()
