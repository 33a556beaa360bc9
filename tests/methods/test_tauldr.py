"""tauLDR: what `verify` does not see. Its draws after a jump, given positions, memory, defaults, what is refused."""

import dataclasses
import math
import re

import pytest
import torch

from testing.worlds import L, LogitsOf, V, numbers, table
from zellige import exact
from zellige.base.errors import InputError
from zellige.core import random
from zellige.core.batch import Batch
from zellige.core.schedule import CLEAN
from zellige.methods import TauLDR, build, tauldr_rows
from zellige.nn import Net, chunks
from zellige.samplers import Ancestral, TauLeaping

D = torch.float64
SIZES = Net(layers=1, hidden=16, heads=2, length=6)
close = torch.testing.assert_close
PROCESSES, OBJECTIVES = TauLDR.choices["process"], TauLDR.choices["objective"]
each_process = pytest.mark.parametrize("process", PROCESSES)
each_objective = pytest.mark.parametrize("objective", OBJECTIVES)


def small(process, length=L, **more) -> TauLDR:
    config = TauLDR.Config(process, **more)
    states, outputs = TauLDR.states(V, config), TauLDR.outputs(V, config)
    return TauLDR(table(states, length, time=True, outputs=outputs), V, (length,), config)


# ---------------------------------------------------------------------------------- the logistic head
@pytest.mark.parametrize(
    "process", ["gaussian", *(pytest.param(p, marks=pytest.mark.long) for p in ("uniform", "birth-death"))]
)
@pytest.mark.parametrize("prediction", [pytest.param("mean", marks=pytest.mark.long), "leave-one-out"])
def test_a_logistic_head_is_the_logits_that_it_stands_for(process, prediction):
    """On images of 2 x 2 places and 3 levels: losses, gradients, bound, and the distribution of samples, all 81 images
    enumerated."""
    of = {"prediction": prediction, "auxiliary": 0.3}
    method, other = small(process, 4, head="logistic", **of), small(process, 4, **of)
    assert method.outputs(V, method.config) == 2

    other.network = LogitsOf(method)
    parameters, batch = list(method.parameters()), Batch(torch.tensor([[0, 2, 1, 1], [2, 2, 0, 1]]).repeat(10, 1))
    for objective in (*OBJECTIVES, "bound"):
        values = []
        for m in (method, other):
            m.config = dataclasses.replace(m.config, objective=objective)
            f = m.bound if objective == "bound" else m.loss
            values.append(f(batch, torch.Generator().manual_seed(3)))
        close(*values)
        close(*(torch.autograd.grad(v.sum(), parameters)[0] for v in values))
    method.ordered = other.ordered = True
    with torch.no_grad():
        for sampler in (Ancestral(), TauLeaping(argmax="last")):
            a, b = (exact.sample_distribution(sampler, m, 2) for m in (method, other))
            close(a, b)
        times, X = method.grid(2), exact.states(V, 4)
        log_p = exact.log_likelihood(method, times)
        close(exact.sample_distribution(Ancestral(), method, 2), log_p.exp())
        assert (exact.step_bound(method, X, times) > -log_p).all()


def test_a_logistic_distribution_far_from_x_t_costs_no_more_than_it_is():
    """At the smallest time of the paper: of 64 levels every bound is finite, and moderate where x_t is near."""
    config = TauLDR.Config("gaussian", head="logistic", base=3.0, growth=100.0, min_time=0.01)
    K, method = 64, TauLDR(None, 64, (1,), config)
    x_t, t = torch.arange(K).repeat(K), torch.zeros(K * K, dtype=D)
    x_0, outputs = torch.arange(K).repeat_interleave(K), torch.tensor([[0.01, -1.0]]).expand(K * K, 2)
    near = (x_0 - x_t).abs() < 6
    for dtype in (torch.float32, D):
        value = method.cost(outputs[near].to(dtype), x_0[near], x_t[near], t[near])
        assert value.isfinite().all()
        assert float(value.max()) < 1e4
    assert float(-method.read(outputs.double(), x_t, t).mu.amin().log()) < 700


# ---------------------------------------------------------------------------------- one jump of the noise
def jump(method, batch, x, t, generator=None):
    return tauldr_rows.jump(method.process, x, t, batch.counted, generator)


@each_process
@pytest.mark.parametrize(("given", "time"), [((), 0.6), ((1,), 0.02)])
def test_the_weight_is_the_ratio_of_two_distributions(process, given, time):
    """The distribution of x~ given x_0, from every outcome of the code's own draws, against q_t."""
    method = small(process, 3)
    K, P = method.process.K, method.process
    x_0 = torch.tensor([[2, 0, 1]])
    mask = torch.ones(1, 3, dtype=torch.bool).index_fill(1, torch.tensor(given, dtype=torch.long), False)
    batch, t = Batch(x_0, mask if given else None), torch.tensor([time], dtype=D)
    psi = torch.zeros(K**3, dtype=D)

    def draw(script):
        return jump(method, batch, method.corrupt(batch, t[:, None], script), t, script)

    for x, p in exact.scripts(draw, 1):
        psi[exact.index(x, K)] += p
    close(psi.sum(), torch.ones((), dtype=D))
    X = exact.states(K, 3)
    times = torch.where(mask, t[:, None], CLEAN).expand(X.shape)
    q = P.likelihood(X, CLEAN, times).gather(-1, x_0.expand(X.shape)[..., None])[..., 0].prod(-1)
    reached = psi > 0
    every = Batch(x_0.expand(X.shape), mask.expand(X.shape) if given else None)
    w = tauldr_rows.weight(tauldr_rows.after(P, every.tokens, X, t.expand(len(X)), every.counted))
    close(w[reached], (q / psi)[reached], rtol=1e-9, atol=0)
    assert (reached == (q > 0) if P.mask is None else reached <= (q > 0)).all()  # a jump leaves a mask behind


@each_process
def test_a_jump_moves_one_position_by_the_noise(process):
    method = small(process, 5)
    x_t, t = (V * numbers(2000, 5)).long(), numbers(2000, seed=1)
    mask = torch.ones_like(x_t, dtype=torch.bool)
    mask[:, 3] = False
    jumped = jump(method, Batch(x_t, mask), x_t, t, torch.Generator().manual_seed(0))
    moved = jumped != x_t
    assert (moved.sum(-1) == 1).all()
    assert not moved[:, 3].any()
    if process == "birth-death":
        assert ((jumped - x_t).abs().max(-1).values == 1).all()


def test_where_nothing_can_jump():
    method = small("absorbing", 3)
    x = torch.full((2, 3), V)
    batch, t = Batch(torch.zeros_like(x)), torch.tensor([0.3, 0.9], dtype=D)
    assert torch.equal(jump(method, batch, x, t), x)
    with torch.no_grad():
        given = Batch(torch.ones(2, 3, dtype=torch.long), torch.zeros(2, 3, dtype=torch.bool))
        for objective in OBJECTIVES:
            close(small("uniform", 3, objective=objective).loss(given), torch.zeros(2, dtype=D))


# ---------------------------------------------------------------------------------- the loss
@each_process
@each_objective
def test_given_positions_are_neither_noised_nor_counted(process, objective):
    """E of the loss, by enumeration, is the same for each objective, and that of the other positions.

    As published the first sum stands at x~: that much more.
    """
    x_0, mask = torch.tensor([[1, 2], [0, 2]]), torch.tensor([True, False])
    masked = lambda f: lambda b, g: f(Batch(b.tokens, mask.expand(b.tokens.shape)), g)  # noqa: E731
    one, generic = (small(process, objective=o, auxiliary=0.0) for o in (objective, "generic"))
    nodes = exact.parts(1, 8)  # at each time by itself: no integral is near

    def moved(batch, generator):
        t = 1 - random.stratified(len(batch), generator)
        x = generic.corrupt(batch, t[:, None], generator)
        ends = jump(generic, batch, x, t, generator), x
        after, before = (generic.weighted(tauldr_rows.leaving, batch, y, t, torch.ones_like(t), 0.0) for y in ends)
        return after - before

    value, expected = (exact.expectation(masked(method.loss), x_0, nodes) for method in (one, generic))
    more = exact.expectation(masked(moved), x_0, nodes) if objective == "one-pass-biased" else 0.0
    close(value, expected + more, rtol=1e-7, atol=1e-7)
    assert (expected < exact.expectation(generic.loss, x_0, nodes)).all()


@each_process
@each_objective
def test_the_cross_entropy_beside_it(process, objective):
    x_0, generator = (V * numbers(64, L)).long(), torch.Generator()
    plain, both = (
        small(process, objective=objective, auxiliary=a).loss(Batch(x_0), generator.manual_seed(0)) for a in (0.0, 0.3)
    )
    more = (both - plain) / 0.3
    assert (more >= -1e-9).all()
    assert 0.1 < float(more.mean().detach()) < 2 * math.log(V)


@each_process
@torch.no_grad()
def test_the_cross_entropy_at_all_positions(process):
    """As the published code has it: where noise absorbs, at tokens that are still there too; elsewhere it is the same."""
    some, every = (small(process, auxiliary_at=at) for at in ("masks", "all"))
    K, mask = some.process.K, torch.tensor([[True, True], [True, False]]).repeat(50, 1)
    x_0, t = (V * numbers(100, L)).long(), 0.05 + 0.9 * numbers(100)
    batch = Batch(x_0, mask)
    x = some.corrupt(batch, t[:, None], torch.Generator().manual_seed(0))
    logits = some.network.features(x, (1000 * t).float())[..., :V]
    ce = -logits.log_softmax(-1).gather(-1, x_0[..., None])[..., 0]
    left = mask & ~some.process.movable(x)
    ours, less = (m.weighted(tauldr_rows.both, batch, x, t, torch.full_like(t, 0.7), 0.3) for m in (every, some))
    close(ours - less, 0.3 * (ce * left).sum(-1) / mask.sum(-1), rtol=0, atol=1e-6)
    assert left.any() == (K > V)
    both = [m.loss(batch, torch.Generator().manual_seed(1)) for m in (some, every)]
    assert torch.equal(*both) == (K == V)


@each_objective
def test_network_calls(objective):
    method = build("tauldr", V, SIZES, TauLDR.Config(objective=objective))
    calls, features = [], method.network.features
    method.network.features = lambda x, time: calls.append(time) or features(x, time)
    method.loss(Batch((V * numbers(4, 6)).long()), torch.Generator().manual_seed(0))
    assert len(calls) == 1 + (objective == "two-pass")
    assert all((time > 1).any() and (time <= 1000).all() and len(time.unique()) == 4 for time in calls)


@each_process
@each_objective
def test_in_chunks_it_is_the_same(process, objective, monkeypatch):
    torch.manual_seed(0)
    method = build("tauldr", V, SIZES, TauLDR.Config(process, objective=objective), ordered=True).double()
    torch.nn.init.normal_(method.network.head.weight)
    batch = Batch((V * numbers(4, 6)).long(), numbers(4, 6, seed=3) > 0.2)

    def value():
        method.zero_grad()
        loss = method.loss(batch, torch.Generator().manual_seed(1))
        loss.mean().backward()
        return loss.detach(), method.network.head.weight.grad.clone()

    whole = value()
    monkeypatch.setattr(chunks, "LARGE", 1)
    monkeypatch.setattr(chunks, "CHUNK", 5)
    monkeypatch.setattr("zellige.methods.tauldr_rows.PART", 7)
    for a, b in zip(value(), whole):
        close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("process", ["uniform", "gaussian"])
def test_no_matrix_for_each_position(process):
    """64 levels, 4 x 2,048 positions: K x K for each would take 268 MB."""
    K, length = 64, 2048
    config = TauLDR.Config(process, objective="two-pass")
    method = TauLDR(None, K, (length,), config)
    logits = torch.randn(4, length, K, generator=torch.Generator().manual_seed(0)).requires_grad_()
    x_0 = torch.randint(K, (4, length), generator=torch.Generator().manual_seed(0))

    class Cheap(torch.nn.Module):
        def features(self, x, time=None):
            return logits

        def head(self, h):
            return h

    method.network = Cheap()
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        method.loss(Batch(x_0), torch.Generator().manual_seed(0)).mean().backward()
    assert max(e.cpu_memory_usage for e in seen.events()) < 2**26  # one (B, L, K) in float64 is 2**22


# ---------------------------------------------------------------------------------- the ends of time
@pytest.mark.parametrize("process", [p for p in PROCESSES if p != "absorbing"])
@torch.no_grad()
def test_the_bound_of_a_mean_needs_a_last_jump(process):
    """The integral down to a time t_0 grows with log(1 / t_0) for a network that is not exact; expected failure of t_0 = 0."""
    at = []
    for begin in (1e-2, 1e-4, 1e-6):
        method = small(process, min_time=begin)
        at.append(exact.continuous_terms(method, torch.tensor([[0, 2]]))["diffusion"])
    more = [float(at[1] - at[0]), float(at[2] - at[1])]
    assert more[1] > 1.0
    assert more[1] == pytest.approx(more[0], rel=0.2)


# ---------------------------------------------------------------------------------- choices
@each_process
@pytest.mark.parametrize("K", [3, 8, 129])
def test_by_default_the_slowest_mode_is_left_to_seven(process, K):
    P = TauLDR(None, K, (L,), TauLDR.Config(process)).process
    Q = P.matrix(CLEAN, torch.tensor([0.9, 1.0], dtype=D)) - P.prior
    left, sigma = Q.norm(dim=(1, 2)).log(), P.schedule.sigma(torch.tensor([0.9, 1.0], dtype=D))[:, 0]
    assert float(sigma[1]) == pytest.approx(7.0)
    assert float((left[0] - left[1]) / (sigma[1] - sigma[0])) == pytest.approx(1.0, rel=0.15)


def test_the_papers_numbers():
    """Of music: rate 0.03 between any two of 129 states."""
    P = TauLDR(None, 129, (256,), TauLDR.Config(base=0.03)).process
    R = P.rate(torch.tensor(0.5, dtype=D)) / (1 - 1e-3)  # t = 0 lies at min_time
    close(R[0, 1:], torch.full((128,), 0.03, dtype=D), rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"process": "gausian"}, "unknown process 'gausian'; did you mean 'gaussian'?"),
        ({"objective": "onepass"}, "unknown objective 'onepass'; did you mean 'one-pass'?"),
        ({"base": -1.0}, "`base` is -1; it must be above 0"),
        ({"process": "gaussian", "growth": 1.0}, "`growth` is 1; it must be above 1"),
        ({"growth": 10.0}, "`growth` needs `process` gaussian or birth-death; drop it"),
        ({"rate_sigma": 2.0, "process": "birth-death"}, "`rate_sigma` needs `process` gaussian; drop it"),
        ({"process": "gaussian", "rate_sigma": 0.0}, "`rate_sigma` is 0; it must be above 0"),
        ({"process": "gaussian", "target_sigma": -3.0}, "`target_sigma` is -3; it must be above 0"),
        ({"min_time": 1.0}, "`min_time` is 1; it must be 0 or more, and below 1"),
        ({"auxiliary": -0.1}, "`auxiliary` is -0.1; it must be 0 or more"),
        (
            {"auxiliary_pass": "second"},
            "`auxiliary_pass` second needs `objective` two-pass; one-pass evaluates the network once",
        ),
    ],
)
def test_wrong_choices(config, says):
    with pytest.raises(InputError, match=re.escape(says)):
        TauLDR(None, V, (L,), TauLDR.Config(**config))


@pytest.mark.parametrize("process", ["gaussian", "birth-death"])
def test_levels_only(process):
    with pytest.raises(InputError, match=f"`process` {process} needs ordered tokens"):
        build("tauldr", V, SIZES, TauLDR.Config(process))
    with pytest.raises(InputError, match="a matrix of 50,000 x 50,000"):
        build("tauldr", 50_000, SIZES, TauLDR.Config(process), ordered=True)


def test_draws_depend_on_their_row_alone():
    method = small("gaussian", 4, objective="one-pass")
    x = (V * numbers(3, 4)).long()
    t = torch.full((3,), 0.4, dtype=D)
    rows = lambda: [torch.Generator().manual_seed(i) for i in range(3)]  # noqa: E731
    whole = jump(method, Batch(x), x, t, rows())
    one = jump(method, Batch(x[2:]), x[2:], t[2:], rows()[2:])
    assert torch.equal(whole[2:], one)
