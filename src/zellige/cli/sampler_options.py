"""The options of all samplers on the command line: a dataclass made of what the samplers declare.

It is read from `lists.json`, which `help.write` makes of the samplers, so that no command line needs torch to be understood.
"""

from dataclasses import dataclass, field, make_dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from ..requests import KINDS
from . import help

if TYPE_CHECKING:

    @dataclass(frozen=True)
    class SamplerOptions:
        """The options of one sampler or another; a sampler's own default stands where none is given."""

else:
    SamplerOptions = make_dataclass(
        "SamplerOptions",
        [
            (row["name"], Annotated[KINDS[row["kind"]] | None, tyro.conf.arg(help=row["help"])], field(default=None))
            for row in help.table("options")
        ],
        frozen=True,
    )
