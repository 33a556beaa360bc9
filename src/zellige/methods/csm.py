"""CSM: Concrete score matching, generalized score matching for discrete data (Meng et al. 2022, arXiv 2211.00802).

There is no noise to undo: the network learns how much likelier the neighbours of a text are than the text itself. The
neighbours N(x) of x differ from it at one position; `neighbourhood` says which tokens may replace each token. The
equations are numbered here, not as in the paper:

    concrete score   c(x)_y = (p(y) - p(x)) / p(x) = v_y - 1,  y in N(x),  v_y = p(y)/p(x)                       (1)
    grid             for a discretised density, c / spacing tends to grad log p                                   (2)
    completeness     c determines p if all texts are connected by neighbours                                      (3)
    CSM              sum_x p(x) sum_{y in N(x)} (c_theta(x)_y - c(x)_y)^2                                          (4)
                     = E_x sum_{y in N(x)} [ c_theta^2 + 2 c_theta ] - 2 E_y sum_{x : y in N(x)} c_theta(x)_y
                     + const                                                                                       (5)
    denoising        (4) for p~ = p q, one step of noise q: E_x E_{z ~ q(.|x)} sum_{y in N(z)}
                     (c_theta(z)_y - q(y|x)/q(z|x) + 1)^2 + const;  q replaces a token with probability `noise`    (6)
    score entropy    SEDD's for the same N, E_x sum_{y in N(x)} v_y - E_y sum_{x : y in N(x)} log v(x)_y + const   (7)

Two older objectives are baselines, for the neighbourhood hamming (any other token). The network implies a distribution
q(y | x_-i) = v_y / sum_y' v_y' of the token at position i, given the other tokens x_-i. Both objectives compare it with
that of the data. Here a is a token that is drawn uniformly, and the network reads x with a in the place of x_i:

    ratio matching   E_x sum_i E_a [ 1/2 sum_y ([y = x_i] - q(y | x_-i))^2 ]
                     = 1/2 sum_y (p(y | .) - q(y | .))^2 + const                                                   (8)
    marginalisation  E_x sum_i E_a [ q(x_i | x_-i)^-2 - 2 sum_y 1/q(y | x_-i) ]
                     = sum_y p(y | .) (1/p(y | .) - 1/q(y | .))^2 + const                                          (9)

(8) extends Hyvarinen's loss (2007) from two tokens to more. (9) is Lyu's (2009), with the operator that sums over a token.
Both need a q that does not depend on x_i, so the network must not read x_i. If its scores are those of a distribution, q
is the same for every a, and (8) and (9) are the published losses. (9) has no minimum if a token never occurs in the data
beside the same other tokens: that token costs -2/q, which falls without end. On a finite table this training diverges
(studies/tabular/README.md).

`loss` samples the second sum of (5) and (7) (J-sampling). It draws `neighbours` texts x for each y, uniformly among those
that have y as a neighbour, and weights each by the number of these. The first sum is complete, since one network
evaluation gives all of it; `forward_neighbours` samples it too. Of (8) and (9) `loss` draws `neighbours` pairs of i and a.
The model is sampled by Metropolis-Hastings (`samplers.metropolis`).

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| none | - | Score of neighbours | CSM (J-sampling, denoising), score entropy, the baselines | Metropolis |

Differences from the other methods. There is no process, so there is no reverse kernel, and `bound` raises NoBound. On a
space that can be enumerated, the divergence of the data from the chain's invariant distribution is computed exactly
(`metropolis.invariant`). The denoising loss learns the distribution of the noised data. With hamming, a drawn neighbour
has the weight L (V - 1), and the variance grows with it. A chain mixes only if likely texts are connected by likely texts.
Two Sudoku grids differ in at least 4 cells, so CSM does not suit them.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..base.arguments import checked
from ..base.errors import InputError
from ..base.requests import declared, option
from ..core import random
from ..core.batch import Batch, Estimator
from ..core.positions import positions
from ..core.prediction import DataScore
from ..core.random import Randomness
from ..nn.chunks import each_position
from .csm_neighbourhood import NEIGHBOURHOODS
from .method import Method, NoBound, refuse_times, refuse_tokens


def ratio_matching(log_q: Tensor, y: Tensor) -> Tensor:
    """(8) of a forecast q (N, V) and the token y (N,) that came."""
    q = log_q.exp()
    return (1 + q.square().sum(-1)) / 2 - q.gather(-1, y[:, None])[:, 0]


def discrete_marginalisation(log_q: Tensor, y: Tensor) -> Tensor:
    """(9) of a forecast q (N, V) and the token y (N,) that came."""
    inverse = (-log_q).exp()
    return inverse.gather(-1, y[:, None])[:, 0].square() - 2 * inverse.sum(-1)


BASELINES = {"ratio-matching": ratio_matching, "discrete-marginalisation": discrete_marginalisation}


class CSM(Method):
    """The concrete score of the data over a neighbourhood; see the module for the equations."""

    name = "csm"
    system, paper, noise = "CSM", "2211.00802", "none"
    choices: ClassVar = {
        "neighbourhood": NEIGHBOURHOODS,
        "objective": ("csm", "denoising", "score-entropy", "ratio-matching", "discrete-marginalisation"),
    }
    parameterization = "score"
    loss_is_bound = bounded = False
    sampler = "metropolis"
    variants = (
        {},
        {"neighbourhood": "cycle"},
        {"neighbourhood": "grid"},
        {"neighbourhood": "star"},
        {"positive": True, "neighbours": 2},
        {"neighbourhood": "star", "forward_neighbours": 1},
        {"neighbourhood": "star", "objective": "score-entropy", "neighbours": 0},
        {"neighbourhood": "grid", "objective": "denoising"},
        {"objective": "ratio-matching"},
        {"objective": "discrete-marginalisation", "neighbours": 0},
    )

    @declared
    class Config:
        """CSM's options."""

        neighbourhood: str = option(
            "neighbours: hamming, cycle, grid or star; these are any other token, the next ones up and down with wrap "
            "or without, or the first one",
            default="hamming",
        )
        objective: str = option(
            "csm, denoising, score-entropy, or a baseline; the baselines are ratio-matching and "
            "discrete-marginalisation",
            default="csm",
        )
        neighbours: int = option(
            "reversed neighbours per text (replaced tokens, of the baselines); 0 takes all of them",
            default=1,
            minimum=0,
        )
        noise: float = option("chance that denoising replaces a token uniformly", default=0.1, above=0, below=1)
        positive: bool | None = option(
            "the network gives log p(y)/p(x), not p(y)/p(x) - 1; score-entropy and the baselines need it", default=None
        )
        forward_neighbours: int = option(
            "csm and score-entropy: neighbours sampled for each text in the first sum; 0 takes all, in one network "
            "evaluation",
            default=0,
            minimum=0,
        )

    def __init__(
        self, network: nn.Module | None, vocabulary: int, shape: tuple[int, ...], config: Config | None = None
    ):
        config = self.checked(config)
        objective, baseline = config.objective, config.objective in BASELINES
        positive = baseline or objective == "score-entropy"
        if positive and config.positive is False:
            raise InputError(f"`objective` {objective} needs `positive` True; it takes the logarithm of the ratios")
        if baseline and config.neighbourhood != "hamming":
            raise InputError(
                f"`objective` {objective} compares all tokens of a position, and {config.neighbourhood} joins some; "
                "use `neighbourhood` hamming"
            )
        if vocabulary < 2:
            raise InputError(
                "csm learns ratios of neighbours, and one token has no neighbour; give data of two tokens or more"
            )
        super().__init__(network, vocabulary, shape, config)
        self.neighbourhood = NEIGHBOURHOODS[config.neighbourhood](vocabulary)
        self.positive = positive if config.positive is None else config.positive

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary

    @classmethod
    def timed(cls, config):
        return False

    @checked
    def predict(
        self,
        x_t: Tensor,
        t: Tensor | float = 0.0,
        *,
        at: Tensor | None = None,
        condition: Tensor | None = None,
        context: Any = None,
        segments: Tensor | None = None,
    ) -> DataScore:
        """Concrete score of texts x_t (B, L), which have no time; `at` (B, L) bool as in `Diffusion.predict`."""
        refuse_times(self, x_t, t, at)
        refuse_tokens(x_t, self.vocabulary)
        h, x = self.hidden(x_t, None, Batch(x_t, None, segments, condition), context), x_t
        if at is not None:
            h, x = h[at], x[at]
        v = torch.where(self.neighbourhood.of(x), self._score(self.logits(h).double()) + 1, 0.0)  # (1)
        return DataScore(v.scatter(-1, x[..., None], 1.0), x)

    def _score(self, logits: Tensor) -> Tensor:
        """c_theta from the network's output."""
        return logits.expm1() if self.positive else logits

    def terms(self, batch, generator=None):
        raise NoBound(
            "csm defines no likelihood bound; evaluate its loss or, where texts can be enumerated, `estimator` "
            "divergence"
        )

    def estimators(self):
        return {"loss": Estimator(self.loss, "its own loss, no likelihood")}

    # ---------------------------------------------------------------------------------- the objectives
    def loss(self, batch, generator=None):
        if self.config.objective == "denoising":
            return self._denoising(batch, generator)
        if self.config.objective in BASELINES:
            return self._conditionals(batch, generator)
        entropy = self.config.objective == "score-entropy"

        def first(logits: Tensor, x: Tensor, _: Tensor) -> Tensor:  # of (5) and (7)
            c = self._score(logits)
            return c + 1 if entropy else c * (c + 2)  # (7) or (5), the first sum

        y, k, forward = batch.tokens, self.config.neighbours, self.config.forward_neighbours
        rows, x, position, weight = self.neighbourhood.reversed_texts(y, batch.counted, k, generator)
        i = torch.arange(len(rows), device=rows.device)
        h = self.hidden(x, None, batch.take(rows))[i, position]
        outputs = self.logits(h).gather(-1, y[rows, position][:, None])[:, 0].double()  # at x, for y
        second = weight * (outputs if entropy else 2 * self._score(outputs))  # the second
        value = self._drawn(batch, first, forward, generator) if forward else self._sum(batch, y, first)
        return value.index_add(0, rows, -second)  # (5), or (7)

    def _conditionals(self, batch: Batch, generator: Randomness) -> Tensor:
        """(8) and (9), (B,)."""
        y = batch.tokens
        rows, x, position, weight = self.neighbourhood.replaced(y, batch.counted, self.config.neighbours, generator)
        i = torch.arange(len(rows), device=rows.device)
        logits = self.logits(self.hidden(x, None, batch.take(rows))[i, position]).double()
        log_q = logits.scatter(-1, x[i, position][:, None], 0.0).log_softmax(-1)  # v of the token itself is 1
        value = weight * BASELINES[self.config.objective](log_q, y[rows, position])
        return torch.zeros(len(y), dtype=torch.float64, device=y.device).index_add(0, rows, value)

    def _drawn(self, batch: Batch, f: Callable[..., Tensor], k: int, generator: Randomness) -> Tensor:
        """Estimate `_sum` of f at the texts themselves from k neighbours of each: (B,)."""
        x = batch.tokens
        rows, position, token, weight = self.neighbourhood.neighbours(x, batch.counted, k, generator)
        logits = self.logits(self.hidden(x, None, batch)[rows, position]).gather(-1, token[:, None])
        value = weight * f(logits, x[rows, position], x[rows, position])[:, 0].double()
        return torch.zeros(len(x), dtype=torch.float64, device=x.device).index_add(0, rows, value)

    def _denoising(self, batch: Batch, generator: Randomness) -> Tensor:
        """(6), (B,)."""
        x, V = batch.tokens, self.vocabulary
        distribution = torch.full((V,), 1 / V, dtype=torch.float64, device=x.device)
        z = torch.where(batch.counted, random.replace(x, self.config.noise, distribution, generator), x)
        q_other, q_same = self.config.noise / V, 1 - self.config.noise + self.config.noise / V

        def each(logits: Tensor, z: Tensor, x: Tensor) -> Tensor:
            of_y = torch.full_like(logits, q_other).scatter(-1, x[:, None], q_same)  # q(y | x)
            return (self._score(logits) - of_y / of_y.gather(-1, z[:, None]) + 1).square()  # (6)

        return self._sum(batch, z, each)

    def _sum(self, batch: Batch, x: Tensor, f: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        """Sum over y in N(x) of f(logits, x, tokens of the batch) (N, V) at each position that counts:
        x (B, L) -> (B,)."""
        where = positions(batch.counted)
        x_at, tokens = where.of(x), where.of(batch.tokens)

        def each(logits: Tensor, i: slice) -> Tensor:
            return torch.where(self.neighbourhood.of(x_at[i]), f(logits, x_at[i], tokens[i]), 0.0).sum(-1).double()

        h = where.of(self.hidden(x, None, batch))
        return where.sum(each_position(self.network.head, h, self.vocabulary, each))
