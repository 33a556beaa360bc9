"""`python -m zellige`, and what the command `zellige` runs."""

import signal
import sys

from .base.processes import settle_waiting
from .cli import main as _main


def main() -> None:
    """The command `zellige`."""
    settle_waiting()
    code = _main()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to interrupt, and Python would print where it was
    sys.exit(code)


if __name__ == "__main__":
    main()
