"""`zellige completion bash|zsh|fish`: a script for the shell, made of the options that each command has."""

import contextlib
import io
from collections.abc import Sequence
from typing import Literal

from ..base.errors import InputError
from ..base.requests import declared, option
from ..show.terminal import Terminal
from . import help, options
from .commands import COMMANDS
from .evaluate import EVALUATIONS, TRAIN
from .tables import LISTS, table

Follow = dict[tuple[str, ...], list[str]]  # what may follow a command, or `train METHOD`; RUN stands for a model
Values = dict[str, list[str]]  # what an option takes, of one command `plan --device`: words, RUN, or nothing known
SHELLS = ("bash", "zsh", "fish")
RUN = "RUN"  # the folders of ./runs, looked up when they are asked for, and the models that come with Zellige
MODEL = (RUN, "MODEL")  # names of positional arguments
BASH = """# zellige completion {shell}; in ~/.{shell}rc: source <(zellige completion {shell})
{before}_zellige() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" option="${{COMP_WORDS[COMP_CWORD-1]}}" words="" files=yes folder
  if [[ $word == "=" ]]; then word=""; elif [[ $option == "=" ]]; then option="${{COMP_WORDS[COMP_CWORD-2]}}"; fi
  case "${{COMP_WORDS[1]}} $option" in
{options}
    *) case "$COMP_CWORD ${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
      1\\ *) words="{commands}" ;;
{cases}
      esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [[ $COMP_CWORD -gt 1 && $word != -* ]]; then
    COMPREPLY=($(printf '%s\\n' "${{COMPREPLY[@]}}" | grep -v -e '^-' -e '^{run}$'))
    if [[ " $words " == *" {run} "* ]]; then
      COMPREPLY+=($(compgen -W "{models}" -- "$word"))
      for folder in runs/*/config.json; do
        folder="${{folder%/config.json}}"
        if [[ -d $folder && $folder == "$word"* ]]; then COMPREPLY+=("$folder"); fi
      done
    fi
    local IFS=$'\\n'
    if [[ $files ]]; then COMPREPLY+=($(compgen -f -- "$word")); fi
  fi
}}
complete -o filenames -F _zellige zellige"""


@declared
class Shell:
    usage = "bash|zsh|fish"

    shell: Literal["bash", "zsh", "fish"] | None = option("bash, zsh or fish", default=None, argument="SHELL")


def completion(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige completion SHELL`"""
    about = "Complete commands and options by Tab: source <(zellige completion bash)"
    if words and not words[0].startswith("-") and words[0] not in SHELLS:
        raise InputError(f"no completion for '{words[0]}'; it must be bash, zsh or fish")
    arguments = options.parse(Shell, words, "completion", terminal, about=about)
    if arguments.shell is None:
        raise InputError("completion needs a shell; e.g. zellige completion bash")
    with terminal.waiting("looking"):
        follow, values = tables()
    script = fish(follow, values) if arguments.shell == "fish" else bash(arguments.shell, follow, values)
    terminal.result(script, keep="\n")
    return 0


def names(what: str) -> list[str]:
    """The names in a table of `zellige list`."""
    return [row["name"] for row in table(what)]


def registered() -> Values:
    """Options that take a name: their type is a word, their values those of a registry."""
    from ..training.device import DEVICES

    samplers = names("samplers")
    return {
        "plan --device": [*DEVICES],
        "--data.name": names("data"),
        "--recipe": names("recipes"),
        "--table": names("tables"),
        "--sampler": samplers,
        "--samplers": samplers,
        "--block-sampler": samplers,
        "--judge": [RUN],
        "--train.start": [RUN],
        "--json": [],
    }


def listed(*words: str) -> tuple[list[str], Values]:
    """The options of a command and RUN if it takes one, as it names them itself, and what they take; none of a method
    of another package that cannot be imported."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit, InputError):
        COMMANDS[words[0]]([*words[1:], options.LIST], Terminal(quiet=True), 0.0)
    return _read(text.getvalue())


def _read(text: str) -> tuple[list[str], Values]:
    """The options and RUN in what `help.words` has of a command, and what they take."""
    follow, values = [], {}
    for line in text.splitlines():
        name, takes, line_values = line.partition("=")
        follow += [RUN] if name in MODEL else [name] if name.startswith("--") else []
        if takes:
            values[name] = line_values.split()
    return follow, values


def tables() -> tuple[Follow, Values]:
    """Completions of a command or of `train METHOD`, and the values of each option."""
    everywhere, takes = _read(help.words(options.Everywhere, ""))
    follow, values, methods = Follow(), takes | registered(), names("methods")
    first = {"plan": [*names("recipes"), *methods, *names("tables")]} | dict.fromkeys(
        ("compare", "sweep", "verify"), methods
    )
    for command in COMMANDS.names():
        word_lists = [(command,)]
        if command == "train":
            follow[command,] = [*methods, "--recipe"]
            word_lists = [(command, name) for name in methods]
        elif command == "list":
            first[command] = [*LISTS]
        elif command == "completion":
            follow[command,] = [*SHELLS]
            continue
        elif command == "evaluate":
            word_lists += [(command, mode) for mode in (*(f"--{name}" for name in EVALUATIONS.names()), TRAIN)]
        for words in word_lists:
            key = words if command == "train" else (command,)
            options_of_command, takes = listed(*words)
            before = follow.get(key, first.get(command, []))
            follow[key] = [*dict.fromkeys((*before, *options_of_command, *everywhere, "--help", "--help-all"))]
            values |= {name: words_of_value for name, words_of_value in takes.items() if not values.get(name)}
    return follow, values


def bash(shell: str, follow: Follow, values: Values) -> str:
    """The script for bash; zsh reads it by its own bashcompinit."""
    before = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    cases = []
    for key, words in follow.items():
        pattern = "2\\ train\\ *" if key == ("train",) else "*\\ " + "\\ ".join(key) + ("\\ *" if len(key) == 1 else "")
        cases.append(f'      {pattern}) words="{" ".join(words)}" ;;')
    takes, branches = [], []
    for name, words_of_value in values.items():
        pattern = name.replace(" ", "\\ ") if " " in name else f"*\\ {name}"
        files = "yes" if RUN in words_of_value else ""
        branches += [] if words_of_value else [pattern]
        takes += [f'    {pattern}) words="{" ".join(words_of_value)}"; files="{files}" ;;'] if words_of_value else []
    takes.append(f"    {'|'.join(branches)}) ;;")
    return BASH.format(
        shell=shell,
        before=before,
        commands=" ".join(COMMANDS.names()),
        cases="\n".join(cases),
        options="\n".join(takes),
        models=" ".join(names("models")),
        run=RUN,
    )


def fish(follow: Follow, values: Values) -> str:
    """The script for fish."""
    condition = "__fish_seen_subcommand_from"
    runs = f'{" ".join(names("models"))} (for f in runs/*/config.json; string replace /config.json "" $f; end)'
    spelt = lambda words: " ".join(runs if word == RUN else word for word in words)  # noqa: E731
    lines = [
        "# zellige completion fish > ~/.config/fish/completions/zellige.fish",
        f"complete -c zellige -n 'not {condition} {' '.join(COMMANDS.names())}' -f -a '{' '.join(COMMANDS.names())}'",
    ]
    for key, words in follow.items():
        where = "; and ".join(f"{condition} {word}" for word in key)
        first = spelt(word for word in words if not word.startswith("--"))
        lines += [f"complete -c zellige -n '{where}' -a '{first}'"] if first else []
        for word in words:
            if word.startswith("--"):
                takes = values.get(f"{key[0]} {word}", values.get(word))
                more = "" if takes is None else f" -x -a '{spelt(takes)}'" if takes else " -r"
                lines.append(f"complete -c zellige -n '{where}' -l {word[2:]}{more}")
    return "\n".join(lines)
