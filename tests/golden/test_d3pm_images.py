"""D3PM's image code (Google's, from a fork) against ours, at the tolerance of each case.

It has rows as sources and numbers steps t = 0..T-1, which is our (t + 1)/T; losses are of one step, in bits a dimension.
"""

import math

import pytest
import torch
import torch.nn.functional as F

from zellige.core.batch import Batch
from zellige.core.matrices import Chain
from zellige.core.prediction import kernel
from zellige.core.process import Mixture, Process, uniform
from zellige.core.schedule import CLEAN
from zellige.methods import d3pm_transitions
from zellige.nn.logistic import logistic

from .d3pm import D, d3pm, product
from .recorded import JAX

K = 8
KINDS = ("uniform.cosine", "uniform.linear_0.02_1", "absorbing.jsd", "uniform_band2.cosine", "gaussian.linear_0.05_1",
         "gaussian_band3.linear_0.05_1")  # fmt: skip
Q = [f"d3pm_google.images.Q.{kind}" for kind in KINDS]
ROWS = [f"d3pm_google.images.Q.gaussian_S256_rows{band}" for band in ("", "_band40")]
LOSS = [f"d3pm_google.images.loss.{kind}.{p}" for kind in KINDS for p in ("f32", "f64")]
BETAS = [f"d3pm_google.images.betas.T{n}" for n in (12, 100, 1000)]
HEAD = [f"d3pm_google.images.logistic_head.{p}" for p in ("f32", "f64")]
TESTED = {*BETAS, *Q, *ROWS, *LOSS, *HEAD}

DIFFERS = {
    **dict.fromkeys([q for q in Q if "gaussian" in q], "its levels are 255/(K-1) apart, right for 256 of them only; ours is "
                    "eq. 8, the same at betas times ((K-1)/255)^2"),
    **dict.fromkeys(LOSS, "it adds 1e-6 to the factors of eq. 4 and to x_0; ours is exact"),
    **dict.fromkeys(HEAD, "it adds 1e-6 to the share of a bin in its upper tail; ours makes a millionth of the law uniform"),
}  # fmt: skip


@pytest.fixture(scope="module")
def golden():
    return JAX


def test_every_case_is_accounted_for(golden):
    assert {name for name in golden.index if name.startswith("d3pm_google.images")} == TESTED
    assert DIFFERS.keys() <= TESTED


def pixels(beta: torch.Tensor, config: dict) -> Process:
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
    golden.near(case, torch.linspace(float(beta[0]), float(beta[-1]), n, dtype=D), c["linear_0.0001_0.02"])
    golden.near(case, torch.linspace(0.02, 1, n, dtype=D), c["linear_0.02_1"])


@pytest.mark.parametrize("case", Q)
def test_kernels(golden, case):
    c, config = golden[case], golden.index[case]["config"]
    P = pixels(c["betas"], config)
    i = torch.arange(config["T"] + 1, dtype=D) / config["T"]
    golden.near(case, P.matrix(i[:-1], i[1:]), c["q_onestep"])
    golden.near(case, P.matrix(torch.zeros_like(i), i)[1:], c["q_cum"])
    if case in DIFFERS:
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
    c, config, eps = golden[case], golden.index[case]["config"], 1e-6
    B, n = len(c["t"]), config["T"]
    P = pixels(golden[case.replace("loss", "Q").rpartition(".")[0]]["betas"], config)
    flat = lambda x: x.reshape(B, -1, *x.shape[4:])  # noqa: E731
    x_0, x_t, logits = flat(c["x_start"]).long(), flat(c["x_t"]).long(), flat(c["logits"]).requires_grad_()
    t = (c["t"] + 1).to(D) / n
    time, first = t[:, None].expand(x_0.shape), c["t"] == 0
    s = torch.where(first, CLEAN, t - 1 / n)[:, None].expand(x_0.shape)
    golden.near(case, P.push(P.one_hot(x_0), CLEAN, time), flat(c["q_probs"]))

    mu, bits = logits.to(D).softmax(-1), x_0.shape[1] * math.log(2)
    method = d3pm(logits, P, kind(config), n, last="image")
    pred, each = method.predict(x_t, t[:, None]), method.step(Batch(x_0), x_t, t, s[:, 0])
    everywhere = kind(config) == "uniform"
    if not everywhere:
        # difference: its L_0 is the logits' also at x_0 from which x_t cannot come in one step; ours knows better
        assert (each / bits <= c["vb_bpd"] + 1e-6)[first].all()
        each = torch.where(first, c["vb_bpd"] * bits, each)
    # difference: eps in both factors of eq. 4, and none of it where t is the first step: the logits themselves
    likely = P.likelihood(x_t, s, time) + eps
    theirs = torch.log(likely) + torch.log(P.push(mu, CLEAN, s) + eps)
    golden.near(case, theirs[~first], flat(c["posterior_logits_from_logits"])[~first])
    truly = torch.log(likely) + torch.log(P.push(P.one_hot(x_0), CLEAN, s) + eps)
    golden.near(case, truly[~first], flat(c["posterior_logits_from_x0"])[~first])
    log_p = torch.where(first[:, None, None], logits.to(D), theirs).log_softmax(-1)
    kl = (truly.softmax(-1) * (truly.log_softmax(-1) - log_p)).sum(-1)
    nll = -log_p.gather(-1, x_0[..., None])[..., 0]
    bound = torch.where(first[:, None], nll, kl).sum(-1) / bits
    ce = F.cross_entropy(logits.transpose(1, 2), x_0, reduction="none").sum(-1) / bits
    golden.near(case, bound, c["vb_bpd"])
    golden.near(case, ce, c["ce_bpd"])
    gradient = lambda v: torch.autograd.grad((v + config["hybrid_coeff"] * ce).mean(), logits, retain_graph=True)[0]  # noqa: E731
    golden.near(case, gradient(bound), flat(c["grad_logits_of_mean_hybrid"]))

    ours, at = each / bits, slice(None) if everywhere else ~first
    torch.testing.assert_close(ours, c["vb_bpd"].to(D), rtol=5e-3, atol=2e-5)
    torch.testing.assert_close(ours + config["hybrid_coeff"] * ce, c["hybrid_loss"].to(D), rtol=5e-3, atol=2e-5)
    torch.testing.assert_close(gradient(ours)[at], gradient(bound)[at], rtol=1e-2, atol=1e-5 if everywhere else 2e-3)
    less = torch.log(likely - eps + 1e-13) + torch.log(P.push(mu, CLEAN, s) + 1e-13)  # theirs with next to no eps
    torch.testing.assert_close(kernel(pred, s)[~first], less.softmax(-1)[~first], rtol=0, atol=1e-6)
    if kind(config) != "middle":
        prior = P.divergence(x_0, 1.0).sum(-1) / bits
        torch.testing.assert_close(prior, c["prior_bpd"].to(D), rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("case", HEAD)
def test_logistic_head(golden, case):
    c, eps = golden[case], 1e-6
    loc, log_scale = c["loc"].to(D), c["log_scale"].to(D)
    inverse, half = torch.exp(2 - log_scale)[..., None], 1 / (K - 1)
    centre = torch.linspace(-1, 1, K, dtype=D) - loc[..., None]
    above, below = (torch.sigmoid(inverse * (centre + h)) for h in (half, -half))
    golden.near(case, above - below + eps * above, c["logits"].exp())  # difference: eps
    ours = logistic(loc, log_scale, K)
    torch.testing.assert_close(ours.softmax(-1), (above - below) / (above - below).sum(-1, keepdim=True))
    torch.testing.assert_close(ours.softmax(-1), c["logits"].to(D).softmax(-1), rtol=0, atol=1e-5)
