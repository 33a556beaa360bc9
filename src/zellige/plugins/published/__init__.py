"""Models that others have published, as ours: found by what their config.json says, renamed, checked by name, placed.

    imported = read("downloads/sedd-small")         # a folder or a file; `zellige.load` takes a hub id too
    zellige.load("runs/mine").export("out", to="mdlm")   # the way back, or out

A layout is one way of publishing (`layout.py`): those of the DDiT family are in `hydra.py` and `flat.py`, with the one
table of their names in `ddit.py`. A layout with a network of its own class has a file of its own and a line in LAYOUTS.
Nothing here runs code that came with a file, and nothing but tensors is ever unpickled (`opening.py`).
"""

from .catalogue import CATALOGUE, Published
from .classifiers import classifier
from .layout import Choices, Description, Layout
from .layouts import LAYOUTS
from .reading import Imported, beginning, read, rebuild
from .writing import HUB, fitting, layout_name, unpublished, write_layout

__all__ = [
    "CATALOGUE", "HUB", "LAYOUTS", "Choices", "Description", "Imported", "Layout", "Published", "beginning", "classifier",
    "fitting", "layout_name", "read", "rebuild", "unpublished", "write_layout",
]  # fmt: skip
