"""What a person sees: numbers, colours, streams and progress. Nothing here knows what a model is.

Results go to stdout; progress, notices and errors to stderr. Motion (anything redrawn in place) happens only if stderr
is a terminal that can move its cursor; everywhere else the same facts come as plain lines without a control code.
"""

from .numbers import (
    cells,
    columns,
    count,
    counted,
    decimals,
    duration,
    error,
    escape,
    excerpt,
    number,
    parameters,
    path,
    percent,
    pm,
    rate,
    scaled,
    size,
)
from .progress import Bar, Training, gauge
from .record import as_file, dumps, record
from .screen import Terminal, plain
from .watch import Line, Look, Mark, Picture, Watch

__all__ = [
    "Bar",
    "Line",
    "Look",
    "Mark",
    "Picture",
    "Terminal",
    "Training",
    "Watch",
    "as_file",
    "cells",
    "columns",
    "count",
    "counted",
    "decimals",
    "dumps",
    "duration",
    "error",
    "escape",
    "excerpt",
    "gauge",
    "number",
    "parameters",
    "path",
    "percent",
    "plain",
    "pm",
    "rate",
    "record",
    "scaled",
    "size",
]
