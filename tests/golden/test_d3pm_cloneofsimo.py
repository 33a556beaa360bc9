"""cloneofsimo's D3PM (uniform noise) against ours, at the tolerance of each case. It numbers t = 1..T as we do."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from zellige.core.batch import Batch
from zellige.core.prediction import kernel, truth
from zellige.core.process import uniform
from zellige.core.schedule import CLEAN, Tabulated
from zellige.methods.d3pm_transitions import table

from .d3pm import D, d3pm
from .recorded import JAX, rounded, vanishes

Q, LOSS = (JAX.cases(rf"d3pm_cloneofsimo\.{kind}\..*") for kind in ("Q", "loss"))
TESTED = {*Q, *LOSS}
EPS = JAX.eps(LOSS[0])
FORMS = dict.fromkeys(
    LOSS,
    "it adds eps to both factors of eq. 4 and to x_0; ours is eps = 0: the difference falls with eps, but for the entropy of its "
    "x_0, eps log(1/eps)",
)


@pytest.fixture(scope="module")
def golden():
    return JAX


def test_every_case_is_accounted_for(golden):
    assert {name for name in golden.index if name.startswith("d3pm_cloneofsimo")} == TESTED
    assert FORMS.keys() <= TESTED


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
    c, config, scalars = golden[case], golden.index[case]["config"], golden.index[case]["scalars"]
    n, S = config["n_T"], config["num_classes"]
    x_0, x_t, logits = (c[k].flatten(1, c["x0"].ndim - 1) for k in ("x0", "x_t", "logits"))
    x_0, x_t, logits = x_0.long(), x_t.long(), logits.to(D).requires_grad_()
    method = d3pm(logits, uniform(S, Tabulated(table("cosine", n, S, False))), "uniform", n, last="image")
    P, t, later = method.process, c["t"].to(D) / n, c["t"] > 1
    s, noised = torch.where(later, t - 1 / n, CLEAN), t[:, None]
    # their draw: argmax of log(q + eps) plus a Gumbel of the recorded uniforms
    gumbel = -torch.log(-torch.log(c["noise"].to(D).reshape(logits.shape).clip(EPS, 1.0)))
    q = P.push(P.one_hot(x_0), CLEAN, noised)
    assert torch.equal(((q + EPS).log() + gumbel).argmax(-1), x_t)

    def posteriors(eps: float) -> tuple[Tensor, Tensor]:
        """Logits of their p and q at x_s: eps in both factors of eq. 4 and in x_0; at the first step those of x_0."""
        distributions = logits.softmax(-1), (P.one_hot(x_0) + eps) / (1 + S * eps)
        each = [(P.likelihood(x_t, s[:, None], noised) + eps).log() + (P.push(distribution, CLEAN, s[:, None]) + eps).log()
                for distribution in distributions]  # fmt: skip
        p, q = (
            torch.where(later[:, None, None], z, distribution.log()) for z, distribution in zip(each, distributions)
        )
        return p, q

    def vb(eps: float) -> Tensor:
        p, q = (z.log_softmax(-1) for z in posteriors(eps))
        return (q.exp() * (q - p)).sum(-1).mean()

    for z, name in zip(posteriors(EPS), ("pred", "true")):
        golden.near(case, z[later], c[f"{name}_posterior_logits"].reshape(logits.shape)[later])
    ce = F.cross_entropy(logits.transpose(1, 2), x_0, reduction="none")
    loss = lambda vb: config["hybrid_loss_coeff"] * vb + ce.mean()  # noqa: E731  # their weight is on the bound
    gradient = lambda vb: torch.autograd.grad(loss(vb), logits, retain_graph=True)[0]  # noqa: E731
    golden.near(case, ce.mean(), scalars["ce_loss"])
    golden.near(case, vb(EPS), scalars["vb_loss"])
    golden.near(case, loss(vb(EPS)), scalars["loss"])
    golden.near(case, gradient(vb(EPS)), c["grad_logits"].reshape(logits.shape))

    each = method.discrete_bound(Batch(x_0), x_t, t, s)
    ours = each.sum() / x_0.numel()
    rounded(each[~later], ce[~later].sum(-1), 2 * S * x_0.shape[1])  # the first step of ours: no eps, in no way

    def entropy(eps: float) -> Tensor:
        """Of their x_0 at the first step: eps log(1/eps), which is in no proportion."""
        x = (P.one_hot(x_0) + eps)[~later] / (1 + S * eps)
        return -(x * x.log()).sum() / x_0.numel()

    vanishes(lambda eps: vb(eps) + entropy(eps) - ours)
    vanishes(lambda eps: gradient(vb(eps)) - gradient(ours))
    for i, pred in enumerate((method.predict(x_t, noised), truth(P, x_0, x_t, noised.expand(x_t.shape)))):
        vanishes(lambda eps: posteriors(eps)[i][later].softmax(-1) - kernel(pred, s[:, None])[later])  # noqa: B023
