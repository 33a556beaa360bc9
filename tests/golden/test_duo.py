"""Duo's published code: its base model, which is UDLM, and its samplers, against ours at the tolerance of each case."""

import pytest
import torch

from zellige.core.batch import Batch
from zellige.core.curves import Cosine, Linear
from zellige.core.gaussian import top_probability, uniform_alpha
from zellige.core.prediction import kernel, posterior
from zellige.core.schedule import CLEAN
from zellige.methods import MDLM, UDLM
from zellige.samplers import Remasking, State

from .recorded import EPS, LAST, TORCH, FixedTime, K, L, RecordedLogits, V, race, rounded

LOSSES = TORCH.cases("duo__loss_.*")
STEPS = TORCH.cases("duo__step_.*")
FORMS = {
    "duo__noise": "its cosine is ours at (1 - eps) t, and its slope lacks that factor 1 - eps",
    "duo__loss_duo_base_cosine": "the slope of its cosine lacks the factor 1 - eps; at its alpha and slope the bound is ours",
    "duo__psi_kappas": "its max-rescale takes eta min(eta, sigma_max), ours eta sigma_max; kappa >= 0 caps sigma at 1 - alpha_s",
}
TESTED = {
    "duo__noise",
    *LOSSES,
    "duo__nelbo_closed_form",
    "duo__posterior_uniform",
    *STEPS,
    "duo__psi_kappas",
    "duo__gamma_to_alpha",
}


def duo(network) -> UDLM:
    return UDLM(network, K, (L,))


def test_every_case_is_accounted_for(golden):
    assert {name for name in golden.index if name.startswith("duo__")} == TESTED
    assert FORMS.keys() <= TESTED


def test_noise(golden):
    c, case, eps = golden["duo__noise"], "duo__noise", EPS
    t = c["t"].double()
    linear = Linear(eps)
    golden.near(case, linear.alpha(t)[:, 0], c["loglinear_alpha"])
    golden.near(case, -(linear.beta(t) * linear.alpha(t))[:, 0], c["loglinear_dalpha"])
    cosine = Cosine(0.0)  # theirs is ours without an end, at the time (1 - eps) t
    golden.near(case, cosine.alpha((1 - eps) * t)[:, 0], c["cosine_alpha"])
    slope = -(cosine.beta((1 - eps) * t) * cosine.alpha((1 - eps) * t))[
        :, 0
    ]  # d alpha / d((1 - eps) t), not d alpha / dt
    golden.near(case, slope, c["cosine_dalpha"])


@pytest.mark.parametrize("case", LOSSES)
def test_loss(golden, network, case):
    c = golden[case]
    method = duo(network)
    alpha = c["alpha_t"].double()
    t = method.process.schedule.inverse(alpha)  # the loglinear time of their alpha; the network is told sigma, the same
    golden.near(case, method.predict(c["xt"], t[:, None]).mu.log(), c["log_p_x0"])
    units = -c["dalpha_t"].double() / alpha / method.process.schedule.beta(t)[:, 0]  # of time, in one of theirs
    golden.near(case, units * method.continuous_bound(Batch(c["x0"]), c["xt"], t), c["loss_per_token"].sum(-1))
    logits, x_0, x_t = c["log_p_x0"].flatten(0, 1).double(), c["x0"].flatten(), c["xt"].flatten()
    each = method.cost(logits, x_0, x_t, t[:, None].expand(c["xt"].shape).flatten())
    golden.near(case, units[:, None] * each.reshape(c["xt"].shape), c["loss_per_token"])
    if "linear" in case:
        golden.near(case, units, torch.ones_like(units))


def test_nelbo(golden):
    case = "duo__nelbo_closed_form"
    c, method = golden[case], duo(None)
    for t in (key.removeprefix("nll64_t") for key in c if key.startswith("nll64_t")):
        time = torch.full((c["xt"].numel(),), float(t), dtype=torch.float64)
        logits, x_0, x_t = c["log_p_x0"].flatten(0, 1), c["x0"].flatten(), c["xt"].flatten()
        exact = method.cost(logits.double(), x_0, x_t, time).reshape(c["xt"].shape)
        golden.near(case, exact, c[f"nll64_t{t}"])
        golden.near(case, method.cost(logits, x_0, x_t, time).reshape(c["xt"].shape), c[f"nll_t{t}"])


def test_posterior(golden):
    case = "duo__posterior_uniform"
    c = golden[case]
    method = duo(RecordedLogits(c["p_x0"].double().log()))
    for s, t in (key.removeprefix("posterior_s").split("_t") for key in c if key.startswith("posterior_s")):
        golden.near(case, kernel(method.predict(c["xt"], float(t)), float(s)), c[f"posterior_s{s}_t{t}"])
        golden.near(case, method.process.push(c["p_x0"].double(), CLEAN, float(s)), c[f"forward_process_s{s}"])


@pytest.mark.parametrize("case", STEPS)
def test_step(golden, network, case):
    c, scalars = golden[case], golden.scalars(case)
    masking = scalars["algo"] == "mdlm"
    method = MDLM(FixedTime(network, 0.0), V, (L,), MDLM.Config()) if masking else duo(network)
    pred, t = method.predict(c["x"], scalars["t"]), scalars["t"]
    s = CLEAN if "final" in case else t - scalars["dt"]
    p = kernel(pred, s)
    if "psi" in case:  # kappa of the posterior, the rest noised afresh from the clean posterior
        kappa = scalars["kappa"]
        p = kappa * p + (1 - kappa) * method.process.push(posterior(pred), CLEAN, s)
    at = method.process.movable(c["x"])
    golden.near(case, p[at], c["probs"][at])
    assert torch.equal(race(p, c["u"])[at], c["x_next"][at])


def test_psi_kappas(golden):
    """kappa = 1 - sigma / (1 - alpha_s), sigma the probability of masking again: ReMDM's samplers in Duo's words."""
    case = "duo__psi_kappas"
    c = golden[case]
    t = c["timesteps"].double()[:-1]  # their last kappa is set to 1
    alpha_t, alpha_s = (Linear(EPS).alpha(u)[:, 0] for u in (t, t - (1 - LAST) / len(t)))
    state = State(torch.zeros(len(t), dtype=torch.long), torch.zeros(len(t), dtype=torch.bool), torch.zeros(len(t)))
    for name, sampler in (("max-capped", Remasking("cap", 0.1)), ("constant-remdm", Remasking("cap", 0.1))):
        sigma = sampler.sigma(state, state.fixed, alpha_t, alpha_s)
        kappa = 1 - sigma / (1 - alpha_s)  # below 0 it is no mixture: theirs stops there
        golden.near(case, kappa.clamp_min(0.0), c[f"{name}-0.1"][:-1])
    largest = ((1 - alpha_s) / alpha_t).clamp_max(1.0)
    rescaled = Remasking("rescale", 0.1).sigma(state, state.fixed, alpha_t, alpha_s)
    rounded(rescaled, 0.1 * largest, 4)
    golden.near(case, 1 - 0.1 * largest.clamp_max(0.1) / (1 - alpha_s), c["max-rescale-0.1"][:-1])
    assert (c["constant-0.4"] == torch.tensor(0.4)).all()


def test_gamma_to_alpha(golden):
    case = "duo__gamma_to_alpha"
    c, states = golden[case], golden.scalars(case)["V"]
    golden.near(case, top_probability(c["gamma"], states)[0], c["pt"])
    golden.near(case, uniform_alpha(c["gamma"], states)[0], c["alpha"])
