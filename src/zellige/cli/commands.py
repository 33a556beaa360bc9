"""COMMANDS, by name, each imported when it is run; ours are listed in `plugins/__init__.py`, with their sentences.

A command is a frozen dataclass of options, one call of the Python interface, and what is printed of it.
"""

from collections.abc import Callable, Sequence

from ..base.plugins import Fits, Registry
from ..show.terminal import Terminal

Command = Callable[[Sequence[str], Terminal, float], int]  # of the words after it and when it began: the exit code
COMMANDS: Registry[Command] = Registry("command", "zellige --help", "zellige.commands", Fits(callable, "a function"))
