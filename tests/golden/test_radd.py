"""RADD's published code against ours, at the tolerance of each case: network, losses, orders, noise, sampling."""

from collections.abc import Callable
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
from zellige.samplers import Ancestral, Euler, FixedOrder
from zellige.samplers.euler import stepped

from .recorded import LAST, MASK, TORCH, L, RecordedUniforms, V, published_network, race, rounded

LOSSES = TORCH.cases("radd__loss_.*_D[SC]E")
ORDERS = TORCH.cases("radd__loss_ar_.*")
DIRECT = TORCH.cases("radd__traj_(tweedie|euler)_direct.*")
CUT, ORDERED = TORCH.cases("radd__traj_tweedie_top_.*"), TORCH.cases("radd__traj_ordered_.*")
HALF = "; its distributions are held in float16, ours rounded to it"
FORMS = {
    "radd__loss_t_DCE": "it is taken of the log score and so carries a constant for each mask; its gradient agrees",
    **{
        case: "its last step reveals with probability 1.001: ours times that, and -0.001 on the mask"
        + HALF * case.endswith("fp16")
        for case in DIRECT
    },
    "radd__batch_uniform_sampler": "its decoupled sampler draws a uniform for each row, ours one for all (vdm); ours at each",
}
DIFFERS = {
    **dict.fromkeys(
        CUT,
        "it cuts a distribution with the mask in it, so a mask may be drawn as a token, at the end too: no distribution of texts",
    ),
}
EXCLUDED: dict[str, str] = {}
TESTED = {
    "radd__weights", "radd__forward", "radd__add_noise", "radd__update_rate", "radd__strategies", *ORDERED, *LOSSES, *ORDERS,
    *FORMS, *DIFFERS,
}  # fmt: skip


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
        golden.near(case, radd.t_dse(batch, x_t, t), radd.t_dce(batch, x_t, t))
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
    golden.near(case, random.stratified(len(c["vdm_t"]), RecordedUniforms(c["vdm_u"])), c["vdm_t"])
    assert torch.equal(c["naive_u"], c["naive_t"])
    n = len(c["decoupled_u"])
    each = [random.stratified(n, RecordedUniforms(u / n))[b] for b, u in enumerate(c["decoupled_u"].split(1))]
    golden.near(case, torch.stack(each), c["decoupled_t"])
    # both put one draw into each n-th of [0, 1]
    for t in (c["vdm_t"], c["decoupled_t"]):
        assert sorted((t * n).long().tolist()) == list(range(n))


def test_add_noise(golden, radd):
    c = golden["radd__add_noise"]
    t = radd.process.schedule.inverse((-c["sigma"].double()).exp())
    assert torch.equal(radd.corrupt(Batch(c["x0"]), t, RecordedUniforms(c["t_u"])), c["t_xt"])
    lost = random.bernoulli(c["Lambda"].double()[:, None].expand(c["x0"].shape), RecordedUniforms(c["lambda_u"]))
    assert torch.equal(torch.where(lost, MASK, c["x0"]), c["lambda_xt"])
    for b, k in enumerate(c["k"].tolist()):  # row by row: here the k of a batch are spread evenly
        order, u = (c["perm"][b : b + 1] + 0.5) / L, torch.tensor([(k - 0.5) / L])
        _, n, drawn, x_t = radd.mask_exactly_k(Batch(c["x0"][b : b + 1]), RecordedUniforms(order, u))
        assert (int(n), int(drawn)) == (L, k)
        assert torch.equal(x_t, c["k_xt"][b : b + 1])


# ---------------------------------------------------------------------------------- sampling
def times(steps: int) -> Tensor:
    return torch.linspace(1, LAST, steps + 1, dtype=torch.float64)


def test_update_rate(golden, radd):
    case = "radd__update_rate"
    c = golden[case]
    for steps in (int(key.removeprefix("tweedie_")) for key in c if key.startswith("tweedie_")):
        grid = times(steps)
        golden.near(case, radd.reveal_probability(grid[:-1], grid[1:]), c[f"tweedie_{steps}"])
        golden.near(case, -grid.diff() * radd.process.schedule.weight(grid[:-1])[:, 0], c[f"euler_{steps}"])


def cut(p: Tensor, strategy: str, level: float | None) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Our distribution for one of their strategies, normalised, and the token at a place in it: of top-k they list the k
    largest."""
    if strategy == "direct" or level is None:
        return maths.normalise(p), lambda index: index
    if strategy == "top_p":
        return maths.normalise(guide.top_p(p, level)), lambda index: index
    values, places = guide.top_k(p, int(level)).topk(int(level))
    return maths.normalise(values), lambda index: places.gather(-1, index[..., None])[..., 0]


def test_strategies(golden):
    case = "radd__strategies"
    c = golden[case]
    p = c["logits"].double().softmax(-1)
    golden.near(case, p, c["direct_probs"])
    scalars = golden.scalars(case)
    for strategy in ("direct", "top_p", "top_k"):
        distribution, token = cut(p, strategy, scalars[strategy])
        golden.near(case, distribution, c[f"{strategy}_probs"])
        assert torch.equal(token(race(distribution, c[f"{strategy}_u"])), c[f"{strategy}_index"])


@pytest.mark.parametrize("case", DIRECT)
@torch.no_grad()
def test_direct_trajectories(golden, radd, case):
    """On the published grid. In form: the last step reveals with probability 1.001 there, so its mask has -0.001, which is
    never drawn; one run held its distributions in float16, which ours are rounded to there."""
    c, steps, half = golden[case], golden.scalars(case)["steps"], case.endswith("fp16")
    grid, x = (
        (Euler if "euler" in case else Ancestral)("published").times(radd, steps),
        torch.full_like(c["final"], MASK),
    )
    rounded(grid[:-1], times(steps)[:-1], 2, scale=1.0)
    assert float(grid[-1]) == CLEAN
    for i, (t, s) in enumerate(pairwise(grid)):
        pred = radd.predict(x, t, at=x == MASK)
        p = (stepped if "euler" in case else kernel)(pred, s.expand(pred.t.shape))
        shown = p.clone()
        if i == steps - 1:
            shown *= 1.001
            shown[:, MASK] = 1 - 1.001
        if half:
            golden.near(case, shown, c[f"probs{i}"], rtol=0.0, atol=golden.noted(case))
        else:
            golden.near("radd__forward", shown, c[f"probs{i}"])
        x = x.masked_scatter(x == MASK, race(p.half() if half else p, c[f"u{i}"]))
    assert torch.equal(x, c["final"])


@pytest.mark.parametrize("case", CUT)
@torch.no_grad()
def test_cut_trajectories(golden, radd, case):
    """Their distribution at each step, from our network: with the mask in it, which ours has not."""
    c, scalars = golden[case], golden.scalars(case)
    steps, x, u = scalars["steps"], torch.full_like(c["final"], MASK), 0
    grid, strategy = times(steps), (scalars["strategy"], scalars["para"])
    for i in range(steps):
        at = x == MASK
        if i < steps - 1:
            at &= random.bernoulli(
                radd.reveal_probability(grid[i], grid[i + 1]).expand(x.shape), RecordedUniforms(c[f"u{u}"])
            )
            u += 1
        whole = radd.network(x)[at].double().softmax(-1)
        p, token = cut(whole, *strategy)
        golden.near("radd__forward", p, c[f"probs{i}"])
        new = token(race(p, c[f"u{u}"]))
        assert bool((whole[:, MASK] > 1e-3).any())  # the difference
        ours, _ = cut(posterior(radd.predict(x, 0.5, at=at))[:, :V], *strategy)
        without, _ = cut(whole[:, :V], *strategy)  # ours is theirs without the mask
        golden.near("radd__forward", ours, without)
        x = x.masked_scatter(at, new)
        u += 1
    assert torch.equal(x, c["final"])


@pytest.mark.parametrize("case", ORDERED)
@torch.no_grad()
def test_ordered_trajectories(golden, radd, case):
    c, scalars = golden[case], golden.scalars(case)
    sampler = FixedOrder(c["order"].tolist())
    state = sampler.init(radd, c["final"].shape)
    for i, position in enumerate(c["order"].tolist()):
        at = torch.zeros_like(c["final"], dtype=torch.bool)
        at[:, position] = True
        p, token = cut(posterior(radd.predict(state.x, 0.5, at=at))[:, :V], scalars["strategy"], scalars["para"])
        golden.near("radd__forward", p, c[f"probs{i}"])
        step = sampler.step(radd, state, torch.tensor(0.5), torch.tensor(0.4), torch.Generator().manual_seed(i))
        assert torch.equal(step.x != state.x, at)  # our sampler reveals the same position
        state = type(state)(state.x.masked_scatter(at, token(race(p, c[f"u{i}"]))), state.fixed, state.calls)
    assert torch.equal(state.x, c["final"])
