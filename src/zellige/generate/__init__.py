"""Texts from a model: `sample` draws them, `infill` fills the gaps of a given one, `watch` is the loop behind both."""

from ..kinds import pieces
from .frames import BATCH, Drawn, Frame, check, collect, load, mix, sample, watch
from .gaps import Gaps, approximate, fill, filled, gaps, infill
from .show import Viewer, picture

__all__ = [
    "BATCH", "Drawn", "Frame", "Gaps", "Viewer", "approximate", "check", "collect", "fill", "filled", "gaps", "infill", "load",
    "mix", "picture", "pieces", "sample", "watch",
]  # fmt: skip
