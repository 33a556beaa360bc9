"""`zellige sample`: draw texts, images, music, grids."""

from collections.abc import Sequence

from ..show.terminal import Terminal
from . import options
from .common import command_options
from .drawing import Drawing, draw


@command_options
class Sample(Drawing):
    prompt: str | None = None
    """what each text begins with"""
    length: int | None = None
    """tokens of a text; the model's length if not given, and more with --block-sampler"""


def sample(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige sample RUN`"""
    chosen = options.parse(Sample, words, "sample", about="Draw texts, images, music, grids.", most=1)
    return draw(chosen, "sample", terminal, began, lambda model, kind: None)
