"""Discrete flow matching's published code (time runs the other way: its t is our 1 - t) against ours.

Its paths have our marginals: x_1, the data, is kept with probability kappa = alpha. At a mask its velocity is our reverse rate.
Under uniform noise ours is the time reversal of a process that redraws tokens; its own is the net flow alone,

    u(x_t, y | x_1) = [ Rhat(x_t, y | x_1) - R(x_t, y) ]_+

the smallest rates with the same marginals. Its loss is the Bregman divergence of our bound between *these* rates.
"""

import pytest
import torch
from torch import Tensor

from zellige.core import bound, maths
from zellige.core.curves import Linear
from zellige.core.prediction import Mean, restricted, reverse_rate, truth
from zellige.core.process import Mixture, absorbing, uniform
from zellige.core.schedule import CLEAN, PRIOR, Schedule
from zellige.methods import MDLM
from zellige.samplers import Euler
from zellige.samplers.euler import stepped
from zellige.samplers.grid import of_size

from .recorded import JAX, RecordedUniforms, rounded

SCHEDULERS, MIXTURES, STEPS = (JAX.cases(rf"fm\.{kind}\..*") for kind in ("scheduler", "mixture", "euler_step"))
GRID = "fm.euler_times"
EXCLUDED: dict[str, str] = {}
FORMS = {
    **{
        name: "its loss also counts tokens that are not masked, weight (1 - mu) of each, which ours carries over"
        if JAX.index[name]["config"]["source"] == "mask"
        else "the divergence of our bound, between net flows [Rhat - R]_+ of our rates: another process with the same marginals"
        for name in MIXTURES
    },
    **dict.fromkeys(
        STEPS,
        "given x_1 it jumps with probability 1 - exp(-h sum u), u = [Rhat - R]_+ of our rates; ours with h Rhat (euler)",
    ),
}
DIFFERS: dict[str, str] = {}
TESTED = {*SCHEDULERS, *MIXTURES, *STEPS, GRID}


class Power(Schedule):
    """alpha = (1 - t)^n: kappa = t^n in their time. A schedule says these three; the rest follows."""

    def __init__(self, n: float):
        super().__init__(0.0)
        self.n = n

    def _shape(self, t):
        return (1 - t)[..., None] ** self.n

    def _shape_slope(self, t):
        return -self.n * (1 - t)[..., None] ** (self.n - 1)

    def _shape_inverse(self, y):
        return 1 - y ** (1 / self.n)


def schedule(name: str) -> Schedule:
    return Linear(0.0) if name in ("condot", "poly1") else Power(float(name.removeprefix("poly")))


def process(case: str) -> Mixture:
    config = JAX.index[case]["config"]
    return (absorbing if config["source"] == "mask" else uniform)(config["model_vocab"], schedule(config["scheduler"]))


@pytest.fixture(scope="module")
def golden():
    return JAX


def test_every_case_is_accounted_for(golden):
    assert {name for name in golden.index if name.startswith("fm.")} == TESTED | EXCLUDED.keys()
    assert FORMS.keys() | DIFFERS.keys() <= TESTED


@pytest.mark.parametrize("case", SCHEDULERS)
def test_scheduler(golden, case):
    c, ours = golden[case], schedule(golden.index[case]["config"]["scheduler"])
    t = 1 - c["t"]
    golden.near(case, ours.alpha(t)[:, 0], c["kappa"])
    golden.near(case, 1 - ours.alpha(t)[:, 0], c["sigma"])
    inside = c["t"] > 0  # beta is infinite where nothing is left
    slope = (ours.beta(t) * ours.alpha(t))[:, 0]
    golden.near(case, slope[inside], c["d_kappa"][inside])
    golden.near(case, -slope[inside], c["d_sigma"][inside])
    golden.near(case, 1 - ours.inverse(c["t"]), c["kappa_inverse_of_t"])


# ---------------------------------------------------------------------------------- path and loss
def net(p: Mixture, pred: Mean) -> Tensor:
    """The net flow of a prediction that knows x_1, (*, K): our reverse rate less the rate of the noise, where that is more."""
    return (reverse_rate(pred) - p.rate_from(pred.x_t, pred.t)).clamp_min(0.0)


def given_each(p: Mixture, x_t: Tensor, t: Tensor) -> Tensor:
    """The net flow for every clean token x_1, (V, *, K)."""
    tokens = p.clean.nonzero()[:, 0]
    return torch.stack([net(p, truth(p, torch.full_like(x_t, int(v)), x_t, t)) for v in tokens])


@pytest.mark.parametrize("case", MIXTURES)
def test_path_and_loss(golden, case):
    c, p = golden[case], process(case)
    x_t, x_1, own = c["x_t"], c["x_1"], c["x_t"][..., None]
    t = (1 - c["t"])[:, None].expand(x_t.shape)
    if p.mask is not None:
        assert torch.equal(p.sample(x_1, t, RecordedUniforms(c["u"])), x_t)
    else:  # difference: theirs keeps x_1 or takes a given draw of the prior
        assert torch.equal(torch.where(c["u"] < 1 - p.schedule.alpha(t)[..., 0], c["x_0"], x_1), x_t)
    logits = c["logits"].requires_grad_()
    mu = logits.softmax(-1)
    weight = p.schedule.weight(t)
    onto = torch.zeros_like(mu).scatter(-1, own, 1.0)
    golden.near(case, weight * (mu - onto), c["velocity"])
    flow = torch.einsum("vblk,blv->blk", given_each(p, x_t, t), mu[..., p.clean])
    free = p.movable(x_t)
    others = c["velocity"].scatter(-1, own, 0.0)
    golden.near(case, flow[free][:, p.clean], others[free][:, p.clean])
    if p.mask is not None:  # so at a mask theirs is our reverse rate, but for the e^-20 that it leaves on the mask
        pred, on_mask = restricted(p, mu, x_t, t), mu[..., p.mask]
        rate = reverse_rate(pred) * (1 - on_mask)[..., None]
        golden.near(case, rate[free][:, p.clean], c["velocity"][free][:, p.clean])
        assert bool((reverse_rate(pred)[~free] == 0).all())
    # their loss is the divergence of our bound between the two flows
    target = net(p, truth(p, x_1, x_t, t))
    rates = (weight * mu).scatter(-1, own, 0.0)
    each = maths.score_entropy(target, rates).sum(-1)
    golden.near(case, each, c["loss_none"])
    golden.near(case, each.mean(), c["loss_mean"])
    golden.near(case, each.sum(), c["loss_sum"])
    golden.near(case, torch.autograd.grad(each.mean(), logits)[0], c["grad_logits_of_mean"])
    if (
        p.mask is not None
    ):  # at a mask our bound, and 1 - log(1 - e^-20) - (1 - e^-20) of them; else what leaves the token
        ours = bound.continuous(truth(p, x_1, x_t, t), restricted(p, mu, x_t, t))
        more = torch.where(free, -on_mask - torch.log1p(-on_mask), 1 - mu.gather(-1, own)[..., 0])
        golden.near(case, ours + weight[..., 0] * more, c["loss_none"])


@pytest.mark.parametrize("case", MIXTURES)
def test_the_net_flow_has_our_marginals(case):
    """q(x) u(x, y) - q(y) u(y, x) = q(x) (Rhat - R)(x, y) for each x_1: what flows from x to y, all in all."""
    p = process(case)
    x, t = torch.arange(p.K), torch.full((p.K,), 0.3, dtype=torch.float64)
    for x_1 in p.clean.nonzero():
        clean = x_1.expand(p.K)
        q = p.marginal(clean[:1], t[:1])[0]
        at = x[q > 0]  # where x_1 can be seen
        pred = truth(p, clean[at], at, t[at])
        flow, whole = (
            q[at, None] * rates[:, at] for rates in (net(p, pred), reverse_rate(pred) - p.rate_from(at, t[at]))
        )
        rounded(
            (flow - flow.mT).fill_diagonal_(0.0), whole.fill_diagonal_(0.0), 4, scale=float(p.rate_from(x, t).max())
        )


# ---------------------------------------------------------------------------------- steps
@pytest.mark.parametrize("case", STEPS)
def test_euler_step(golden, case):
    c, p = golden[case], process(case)
    x_t, own, h, much = c["x_t"], c["x_t"][..., None], c["h"], golden.index[case]["config"]["div_free"]
    t = (1 - c["t"]).expand(x_t.shape)
    u = given_each(p, x_t, t)
    if much:  # a rate that leaves q(. | x_1) as it is: towards y in proportion to it
        push = p.schedule.beta(t) / (1 - p.schedule.alpha(t))
        distribution = torch.stack([p.push(p.one_hot(torch.full_like(x_t, v)), CLEAN, t) for v in range(len(u))])
        u = u + (much * push * distribution).scatter(-1, own.expand(len(u), *own.shape), 0.0)
    total, free = u.sum(-1), p.movable(x_t)
    jump = -torch.expm1(-h * total)
    # difference: theirs has rates out of a token that is not x_1 though no mask, which cannot be; ours are 0 there
    possible = p.likelihood(x_t, CLEAN, t)[..., p.clean].movedim(-1, 0) > 0
    golden.near(case, u[possible], c["u_given_x1"][: len(u)][possible])
    golden.near(case, jump[possible], c["jump_prob_given_x1"][: len(u)][possible])
    distribution = (jump / total.clamp_min(1e-300))[..., None] * u
    distribution = distribution + (1 - jump)[..., None] * torch.zeros_like(distribution).scatter(
        -1, own.expand(len(u), *own.shape), 1.0
    )
    step = torch.einsum("vblk,blv->blk", distribution, c["p_1t"][..., p.clean])
    on_mask = c["p_1t"][..., p.mask] if p.mask is not None else torch.zeros(x_t.shape, dtype=torch.float64)
    step = step.scatter_add(-1, own, on_mask[..., None])  # a mask that is to become the mask stays
    golden.near(case, step[free], c["step_probs"][free])
    if p.mask is not None and not much:  # the same distribution, with another probability to be revealed
        w = p.schedule.weight(t)
        euler = (
            (-torch.expm1(-h * w) / (h * w))
            * stepped(restricted(p, c["p_1t"], x_t, t), t - h)
            * (1 - on_mask)[..., None]
        )
        golden.near(case, euler[free][:, p.clean], c["step_probs"][free][:, p.clean])


def test_times(golden):
    """A grid by the size of its steps, the last of which goes to clean tokens; ours runs from t = 1, there t = 0."""
    case, c = GRID, golden[GRID]
    method = MDLM(None, 2, (1,))
    for g in (key.removesuffix("_in") for key in c if key.endswith("_in")):
        first, last, h = c[f"{g}_in"].tolist()
        ours = of_size(1 - first, 1 - last, h)
        golden.near(case, 1 - ours[:-1], c[f"{g}_times"])
        assert float(ours[-1]) == 1 - last
        if (first, last) == (0.0, 1.0):
            times = Euler(grid=str(h)).times(method, None)
            assert (times[0], times[-1]) == (PRIOR, CLEAN)
            assert torch.equal(times[1:-1], ours[1:-1])
