"""`python -m zellige`, and what the command `zellige` runs."""

import sys

from .cli import main as _main
from .waiting import settle_waiting


def main() -> None:
    """The command `zellige`."""
    settle_waiting()
    sys.exit(_main())


if __name__ == "__main__":
    main()
