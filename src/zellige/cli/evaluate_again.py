"""`zellige evaluate --from result.json`: does what a result says was done, and says whether its number holds."""

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import InputError
from ..show.numbers import counted, path
from ..show.terminal import Terminal
from . import options, typed
from .common import Document, refuse_unasked

Judge = Callable[..., Document | None]


def words_again(document: Document, source: str, classes: dict[str, type], now: Sequence[str] = ()) -> list[str]:
    """The command line that made a result, after `zellige evaluate`; options that are typed `now` outrank its own."""
    arguments = document.get("arguments")
    if not isinstance(arguments, dict) or not (arguments.get("run") or arguments.get("samples")):
        raise InputError(f"'{source}' does not say how it was made; evaluate the run itself")
    mode = next((flag for flag in classes if flag and _is_mode(flag, arguments)), "")
    cls, flag = classes[mode], [mode] if mode == "--generate" else []
    known = options.flags(cls)
    now_typed = {word.replace("_", "-") for word in options.given(now)}
    now_typed |= {one.name for one in known.values() if {one.off, f"--no-{one.name[2:]}"} & now_typed}
    try:
        if any(name.startswith("--data.") for name in now_typed):
            arguments = arguments | {"data": None}
        if options.check(known, [word for word in now if word not in flag], "evaluate"):
            arguments = arguments | {"run": None}
        return [*flag, *typed.words_of(cls, arguments, now_typed)]
    except (AttributeError, TypeError) as wrong:
        raise InputError(f"'{source}' does not say how it was made; evaluate the run itself") from wrong


def _is_mode(flag: str, arguments: dict[str, Any]) -> bool:
    return arguments.get("mode") == "generate" if flag == "--generate" else flag.removeprefix("--") in arguments


def again(
    words: Sequence[str], terminal: Terminal, began: float, judge: Judge, classes: dict[str, type]
) -> Document | None:
    """Judge anew, and say of each number whether it holds; what is returned has "held": {number: in what sense}."""
    from ..evaluation.repeat import changes, figures
    from ..evaluation.result import read_result

    source, words = typed.take(words, "--from", "evaluate")
    assert source is not None
    before = read_result(source)
    numbers = figures(before, source)
    made = words_again(before, source, classes, words)
    refuse_unasked(made, f"'{source}'")
    document = judge([*words, *made], terminal, began, write=False)
    if document is None:
        return None
    now = {one.name: one for one in figures(document)}
    senses = {one.name: one.holds(now[one.name]) if one.name in now else "" for one in numbers}
    for change in changes(before, document):
        terminal.note(f"{change}")
    wrong = [one for one in numbers if not senses[one.name]]
    if not wrong:
        weakest = next(s for s in ("within its interval", "up to rounding", "bit for bit") if s in senses.values())
        what = "the same number" if len(numbers) <= 2 and weakest == "bit for bit" else counted(len(numbers), "number")
        terminal.result(f"  holds     {path(source)}: {what}, {weakest}")
    for one in wrong:
        other = now.get(one.name)
        became = "is not there" if other is None else f"is {other.value:.6g}"
        if other is not None and one.law not in (None, other.law):
            became += f"; it was of {one.law}, is of {other.law or 'no law'}"
        terminal.result(f"  does not hold  {one.name} was {one.value:.6g} ± {one.half:.2g}, {became}")
    return document | {"held": senses}
