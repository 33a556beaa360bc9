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
                "train.batch train.rate run resume overwrite recipe"),
    "Compare": ("METHOD METHOD ... [options]", "data.path data.name net.layers net.hidden net.length train.steps train.batch "
                "train.rate run calls samples draws limit"),
    "SweepOptions": ("METHOD --train.rate 1e-3,2e-3 [options]", "run trials search size config data.path data.name "
                     "net.layers net.hidden net.length train.steps epochs train.batch train.rate train.seed"),
    "PlanOptions": ("RECIPE or METHOD [options]", "gpus device mfu price vocabulary size config net.layers net.hidden "
                    "net.length net.checkpoint train.steps train.batch train.accumulate train.precision"),
    "EvaluateOptions": ("RUN [options]", "data.path data.name split draws limit seed estimator unconditional from show audit "
                        "batch processes device"),
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
    "List": ("methods|samplers|data|checkpoints|recipes", ""),
    "Import": ("SOURCE --out FOLDER [options]", ""),
    "Export": ("MODEL --to LAYOUT --out FOLDER", ""),
    "Demo": ("[options]", ""),
    "Doctor": ("[--json FILE]", ""),
    "Shell": ("bash|zsh|fish", ""),
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
    lines = [
        textwrap.shorten(f"usage: zellige {where.partition(' --')[0]} {usage}", COLUMNS),
        *([textwrap.shorten(about.partition("\n")[0], COLUMNS)] if about else []),
        "",
        *(f"  {head:<{wide}}{_clause(helps.get(flag.name, ''), COLUMNS - wide - 2)}" for head, flag in zip(heads, shown)),
        "",
    ]  # fmt: skip
    more = len(known) > len(shown) + idle
    full = f"all {len(known)} options, in full: --help-all" if more else "in full: --help-all"
    return "\n".join([*(line.rstrip() for line in lines if line or shown), full])


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
        text = "N" if "int" in str(flag.kind) else "X" if "float" in str(flag.kind) else "..."
    return f"{flag.name} {text}"


def _clause(text: str, most: int) -> str:
    """A description, or as many of its clauses as fit."""
    if len(text) <= most:
        return text.rstrip(".")
    cut = textwrap.shorten(text, most, placeholder="")
    ends = [m.start() for m in re.finditer(r"[;.,] | \(", text[: len(cut) + 2]) if m.start() > most / 3]
    ends = [end for end in ends if text[:end].count("(") == text[:end].count(")")]
    best = max(
        (end for end in ends if text[end] != ","), default=0
    )  # a clause that is whole comes before a list that is not
    best = best or max((end for end in ends if end <= most - 4), default=0)
    if not best:
        return textwrap.shorten(text, most, placeholder=" ...")
    return text[:best] + (" ..." if text[best] == "," else "")
