"""The table of published layouts."""

from ...errors import Table
from . import dream, flat, hydra, llada
from .layout import Layout

LAYOUTS: Table[Layout] = Table("layout", "zellige export --help")
LAYOUTS |= {layout.name: layout for layout in [*hydra.LAYOUTS, *flat.LAYOUTS, llada.LAYOUT, dream.LAYOUT]}
