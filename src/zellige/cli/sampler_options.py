"""The options of all samplers on the command line: a dataclass made of what the samplers declare.

It is read from `lists.json`, which `help.write` makes of the samplers, so that no command line needs torch to be understood.
"""

from dataclasses import dataclass, field, make_dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from ..errors import at_least
from ..requests import KINDS
from . import help

if TYPE_CHECKING:

    @dataclass(frozen=True)
    class SamplerOptions:
        """The options of one sampler or another; a sampler's own default stands where none is given."""

else:
    ROWS = help.table("options")

    def _check(self) -> None:
        """Refuse what is below a minimum; the samplers check all other ranges themselves."""
        for row in ROWS:
            if "minimum" in row and getattr(self, row["name"]) is not None:
                at_least(row["name"], getattr(self, row["name"]), int(row["minimum"]))

    SamplerOptions = make_dataclass(
        "SamplerOptions",
        [
            (row["name"], Annotated[KINDS[row["kind"]] | None, tyro.conf.arg(help=row["help"])], field(default=None))
            for row in ROWS
        ],
        frozen=True,
        namespace={"__post_init__": _check},
    )
