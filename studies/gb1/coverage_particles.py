"""How often the interval of log Z of weighted particles (`samplers.smc.Constant`) holds the truth, with a rare reward.

    python studies/gb1/coverage_particles.py                                          # 1,296 texts
    python studies/gb1/coverage_particles.py --gb1 shared/data/gb1/gb1_four_sites.csv.xz    # 160,000 proteins

A masked model of four tokens with the exact network: a table of all sums of p. The reward is the logarithm of a probability
that is nearly 0 for most of p, as in `studies/gb1/gb1.py`. Its mean over the T-step model is known by enumeration. Every repeat
has n groups of its own; those with fewer groups are a part of the others. In percent; refused intervals count apart.
"""

import argparse
import itertools
import math
from pathlib import Path

import torch
from gb1 import ACIDS, LENGTH, read
from torch import Tensor
from torch.nn.functional import logsigmoid

from zellige import exact
from zellige.core import maths
from zellige.core.curves import Linear
from zellige.core.prediction import restricted
from zellige.core.process import absorbing
from zellige.methods.diffusion import Diffusion
from zellige.samplers import Rewarded, Smc, run
from zellige.samplers.smc import Constant


class Table(Diffusion):
    """A masked method with the exact network of p (V^L,): p is summed over each set of positions once."""

    name = "exact"
    parameterization = "mean"

    def __init__(self, p: Tensor, vocabulary: int, length: int):
        super().__init__(vocabulary=vocabulary, shape=(length,), process=absorbing(vocabulary + 1, Linear()))
        sums = p.reshape([vocabulary] * length)
        for i in range(length):
            sums = torch.cat((sums, sums.sum(i, keepdim=True)), i)  # the mask comes last
        self.sums = sums.flatten()

    def predict(self, x_t, t, *, at=None, condition=None, context=None, segments=None):
        K, L = self.process.K, x_t.shape[1]
        at = torch.ones_like(x_t, dtype=torch.bool) if at is None else at
        row, i = at.nonzero(as_tuple=True)
        stride = K ** (L - 1 - i)
        without = exact.index(x_t, K)[row] - x_t[row, i] * stride
        joint = self.sums[without[:, None] + torch.arange(K) * stride[:, None]] * self.process.clean
        joint = torch.where(joint.sum(-1, keepdim=True) > 0, joint, self.process.clean.to(joint))
        t = torch.as_tensor(t, dtype=torch.float64).expand(x_t.shape)
        return restricted(self.process, maths.normalise(joint), x_t[at], t[at])


def landscape(vocabulary: int, length: int, seed: int) -> Tensor:
    """Random numbers of all texts (V^L,): sums of one for each token and each pair."""
    g, X = torch.Generator().manual_seed(seed), exact.states(vocabulary, length)
    value = torch.zeros(len(X), dtype=torch.float64)
    for i in range(length):
        value += torch.randn(vocabulary, generator=g, dtype=torch.float64)[X[:, i]]
    for i, j in itertools.combinations(range(length), 2):
        value += torch.randn(vocabulary, vocabulary, generator=g, dtype=torch.float64)[X[:, i], X[:, j]]
    return value


def small(vocabulary: int = 6, length: int = 4, rare: float = 0.08) -> tuple[Table, Tensor]:
    """A model, and log P(fit) of each text (V^L,): a steep function of another landscape, above 1/2 for `rare` of p."""
    p, fitness = landscape(vocabulary, length, 0).softmax(0), landscape(vocabulary, length, 1)
    order = fitness.argsort(descending=True)
    least = fitness[order[int((p[order].cumsum(0) < rare).sum())]]
    return Table(p, vocabulary, length), logsigmoid(8 * (fitness - least))


def proteins(file: str) -> tuple[Table, Tensor]:
    """The same of GB1: p in proportion to fitness, fit above 4.5."""
    fitness = read(file).nan_to_num(0.0)
    return Table(fitness / fitness.sum(), len(ACIDS), LENGTH), logsigmoid(6 * (fitness - 4.5))


def log_z(method: Table, reward: Tensor, sampler: Smc, steps: int, count: int, seed: int, batch: int = 4000) -> Tensor:
    """log Z of so many groups (count,)."""
    g, values = torch.Generator().manual_seed(seed), []
    rewarded = Rewarded(method, lambda x, _: reward[exact.index(x, method.vocabulary)])
    for n in torch.arange(count).split(batch):
        *_, last = run(sampler, rewarded, (len(n), method.shape[0]), steps, generator=g)
        values.append(last.memory.log_z)
    return torch.cat(values)


def truth(method: Table, reward: Tensor, steps: int) -> float:
    """log Z of the T-step model, by enumeration."""
    q = exact.model_distribution(method, Smc().times(method, steps))
    clean = method.process.clean[exact.states(method.process.K, method.shape[0])].all(-1)
    return float((q[clean].log() + reward).logsumexp(0))


def held(values: Tensor, right: float) -> tuple[int, int]:
    """Of the sets of groups (repeats, n): how many have an interval, and how many of these hold the truth."""
    made = [Constant.of(row) for row in values]
    given = [one for one in made if one.half < math.inf]
    return len(given), sum(abs(one.value - right) <= one.half for one in given)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb1", type=Path)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--numbers", type=int, nargs="+", default=[4, 16, 100], help="groups of an interval")
    parser.add_argument("--particles", type=int, nargs="+", default=[8])
    parser.add_argument("--lookaheads", type=int, nargs="+", default=[4, 0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    method, reward = small() if chosen.gb1 is None else proteins(chosen.gb1)
    right, most = truth(method, reward, chosen.steps), max(chosen.numbers)
    print(f"{method.vocabulary}^{method.shape[0]} texts, log Z {right:.3f}, {chosen.repeats:,} repeats\n")
    print(
        "| particles | lookahead | Z / its mean | variance of it | "
        + " | ".join(f"n = {n}" for n in chosen.numbers)
        + " |"
    )
    print("|---" * (4 + len(chosen.numbers)) + "|")
    for particles, lookahead in itertools.product(chosen.particles, chosen.lookaheads):
        sampler = Smc(particles=particles, lookahead=lookahead)
        values = log_z(method, reward, sampler, chosen.steps, chosen.repeats * most, chosen.seed)
        z = (values - right).exp()
        cells = [str(particles), str(lookahead)]
        cells += [f"{float(z.mean()):.3f} ± {1.96 * float(z.std()) / math.sqrt(len(z)):.3f}", f"{float(z.var()):.2f}"]
        for n in chosen.numbers:
            given, right_ones = held(values.reshape(-1, most)[:, :n], right)
            refused = chosen.repeats - given
            cells.append(f"{100 * right_ones / given:.1f}%, {100 * refused / chosen.repeats:.1f}% refused")
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
