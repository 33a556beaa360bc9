"""`python -m zellige`, and what the command `zellige` runs."""

import sys

from .cli import main as _main


def main() -> None:
    """The command `zellige`."""
    sys.exit(_main())


if __name__ == "__main__":
    main()
