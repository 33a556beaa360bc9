"""`python -m tessella`, and what the command `tessella` runs."""

import sys

from tessella.cli import main as _main


def main() -> None:
    """The command `tessella`."""
    sys.exit(_main())


if __name__ == "__main__":
    main()
