"""A frozen dataclass as options: what each field takes, whether a word will do for it, and the short help of a command."""

import dataclasses
import functools
import inspect
import operator
import re
import textwrap
import types
import typing
from typing import Any, Union

from ..base.arguments import Annotation, choices_of_kind, from_text
from ..base.requests import Option, option_of

IDLE = "idle"  # marks, in a field's annotation, an option that a command takes only because every command does


@dataclasses.dataclass(frozen=True)
class Flag:
    """One option: what it takes, what it is without it, and the field of the dataclass that it stands for."""

    name: str
    kind: Any
    default: Any
    owner: Any
    field: str

    @property
    def idle(self) -> bool:
        """Return whether the option is marked as one that changes nothing."""
        hint = typing.get_type_hints(self.owner, include_extras=True)[self.field]
        return IDLE in getattr(hint, "__metadata__", ())

    @property
    def switch(self) -> bool:
        return self.kind is bool

    @property
    def off(self) -> str:
        """A switch's other flag: --no-resume, --train.no-tensorboard."""
        section, dot, leaf = self.name.removeprefix("--").rpartition(".")
        return f"--{section}{dot}no-{leaf}"

    @property
    def many(self) -> int | None:
        """Number of values of the option; None: any number."""
        if typing.get_origin(self.kind) in (tuple, list):
            inner = typing.get_args(self.kind)
            return None if len(inner) == 2 and inner[1] is Ellipsis else len(inner)
        return 1

    @property
    def words(self) -> list[str]:
        """Those that it allows, where it leaves a choice among some."""
        words, kinds = choices_of_kind(self.kind)
        return words + ["True", "False"] * (bool in kinds)

    @property
    def option(self) -> Option | None:
        """Declaration of the field by `requests.option`."""
        return next((option_of(f) for f in dataclasses.fields(self.owner) if f.name == self.field), None)

    def check(self, text: str) -> None:
        """InputError where a text is no value of the option; its range is checked with all other fields, by its dataclass."""
        from_text(text, self.kind, self.name, None if self.option is None else self.option.minimum)


def flags(cls: type, default: Any = None, prefix: str = "") -> dict[str, Flag]:
    """Every option of a dataclass, by its flag; positional fields are left out."""
    options: dict[str, Flag] = {}
    for field, name, hint in named_fields(cls):
        if name is None:
            continue
        value = getattr(default, field.name, field.default)
        if value is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        if dataclasses.is_dataclass(hint):
            inner = f"{prefix}{name}." if name else prefix
            options |= flags(hint, None if value is dataclasses.MISSING else value, inner)  # pyright: ignore[reportArgumentType]
        else:
            flag = "--" + prefix + name.replace("_", "-")
            options[flag] = Flag(flag, hint, value, cls, field.name)
    return options


@functools.cache
def named_fields(cls: type) -> tuple[tuple[Any, str | None, Any], ...]:
    """Each field of a dataclass that is on the command line, what its option is called (None: it is positional), and its type."""
    import tyro

    hints, fields = typing.get_type_hints(cls, include_extras=True), []
    for field in sorted(dataclasses.fields(cls), key=lambda field: field.kw_only is True):  # as in the constructor
        hint, name = hints[field.name], field.name
        option = option_of(field)
        if option is not None:
            if option.hidden:
                continue
            name = option.flag or name
            hint = hint if option.typed is None else option.typed
        if typing.get_origin(hint) is typing.Annotated:
            marks = typing.get_args(hint)[1:]
            positional = tyro.conf.Positional in marks
            name = None if positional else next((m.name for m in marks if getattr(m, "name", None) is not None), name)
            hint = typing.get_args(hint)[0]
        fields.append((field, name, _typed(hint) if option is not None else hint))
    return tuple(fields)


def _typed(hint: Annotation) -> Any:
    """Type on the command line of the values of a declared field: words for any value, no dataclass beside others."""
    if hint is Any:
        return str
    if typing.get_origin(hint) in (Union, types.UnionType):
        parts = [part for part in typing.get_args(hint) if not dataclasses.is_dataclass(part)]
        return functools.reduce(operator.or_, parts)
    return hint


def positionals(cls: type) -> list[str]:
    """The first word of each positional argument's name: RUN, TEXT."""
    hints = typing.get_type_hints(cls, include_extras=True)
    places = [typing.get_args(hints[field.name])[1:] for field, name, _ in named_fields(cls) if name is None]
    titles = [title for marks in places for mark in marks if (title := getattr(mark, "metavar", None))]
    return [title.strip("[]").split()[0] for title in titles]


LINES, COLUMNS = 24, 80
# the options' dataclass: what is typed after the command, and those that most people need (all of them where none is named)
SHOWN: dict[str, tuple[str, str]] = {
    "Options": ("[options]", "size config data.path data.name net.layers net.hidden net.length train.steps epochs "
                "train.batch train.lr run resume overwrite recipe"),
    "Compare": ("METHOD METHOD ... [options]", "data.path data.name net.layers net.hidden net.length train.steps train.batch "
                "train.lr run calls samples draws limit"),
    "SamplersOptions": ("RUN --samplers [NAME ...] [options]", "samplers steps samples limit data.path data.name out batch "
                        "seed device head"),
    "SweepOptions": ("METHOD --train.lr 1e-3,2e-3 [options]", "run trials search size config data.path data.name "
                     "net.layers net.hidden net.length train.steps epochs train.batch train.lr train.seed"),
    "PlanOptions": ("RECIPE or METHOD [options]", "gpus device mfu price vocabulary size config net.layers net.hidden "
                    "net.length net.checkpoint train.steps train.batch train.accumulate train.precision"),
    "ClassifierOptions": ("RUN [options]", "out data.path data.name data.labels steps batch lr layers seed device"),
    "DistillOptions": ("RUN [options]", "by teacher-steps rounds divergence out data.path data.name steps batch lr seed device"),
    "SpeculativeOptions": ("RUN [options]", "out data.path data.name steps batch lr seed device"),
    "EvaluateOptions": ("RUN [options]", "data.path data.name split draws limit seed estimator from device"),
    "GenerateOptions": ("RUN --generate [options]", "judge count steps sampler temperature top-p length frontier calls samplers "
                 "prompt-tokens samples reference features mauve data.path out seed"),
    "SuiteOptions": ("RUN --suite zero-shot [options]", ""),
    "StepsOptions": ("RUN --steps 32 128 continuous [options]", "steps data.path data.name split draws limit seed processes "
                     "device"),
    "PairsOptions": ("RUN --pairs FILE.jsonl [options]", ""),
    "ProbeOptions": ("RUN --probe ag_news [options]", ""),
    "GlueOptions": ("RUN --probe glue [options]", ""),
    "BracketOptions": ("RUN --bracket [options]", "limit numbers orders per-step steps own data.path data.name split seed "
                       "device"),
    "FeaturesOptions": ("--train-features FOLDER [options]", "data.name data.path epochs seed device"),
    "TuneOptions": ("MODEL --data.path FILE [options]", "data.path data.fill run resume overwrite rank alpha dropout targets "
                    "length train.steps train.lr train.batch"),
    "SampleOptions": ("RUN [options]", "prompt count steps sampler length temperature top-p top-k class seed watch out "
               "block-sampler grid confidence remasking device"),
    "InfillOptions": ('RUN "a text with ____" [options]', "count steps sampler temperature top-p class seed watch mark "
               "mask-token example keep data.path out order confidence device"),
    "Verify": ("[METHOD ...]", ""),
    "Report": ("RUN [--out FILE]", ""),
    "Play": ("[RUN ...] [options]", ""),
    "Serve": ("RUN [options]", ""),
    "List": ("models|methods|samplers|data|checkpoints|recipes|tables", ""),
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
    flags_of_command = flags(cls, default)
    usage, words = SHOWN.get(cls.__name__, ("[options]", ""))
    helps = descriptions(cls)
    flags_shown = [flags_of_command[f"--{name}"] for name in words.split() if f"--{name}" in flags_of_command] or [
        *flags_of_command.values()
    ]
    if cls.__name__ == "Options":  # a method's own first
        flags_shown = [flag for flag in flags_of_command.values() if flag.owner is _own(cls)][:OWN] + flags_shown
    flags_shown = [flag for flag in flags_shown if not flag.idle]
    idle = sum(flag.idle for flag in flags_of_command.values())
    heads = [_head(flag) for flag in flags_shown]
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
    for flag, head in zip(flags_shown, heads):
        on = "turn off: " * (flag.switch and flag.default)
        summary_line, *more = summary(on + helps.get(flag.name, ""), COLUMNS - wide - 2) or [""]
        lines += [f"  {head:<{wide}}{summary_line}".rstrip(), *(" " * (wide + 2) + line for line in more)]
    lines += [""] * bool(flags_shown) + [*rest.splitlines(), ""] * bool(rest)
    full = (
        f"all {len(flags_of_command)} options, in full: --help-all"
        if len(flags_of_command) > len(flags_shown) + idle
        else "in full: --help-all"
    )
    return "\n".join([*lines, full])


def descriptions(cls: type, prefix: str = "") -> dict[str, str]:
    """Help of each option from the declaration of its field."""
    texts: dict[str, str] = {}
    docstrings = {
        base_class.arg_name: base_class.description or ""
        for base in reversed(cls.__mro__)
        if dataclasses.is_dataclass(base)
        for base_class in _documented(base)
    }
    hints = typing.get_type_hints(cls, include_extras=True)
    for field, name, hint in named_fields(cls):
        if name is not None and dataclasses.is_dataclass(hint):
            texts |= descriptions(hint, f"{prefix}{name}." if name else prefix)  # pyright: ignore[reportArgumentType]
        elif name is not None:
            marks = typing.get_args(hints[field.name])[1:]
            option = option_of(field)
            text = option.help if option else next((m.help for m in marks if getattr(m, "help", None)), "")
            flag = "--" + prefix + name.replace("_", "-")
            texts[flag] = " ".join((text or docstrings.get(field.name, "")).split())
    return texts


@functools.cache  # it parses the source of a module, and sections such as Net are asked about several times in a command
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
