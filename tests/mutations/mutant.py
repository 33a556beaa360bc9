"""One planted error."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """What is wrong; the file, what stands there and what takes its place; verify's check, or why there is none, and tests.

    `outside` says why it is no error in the mathematics, though its file is.
    """

    what: str
    file: str
    old: str
    new: str
    check: str = ""
    why: str = ""
    tests: str = ""
    outside: str = ""
