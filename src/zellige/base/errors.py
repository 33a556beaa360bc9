"""One sentence for every wrong input: what was wrong; what would be right."""

import difflib
import re
from collections.abc import Iterable

_LONG = re.compile(r"\S{200,}")


class InputError(ValueError):
    """The input was wrong. `str()` is the sentence that the command line prints after `error: ` (exit code 2).

    It is one line, and a value of thousands of characters in it is cut to its ends. An argument or a field stands in backquotes,
    as Python spells it: `steps`, `net.length`, `checksums=False`. The command line prints its options there (`cli/options.py`).
    """

    def __init__(self, sentence: str):
        line = (
            sentence.replace("\n", "\\n").encode("utf-8", "backslashreplace").decode()
        )  # half a character as `\\ud800`
        super().__init__(_LONG.sub(lambda word: f"{word[0][:60]}...{word[0][-20:]}", line))


SYNONYMS = {  # what other libraries call an argument: what it is called here
    "n": "count", "num_samples": "count", "n_samples": "count", "num_return_sequences": "count",
    "lr": "rate", "rate": "lr", "learning_rate": "lr", "batch_size": "batch", "max_length": "length", "seq_len": "length",
    "max_new_tokens": "length", "num_inference_steps": "steps", "random_state": "seed",
    "torch_dtype": "precision", "dtype": "precision", "device_map": "device",
    "epochs": "steps", "max_steps": "steps", "num_steps": "steps", "iterations": "steps",
    "num_layers": "layers", "n_layers": "layers", "hidden_size": "hidden", "num_heads": "heads", "n_heads": "heads",
    "dataset": "data", "model_name": "model", "config": "options", "output": "out",
}  # fmt: skip


def meant(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant: by its meaning, or else by its letters.

    >>> meant("num_samples", ["count", "seed"]), meant("sede", ["count", "seed"])
    ('count', 'seed')
    """
    names = list(names)
    synonym = SYNONYMS.get(name, name)
    return next((candidate for candidate in (synonym, SYNONYMS.get(synonym)) if candidate in names), None) or nearest(
        name, names
    )


def quoted(text: str) -> str:
    """A text in quotation marks, cut where it is long: `'the value of ...'`"""
    return f"'{text if len(text) <= 60 else text[:57] + '...'}'"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant, or None if nothing is close."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return close[0] if close else None


def unknown(kind: str, name: str, names: Iterable[str], see: str = "") -> InputError:
    """The error for a name that is not in a table, with the nearest one that is; `see` shows all, or they stand there.

    >>> str(unknown("method", "mdml", ["mdlm", "md4"], "zellige list methods"))
    "unknown method 'mdml'; did you mean 'mdlm'? (all: zellige list methods)"
    """
    near = nearest(name, names)
    see = see or ", ".join(names)
    hint = f"did you mean '{near}'? (all: {see})" if near else f"all of them: {see}"
    return InputError(f"unknown {kind} '{name}'; {hint}")


def not_installed(what: str, package: str, extra: str, otherwise: str = "") -> InputError:
    """The error for a package that comes with an extra of Zellige's and is not there, with what to type.

    >>> str(not_installed("`out` x.mid", "mido", "music"))
    "`out` x.mid needs 'mido'; pip install 'zellige[music]'"
    """
    return InputError(f"{what} needs '{package}'; pip install 'zellige[{extra}]'{otherwise}")


def at_least(name: str, value: float, least: int) -> None:
    """InputError where the value of an argument or a field is below the least that it may be.

    >>> at_least("steps", 0, 1)
    Traceback (most recent call last):
    zellige.base.errors.InputError: `steps` is 0; it must be 1 or more
    """
    if value < least:
        text = f"{value:g}" if isinstance(value, float) else value
        raise InputError(f"`{name}` is {text}; it must be {least} or more")


def between(name: str, value: float, least: int, most: int) -> None:
    """InputError where the value of an argument or a field is not between the least and the most that it may be.

    >>> between("corrector", 10**9, 0, 1000)
    Traceback (most recent call last):
    zellige.base.errors.InputError: `corrector` is 1,000,000,000; it must be 1,000 or less
    """
    at_least(name, value, least)
    if value > most:
        raise InputError(f"`{name}` is {value:,}; it must be {most:,} or less")


def check_counts(**counts: int) -> None:
    """Each of these must be 1 or more."""
    for name, value in counts.items():
        at_least(name, value, 1)


class Diverged(RuntimeError):
    """The loss or the gradient is not finite. `str()` says at which step, what is safe, and the likely causes."""
