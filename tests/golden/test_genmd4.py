"""GenMD4's published code against ours, at the tolerance of each case, in float32 and float64."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from zellige.core.batch import Batch
from zellige.core.curves import Polynomial
from zellige.core.schedule import CLEAN
from zellige.evaluation.likelihood import Likelihood
from zellige.methods import GenMD4

from .recorded import JAX, RecordedLogits, RecordedNoise, RecordedUniforms, rounded

SCHEDULE, LOSS, CALL = (JAX.cases(rf"genmd4\.{kind}\..*") for kind in ("schedule", "loss_and_rloo", "call"))
V, EPS, T1 = (JAX.index[LOSS[0]]["config"][k] for k in ("vocab_size", "eps", "t1"))
FORMS = dict.fromkeys(
    CALL, "its loss is the value of the surrogate, which may be negative; ours has its gradient and the bound's value"
)
EXCLUDED: dict[str, str] = {}
TESTED = {*SCHEDULE, *LOSS, *CALL}


@pytest.fixture(scope="module")
def golden():
    return JAX


def test_every_case_is_accounted_for(golden):
    assert {name for name in golden.index if name.startswith("genmd4.")} == TESTED | EXCLUDED.keys()
    assert not TESTED & EXCLUDED.keys()


def padded(w: Tensor) -> Tensor:
    """With an entry for the mask, which upstream's network and schedule lack."""
    return torch.cat((w, w.new_zeros((*w.shape[:-1], 1))), -1)


def genmd4(w: Tensor, *logits: Tensor, begin: float = 0.0) -> GenMD4:
    """GenMD4 with raw exponents w, on recorded logits (B, *, V), one set after the other along the rows."""
    L = logits[0][0, ..., 0].numel()
    said = torch.cat([each.reshape(len(each), L, V) for each in logits])
    method = GenMD4(RecordedLogits(padded(said)), V, (L,), GenMD4.Config(eps=EPS, begin=begin))
    method.process.schedule.raw = torch.nn.Parameter(padded(w).clone())
    return method


@pytest.mark.parametrize("case", SCHEDULE)
def test_schedule(golden, case):
    c = golden[case]
    t, power = c["t"].double(), F.softplus(c["w"].double())
    ours = Polynomial(power, EPS)
    golden.near(case, ours.w, c["power"])
    golden.near(case, ours.alpha(t), c["alpha"])
    raw = Polynomial(torch.ones(V), learnable=True).raw
    golden.near(case, raw, c["w_init_power1"])
    inside = (t > 0) & (t < 1)
    golden.near(case, -ours.weight(t)[inside], c["dgamma_times_alpha"][inside])
    golden.near(case, -(ours.beta(t) * ours.alpha(t))[inside], c["dalpha"][inside])
    alpha, snr = ours.alpha(t)[inside], ours.log_snr(t)[inside]
    if case.endswith("f64"):
        golden.near(case, snr, c["logsnr"][inside])
    else:  # upstream loses digits of alpha or 1 - alpha where they are small: d log-snr / d alpha times 4 roundings of alpha
        rounded(c["logsnr"][inside], snr, 4, torch.float32, 1 / (alpha * (1 - alpha)))


def guess(w: Tensor, x: Tensor) -> Tensor:
    """Upstream's reconstruction term: what lies masked at t_1, times the cost of a guess in proportion to 1 - alpha(t_1)."""
    lost = math.log1p(-EPS) + F.softplus(w) * math.log(T1)
    return (lost[x].exp() * (lost.logsumexp(-1) - lost[x])).sum(-1)


@pytest.mark.parametrize("case", LOSS)
def test_loss_and_two_draw_gradient(golden, case):
    c = golden[case]
    B = len(c["x"])
    x, *draws = (c[k].long().reshape(B, -1) for k in ("x", "zt_1", "zt_2"))
    logits = [c[f"logits_{i}"].requires_grad_() for i in (1, 2)]
    method, t = genmd4(c["w"], *logits), c["t"].double()
    raw = method.process.schedule.raw
    batch = Batch(x)
    golden.near(case, method.process.schedule.alpha_of(x, t[:, None]), c["keep_prob"].reshape(B, -1))
    for i in (0, 1):
        one = genmd4(c["w"], logits[i])
        golden.near(case, one.continuous_bound(batch, draws[i], t), c[f"loss_diff_{i + 1}"])

    # the surrogate: ours has its gradient and the value of the bound
    ours = method.rloo(batch, *draws, t)
    golden.near(case, ours, (c["loss_diff_1"] + c["loss_diff_2"]) / 2)
    rloo = (c["loss_diff_1"] - c["loss_diff_2"]).double() / 2
    rloo = rloo * (method.log_q(batch, draws[0], t) - method.log_q(batch, draws[1], t))
    golden.near(case, rloo, c["rloo"])
    of_w, of_logits = torch.autograd.grad(ours.mean(), [raw, logits[0]])
    golden.near(case, of_w[:V], c["grad_w_diff"].double() + c["grad_w_rloo"].double())
    assert float(of_w[V]) == 0.0
    golden.near(case, of_logits, c["grad_logits_1_total"])

    # difference: their reconstruction does not ask the network
    w = c["w"].double().requires_grad_()
    theirs = guess(w, x)
    golden.near(case, theirs, c["loss_recon"])
    for i, z in ((1, draws[0]), (2, draws[1])):
        terms = as_published(c, i, x, z, t)
        golden.near(case, terms["diffusion"], c[f"loss_diff_{i}"])
        golden.near(case, terms["reconstruction"], c["loss_recon"])
    golden.near(case, torch.autograd.grad(theirs.mean(), w)[0], c["grad_w_recon"])
    golden.near(case, c["grad_w_diff"].double() + c["grad_w_rloo"] + c["grad_w_recon"], c["grad_w_total"])
    masks, zero = torch.full_like(x, V), torch.zeros(B, dtype=torch.float64)
    own = genmd4(c["w"], logits[0], begin=T1).discrete_bound(batch, masks, zero, torch.full_like(zero, CLEAN))
    expected = -logits[0].double().reshape(B, -1, V).log_softmax(-1).gather(-1, x[..., None]).sum((1, 2))
    rounded(own, expected, 2 * x.shape[1], logits[0].dtype)  # L log-softmaxes and their sum
    # a network that says a guess in proportion to 1 - alpha pays what they count
    lost = F.softplus(c["w"].double()) * math.log(T1)
    blind = genmd4(c["w"].double(), lost.expand(B, x.shape[1], V), begin=T1)
    each = torch.stack([
        blind.discrete_bound(batch, torch.where(torch.arange(x.shape[1]) == i, V, x), zero, torch.full_like(zero, CLEAN))
        * (1 - blind.process.schedule.alpha_of(x[:, i], 0.0))
        for i in range(x.shape[1])
    ])  # fmt: skip
    golden.near(case, each.sum(0), c["loss_recon"])


def as_published(c: dict[str, Tensor], number: int, x: Tensor, z: Tensor, tau: Tensor) -> dict[str, Tensor]:
    """The terms that `evaluate(ends="published")` asks for, at recorded times and noise z (B, L)."""
    method = genmd4(c["w"], c[f"logits_{number}"], begin=T1)
    return Likelihood(method, ends="published")(Batch(x), RecordedNoise(method.process.schedule.time(tau), z == V))


@pytest.mark.parametrize("case", CALL)
def test_totals_in_bits_per_token(golden, case):
    c, total = golden[case], golden.index[case]["scalars"]
    B = len(c["x"])
    x, *draws = (c[k].long().reshape(B, -1) for k in ("x", "zt_1", "zt_2"))
    tau = c["t"].double()
    method = genmd4(c["w"], c["logits_1"], c["logits_2"])
    bits = x.shape[1] * math.log(2)

    def near(ours: Tensor, key: str) -> None:
        golden.near(case, ours, total[key])

    bound = method.rloo(Batch(x), *draws, tau).mean() / bits
    near(bound, "loss_diff")
    # each term as `ends` published draws it, the mean of both draws
    terms = [as_published(c, i, x, z, tau) for i, z in ((1, draws[0]), (2, draws[1]))]
    mean = {name: torch.stack([each[name].mean() for each in terms]).mean() / bits for name in terms[0]}
    for ours, theirs in (("diffusion", "loss_diff"), ("reconstruction", "loss_recon"), ("prior", "loss_prior")):
        near(mean[ours], theirs)
    near(torch.stack([*mean.values()]).sum(), "loss_nelbo")
    recon = guess(c["w"].double(), x).mean() / bits
    # the loss reported upstream is the value of the surrogate; ours is the bound
    f, g = (genmd4(c["w"], c[f"logits_{i}"]).continuous_bound(Batch(x), draws[i - 1], tau) for i in (1, 2))
    push = (f - g) / 2 * (method.log_q(Batch(x), draws[0], tau) - method.log_q(Batch(x), draws[1], tau))
    near(bound + recon + push.mean() / bits, "loss")
    w = method.process.schedule.w[:V]
    for key, value in (("power_avg", w.mean()), ("power_min", w.min()), ("power_max", w.max())):
        near(value, key)
    # `grad_w_loss` is of what their `loss` is: diffusion, push and guess
    raw = method.process.schedule.raw
    (ours,) = torch.autograd.grad(method.rloo(Batch(x), *draws, tau).mean() / bits, raw)
    guessed = c["w"].double().requires_grad_()
    (more,) = torch.autograd.grad(guess(guessed, x).mean() / bits, guessed)
    golden.near(case, ours[:V] + more, c["grad_w_loss"])

    # difference: per unit of our t in [0, 1] the integrand has the factor 1 - t_1 of its times
    piece = genmd4(c["w"], c["logits_1"], c["logits_2"], begin=T1)
    t = piece.process.schedule.time(tau)
    golden.near(case, piece.rloo(Batch(x), *draws, t).mean() / bits, (1 - T1) * bound)
    step = ((tau - tau[0]) / (1 - T1)) % 1.0  # antithetic: one uniform for all rows
    golden.near(case, step, torch.arange(B).double() / B)


def test_draws_are_kept_where_u_is_below_alpha():
    method = genmd4(torch.zeros(V), torch.zeros(2, 5, V), begin=T1)
    x, u = torch.arange(10).reshape(2, 5) % V, torch.rand(2, 5, generator=torch.Generator().manual_seed(0)).double()
    alpha = method.process.schedule.alpha_of(x, 0.5)
    assert torch.equal(method.corrupt(Batch(x), 0.5, RecordedUniforms(1 - u)), torch.where(u < alpha, x, V))
