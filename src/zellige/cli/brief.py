"""The short help of a command: 24 lines of 80 columns, made of its dataclass. `--help-all` prints every option."""

import dataclasses
import inspect
import re
import textwrap
import typing
from typing import Any

from ..requests import option_of
from .flags import Flag, flags, named_fields

LINES, COLUMNS = 24, 80
# the options' dataclass: what is typed after the command, and those that most people need (all of them where none is named)
SHOWN: dict[str, tuple[str, str]] = {
    "Options": ("[options]", "size config data.path data.name net.layers net.hidden net.length train.steps epochs "
                "train.batch train.lr run resume overwrite recipe"),
    "Compare": ("METHOD METHOD ... [options]", "data.path data.name net.layers net.hidden net.length train.steps train.batch "
                "train.lr run calls samples draws limit"),
    "SweepOptions": ("METHOD --train.lr 1e-3,2e-3 [options]", "run trials search size config data.path data.name "
                     "net.layers net.hidden net.length train.steps epochs train.batch train.lr train.seed"),
    "PlanOptions": ("RECIPE or METHOD [options]", "gpus device mfu price vocabulary size config net.layers net.hidden "
                    "net.length net.checkpoint train.steps train.batch train.accumulate train.precision"),
    "EvaluateOptions": ("RUN [options]", "data.path data.name split draws limit seed estimator from device"),
    "GenerateOptions": ("RUN --generate [options]", "judge count steps sampler temperature top-p length frontier calls samplers "
                 "samples reference features mauve data.path out seed"),
    "SuiteOptions": ("RUN --suite zero-shot [options]", ""),
    "StepsOptions": ("RUN --steps 32 128 continuous [options]", "steps data.path data.name split draws limit seed processes "
                     "device"),
    "PairsOptions": ("RUN --pairs FILE.jsonl [options]", ""),
    "ProbeOptions": ("RUN --probe ag_news [options]", ""),
    "BracketOptions": ("RUN --bracket [options]", "limit numbers orders per-step steps own data.path data.name split seed "
                       "device"),
    "TrainFeatures": ("--train-features FOLDER [options]", "data.name data.path epochs seed device"),
    "SampleOptions": ("RUN [options]", "prompt count steps sampler length temperature top-p top-k class seed watch out "
               "block-sampler grid order confidence remasking device"),
    "InfillOptions": ('RUN "a text with ____" [options]', "count steps sampler temperature top-p class seed watch mark "
               "mask-token example keep data.path out order confidence device"),
    "Verify": ("[METHOD ...]", ""),
    "Report": ("RUN [--out FILE]", ""),
    "Play": ("RUN [RUN ...] [options]", ""),
    "Serve": ("RUN [options]", ""),
    "List": ("models|methods|samplers|data|checkpoints|recipes", ""),
    "Import": ("SOURCE --out FOLDER [options]", ""),
    "Export": ("MODEL --to LAYOUT --out FOLDER", ""),
    "Demo": ("[options]", ""),
    "Doctor": ("[--json FILE]", ""),
    "Shell": ("bash|zsh|fish", ""),
}  # fmt: skip
_VALUES = {  # what an option takes that has no default, where it is no name
    "--data.path": "PATH", "--data.cache": "FOLDER", "--run": "FOLDER", "--out": "PATH", "--config": "FILE", "--prompt": "TEXT",
    "--from": "FILE", "--samples": "FILE", "--pairs": "FILE", "--method": "FILE", "--token": "TEXT",
}  # fmt: skip
OWN = 4  # of a method's own options that `train METHOD` shows


def short_help(cls: type, where: str, default: Any = None, about: str = "") -> str:
    """The short help of the command `where`, whose options are `cls`."""
    known = flags(cls, default)
    usage, words = SHOWN.get(cls.__name__, ("[options]", ""))
    helps = descriptions(cls)
    shown = [known[f"--{name}"] for name in words.split() if f"--{name}" in known] or [*known.values()]
    if cls.__name__ == "Options":  # a method's own first
        shown = [flag for flag in known.values() if flag.owner is _own(cls)][:OWN] + shown
    shown = [flag for flag in shown if not flag.idle]
    idle = sum(flag.idle for flag in known.values())
    heads = [_head(flag) for flag in shown]
    wide = max(map(len, heads), default=0) + 2
    command, _, name = where.partition(" ")
    if name:
        usage = usage.removeprefix("RECIPE or ").removeprefix("METHOD ")
    title, _, rest = about.partition("\n")
    lines = [
        f"usage: zellige {command}{f' {name}' * (name[:2] not in ('', '--'))} {usage}",
        *([title] if title else []),
        "",
    ]
    for flag, head in zip(shown, heads):
        on = "turn off: " * (flag.switch and flag.default)
        said, *more = summary(on + helps.get(flag.name, ""), COLUMNS - wide - 2) or [""]
        lines += [f"  {head:<{wide}}{said}".rstrip(), *(" " * (wide + 2) + line for line in more)]
    lines += [""] * bool(shown) + [*rest.splitlines(), ""] * bool(rest)
    full = f"all {len(known)} options, in full: --help-all" if len(known) > len(shown) + idle else "in full: --help-all"
    return "\n".join([*lines, full])


def descriptions(cls: type, prefix: str = "") -> dict[str, str]:
    """What is said of each option where its field is declared."""
    texts: dict[str, str] = {}
    documented = {
        each.arg_name: each.description or ""
        for base in reversed(cls.__mro__)
        if dataclasses.is_dataclass(base)
        for each in _documented(base)
    }
    for field, name, hint in named_fields(cls):
        if name is not None and dataclasses.is_dataclass(hint):
            texts |= descriptions(hint, f"{prefix}{name}." if name else prefix)  # pyright: ignore[reportArgumentType]
        elif name is not None:
            marks = typing.get_args(typing.get_type_hints(cls, include_extras=True)[field.name])[1:]
            option = option_of(field)
            said_here = option.help if option else next((m.help for m in marks if getattr(m, "help", None)), None)
            flag = "--" + prefix + name.replace("_", "-")
            texts[flag] = " ".join((said_here or documented.get(field.name, "")).split())
    return texts


def _documented(cls: type) -> list[Any]:
    """The fields that a class describes, in its docstring or below each of them."""
    import docstring_parser  # a command that asks for no help does not need it

    try:
        inspect.getsource(cls)
    except (OSError, TypeError):  # made, not written
        return []
    return list(docstring_parser.parse_from_object(cls).params)


def _own(cls: type) -> type:
    """The dataclass of a method's own options."""
    return next((hint for field, _, hint in named_fields(cls) if field.name == "options"), cls)


def _head(flag: Flag) -> str:
    """An option with its default, or with what it takes."""
    if flag.switch:
        return flag.off if flag.default else flag.name
    value = flag.default
    if isinstance(value, (tuple, list)):
        value = " ".join(map(str, value))
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if value is None or text == "":
        text = "N" if "int" in str(flag.kind) else "X" if "float" in str(flag.kind) else _VALUES.get(flag.name, "NAME")
    return f"{flag.name} {text}"


def summary(text: str, width: int) -> list[str]:
    """A description as lines of this width: all of it if that is one line, else the clauses that fit, or the first one wrapped.

    A clause ends at a semicolon, at the end of a sentence or before its last parenthesis.

    >>> summary("samples per text; more are slower", 20)
    ['samples per text']
    >>> summary("the number of samples per text", 20)
    ['the number of', 'samples per text']
    """
    text = text.removesuffix(".")
    ends = [end.start() for end in re.finditer(r"; |\. (?=[A-Z])| \([^()]*\)(?=; |$)|$", text)]
    clauses = [text[:end] for end in ends if text[:end].count("(") == text[:end].count(")")]
    fitting = [clause for clause in clauses if len(clause) <= width]
    return textwrap.wrap(fitting[-1] if fitting else clauses[0], width, break_on_hyphens=False)
