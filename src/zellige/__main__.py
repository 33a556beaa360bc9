"""`python -m zellige`, and what the command `zellige` runs."""

import gc
import signal
import sys

from .base.processes import settle_waiting
from .cli import main as _main


def main() -> None:
    """The command `zellige`."""
    settle_waiting()
    gc.set_threshold(10_000)  # a fifth of the time of imports would be the search for cycles among what they make
    code = _main()
    gc.freeze()  # nor is it searched for when all ends
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to interrupt, and Python would print where it was
    sys.exit(code)


if __name__ == "__main__":
    main()
