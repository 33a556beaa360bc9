"""The page docs/reference/commands.md: what each command of `zellige` takes, as its `--help-all` says."""

import contextlib
import io

from zellige.cli import COMMANDS, main

HEAD = """\
# The command line

Each command with all of its options, as `zellige COMMAND --help-all` prints them. The options of a method or of one kind of
evaluation come after its name: `zellige train bd3lm --help-all`, `zellige evaluate RUN --bracket --help-all`.
"""


def page() -> str:
    return "".join([HEAD, *(f"\n## {name}\n\n```text\n{shown(name)}```\n" for name in COMMANDS.names())])


def shown(command: str) -> str:
    """What `--help-all` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([command, "--help-all"]) == 0
    return out.getvalue()
