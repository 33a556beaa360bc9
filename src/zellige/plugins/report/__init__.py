"""One self-contained report.html of a run: curves, schedule, samples, the bound, and the tokens as they appear.

The page is a file that works from disk: its figures are inline SVG, its one script (assets/player.js) is short, and it
loads nothing. Every figure is a public function that returns a matplotlib Figure, so a notebook can have it alone:

    zellige.report.curves("runs/first").savefig("curves.svg")
    zellige.report.revealed(zellige.watch("runs/first"), model.method)

`write` gathers: the run's files say what happened, the model is asked for a few samples and for the integrand of its
bound. What is not there (no checkpoint yet, texts that were moved) is a sentence on the page, never an error.
"""

from zellige.base.arguments import check_functions

from .assemble import write
from .bracket import bracket_figure
from .figures import curves, learnt, loss_against_t, metrics, reveal_counts, revealed, schedule, terms
from .palette import as_svg
from .sweep import sweep_figure
from .trace import Trace, entropies, fewer, integrand, pieces, record, trace

__all__ = [
    "Trace", "as_svg", "bracket_figure", "curves", "entropies", "fewer", "integrand", "learnt", "loss_against_t", "metrics",
    "pieces", "record", "reveal_counts", "revealed", "schedule", "sweep_figure", "terms", "trace", "write",
]  # fmt: skip
check_functions(__name__)
