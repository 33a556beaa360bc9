"""One planted error."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """What is wrong; the file, what stands there and what takes its place; verify's check, or why there is none, and tests."""

    what: str
    file: str
    old: str
    new: str
    check: str = ""
    why: str = ""
    tests: str = ""
