"""Which methods can be trained and evaluated with a given part (`data.given`)."""

from ..base.errors import InputError
from ..data.given import Given
from ..methods.method import Method


def refuse_given(method: Method, word: str) -> None:
    """Raise InputError if a method cannot leave this part of a text out of its noise and its count."""
    given, name = Given.of(word), method.name
    if method.parameterization == "insertion" and not given.left_to_right:
        raise InputError(
            f"{name} takes the beginning of each text as given, here; use `data.given` prefix:32 or field, or its "
            "option `spans`"
        )
    if method.process is None and not method.block and method.parameterization != "insertion":
        raise InputError(f"{name} noises no text, so no part of one can be given; leave `data.given` out")
    if 0 < method.block < method.window and not given.left_to_right:
        raise InputError(
            f"{name} writes left to right and ignores what is to the right of a position; use `data.given` prefix:32 "
            "or field, or a method that reads the whole text, such as mdlm"
        )


def needs_sight(method: Method) -> bool:
    """Return whether its network must see which positions are given: noise without a mask looks like a given token."""
    return method.process is not None and not method.process.hides
