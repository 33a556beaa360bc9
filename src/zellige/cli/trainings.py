"""Commands about trainings, `plan` and `sweep`: options of their own beside those of `zellige train METHOD`."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import options, train
from .flags import flags
from .options import take


class About(NamedTuple):
    """One such command.

    Attributes:
        name: of the command.
        own: the request whose fields are its own options.
        without: the options of `train` that it has not, or has of its own, by their fields.
        what: it does, for its help.
    """

    name: str
    own: type
    without: tuple[str, ...]
    what: str

    def form(self, method: Any) -> Any:
        """The options of the command with a method, as a dataclass."""
        shared = [(f.name, f.type, f) for f in dataclasses.fields(train.form(method)) if f.name not in self.without]
        return dataclasses.make_dataclass(
            f"{self.name.title()}Options", [*train.own_fields(self.own), *shared], frozen=True
        )

    def help(self, words: Sequence[str]) -> None:
        """Show the help and leave, if that is asked for."""
        if options.asks_help(words):
            from ..methods import METHODS, find

            name = words[0] if words[0] in METHODS else ""
            options.parse(self.form(find(name or "mdlm")), words, f"{self.name} {name}".strip(), about=self.what)

    def split(self, words: Sequence[str]) -> tuple[Any, list[str]]:
        """The request of its own options, and the words that are those of `train`."""
        rest, own = [*words], list[str]()
        for name in flags(self.own):
            value, rest = take(rest, name, self.name)
            own += [] if value is None else [f"{name}={value}"]
        return options.parse(self.own, own, self.name), rest
