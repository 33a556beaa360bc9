"""RADD's published code against ours, at the tolerance of each case: network, losses, orders, noise, sampling."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from zellige import guide
from zellige.core import maths, random
from zellige.core.batch import Batch
from zellige.core.prediction import kernel, posterior
from zellige.core.schedule import CLEAN
from zellige.methods import RADD
from zellige.samplers import FixedOrder
from zellige.samplers.euler import stepped

from .recorded import MASK, TORCH, Given, L, V, published_network, race

LOSSES = TORCH.cases("radd__loss_.*_D[SC]E")
ORDERS = TORCH.cases("radd__loss_ar_.*")
DIRECT = TORCH.cases("radd__traj_(tweedie|euler)_direct.*")
GRID = "replayed on its own times, 1 to 1e-5; our last step goes to CLEAN, theirs reveals with probability 1.001"
DIFFERS = {
    "radd__loss_t_DCE": "it is taken of the log score and so carries a constant for each mask; its gradient agrees",
    "radd__batch_uniform_sampler": "one uniform spreads all rows here (vdm); its decoupled sampler draws one for each",
    "radd__strategies": "top-k is no choice here; direct and top-p agree",
    **dict.fromkeys(DIRECT, GRID),
    "radd__traj_tweedie_top_p": "its top-p is of a law with the mask in it, so a mask may be drawn as a token; ours never is",
}
TOP_K = "top-k is no choice here: top-p and temperature are"
EXCLUDED = dict.fromkeys(TORCH.cases("radd__traj_.*_top_k"), TOP_K)
TESTED = {
    "radd__weights", "radd__forward", "radd__add_noise", "radd__update_rate", "radd__traj_ordered_direct",
    *LOSSES, *ORDERS, *DIFFERS,
}  # fmt: skip


@pytest.fixture(scope="module")
def golden():
    return TORCH


@pytest.fixture(scope="module")
def radd(golden):
    return RADD(published_network(golden["radd__weights"]), V, (L,))


def test_every_case_is_accounted_for(golden):
    assert {name for name in golden.index if name.startswith("radd__")} == TESTED | EXCLUDED.keys()
    assert not TESTED & EXCLUDED.keys()


# ---------------------------------------------------------------------------------- network
def test_forward(golden, radd):
    """Difference in form only: theirs log-softmaxes the first V columns everywhere; ours carries over what is no mask."""
    c = golden["radd__forward"]
    golden.near("radd__forward", radd.network(c["xt"]), c["logits"])
    masked = c["xt"] == MASK
    p = posterior(radd.predict(c["xt"], 0.5))
    golden.near("radd__forward", p[masked][:, :V].log(), c["out"][masked][:, :V])
    assert (p[~masked].argmax(-1) == c["xt"][~masked]).all()
    assert (p[..., MASK] == 0).all()


# ---------------------------------------------------------------------------------- losses
@pytest.mark.parametrize("case", LOSSES)
def test_losses(golden, radd, case):
    c = golden[case]
    batch, x_t = Batch(c["x0"]), c["xt"]
    if case.endswith("lambda_DCE"):
        ours = radd.lambda_dce(batch, x_t, c["Lambda"].double())
    elif case.endswith("k_DCE"):
        ours = radd.k_dce(batch, x_t, c["k"])
    else:
        t = c["t"].double()
        golden.near(case, radd.process.schedule.sigma(t)[:, 0], c["sigma"])
        golden.near(case, radd.process.schedule.beta(t)[:, 0], c["dsigma"])
        ours = (radd.t_dse if case.endswith("t_DSE") else radd.t_dce)(batch, x_t, t)
        close = torch.testing.assert_close
        close(radd.t_dse(batch, x_t, t), radd.t_dce(batch, x_t, t), rtol=1e-5, atol=1e-4)
        if case.endswith("t_DCE"):  # -R a log a for each mask, a = alpha / (1 - alpha)
            a = torch.sigmoid(snr := radd.process.schedule.log_snr(t)[:, 0]) / torch.sigmoid(-snr)
            constant = -radd.process.schedule.beta(t)[:, 0] * a * a.log() * (x_t == MASK).sum(-1)
            assert (constant.abs() > 0.1).all()
            ours = ours + constant
    golden.near(case, ours, c["loss"])


@pytest.mark.parametrize("case", ORDERS)
@torch.no_grad()
def test_likelihood_in_an_order(golden, radd, case):
    c = golden[case]
    golden.near(case, radd.in_order(Batch(c["x0"]), c["order"].argsort()), c["loss"])
    name = case.rpartition("_")[2]
    if name != "random":
        golden.near(case, radd.estimators()[name](Batch(c["x0"])), c["loss"])


# ---------------------------------------------------------------------------------- noise
def test_batch_uniform_sampler(golden):
    case = "radd__batch_uniform_sampler"
    c = golden[case]
    golden.near(case, random.stratified(len(c["vdm_t"]), Given(c["vdm_u"])), c["vdm_t"])
    assert torch.equal(c["naive_u"], c["naive_t"])
    n = len(c["decoupled_u"])
    decoupled = (c["decoupled_u"] + torch.arange(n)) / n
    golden.near(case, decoupled, c["decoupled_t"])
    # both put one draw into each n-th of [0, 1]
    for t in (c["vdm_t"], c["decoupled_t"]):
        assert sorted((t * n).long().tolist()) == list(range(n))


def test_add_noise(golden, radd):
    c = golden["radd__add_noise"]
    t = radd.process.schedule.inverse((-c["sigma"].double()).exp())
    assert torch.equal(radd.corrupt(Batch(c["x0"]), t, Given(c["t_u"])), c["t_xt"])
    lost = random.bernoulli(c["Lambda"].double()[:, None].expand(c["x0"].shape), Given(c["lambda_u"]))
    assert torch.equal(torch.where(lost, MASK, c["x0"]), c["lambda_xt"])
    for b, k in enumerate(c["k"].tolist()):  # row by row: here the k of a batch are spread evenly
        order, u = (c["perm"][b : b + 1] + 0.5) / L, torch.tensor([(k - 0.5) / L])
        _, n, drawn, x_t = radd.mask_some(Batch(c["x0"][b : b + 1]), Given(order, u))
        assert (int(n), int(drawn)) == (L, k)
        assert torch.equal(x_t, c["k_xt"][b : b + 1])


# ---------------------------------------------------------------------------------- sampling
def times(steps: int) -> Tensor:
    return torch.linspace(1, 1e-5, steps + 1, dtype=torch.float64)


def test_update_rate(golden, radd):
    case = "radd__update_rate"
    c = golden[case]
    for steps in (int(key.removeprefix("tweedie_")) for key in c if key.startswith("tweedie_")):
        grid = times(steps)
        golden.near(case, radd.reveal(grid[:-1], grid[1:]), c[f"tweedie_{steps}"])
        golden.near(case, -grid.diff() * radd.process.schedule.weight(grid[:-1])[:, 0], c[f"euler_{steps}"])


def test_strategies(golden):
    case = "radd__strategies"
    c = golden[case]
    p = c["logits"].double().softmax(-1)
    golden.near(case, p, c["direct_probs"])
    golden.near(case, maths.normalise(guide.top_p(p, golden.scalars(case)["top_p"])), c["top_p_probs"])
    assert torch.equal(race(p, c["direct_u"]), c["direct_index"])


@pytest.mark.parametrize("case", DIRECT)
@torch.no_grad()
def test_direct_trajectories(golden, radd, case):
    c, steps = golden[case], golden.scalars(case)["steps"]
    x, grid = torch.full_like(c["final"], MASK), times(steps)
    for i, (t, s) in enumerate(pairwise(grid)):
        masked, last = x == MASK, i == steps - 1
        pred = radd.predict(x, t, at=masked)
        later = torch.full_like(pred.t, CLEAN if last else float(s))
        p = stepped(pred, later) if "euler" in case else kernel(pred, later)
        half = case.endswith("fp16")
        shown = p.clone()
        if last:
            shown = 1.001 * p
            shown[:, MASK] = 1 - 1.001
        torch.testing.assert_close(shown, c[f"probs{i}"].double(), rtol=0, atol=2e-3 if half else 2e-5)
        drawn = race(c[f"probs{i}"] if half else p, c[f"u{i}"])  # one half-precision race is a tie
        x = x.masked_scatter(masked, drawn)
    assert torch.equal(x, c["final"])


@torch.no_grad()
def test_top_p_trajectory(golden, radd):
    """Their law at each step, from our network: with the mask in it, which ours has not."""
    case = "radd__traj_tweedie_top_p"
    c, said = golden[case], golden.scalars(case)
    steps, x, u, masks = said["steps"], torch.full_like(c["final"], MASK), 0, 0.0
    grid = times(steps)
    for i in range(steps):
        at = x == MASK
        if i < steps - 1:
            at &= random.bernoulli(radd.reveal(grid[i], grid[i + 1]).expand(x.shape), Given(c[f"u{u}"]))
            u += 1
        logits = radd.network(x)[at].double()
        theirs = logits.softmax(-1)
        p = maths.normalise(guide.top_p(theirs, said["para"]))
        torch.testing.assert_close(p, c[f"probs{i}"].double(), rtol=0, atol=2e-5)
        masks += float(p[:, MASK].sum())
        ours = posterior(guide.guided(radd.predict(x, 0.5, at=at), 1.0, said["para"]))
        assert (ours[:, MASK] == 0).all()
        x = x.masked_scatter(at, race(c[f"probs{i}"], c[f"u{u}"]))
        u += 1
    assert torch.equal(x, c["final"])
    assert masks > 0.1


@torch.no_grad()
def test_ordered_trajectory(golden, radd):
    case = "radd__traj_ordered_direct"
    c = golden[case]
    sampler = FixedOrder(c["order"].tolist())
    state = sampler.init(radd, c["final"].shape)
    for i, position in enumerate(c["order"].tolist()):
        at = torch.zeros_like(c["final"], dtype=torch.bool)
        at[:, position] = True
        p = posterior(radd.predict(state.x, 0.5, at=at))
        torch.testing.assert_close(p[:, :V].double(), c[f"probs{i}"].double(), rtol=0, atol=2e-5)
        step = sampler.step(radd, state, torch.tensor(0.5), torch.tensor(0.4), torch.Generator().manual_seed(i))
        assert torch.equal(step.x != state.x, at)  # our sampler reveals the same position
        state = type(state)(state.x.masked_scatter(at, race(p[:, :V], c[f"u{i}"])), state.fixed, state.calls)
    assert torch.equal(state.x, c["final"])
