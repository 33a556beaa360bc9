"""`zellige completion bash|zsh|fish`: a script for the shell, made of the options that each command has.

tyro writes such scripts of its own parser, for bash and zsh; it does not know our commands, their modes and what they share.
"""

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from ..errors import InputError
from ..show.terminal import Terminal
from . import help, options
from .evaluate import MODES, TRAIN

Commands = Mapping[str, Callable[[Sequence[str], Terminal, float], int]]
Follow = dict[tuple[str, ...], list[str]]  # what may follow a command, or `train METHOD`
SHELLS = ("bash", "zsh", "fish")
EVERYWHERE = (
    "--json", "--quiet", "--color", "--no-checksums", "--allow-code", "--allow-remote", "--help", "--help-all",
)  # fmt: skip
BASH = """# zellige completion {shell}; in ~/.{shell}rc: source <(zellige completion {shell})
{before}_zellige() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
  case "$COMP_CWORD ${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
    1\\ *) words="{commands}" ;;
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [[ $COMP_CWORD -gt 1 && $word != -* ]]; then
    COMPREPLY=($(printf '%s\\n' "${{COMPREPLY[@]}}" | grep -v '^-') $(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _zellige zellige"""


@dataclass(frozen=True)
class Shell:
    shell: Annotated[Literal["bash", "zsh", "fish"] | None, tyro.conf.Positional, tyro.conf.arg(metavar="SHELL")] = None
    """bash, zsh or fish"""


def completion(commands: Commands, words: Sequence[str], terminal: Terminal) -> int:
    """`zellige completion SHELL`, of these commands."""
    about = "A script that completes commands and options; e.g. source <(zellige completion bash)"
    if words and not words[0].startswith("-") and words[0] not in SHELLS:
        raise InputError(f"no completion for '{words[0]}'; it must be bash, zsh or fish")
    chosen = options.parse(Shell, words, "completion", about=about, most=1)
    if chosen.shell is None:
        raise InputError("completion needs a shell; e.g. zellige completion bash")
    with terminal.waiting("looking"):
        follow = tables(commands)
    script = fish(follow) if chosen.shell == "fish" else bash(chosen.shell, follow)
    terminal.result(script, keep="\n")
    return 0


def methods() -> list[str]:
    return [row["name"] for row in help.table("methods")]


def option_names(commands: Commands, *words: str) -> list[str]:
    """The options of a command, as it names them itself."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        commands[words[0]]([*words[1:], options.LIST], Terminal(quiet=True), 0.0)
    return text.getvalue().split()


def tables(commands: Commands) -> Follow:
    """What may follow a command, or `train METHOD`."""
    follow: Follow = {}
    for command in help.COMMANDS:
        if command == "train":
            follow[command,] = methods()
            follow |= {(command, name): [*option_names(commands, command, name), *EVERYWHERE] for name in methods()}
        elif command == "list":
            follow[command,] = [*help.LISTS, *EVERYWHERE]
        elif command == "completion":
            follow[command,] = [*SHELLS]
        else:
            modes = [option_names(commands, command, mode) for mode in (*MODES, TRAIN)] if command == "evaluate" else []
            names = dict.fromkeys([*option_names(commands, command), *(name for each in modes for name in each)])
            follow[command,] = [
                *(methods() if command in ("compare", "sweep", "plan", "verify") else ()),
                *names,
                *EVERYWHERE,
            ]
    return follow


def bash(shell: str, follow: Follow) -> str:
    """The script for bash; zsh reads it by its own bashcompinit."""
    before = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    cases = []
    for key, words in follow.items():
        pattern = "2\\ train\\ *" if key == ("train",) else "*\\ " + "\\ ".join(key) + ("\\ *" if len(key) == 1 else "")
        cases.append(f'    {pattern}) words="{" ".join(words)}" ;;')
    return BASH.format(shell=shell, before=before, commands=" ".join(help.COMMANDS), cases="\n".join(cases))


def fish(follow: Follow) -> str:
    """The script for fish."""
    seen = "__fish_seen_subcommand_from"
    lines = [
        "# zellige completion fish > ~/.config/fish/completions/zellige.fish",
        f"complete -c zellige -n 'not {seen} {' '.join(help.COMMANDS)}' -f -a '{' '.join(help.COMMANDS)}'",
    ]
    for key, words in follow.items():
        where = "; and ".join(f"{seen} {word}" for word in key)
        names = " ".join(word for word in words if not word.startswith("--"))
        lines += [f"complete -c zellige -n '{where}' -a '{names}'"] if names else []
        lines += [f"complete -c zellige -n '{where}' -l {word[2:]}" for word in words if word.startswith("--")]
    return "\n".join(lines)
