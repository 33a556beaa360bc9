"""What `--help` and `--help-all` print. Importing this imports nothing heavy."""

import re
import shutil
import textwrap
from typing import Any

from .. import __version__
from ..base.arguments import choices_of_kind
from ..base.plugins import named
from .flags import Flag, arguments, flags, sections

EVERYWHERE = """Everywhere: --json FILE (- is stdout)  --quiet  --seed N  --color always|never
            --no-checksums, --allow-code, --allow-remote: lift safety checks"""

TRAIN = """usage: zellige train METHOD [options]
  METHOD                 d3pm csm tauldr sedd radd mdlm md4 genmd4 udlm gidd
                         bd3lm flexmdm ar, or file.py:Class for your own
  --data.path notes/     your own text; or --data.name pydocs, text8 and others
                         (zellige list data)
  --size tiny            tiny, small, base or medium: preset of network, batch,
                         learning rate and steps; without a GPU: tiny
  --net.layers, --train.steps, --train.lr and others override the preset
  --train.minutes 30     as many steps as fit into this time (on a CPU only)
  --train.devices 2      train on two GPUs (default: all of this machine)
  --train.start MODEL    begin with the weights of a trained model
  --run FOLDER           folder for everything (default: runs/METHOD-DATA);
                         --resume continues it, --overwrite starts again
  --config FILE          read options from a YAML, JSON or TOML file
  --recipe NAME          instead of METHOD: the settings of a paper; other
                         options override them (zellige list recipes)
usage: zellige train distill RUN [options]        a copy for fewer steps
       zellige train classifier RUN [options]     a classifier for guidance
       zellige train speculative RUN [options]    for speculative sampling
example
  zellige train mdlm --data.path notes/
all options of a method: zellige train mdlm --help-all"""

COLUMNS = 80
_VALUES = {  # what stands for the value of an option that has no default, where that is no name
    option: value
    for value, options in {
        "PATH": "--data.path --out",
        "FOLDER": "--data.cache --run --frames --classifier --head --base --audit",
        "FILE": "--config --from --samples --pairs --method --reward",
        "TEXT": "--prompt --token --reconstruct --mask-token",
        "MODEL": "--train.start",
        "RULE": "--kappa --kappa-early --kappa-late",
        "ORDER": "--order",
        "PART": "--keep --data.given",
        "ADDRESS": "--host",
    }.items()
    for option in options.split()
}


def commands() -> str:
    """The page of `zellige --help`: every command with its sentence."""
    rows = [f"  {name:<12}{sentence}" for name, (_, sentence) in named("zellige.plugins:COMMANDS").items()]
    head = f"Zellige {__version__}: discrete diffusion for text, images, music and puzzles"
    usage = "usage: zellige COMMAND [options]   usual options: -h   all options: --help-all"
    return "\n".join([head, usage, "", *rows, "", EVERYWHERE])


def short(cls: type, where: str, default: Any = None, about: str = "") -> str:
    """The short help of the command `where`, whose options are `cls`.

    The class may have `usage`, what is typed after the command, and `shown`, the options that most people need; else
    all that do something are shown.
    """
    flags_of_command = flags(cls, default)
    named = [flags_of_command[f"--{name}"] for name in getattr(cls, "shown", "").split()]
    useful = [flag for flag in flags_of_command.values() if not flag.option.idle]
    flags_shown = named or useful
    heads = [_head(flag) for flag in flags_shown]
    wide = max(map(len, heads), default=0) + 2
    title, _, more_lines = about.partition("\n")
    lines = [_usage(cls, where), *([title] if title else []), ""]
    for flag, head in zip(flags_shown, heads):
        on = "do not " * (flag.switch and bool(flag.default))
        first_line, *more = summary(on + flag.option.help.partition("\n")[0], COLUMNS - wide - 2) or [""]
        lines += [f"  {head:<{wide}}{first_line}".rstrip(), *(" " * (wide + 2) + line for line in more)]
    lines += [""] * bool(flags_shown) + [*more_lines.splitlines(), ""] * bool(more_lines)
    count = f"all {len(flags_of_command)} options, in full" if len(useful) > len(flags_shown) else "in full"
    return "\n".join([*lines, f"{count}: --help-all"])


def full(cls: type, where: str, default: Any = None, about: str = "") -> str:
    """The whole help: every argument and option, those of each section together, with all that is said of them."""
    lines, titles = [_usage(cls, where), *about.splitlines()], sections(cls)
    groups: dict[str, list[Flag]] = {"": []}
    for flag in flags(cls, default).values():
        groups.setdefault(flag.name.removeprefix("--").rpartition(".")[0], []).append(flag)
    lines += _entries([(argument.name, argument.option.help) for argument in arguments(cls)])
    for section, flags_of_section in groups.items():
        title = f"{section} options{titles[section] and ': ' + titles[section]}" if section else ""
        lines += ["", title] if title else []
        lines += _entries([(_form(flag), with_default(flag.option.help, _default(flag))) for flag in flags_of_section])
    return "\n".join(lines)


def words(cls: type, where: str, default: Any = None, about: str = "") -> str:
    """What the completion of a shell asks for: the names of arguments, and each option with the words that it takes."""
    lines = [argument.name.strip("[]").split()[0] for argument in arguments(cls)]
    for flag in flags(cls, default).values():
        lines.append(
            (flag.off if flag.default else flag.name) if flag.switch else f"{flag.name}={' '.join(flag.words)}"
        )
    return "\n".join(lines)


def _usage(cls: type, where: str) -> str:
    command, _, name = where.partition(" ")
    usage = getattr(cls, "usage", "[options]")
    if name:
        usage = usage.removeprefix("RECIPE or ").removeprefix("METHOD ")
    return f"usage: zellige {command}{f' {name}' * (name[:2] not in ('', '--'))} {usage}"


def _entries(entries: list[tuple[str, str]]) -> list[str]:
    """Heads, each with its text beside it: below it where the head is long."""
    indent, lines = 24, [""] if entries else []
    for head, text in entries:
        width = max(shutil.get_terminal_size().columns, 60) - indent
        told = [line for part in text.splitlines() for line in textwrap.wrap(part, width, break_on_hyphens=False)] or [
            ""
        ]
        if len(head) > indent - 4:
            lines.append(f"  {head}")
        else:
            lines.append(f"  {head:<{indent - 2}}{told.pop(0)}".rstrip())
        lines += [" " * indent + line for line in told]
    return lines


def _form(flag: Flag) -> str:
    """An option with what it takes: `--steps N`, `--device auto|cpu|cuda`, `--defaults, --no-defaults`."""
    if flag.switch:
        return f"{flag.name}, {flag.off}"
    others = choices_of_kind(flag.kind)[1] - {bool, type(None)}
    value = "|".join(filter(None, flag.words)) if flag.words and not others else _value(flag)
    return f"{flag.name} {' '.join([value] * (flag.many or 1))}{' ...' * (flag.many is None)}"


def with_default(text: str, default: Any) -> str:
    """The help of an option, with its default where that is a value and the help does not say it."""
    value = "on" if default is True else "" if default is False else _text(default)
    return f"{text.removesuffix('.')} (default: {value})" if value and "default: " not in text else text


def _text(value: Any) -> str:
    """A default as it would be typed."""
    if isinstance(value, (tuple, list)):
        return " ".join(map(str, value))
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _value(flag: Flag) -> str:
    """What stands for a value of an option."""
    kinds = choices_of_kind(flag.kind)[1]
    return "N" if int in kinds else "X" if float in kinds else _VALUES.get(flag.name, "NAME")


def _head(flag: Flag) -> str:
    """An option with its default, or with what it takes."""
    if flag.switch:
        return flag.off if flag.default else flag.name
    return f"{flag.name} {_text(_default(flag)) or _value(flag)}"


def _default(flag: Flag) -> Any:
    """The default that help names; None for a value that comes from the model's run."""
    return None if flag.of_run else flag.default


def summary(text: str, width: int) -> list[str]:
    """A description as lines of this width: all of it if that is one line, else the clauses that fit, or the first one
    wrapped.

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
