"""ReMDM's published code (arXiv 2503.00307) against ours at the tolerance of each case.

Every step there is ours with some sigma: a token is masked again with it, a mask revealed with
`reveal_beside_remasking`. Where sigma is of no kind of ours (the forward-backward corrector, that of discrete flow
matching) the test puts it in.
"""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from zellige.core.prediction import posterior
from zellige.core.schedule import CLEAN, PRIOR
from zellige.methods import MDLM
from zellige.samplers import Remasking, State
from zellige.samplers.guide import truncated
from zellige.samplers.remasking import reveal_beside_remasking

from .recorded import EPS, LAST, MASK, TORCH, FixedTime, K, L, RecordedLogits, V, race, rounded

KINDS = {name: name.split("_")[3] for name in TORCH.cases("remdm__step_(cap|rescale|conf|loop_inside).*")}
LOOP = TORCH.cases("remdm__step_loop_(before|after)")
FLOW = TORCH.cases("remdm__step_dfm_.*")
TRAJECTORIES = TORCH.cases("remdm__traj_.*")
ELSEWHERE = {"remdm__step_mdlm", "remdm__step_mdlm_nucleus"}  # of these the tests stand with MDLM's, in test_mdlm.py
TESTED = {"remdm__step_forward_backward", *KINDS, *LOOP, *FLOW, *TRAJECTORIES, *ELSEWHERE}
EXCLUDED: dict[str, str] = {}
FORMS = dict.fromkeys(
    ["remdm__step_mdlm", "remdm__step_mdlm_nucleus", *LOOP],
    "its distribution is not divided by the share of masks: ours times 1 - alpha_t",
)
DIFFERS: dict[str, str] = {}


@pytest.fixture(scope="module")
def method(network):
    """The published network; upstream's alpha is 1 - t, which is ours without its eps."""
    return MDLM(FixedTime(network, 0.0), V, (L,), MDLM.Config(schedule="loglinear"))


def test_every_case_is_accounted_for(golden):
    cases = {name for name in golden.index if name.startswith("remdm__")}
    assert cases == TESTED | EXCLUDED.keys()
    assert not TESTED & EXCLUDED.keys()
    assert FORMS.keys() | DIFFERS.keys() <= TESTED


def stepped(p: Tensor, x: Tensor, alpha_t: Tensor, alpha_s: Tensor, sigma: Tensor, held: Tensor) -> Tensor:
    """The distribution of x_s: a token is masked with `sigma`, a mask revealed as `held` says; p (B, L, K) the clean
    posterior."""
    up = reveal_beside_remasking(alpha_t, alpha_s, held)[..., None]
    mask = torch.nn.functional.one_hot(torch.tensor(MASK), p.shape[-1]).double()
    token = torch.nn.functional.one_hot(x, p.shape[-1]).double()
    masked = (x == MASK)[..., None]
    return torch.where(masked, up * p + (1 - up) * mask, (1 - sigma)[..., None] * token + sigma[..., None] * mask)


def alphas(scalars) -> tuple[Tensor, Tensor]:
    t, s = scalars["t"], scalars.get("t_next", scalars["t"] - scalars.get("dt", 0.0))
    return tuple(torch.tensor([1 - u], dtype=torch.float64) for u in (t, s))  # pyright: ignore[reportReturnType]


def distribution_of(method, x: Tensor, t: float) -> Tensor:
    return posterior(method.predict(x, t)).double()


@pytest.mark.parametrize("case", KINDS)
def test_step(golden, method, case):
    c, scalars, kind = golden[case], golden.scalars(case), KINDS[case]
    sampler = Remasking(kind, eta=scalars.get("eta", 0.02))
    masked = c["x"] == MASK
    a, b = alphas(scalars)
    if kind == "loop":
        a = b = torch.tensor([scalars["alpha_on"]], dtype=torch.float64)
    memory = (
        (-c["conf_in"].double()).nan_to_num(posinf=0.0) if kind == "conf" else None
    )  # theirs holds minus the probability
    state = State(c["x"], torch.zeros_like(masked), torch.zeros(len(masked)), memory=memory)
    sigma = sampler.sigma(state, masked, a, b)
    p = distribution_of(method, c["x"], scalars["t"])
    ours = stepped(p, c["x"], a, b, sigma, torch.zeros_like(sigma) if kind == "conf" else sigma)
    golden.near(case, ours, c["probs"])
    assert torch.equal(race(ours, c["u"]), c["x_next"])
    if kind == "conf":
        new = masked & (c["x_next"] != MASK)
        golden.near(case, -p.gather(-1, c["x_next"][..., None])[..., 0][new], c["conf_out"][new])


def test_sampler_draws_from_the_same_step(golden, method):
    """`Remasking.step` itself on a recorded state: how often each position is a mask, 4,000 draws within 5.5 standard errors (a
    false alarm: 4e-8 a position). eps of our schedule is 1e-3, theirs 0."""
    case = "remdm__step_cap_eta0.4"
    c, scalars = golden[case], golden.scalars(case)
    n = 4000
    x, sampler = c["x"][:1].expand(n, -1), Remasking("cap", eta=scalars["eta"])
    state = State(x, torch.zeros_like(x, dtype=torch.bool), torch.zeros(n), memory=torch.zeros(x.shape).double())
    said = MDLM(RecordedLogits(torch.zeros(n, L, K)), V, (L,), MDLM.Config())
    t, s = (torch.tensor((1 - a) / (1 - EPS), dtype=torch.float64) for a in (0.4, 0.5))
    said.network.features = lambda rows, time=None, **_: torch.zeros(len(rows), L, K)  # pyright: ignore[reportAttributeAccessIssue]
    new = sampler.step(said, state, t, s, torch.Generator().manual_seed(0))
    share, expected = (new.x == MASK).double().mean(0), c["probs"][0, :, MASK].double()
    assert ((share - expected).abs() <= 5.5 * (expected * (1 - expected) / n).sqrt()).all()


@pytest.mark.parametrize("case", LOOP)
def test_loop_outside(golden, method, case):
    """Before t_on and after t_off it is MDLM's step at alpha as our `times` has it; theirs is not divided by 1 - alpha_t."""
    c, scalars = golden[case], golden.scalars(case)
    on, off, most = scalars["t_on"], scalars["t_off"], scalars["alpha_on"]
    t, s = scalars["t"], scalars["t"] - scalars["dt"]
    alpha = (lambda u: most * (1 - u) / (1 - on)) if "before" in case else (lambda u: 1 - (1 - most) * u / off)
    a, b = (torch.tensor([alpha(u)], dtype=torch.float64) for u in (t, s))
    masked = c["x"] == MASK
    sampler = Remasking("loop", scalars["eta"], on, off, most)
    state = State(c["x"], torch.zeros_like(masked), torch.zeros(len(masked)))
    sigma = sampler.sigma(state, masked, a, b)
    assert float(sigma.abs().max()) == 0.0
    ours = stepped(distribution_of(method, c["x"], t), c["x"], a, b, sigma, sigma)
    golden.near(case, (ours * (1 - a))[masked], c["probs"][masked])
    assert torch.equal(torch.where(masked, race(ours, c["u"]), c["x"]), c["x_next"])
    grid = sampler.times(method, 20)  # even times u = 1, 0.95, ...
    u = torch.linspace(1, 0, 21, dtype=torch.float64)
    inside = (u > on) if "before" in case else (u <= off)
    inside &= ~grid.isinf() & (u < 1 - 1e-9)
    expected = torch.tensor([alpha(float(v)) for v in u], dtype=torch.float64)
    rounded(method.process.schedule.alpha(grid)[inside, 0], expected[inside], 4, scale=1.0)


def test_forward_backward(golden, method):
    """sigma = (alpha_s - alpha_t)/alpha_t: a step of the forward process after one of the reverse."""
    case = "remdm__step_forward_backward"
    c = golden[case]
    a, b = alphas(golden.scalars(case))
    sigma = ((b - a) / a).expand(c["x"].shape)
    ours = stepped(distribution_of(method, c["x"], golden.scalars(case)["t"]), c["x"], a, b, sigma, sigma)
    golden.near(case, ours, c["probs"])
    assert torch.equal(race(ours, c["u"]), c["x_next"])


@pytest.mark.parametrize("case", FLOW)
def test_discrete_flow_matching(golden, method, case):
    """sigma = b_t (t - s)/(1 - t), b_t = 10 t^(1/4) (1 - t)^(1/4); their nucleus drops the token that crosses."""
    c, scalars = golden[case], golden.scalars(case)
    a, b = alphas(scalars)
    t = scalars["t"]
    sigma = 10 * (t * (1 - t)) ** 0.25 * (b - a) / (1 - t) if t < 1 else torch.zeros(1, dtype=torch.float64)
    p = posterior(truncated(method.predict(c["x"], t), nucleus=scalars["nucleus_p"], drop=True)).double()
    sigma = sigma.expand(c["x"].shape)
    ours = stepped(p, c["x"], a, b, sigma, sigma)
    golden.near(case, ours, c["probs"])
    assert torch.equal(race(ours, c["u"]), c["x_next"])


@pytest.mark.parametrize("case", TRAJECTORIES)
@torch.no_grad()
def test_trajectories(golden, network, case):
    """On the published grid, with alpha from 1 to 0, each step's distribution from the sampler's own sigma; the last one is an
    argmax."""
    c, scalars = golden[case], golden.scalars(case)
    kind, eta, n = scalars["sampler"].removeprefix("remdm-"), scalars.get("eta", 0.02), scalars["steps"]
    sampler = Remasking(kind, eta, grid="published", argmax="last")
    method = MDLM(FixedTime(network, 0.0), V, (L,), MDLM.Config(alpha_1=0.0))
    times, schedule = sampler.times(method, n), method.process.schedule
    rounded(times[:-1], torch.linspace(1, LAST, n + 1, dtype=torch.float64), 2, scale=1.0)
    state = sampler.init(method, c["final"].shape)
    for i, (t, s) in enumerate(pairwise(times[:-1])):
        assert torch.equal(state.x, c["states"][i])
        a, b = schedule.alpha(t), schedule.alpha(s)
        masked = state.x == MASK
        sigma = sampler.sigma(state, masked, a, b)
        p = distribution_of(method, state.x, float(t))
        new = race(stepped(p, state.x, a, b, sigma, torch.zeros_like(sigma) if kind == "conf" else sigma), c["u"][i])
        drawn = p.gather(-1, new[..., None])[..., 0]
        state = replace(state, x=new, memory=torch.where(masked & (new != MASK), drawn, state.memory))
    assert torch.equal(sampler.step(method, state, times[-2], times[-1]).x, c["final"])  # nothing is drawn
    ours = Remasking(kind, eta).times(method, n)
    assert (ours[0], ours[-1]) == (PRIOR, CLEAN)
    rounded(ours[1], 1 - 1 / n, 2)
