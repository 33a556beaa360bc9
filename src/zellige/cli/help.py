"""What `--help` and `--help-all` print. Importing this imports nothing heavy."""

import re
import shutil
import textwrap
from typing import Any

from .. import __version__
from ..base.arguments import choices_of_kind
from .flags import Flag, arguments, flags, sections

HELP = f"""Zellige {__version__}: discrete diffusion for text and any tokens

  demo        start here: see a model write, then train a small one (5 min)
  train       train a model of METHOD on your text or on a data set
  tune        fine-tune a model on prompts and answers, or other data (LoRA)
  evaluate    likelihood with 95% intervals; quality of samples; zero-shot
  sample      sample text, images or music; --watch shows each step
  infill      fill the masked spans of a text; the rest stays as it is
  verify      check the formulas on examples small enough to enumerate
  compare     train several methods on the same budget and compare them
  sweep       train a METHOD with several values of its options
  plan        estimate memory, time and cost of a training on other GPUs
  report      write a self-contained HTML page about a run
  play        web page to write and fill text, and to see each step
  serve       OpenAI-compatible server for a text model
  list        list models, methods, samplers, data, recipes and others
  import      convert a published model, from the hub or from files
  export      save a model in a layout that the published code can read
  doctor      show versions, devices, extras and caches
  completion  print a completion script for bash, zsh or fish

Everywhere: --json FILE (- is stdout)  --quiet  --seed N  --color WHEN  --help
            --help shows the usual options of a command, --help-all every one
            --no-checksums, --allow-code, --allow-remote: lift safety checks"""

TRAIN = """usage: zellige train METHOD [options]   options of one: zellige train mdlm -h
  METHOD                 d3pm csm tauldr sedd radd mdlm md4 genmd4 udlm gidd
                         bd3lm flexmdm ar, or file.py:Class for your own
  --data.path notes/     your own text; or --data.name pydocs, text8 and others
                         (zellige list data)
  --size tiny            tiny, small, base or medium: preset of network, batch,
                         learning rate and steps; without a GPU: tiny
  --net.layers, --train.steps, --lr and others override the preset
  --run FOLDER           folder for everything (default: runs/METHOD-DATA);
                         --resume continues it, --overwrite starts again
  --config FILE          file of options: YAML, JSON, TOML, or a config.json
  --recipe NAME          instead of METHOD: the settings of a paper; other
                         options override them (zellige list recipes)
example
  zellige train mdlm --data.path notes/"""

LINES, COLUMNS = 24, 80
# the options' dataclass: what is typed after the command, and those that most people need (all of them where none is
# named)
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


def short(cls: type, where: str, default: Any = None, about: str = "") -> str:
    """The short help of the command `where`, whose options are `cls`."""
    flags_of_command = flags(cls, default)
    _, words = SHOWN.get(cls.__name__, ("", ""))
    named = [flags_of_command[f"--{name}"] for name in words.split() if f"--{name}" in flags_of_command]
    useful = [flag for flag in flags_of_command.values() if not flag.option.idle]
    flags_shown = named or useful
    if cls.__name__ == "Options":  # a method's own first
        flags_shown = [flag for flag in useful if flag.path[0] == "options"][:OWN] + flags_shown
    heads = [_head(flag) for flag in flags_shown]
    wide = max(map(len, heads), default=0) + 2
    title, _, more_lines = about.partition("\n")
    lines = [_usage(cls, where), *([title] if title else []), ""]
    for flag, head in zip(flags_shown, heads):
        on = "turn off: " * (flag.switch and bool(flag.default))
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
        lines += _entries([(_form(flag), with_default(flag.option.help, flag.default)) for flag in flags_of_section])
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
    usage = SHOWN.get(cls.__name__, ("[options]", ""))[0]
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
    value = "|".join(flag.words) if flag.words and not others else _value(flag)
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
    return f"{flag.name} {_text(flag.default) or _value(flag)}"


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
