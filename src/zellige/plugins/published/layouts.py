"""The table of published layouts."""

from zellige.base.plugins import Fits, Registry

from . import bert, dream, flat, gpt2, hydra, llada, qwen, tauldr
from .layout import Layout

LAYOUTS: Registry[Layout] = Registry(
    "format", "zellige export --help", "zellige.layouts", Fits(lambda value: isinstance(value, Layout), "a Layout")
)
LAYOUTS |= {
    layout.name: layout
    for layout in [
        *hydra.LAYOUTS,
        *flat.LAYOUTS,
        llada.LAYOUT,
        dream.LAYOUT,
        *qwen.LAYOUTS,
        *gpt2.LAYOUTS,
        *bert.LAYOUTS,
        tauldr.LAYOUT,
    ]
}
