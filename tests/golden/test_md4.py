"""MD4's published code against ours, at the tolerance of each case, in float32 and float64.

FORMS says in which form theirs is ours, DIFFERS how they differ: tests assert both.
"""

import math

import pytest
import torch
from torch import Tensor

from zellige import guide
from zellige.core import random
from zellige.core.batch import Batch
from zellige.core.curves import Cosine, Linear, Polynomial
from zellige.core.prediction import kernel, posterior
from zellige.core.schedule import CLEAN, PRIOR, Schedule
from zellige.evaluation.likelihood import Likelihood
from zellige.methods import MD4
from zellige.samplers import Ancestral, State

from .recorded import JAX, RecordedLogits, RecordedNoise, RecordedUniforms, rounded

SCHEDULES = JAX.cases(r"md4\.schedule\..*")
FORWARD = JAX.cases(r"md4\.forward_sample\..*")
LOSS = JAX.cases(r"md4\.diffusion_loss\..*")
CALL = JAX.cases(r"md4\.call\..*")
GRID = JAX.cases(r"md4\.sampling_grid\..*")
STEP = JAX.cases(r"md4\.sample_step\..*")
DECODE = JAX.cases(r"md4\.decode\..*")
CUT = JAX.cases(r"md4\.topp_topk_mask\..*")
TESTED = {*SCHEDULES, *FORWARD, *LOSS, *CALL, *GRID, *STEP, *DECODE, *CUT}
V, EPS = (JAX.index[FORWARD[0]]["config"][k] for k in ("vocab_size", "eps"))
EXCLUDED = {
    "md4.timestep_embedding.f32": "a part of MD4's own transformer, which is not ours: the time embedding of DiT is used, "
    "and MD4's unit (1000 t) is what its network is told",
}
STEPS = "ours reveals eps / (1 - alpha) more in the last of T steps, to CLEAN; from t = 1 to 0 they are equal"
FORMS = {
    **dict.fromkeys([case for case in LOSS if ".T" in case], STEPS),
}
DIFFERS: dict[str, str] = {}


@pytest.fixture(scope="module")
def golden():
    return JAX


def test_every_case_is_accounted_for(golden):
    cases = {name for name in golden.index if name.startswith("md4.")}
    assert cases == TESTED | EXCLUDED.keys()
    assert FORMS.keys() | DIFFERS.keys() <= TESTED
    others = {name for name, case in golden.index.items() if case["group"].startswith("md4_")} - cases
    assert all(name.startswith("genmd4.") for name in others)  # GenMD4, recorded with MD4: a method of its own
    assert float(MD4(None, V, (1,)).network_time(torch.tensor(0.25))) == 250.0


def schedule(name: str, eps: float = EPS) -> Schedule:
    """Upstream's schedules: raw alpha squeezed into [eps, 1 - eps]."""
    ends = {"alpha_1": eps, "alpha_0": 1 - eps}
    if name.startswith("poly"):
        return Polynomial(torch.tensor(float(name.removeprefix("poly")), dtype=torch.float64), **ends)
    return {"linear": Linear, "cosine": Cosine}[name](**ends)


def md4(logits: Tensor, name: str = "linear") -> MD4:
    """MD4 on recorded logits (B, *, V); the column of the mask, which upstream's network lacks, is added."""
    logits = logits.flatten(1, -2)
    padded = torch.cat((logits, torch.zeros_like(logits[..., :1])), -1)
    powers = {"exponent": float(name.removeprefix("poly"))} if name.startswith("poly") else {}
    config = MD4.Config("polynomial" if powers else name, **powers)
    return MD4(RecordedLogits(padded), V, logits.shape[1:2], config)


# ---------------------------------------------------------------------------------- schedules
@pytest.mark.parametrize("case", SCHEDULES)
def test_schedules(golden, case):
    """Difference: where alpha or 1 - alpha is small, upstream's float32 loses digits of what divides by it. Ours is held
    against float64 there, and theirs within 4 roundings of alpha, which d log-snr / d alpha and d weight / d alpha enlarge."""
    c, config = golden[case], golden.index[case]["config"]
    ours, t = schedule(config["schedule"], config["eps"]), c["t"].double()
    alpha, single = ours.alpha(t)[:, 0], case.endswith("f32")

    def near(value: Tensor, key: str, at: Tensor | bool = True, enlarged: Tensor | None = None) -> None:
        at = c[key].isfinite() & at
        if single and enlarged is not None:
            rounded(c[key][at], value[:, 0][at], 4, torch.float32, enlarged[at])
        else:
            golden.near(case, value[:, 0][at], c[key][at])

    near(ours.alpha(t), "alpha")
    near(torch.func.jvp(ours.alpha, (t,), (torch.ones_like(t),))[1], "dalpha")
    raw = schedule(config["schedule"], 0.0)
    near(raw.alpha(t), "alpha_raw")
    near(torch.func.jvp(raw.alpha, (t,), (torch.ones_like(t),))[1], "dalpha_raw")
    inside, weight = (t > 0) & (t < 1), ours.weight(t)
    near(-ours.beta(t) * ours.alpha(t), "dalpha", inside)
    squeezed = config["eps"] > 0  # alpha runs from 1 - eps to eps: nothing is infinite at the ends
    near(-weight, "dgamma_times_alpha", (t > 0) | squeezed, weight[:, 0] / (1 - alpha))
    near(ours.log_snr(t), "logsnr", inside | squeezed, 1 / (alpha * (1 - alpha)))


@pytest.mark.parametrize("case", FORWARD)
def test_forward_sample(golden, case):
    """Upstream keeps a token iff u < alpha; ours masks it iff u < 1 - alpha: one is the other with 1 - u."""
    c, config = golden[case], golden.index[case]["config"]
    x, t = c["x"].long(), c["t"].double()[:, None]
    method = md4(torch.zeros(*x.shape, V), config["schedule"])
    golden.near(case, method.process.schedule.alpha(t)[..., 0], c["keep_prob"])
    assert torch.equal(method.corrupt(Batch(x), t, RecordedUniforms(1 - c["u"].double())), c["zt"].long())


# ---------------------------------------------------------------------------------- losses
@pytest.mark.parametrize("case", LOSS)
def test_diffusion_loss(golden, case):
    c, config = golden[case], golden.index[case]["config"]
    B, L = len(c["x"]), c["x"][0].numel()
    logits = c["logits"].requires_grad_()
    method = md4(logits, config["schedule"])
    x, z, t = c["x"].long().reshape(B, L), c["zt"].long().reshape(B, L), c["t"].double()
    if config["cont_time"]:
        loss = method.continuous_bound(Batch(x), z, t)
    else:
        T = config["timesteps"]
        used = ((t * T).floor() + 1) / T
        golden.near(case, used, c["t_used"])
        loss = T * method.discrete_bound(Batch(x), z, used, used - 1 / T)
        # difference: our first and last step are the jumps from PRIOR and to CLEAN, theirs stop at alpha = eps and 1 - eps
        alpha, last = method.process.schedule.alpha, torch.tensor(1 / T, dtype=torch.float64)
        more = method.reveal_probability(last, CLEAN) - method.reveal_probability(last, 0.0)
        rounded(more, (EPS / (1 - alpha(last)))[0], 4, scale=1 / (1 - alpha(last)))  # both of which divide by 1 - alpha
        first, s = torch.tensor(1.0, dtype=torch.float64), 1 - 1 / T
        assert float(method.reveal_probability(PRIOR, s)) == float(alpha(s))
        rounded(method.reveal_probability(first, s), ((alpha(s) - EPS) / (1 - EPS))[0], 4, scale=1.0)
    golden.near(case, loss, c["loss_diff"])
    (gradient,) = torch.autograd.grad(loss.mean(), logits)
    golden.near(case, gradient, c["grad_logits_of_mean"])

    # their terms, as `ends` published draws them, and how far the model's own are
    steps = 0 if config["cont_time"] else config["timesteps"]
    terms = as_published(method, x, z, t, steps)
    golden.near(case, terms["diffusion"], c["loss_diff"])
    golden.near(case, terms["reconstruction"], c["recon_loss"].double().expand(B))
    golden.near(case, terms["prior"], c["latent_loss"].double().expand(B))
    masks, clean = torch.full_like(x, method.process.mask), torch.full((B,), CLEAN)
    blind = md4(torch.zeros(B, L, V, dtype=torch.float64), config["schedule"])
    for model in (blind, method):  # the network says the same whatever it sees: E = P(masked at t = 0) = eps a position
        expected = EPS * model.discrete_bound(Batch(x), masks, torch.zeros(B), clean)
        own = EPS * -posterior(model.predict(masks, 0.0)).gather(-1, x[..., None]).log().sum((-1, -2))
        precision = torch.float64 if model is blind else logits.dtype  # of L log-softmaxes and their sum
        rounded(expected, own, 2 * L, precision)
        if model is blind:  # what a uniform guess costs
            rounded(expected, terms["reconstruction"], 2 * L)


def as_published(method: MD4, x: Tensor, z: Tensor, t: Tensor, steps: int = 0) -> dict[str, Tensor]:
    """The terms that `evaluate(ends="published")` asks for, at recorded times t (B,) and noise z (B, L)."""
    ask = Likelihood(method, ends="published", steps=steps)
    assert ask.kind == "estimate"
    return ask(Batch(x), RecordedNoise(t, z == method.process.mask))


@pytest.mark.parametrize("case", CALL)
def test_totals_in_bits_per_token(golden, case):
    c, config, total = (golden[case], golden.index[case]["config"], golden.index[case]["scalars"])
    method, x = md4(c["logits"], config["schedule"]), c["x"].long()
    terms = as_published(method, x, c["zt"].long(), c["t"])
    bits = {name: value.mean() / (x.shape[1] * math.log(2)) for name, value in terms.items()}
    for ours, theirs in (("diffusion", "loss_diff"), ("reconstruction", "loss_recon"), ("prior", "loss_prior")):
        golden.near(case, bits[ours], total[theirs])
    golden.near(case, torch.stack([*bits.values()]).sum(), total["loss"])
    if config["antithetic"]:  # one uniform for all rows, as `random.stratified`
        B, t = len(c["t"]), c["t"].double()
        golden.near(case, random.stratified(B, RecordedUniforms(t[:1] % (1 / B))).sort().values, t.sort().values)


# ---------------------------------------------------------------------------------- sampling
@pytest.mark.parametrize("case", GRID)
def test_sampling_grids(golden, case):
    """The published grid, and after it the step to CLEAN (`DECODE`). Between their ends the grids of a model of T
    steps have these times; of continuous time they have some beyond."""
    c, config = golden[case], golden.index[case]["config"]
    T = config["timesteps"]
    method = md4(torch.zeros(1, 1, V), {"cosine": "linear", "uniform": "cosine"}[config["grid"]])  # whose grid it is
    times = Ancestral("published").times(method, T)
    assert len(times) == T + 2
    assert float(times[-1]) == CLEAN
    golden.near(case, times[:-2], c["t"])
    golden.near(case, times[1:-1], c["s"])
    for key in (key for key in c if key.startswith("alpha_")):
        end, name = key.removeprefix("alpha_").split(".", 1)
        golden.near(case, schedule(name).alpha({"t": times[:-2], "s": times[1:-1]}[end])[:, 0], c[key])
    method.steps = T
    ours = Ancestral(config["grid"]).times(method, T)
    assert len(ours) == T + 1
    assert (ours[0], ours[-1]) == (PRIOR, CLEAN)
    golden.near(case, ours[1:-1], c["s"][:-1])


@pytest.mark.parametrize("case", STEP)
def test_sample_step(golden, case):
    c, config = golden[case], golden.index[case]["config"]
    grid = golden[f"md4.sampling_grid.{config['grid']}.T{config['timesteps']}.{case[-3:]}"]
    t, s = (grid[k][config["i"]].double() for k in "ts")
    z, method = c["zt"].long(), md4(c["logits"], config["schedule"])
    masked = z == V
    pred = method.predict(z, t)
    p = kernel(pred, s)
    golden.near(case, p[masked], c["ancestral_probs"][masked])
    assert torch.equal(torch.where(masked, p.argmax(-1), z), c["ancestral_zs_argmax"].long())
    # mean sampler: unmask with this probability, then draw from the posterior; that is choose-then-ask
    golden.near(case, method.reveal_probability(t, s), c["mean_unmask_prob"])
    golden.near(
        case, (method.reveal_probability(t, s) * posterior(pred)[masked])[:, :V], c["ancestral_probs"][masked][:, :V]
    )
    for key in (key for key in c if key.startswith("topp")):  # recorded in float32 only
        nucleus = kernel(guide.truncated(pred, nucleus=float(key.removeprefix("topp").removesuffix("_probs"))), s)
        golden.near(case, nucleus[masked], c[key][masked])


@pytest.mark.parametrize("case", CUT)
def test_top_p_and_top_k_keep_the_same_tokens(golden, case):
    """Ties at the threshold are all kept, here and there; what theirs drops has the logit -1e7."""
    c = golden[case]
    p = c["logits"].double().softmax(-1)
    for key in (key for key in c if key != "logits"):
        name, level = key.split("_")
        kept = (guide.top_p(p, float(level)) if name == "topp" else guide.top_k(p, int(level))) > 0
        assert torch.equal(kept, c[key] > -1e6), key
        assert torch.equal(c["logits"][kept], c[key][kept])


@pytest.mark.parametrize("case", DECODE)
def test_decode(golden, case):
    """Masks left at t = 0 are filled by an argmax: the step to clean tokens with `argmax` last."""
    c = golden[case]
    z, method = c["z0"].long(), md4(c["logits"])
    sampler = Ancestral("published", argmax="last")
    state = State(z, torch.zeros_like(z, dtype=torch.bool), torch.zeros(len(z), dtype=torch.long))
    assert torch.equal(sampler.step(method, state, *sampler.times(method, 8)[-2:]).x, c["decoded"].long())
    last = kernel(guide.truncated(method.predict(z, 0.0), heat=0.0), CLEAN)  # temperature 0 is the same there
    assert torch.equal(last.argmax(-1), c["decoded"].long())
    rounded(last.amax(-1), torch.ones(z.shape), V)
