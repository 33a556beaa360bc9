"""tauLDR's theorem 1 beside the error that it bounds, on an enumerated space: two positions of five states, uniform noise.

python studies/leaping/leaping_bound.py

The theorem (section 4.5) bounds the total variation between data and samples of N leaps of length tau = T/N, all the way from T
to 0, started from the stationary distribution:

    3 M T  +  [ (|R| S D C1)^2 + C2 (M + C1 S D |R|) / 2 ] tau T  +  2 exp(-T (log 2)^2 / (t_mix log 4D))

    S, D     states of a position, positions
    |R|      the largest rate at which a position leaves its state
    C1       the largest q_t(x) / q_t(y) of sequences that differ in one position, over all t
    C2       the largest sum over jumps of |Rhat_t(x, jump) - Rhat_t(x', jump)| of such x and x', over all t
    M        by how much the network's rates out of a sequence are wrong, in all: 0 of an exact network
    t_mix    the time after which a single position is within 1/4 of the stationary distribution

Everything is computed: C1 and C2 as the largest values on a grid of times, the error as a product of transition matrices. T is
the time at which the last term is `LAST`.
"""

import itertools
import math

import torch
from leaping import joint
from torch import Tensor

from zellige import exact
from zellige.core.curves import LinearSigma
from zellige.core.prediction import reverse_rate
from zellige.core.process import uniform
from zellige.plugins.verify.identities.check import numbers
from zellige.samplers.tau_leaping import single_distribution

S, D = 5, 2
LAST = 0.01
STEPS = (64, 256, 1024, 4096, 16384)
TIMES = 400  # of the grid on which C1 and C2 are looked for
R = (S - 1) / S  # noise puts a uniform state in the place of the old one at rate 1
T_MIX = math.log(4 * (S - 1) / S)
T = T_MIX * math.log(4 * D) / math.log(2) ** 2 * math.log(2 / LAST)
X = exact.states(S, D)


def worlds() -> dict[str, exact.Denoiser]:
    """The exact networks of two distributions; t = 1 is the time T."""
    weights = numbers(S**D)
    data = {"uneven": (1.05 + weights) ** 2, "nearly even": 1.2 + 0.2 * weights.clamp(-1, 1)}
    return {name: exact.Denoiser(uniform(S, LinearSigma(0.0, T)), w / w.sum(), D) for name, w in data.items()}


def neighbours() -> list[tuple[int, int]]:
    """Sequences that differ in one position."""
    return [(a, b) for a, b in itertools.permutations(range(len(X)), 2) if int((X[a] != X[b]).sum()) == 1]


def rates(method: exact.Denoiser, t: float) -> Tensor:
    """Reverse rates (N, D, S) per unit of time, not of T."""
    return reverse_rate(method.predict(X, torch.full(X.shape, t, dtype=torch.float64))) / T


@torch.no_grad()
def constants(method: exact.Denoiser) -> tuple[float, float]:
    """C1 and C2."""
    a, b = torch.tensor(neighbours()).T
    c_1 = c_2 = 0.0
    for t in torch.linspace(0.0, 1.0, TIMES, dtype=torch.float64).square().tolist():
        q = exact.marginal(method.process, method.distribution, D, t)
        c_1 = max(c_1, float((q[a] / q[b]).max()))
        if t > 0:
            each = rates(method, t)
            c_2 = max(c_2, float((each[a] - each[b]).abs().sum((1, 2)).max()))
    return c_1, c_2


def bound(c_1: float, c_2: float, steps: int, M: float = 0.0) -> tuple[float, float, float]:
    """The three terms of theorem 1."""
    leaving = R * S * D * c_1
    last = 2 * math.exp(-T * math.log(2) ** 2 / (T_MIX * math.log(4 * D)))
    return 3 * M * T, (leaving**2 + c_2 * (M + leaving) / 2) * T * T / steps, last


@torch.no_grad()
def error(method: exact.Denoiser, steps: int) -> float:
    """Total variation between the data and samples of so many leaps."""
    distribution = method.process.prior[X].prod(-1)
    for times in (1 - torch.arange(steps, dtype=torch.float64) / steps).split(512):
        states, t = X.repeat(len(times), 1), times.repeat_interleave(len(X))[:, None].expand(-1, D)
        leap = single_distribution(states, reverse_rate(method.predict(states, t)) / steps)
        for matrix in joint(leap).reshape(len(times), len(X), -1):
            distribution = distribution @ matrix
    return float((distribution - method.distribution).abs().sum()) / 2


def main() -> None:
    torch.set_num_threads(1)
    print(f"S = {S}, D = {D}, |R| = {R:g}, t_mix = {T_MIX:.3f}, T = {T:.2f}, M = 0 (exact network)")
    for name, method in worlds().items():
        c_1, c_2 = constants(method)
        noisy = exact.marginal(method.process, method.distribution, D, 1.0)
        prior = float((noisy - method.process.prior[X].prod(-1)).abs().sum()) / 2
        print(f"\n{name}: C1 = {c_1:.2f}, C2 = {c_2:.2f}; q_T is {prior:.1e} from the stationary distribution\n")
        print("| steps | error | bound | its term in tau | its term in T | bound / error |\n|" + "---|" * 6)
        for steps in STEPS:
            terms, away = bound(c_1, c_2, steps), error(method, steps)
            total = sum(terms)
            print(f"| {steps:,} | {away:.1e} | {total:.1e} | {terms[1]:.1e} | {terms[2]:.1e} | {total / away:.0e} |")
        leaving = bound(c_1, c_2, 1)[1]
        print(f"\nsteps from which the bound is below 1: {math.ceil(leaving / (1 - LAST)):,}")


if __name__ == "__main__":
    main()
