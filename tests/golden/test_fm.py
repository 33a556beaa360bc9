"""Discrete flow matching's published code (time runs the other way: its t is our 1 - t) against ours.

Its paths have our marginals: x_1, the data, is kept with probability kappa = alpha. At a mask its velocity is our reverse rate.
Under uniform noise ours is the time reversal of a process that redraws tokens; its own is the net flow alone,

    u(x_t, y | x_1) = [ Rhat(x_t, y | x_1) - R(x_t, y) ]_+

the smallest rates with the same marginals. Its loss is the Bregman divergence of our bound between *these* rates.
"""

import pytest
import torch
from torch import Tensor

from zellige.core import maths
from zellige.core.prediction import Mean, kernel, restricted, reverse_rate, truth
from zellige.core.process import Mixture, absorbing, uniform
from zellige.core.schedule import CLEAN, Linear, Schedule
from zellige.methods import MDLM
from zellige.samplers.euler import stepped
from zellige.samplers.grid import spaced

from .recorded import JAX, Given

SOURCES = ("mask", "uniform")
SCHEDULERS = ("poly1", "poly2", "poly0.5", "poly3", "condot")
MIXTURES = [f"fm.mixture.{source}.{name}" for source in SOURCES for name in ("poly1", "poly2", "poly0.5")]
STEPS = [
    f"fm.euler_step.{source}.{name}.divfree{c}"
    for source in SOURCES
    for name, c in (("poly1", 0), ("poly1", 0.7), ("poly2", 0), ("poly0.5", 0), ("poly0.5", 0.7))
]
EXCLUDED: dict[str, str] = {}
DIFFERS = {
    **{
        name: "its loss also counts tokens that are not masked, which ours carries over: at masks they are equal"
        if "mask" in name
        else "its velocity is the net flow, our reverse rate the time reversal: two processes with one family of marginals"
        for name in MIXTURES
    },
    **{
        name: "given x_1 it jumps with probability 1 - exp(-h rate): ours (euler, ancestral) are equal to first order"
        + (", without a divergence-free term" if "0.7" in name else "")
        + ("; it moves tokens too, ours masks only" if "mask" in name else "; its rate is the net flow")
        for name in STEPS
    },
    "fm.euler_times": "a grid by step size, ours by their number; the last step is of clean tokens in both",
}
TESTED = {*[f"fm.scheduler.{name}" for name in SCHEDULERS], *MIXTURES, *STEPS, "fm.euler_times"}


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
    _, _, source, name, *_ = case.replace("poly0.5", "poly0_5").split(".")
    make, K = (absorbing, 7) if source == "mask" else (uniform, 6)
    return make(K, schedule(name.replace("_", ".")))


@pytest.fixture(scope="module")
def golden():
    return JAX


def test_every_case_is_accounted_for(golden):
    assert {name for name in golden.index if name.startswith("fm.")} == TESTED | EXCLUDED.keys()
    assert DIFFERS.keys() <= TESTED


@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduler(golden, name):
    case = f"fm.scheduler.{name}"
    c, ours = golden[case], schedule(name)
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
        assert torch.equal(p.sample(x_1, t, Given(c["u"])), x_t)
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
    scale = {"rtol": 1e-9, "atol": 1e-7}  # theirs leaves e^-20 of the mass on the mask
    torch.testing.assert_close(flow[free][:, p.clean], others[free][:, p.clean], **scale)
    if p.mask is not None:  # so at a mask theirs is our reverse rate, and our bound its loss
        pred = restricted(p, mu, x_t, t)
        torch.testing.assert_close(reverse_rate(pred)[free][:, :6], c["velocity"][free][:, :6], rtol=1e-7, atol=1e-7)
        assert bool((reverse_rate(pred)[~free] == 0).all())
    # their loss is the divergence of our bound between the two flows
    target = net(p, truth(p, x_1, x_t, t))
    rates = (weight * mu).scatter(-1, own, 0.0)
    each = maths.score_entropy(target, rates).sum(-1)
    golden.near(case, each, c["loss_none"])
    golden.near(case, each.mean(), c["loss_mean"])
    golden.near(case, each.sum(), c["loss_sum"])
    golden.near(case, torch.autograd.grad(each.mean(), logits)[0], c["grad_logits_of_mean"])
    if p.mask is not None:
        ours = (
            weight[..., 0] * -(mu[..., :6] / mu[..., :6].sum(-1, keepdim=True)).gather(-1, x_1[..., None])[..., 0].log()
        )
        torch.testing.assert_close(ours[free], c["loss_none"][free], rtol=1e-9, atol=1e-9)
        assert bool((c["loss_none"][~free] > 0).all())


# ---------------------------------------------------------------------------------- steps
@pytest.mark.parametrize("case", STEPS)
def test_euler_step(golden, case):
    c, p = golden[case], process(case)
    x_t, own, h, much = c["x_t"], c["x_t"][..., None], c["h"], golden.index[case]["config"]["div_free"]
    t = (1 - c["t"]).expand(x_t.shape)
    u = given_each(p, x_t, t)
    if much:  # a rate that leaves q(. | x_1) as it is: towards y in proportion to it
        push = p.schedule.beta(t) / (1 - p.schedule.alpha(t))
        law = torch.stack([p.push(p.one_hot(torch.full_like(x_t, v)), CLEAN, t) for v in range(len(u))])
        u = u + (much * push * law).scatter(-1, own.expand(len(u), *own.shape), 0.0)
    total, free = u.sum(-1), p.movable(x_t)
    jump = -torch.expm1(-h * total)
    # difference: theirs has rates out of a token that is not x_1 though no mask, which cannot be; ours are 0 there
    possible = p.likelihood(x_t, CLEAN, t)[..., p.clean].movedim(-1, 0) > 0
    golden.near(case, u[possible], c["u_given_x1"][: len(u)][possible])
    golden.near(case, jump[possible], c["jump_prob_given_x1"][: len(u)][possible])
    law = (jump / total.clamp_min(1e-300))[..., None] * u
    law = law + (1 - jump)[..., None] * torch.zeros_like(law).scatter(-1, own.expand(len(u), *own.shape), 1.0)
    step = torch.einsum("vblk,blv->blk", law, c["p_1t"][..., p.clean] / c["p_1t"][..., p.clean].sum(-1, keepdim=True))
    close = {"rtol": 1e-7, "atol": 1e-7}  # e^-20 of their mass may lie on the mask
    torch.testing.assert_close(step[free], c["step_probs"][free], **close)
    if much or p.mask is None:
        return
    # difference: given x_1 we jump with h u (euler) or exactly (ancestral); the three agree to first order in h
    pred = restricted(p, c["p_1t"], x_t, t)
    small = 1e-3 * h
    theirs = step.new_zeros(step.shape)
    for v in range(6):
        theirs = theirs + c["p_1t"][..., v : v + 1] * -torch.expm1(-small * total[v])[..., None] * (u[v] > 0)
    for ours in (stepped(pred, t - small), kernel(pred, t - small)):
        torch.testing.assert_close(ours[free][:, :6], theirs[free][:, :6], rtol=2e-3, atol=1e-9)
        assert not torch.allclose(ours[free][:, :6], theirs[free][:, :6], rtol=1e-6, atol=0)


def test_times(golden):
    case = "fm.euler_times"
    c = golden[case]
    method = MDLM(None, 6, (4,))
    for g in ("g0", "g1", "g2"):
        first, last, h = c[f"{g}_in"].tolist()
        n = -(-round((last - first) * 1e6) // round(h * 1e6))
        assert len(c[f"{g}_times"]) == n
        theirs = first + h * torch.arange(n, dtype=torch.float64)
        golden.near(case, theirs, c[f"{g}_times"])
        ours = 1 - spaced(method, n)[1:-1]  # ours: as many steps, all equal, from 0 to 1
        torch.testing.assert_close(ours, torch.arange(1, n).double() / n)
