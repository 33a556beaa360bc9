"""The table of published layouts."""

from . import dream, flat, hydra, llada
from .layout import Layout

LAYOUTS: dict[str, Layout] = {
    layout.name: layout for layout in [*hydra.LAYOUTS, *flat.LAYOUTS, llada.LAYOUT, dream.LAYOUT]
}
