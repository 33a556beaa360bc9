"""cloneofsimo's D3PM (uniform noise) against ours, at the tolerance of each case. It numbers t = 1..T as we do."""

import math

import pytest
import torch
import torch.nn.functional as F

from zellige.core.batch import Batch
from zellige.core.prediction import kernel, truth
from zellige.core.process import uniform
from zellige.core.schedule import CLEAN, Tabulated
from zellige.methods.d3pm_transitions import table

from .d3pm import D, d3pm
from .recorded import JAX

Q = [f"d3pm_cloneofsimo.Q.T{n}.S{S}" for n, S in ((16, 5), (1000, 3))]
LOSS = [f"d3pm_cloneofsimo.loss.T{n}.S{S}" for n, S in ((16, 5), (1000, 3))]
TESTED = {*Q, *LOSS}
DIFFERS = dict.fromkeys(LOSS, "it adds 1e-6 to the factors of eq. 4 and to x_0; ours is exact")


@pytest.fixture(scope="module")
def golden():
    return JAX


def test_every_case_is_accounted_for(golden):
    assert {name for name in golden.index if name.startswith("d3pm_cloneofsimo")} == TESTED
    assert DIFFERS.keys() <= TESTED


@pytest.mark.parametrize("case", Q)
def test_kernels(golden, case):
    c, config = golden[case], golden.index[case]["config"]
    n, S = config["n_T"], config["num_classes"]
    alpha = table("cosine", n, S, False)
    golden.near(case, 1 - alpha[1:] / alpha[:-1], c["beta_t"])
    P = uniform(S, Tabulated(alpha))
    t = (c["k"] + 1).to(D) / n
    golden.near(case, P.matrix(t - 1 / n, t).mT, c["q_one_step_transposed"])
    golden.near(case, P.matrix(torch.zeros_like(t), t), c["q_mats"])


@pytest.mark.parametrize("case", LOSS)
def test_loss(golden, case):
    c, config, said = golden[case], golden.index[case]["config"], golden.index[case]["scalars"]
    n, S, eps = config["n_T"], config["num_classes"], 1e-6
    B, length = len(c["x0"]), c["x0"][0].numel()
    x_0, x_t = (c[k].long().reshape(B, length) for k in ("x0", "x_t"))
    logits = c["logits"].reshape(B, length, S).requires_grad_()
    method = d3pm(logits, uniform(S, Tabulated(table("cosine", n, S, False))), "uniform", n, last="image")
    t = c["t"].to(D) / n
    s = torch.where(c["t"] > 1, t - 1 / n, CLEAN)
    noised = t[:, None]
    # their draw: argmax of log(q + eps) plus a Gumbel of the recorded uniforms
    gumbel = -torch.log(-torch.log(c["noise"].to(D).reshape(B, length, S).clip(eps, 1.0)))
    q = method.process.push(method.process.one_hot(x_0), CLEAN, noised)
    assert torch.equal(((q + eps).log() + gumbel).argmax(-1), x_t)

    later, P = c["t"] > 1, method.process
    p_x0 = {"pred": logits.to(D).softmax(-1), "true": (P.one_hot(x_0) + eps) / (1 + S * eps)}
    pred = method.predict(x_t, noised)
    ours = {"pred": pred, "true": truth(P, x_0, x_t, noised.expand(x_t.shape))}
    posteriors = []
    for which, law in p_x0.items():  # difference: eps in both factors
        factors = P.likelihood(x_t, s[:, None], noised) + eps, P.push(law, CLEAN, s[:, None]) + eps
        theirs = torch.log(factors[0]) + torch.log(factors[1])
        recorded = c[f"{which}_posterior_logits"].reshape(B, length, S)
        golden.near(case, theirs[later], recorded[later])
        exact = kernel(ours[which], s[:, None])[later]
        torch.testing.assert_close(theirs[later].softmax(-1), exact, rtol=0, atol=5e-4)
        posteriors.append(torch.where(later[:, None, None], theirs, (law if which == "true" else p_x0["pred"]).log()))
    log_p, log_q = (z.log_softmax(-1) for z in posteriors)
    vb = (log_q.exp() * (log_q - log_p)).sum(-1).mean()
    assert float(vb.detach()) == pytest.approx(said["vb_loss"], rel=2e-4)

    each = method.step(Batch(x_0), x_t, t, s)
    ce = F.cross_entropy(logits.transpose(1, 2), x_0, reduction="none")
    golden.near(case, ce.mean(), torch.tensor(said["ce_loss"]))
    vb = each.sum() / (B * length)
    assert float(vb.detach()) == pytest.approx(said["vb_loss"], rel=1e-3)
    first = each[~later].sum() / length
    torch.testing.assert_close(first, ce[~later].sum().to(D) / length, rtol=1e-5, atol=0)
    loss = config["hybrid_loss_coeff"] * vb + ce.mean()  # their weight is on the bound
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(gradient, c["grad_logits"].reshape(gradient.shape), rtol=2e-3, atol=2e-6)
    assert float(loss.detach()) == pytest.approx(said["loss"], rel=1e-3)
    assert math.isclose(said["loss"], config["hybrid_loss_coeff"] * said["vb_loss"] + said["ce_loss"], rel_tol=1e-6)
