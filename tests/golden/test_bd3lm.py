"""BD3-LM's published code against ours at the tolerance of each case.

Its loglinear noise is alpha = 1 - t exactly, no eps. Not conditioned on time, its network is told sigma = 0.
"""

import itertools

import pytest
import torch
from torch import Tensor

from zellige import Method, guide
from zellige.core import bound, maths
from zellige.core.batch import Batch
from zellige.core.curves import CosinePower, Linear, Logarithmic, Polynomial
from zellige.core.prediction import kernel, posterior, truth
from zellige.core.random import spread
from zellige.methods import AR, BD3LM
from zellige.methods.bd3lm import WIDTHS, intervals
from zellige.nn import DiT, Net
from zellige.samplers import FirstHitting, State

from .recorded import (
    EPS,
    MASK,
    TORCH,
    FixedTime,
    K,
    L,
    RecordedLogits,
    RecordedUniforms,
    published_network,
    race,
    rounded,
    vanishes,
)

MASKS = TORCH.cases("bd3lm__mask_bs.*")
UNTIMED = TORCH.cases("bd3lm__forward_loss_.*_tc_false")
TIMED = TORCH.cases("bd3lm__forward_loss_.*_tc_true")
WHOLE = TORCH.cases("bd3lm__loss_(mdlm|sedd)_.*")
CACHES = TORCH.cases("bd3lm__kv_cache_.*")
TIMES = TORCH.cases("bd3lm__sample_t_.*")
HITTING = TORCH.cases("bd3lm__semi_ar_fh_.*")
ANCESTRAL = TORCH.cases("bd3lm__semi_ar_ddpm_.*")
TESTED = {
    "bd3lm__weights", "bd3lm__nll_bs1", "bd3lm__ar", "bd3lm__noise_schedules", "bd3lm__q_xt", "bd3lm__clip_search_grid",
    "bd3lm__nucleus", *MASKS, *UNTIMED, *TIMED, *WHOLE, *CACHES, *TIMES, *HITTING, *ANCESTRAL,
}  # fmt: skip
FORMS = {
    "bd3lm__noise_schedules": "its weight of cosine divides by 1 - alpha + eps, ours by 1 - alpha; square and square "
    "root end at 1e-3",
    "bd3lm__clip_search_grid": "its first interval of each width begins at 0.001, ours at 0",
}
DIFFERS = {
    **dict.fromkeys([name for name in TIMED if f"_bs{L}_" not in name],
                    "every block is told the time of the first one, which a block that is being written does not have; "
                    "ours its own, clean tokens CLEAN"),
    **dict.fromkeys(TORCH.cases("bd3lm__semi_ar_ddpm_.*_few_steps"),
                    "divides by zero where t reaches 0; our last step ends with clean tokens"),
}  # fmt: skip


@pytest.fixture(scope="module")
def weights(golden):
    return golden["bd3lm__weights"]


def bd3lm(weights, block: int, told: Tensor | float | None = 0.0, prediction="mean", alpha_1=0.0) -> Method:
    """The published network as ours: `told` this time whatever it is, or (None) its own."""
    network = published_network(weights, block)
    config = BD3LM.Config(block=block, time=told is None, prediction=prediction)
    method = BD3LM.resolve(config)(network if told is None else FixedTime(network, told), MASK, (L,), config)
    method.process.schedule = Linear(alpha_1)
    return method.eval()


def block_of(golden, case: str) -> int:
    return golden.scalars(case)["block_size"]


def test_every_case_is_accounted_for(golden):
    assert {name for name in golden.index if name.startswith("bd3lm__")} == TESTED
    assert FORMS.keys() | DIFFERS.keys() <= TESTED


# ---------------------------------------------------------------------------------- what is seen
@pytest.mark.parametrize("case", MASKS)
@torch.no_grad()
def test_masks(golden, case):
    """A network with random weights: a position depends on what it sees, and on nothing else."""
    c, block = golden[case], block_of(golden, case)
    torch.manual_seed(0)
    network = DiT(Net(layers=1, hidden=16, heads=2, length=L), 4, block=block).double().eval()
    x, clean = torch.zeros(1, L, dtype=torch.long), torch.ones(1, L, dtype=torch.long)
    moved = torch.eye(L, dtype=torch.long)

    def reach(noisy: Tensor, beside: Tensor | None) -> Tensor:
        """(L, L): whether a position changes (rows) when one of the tokens does (columns)."""
        before = network.features(x, clean=None if beside is None else clean)
        after = network.features(noisy, clean=beside)
        return ((after - before).abs().amax(-1) > 1e-12).T

    assert torch.equal(reach(x + 2 * moved, clean.expand(L, L)), c["mask"][:L, :L])
    assert torch.equal(reach(x.expand(L, L), clean + 2 * moved), c["mask"][:L, L:])
    assert torch.equal(reach(x + 2 * moved, None), c["mask"][L:, L:])  # the clean tokens among themselves
    assert torch.equal(c["sample_mask"], c["mask"][L:, L:])
    assert not c["mask"][L:, :L].any()


# ---------------------------------------------------------------------------------- losses
def _token(method: BD3LM, c: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """log p(x_0) and our bound at each position by the generic formulas, (B, L, K) and (B, L)."""
    t = c["t"].double().expand(c["x0"].shape)
    pred = method.predict(c["xt"], t, context=method.clean(Batch(c["x0"])))
    return posterior(pred).log(), bound.continuous(truth(method.process, c["x0"], c["xt"], t), pred)


@pytest.mark.parametrize("case", UNTIMED + TIMED)
@torch.no_grad()
def test_forward_and_loss(golden, weights, case):
    """Difference (tc_true): the time of the row's first token is told for all of it."""
    c, block = golden[case], block_of(golden, case)
    method = bd3lm(weights, block, c["sigma_used"])
    log_p, each = _token(method, c)
    possible = c["log_p_x0"] > -9e5  # theirs puts -1e6 where ours has probability 0
    assert torch.equal(log_p > -9e5, possible)
    golden.near(case, log_p[possible], c["log_p_x0"][possible])
    golden.near(case, each, c["loss_per_token"])
    golden.near(case, each * c["token_mask"], c["nlls"])
    golden.near(case, (each * c["token_mask"]).sum() / c["token_mask"].sum(), c["token_nll"])
    t = c["t"].double().expand(c["x0"].shape)
    given = Batch(c["x0"], c["token_mask"] > 0)
    golden.near(case, method.continuous_bound(given, c["xt"], t), c["nlls"].sum(-1))
    if "tc_true" in case:  # as ours tells it
        own = bd3lm(weights, block, None)
        told = own.input_times(c["xt"], t, None)
        assert told is not None
        golden.near(case, told if told.ndim == 1 else told[:, 0], c["sigma_used"])
        suggested = golden.index[case]["suggested_tolerance"]
        assert torch.allclose(own.continuous_bound(given, c["xt"], t).float(), c["nlls"].sum(-1), **suggested) == (
            block == L
        )


@torch.no_grad()
def test_likelihood_of_blocks_of_one(golden, weights):
    """Exact, by one draw of the bound or by the estimator; with a first token that is given."""
    case = "bd3lm__nll_bs1"
    c, method = golden[case], bd3lm(weights, 1)
    batch = Batch(c["x0"], c["token_mask"] > 0)
    assert method.exact
    golden.near(case, method.bound(batch, torch.Generator().manual_seed(0)), c["nlls"].sum(-1))
    golden.near(case, method.estimators()["forward"](batch), c["nlls"].sum(-1))
    golden.near(case, method.bound(batch).sum() / c["token_mask"].sum(), c["token_nll"])


@pytest.mark.parametrize("case", WHOLE)
@torch.no_grad()
def test_one_block_is_mdlm_or_sedd(golden, weights, case):
    """mdlm_loss_scale: alpha ends at 1e-3, which the weight 1/t does not show, but the sigma that SEDD is told does."""
    c, score = golden[case], "sedd" in case
    method = bd3lm(weights, L, None if score else 0.0, "score" if score else "mean", EPS if "true" in case else 0.0)
    _, each = _token(method, c)
    golden.near(case, each, c["loss_per_token"])
    golden.near(
        case, method.continuous_bound(Batch(c["x0"]), c["xt"], c["t"][:, 0].double()), c["loss_per_token"].sum(-1)
    )


@torch.no_grad()
def test_ar(golden, weights):
    """A text begins with a token of the data, which is not counted: that is `begin`, of each row its own."""
    case = "bd3lm__ar"
    c, network = golden[case], published_network(weights, 1, time=False)
    for x, log_p, nlls in zip(c["x0"], c["log_probs"], c["nlls"]):
        method = AR(network, MASK, (L - 1,), AR.Config(begin=int(x[0]))).eval()
        batch = Batch(x[None, 1:])
        assert torch.equal(method.inputs(batch), x[None, :-1])
        golden.near(case, method.next(network.features(method.inputs(batch)))[0].log(), log_p[:, :MASK])
        golden.near(case, method.bound(batch), nlls.sum(-1, keepdim=True))
    golden.near(case, c["nlls"].mean(), c["token_nll"])


# ---------------------------------------------------------------------------------- noise
def test_noise_schedules(golden):
    """Differences: move_chance of square and square_root is at least 1e-3; the weight of cosine."""
    c, case = golden["bd3lm__noise_schedules"], "bd3lm__noise_schedules"
    t = c["t"].double()
    for name, schedule in (("loglinear", Linear(0.0)), ("square", Polynomial(2.0)), ("square_root", Polynomial(0.5))):
        schedule = Polynomial(schedule.w, 0.0, 1.0) if isinstance(schedule, Polynomial) else schedule
        move = 1 - schedule.alpha(t)[:, 0]
        golden.near(case, move.clamp_min(0.0 if name == "loglinear" else EPS), c[f"{name}_move_chance"])
        free = move > EPS
        golden.near(case, schedule.weight(t)[free, 0], -c[f"{name}_loss_scaling"][free])
    cosine = CosinePower(1.0, 0.0, 1 - EPS)
    golden.near(case, 1 - cosine.alpha(t)[:, 0], c["cosine_move_chance"])
    weight, move = cosine.weight(t)[:, 0], 1 - cosine.alpha(t)[:, 0]
    theirs = lambda eps: weight * move / (move + eps)  # noqa: E731
    golden.near(case, theirs(EPS), -c["cosine_loss_scaling"])
    vanishes(lambda eps: theirs(eps) - weight)
    golden.near(case, 1 - Logarithmic(0.0).alpha(t)[:, 0], c["log_move_chance"])
    golden.near(case, Logarithmic(0.0).weight(t)[:, 0], -c["log_loss_scaling"])


@pytest.mark.parametrize("case", TIMES)
def test_times(golden, case):
    """With a uniform for each block they are spread over the batch row by row: `row_by_row`. Ours: one uniform for all."""
    c, u = golden[case], golden[case]["u"].double()
    (rows, blocks), size = u.shape, L // u.shape[1]
    batch = Batch(torch.zeros(rows, L, dtype=torch.long))
    for low, high in (map(float, key.split("_")[2:]) for key in c if key.startswith("t_anti0_")):
        plain, strata = (c[f"t_anti{kind}_{low}_{high}"] for kind in (0, 1))
        each = u.repeat_interleave(size, 1) if blocks > 1 else u
        golden.near(case, low + (high - low) * each, plain)
        method = BD3LM(None, MASK, (L,), BD3LM.Config(block=size, row_by_row=True)).train()
        drawn = method.draw_times(batch, RecordedUniforms(1 - u)).reshape(each.shape)
        golden.near(case, low + (high - low) * drawn, strata)
    ours = spread(torch.full((rows, blocks), size), torch.Generator().manual_seed(0))
    for row in ours:  # one in each part of (0, 1)
        assert sorted((row * blocks).long().tolist()) == list(range(blocks))
    theirs = ((c["t_anti1_0.001_1.0"].double() - 0.001) / 0.999)[:, ::size] if blocks > 1 else u
    assert blocks == 1 or (theirs[0] < 0.5).all()


def test_noise_and_its_redrawing(golden):
    """Clipped, blocks whose share of masks is outside are drawn again: `resample`. Their least end, 0.001, is 0 here."""
    c = golden["bd3lm__q_xt"]
    move, redrawn = c["p"].double(), 0
    for name in [name for name in c if name.startswith("xt_")]:
        block, low, high = int(name.split("_")[1][2:]), *map(float, name.split("_")[2:])
        draws, interval = c[name.replace("xt_", "u_")], torch.tensor([low if low > EPS else 0.0, high]).double()
        for resample in (True, False):
            config = BD3LM.Config(block=block, resample=resample)
            method = BD3LM(RecordedLogits(torch.zeros(*c["x0"].shape, K)), MASK, (L,), config)
            method.process.schedule = Linear(0.0)
            x_t = method.noised(Batch(c["x0"]), move, interval, RecordedUniforms(*draws))
            assert torch.equal(x_t, c[name]) == (resample or len(draws) == 1)
        redrawn += len(draws) > 1
    assert redrawn


def test_clip_search_grid(golden):
    theirs = golden.scalars("bd3lm__clip_search_grid")[str(list(WIDTHS))]
    assert len(theirs) == len(intervals())
    for (low, high), (a, b) in zip(intervals(), theirs):  # float32 there
        rounded(a, low or EPS, 1, torch.float32, 1.0)
        rounded(b, high, 2, torch.float32, 1.0)


# ---------------------------------------------------------------------------------- caches and trajectories
@pytest.mark.parametrize("case", CACHES)
@torch.no_grad()
def test_caches(golden, weights, case):
    c, block = golden[case], block_of(golden, case)
    method, cache = bd3lm(weights, block), None
    for i in range(0, L, block):
        here = slice(i, i + block)
        ours = posterior(method.predict(c["xt"][:, here], 0.5, context=cache)).log().clamp_min(-1e6)
        for name in ("log_p_kvcache", "log_p_nocache", "log_p_train"):
            golden.near(case, ours, c[name][:, here].clamp_min(-1e6))
        cache = method.extend(cache, c["x0"][:, here])


def test_nucleus(golden):
    """Theirs drops the token that crosses the threshold: `drop`. Ours keeps it unless it is said."""
    case = "bd3lm__nucleus"
    c = golden[case]
    for most in (float(key.removeprefix("nucleus_")) for key in c if key.startswith("nucleus_")):
        theirs, ours = c[f"nucleus_{most}"], guide.top_p(c["p"], most)
        golden.near(case, maths.normalise(guide.top_p(c["p"], most, drop=True)) if most < 1 else c["p"], theirs)
        assert not ((theirs > 0) & (ours == 0)).any()
        more = (ours > 0).sum(-1) - (theirs > 0).sum(-1)  # one more, unless the first alone crosses it
        assert ((more == 1) | ((theirs > 0).sum(-1) == 1) | (most == 1.0)).all()


def _steps(golden, weights, case: str):
    """Each recorded update: the block x (1, b) as it was, the method's prediction of it, what is after it, and its number."""
    c, scalars = golden[case], golden.scalars(case)
    block = scalars["block_size"]
    method, cache, read = bd3lm(weights, block), None, 0
    states = [row[row >= 0][None] for row in c["states"][:, 0]] + [c["final"]]
    for i, (x, after) in enumerate(itertools.pairwise(states)):
        start = x.shape[1] - block
        if start > read:
            cache, read = method.extend(cache, x[:, read:start]), start
        whole = method.hidden(x, None)[:, start:]
        here = method.hidden(x[:, start:], None, None, cache)
        golden.near(CACHES[0], here, whole)  # with and without a cache
        t = c["t"][i].double()
        yield (
            i,
            x[:, start:],
            method,
            method.predict(x[:, start:], t[:, None], context=cache),
            after[:, start : start + block],
        )


@pytest.mark.parametrize("case", HITTING)
@torch.no_grad()
def test_first_hitting_replayed(golden, weights, case):
    c, scalars = golden[case], golden.scalars(case)
    memory, before = torch.ones(1).double(), -1
    for i, x, method, pred, after in _steps(golden, weights, case):
        distribution = posterior(guide.truncated(pred, nucleus=scalars["nucleus_p"], drop=True)).double()
        masked = x == MASK
        golden.near(
            CACHES[0], distribution[masked], c["probs"][i][masked]
        )  # the tolerance of the same network's log-probabilities
        begins = int(masked.sum()) >= before  # in each block the time begins anew
        memory, before = torch.ones(1).double() if begins else memory, int(masked.sum())
        state = State(x, torch.zeros_like(masked), torch.zeros(1, dtype=torch.long), None, memory)
        where = (c["hit_index"][i] + 0.5) / before  # a uniform of the place among the masks
        u = 1 - c["hit_u"][i : i + 1]
        memory, chosen = FirstHitting()._next(method, state, RecordedUniforms(u, where))
        rounded(c["t"][i, 0] if c["t"][i].ndim else c["t"][i], memory[0], 4, torch.float32)
        x = torch.where(chosen, race(distribution, c["cat_u"][i]), x)
        assert torch.equal(x, after)


@pytest.mark.parametrize("case", ANCESTRAL)
@torch.no_grad()
def test_ancestral_replayed(golden, weights, case):
    """Difference (few steps): at t = 0 theirs divides by zero, and what is still masked becomes token 0."""
    c, scalars = golden[case], golden.scalars(case)
    broken = 0
    for i, x, _, pred, after in _steps(golden, weights, case):
        t, masked = float(c["t"][i]), x == MASK
        if t == 0.0:
            broken += 1
            assert not c["probs"][i].isfinite().all()
            assert (after[masked] == 0).all()
            continue
        s = torch.tensor(max(t - 1 / scalars["num_steps"], 0.0), dtype=torch.float64)
        distribution = kernel(pred, s.expand(x.shape))
        golden.near(
            CACHES[0], distribution[masked], c["probs"][i][masked]
        )  # the tolerance of the same network's log-probabilities
        assert torch.equal(torch.where(masked, race(distribution, c["cat_u"][i]), x), after)
    assert bool(broken) == ("few_steps" in case)
