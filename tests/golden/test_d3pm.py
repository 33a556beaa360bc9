"""D3PM's published code (Google's for text, transcribed by hand; cloneofsimo's) against ours, at the tolerance of each case.

Google's text code numbers steps t = 0..T-1 and has columns as sources: its step t takes x_t to x_{t+1}, which is our Q from
t/T to (t + 1)/T transposed. Its image code has rows as sources. cloneofsimo numbers t = 1..T as we do. Losses there are of one
step, ours of all T.
"""

import math

import pytest
import torch
import torch.nn.functional as F

from tessella import bound
from tessella.method import Batch
from tessella.methods import D3PM
from tessella.prediction import LeaveOneOut, kernel, truth
from tessella.process import Mixture, absorbing, uniform
from tessella.schedule import CLEAN, PRIOR, Tabulated, table

from .recorded import Recorded, Said

D = torch.float64
T, K = 10, 8
Q = {f"d3pm_google.text.Q.{kind}.{schedule}": (kind, schedule) for kind in ("beta_diagonal", "mask")
     for schedule in ("standard", "cosine", "linear")}  # fmt: skip
Q |= {f"d3pm_google.text.Q.{kind}_slow.linear": (f"{kind}_slow", "linear") for kind in ("beta_diagonal", "mask")}
Q |= {f"d3pm_google.text.Q.closed_form_mi.{kind}": ("closed_form_mi", kind) for kind in ("mask", "uniform")}
LOSS = [f"d3pm_google.text.loss.{which}.t{t}.{space}"
        for which in ("beta_diagonal.cosine", "beta_diagonal_slow.linear", "mask.standard", "closed_form_mi.mask")
        for t in (0, 1, 5, 9) for space in ("prob", "log")]  # fmt: skip
IMAGE = [f"uniform.{s}" for s in ("cosine", "linear_0.02_1")] + ["absorbing.jsd"]
IMAGE_Q = [f"d3pm_google.images.Q.{kind}" for kind in IMAGE]
IMAGE_LOSS = [f"d3pm_google.images.loss.{kind}.{p}" for kind in IMAGE for p in ("f32", "f64")]
IMAGE_BETAS = [f"d3pm_google.images.betas.T{n}" for n in (12, 100, 1000)]
OTHER_Q = [f"d3pm_cloneofsimo.Q.T{n}.S{S}" for n, S in ((16, 5), (1000, 3))]
OTHER_LOSS = [f"d3pm_cloneofsimo.loss.T{n}.S{S}" for n, S in ((16, 5), (1000, 3))]
MI = [f"d3pm_google.text.mutual_information.{kind}" for kind in ("mask", "uniform")]
TESTED = {"d3pm_google.text.betas", *MI, *Q, *LOSS, *OTHER_Q, *OTHER_LOSS, *IMAGE_BETAS, *IMAGE_Q, *IMAGE_LOSS}

FORCED = "its fast inference sets the product of all T steps to the stationary law; ours is the product"
DIFFERS = {
    "d3pm_google.text.betas": "its linear betas stop one step before beta_max; ours end at it, and scale with T",
    "d3pm_google.text.mutual_information.uniform": "the noise at which information falls evenly is that of the data's "
    "unigrams, and never all of it; ours takes x_0 uniform and ends at alpha = 0",
    **{f"d3pm_google.text.Q.{kind}.{s}": FORCED for kind in ("beta_diagonal", "mask") for s in ("cosine", "linear")},
    **dict.fromkeys(OTHER_LOSS + IMAGE_LOSS, "it adds 1e-6 to the factors of eq. 4 and to x_0; ours is exact"),
}  # fmt: skip

CHAIN = "a chain that is no mixture (its matrices are band-diagonal, gaussian or of neighbours): a process of its own, to come"
IMAGES = "the head for ordered pixels: with the image model's chains, to come"
STRUCTURED = ("band_diagonal_w3", "band_diagonal_w4", "band_diagonal_w5", "gaussian_precomputed", "nearest_neighbor_k2",
              "nearest_neighbor_k3", "nearest_neighbor_expm_k2")  # fmt: skip
EXCLUDED = {
    **{f"d3pm_google.text.Q.{kind}.linear": CHAIN for kind in STRUCTURED},
    **{f"d3pm_google.text.loss.{kind}.linear.t{t}.{space}": CHAIN
       for kind in ("band_diagonal_w5", "gaussian_precomputed", "nearest_neighbor_k3")
       for t in (0, 1, 5, 9) for space in ("prob", "log")},
    "d3pm_google.text.nn_rate": CHAIN,
    **{f"d3pm_google.images.Q.{kind}": CHAIN for kind in (
        "uniform_band2.cosine", "gaussian.linear_0.05_1", "gaussian_band3.linear_0.05_1", "gaussian_S256_rows",
        "gaussian_S256_rows_band40")},
    **{f"d3pm_google.images.loss.{kind}.{p}": CHAIN for kind in (
        "uniform_band2.cosine", "gaussian.linear_0.05_1", "gaussian_band3.linear_0.05_1") for p in ("f32", "f64")},
    **{f"d3pm_google.images.logistic_head.{p}": IMAGES for p in ("f32", "f64")},
}  # fmt: skip


@pytest.fixture(scope="module")
def golden(shared):
    return Recorded(shared / "golden" / "jax")


def test_every_case_is_accounted_for(golden):
    assert {name for name in golden.index if name.startswith("d3pm")} == TESTED | EXCLUDED.keys()
    assert not TESTED & EXCLUDED.keys()
    assert DIFFERS.keys() <= TESTED


def product(beta: torch.Tensor) -> Tabulated:
    beta = beta.to(D)
    return Tabulated(torch.cat((torch.ones(1, dtype=D), (1 - beta).cumprod(0))))


def mixture(golden, kind: str, schedule: str) -> Mixture:
    """Upstream's process by its recorded betas, or exponents."""
    if kind == "closed_form_mi":
        alpha = torch.exp(-golden[f"d3pm_google.text.mutual_information.{schedule}"]["exponents"].to(D))
        if schedule == "mask":  # the last step jumps to the mask
            alpha[-1] = 0.0
        return (absorbing if schedule == "mask" else uniform)(K, Tabulated(alpha))
    betas = product(golden["d3pm_google.text.betas"][schedule])
    return (absorbing if kind.startswith("mask") else uniform)(K, betas)


# ---------------------------------------------------------------------------------- schedules and kernels
def test_betas(golden):
    case = "d3pm_google.text.betas"
    c = golden[case]
    for ours, theirs in (("mutual-information", "standard"), ("cosine", "cosine")):
        alpha = table(ours, T, K, True)
        golden.near(case, 1 - alpha[1:] / alpha[:-1], c[theirs])
        torch.testing.assert_close(alpha, product(c[theirs]).table, rtol=1e-4, atol=1e-6)
    low, high = (golden.index[case]["config"]["linear"][k] for k in ("beta_min", "beta_max"))
    golden.near(case, low + (high - low) * torch.arange(T, dtype=D) / T, c["linear"])  # difference: never beta_max
    alpha = table("linear", T, K, True)
    beta = 1 - alpha[1:] / alpha[:-1]
    torch.testing.assert_close(beta, torch.linspace(float(beta[0]), float(beta[-1]), T, dtype=D))
    golden.near(case, product(c["linear_const"]).table[1:], 0.9 ** torch.arange(1, T + 1))


@pytest.mark.parametrize("case", MI)
def test_mutual_information(golden, case):
    """Their exponents e, alpha = exp(-e), found by interpolation. At the mask alpha_i = 1 - i/T whatever the data."""
    c = golden[case]
    alpha = torch.exp(-c["exponents"].to(D))
    if case.endswith("mask"):
        golden.near(case, table("mutual-information", T, K, True)[:-1], alpha[:-1])
        golden.near(case, 1 - torch.exp(-c["query_exponents"].to(D)), c["query_info_removal"])
        return
    law = c["initial_distribution"].to(D)

    def removed(alpha):  # 1 - I(x_t; x_0)/H(x_0) under uniform noise
        joint = law[:, None] * (alpha[:, None, None] * torch.eye(K, dtype=D) + (1 - alpha)[:, None, None] / K)
        apart = law[:, None] * joint.sum(1, keepdim=True)
        information = torch.special.xlogy(joint, joint / apart).sum((1, 2))
        return 1 - information / -torch.special.xlogy(law, law).sum()

    golden.near(case, removed(torch.exp(-c["query_exponents"].to(D))), c["query_info_removal"])
    golden.near(case, removed(alpha)[1:], c["schedule_info_removal"])  # difference: i/(T + 1), of the data
    golden.near(case, c["schedule_info_removal"], torch.arange(1, T + 1, dtype=D) / (T + 1))
    law[:] = 1 / K
    torch.testing.assert_close(removed(table("mutual-information", T, K, False)), torch.arange(T + 1, dtype=D) / T)


@pytest.mark.parametrize("case", Q)
def test_kernels(golden, case):
    c, P = golden[case], mixture(golden, *Q[case])
    i = torch.arange(T + 1, dtype=D) / T
    golden.near(case, P.matrix(i[:-1], i[1:]).mT, c["q_onestep"])
    whole = P.matrix(torch.zeros_like(i), i).mT
    golden.near(case, whole[:-1], c["q_cum"][:-1])
    if case in DIFFERS:  # forced to the stationary law, whatever the betas
        golden.near(case, P.matrix(CLEAN, PRIOR).mT, c["q_cum"][-1])
        assert float((whole[-1] - c["q_cum"][-1]).abs().max()) == pytest.approx(float(P.schedule.alpha_1), rel=0.2)
    else:
        golden.near(case, whole[-1], c["q_cum"][-1])


@pytest.mark.parametrize("case", OTHER_Q)
def test_other_kernels(golden, case):
    c, config = golden[case], golden.index[case]["config"]
    n, S = config["n_T"], config["num_classes"]
    alpha = table("cosine", n, S, False)
    golden.near(case, 1 - alpha[1:] / alpha[:-1], c["beta_t"])
    P = uniform(S, Tabulated(alpha))
    t = (c["k"] + 1).to(D) / n
    golden.near(case, P.matrix(t - 1 / n, t).mT, c["q_one_step_transposed"])
    golden.near(case, P.matrix(torch.zeros_like(t), t), c["q_mats"])


# ---------------------------------------------------------------------------------- losses
def d3pm(logits, process: Mixture, steps: int, last: str = "text") -> D3PM:
    """D3PM that says the recorded logits, with upstream's process."""
    masked = process.mask is not None
    kind = "absorbing" if masked else "uniform"
    method = D3PM(Said(logits), process.K - masked, logits.shape[1:2], D3PM.Config(kind, steps=steps, last=last))
    method.process = process
    return method


@pytest.mark.parametrize("case", LOSS)
def test_loss(golden, case):
    c, config, said = golden[case], golden.index[case]["config"], golden.index[case]["scalars"]
    kind, schedule = config["diffusion"].split(".")
    P, step = mixture(golden, kind, schedule), config["t"]
    x_0, x_t, logits = c["x_start"].long()[None], c["x_t_plus_1"].long()[None], c["logits"].to(D)[None]
    method = d3pm(logits, P, T)
    t, s = torch.tensor([(step + 1) / T], dtype=D), torch.tensor([step / T if step else CLEAN], dtype=D)
    normal = torch.softmax if config["log_space"] else lambda p, dim: p

    golden.near(case, kernel(method.predict(x_t, t[:, None]), s[:, None])[0], normal(c["p_reverse"], -1))
    target = truth(P, x_0, x_t, t[:, None].expand(x_t.shape))
    golden.near(case, kernel(target, s[:, None])[0], normal(c["q_posterior"], -1))
    base = method.step(Batch(x_0), x_t, t, s)[0]
    assert float(base) == pytest.approx(said["kl/base_loss"], rel=1e-3)
    # lambda there stands beside one step's loss, and at a mask process beside all positions: ours, of T steps, counts the masks
    ce = F.cross_entropy(logits[0], x_0[0], reduction="none")
    weight = config["hybrid_lambda"]
    assert weight * float(ce.sum()) == pytest.approx(said["kl/hybrid_loss"], rel=1e-3)
    assert float(base + weight * ce.sum()) == pytest.approx(said["loss"], rel=1e-3)
    if "slow" in case:
        assert float(method.terms(Batch(x_0))["prior"]) == pytest.approx(said["prior_kl"], rel=1e-3)
    else:  # forced to 0 there: alpha_T is 1e-4 of what is left by the cosine, and 0 by 1/(T - t)
        assert said["prior_kl"] == 0.0
        assert float(method.terms(Batch(x_0))["prior"] if P.mask is None else 0.0) < 1e-5


@pytest.mark.parametrize("case", OTHER_LOSS)
def test_other_loss(golden, case):
    c, config, said = golden[case], golden.index[case]["config"], golden.index[case]["scalars"]
    n, S, eps = config["n_T"], config["num_classes"], 1e-6
    B, length = len(c["x0"]), c["x0"][0].numel()
    x_0, x_t = (c[k].long().reshape(B, length) for k in ("x0", "x_t"))
    logits = c["logits"].reshape(B, length, S).requires_grad_()
    method = d3pm(logits, uniform(S, Tabulated(table("cosine", n, S, False))), n, last="image")
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


# ---------------------------------------------------------------------------------- the image code's mixtures
def pixels(beta: torch.Tensor, kind: str, S: int) -> Mixture:
    """Uniform noise, or a grey pixel S // 2 that absorbs and is data too."""
    if kind == "uniform":
        return uniform(S, product(beta))
    return Mixture(F.one_hot(torch.tensor(S // 2), S).to(D), product(beta))


@pytest.mark.parametrize("case", IMAGE_BETAS)
def test_image_betas(golden, case):
    c, n = golden[case], golden.index[case]["config"]["num_timesteps"]
    for ours, theirs in (("mutual-information", "jsd"), ("cosine", "cosine")):
        alpha = table(ours, n, K, True)
        golden.near(case, 1 - alpha[1:] / alpha[:-1], c[theirs])
    alpha = table("linear", 1000, K, True)  # DDPM's, which theirs does not scale with T
    beta = 1 - alpha[1:] / alpha[:-1]
    golden.near(case, torch.linspace(float(beta[0]), float(beta[-1]), n, dtype=D), c["linear_0.0001_0.02"])
    golden.near(case, torch.linspace(0.02, 1, n, dtype=D), c["linear_0.02_1"])


@pytest.mark.parametrize("case", IMAGE_Q)
def test_image_kernels(golden, case):
    c, config = golden[case], golden.index[case]["config"]
    P = pixels(c["betas"], config["transition_mat_type"], config["S"])
    i = torch.arange(config["T"] + 1, dtype=D) / config["T"]
    golden.near(case, P.matrix(i[:-1], i[1:]), c["q_onestep"])
    golden.near(case, P.matrix(torch.zeros_like(i), i)[1:], c["q_cum"])


@pytest.mark.parametrize("case", IMAGE_LOSS)
def test_image_loss(golden, case):
    c, config, eps = golden[case], golden.index[case]["config"], 1e-6
    B, S, n = len(c["t"]), config["S"], config["T"]
    betas = golden[case.replace("loss", "Q").rpartition(".")[0]]["betas"]
    P = pixels(betas, config["transition_mat_type"], S)
    flat = lambda x: x.reshape(B, -1, *x.shape[4:])  # noqa: E731
    x_0, x_t, logits = flat(c["x_start"]).long(), flat(c["x_t"]).long(), flat(c["logits"]).requires_grad_()
    t = (c["t"] + 1).to(D) / n
    time, first = t[:, None].expand(x_0.shape), c["t"] == 0
    s = torch.where(first, CLEAN, t - 1 / n)[:, None].expand(x_0.shape)
    golden.near(case, P.push(P.one_hot(x_0), CLEAN, time), flat(c["q_probs"]))

    mu, bits = logits.to(D).softmax(-1), x_0.shape[1] * math.log(2)
    method = None
    if config["transition_mat_type"] == "uniform":
        method = d3pm(logits, P, n, last="image")
        pred, each = method.predict(x_t, t[:, None]), method.step(Batch(x_0), x_t, t, s[:, 0])
    else:  # no system of its own: eq. 4 itself
        pred = LeaveOneOut(P, mu, x_t, time)
        each = bound.discrete(truth(P, x_0, x_t, time), pred, s).sum(-1)
        # difference: its L_0 is the logits' also where a pixel is not grey at t = 1/T, and so is x_0
        assert (each / bits <= c["vb_bpd"])[first].all()
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
    golden.near(case, torch.where(first[:, None], nll, kl).sum(-1) / bits, c["vb_bpd"])
    torch.testing.assert_close(each / bits, c["vb_bpd"].to(D), rtol=5e-3, atol=2e-5)
    if method is not None:
        torch.testing.assert_close(kernel(pred, s), log_p.exp(), rtol=0, atol=2e-4)
    ce = F.cross_entropy(logits.transpose(1, 2), x_0, reduction="none").sum(-1) / bits
    golden.near(case, ce, c["ce_bpd"])
    loss = each / bits + config["hybrid_coeff"] * ce
    torch.testing.assert_close(loss, c["hybrid_loss"].to(D), rtol=5e-3, atol=2e-5)
    if method is not None:
        (gradient,) = torch.autograd.grad(loss.mean(), logits)
        torch.testing.assert_close(gradient, flat(c["grad_logits_of_mean_hybrid"]), rtol=1e-2, atol=1e-5)
        prior = P.divergence(x_0, 1.0).sum(-1) / bits
        torch.testing.assert_close(prior, c["prior_bpd"].to(D), rtol=1e-2, atol=1e-4)
