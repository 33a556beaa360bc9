"""MDLM's published code, and what ReMDM publishes of the same step, against ours at the tolerance of each case.

FORMS says in which form theirs is ours, DIFFERS how they differ: tests assert both.
"""

import math

import pytest
import torch
from torch import Tensor, nn

from zellige import guide
from zellige.core import bound, maths, random
from zellige.core.batch import Batch
from zellige.core.curves import CosinePower, Geometric, Linear, LinearSigma
from zellige.core.prediction import LeaveOneOut, Mean, Score, as_score, kernel, posterior, reverse, score, truth
from zellige.core.process import absorbing
from zellige.core.schedule import CLEAN, PRIOR
from zellige.methods import D3PM, MDLM
from zellige.methods.diffusion import jumps_at
from zellige.plugins.published.ddit import ours
from zellige.samplers import Ancestral, run
from zellige.training.ema import EMA

from .recorded import (
    EPS,
    LAST,
    MASK,
    NOISES,
    TORCH,
    FixedTime,
    K,
    L,
    RecordedLogits,
    RecordedRaces,
    RecordedUniforms,
    V,
    race,
    rounded,
)

LINEAR = LinearSigma(NOISES["linear"]["sigma_min"], NOISES["linear"]["sigma_max"])
M_0, M_1 = -math.expm1(-EPS), 1 - EPS * math.exp(-EPS)  # of importance sampling: sigma from eps to eps - log(eps)
NETWORK = "the network itself: tests/nn/test_transformer.py"
EXCLUDED = {
    "mdlm__time_embedding": NETWORK,
    "mdlm__rotary": NETWORK,
    "mdlm__hidden_states": NETWORK,
}
D3PM_LOSS = TORCH.cases(r"mdlm__loss_d3pm_T\d+(_subsmask)?")
D3PM_FORWARD = TORCH.cases("mdlm__forward_d3pm_.*")
CONTINUOUS = TORCH.cases("mdlm__loss_subs_(ct_.*|mask_.*)")
DISCRETE = TORCH.cases(r"mdlm__loss_subs_T\d+")
DDPM = TORCH.cases("mdlm__step_ddpm(_cache)?_tc_.*")
ANALYTIC = TORCH.cases("mdlm__step_analytic_subs_.*")
DENOISER = TORCH.cases("mdlm__step_denoiser_subs_.*")
TRAJECTORIES = TORCH.cases("mdlm__traj_(ddpm|analytic_subs).*")
FORWARD = TORCH.cases("mdlm__forward_subs_.*")
FIRST, D3PM_FIRST = (TORCH.cases(rf"mdlm__loss_{kind}_T\d+_first_step_quirk") for kind in ("subs", "d3pm"))
TESTED = {
    "mdlm__weights", "mdlm__noise_schedules", "mdlm__sample_t", "mdlm__q_xt", "mdlm__sample_categorical",
    "mdlm__loss_subs_importance", "mdlm__loss_subs_change_of_variables", "mdlm__ema", *FIRST,
    "mdlm__score_entropy", "mdlm__score_entropy_mask_middle", "mdlm__grads_subs_ct",
    *D3PM_FIRST, "mdlm__step_ddpm_d3pm", *D3PM_LOSS, *D3PM_FORWARD,
    *CONTINUOUS, *DISCRETE, *DDPM, *ANALYTIC, *DENOISER, *TRAJECTORIES, *FORWARD,
}  # fmt: skip
ON_THE_MASK = "its p(x_0 | x_t) has mass m on the mask, ours none: "
RECONSTRUCTION = "it adds -log p(x_0) at clean tokens and sigma = 0, which no step of the chain asks"
CONSTANT = "its constant is -log m_0, that of the density log(m_1/m_0), 1e-3 less"
FORMS = {
    "mdlm__forward_d3pm_subsmask_false": f"{ON_THE_MASK}ours is over 1 - m",
    **dict.fromkeys(D3PM_LOSS, RECONSTRUCTION),
    **{case: f"{ON_THE_MASK}with alpha_t = 1 - i/T theirs is ours and, a mask and step, -r log(1 - m) + "
             f"log(1 + alpha_t m/(1 - alpha_t)) - (1 - r) log(1 + alpha_s m/(1 - alpha_s)); {RECONSTRUCTION}"
       for case in D3PM_LOSS if not case.endswith("subsmask")},
    "mdlm__step_ddpm_d3pm": f"{ON_THE_MASK}its probability of a token is ours times 1 - m, and all is times the share of masks",
    **dict.fromkeys(DDPM, "its distribution is not divided by the share of masks: ours times move_chance_t"),
    "mdlm__loss_subs_importance": CONSTANT,
    "mdlm__loss_subs_change_of_variables": f"{CONSTANT}; its network is told t",
    "mdlm__sample_t": "each row has a uniform of its own, ours one for all; ours at each of them",
}  # fmt: skip
DIFFERS = {
    **dict.fromkeys([*FIRST, *D3PM_FIRST], "nan at t = 1/T; ours is the limit"),
    "mdlm__sample_categorical": "a float32 race of K clocks, ours one float64 uniform through the inverse CDF of it",
}  # fmt: skip


def mdlm(network, conditioned: bool, mask: int = MASK) -> MDLM:
    """The published network as ours. Not conditioned on time, upstream still embeds sigma = 0; ours has no time input."""
    network = network if conditioned else FixedTime(network, 0.0)
    return MDLM(network, V, (L,), MDLM.Config(time=conditioned), mask=mask)


def test_every_case_is_accounted_for(golden):
    cases = {name for name in golden.index if name.startswith("mdlm__") and not name.endswith("sedd")}  # test_sedd.py
    assert cases == TESTED | EXCLUDED.keys()
    assert not TESTED & EXCLUDED.keys()
    assert FORMS.keys() | DIFFERS.keys() <= TESTED


# ---------------------------------------------------------------------------------- schedules, times, noising
@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("loglinear", Linear(EPS)),
        ("cosine", CosinePower(1.0, NOISES["cosine_eps"])),
        ("cosinesqr", CosinePower(2.0, NOISES["cosinesqr_eps"])),
        ("geometric", Geometric(NOISES["geometric"]["sigma_min"], NOISES["geometric"]["sigma_max"])),
        ("linear", LINEAR),
    ],
)
def test_noise_schedules(golden, name, schedule):
    c, case = golden["mdlm__noise_schedules"], "mdlm__noise_schedules"
    t, sigma = c["t64"], c[f"{name}_total64"]
    golden.near(case, schedule.sigma(t)[:, 0], sigma)
    golden.near(case, schedule.beta(t)[:, 0], c[f"{name}_rate64"])
    golden.near(case, schedule.sigma(c["t"])[:, 0], c[f"{name}_total"])
    # in float32 a rate has the roundings of alpha and its slope, over alpha: near t = 1 no digit is left (cosinesqr)
    assert torch.equal(c["t"].double(), t)
    alpha, rate = schedule.alpha(t)[:, 0], c[f"{name}_rate64"].double()
    for single in (schedule.beta(c["t"])[:, 0], c[f"{name}_rate"]):
        rounded(single, rate, 3, torch.float32, (1 + rate) / alpha)
    golden.near(case, schedule.inverse(torch.exp(-sigma)), t)
    golden.near(case, schedule.weight(t)[1:, 0], (c[f"{name}_rate64"] / torch.expm1(sigma))[1:])


def _log_uniform(schedule, u: Tensor, m_0: float, m_1: float) -> Tensor:
    """The time at which 1 - alpha is m_0^(1-u) m_1^u: uniform u then has the density weight(t) (importance sampling)."""
    return schedule.inverse(1 - m_0 ** (1 - u) * m_1**u)


def test_importance_times_invert_the_masked_fraction(golden):
    c, case = golden["mdlm__noise_schedules"], "mdlm__noise_schedules"
    for name, schedule in (("loglinear", Linear(EPS)), ("linear", LINEAR)):
        m_0, m_1 = (-math.expm1(-NOISES[name][k]) for k in ("sigma_min", "sigma_max"))
        golden.near(case, _log_uniform(schedule, c["t64"], m_0, m_1), c[f"{name}_importance_t"])


def test_stratified_times(golden):
    """Difference: one uniform serves all rows of ours; theirs draws one for each stratum. Both put one time in each."""
    c, case, n, eps = golden["mdlm__sample_t"], "mdlm__sample_t", len(golden["mdlm__sample_t"]["u"]), EPS
    each = torch.stack([random.stratified(n, RecordedUniforms(c["u"][b : b + 1] / n))[b] for b in range(n)])
    golden.near(case, (1 - eps) * each + eps, c["t_antithetic"])
    golden.near(case, (1 - eps) * c["u"] + eps, c["t_plain"])
    strata = random.stratified(n, torch.Generator().manual_seed(0))
    for times in (strata, (c["t_antithetic"].double() - eps) / (1 - eps)):
        assert sorted((times * n).long().tolist()) == list(range(n))
    golden.near(case, _log_uniform(Linear(eps), c["t_antithetic"].double(), M_0, M_1), c["t_importance"])


def test_q_xt(golden):
    c = golden["mdlm__q_xt"]
    process = absorbing(K, Linear(EPS))
    t = process.schedule.inverse(1 - c["move_chance"].double()).expand(c["x0"].shape)
    assert torch.equal(process.sample(c["x0"], t, RecordedUniforms(c["u"])), c["xt"])


def test_their_race_and_our_inverse_cdf_draw_from_one_distribution(golden):
    """Difference: theirs is a float32 race of K clocks, ours one float64 uniform through the inverse CDF. The race is what the
    trajectories below are replayed with."""
    c = golden["mdlm__sample_categorical"]
    assert torch.equal(race(c["probs"], c["u"]), c["index"])
    p = c["probs"].double().reshape(-1, K)
    edges = (p / p.sum(-1, keepdim=True)).cumsum(-1)  # every index exactly on its interval
    middle = edges - 0.5 * p / p.sum(-1, keepdim=True)
    for k in range(K):
        drawn = random.categorical(p, RecordedUniforms(middle[:, k]))
        assert (drawn == k)[p[:, k] > 0].all()


# ---------------------------------------------------------------------------------- the network read through SUBS
@pytest.mark.parametrize("case", FORWARD)
def test_subs(golden, network, case):
    c = golden[case]
    mask = golden.scalars(case)["mask_id"] if "middle" in case else MASK
    conditioned = not case.endswith("tc_false")
    method = mdlm(network, conditioned, mask)
    t = method.process.schedule.inverse(torch.exp(-c["sigma"].double()))
    log_p = posterior(method.predict(c["xt"], t)).log()
    possible = c["log_p_x0"] > -9e5  # theirs puts -1e6 where ours has probability 0
    assert torch.equal(log_p > -9e5, possible)
    golden.near(case, log_p[possible], c["log_p_x0"][possible])


def test_subs_of_recorded_logits_alone(golden):
    c = golden["mdlm__forward_subs_mask_middle"]
    method = mdlm(RecordedLogits(c["logits"]), False, golden.scalars("mdlm__forward_subs_mask_middle")["mask_id"])
    log_p = posterior(method.predict(c["xt"], 0.5)).log()
    golden.near("mdlm__forward_subs_mask_middle", log_p.clamp_min(-1e6), c["log_p_x0"].clamp_min(-1e6))


# ---------------------------------------------------------------------------------- losses
def _token(method: MDLM, c: dict[str, Tensor], t: Tensor, s: Tensor | None = None) -> Tensor:
    """Our bound at each position by the generic formulas, (B, L): continuous, or of the step to s."""
    time = t[:, None].expand(c["x0"].shape)
    pred, target = method.predict(c["xt"], t[:, None]), truth(method.process, c["x0"], c["xt"], time)
    if s is None:
        return bound.continuous(target, pred)
    return bound.discrete(target, pred, s[:, None].expand(time.shape))


@pytest.mark.parametrize("case", CONTINUOUS)
def test_continuous_loss(golden, network, case):
    c, config = golden[case], golden.index[case]["config"]
    method = mdlm(network, config["time_conditioning"], config["mask_id"])
    t = c["t"].double()
    each = _token(method, c, t)
    golden.near(case, each, c["loss_per_token"])
    golden.near(case, method.continuous_bound(Batch(c["x0"]), c["xt"], t), c["loss_per_token"].sum(-1))
    golden.near(case, each * c["attention_mask"], c["nlls"])
    golden.near(case, (each * c["attention_mask"]).sum() / c["attention_mask"].sum(), c["token_nll"])


def test_padding_is_never_noised(golden):
    """Difference: upstream masks padded positions too and multiplies their loss by zero; ours never noises them."""
    c = golden["mdlm__loss_subs_ct_tc_true"]
    padded = c["attention_mask"] == 0
    assert ((c["xt"] == MASK) & padded).any()
    x_t = mdlm(RecordedLogits(torch.zeros(*c["xt"].shape, K)), False).corrupt(Batch(c["x0"], ~padded), 1.0)
    assert torch.equal(x_t[padded], c["x0"][padded])


def _bare_cross_entropy(method: MDLM, c: dict[str, Tensor], t: Tensor) -> Tensor:
    """-log mu(x_0) at the masks, (B, L): the loss without its weight."""
    return _token(method, c, t) / method.process.schedule.weight(t)


def test_importance_sampling_is_a_reweighting(golden, network):
    """With t drawn from the density weight(t) / W, W = log(m_1 / m_0) over the range of m = 1 - alpha, the loss is W times the
    bare cross-entropy. Difference: upstream takes W = -log m_0 and drops log m_1 (1e-3 of 6.9)."""
    case = "mdlm__loss_subs_importance"
    c, method = golden[case], mdlm(network, False)
    ce = _bare_cross_entropy(method, c, c["t"].double())
    golden.near(case, -math.log(M_0) * ce, c["loss_per_token"])
    whole = math.log(M_1 / M_0)
    rounded(-math.log(M_0) - whole, -math.log(M_1), 8, scale=-math.log(M_0))
    # the exact W makes the two estimators one in the mean: sum over u of W f(t(u)) = integral of weight f
    schedule, n = method.process.schedule, 4000
    u = (torch.arange(n).double() + 0.5) / n
    mean = whole * torch.cos(_log_uniform(schedule, u, M_0, M_1)).mean()
    t = schedule.inverse(torch.tensor([1 - M_0, 1 - M_1]).double())
    grid = torch.linspace(float(t[0].log()), float(t[1].log()), n + 1, dtype=torch.float64).exp()
    plain = torch.trapezoid(schedule.weight(grid)[:, 0] * torch.cos(grid), grid)
    assert float(mean) == pytest.approx(
        float(plain), rel=(math.log(M_1 / M_0) / n) ** 2
    )  # of the trapezoid and the midpoints


def test_change_of_variables_is_a_reweighting(golden, network):
    """The same W and the same constant, x_t drawn at 1 - alpha = m_0^(1-t) m_1^t. Difference: upstream tells the network t."""
    case = "mdlm__loss_subs_change_of_variables"
    c, t = golden[case], golden[case]["t"].double()
    golden.near(case, (M_0 ** (1 - t) * M_1**t)[:, None], c["move_chance"])
    ce = _bare_cross_entropy(mdlm(FixedTime(network, c["t"]), True), c, t)
    golden.near(case, -math.log(M_0) * ce, c["loss_per_token"])


@pytest.mark.parametrize("case", DISCRETE)
def test_loss_of_T_steps(golden, network, case):
    c, config = golden[case], golden.index[case]["config"]
    method, T = mdlm(network, config["time_conditioning"]), config["T"]
    t = c["t_discrete"].double()
    golden.near(case, ((c["t"] * T).floor() + 1) / T, t)
    # upstream takes alpha = 1 - t here, the eps of the schedule left out: (alpha_s - alpha_t)/(1 - alpha_t) is the same
    golden.near(case, T * _token(method, c, t, t - 1 / T), c["loss_per_token"])
    golden.near(case, T * method.discrete_bound(Batch(c["x0"]), c["xt"], t, t - 1 / T), c["loss_per_token"].sum(-1))
    one = torch.ones((), dtype=torch.float64)
    assert float(method.reveal_probability(one / T, CLEAN)) == 1.0
    rounded(method.reveal_probability(one, 1 - one / T), 1 / T, 4, scale=1.0)
    # difference: our first step starts at PRIOR, where nothing is left: it reveals alpha_s, not (alpha_s - eps)/(1 - eps)
    rounded(method.reveal_probability(PRIOR, 1 - one / T), 1 - (1 - EPS) * (1 - 1 / T), 4, scale=1.0)


@pytest.mark.parametrize("case", FIRST)
def test_first_step_is_finite(golden, network, case):
    """Difference: upstream is nan at t = 1/T (0/0 at s = 0, and nan * 0 where nothing is masked); the limit is -T log mu."""
    c, config = golden[case], golden.index[case]["config"]
    T = config["T"]
    assert c["loss_per_token"].isnan().all()
    method, t = mdlm(network, config.get("time_conditioning", False)), c["t_discrete"].double()
    assert torch.equal(c["t_discrete"], torch.full_like(c["t_discrete"], 1 / T))  # float32(1/T)
    t = torch.full_like(t, 1 / T)
    clean = torch.full_like(t, CLEAN)
    each = T * _token(method, c, t, clean)
    golden.near(case, each, T * _bare_cross_entropy(method, c, t))
    golden.near(case, T * method.discrete_bound(Batch(c["x0"]), c["xt"], t, clean), each.sum(-1))
    assert ((each > 0) == (c["xt"] == MASK)).all()


@pytest.mark.parametrize("case", ["mdlm__score_entropy", "mdlm__score_entropy_mask_middle"])
def test_score_entropy(golden, case):
    """The continuous bound of a Score, for the same rate: at a mask upstream's entropy is the bound over beta."""
    c = golden[case]
    mask = golden.scalars(case)["mask_id"] if "middle" in case else MASK
    process = absorbing(K, Linear(EPS), mask)
    t = process.schedule.inverse(torch.exp(-c["sigma"].double())).expand(c["xt"].shape)
    v = c["log_score"].double().exp().scatter(-1, c["xt"][..., None], 1.0)
    value = bound.continuous(truth(process, c["x0"], c["xt"], t), Score(process, v, c["xt"], t))
    golden.near(case, value / process.schedule.beta(t)[..., 0], c["entropy"])


def test_gradients(golden, network):
    case = "mdlm__grads_subs_ct"
    c = golden[case]
    method, t = mdlm(network, True), c["t"].double()
    counted = c["attention_mask"]
    loss = (_token(method, c, t) * counted).sum() / counted.sum()
    golden.near(case, loss, c["loss"])
    names = [k.removeprefix("grad.") for k in c if k.startswith("grad.")]
    parameters = dict(network.named_parameters())
    for name, g in zip(names, torch.autograd.grad(loss, [parameters[ours(n)] for n in names])):
        golden.near(case, g, c[f"grad.{name}"])
    # the closed form gives the same gradient on x_t whose padding is clean
    x_t = torch.where(counted > 0, c["xt"], c["x0"])
    closed = method.continuous_bound(Batch(c["x0"], counted > 0), x_t, t).sum()
    generic = (_token(method, {**c, "xt": x_t}, t) * counted).sum()
    for a, b in zip(*(torch.autograd.grad(v, list(parameters.values())) for v in (closed, generic))):
        golden.near(case, a / counted.sum(), b / counted.sum())


# ---------------------------------------------------------------------------------- one step
def _stepped(p: Tensor, u: Tensor, x: Tensor, mask: int = MASK) -> Tensor:
    """Their draw from p at the masks; what is not masked is kept."""
    return torch.where(x == mask, race(p, u), x)


def _predict(network, case: str, scalars: dict, x: Tensor) -> tuple[Mean, Tensor, Tensor]:
    method = mdlm(network, scalars["time_conditioning"], scalars["mask_id"])
    t = torch.tensor(scalars["t"], dtype=torch.float64)
    pred = method.predict(x, t)
    assert isinstance(pred, Mean)
    return pred, t - scalars["dt"], x == MASK


@pytest.mark.parametrize("case", DDPM)
def test_ddpm_step_is_the_reverse_kernel(golden, network, case):
    """Upstream's q_xs lacks the factor 1/move_chance_t: move_chance = (1 - eps) t, or t in ddpm_cache; the same kernel."""
    c, scalars = golden[case], golden.scalars(case)
    pred, s, masked = _predict(network, case, scalars, c["x"])
    p = kernel(pred, s)
    move = c["t"].double() if "cache" in case else (1 - EPS) * c["t"].double()
    golden.near(case, (p * move[..., None])[masked], c["probs"][masked])
    assert torch.equal(_stepped(p, c["u"], c["x"]), c["x_next"])


@pytest.mark.parametrize("case", ANALYTIC)
def test_analytic_step_is_the_reverse_kernel(golden, network, case):
    c, scalars = golden[case], golden.scalars(case)
    pred, s, masked = _predict(network, case, scalars, c["x"])
    golden.near(case, score(pred)[masked], c["score"][masked])
    golden.near(case, kernel(pred, s)[masked], c["probs"][masked])
    golden.near(case, reverse(as_score(pred), s)[masked], c["probs"][masked])  # by un-pushing, as upstream does
    assert torch.equal(_stepped(kernel(pred, s), c["u"], c["x"]), c["x_next"])


@pytest.mark.parametrize("case", DENOISER)
def test_denoiser_step_is_the_clean_posterior(golden, network, case):
    c, scalars = golden[case], golden.scalars(case)
    pred, _, masked = _predict(network, case, scalars, c["x"])
    p = kernel(pred, CLEAN)
    golden.near(case, p[masked], c["probs"][masked])
    assert torch.equal(_stepped(p, c["u"], c["x"]), c["x_next"])


# ---------------------------------------------------------------------------------- whole trajectories
@pytest.mark.parametrize("case", TRAJECTORIES)
@torch.no_grad()
def test_trajectories(golden, network, case):
    """Its times are the published grid, its noise removal an argmax in the step to clean tokens, or a draw (analytic)."""
    c, scalars = golden[case], golden.scalars(case)
    method, n, draws = mdlm(network, scalars["time_conditioning"]), scalars["steps"], [*c["u"]]
    assert float(c["argmax_margin"].min()) > 1.0002
    argmax = "none" if scalars["predictor"] == "analytic" else "last"
    if argmax == "last":  # of one state no race is needed
        draws.append(torch.full_like(draws[0], 0.5))
    sampler = Ancestral("published", argmax, choose=False)
    *states, final = [state.x for state in run(sampler, method, c["final"].shape, n, generator=RecordedRaces(*draws))]
    assert torch.equal(torch.stack(states[:n]), c["states"])
    assert torch.equal(final, c["final"])
    rounded(sampler.times(method, n)[:-1], torch.linspace(1, LAST, n + 1, dtype=torch.float64), 2, scale=1.0)
    assert float(sampler.times(method, n)[-1]) == CLEAN
    assert float(Ancestral().times(method, n)[0]) == PRIOR


# ---------------------------------------------------------------------------------- the average of the weights
def test_ema(golden):
    case = "mdlm__ema"
    c = golden[case]
    parameters = nn.ParameterList([c["p0_init"].clone(), c["p1_init"].clone()])
    average = EMA(parameters, 0.9999)
    for step in range(1, 1 + max(int(key[5:-3]) + 1 for key in c if key.startswith("delta"))):
        with torch.no_grad():
            for i, parameter in enumerate(parameters):
                parameter += c[f"delta{step - 1}_p{i}"]
        average.update(step)
        for i in range(2):
            if f"shadow_after{step}_p{i}" in c:
                golden.near(case, average.average[str(i)], c[f"shadow_after{step}_p{i}"])


# ---------------------------------------------------------------------------------- the same step, published again
def test_remdm_step(golden):
    case = "remdm__step_mdlm"
    c, scalars = golden[case], golden.scalars(case)
    masked = c["x"] == MASK
    method = mdlm(RecordedLogits(c["p_x0"].double().log()), False)
    p = kernel(method.predict(c["x"], scalars["t"]), scalars["t"] - scalars["dt"])
    golden.near(case, p[masked] * scalars["t"], c["probs"][masked])  # unnormalised: without 1/move_chance_t, t here
    assert torch.equal(_stepped(p, c["u"], c["x"]), c["x_next"])


def test_remdm_nucleus_step(golden):
    """Upstream's nucleus drops the token that crosses the threshold: `drop`; else ours (like MD4, RADD and Duo) keeps it."""
    case = "remdm__step_mdlm_nucleus"
    c, scalars = golden[case], golden.scalars(case)
    plain, masked = golden["remdm__step_mdlm"], c["x"] == MASK
    distribution = plain["p_x0"].double()[masked]
    t, s, theirs = scalars["t"], scalars["t"] - scalars["dt"], c["probs"].double()[masked][:, :MASK]
    ours = maths.normalise(guide.top_p(distribution, scalars["nucleus_p"], drop=True))[:, :MASK]
    golden.near(case, (t - s) * ours, theirs)
    more = (guide.top_p(distribution, scalars["nucleus_p"])[:, :MASK] > 0).sum(-1) - (ours > 0).sum(-1)
    assert ((more == 1) | ((ours > 0).sum(-1) == 1)).all()


# ---------------------------------------------------------------------------------- parameterization d3pm: D3PM, absorbing
def d3pm(network, T: int, sigma: Tensor | float) -> D3PM:
    """The published network as a D3PM with alpha_i = 1 - i/T, which is what upstream's loss has (the eps left out)."""
    return D3PM(FixedTime(network, torch.as_tensor(sigma).flatten()), V, (L,), D3PM.Config(diffusion_steps=T))


def _with_the_mask(method: D3PM, x_t: Tensor) -> Tensor:
    """Upstream's p(x_0 | x_t), (B, L, K) float64: a softmax over all states, the mask among them."""
    return method.network.head(method.network.features(x_t)).double().softmax(-1)


@pytest.mark.parametrize("case", D3PM_FORWARD)
def test_d3pm_forward(golden, network, case):
    """Difference: unless told to (subs_masking), upstream leaves mass on the mask. Ours never does."""
    c = golden[case]
    method = d3pm(network, 16, c["sigma"])
    ours = method.predict(c["xt"], 0.5).mu.log()[..., :MASK]
    whole = _with_the_mask(method, c["xt"])
    kept = (1 - whole[..., MASK:]).log()  # what is not on the mask
    theirs = c["log_p_x0"].double()
    golden.near(case, ours, theirs[..., :MASK] - (0.0 if "true" in case else kept))
    if "false" in case:
        golden.near(case, whole.log(), theirs)
        assert bool((whole[..., MASK] > 0.01).any())


def mass_on_the_mask(m: Tensor, t: Tensor, T: int) -> Tensor:
    """What upstream's mass m on the mask adds to one step's KL at a mask, t = i/T: (*) nats.

    With alpha_t = 1 - i/T, alpha_s = alpha_t + 1/T and r = (alpha_s - alpha_t) / (1 - alpha_t), eq. 4 gives a token x_0 the
    probability r p(x_0) (1 - m) and the mask (1 - alpha_s) + alpha_s m, over its sum (1 - alpha_t) + alpha_t m.
    """
    alpha_t, alpha_s = 1 - t, 1 - t + 1 / T
    r = 1 / (t * T)
    on_mask = lambda alpha: torch.log1p(alpha * m / (1 - alpha))  # noqa: E731
    return -r * torch.log1p(-m) + on_mask(alpha_t) - (1 - r) * on_mask(alpha_s)


@pytest.mark.parametrize("case", D3PM_LOSS)
def test_d3pm_loss(golden, network, case):
    c, config = golden[case], golden.index[case]["config"]
    T, t = config["T"], c["t_discrete"].double()
    method = d3pm(network, T, c["unet_conditioning"] if config["time_conditioning"] else 0.0)
    t = (t * T).round() / T
    x_0, x_t, time, s = c["x0"], c["xt"], t[:, None].expand(c["x0"].shape), (t - 1 / T)[:, None]
    target, masked = truth(method.process, x_0, x_t, time), x_t == MASK
    distribution = _with_the_mask(method, x_t)
    pred = LeaveOneOut(method.process, distribution, x_t, time)  # eq. 4 as it stands
    if config["subs_masking"]:
        pred = method.predict(x_t, t[:, None])
    each = T * bound.discrete(target, pred, s.expand(time.shape)) * masked
    golden.near(case, each, c["d3pm_loss"])
    ours = T * bound.discrete(target, method.predict(x_t, t[:, None]), s.expand(time.shape)) * masked
    golden.near(case, T * method.discrete_bound(Batch(x_0), x_t, t, s[:, 0]), ours.sum(-1))
    if not config["subs_masking"]:
        rounded(
            ours + T * mass_on_the_mask(distribution[..., MASK], t[:, None], T) * masked,
            each,
            4,
            torch.float32,
            T * each.detach().abs().max(),
        )
    # difference: upstream adds what the network says of clean tokens at sigma = 0, which no step of the chain asks
    golden.near(case, c["loss_per_token"] - c["d3pm_loss"], c["reconstruction_loss"])
    clean = d3pm(network, T, 0.0)
    distribution = clean.predict(x_0, 1 / T).mu if config["subs_masking"] else _with_the_mask(clean, x_0)
    said = -distribution.gather(-1, x_0[..., None])[..., 0].log()
    golden.near(case, said, c["reconstruction_loss"])
    assert not jumps_at(clean.process, 0)


@pytest.mark.parametrize("case", D3PM_FIRST)
def test_d3pm_first_step_is_finite(golden, network, case):
    """Difference: upstream is nan at t = 1/T, where alpha_s = 1; ours is -T log p(x_0 | x_1) at the masks."""
    c, T = golden[case], golden.index[case]["config"]["T"]
    assert c["d3pm_loss"].isnan().all()
    t = c["t_discrete"].double()
    assert torch.equal(c["t_discrete"], torch.full_like(c["t_discrete"], 1 / T))  # float32(1/T)
    t = torch.full_like(t, 1 / T)
    method = d3pm(network, T, c["unet_conditioning"])
    ours = method.discrete_bound(Batch(c["x0"]), c["xt"], t, torch.full_like(t, CLEAN))
    distribution = method.predict(c["xt"], t[:, None]).mu.gather(-1, c["x0"][..., None])[..., 0]
    golden.near(case, ours, (-distribution.log() * (c["xt"] == MASK)).sum(-1))
    assert (ours > 0).any()


def test_d3pm_step(golden, network):
    """Difference: upstream multiplies p(x_0 | x_t) by move_t - move_s and puts move_s on the mask, so mass that the network has
    on the mask is lost; eq. 4 would keep it there. What a token becomes, if it is revealed, is the same."""
    case = "mdlm__step_ddpm_d3pm"
    c, scalars = golden[case], golden.scalars(case)
    masked, (t, dt) = c["x"] == MASK, (scalars["t"], scalars["dt"])
    sigma = -math.log1p(-(1 - EPS) * t)
    method = d3pm(network, 10, sigma)
    move_t, move_s = (1 - EPS) * t, (1 - EPS) * (t - dt)
    whole = _with_the_mask(method, c["x"])
    p = ((move_t - move_s) * whole).index_fill(-1, torch.tensor([MASK]), move_s)
    golden.near(case, p[masked], c["probs"][masked])
    assert torch.equal(_stepped(p, c["u"], c["x"]), c["x_next"])
    ours = kernel(method.predict(c["x"], t), t - dt)[masked]
    golden.near(case, ours[:, MASK] * move_t, c["probs"][masked][:, MASK])
    golden.near(case, ours[:, :MASK] * move_t * (1 - whole[masked][:, MASK:]), c["probs"][masked][:, :MASK])
