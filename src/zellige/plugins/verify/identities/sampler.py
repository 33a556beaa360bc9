"""Samplers on a method: the distribution of what they draw, as a product of the transition matrices of their code."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zellige.core import maths
from zellige.core.batch import Batch
from zellige.core.curves import Linear, LinearSigma
from zellige.core.prediction import posterior
from zellige.core.process import Process, absorbing, uniform
from zellige.core.schedule import CLEAN, PRIOR, Tabulated
from zellige.exact import bounds, enumeration, insertion, metropolis, script
from zellige.exact.distributions import joint_kernel
from zellige.methods.diffusion import Diffusion
from zellige.methods.flexmdm import FlexMDM
from zellige.methods.gidd import Hybrid
from zellige.methods.method import Method
from zellige.samplers import (
    P2,
    SAMPLERS,
    Ancestral,
    AnyOrder,
    Blockwise,
    Confidence,
    FirstHitting,
    FixedOrder,
    Klass,
    LeftToRight,
    Remasking,
    Sampler,
    State,
    TauLeaping,
    Truncated,
    Uniformisation,
    run,
)
from zellige.samplers.ancestral import Argmax
from zellige.samplers.pairing import OWN, of_length
from zellige.samplers.predict import clean_where_fixed, expected_time
from zellige.samplers.replay import Replayed, weigh
from zellige.samplers.sampler import start_distribution

from .blocks import next_distributions, of_tokens
from .bound import grid
from .check import (
    L,
    Largest,
    Row,
    V,
    above,
    again,
    apart,
    data_distribution,
    discrete,
    end_at,
    ends,
    every_state,
    fits,
    marginal,
    numbers,
    of_clean,
    of_order,
    one_alpha,
    own,
    shared,
    truth_of,
)

SAMPLER = "sampler"
GIVEN = torch.tensor([1, -1])
MISTAKEN = 1e-6  # where a distribution cannot be enumerated: the chance that the test of draws rejects what is right


def distance(
    method: Method, sampler: Sampler, steps: int, fixed: Tensor | None = None, clean_times: bool = True
) -> float:
    """Total variation between the distribution of the sampler's samples and the data's, given `fixed`, with the exact
    network.

    `clean_times` is whether the network's time input is CLEAN at given positions, or one time for all.
    """
    if isinstance(method, FlexMDM):
        weights = (1.05 + numbers(len(insertion.texts(V, L)))) ** 2
        p, config = weights / weights.sum(), method.config
        return apart(insertion.sampled_distribution(sampler, insertion.exact_method(config, V, L, p), steps, fixed), p)  # pyright: ignore
    if not isinstance(method, Diffusion):
        denoiser, distribution = metropolis.Scores(method.neighbourhood, data_distribution(), L), data_distribution()
    else:
        denoiser = truth_of(method)
        if not clean_times:
            denoiser = _OneTime(method.process, data_distribution(), L, method.parameterization)
        if sampler.reason_against(denoiser):  # it reads hidden states
            denoiser = with_hidden_states(method)
        distribution = enumeration.embed(method.process, data_distribution(), L)
    X = enumeration.states(len(start_distribution(method)), L)
    if fixed is not None:
        distribution = distribution * ((fixed == X) | (fixed < 0)).all(-1)
    draws = drawn(sampler, method)
    samples = (
        counts(sampler, denoiser, draws) / draws
        if draws
        else script.sample_distribution(sampler, denoiser, steps, fixed)
    )
    return apart(samples, distribution / distribution.sum())


def with_hidden_states(method: Diffusion) -> Diffusion:
    """The method whose table of logits is the exact network of absorbing noise, which does not depend on the time."""
    exact, X = deepcopy(method), enumeration.states(method.process.K, L)
    p = posterior(truth_of(method).predict(X, torch.full(X.shape, 0.5, dtype=torch.float64)))
    table = exact.network.logits.data
    table.zero_()
    table[0] = p.clamp_min(1e-300).log()
    return exact


def drawn(sampler: Sampler, method: Method) -> int:
    """Number of samples that stand for the distribution of a sampler with thinning, which cannot be enumerated; 0 for
    others."""
    if isinstance(sampler, Uniformisation):
        return 20_000  # each waits for dozens of candidates
    return 100_000 if isinstance(sampler, FirstHitting) and not one_alpha(method) else 0


def counts(sampler: Sampler, method: Method, draws: int, fixed: Tensor | None = None, seed: int = 0) -> Tensor:
    """How many samples, given `fixed` (L,), are each sequence, (K^L,)."""
    given, K = None if fixed is None else fixed.expand(draws, -1), len(start_distribution(method))
    *_, last = run(sampler, method, (draws, L), fixed=given, generator=torch.Generator().manual_seed(seed))
    return enumeration.index(last.x, K).bincount(minlength=K**L)


def chi_square(counts: Tensor, exact: Tensor, identity: str) -> Row:
    """Of the counts of samples against their exact distribution, (K^L,) each; what is impossible counts in full."""
    draws, possible = int(counts.sum()), exact > 0
    means, freedom = draws * exact[possible], int(possible.sum()) - 1
    chi_2 = (counts[possible] - means).square().div(means).sum() + draws * int(counts[~possible].sum())
    p = float(torch.special.gammaincc(torch.tensor(freedom / 2).double(), (chi_2 / 2).double()))
    where = f"{draws:,} draws, chi-square {float(chi_2):.1f} with {freedom} degrees of freedom"
    return above(SAMPLER, identity, p, MISTAKEN, f"≥ {MISTAKEN:.0e}", where)


def of_draws(method: Diffusion, sampler: Sampler, identity: str) -> Row:
    """The same of samples with the exact network against the data's distribution."""
    exact = enumeration.embed(method.process, data_distribution(), L)
    return chi_square(counts(sampler, truth_of(method), drawn(sampler, method)), exact, identity)


class _OneTime(enumeration.Denoiser):
    """The exact network of noise that is the same at all positions, as most are trained."""

    def predict(self, x_t, t, *, at=None, condition=None, context=None, segments=None):
        return super().predict(x_t, torch.as_tensor(t, dtype=torch.float64).expand(x_t.shape).amax(-1, True), at=at)


# ---------------------------------------------------------------------------------- what each sampler claims
def starts(method: Diffusion) -> bool:
    """Return whether sampling starts from the distribution of x_1: uniform noise starts from the prior, so alpha(1)
    must be small."""
    process, _ = method.process, ends(method, 1e-6)
    return apart(marginal(process, process.start_time), process.prior[enumeration.states(process.K, L)].prod(-1)) < 1e-5


def _even(method: Diffusion, sampler: Sampler | None = None) -> bool:
    """Return whether the order shows only with steps even in log SNR: noise that does not absorb, at a constant rate,
    with leaps, or of a schedule that begins steeply.

    With steps even in t the last ones, of size 1/T, are large there against t itself, and the error is log(T) / T, or
    more.
    """
    schedule = getattr(method.process, "schedule", None)
    steep = isinstance(schedule, Hybrid) and schedule.gamma < 2
    constant = isinstance(schedule, LinearSigma) or steep
    return (constant or isinstance(sampler, TauLeaping)) and method.process.mask is None


def _slowed(method: Diffusion) -> bool:
    """Return whether the same holds in discrete time, which has no other steps: linear alpha without a mask (`middle`
    of D3PM)."""
    schedule = getattr(method.process, "schedule", None)
    if not isinstance(schedule, Tabulated) or method.process.mask is not None:
        return False
    decrease = schedule.table.diff()
    return torch.allclose(decrease, decrease[0])


def order(
    method: Diffusion,
    sampler: Sampler,
    identity: str,
    of: Callable[[Any, Any, int], float] = distance,
    group: str = SAMPLER,
) -> Iterator[Row]:
    """The order in 1/T at which the distribution of the samples approaches the data's; the claim is 1, or that of
    log(T) / T.

    `of` is the distance after T steps."""
    if _even(method, sampler):
        sampler = replace(sampler, grid="log-snr")
    if starts(method):
        a, b = (of(method, sampler, steps) for steps in (64, 128))
        where = f"distance {a:.2e} at T = 64, {b:.2e} at T = 128"
        claim = round(math.log2(2 * math.log(64) / math.log(128)), 1) if _slowed(method) else 1.0
        yield of_order(group, identity, a, b, claim, where=where)


def _converges(name: str) -> None:
    @own(f"sampler.{name}")
    @torch.no_grad()
    def converges(method: Diffusion):
        if SAMPLERS[name].reason_against(method) is None:
            yield from order(method, SAMPLERS[name](), f"{name}  order in 1/steps, claims 1")


for _name, _sampler in SAMPLERS.items():
    if _sampler.convergence == 1:
        _converges(_name)


@own("sampler.ancestral-grids")
@torch.no_grad()
def the_cosine_grid_converges(method: Diffusion):
    if Ancestral.reason_against(method) is None and not discrete(method) and not _even(method):
        yield from order(method, Ancestral("cosine"), "ancestral, cosine grid  order, claims 1")


@own("sampler.ancestral-choose", fits(Ancestral))
@torch.no_grad()
def choosing_first_is_the_kernel(method: Diffusion):
    """On a network that is not exact: the plain kernel, and the T-step model whose likelihood is bounded."""
    worst = Largest()
    for steps in (1, 2, 4):
        by_choice, by_kernel = (script.sample_distribution(Ancestral(choose=c), method, steps) for c in (True, False))
        worst.see(by_choice, by_kernel, f"T = {steps}")
        model = bounds.log_likelihood(method, grid(method, steps)).exp()
        worst.see(of_clean(method, by_kernel), model, f"T = {steps}, p(x) of the model")
    yield worst.row(SAMPLER, "ancestral, chosen first = plain kernel = p(x)")


@own("sampler.ancestral-argmax", fits(Ancestral))
@torch.no_grad()
def argmax_is_the_mode_of_the_kernel(method: Diffusion):
    """On a network that is not exact: the step from x_t goes to the likeliest x_s of the kernel's joint
    distribution."""
    worst, state = Largest(), every_state(method)
    X = state.x
    for t, s in itertools.pairwise(Ancestral().times(method, 4)[1:]):  # at PRIOR most states are impossible
        time = (t.expand(len(X), 1), s.expand(len(X), 1))
        transition = script.transition(Ancestral(choose=False), method, state, *time)
        mode = torch.nn.functional.one_hot(transition.argmax(-1), len(X)).double()
        ways: tuple[Argmax, ...] = ("every", "last") if s == CLEAN else ("every",)
        for argmax in ways:
            step = script.transition(Ancestral(argmax=argmax), method, state, *time)
            worst.see(step, mode, f"{argmax}, t = {float(t)}")
    yield worst.row(SAMPLER, "ancestral, argmax = the mode of its kernel")


def race(p: Tensor, m: float) -> Tensor:
    """P(i) = integral of p_i exp(-sum_j max(p_j t - m, 0)) over t > m / p_i, by quadrature between the kinks: (K,)."""
    nodes, weights = (torch.from_numpy(x) for x in np.polynomial.legendre.leggauss(30))
    out = torch.zeros_like(p)
    for i in torch.nonzero(p).flatten().tolist():
        begin = float(m / p[i])
        ends = [begin, *(begin + 2.0**k for k in range(8))]  # at a rate of 1/K or more nothing is left after 128
        kinks = sorted({*ends, *(a for q in p[p > 0].tolist() if begin < (a := m / q) < ends[-1])})
        for a, b in itertools.pairwise(kinks):
            t = (a + b) / 2 + (b - a) / 2 * nodes
            hazard = (p[:, None] * t - m).clamp_min(0).sum(0)
            out[i] += p[i] * (b - a) / 2 * (weights * (-hazard).exp()).sum()
    return out


@own("sampler.ancestral-gumbel", fits(Ancestral))
@torch.no_grad()
def truncated_gumbel_noise_is_its_race(method: Diffusion):
    """A step with Gumbel noise of few bits, from the kernel's marginals by integrals;
    of 53 bits it is the kernel itself."""
    worst, state = Largest(), every_state(method)
    X = state.x
    for t, s in itertools.pairwise(Ancestral().times(method, 3)):
        time = (t.expand(len(X), 1), s.expand(len(X), 1))
        kernel = script.transition(Ancestral(choose=False), method, state, *time)
        many = script.transition(Ancestral(gumbel_bits=53), method, state, *time)
        worst.see(many, kernel, f"53 bits, t = {float(t)}")
        rows = torch.linspace(0, len(X) - 1, 3).long()  # of the states, three
        for bits in (1, 5):
            truncated = script.transition(Ancestral(gumbel_bits=bits), method, state, *time)
            for row in rows.tolist():
                marginals = [
                    torch.zeros(method.process.K, dtype=torch.float64).index_add(0, X[:, i], kernel[row])
                    for i in range(L)
                ]
                races = [race(p, -math.log1p(-(2.0**-bits))) for p in marginals]
                joint = math.prod(p[X[:, i]] for i, p in enumerate(races))
                worst.see(truncated[row], joint, f"{bits} bits, t = {float(t)}")
    yield worst.row(SAMPLER, "ancestral, gumbel bits = truncated race")


def _exact(key: str, identity: str, *samplers: Any) -> None:
    @own(key)
    @torch.no_grad()
    def draws_the_data_distribution(method: Diffusion):
        worst = Largest()
        for sampler in samplers:
            if sampler.reason_against(method) is not None or not one_alpha(method):
                return
            worst.see(distance(method, sampler, L), 0.0, "exact network")
        yield worst.row(SAMPLER, identity)


_exact("sampler.first_hitting", "first_hitting = the data distribution", FirstHitting())
_exact("sampler.any_order", "any_order = the data distribution", AnyOrder())
_exact("sampler.fixed_order", "fixed_order = the data distribution", *map(FixedOrder, ("forward", "backward", "1,0")))
ONE_A_STEP = (Confidence("margin"), Confidence("entropy"), Confidence(per_step=1), Confidence(factor=1e-6))
_exact("sampler.confidence", "confidence, one a step = data distribution", *ONE_A_STEP, Confidence(entropy_bound=0.0))
BOUNDS = (0.05, 0.2, 0.5, 1.0)  # of entropy, nats: the smallest reveals one a step, the largest both
NETWORK_CHOOSES = (  # several rules, and what each makes of a network that is not exact
    *(Confidence(entropy_bound=bound) for bound in BOUNDS),
    *(Confidence(factor=factor) for factor in (0.5, 1.5, 2.5)),
    *(Confidence(threshold=threshold) for threshold in (0.3, 0.6)),
    Klass(threshold=0.2, kl=0.5, history=1),
)


@own("sampler.confidence-error", fits(Confidence))
@torch.no_grad()
def an_entropy_bound_bounds_the_error(method: Diffusion):
    """With the exact network: KL(data || samples) <= g E[steps], as EB promises;
    steps counted by the sampler itself."""
    if not one_alpha(method):
        return
    truth, X = truth_of(method), enumeration.states(V, L)
    data, rows, worst = data_distribution(), Batch(X), Largest()
    for bound in BOUNDS:
        sampler = Confidence(entropy_bound=bound)
        samples = script.sample_distribution(sampler, truth, L)
        steps = weigh(truth, rows, Replayed(sampler, OWN)).calls.double()
        missed = maths.kl(data, samples[enumeration.index(X, method.process.K)])
        worst.see((missed - bound * (data * steps).sum()).clamp_min(0.0), 0.0, f"bound {bound} nats")
    yield worst.row(SAMPLER, "confidence, entropy bound: KL <= g E[steps]")


@own("sampler.confidence-distribution", fits(Confidence))
@torch.no_grad()
def a_choice_of_the_network_has_a_likelihood(method: Diffusion):
    """On a network that is not exact: the probability of each text, by the sampler's own code,
    is how often it is written."""
    worst, X = Largest(), enumeration.states(V, L)
    for sampler in NETWORK_CHOOSES:
        likelihood = weigh(method, Batch(X), Replayed(sampler, OWN)).log_w.sum(-1).exp()
        if isinstance(sampler, Klass):  # it has a memory
            samples = script.run_distribution(sampler, method, L)
        else:
            samples = script.sample_distribution(sampler, method, L)[enumeration.index(X, method.process.K)]
        worst.see(likelihood, samples, f"{sampler.name} {sampler}")
    yield worst.row(SAMPLER, "confidence, klass = exp(their likelihood)")


@own("sampler.klass", fits(Klass))
@torch.no_grad()
def settled_tokens_are_the_data(method: Diffusion):
    """With the exact network, where a token settles only once it is certain."""
    if not one_alpha(method):
        return
    worst, sampler = Largest(), Klass(threshold=1.0)
    samples = script.run_distribution(sampler, truth_of(method), L)
    worst.see(samples, data_distribution(), "threshold 1")
    yield worst.row(SAMPLER, "klass, certain tokens = data distribution")


@own("sampler.p2", fits(P2))
@torch.no_grad()
def p2_keeps_the_likeliest(method: Diffusion):
    """Its distribution, summed over all that may be drawn, beside that of its definition, followed text by text."""
    worst = Largest()
    for eta, steps, first in ((1.5, 2, -1), (0.4, 3, -1), (0.0, 2, -1), (1.5, 2, 1)):
        fixed = torch.tensor([first] + [-1] * (L - 1))
        samples = script.run_distribution(P2(eta), method, L, steps, fixed)
        wanted = torch.zeros(V**L, dtype=torch.float64)
        for x, probability in _followed(method, eta, steps, fixed).items():
            wanted[enumeration.index(torch.tensor(x), V)] += probability
        worst.see(samples, wanted, f"eta {eta}, {steps} steps, {first} given")
    yield worst.row(SAMPLER, "p2 = its definition")


def _followed(method: Diffusion, eta: float, steps: int, fixed: Tensor) -> dict[tuple[int, ...], float]:
    """Distribution of the texts of P2 by its definition: every token that may be drawn, one text after another."""
    mask = method.process.mask_id
    own = [i for i in range(L) if fixed[i] < 0]
    texts = {tuple(mask if f < 0 else int(f) for f in fixed): 1.0}
    for step in range(1, steps + 1):
        masks_after, following = math.floor(len(own) * (steps - step) / steps + 1e-9), dict[tuple[int, ...], float]()
        for x, probability in texts.items():
            p, masks = _said(method, x, fixed), [i for i in own if x[i] == mask]
            for drawn in itertools.product(range(V), repeat=len(masks)):
                y = list(x)
                for i, token in zip(masks, drawn, strict=True):
                    y[i] = token
                score = {i: round(math.log(p[i][y[i]]) * (1 if i in masks else eta), 5) for i in own}
                chance = probability * math.prod(p[i][y[i]] for i in masks)
                for i in sorted(own, key=lambda i: (score[i], -i))[:masks_after]:
                    y[i] = mask
                following[*y] = following.get((*y,), 0.0) + chance
        texts = following
    return texts


def _said(method: Diffusion, x: Sequence[int], fixed: Tensor) -> list[list[float]]:
    """What the network says about each position of a text, masks or not."""
    state = State(torch.tensor([x]), fixed[None] >= 0, torch.zeros(1))
    time = clean_where_fixed(method, state, expected_time(method, state))
    masks = torch.full_like(state.x, method.process.mask_id)
    pred = method.read(method.logits(method.hidden(state.x, time)), masks, time)
    return maths.normalise(posterior(pred).double())[0].tolist()


@own("sampler.fixed_order-distribution")
@torch.no_grad()
def an_order_is_the_likelihood_in_it(method: Diffusion):
    """Of a network that is not exact."""
    worst, exact = Largest(), method.estimators()
    if FixedOrder.reason_against(method) is not None or not {"forward", "backward"} <= exact.keys():
        return
    for order in ("forward", "backward"):
        samples = of_clean(method, script.sample_distribution(FixedOrder(order), method, L))
        worst.see(samples, (-exact[order](Batch(enumeration.states(V, L)))).exp(), order)
    yield worst.row(SAMPLER, "fixed_order = exp(-its exact likelihood)")


@own("sampler.any_order-distribution")
@torch.no_grad()
def one_at_a_time_is_the_mean_over_orders(method: Diffusion):
    """Of a network that is not exact: whose distribution one token at a time has; with a jump of 0.1 at each end of
    time it is another."""
    one_by_one = (FirstHitting(), AnyOrder())
    if any(sampler.reason_against(method) for sampler in one_by_one) or not end_at(method, 0.1, 0.9):
        return
    worst, mixtures = Largest(), Largest()
    each = [script.sample_distribution(FixedOrder(order), method, L) for order in ((0, 1), (1, 0))]
    orders = torch.stack(each).mean(0)
    together = script.sample_distribution(AnyOrder(per_step=L), method, 1)
    mixture = lambda w: (1 - w) * orders + w * together  # noqa: E731
    for sampler in one_by_one:
        worst.see(script.sample_distribution(sampler, method, L), orders, sampler.name)
    yield worst.row(SAMPLER, "any_order = first_hitting = mean over orders")
    for steps in (1, 2, 4, 8):
        inside = torch.linspace(1.0, 0.0, steps + 1, dtype=torch.float64)
        times = torch.cat((inside.new_tensor([PRIOR]), inside, inside.new_tensor([CLEAN])))
        w = method.process.schedule.alpha(times).diff(dim=0).square().sum()  # P(both positions in one step)
        samples = script.sample_distribution(Ancestral(), method, times)
        mixtures.see(samples, mixture(w), f"T = {steps} and the two jumps")
    yield mixtures.row(SAMPLER, "p(x), T steps = (1 - w) any_order + w at once")
    away = apart(orders, mixture(2 * 0.1**2))  # the steps are without end, the jumps stay
    where = "expected failure: total variation, alpha from 0.9 to 0.1, T without end"
    yield above(SAMPLER, "any_order = p(x) with jumps at the ends", away, 1e-3, "≥ 1e-03", where)


@own("sampler.first_hitting-drawn")
@torch.no_grad()
def first_hitting_draws_the_data_distribution(method: Diffusion):
    sampler = FirstHitting()
    if sampler.reason_against(method) is None and drawn(sampler, method):
        yield of_draws(method, sampler, "first_hitting  chi-square of draws, its p")


@own("sampler.remasking", fits(Remasking))
@torch.no_grad()
def remasking_keeps_the_marginals(method: Diffusion):
    """Given x_0, which the network knows, each step has the distribution q(x_s | x_0)."""
    worst = Largest()
    for kind in ("cap", "rescale") if discrete(method) else ("cap", "rescale", "loop"):
        sampler = Remasking(kind, eta=0.3)
        point = torch.zeros_like(data_distribution()).index_fill(0, torch.tensor(5), 1.0)
        x_0, times = enumeration.embed(method.process, point, L), sampler.times(method, 8)
        for distribution, t in zip(script.sample_distributions(sampler, truth_of(method, point), times), times):
            wanted = enumeration.marginal(method.process, x_0, L, float(t))
            worst.see(distribution, wanted, f"{kind}, t = {float(t):.3f}")
    yield worst.row(SAMPLER, "remasking  keeps q(x_s | x_0) at each step")


# ---------------------------------------------------------------------------------- from left to right
@own("sampler.blockwise", fits(Blockwise))
@torch.no_grad()
def blockwise_draws_the_model(method: Diffusion):
    """On a network that is not exact: the T-step model, whose likelihood is bounded, in each block."""
    worst, samples = Largest(), script.run_distribution(Blockwise(Ancestral()), method, L, 2)
    worst.see(samples, bounds.log_likelihood(method, grid(method, 2)).exp(), "T = 2")
    yield worst.row(SAMPLER, "blockwise, ancestral inside = p(x)")


@own("sampler.left_to_right", lambda method: method.parameterization == "next")
@torch.no_grad()
def left_to_right_draws_the_model(method: Diffusion):
    worst, X = Largest(), enumeration.states(method.vocabulary, L)
    worst.see(script.run_distribution(LeftToRight(), method, L), (-method.bound(Batch(X))).exp(), "all x")
    yield worst.row(SAMPLER, "left_to_right = p(x)")


# ---------------------------------------------------------------------------------- guidance
COLD = {"temperature": 0.6, "top_p": 0.8, "top_k": 2}


def by_definition(p: Tensor) -> Tensor:
    """Distributions (*, K) at the temperature, cut to a token that fewer than top_k are likelier than, and those
    likelier below top_p."""
    likelier = p[..., None, :] > p[..., :, None]
    p = torch.where(likelier.sum(-1) < COLD["top_k"], p ** (1 / COLD["temperature"]), 0.0)
    before = (likelier * p[..., None, :]).sum(-1)
    return maths.normalise(torch.where(before < COLD["top_p"] * p.sum(-1, keepdim=True), p, 0.0))


@own("sampler.guided", fits(Ancestral))
@torch.no_grad()
def guidance_changes_the_clean_posterior_alone(method: Diffusion):
    """On a network that is not exact: the guided posterior by its definition, and the T-step model that it makes."""
    distribution, worst = Largest(), Largest()
    wrapper: Any = Truncated(method, **COLD)
    X = enumeration.states(method.process.K, L)
    for t in (0.25, 0.75):
        time, context = torch.full(X.shape, t, dtype=torch.float64), method.clean(Batch(X))
        p_wrapped, p = (posterior(m.predict(X, time, context=context)).double() for m in (wrapper, method))
        distribution.see(p_wrapped, by_definition(p), f"t = {t}")
    yield distribution.row(SAMPLER, "guided p(x_0 | x_t) = cooled, top-k, top-p")
    for steps in (1, 2):
        p = bounds.log_likelihood(wrapper, grid(method, steps)).exp()
        for choose in (True, False):
            samples = script.sample_distribution(Ancestral(choose=choose), wrapper, steps)
            worst.see(of_clean(method, samples), p, f"T = {steps}, choose {choose}")
    yield worst.row(SAMPLER, "ancestral, guided = p(x) of the guided model")


@own("sampler.guided-next", lambda method: method.parameterization == "next")
@torch.no_grad()
def guidance_changes_the_distribution_of_the_next_token(method: Any):
    """Token by token, without a cache."""
    worst, X = Largest(), enumeration.states(method.vocabulary, L)
    p = of_tokens(by_definition(next_distributions(method, X)), X).prod(-1)
    worst.see(script.run_distribution(LeftToRight(**COLD), method, L), p, "all x")
    yield worst.row(SAMPLER, "left_to_right, guided = guided next tokens")


@own("sampler.guided-blocks", fits(Blockwise))
@torch.no_grad()
def guidance_holds_in_blocks_and_at_other_lengths(method: Diffusion):
    """On a network that is not exact: in blocks of one, token by token by definition; else the samples are those of the
    wrapped model, at every length that the method admits."""
    worst, difference = Largest(), Largest()
    wrapper: Any = Truncated(method, **COLD)
    for length in (1, L) if method.block else (L,):
        samples = script.run_distribution(Blockwise(Ancestral(), **COLD), method, length, 2)
        difference.see(samples, script.run_distribution(Blockwise(Ancestral()), wrapper, length, 2), f"length {length}")
    yield difference.row(SAMPLER, "blockwise, guided = of the guided model")
    if "block" not in vars(method.config):
        return
    model: Any = again(method, block=1)
    if AnyOrder.reason_against(of_length(model, 1)) is not None:
        return
    X = enumeration.states(V, L)
    p = of_tokens(by_definition(next_distributions(model, X)), X).prod(-1)
    worst.see(script.run_distribution(Blockwise(Ancestral(), **COLD), model, L, 1), p, "blocks of one")
    yield worst.row(SAMPLER, "blocks of one, guided = guided next tokens")


@own("sampler.calls")
@torch.no_grad()
def expected_calls_are_those_that_are_made(method: Diffusion):
    """With and without a prompt, every outcome followed: what a forecast of the time stands on."""
    worst, applies = Largest(), False
    for name in ("ancestral", "tau_leaping", "blockwise"):
        if SAMPLERS[name].reason_against(method) is not None:
            continue
        sampler: Any = SAMPLERS[name]()
        for fixed in (None, GIVEN):
            times = sampler.times(method, 2)
            forecast = sampler.expected_calls(method, times, L if fixed is None else int((fixed < 0).sum()))
            if forecast is None:
                continue
            applies = True
            calls = script.run_calls(sampler, method, L, 2, fixed)
            worst.see(calls, float(forecast), f"{name}, {'no prompt' if fixed is None else 'given [1, _]'}")
    if applies:
        yield worst.row(SAMPLER, "network evaluations expected = made, prompts too")


# ---------------------------------------------------------------------------------- given positions
@own("sampler.infill", fits(Ancestral))
@torch.no_grad()
def infilling_is_the_conditional_distribution(method: Diffusion):
    if not starts(method):
        return
    worst, ancestral = Largest(), Ancestral()
    if method.process.mask is not None:
        for sampler in (ancestral, FirstHitting(), AnyOrder()):
            if sampler.reason_against(method) is None and not drawn(sampler, method):
                worst.see(distance(method, sampler, 16, GIVEN), 0.0, f"{sampler.name}, given [1, _]")
        yield worst.row(SAMPLER, "infilling = the exact conditional")
        return
    worst.see(distance(method, ancestral, 16, GIVEN), 0.0, "given [1, _]")
    yield worst.row(SAMPLER, "infilling, time CLEAN = the conditional", 1e-5)
    away = [distance(method, ancestral, steps, GIVEN, clean_times=False) for steps in (64, 128, 256)]
    where = "expected failure: distances at T = 64, 128, 256: " + ", ".join(f"{d:.4f}" for d in away)
    limit = 2 * away[2] - away[1]  # the error in 1/T cancelled
    yield above(SAMPLER, "infilling, one time for all: wrong, limit", limit, 0.02, "≥ 0.02", where)


# ---------------------------------------------------------------------------------- a text, noised and denoised
# noise, what the network predicts, the time asked for, and the time that it begins at
RECONSTRUCTED: dict[str, tuple[Process, str, float, float]] = {
    "uniform": (uniform(V, Linear(0.05)), "leave_one_out", 0.3, 0.3),
    "absorbing": (absorbing(V + 1, Linear()), "mean", 0.5, 0.5),
    "T = 12": (uniform(V, Tabulated(torch.linspace(1.0, 0.05, 13).double())), "leave_one_out", 0.6, 7 / 12),
}


@shared("sampler.reconstruct")
@torch.no_grad()
def a_text_is_noised_and_denoised_from_there():
    """`run(begin=...)` of one token: P(sample | text) is q(x_t | text) times the kernels of the times after t."""
    worst, sampler, x_0 = Largest(), Ancestral("uniform"), torch.arange(V)[:, None]
    for name, (process, predicts, asked, t) in RECONSTRUCTED.items():
        method: Any = enumeration.Denoiser(process, data_distribution(1), 1, predicts)
        X, grid = torch.arange(process.K)[:, None], sampler.times(method, 4)
        times = [t, *grid[grid < t].tolist()]
        expected = process.matrix(CLEAN, t)[:V]
        for begin, end in itertools.pairwise(times):
            expected = expected @ joint_kernel(method, X, begin, end)
        found, number = torch.zeros_like(expected), []

        def draw(
            rows: Tensor, source: Any, method: Any = method, begin: float = asked, number: list[int] = number
        ) -> Tensor:
            states = [*run(sampler, method, (len(rows), 1), 4, generator=source, begin=(x_0[rows], begin))]
            number.append(len(states))
            return states[-1].x[:, 0]

        for rows, x, p in script.branches(draw, V):
            found.index_put_((rows, x), p, accumulate=True)
        worst.see(found, expected, name)
        worst.see(torch.tensor(number).double(), float(len(times)), f"{name}: the number of times")
    yield worst.row(SAMPLER, "from a text's noise: q(x_t | it), then kernels")
