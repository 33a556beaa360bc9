"""BD3-LM: blocks of any length by enumeration, against MDLM and autoregression; clipped times, their search, documents."""

import copy
import itertools
from typing import Any

import pytest
import torch

from testing.worlds import five_sigma, numbers, table
from zellige import Data, InputError, Net, Train, exact
from zellige.core import random
from zellige.core.batch import Batch
from zellige.core.curves import Linear
from zellige.core.prediction import kernel
from zellige.core.proposal import Proposal
from zellige.core.random import Counter, Middle, spread
from zellige.core.schedule import CLEAN
from zellige.methods import BD3LM, MDLM, SEDD, build
from zellige.methods.absorbing import places
from zellige.methods.bd3lm import intervals
from zellige.methods.diffusion import elbo
from zellige.models import model
from zellige.nn import Table
from zellige.training.train import train

close = torch.testing.assert_close
V, MASK, LENGTH = 2, 2, 4
X_0 = exact.states(V, LENGTH)
COUNTS = (
    (torch.arange(LENGTH).double() + 0.5) / LENGTH,
    torch.full((LENGTH,), 1 / LENGTH).double(),
)  # each number of masks


def blocks(block, length=LENGTH, seed=0, **choices) -> Any:
    """On a table of blocks, float64; sigma is told in units of 3."""
    states = V + (choices.get("process") != "uniform")
    network = Table(states, length, time=choices.get("time", False), block=block).double()
    with torch.no_grad():
        network.logits.copy_(3 * numbers(*network.logits.shape, seed=seed) - 1.5)
    return build("bd3lm", V, network, BD3LM.Config(block=block, **choices), length)


def small(block, cls: Any = BD3LM, time=False, length=8, **choices) -> Any:
    """On a small transformer with random weights."""
    torch.manual_seed(0)
    config = cls.Config(time=time, **choices) if cls is MDLM else cls.Config(block=block, time=time, **choices)
    method = build(cls, V, Net(layers=2, hidden=8, heads=2, length=length, conv=3, condition=8), config).double().eval()
    with torch.no_grad():
        for p in method.parameters():
            p.normal_(std=0.5)
    return method


# ---------------------------------------------------------------------------------- the bound
def by_hand(method, block: int, steps: int) -> torch.Tensor:
    """-log p(x) of the T-step model, block by block from a cache, each a chain of its own over its K^b states: (V^L,)."""
    K = method.process.K
    S = exact.states(K, block)
    times, total = method.grid(steps), torch.zeros(len(X_0), dtype=torch.float64)
    for row, x in enumerate(X_0):
        cache = None
        for i in range(0, LENGTH, block):
            p = method.process.prior.double()[S].prod(-1)
            for t, s in itertools.pairwise(times):
                rows = None if cache is None else cache.take(torch.zeros(len(S), dtype=torch.long))
                each = kernel(method.predict(S, t, context=rows), s.expand(S.shape))
                p = p @ each[:, torch.arange(block), S].prod(-1)
            total[row] -= p[exact.index(x[i : i + block], K)].log()
            cache = method.extend(cache, x[None, i : i + block])
    return total


@pytest.mark.parametrize("process", ["absorbing", "uniform"])
@pytest.mark.parametrize("prediction", ["mean", "score"])
@pytest.mark.parametrize("block", [1, 2, 4])
@torch.no_grad()
def test_the_likelihood_of_T_steps_is_the_product_of_those_of_the_blocks(block, prediction, process):
    method = blocks(block, prediction=prediction, process=process)
    for steps in (1, 3):
        close(-exact.log_likelihood(method, method.grid(steps)), by_hand(method, block, steps))


@pytest.mark.parametrize("block", [1, 2, 4])
@torch.no_grad()
def test_draws_by_counts_have_the_bound_as_their_mean(block):
    method, x_0 = blocks(block), X_0[[1, 6, 13]]
    terms = exact.continuous_terms(method, x_0)
    whole = terms["diffusion"] + terms["reconstruction"] + terms["prior"]
    close(exact.expectation(method.bound, x_0, COUNTS), whole, rtol=1e-6, atol=1e-6)
    terms = exact.continuous_terms(method, x_0, jumps=True)
    whole = terms["diffusion"] + terms["reconstruction"] + terms["prior"]
    close(exact.expectation(method.loss, x_0, COUNTS), whole, rtol=1e-6, atol=1e-6)


def test_times_are_spread_row_by_row_in_training_alone():
    batch = Batch(X_0[[1, 6, 13]])
    row_by_row, plain = (blocks(2, row_by_row=choice) for choice in (True, False))
    draw = lambda method: method.terms(batch, torch.Generator().manual_seed(0))["diffusion"]  # noqa: E731
    assert torch.equal(draw(row_by_row.eval()), draw(plain.eval()))
    assert not torch.equal(draw(row_by_row.train()), draw(plain.train()))


def test_the_numbers_of_masks_of_a_row_are_spread_over_its_blocks():
    method, batch = blocks(2), Batch(X_0)
    group, n, k, x_t = method.mask_exactly_k(batch, torch.Generator().manual_seed(0))
    assert group[0].tolist() == [0, 0, 1, 1]
    assert (n == 2).all()
    assert ((x_t == MASK).unflatten(1, (2, 2)).sum(-1) == k).all()
    assert (k.sum(-1) == 3).all()  # one block with one mask, one with two: never twice the same
    u = spread(torch.tensor([[4, 4, 4, 0], [4, 4, 4, 4]]), torch.Generator().manual_seed(0))
    for row, number in zip(u, (3, 4)):
        assert sorted((row[:number] * number).long().tolist()) == list(range(number))
    order, group = torch.tensor([[0.3, 0.1, 0.9, 0.2, 0.7]]), torch.tensor([[0, 0, 1, 1, 1]])
    assert places(order, group).tolist() == [[1, 0, 2, 0, 1]]


# ---------------------------------------------------------------------------------- the two ends
@pytest.mark.parametrize("time", [False, True])
def test_one_block_is_mdlm(time):
    ours, theirs, batch = small(8, time=time), small(8, MDLM, time), Batch(exact.states(V, 8)[::17])
    ours.load_state_dict(theirs.state_dict())
    for of in ("loss", "bound"):
        losses = [getattr(m, of)(batch, torch.Generator().manual_seed(3)) for m in (ours, theirs)]
        close(*losses)
        for a, b in zip(*(torch.autograd.grad(v.sum(), list(m.parameters())) for v, m in zip(losses, (ours, theirs)))):
            close(a, b)
    assert ours.estimators().keys() == theirs.estimators().keys()


def test_one_block_with_a_score_is_sedd():
    torch.manual_seed(0)
    network = table(V + 1, LENGTH, time=True)
    ours = build("bd3lm", V, network, BD3LM.Config(block=LENGTH, prediction="score", time=True), LENGTH)
    theirs = SEDD(network, V, (LENGTH,))
    for of in ("loss", "bound"):
        a, b = (getattr(m, of)(Batch(X_0), torch.Generator().manual_seed(3)) for m in (ours, theirs))
        close(a, b, rtol=1e-12, atol=1e-12)
    assert not ours.loss_is_bound


@torch.no_grad()
def test_blocks_of_one_are_autoregression():
    """In every draw, with any schedule; drawn by times the same in the mean, where alpha runs from 1 to 0."""
    method, nll, cache = blocks(1), torch.zeros(len(X_0), dtype=torch.float64), None
    for i in range(LENGTH):
        x = X_0[:, i : i + 1]
        distribution = method.predict(torch.full_like(x, MASK), 0.5, context=cache).mu[:, 0]  # pyright: ignore
        nll -= distribution.gather(-1, x)[:, 0].log()
        cache = method.extend(cache, x)
    assert method.exact
    for schedule in ("loglinear", "cosine", "geometric"):
        close(blocks(1, schedule=schedule).bound(Batch(X_0)), nll)
    for estimator in method.estimators().values():
        close(estimator(Batch(X_0)), nll)
    close((-nll).exp().sum(), torch.ones((), dtype=torch.float64))
    method.process.schedule = Linear(0.0)
    ends, nodes = torch.tensor([0.0, 1.0]), exact.parts(LENGTH, 40)
    drawn = exact.expectation(lambda batch, g: method.clipped(batch, ends, g), X_0[:4], nodes)
    close(drawn, nll[:4], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_times_cost_the_variance_that_counts_do_not():
    """What the paper observes at L' = 1: the same expectation, and a variance that autoregression has not."""
    method, ends = blocks(1), torch.tensor([0.0, 1.0])
    method.process.schedule = Linear(0.0)
    draw = lambda f: torch.stack([f(Batch(X_0[5:6]), torch.Generator().manual_seed(s))[0] for s in range(300)])  # noqa: E731
    counts, times = draw(method.loss), draw(lambda b, g: method.clipped(b, ends, g))
    assert float(counts.std()) < 1e-12
    assert float(times.std()) > 0.3
    assert five_sigma(times, counts[0])


# ---------------------------------------------------------------------------------- orders
@pytest.mark.parametrize("block", [2, 4])
@torch.no_grad()
def test_orders_are_distributions(block):
    method = blocks(block)
    for order in itertools.permutations(range(LENGTH)):
        nll = method.in_order(Batch(X_0), torch.tensor(order))
        close((-nll).exp().sum(), torch.ones((), dtype=torch.float64))
    left = method.estimators()["forward"](Batch(X_0))
    cache = method.extend(None, X_0[:, :block]) if block < LENGTH else None
    last = X_0[:, -block:].masked_fill(torch.arange(block) >= block - 1, MASK)  # the last token of the last block
    distribution = method.predict(last, 0.5, context=cache).mu[:, -1]  # pyright: ignore
    given = left + distribution.gather(-1, X_0[:, -1:])[:, 0].log()
    close((-given).exp().unflatten(0, (-1, V))[:, 0].sum(), torch.ones((), dtype=torch.float64))


# ---------------------------------------------------------------------------------- times, and what is told of them
def test_each_block_is_told_its_own_time_and_clean_tokens_that_they_are_clean():
    method, x, seen = small(2, time=True), exact.states(V, 8)[:3], {}
    inside = method.network.features
    method.network.features = lambda x, time, **more: seen.update(time=time, **more) or inside(x, time, **more)
    t = method.draw_times(Batch(x), torch.Generator().manual_seed(0))
    assert t.shape == (3, 8)
    assert torch.equal(t[:, ::2], t[:, 1::2])
    method.continuous_bound(Batch(x), torch.full_like(x, MASK), t)
    close(seen["time"], method.process.schedule.sigma(t)[..., 0].float())
    close(seen["clean_time"], torch.zeros(3))
    fewer = torch.where(torch.arange(8) % 2 == 0, CLEAN, t)  # given tokens
    method.predict(x, fewer, context=x)
    close(seen["time"], method.process.schedule.sigma(t)[..., 0].float())


@torch.no_grad()
def test_documents_are_cut_into_blocks_by_themselves():
    """Two documents in a row, against each alone: the same cost at the same noise."""
    for time in (False, True):
        method = small(2, time=time)
        x, segments = exact.states(V, 8)[[77, 200]], torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]]).expand(2, 8)
        group, n = method.groups(Batch(x, None, segments))
        assert group[0].tolist() == [0, 0, 1, 2, 2, 3, 3, 4]
        assert n[0].tolist() == [2, 1, 2, 2, 1]
        t = torch.tensor([0.3, 0.9, 0.5, 0.7, 0.2], dtype=torch.float64)[group]
        x_t = torch.where(torch.arange(8) % 3 == 1, MASK, x)
        whole = method.continuous_bound(Batch(x, None, segments), x_t, t)
        parts = [method.continuous_bound(Batch(x[:, s]), x_t[:, s], t[:, s]) for s in (slice(0, 3), slice(3, 8))]
        close(whole, parts[0] + parts[1])


@torch.no_grad()
def test_padding_changes_nothing_but_the_draws():
    method = blocks(2)
    method.shape = (LENGTH,)
    x, mask = X_0[[3, 9]], torch.tensor([[True, True, False, False]] * 2)
    rows = [exact.expectation(method.bound, x[:, :2], COUNTS)]
    rows.append(
        exact.expectation(lambda b, g: method.bound(Batch(b.tokens, mask[:1].expand(b.tokens.shape)), g), x, COUNTS)
    )
    close(*rows)


@torch.no_grad()
def test_uniform_noise_in_blocks():
    """The mean of the draws of its bound is its integral, whether times are drawn evenly or by importance."""
    method, x_0, n = blocks(2, process="uniform"), X_0[[1, 6, 13]], 1000
    terms = exact.continuous_terms(method, x_0)
    whole = terms["diffusion"] + terms["reconstruction"] + terms["prior"]
    for proposal in (None, Proposal((0.0, 0.25, 1.0), (0.7, 0.3))):
        drawn = elbo(method, Batch(x_0.repeat(n, 1)), torch.Generator().manual_seed(0), proposal=proposal)
        draws = torch.stack(list(drawn.values())).sum(0).reshape(n, 3)
        assert ((draws.mean(0) - whole).abs() < 5 * draws.std(0) / n**0.5).all()  # wrong once in 10^5 runs
    assert blocks(2, process="uniform", prediction="score").process.mask is None
    with pytest.raises(InputError, match="`resample` counts masks"):
        blocks(2, process="uniform", resample=True)


# ---------------------------------------------------------------------------------- several sizes of block
def test_a_batch_of_mixed_sizes_has_one_size_on_all_ranks():
    """Half of a batch on each of two ranks, or its parts one after another: the same size, and in all of them every size."""
    method, seen = small(2, blocks=(1, 2, 4)), set()
    for seed in range(12):
        ranks = [method.for_step(random.Shard(torch.Generator().manual_seed(seed), rank, 2)).block for rank in (0, 1)]
        parts = [method.for_step(random.Counter(seed, part=part, parts=2)).block for part in (0, 1)]
        assert ranks[0] == ranks[1] == method.for_step(torch.Generator().manual_seed(seed)).block
        assert parts[0] == parts[1]
        seen |= {*ranks, *parts}
    assert seen == {1, 2, 4}
    assert [method.of_block(block).exact for block in (1, 2, 4)] == [True, False, False]
    assert not method.loss_is_bound


def test_a_model_is_read_in_another_size_of_block(tmp_path):
    """Trained with 1, 2 and 4, in each of these it is what `of_block` is; copies and processes draw sizes of their own."""
    data = Data("text", str(tmp_path / "a.txt"), tokenizer="characters")
    (tmp_path / "a.txt").write_text("abba baab " * 80)
    net = Net(layers=1, hidden=8, heads=2, length=8)
    settings = Train(steps=2, batch=2, validate_every=0, validate_rows=2, samples=0, device="cpu")
    run = train(
        BD3LM, data=data, net=net, train=settings, run=tmp_path / "run", options=BD3LM.Config(block=4, blocks=(1, 2, 4))
    )
    whole, x = model.load(run.folder), torch.arange(8)[None] % 3
    for block in (1, 2, 4):
        read = model.load(run.folder, block=block).method
        assert read.block == read.config.block == block
        bounds = [m.bound(Batch(x), torch.Generator().manual_seed(1)) for m in (read, whole.method.of_block(block))]
        close(*bounds, rtol=0, atol=0)
    with pytest.raises(InputError, match="was not trained with blocks of 8; it has 1, 2, 4"):
        model.load(run.folder, block=8)
    copied = copy.deepcopy(whole.method)
    copied.for_step().network.head.weight.data.zero_()
    assert copied.network.head.weight.abs().sum() == 0 < whole.method.network.head.weight.abs().sum()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block": 16, "blocks": (1, 4)}, "`block` 16 is none of `blocks` 1 4; give one of them"),
        ({"block": 4, "blocks": (4, 8), "search": True}, "`search` looks for the interval of one size of block"),
        ({"block": 4, "blocks": (4, 0)}, "`blocks` has 0; a size of block is 1 or more"),
    ],
)
def test_wrong_sizes_of_block(options, message):
    with pytest.raises(InputError, match=message):
        BD3LM.Config(**options)


def test_a_length_that_is_no_multiple_of_one_of_the_sizes():
    with pytest.raises(InputError, match="length 8 is not a multiple of block 3; nearest: 6 or 9"):
        small(2, blocks=(2, 3))


# ---------------------------------------------------------------------------------- clipping
def test_clipped_times_and_their_bound():
    method = blocks(2, clip=(0.3, 0.8))
    assert not method.loss_is_bound
    assert "interval" not in method.state_dict()
    seen = []
    cost, method.continuous_bound = method.continuous_bound, lambda batch, x_t, t: seen.append(t) or cost(batch, x_t, t)
    method.loss(Batch(X_0), torch.Generator().manual_seed(0))
    assert 0.3 < float(seen[0].min()) < 0.4 < 0.7 < float(seen[0].max()) <= 0.8
    plain = blocks(2)
    g = lambda: torch.Generator().manual_seed(1)  # noqa: E731
    assert torch.equal(method.bound(Batch(X_0), g()), plain.bound(Batch(X_0), g()))


def test_an_interval_takes_the_place_of_the_middle():
    times = {}
    for clip in ((0.0, 1.0), (0.3, 0.8)):
        for row_by_row in (False, True):
            method = blocks(2, clip=clip, row_by_row=row_by_row).train()
            even, middle = (method.draw_times(Batch(X_0), kind(3, 1)) for kind in (Counter, Middle))
            times[clip, row_by_row] = torch.equal(even, middle)
    assert times == {
        ((0.0, 1.0), False): False,
        ((0.0, 1.0), True): False,
        ((0.3, 0.8), False): True,
        ((0.3, 0.8), True): True,
    }


@torch.no_grad()
def test_the_clipped_loss_is_the_mean_over_its_interval():
    method, x_0 = blocks(2), X_0[[2, 11]]
    low, high = 0.3, 0.8
    u, weight = exact.quadrature(30)
    integrand = exact.expected(method, x_0, low + (high - low) * u, None)
    ends = torch.tensor([low, high], dtype=torch.float64)
    ours = exact.expectation(lambda batch, g: method.clipped(batch, ends, g), x_0, exact.parts(2, 30))
    close(ours, weight @ integrand, rtol=1e-6, atol=1e-6)


def test_intervals():
    found = intervals()
    assert found[0] == (0.0, 1.0)
    assert len(found) == 36
    for low, high in found:
        assert 0 <= low < high <= 1 + 1e-9


@torch.no_grad()
def test_the_search_takes_the_interval_whose_loss_varies_least():
    method, batch = blocks(2, search=True), Batch(X_0.repeat(4, 1))
    assert method.adapts == 64
    said = method.adapt(batch, torch.Generator().manual_seed(0))
    chosen = method.interval.tolist()
    assert "variance" in said
    seed, each = int(random.uniform((1,), torch.Generator().manual_seed(0)) * 2**53), {}
    for ends in intervals():
        drawn = method.clipped(batch, torch.tensor(ends).double(), torch.Generator().manual_seed(seed))
        each[ends] = float((drawn / LENGTH).var())
    assert min(each, key=each.__getitem__) == pytest.approx(tuple(chosen))
    assert each[tuple(chosen)] < each[0.0, 1.0] / 2  # U[0, 1] has the weight 1/t
    again = blocks(2, search=True)
    again.load_state_dict(method.state_dict())
    assert again.interval.tolist() == chosen
    again.adapt(batch, torch.Generator().manual_seed(0))
    assert again.interval.tolist() == chosen


# ---------------------------------------------------------------------------------- training
NET = Net(layers=1, hidden=16, heads=2, length=8)
DATA = Data.of(torch.randint(0, 5, (60, 8), generator=torch.Generator().manual_seed(5)), vocabulary=5)


def trained(folder, method="bd3lm", net=NET, resume=False, options=None, **more):
    usual = {
        "steps": 6, "batch": 4, "lr": 1e-2, "warmup": 0, "decay": "constant", "validate_every": 3, "validate_rows": 4,
        "samples": 0, "tensorboard": False, "device": "cpu", "seed": 1, "ema": 0.9,
    }  # fmt: skip
    return train(method, data=DATA, net=net, train=Train(**(usual | more)), run=folder, resume=resume, options=options)


def state(folder) -> dict[str, torch.Tensor]:
    return model.load(folder, checkpoint="last").method.state_dict()


def test_a_search_that_is_stopped_and_resumed_is_the_one_that_was_not(tmp_path):
    options = BD3LM.Config(block=2, search=True)
    trained(tmp_path / "whole", options=options)
    trained(tmp_path / "parts", options=options, steps=3)
    early = state(tmp_path / "parts")
    trained(tmp_path / "parts", resume=True, options=options)
    whole, parts = state(tmp_path / "whole"), state(tmp_path / "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert whole["interval"].tolist() != [0.0, 1.0] != early["interval"].tolist()
    assert (tmp_path / "whole" / "log.txt").read_text().count("t in [") == 2
    plain = trained(tmp_path / "plain", options=BD3LM.Config(block=2))
    assert plain.validation is not None
    assert plain.validation.kind == "bound"


def test_fine_tuning_from_another_block_length(tmp_path):
    """The keys are the same for all of them, and MDLM's; the tokens and sizes must be."""
    trained(tmp_path / "mdlm", "mdlm", steps=2)
    before = state(tmp_path / "mdlm")
    tiny = {"steps": 1, "lr": 1e-9, "ema": 0.0}
    trained(tmp_path / "blocks", options=BD3LM.Config(block=2), start=str(tmp_path / "mdlm"), **tiny)
    trained(tmp_path / "others", options=BD3LM.Config(block=4, search=True), start=str(tmp_path / "blocks"), **tiny)
    for name in ("blocks", "others"):
        after = state(tmp_path / name)
        assert after.keys() - {"interval"} == before.keys()
        for key in before:
            close(after[key], before[key], rtol=0, atol=1e-6)
    with pytest.raises(InputError, match=r"`net\.hidden` is 32, and '.*mdlm' has 16; leave it out"):
        trained(tmp_path / "new", net=Net(layers=1, hidden=32, heads=2, length=8), start=str(tmp_path / "mdlm"))
    with pytest.raises(InputError, match="no run or model at"):
        trained(tmp_path / "new", start=str(tmp_path / "nothing"))
    assert not (tmp_path / "new").exists()
