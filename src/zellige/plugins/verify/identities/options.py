"""Options of a method, any two of them together: its bound, what its draws and its loss are in expectation, and both
sides.

The other checks take the models that papers report (`Method.variants`). These take the combinations in which any two
values of options are together, and of each, with a network of fixed numbers, four numbers that must be one. None is
made of another:

    the generic bound       of `predict`, at each x_t; over all x_t and integrated over time
    the closed forms        of the loss and the bound, at each x_t
    what is drawn           the expectation of `bound` and of `loss`
    the two-sided bound     the expectation of -log w of the path that weighs a text
"""

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zellige.core.batch import Batch
from zellige.core.schedule import CLEAN, PRIOR
from zellige.exact import bounds, enumeration
from zellige.methods import AR
from zellige.methods.csm import CSM
from zellige.methods.diffusion import Diffusion
from zellige.methods.flexmdm import FlexMDM
from zellige.methods.method import Method
from zellige.methods.score import Scored
from zellige.methods.sedd import SEDD
from zellige.methods.tauldr import TauLDR
from zellige.samplers.replay import Trajectory, path_of

from ..combinations import STEPS, combinations
from . import insertion, score
from .bound import closed_and_generic, total
from .check import L, Largest, Row, V, end_at, enumerable, even, pairs, whole
from .draw import total_of_loss
from .sides import expected

GROUP = "options: any two values that a method admits"
CLOSE = 1e-4  # of integrals over time, also of curves that are steep at t = 0
FILES: dict[str, Any] = {  # of options that take one
    "embedding": [[0.0, 1.0], [1.0, 0.3], [2.5, 1.0]],
    "matrix": [[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.4, 0.4, 0.2]],
    "unigrams": [5.0, 1.0, 2.0],
}
CLOSED, DRAWN, LOSS, SIDES = (
    "closed forms = generic bound",
    "E of its draws = the bound",
    "E of the loss = its bound",
    "E -log w (n = 1) = its bound",
)


@contextmanager
def files() -> Iterator[dict[str, str]]:
    """Files for the options that take one, by name."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: str(Path(folder) / f"{name}.npy") for name in FILES}
        for name, path in paths.items():
            np.save(path, np.array(FILES[name]))
        yield paths


@whole("options.pairs")
def any_two_options_have_one_bound(cls: type[Method]) -> Iterator[Row]:
    with files() as paths:
        found, worst = combinations(cls, V, L, paths), {}
        for row in found.rows:
            changed = {name: value for name, value in row.items() if value != found.values[name][0]}
            where = ", ".join(f"{k} {Path(v).name if v in paths.values() else v}" for k, v in changed.items())
            for name, a, b in compared(enumerable(cls, **row)):
                worst.setdefault(name, Largest()).see(a, b, where or "as it is by default")
    for name, largest in worst.items():
        yield largest.row(GROUP, f"{len(found.rows)} combinations: {name}", CLOSE)


def compared(method: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Numbers of a method that must be equal, and what they are."""
    if isinstance(method, Diffusion):
        method.network.logits.data.mul_(0.3)  # so that no kernel of a score is clipped
        end_at(method, 0.1)
        yield from closed_forms(method)
        yield from expectations(method)
    elif isinstance(method, AR):
        yield "the bound is -log p", (-method.bound(Batch(x := enumeration.states(V, L)))).exp().sum(), torch.ones(())
        yield LOSS, bounds.expectation(method.loss, x), method.bound(Batch(x))
    elif isinstance(method, CSM | FlexMDM):
        check, name = (
            (score.losses_are_the_explicit_ones, "E of the loss = its explicit form")
            if isinstance(method, CSM)
            else (insertion.the_bound_is_its_definition, DRAWN)
        )
        for row in check(method):
            yield name, torch.tensor(row.error, dtype=torch.float64), torch.zeros(())


@torch.no_grad()
def closed_forms(method: Diffusion) -> Iterator[tuple[str, Tensor, Tensor]]:
    """At each x_0 and each x_t: per unit of time, and of steps."""
    if method.approximate:
        return
    moments = [(0.09375, None), (0.90625, None), (0.90625, 0.1875), (PRIOR, 1.0), (0.25, CLEAN)]
    for t, s in [*itertools.pairwise(method.grid(method.steps).tolist())] if method.steps else moments:
        if t > method.process.start_time:
            continue
        x_0, x_t, time, _ = pairs(method.process, t)
        yield CLOSED, *closed_and_generic(method, x_0, x_t, time, s)


@torch.no_grad()
def expectations(method: Diffusion) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Of texts that together have each token at each position."""
    clean = method.process.clean.nonzero()[:, 0]
    x_0 = torch.stack((clean, clean.roll(1)), 1)
    its_bound = total(method, x_0)
    yield DRAWN, bounds.expectation(method.bound, x_0, nodes(method)), its_bound
    if (loss := bound_of_loss(method, x_0)) is not None:
        yield LOSS, bounds.expectation(method.loss, x_0, nodes(method)), loss
    if method.exact or not method.retraces:
        return
    path = path_of(method, STEPS)
    of_steps = bool(method.steps) or isinstance(path, Trajectory)
    steps_bound = bounds.step_bound(method, x_0, method.grid(method.steps or STEPS)) if of_steps else its_bound
    yield SIDES, expected(method, path, x_0)[1], steps_bound


def nodes(method: Diffusion) -> tuple[Tensor, Tensor]:
    """For `bounds.expectation`: each of the steps of which one is drawn, all or those before the last; or a part for
    each block and each number of masks."""
    if not method.steps:
        return bounds.parts(L, 30)
    return even(method.steps * (method.steps - 1))


def bound_of_loss(method: Diffusion, x_0: Tensor) -> Tensor | None:
    """The bound, or the part of it, that the loss has as its expectation; None if it has another one, or a search's."""
    config = method.config
    if method.loss_is_bound:
        return total_of_loss(method, x_0)
    of_scores = isinstance(method, Scored) and not (isinstance(method, SEDD) and config.loss == "squared")
    one_term = isinstance(method, TauLDR) and not config.auxiliary and config.objective != "one-pass-biased"
    if (of_scores or one_term) and getattr(method, "interval", None) is None and not getattr(config, "blocks", ()):
        return bounds.continuous_terms(method, x_0)["diffusion"]
    return None
