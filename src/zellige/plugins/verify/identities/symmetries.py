"""The average over symmetries (`nn.averaged`): its prediction by definition, what it treats alike, and its bound.

Three positions and three tokens; a symmetry shifts the positions and the tokens around, so that its inverse is another
one.
"""

import itertools

import torch
from torch import Tensor

from zellige import methods
from zellige.core.prediction import posterior
from zellige.core.schedule import CLEAN, PRIOR
from zellige.exact import bounds, enumeration
from zellige.methods.diffusion import Diffusion
from zellige.methods.method import Method
from zellige.nn.averaged import Averaged
from zellige.nn.table import Table
from zellige.samplers.predict import reads_tokens

from .check import INSIDE, Largest, V, above, own, with_table

SYMMETRIES = "symmetries: a network averaged over them"
LONG = 3
SHIFTS = (
    *itertools.product(range(LONG), range(V)),
)  # a whole group: every shift of positions with every one of tokens


def moves_and_renames() -> tuple[Tensor, Tensor]:
    """The shifts as permutations, (9, LONG) and (9, V)."""
    moves, renames = zip(*((torch.arange(LONG).roll(a), torch.arange(V).roll(b)) for a, b in SHIFTS))
    return torch.stack(moves), torch.stack(renames)


def one_network(method: Method) -> Diffusion:
    """The method with a table of fixed numbers for three positions."""
    table = with_table(Table(V + 1, LONG, method.time_conditioned, type(method).outputs(V, method.config)))
    return methods.build(type(method), V, table, method.config, LONG).double()  # pyright: ignore[reportReturnType]


def image(x: Tensor, move: Tensor, rename: Tensor) -> Tensor:
    """g x of texts x (B, LONG); masks are V."""
    return torch.tensor([[V if row[i] == V else rename[row[i]] for i in move] for row in x.tolist()])


@own("symmetries.average", lambda m: reads_tokens(m) is None and not m.block and not m.latents)
@torch.no_grad()
def the_average_is_the_mean_over_symmetric_copies(method: Method):
    one, (moves, renames) = one_network(method), moves_and_renames()
    average = one.of_network(Averaged(one.network, moves, renames, V))
    X, clean = enumeration.states(V + 1, LONG), enumeration.states(V, LONG)
    copies, worst = [image(X, *g) for g in zip(moves, renames)], Largest()
    for t in INSIDE:
        masks, mean = X == V, torch.zeros(len(X), LONG, V, dtype=torch.float64)
        for y, move, rename in zip(copies, moves, renames):
            p = posterior(one.predict(y, t))
            for i, v in itertools.product(
                range(LONG), range(V)
            ):  # the copy has position move[i] at i, and v as rename[v]
                mean[:, move[i], v] += p[:, i, rename[v]] / len(moves)
        worst.see(posterior(average.predict(X, t))[masks][:, :V], mean[masks], f"t = {t}")
    yield worst.row(SYMMETRIES, "prediction = mean of the symmetric copies'")
    times, alike, saved = torch.tensor([PRIOR, *INSIDE[::-1], CLEAN], dtype=torch.float64), Largest(), []
    bound, own_bound = (bounds.step_bound(m, clean, times) for m in (average, one))
    for move, rename in zip(moves, renames):
        at = enumeration.index(image(clean, move, rename), V)
        alike.see(bound[at], bound, f"positions {move.tolist()}, tokens {rename.tolist()}")
        saved.append(own_bound[at])
    gain = torch.stack(saved).mean(0) - bound
    yield alike.row(SYMMETRIES, "... over a whole group: symmetric texts have one bound")
    yield above(SYMMETRIES, "... which is below the mean of theirs by at least", float(gain.min()), 0.0, "≥ 0")
