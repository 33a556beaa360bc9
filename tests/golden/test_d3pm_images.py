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
from zellige.core.matrices import Chain, Kernels
from zellige.core.prediction import kernel
from zellige.core.process import Mixture, Process, uniform
from zellige.core.schedule import CLEAN
from zellige.methods import D3PM, d3pm_transitions
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
        steps = Kernels(lambda b: torch.stack([d3pm_transitions.band(S, float(x), width) for x in b]), beta)
    else:
        spaced = beta * ((S - 1) / 255) ** 2
        steps = Kernels(lambda b: torch.stack([d3pm_transitions.gaussian(S, float(x), width or 0) for x in b]), spaced)
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


@pytest.mark.parametrize("case", LOSS)
def test_loss(golden, case):
    """Each term and the hybrid loss, by ours at their eps; without it ours is less by the mass where x_1 cannot come from."""
    c, config = golden[case], golden.index[case]["config"]
    n, S = config["T"], config["S"]
    P = pixels(golden[case.replace("loss", "Q").rpartition(".")[0]]["betas"], config)
    flat = lambda x: x.reshape(len(x), -1, *x.shape[4:])  # noqa: E731
    x_0, x_t, logits = flat(c["x_start"]).long(), flat(c["x_t"]).long(), flat(c["logits"]).to(D).requires_grad_()
    t, first, bits = (c["t"] + 1).to(D) / n, c["t"] == 0, x_0.shape[1] * math.log(2)
    s = torch.where(first, CLEAN, t - 1 / n)
    time, later = t[:, None].expand(x_0.shape), s[:, None].expand(x_0.shape)
    golden.near(case, P.marginal(x_0, time), flat(c["q_probs"]))
    likely = P.likelihood(x_t, later, time)
    distributions = {"logits": logits.softmax(-1), "x0": P.one_hot(x_0)}

    def method(eps: float) -> D3PM:
        return d3pm(logits, P, kind(config), n, last="image", log_eps=eps)

    def loss(eps: float, auxiliary: float = 0.0) -> Tensor:
        return method(eps).discrete_bound(Batch(x_0), x_t, t, s, auxiliary=auxiliary) / bits

    def gradient(value: Tensor) -> Tensor:
        return torch.autograd.grad(value.mean(), logits, retain_graph=True)[0]

    # theirs, by ours at their eps
    hybrid = loss(EPS, config["hybrid_coeff"])
    golden.near(case, loss(EPS), c["vb_bpd"])
    golden.near(
        case, (hybrid - loss(EPS)) / config["hybrid_coeff"], c["ce_bpd"], atol=1e-6 if case.endswith("f32") else 1e-9
    )
    golden.near(case, hybrid, c["hybrid_loss"])
    golden.near(case, gradient(hybrid), flat(c["grad_logits_of_mean_hybrid"]))
    golden.near(case, method(EPS).prior_term(Batch(x_0)) / bits, c["prior_bpd"])
    for name, distribution in distributions.items():
        posterior = lambda eps, p=distribution: (likely + eps).log() + (P.push(p, CLEAN, later) + eps).log()  # noqa: E731
        golden.near(case, posterior(EPS)[~first], flat(c[f"posterior_logits_from_{name}"])[~first])
    # ours without eps: that of the paper, but for the mass that p~ has where x_1 can come from, at the first step
    mass = torch.where(first, (distributions["logits"] * (likely > 0)).sum(-1).log().sum(-1) / bits, 0.0)
    torch.testing.assert_close(loss(0.0)[first], (loss(EPS) + mass)[first], rtol=0, atol=1e-12)
    golden.near(case, loss(0.0)[first], (c["vb_bpd"] + mass)[first])
    vanishes(lambda eps: loss(eps) + mass - loss(0.0))
    vanishes(lambda eps: gradient(loss(eps) + mass) - gradient(loss(0.0)))
    pred = method(0.0).predict(x_t, t[:, None])
    vanishes(
        lambda eps: (
            normalise((likely + eps) * (P.push(distributions["logits"], CLEAN, later) + eps))[~first]
            - kernel(pred, later)[~first]
        )
    )
    # L_T: sum q (log(q + eps) - log q) is at most eps for each state, and so is what eps adds to the uniform prior
    prior = lambda eps: method(eps).prior_term(Batch(x_0)) / bits  # noqa: E731
    vanishes(lambda eps: prior(eps) - P.divergence(x_0, 1.0).sum(-1) / bits, c=S / math.log(2))


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
