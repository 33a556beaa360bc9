"""One sentence for every wrong input: what was wrong; what would be right."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """The input was wrong. `str()` is the sentence that the command line prints after `error: ` (exit code 2)."""


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant, or None if nothing is close."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return close[0] if close else None


def unknown(kind: str, name: str, names: Iterable[str], see: str) -> InputError:
    """The error for a name that is not in a table, with the nearest one that is.

    >>> str(unknown("method", "mdml", ["mdlm", "md4"], "zellige list methods"))
    "unknown method 'mdml'; did you mean 'mdlm'? (all: zellige list methods)"
    """
    near = nearest(name, names)
    hint = f"did you mean '{near}'? (all: {see})" if near else f"all of them: {see}"
    return InputError(f"unknown {kind} '{name}'; {hint}")


def at_least(option: str, value: float, least: int) -> None:
    """InputError where the value of an option is below the least that it may be.

    >>> at_least("--steps", 0, 1)
    Traceback (most recent call last):
    zellige.errors.InputError: --steps is 0; it must be 1 or more
    """
    if value < least:
        said = f"{value:g}" if isinstance(value, float) else value
        raise InputError(f"{option} is {said}; it must be {least} or more")
