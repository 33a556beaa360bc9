"""D3PM's image code (Google's, from a fork) against ours, at the tolerance of each case.

It has rows as sources and numbers steps t = 0..T-1, which is our (t + 1)/T; losses are of one step, in bits a dimension.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from zellige.core.batch import Batch
from zellige.core.maths import normalise
from zellige.core.matrices import Chain
from zellige.core.prediction import kernel
from zellige.core.process import Mixture, Process, uniform
from zellige.core.schedule import CLEAN
from zellige.methods import d3pm_transitions
from zellige.nn.logistic import logistic

from .d3pm import D, d3pm, product
from .recorded import JAX, rounded, vanishes

BETAS = JAX.cases(r"d3pm_google\.images\.betas\..*")
ROWS = JAX.cases(r"d3pm_google\.images\.Q\..*_rows.*")
Q = [case for case in JAX.cases(r"d3pm_google\.images\.Q\..*") if case not in ROWS]
LOSS = JAX.cases(r"d3pm_google\.images\.loss\..*")
HEAD = JAX.cases(r"d3pm_google\.images\.logistic_head\..*")
EPS = JAX.eps(LOSS[0])
TESTED = {*BETAS, *Q, *ROWS, *LOSS, *HEAD}
FORMS = {
    **dict.fromkeys([q for q in Q if "gaussian" in q], "its levels are 255/(K-1) apart, right for 256 of them only; ours is "
                    "eq. 8, the same at betas times ((K-1)/255)^2"),
    **dict.fromkeys(LOSS, "it adds eps to both factors of eq. 4 and inside the logs of L_T, ours is eps = 0; its L_0 has mass on "
                    "x_0 from which x_1 cannot come: ours adds the log of the mass on the others"),
    **dict.fromkeys(HEAD, "it adds eps to the share of a bin in its upper tail, and does not normalise; ours is eps = 0"),
}  # fmt: skip


@pytest.fixture(scope="module")
def golden():
    return JAX


def test_every_case_is_accounted_for(golden):
    assert {name for name in golden.index if name.startswith("d3pm_google.images")} == TESTED
    assert FORMS.keys() <= TESTED


def pixels(beta: Tensor, config: dict) -> Process:
    """Upstream's process by its recorded betas, of our matrices."""
    S, width = config["S"], config["transition_bands"]
    if config["transition_mat_type"] == "absorbing":  # a grey pixel S // 2, which is data too
        return Mixture(F.one_hot(torch.tensor(S // 2), S).to(D), product(beta))
    if config["transition_mat_type"] == "uniform" and width is None:
        return uniform(S, product(beta))
    if config["transition_mat_type"] == "uniform":
        steps = d3pm_transitions.Steps(lambda b: d3pm_transitions.band(S, b, width), beta)
    else:
        spaced = beta * ((S - 1) / 255) ** 2
        steps = d3pm_transitions.Steps(lambda b: d3pm_transitions.gaussian(S, b, width or 0), spaced)
    return Chain(steps, torch.full((S,), 1 / S, dtype=D))


def kind(config: dict) -> str:
    """What we call the process."""
    name = config["transition_mat_type"]
    return {"absorbing": "middle"}.get(name, "band" if name == "uniform" and config["transition_bands"] else name)


@pytest.mark.parametrize("case", BETAS)
def test_betas(golden, case):
    c, n = golden[case], golden.index[case]["config"]["num_timesteps"]
    for ours, theirs in (("mutual-information", "jsd"), ("cosine", "cosine")):
        golden.near(case, d3pm_transitions.betas(ours, n), c[theirs])
    beta = d3pm_transitions.betas("linear", 1000)  # DDPM's, which theirs does not scale with T
    rounded(beta[[0, -1]], torch.tensor([1e-4, 0.02], dtype=D), 2, scale=1.0)  # one less the ratio of two alphas
    for key in (key for key in c if key.startswith("linear")):
        first, last = map(float, key.split("_")[1:])
        golden.near(case, torch.linspace(first, last, n, dtype=D), c[key])


@pytest.mark.parametrize("case", Q)
def test_kernels(golden, case):
    c, config = golden[case], golden.index[case]["config"]
    P = pixels(c["betas"], config)
    i = torch.arange(config["T"] + 1, dtype=D) / config["T"]
    golden.near(case, P.matrix(i[:-1], i[1:]), c["q_onestep"])
    golden.near(case, P.matrix(torch.zeros_like(i), i)[1:], c["q_cum"])
    if case in FORMS:
        paper = d3pm_transitions.gaussian(config["S"], float(c["betas"][0]), config["transition_bands"] or 0)
        assert float((paper - c["q_onestep"][0]).abs().max()) > 0.1


@pytest.mark.parametrize("case", ROWS)
def test_kernels_of_256_levels(golden, case):
    """Here the spacing is the paper's."""
    c, config = golden[case], golden.index[case]["config"]
    P, rows = pixels(c["betas"], {**config, "transition_mat_type": "gaussian"}), c["rows"]
    t = (c["k"] + 1).to(D) / config["T"]
    golden.near(case, P.matrix(t - 1 / config["T"], t)[:, rows], c["q_onestep_rows"])
    golden.near(case, P.matrix(torch.zeros_like(t), t)[:, rows], c["q_cum_rows"])


class Published:
    """Its formulas in float64 at an eps of one's own; ours is eps = 0. Positions are flat, (B, L, S)."""

    def __init__(self, P: Process, x_0: Tensor, x_t: Tensor, s: Tensor, t: Tensor, logits: Tensor, first: Tensor):
        self.P, self.x_0, self.logits, self.first, self.t = P, x_0, logits, first, t
        self.bits = x_0.shape[1] * math.log(2)
        self.likely, self.truly = P.likelihood(x_t, s, t), P.push(P.one_hot(x_0), CLEAN, s)
        self.modelled = P.push(logits.softmax(-1), CLEAN, s)

    def posterior(self, law: Tensor, eps: float) -> Tensor:
        """Logits of x_s: eps in both factors of eq. 4."""
        return (self.likely + eps).log() + (law + eps).log()

    def vb(self, eps: float) -> Tensor:
        """One step's KL, and at the first step -log of the softmax: (B,) bits a dimension."""
        p, q = (self.posterior(law, eps).log_softmax(-1) for law in (self.modelled, self.truly))
        nll = -self.logits.log_softmax(-1).gather(-1, self.x_0[..., None])[..., 0]
        return torch.where(self.first[:, None], nll, (q.exp() * (q - p)).sum(-1)).sum(-1) / self.bits

    def prior(self, eps: float, law: Tensor) -> Tensor:
        q = self.P.push(self.P.one_hot(self.x_0), CLEAN, torch.ones(self.x_0.shape, dtype=D))
        return (q * ((q + eps).log() - (law + eps).log())).sum((-2, -1)) / self.bits


@pytest.mark.parametrize("case", LOSS)
def test_loss(golden, case):
    c, config = golden[case], golden.index[case]["config"]
    n = config["T"]
    P = pixels(golden[case.replace("loss", "Q").rpartition(".")[0]]["betas"], config)
    flat = lambda x: x.reshape(len(x), -1, *x.shape[4:])  # noqa: E731
    x_0, x_t, logits = flat(c["x_start"]).long(), flat(c["x_t"]).long(), flat(c["logits"]).to(D).requires_grad_()
    t = (c["t"] + 1).to(D) / n
    time, first = t[:, None].expand(x_0.shape), c["t"] == 0
    s = torch.where(first, CLEAN, t - 1 / n)[:, None].expand(x_0.shape)
    golden.near(case, P.push(P.one_hot(x_0), CLEAN, time), flat(c["q_probs"]))
    theirs, later = Published(P, x_0, x_t, s, time, logits, first), ~first
    # theirs, at its eps
    golden.near(case, theirs.posterior(theirs.modelled, EPS)[later], flat(c["posterior_logits_from_logits"])[later])
    golden.near(case, theirs.posterior(theirs.truly, EPS)[later], flat(c["posterior_logits_from_x0"])[later])
    ce = F.cross_entropy(logits.transpose(1, 2), x_0, reduction="none").sum(-1) / theirs.bits
    hybrid = lambda v: v + config["hybrid_coeff"] * ce  # noqa: E731
    gradient = lambda v: torch.autograd.grad(hybrid(v).mean(), logits, retain_graph=True)[0]  # noqa: E731
    golden.near(case, theirs.vb(EPS), c["vb_bpd"])
    golden.near(case, ce, c["ce_bpd"])
    golden.near(case, hybrid(theirs.vb(EPS)), c["hybrid_loss"])
    golden.near(case, gradient(theirs.vb(EPS)), flat(c["grad_logits_of_mean_hybrid"]))
    # ours: at the first step the mass that the softmax has where x_1 can come from, else eps = 0
    method = d3pm(logits, P, kind(config), n, last="image")
    pred, ours = method.predict(x_t, t[:, None]), method.step(Batch(x_0), x_t, t, s[:, 0]) / theirs.bits
    mass = (logits.softmax(-1) * (theirs.likely > 0)).sum(-1).log().sum(-1) / theirs.bits
    form = lambda eps: theirs.vb(eps) + torch.where(first, mass, 0.0)  # noqa: E731
    golden.near(case, ours[first], (c["vb_bpd"] + mass)[first])
    vanishes(lambda eps: form(eps) - ours)
    vanishes(lambda eps: gradient(form(eps)) - gradient(ours))
    vanishes(lambda eps: theirs.posterior(theirs.modelled, eps)[later].softmax(-1) - kernel(pred, s)[later])
    # L_T: sum q (log(q + eps) - log q) is at most eps for each state, and so is what eps adds to the uniform prior
    S = config["S"]
    prior = F.one_hot(torch.tensor(S // 2), S).to(D) if kind(config) == "middle" else torch.full((S,), 1 / S, dtype=D)
    golden.near(case, theirs.prior(EPS, prior), c["prior_bpd"])
    divergence = P.divergence(x_0, 1.0).sum(-1) / theirs.bits
    vanishes(lambda eps: theirs.prior(eps, prior) - divergence, c=S / math.log(2))


@pytest.mark.parametrize("case", HEAD)
def test_logistic_head(golden, case):
    c, K = golden[case], golden.index[case]["config"]["S"]
    loc, log_scale = c["loc"].to(D), c["log_scale"].to(D)
    inverse, half = torch.exp(2 - log_scale)[..., None], 1 / (K - 1)
    centre = torch.linspace(-1, 1, K, dtype=D) - loc[..., None]
    above, below = (torch.sigmoid(inverse * (centre + h)) for h in (half, -half))
    theirs = lambda eps: above - below + eps * above  # noqa: E731
    golden.near(case, theirs(EPS), c["logits"].exp())
    ours = logistic(loc, log_scale, K).softmax(-1)
    vanishes(lambda eps: normalise(theirs(eps)) - ours)
