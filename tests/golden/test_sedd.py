"""SEDD's published code, and what MDLM publishes of the same parameterization, against ours at the tolerance of each case."""

import pytest
import torch
from torch import Tensor

from zellige.base.errors import InputError
from zellige.core import bound
from zellige.core.batch import Batch
from zellige.core.curves import Geometric, Linear, LinearSigma
from zellige.core.prediction import Score, kernel, reverse, reverse_rate, score, truth
from zellige.core.process import Mixture, absorbing, uniform
from zellige.core.schedule import CLEAN, PRIOR
from zellige.methods import SEDD
from zellige.samplers import Ancestral, Euler, run
from zellige.samplers.euler import stepped

from .recorded import (
    LAST,
    MASK,
    TORCH,
    K,
    L,
    RecordedLogits,
    RecordedRaces,
    RecordedUniforms,
    V,
    published_network,
    race,
    rounded,
)

KINDS = [name.removeprefix("sedd__forward_") for name in TORCH.cases("sedd__forward_.*")]
STEPS = TORCH.cases("sedd__step_.*")
GRAPHS = TORCH.cases("sedd__graph_(absorb|uniform)")
SMALL = TORCH.cases("sedd__graph_small_.*")
TRAJECTORIES = TORCH.cases("sedd__traj_.*")
MDLM_STEPS = TORCH.cases("mdlm__step_.*_sedd")
MDLM = {"mdlm__forward_sedd", "mdlm__loss_sedd", *MDLM_STEPS, "mdlm__traj_analytic_sedd"}
EXCLUDED: dict[str, str] = {}
ABSORB = [case for case in STEPS if "_denoiser_absorb_" in case]
FORMS = {
    "sedd__noise": "its float32 rate of loglinear has the roundings of alpha over alpha, 1.3e-5 at t = 1",
    **dict.fromkeys(
        ABSORB,
        "its distribution of clean tokens has no column for the mask, and does not sum to 1: ours has 0 there and does",
    ),
    "mdlm__step_denoiser_sedd": "its distribution of clean tokens has 0 for the mask, and does not sum to 1: ours does",
}
DIFFERS = {
    "sedd__graph_uniform": "a draw of x_t takes one uniform here, a coin and a token there; its float32 score entropy cancels",
}
TESTED = {
    "sedd__weights_absorb", "sedd__weights_uniform", "sedd__noise", *GRAPHS, *SMALL, *STEPS, *TRAJECTORIES, *MDLM,
    *[f"sedd__forward_{kind}" for kind in KINDS], *[f"sedd__loss_{kind}" for kind in KINDS],
}  # fmt: skip


@pytest.fixture(scope="module")
def networks(golden):
    names = {"absorb": "sedd__weights_absorb", "uniform": "sedd__weights_uniform", "mdlm": "mdlm__weights"}
    return {kind: published_network(golden[name]) for kind, name in names.items()}


def sedd(network, kind: str) -> SEDD:
    process, schedule = kind.split("_")
    made = TORCH.scalars("sedd__noise")
    ends = made["geometric"] if schedule == "geometric" else {"alpha_1": made["loglinear_eps"]}
    return SEDD(network, V, (L,), SEDD.Config({"absorb": "absorbing"}.get(process, process), schedule, **ends))


def of(networks, kind: str) -> SEDD:
    return sedd(networks[kind.split("_")[0]], kind)


def test_every_case_is_accounted_for(golden):
    cases = {name for name in golden.index if name.startswith("sedd__")} | MDLM
    assert cases == TESTED | EXCLUDED.keys()
    assert FORMS.keys() | DIFFERS.keys() <= TESTED


def test_noise(golden):
    c, case = golden["sedd__noise"], "sedd__noise"
    made = golden.scalars(case)
    for name, schedule in (("loglinear", Linear(made["loglinear_eps"])), ("geometric", Geometric(**made["geometric"]))):
        golden.near(case, schedule.sigma(c["t"].double())[:, 0], c[f"{name}_total"])
        rate, alpha = schedule.beta(c["t"].double())[:, 0], schedule.alpha(c["t"].double())[:, 0]
        rounded(c[f"{name}_rate"], rate, 2, torch.float32, (1 + rate) / alpha)


# ---------------------------------------------------------------------------------- the processes: "graphs"
def at_unit_rate(kind: str, sigma: Tensor, states: int = 0) -> tuple[Mixture, Tensor]:
    """Their process with sigma as the time: d sigma / dt is 7, and the time at which the total noise is sigma."""
    schedule = LinearSigma(0.0, 7.0)
    process = absorbing(states or K, schedule) if kind == "absorb" else uniform(states or V, schedule)
    return process, sigma.double() / 7


@pytest.mark.parametrize("case", SMALL)
def test_small_graph(golden, case):
    c = golden[case]
    process, t = at_unit_rate(case.split("_")[-1], torch.tensor(0.7), len(c["Q_columns"]))  # the index: sigma = 0.7
    golden.near(case, process.rate(t) / 7, c["Q_columns"])
    golden.near(case, process.rate(t).T / 7, c["transp_rate_rows"])
    golden.near(case, process.matrix(CLEAN, t), c["expm_sigmaQT"])
    golden.near(case, process.matrix(CLEAN, t).T, c["transp_transition"])


@pytest.mark.parametrize("case", GRAPHS)
def test_graph(golden, case):
    c, kind = golden[case], case.split("_")[-1]
    process, t = at_unit_rate(kind, c["sigma"])
    x, own = c["x"], c["x"][..., None]
    t = t.expand(x.shape)

    def others(theirs: Tensor) -> Tensor:
        """Without minus the exit rate on the diagonal."""
        return theirs.scatter(-1, own, 0.0)

    golden.near(case, process.rate_from(x, t) / 7, others(c["rate"]))
    golden.near(case, process.rate_into(x, t) / 7, others(c["transp_rate"]))
    golden.near(case, -process.rate_from(x, t).sum(-1) / 7, c["rate"].gather(-1, own)[..., 0])
    golden.near(case, process.likelihood(x, CLEAN, t), c["transp_transition"])
    if kind == "uniform":  # theirs returns None for absorb
        golden.near(case, process.push(process.one_hot(x), CLEAN, t), c["transition"])
    pred = Score(process, c["score"], x, t)
    golden.near(case, pred.ratio(CLEAN), c["staggered_score"])
    golden.near(case, reverse_rate(pred) / 7, others(c["reverse_rate"]))
    entropy = bound.continuous(truth(process, c["x0"], x, t), Score(process, c["log_score"].double().exp(), x, t))
    golden.near(case, entropy / 7, c["score_entropy"])
    if kind == "absorb":
        assert torch.equal(process.sample(c["x0"], t, RecordedUniforms(c["st_u"])), c["st_x"])
    else:  # difference: theirs tosses a coin and draws a token, ours takes one uniform for both
        lost = c["st_u"].double() < 1 - process.schedule.alpha(t)[..., 0]
        assert torch.equal(torch.where(lost, c["st_randint"], c["x0"]), c["st_x"])


@pytest.mark.parametrize("case", GRAPHS)
def test_rates_as_probabilities(golden, case):
    """`sample_rate`: one_hot + rate, what Euler draws from."""
    c = golden[case]
    own = c["x"][..., None]
    p = c["sr_rate"].double() + torch.zeros_like(c["sr_rate"]).scatter(-1, own, 1.0)
    assert torch.equal(race(p, c["sr_u"]), c["sr_x"])
    golden.near(case, c["sr_rate"].sum(-1), torch.zeros(c["x"].shape))
    golden.near(case, c["sr_rate"], 0.05 * c["reverse_rate"])


@pytest.mark.parametrize("case", GRAPHS)
@pytest.mark.parametrize("scaled", [False, True])
def test_score_entropy_over_sigma(golden, case, scaled):
    """Our closed form, from recorded log scores as logits, against theirs in float64; in float32 ours keeps its precision."""
    c, kind = golden[case], case.split("_")[-1]
    if scaled and kind == "uniform":
        return
    method = sedd(None, f"{kind}_loglinear")
    method.scaled = scaled
    process, t = at_unit_rate(kind, c["se_sigmas"])
    method.process = process
    t, x, x_0 = t.expand(c["se_xt"].shape).flatten(), c["se_xt"].flatten(), c["se_x0"].flatten()
    logits = c["se_log_score"].flatten(0, 1)
    if scaled:
        logits = logits.double() + (process.schedule.sigma(t).expm1() * V).log()
    theirs = c["se_values64"].flatten()
    golden.near(case, method.cost(logits.double(), x_0, x, t) / 7, theirs)
    ours = method.cost(logits.float(), x_0, x, t) / 7
    golden.near(case, ours, theirs)
    if kind == "uniform":  # their float32 takes 1 - K/(K + e^sigma - 1): a rounding of 1 is K/(e^sigma - 1) of that
        enlarged = 1 + V / torch.expm1(c["se_sigmas"].double()).expand(c["se_xt"].shape).flatten()
        rounded(c["se_values"].flatten(), theirs, V, torch.float32, theirs.abs() * enlarged)  # of V terms


# ---------------------------------------------------------------------------------- the network and its loss
@pytest.mark.parametrize("kind", [*KINDS, "mdlm"])
def test_forward(golden, networks, kind):
    case = "mdlm__forward_sedd" if kind == "mdlm" else f"sedd__forward_{kind}"
    c = golden[case]
    method = sedd(networks["mdlm"], "absorb_loglinear") if kind == "mdlm" else of(networks, kind)
    t = method.process.schedule.inverse(torch.exp(-c["sigma"].double().reshape(-1)))
    golden.near(case, method.predict(c["xt"], t[:, None]).v.log(), c["log_score"])
    if kind == "mdlm":
        said = sedd(RecordedLogits(c["logits"]), "absorb_loglinear")
        golden.near(case, said.predict(c["xt"], t[:, None]).v.log(), c["log_score"])


def per_token(method: SEDD, c: dict[str, Tensor], t: Tensor) -> Tensor:
    """Our closed form at every position, (B, L)."""
    x_0, x_t = c["x0"].flatten(), c["xt"].flatten()
    logits = method.logits(method.hidden(c["xt"], t[:, None]))
    time = t[:, None].expand(c["xt"].shape).flatten()
    return method.cost(logits.flatten(0, 1), x_0, x_t, time).reshape(c["xt"].shape)


@pytest.mark.parametrize("kind", KINDS)
def test_loss(golden, networks, kind):
    case = f"sedd__loss_{kind}"
    c, method = golden[case], of(networks, kind)
    t = c["t"].double()
    each = per_token(method, c, t)
    golden.near(case, each / method.process.schedule.beta(t), c["score_entropy"])
    golden.near(case, method.continuous_bound(Batch(c["x0"]), c["xt"], t), c["loss"])
    pred = method.predict(c["xt"], t[:, None])
    time = t[:, None].expand(c["xt"].shape)
    golden.near(case, bound.continuous(truth(method.process, c["x0"], c["xt"], time), pred).sum(-1), c["loss"])


def test_mdlm_loss(golden, networks):
    case = "mdlm__loss_sedd"
    c, method = golden[case], sedd(networks["mdlm"], "absorb_loglinear")
    golden.near(case, per_token(method, c, c["t"].double()), c["loss_per_token"])
    golden.near(case, method.continuous_bound(Batch(c["x0"]), c["xt"], c["t"].double()), c["loss_per_token"].sum(-1))
    counted = c["attention_mask"]
    golden.near(case, (per_token(method, c, c["t"].double()) * counted).sum() / counted.sum(), c["token_nll"])


# ---------------------------------------------------------------------------------- steps
def distributions(method: SEDD, name: str, x: Tensor, t: Tensor, s: Tensor) -> Tensor:
    """The unclipped weights of a step: negative entries, which theirs has too, can never be drawn."""
    pred = method.predict(x, t)
    assert isinstance(pred, Score)
    if name == "denoiser":
        return reverse(pred, CLEAN)
    if name == "analytic":
        return reverse(pred, s)
    move = (t - s)[..., None] * reverse_rate(pred)
    return move.scatter(-1, x[..., None], 1 - move.sum(-1, keepdim=True))


@pytest.mark.parametrize("case", STEPS)
def test_step(golden, networks, case):
    _, name, kind = case.removeprefix("sedd__").split("_", 2)
    c, method = golden[case], of(networks, kind)
    x, t = c["x"], c["t"].double()
    s = t - golden.scalars(case)["step_size"]
    movable = method.process.movable(x)
    pred = method.predict(x, t)
    assert isinstance(pred, Score)
    golden.near(case, score(pred), c["score"])
    p = distributions(method, name, x, t, s)
    theirs = c["probs"]
    if name == "denoiser" and method.process.mask is not None:
        p = p[
            ..., :-1
        ]  # difference: ours gives the mask no mass since its distribution is the posterior; theirs drops the column
    golden.near(case, p[movable], theirs[movable])
    # what our samplers draw from is this, clipped and normalised; theirs races with the clipped weights
    ours = stepped(pred, s.expand(x.shape)) if name == "euler" else kernel(pred, CLEAN if name == "denoiser" else s)
    ours = ours[..., : theirs.shape[-1]]
    clipped = theirs.double().clamp_min(0.0)
    ours, clipped = (w / w.sum(-1, keepdim=True) for w in (ours, clipped))
    golden.near(case, ours[movable], clipped[movable])
    assert torch.equal(race(clipped, c["u"])[movable], c["x_next"][movable])
    if method.process.mask is not None and name != "denoiser":
        assert torch.equal(c["x_next"][~movable], x[~movable])


@pytest.mark.parametrize("case", MDLM_STEPS)
def test_mdlm_step(golden, networks, case):
    c, scalars = golden[case], golden.scalars(case)
    method, masked = sedd(networks["mdlm"], "absorb_loglinear"), c["x"] == MASK
    pred = method.predict(c["x"], scalars["t"])
    if "score" in c:
        golden.near(case, score(pred)[masked], c["score"][masked])
    p = reverse(pred, CLEAN if "denoiser" in case else scalars["t"] - scalars["dt"])
    if "denoiser" in case:  # theirs sets the mask's column to zero and does not normalise
        p = p.scatter(-1, torch.full_like(c["x"], MASK)[..., None], 0.0)
    golden.near(case, p[masked], c["probs"][masked])
    assert torch.equal(torch.where(masked, race(p, c["u"]), c["x"]), c["x_next"])


@pytest.mark.parametrize("case", [*TRAJECTORIES, "mdlm__traj_analytic_sedd"])
@torch.no_grad()
def test_trajectories(golden, networks, case):
    """Its times are the published grid, with a draw of clean tokens at the end."""
    c, scalars = golden[case], golden.scalars(case)
    kind = "absorb_loglinear" if "mdlm" in case else "_".join(case.split("_")[3:5])
    method, n = sedd(networks["mdlm"], kind) if "mdlm" in case else of(networks, kind), scalars["steps"]
    assert float(c["argmax_margin"].min()) > 1.0002
    draws = list(c["u"]) if "u" in c else [c[f"u{i}"] for i in range(n + 1)]
    if method.process.mask is None:  # what it starts from
        draws = [0.999 * torch.nn.functional.one_hot(c["states"][0], K - 1), *draws]
    sampler = (Euler if scalars["predictor"] == "euler" else Ancestral)("published", choose=False)
    *states, final = [state.x for state in run(sampler, method, c["final"].shape, n, generator=RecordedRaces(*draws))]
    assert torch.equal(torch.stack(states)[: len(c["states"])], c["states"])
    assert torch.equal(final, c["final"])
    rounded(sampler.times(method, n)[:-1], torch.linspace(1, LAST, n + 1, dtype=torch.float64), 2, scale=1.0)
    for other in (Ancestral(), Euler()):
        times = other.times(method, n)
        assert (times[0], times[-1]) == (1.0 if method.process.mask is None else PRIOR, CLEAN)


def test_scale_by_sigma_is_refused_for_uniform_noise():
    with pytest.raises(InputError, match="needs `process` absorbing"):
        SEDD(None, V, (L,), SEDD.Config("uniform", scale_by_sigma=True))
