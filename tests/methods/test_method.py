"""Methods: what they draw has, enumerated, the exact bound as its expectation; padding, ranks and folding change nothing."""

import itertools

import pytest
import torch

from testing import small
from testing.worlds import CTMC, Given, L, V, data_distribution, five_sigma, generator_matrix, numbers, orders, table
from zellige import exact, methods
from zellige.base.errors import InputError
from zellige.core import random
from zellige.core.batch import Batch
from zellige.core.curves import Cosine, Linear, Polynomial
from zellige.core.prediction import LeaveOneOut, Mean, posterior, restricted
from zellige.core.process import absorbing, uniform
from zellige.core.schedule import CLEAN, PRIOR
from zellige.methods import BD3LM, MD4, MDLM, METHODS
from zellige.methods.bd3lm import BD3LMScore
from zellige.methods.diffusion import Diffusion, between
from zellige.nn import Net

D = torch.float64
close = torch.testing.assert_close
X_0 = exact.states(V, L)
TERMS = ("diffusion", "reconstruction", "prior")


def free(schedule="loglinear", length=L, steps=0, seed=0):
    """Time-free: the count-based draws."""
    return MDLM(table(V + 1, length, seed=seed), V, (length,), MDLM.Config(schedule, diffusion_steps=steps))


def free_md4(schedule="linear", eps=0.05, length=L):
    """Time-free with both ends away from 0 and 1: a reconstruction term too."""
    return MD4(table(V + 1, length), V, (length,), MD4.Config(schedule, eps=eps, time=False))


def timed(schedule="linear", steps=0):
    return MD4(table(V + 1, L, time=True), V, (L,), MD4.Config(schedule, eps=0.05, diffusion_steps=steps))


def total(terms):
    return torch.stack([terms[k] for k in TERMS]).sum(0)


# ---------------------------------------------------------------------------------- exactly k masks
def counted(method, batch, of):
    """E over the L! orders and the L counts of what `of` draws for each row."""
    length, rows = batch.tokens.shape[1], []
    for b in range(len(batch)):
        one = Batch(batch.tokens[b : b + 1], None if batch.mask is None else batch.mask[b : b + 1])
        n = length if batch.mask is None else int(batch.mask[b].sum())
        counts = [(k + 0.5) / max(n, 1) for k in range(max(n, 1))]
        draws = [of(one, Given(order, u)) for order, u in itertools.product(orders(length), counts)]
        rows.append({k: torch.stack([d[k] for d in draws]).mean(0)[0] for k in draws[0]})
    return {k: torch.stack([r[k] for r in rows]) for k in rows[0]}


@pytest.mark.parametrize(
    "method", [free(), free("cosine"), free("geometric"), free_md4(), free_md4("cosine"), free_md4("polynomial")]
)
@torch.no_grad()
def test_terms_by_count_are_the_integrals_over_time(method):
    expected = exact.continuous_terms(method, X_0)
    ours = counted(method, Batch(X_0), method.terms)
    for name in TERMS:
        close(ours[name], expected[name], rtol=1e-6, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")
    close(total(ours), exact.any_order(method, X_0), rtol=1e-9, atol=1e-9)  # whatever the schedule
    close(counted(method, Batch(X_0), lambda b, g: {"bound": method.bound(b, g)})["bound"], total(ours))
    # with a jump at each end, as in training, whose loss folds the three terms into one weight
    expected = exact.continuous_terms(method, X_0, jumps=True)
    ours = counted(method, Batch(X_0), method.jump_terms)
    for name in TERMS:
        close(ours[name], expected[name], rtol=1e-6, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")
    folded = counted(method, Batch(X_0), lambda b, g: {"loss": method.loss(b, g)})["loss"]
    close(folded, total(expected), rtol=1e-6, atol=1e-7)


@torch.no_grad()
def test_any_order_is_the_autoregressive_likelihood_over_all_orders():
    method = free(length=3)
    x_0 = exact.states(V, 3)[::5]
    estimator = method.estimators()["any_order"]
    ours = counted(method, Batch(x_0), lambda b, g: {"nll": estimator(b, g)})["nll"]
    close(ours, exact.any_order(method, x_0), rtol=1e-9, atol=1e-9)
    assert timed().estimators() == {}


@torch.no_grad()
def test_loss_gradient_is_the_gradient_of_the_bound():
    method = free_md4()
    with torch.enable_grad():
        one = counted(method, Batch(X_0[3:4]), lambda b, g: {"v": method.loss(b, g)})["v"].sum()
        two = total(exact.continuous_terms(method, X_0[3:4], jumps=True)).sum()
        g = [torch.autograd.grad(v, list(method.parameters()))[0] for v in (one, two)]
    close(*g, rtol=1e-6, atol=1e-7)


# ---------------------------------------------------------------------------------- times drawn
def noised(method, x_0, t, of):
    """E over x_t of what `of` draws for one row x_0 at time t, by forcing each position to be masked or not."""
    masked = float(1 - method.process.schedule.alpha(t)[0])
    value = 0.0
    for hidden in itertools.product((False, True), repeat=x_0.shape[1]):
        u = torch.tensor([[masked / 2 if h else (1 + masked) / 2 for h in hidden]], dtype=D)  # masked iff u < 1 - alpha
        p = torch.tensor([masked if h else 1 - masked for h in hidden], dtype=D).prod()
        if p > 0:
            value = value + p * of(u)
    return value


@torch.no_grad()
@pytest.mark.parametrize("schedule", ["linear", "cosine", "polynomial"])
def test_terms_at_a_drawn_time_are_the_continuous_bound(schedule):
    method, batch = timed(schedule), Batch(X_0[5:6])
    expected = exact.continuous_terms(method, X_0[5:6])
    for t in (0.03, 0.4, 1.0):
        # terms draws: the stratified u (t = 1 - u), x_t, then x at t = 0 for the reconstruction
        draw = lambda u, t=t: method.jump_terms(batch, Given(1 - t, u, 0.999))["diffusion"][0]  # noqa: E731
        close(noised(method, X_0[5:6], t, draw), exact.expected(method, X_0[5:6], t, None)[0], rtol=1e-9, atol=1e-12)
    expected = exact.continuous_terms(method, X_0[5:6], jumps=True)
    again = lambda u: method.jump_terms(batch, Given(0.5, 0.5, u))["reconstruction"][0]  # noqa: E731
    close(noised(method, X_0[5:6], 0.0, again), expected["reconstruction"][0], rtol=1e-9, atol=1e-12)
    close(method.jump_terms(batch, Given(0.5, 0.5, 0.5))["prior"], expected["prior"], rtol=1e-9, atol=1e-12)
    jumps = total(method.jump_terms(batch, Given(0.5, 0.5, 0.5)))
    assert torch.equal(method.loss(batch, Given(0.5, 0.5, 0.5)), jumps)


@torch.no_grad()
@pytest.mark.parametrize("T", [1, 2, 5])
@pytest.mark.parametrize("kind", ["free", "timed"])
def test_T_steps_are_the_step_bound_of_the_T_step_model(T, kind):
    method = free(steps=T) if kind == "free" else timed(steps=T)
    times = method.grid(T)
    assert (times[0], times[-1]) == (PRIOR, CLEAN)
    x_0 = X_0[4:6]
    expected = exact.step_bound(method, x_0, times)
    for b in range(2):
        batch, value = Batch(x_0[b : b + 1]), dict.fromkeys(TERMS, 0.0)
        here = between(method, T)
        drawn = {"reconstruction": [T - 1], "prior": [0] * (T > 1), "diffusion": here}
        for name, steps in drawn.items():
            for i in steps:
                at = (i - here.start + 0.5) / max(1, len(here))  # the draw that is this step; of the ends none is drawn
                time = [at] * (len(here) > 0)
                given = lambda u, time=time: Given(*time, *[u] * len(time), u, u)  # noqa: E731
                draw = lambda u, n=name, batch=batch, given=given: method.terms(batch, given(u))[n][0]  # noqa: E731
                value[name] = value[name] + noised(method, batch.tokens, times[i], draw) / len(steps)
        close(sum(value.values()), expected[b], rtol=1e-9, atol=1e-9)
        assert value["reconstruction"] > 0
        assert (value["prior"] > 0) == (T > 1)
        assert (value["diffusion"] > 0) == (T > 2)
    assert (expected >= -exact.log_likelihood(method, times)[4:6]).all()


def test_times_are_stratified_over_the_rows_and_the_weight_is_never_infinite():
    seen = []
    method = timed()
    method.continuous_bound = lambda batch, x_t, t: (seen.append(t), torch.zeros(len(t), dtype=D))[1]  # type: ignore[method-assign]
    method.terms(Batch(X_0), torch.Generator().manual_seed(0))
    assert sorted(((1 - seen[0]) * len(X_0)).long().tolist()) == list(range(len(X_0)))
    method.jump_terms(Batch(X_0), Given(0.0, 0.5, 0.5))
    assert (seen[1] > 0).all()


# ---------------------------------------------------------------------------------- padding
def test_given_positions_are_never_noised():
    mask = numbers(6, 9) < 0.6
    tokens = (V * numbers(6, 9, seed=1)).long()
    method = MDLM(None, V, (9,))
    for t in (0.5, 1.0, PRIOR):
        x_t = method.corrupt(Batch(tokens, mask), t, torch.Generator().manual_seed(0))
        assert torch.equal(x_t[~mask], tokens[~mask])
    assert (x_t[mask] == V).all()


class Rest(torch.nn.Module):
    """The network of a longer sequence whose last token is given: as a network of the others."""

    def __init__(self, network, last):
        super().__init__()
        self.network, self.last = network, last

    def features(self, x, time=None, **kwargs):
        whole = torch.cat((x, torch.full_like(x[:, :1], self.last)), 1)
        return self.network.features(whole, time)[:, : x.shape[1]]

    def head(self, h):
        return h


@torch.no_grad()
def mdlm(network, n):
    return MDLM(network, V, (n,))


def md4(network, n):
    return MD4(network, V, (n,), MD4.Config(eps=0.05, time=False))


@pytest.mark.parametrize("make", [mdlm, md4])
@torch.no_grad()
def test_padding_gives_the_bound_of_the_rest(make):
    network = table(V + 1, L + 1)
    padded = torch.cat((X_0, torch.full_like(X_0[:, :1], 2)), 1)
    mask = torch.ones_like(padded, dtype=torch.bool)
    mask[:, -1] = False
    ours = counted(make(network, L + 1), Batch(padded, mask), make(network, L + 1).terms)
    expected = exact.continuous_terms(make(Rest(network, 2), L), X_0)
    for name in TERMS:
        close(ours[name], expected[name], rtol=1e-6, atol=1e-7)
    expected = exact.continuous_terms(make(Rest(network, 2), L), X_0, jumps=True)
    loss = counted(make(network, L + 1), Batch(padded, mask), lambda b, g: {"v": make(network, L + 1).loss(b, g)})["v"]
    close(loss, total(expected), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("method", [free(), free_md4(), free(steps=3), timed(), timed(steps=3)])
def test_a_row_of_nothing_but_padding_costs_nothing(method):
    batch = Batch(X_0[:3], torch.tensor([[True, True], [False, False], [True, False]]))
    for value in (method.loss, method.bound):
        v = value(batch, torch.Generator().manual_seed(0))
        assert v.isfinite().all()
        assert v[1] == 0
    (g,) = torch.autograd.grad(method.loss(batch, torch.Generator().manual_seed(0)).sum(), list(method.parameters()))
    assert g.isfinite().all()


# ---------------------------------------------------------------------------------- ranks
@pytest.mark.parametrize("method", [free(), free_md4(), free(steps=4), timed(), timed("cosine", steps=4)])
@torch.no_grad()
def test_n_ranks_compute_what_one_process_does(method):
    world = 3
    rows = X_0.repeat(2, 1)
    mask = numbers(*rows.shape) < 0.8
    for padding in (None, mask):
        take = lambda a, r: None if a is None else a[r * 6 : r * 6 + 6]  # noqa: E731
        for of in ("loss", "bound"):
            whole = getattr(method, of)(Batch(rows, padding), torch.Generator().manual_seed(3))
            parts = [
                getattr(method, of)(
                    Batch(take(rows, r), take(padding, r)), random.Shard(torch.Generator().manual_seed(3), r, world)
                )
                for r in range(world)
            ]
            close(torch.cat(parts), whole, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------------------------- asking the network
@pytest.mark.parametrize("method", [free(), timed(), MDLM(table(V + 1, L, time=True), V, (L,), MDLM.Config(time=True))])
@torch.no_grad()
def test_asking_at_some_positions_is_asking_at_all(method):
    x_t = exact.states(V + 1, L)
    t = numbers(len(x_t), 1)
    masked = x_t == V
    everywhere, there = method.predict(x_t, t), method.predict(x_t, t, at=masked)
    assert isinstance(everywhere, Mean)
    assert torch.equal(there.mu, posterior(there))
    close(posterior(there), posterior(everywhere)[masked])
    close(there.t, t.expand(x_t.shape)[masked])
    p = posterior(everywhere)
    close(p.sum(-1), torch.ones(x_t.shape, dtype=D))
    assert (p[masked][:, V] == 0).all()
    assert torch.equal(p[~masked].argmax(-1), x_t[~masked])  # carried over


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("mdlm", {}), ("mdlm", {"time": True}), ("md4", {}), ("genmd4", {}), ("radd", {}), ("sedd", {}),
        ("sedd", {"process": "uniform"}), ("d3pm", {"process": "absorbing", "diffusion_steps": 4}), ("bd3lm", {"block": 4}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mask", [None, torch.arange(8) < torch.tensor([[8], [5], [8], [3]])])
def test_training_at_the_masks_is_training_at_all_positions(name, choices, mask):
    """The end of the last block at the positions that a loss reads, and everywhere: loss and gradient."""
    method, draw = small.make(name, choices), torch.Generator().manual_seed(1)
    batch, grads, losses = Batch(torch.randint(3, (4, 8), generator=draw), mask), [], []
    for method.network.chooses in (True, False):
        loss = method.loss(batch, torch.Generator().manual_seed(2))
        grads.append(torch.autograd.grad(loss.sum(), [*method.network.parameters()], allow_unused=True))
        losses.append(loss)
    torch.testing.assert_close(*losses, rtol=1e-12, atol=1e-12)
    for one, other in zip(*grads):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_what_networks_are_told():
    told = []

    class Listening(torch.nn.Module):
        def features(self, x, time=None, **kwargs):
            told.append(time)
            return torch.zeros(*x.shape, V + 1)

        def head(self, h):
            return h

    x = torch.full((2, L), V)
    for method, expected in (
        (MDLM(Listening(), V, (L,)), None),
        (MDLM(Listening(), V, (L,), MDLM.Config(time=True)), -torch.log(torch.tensor([1 - 0.999 * 0.25, 1e-3]))),
        (MD4(Listening(), V, (L,)), torch.tensor([250.0, 1000.0])),
    ):
        method.predict(x, torch.tensor([[0.25], [PRIOR]], dtype=D))  # at PRIOR a finite sigma: that of t = 1
        (time,) = told[-1:]
        assert (time is None) == (expected is None)
        if time is not None:
            close(time, expected.float())
        # a given position is CLEAN; the network is told the time of the others
        if time is not None:
            method.predict(x, torch.tensor([[CLEAN, 0.25], [1.0, CLEAN]], dtype=D))
            close(told[-1], expected.float())


# ---------------------------------------------------------------------------------- the generic method
class Plain(Diffusion):
    """Any process, a table read as one of the parameterizations: nothing but `read`."""

    name = "plain"

    def __init__(self, process, kind):
        super().__init__()
        self.process, self.kind, self.network = process, kind, table(process.K, L)
        self.shape, self.vocabulary = (L,), process.K

    def read(self, logits, x_t, t):
        return self.kind(self.process, logits.softmax(-1), x_t, t)


class Whole(Plain):
    """The same, with `predict` given whole and no `read`."""

    read = Diffusion.read

    def predict(self, x_t, t, *, at=None, condition=None, context=None, segments=None):
        at = torch.ones_like(x_t, dtype=torch.bool) if at is None else at
        t = torch.as_tensor(t, dtype=D).expand(x_t.shape)[at]
        return self.kind(self.process, self.network(x_t)[at].softmax(-1), x_t[at], t)


def test_positions_are_independent_unless_predict_is_given_whole():
    assert Plain.pointwise
    assert not Whole.pointwise
    assert not exact.Denoiser.pointwise
    assert [cls for cls in METHODS.values() if issubclass(cls, Diffusion) and not cls.pointwise] == []


def test_the_class_that_a_config_asks_for():
    class Mine(BD3LM):
        pass

    for asked, prediction, resolved in (
        (MDLM, None, MDLM),
        (BD3LM, "mean", BD3LM),
        (BD3LM, "score", BD3LMScore),
        (BD3LMScore, "mean", BD3LM),
        (Mine, "score", Mine),  # of one's own: what it is, its constructor checks
    ):
        config = asked.Config() if prediction is None else asked.Config(prediction=prediction)
        assert asked.resolve(config) is resolved


@torch.no_grad()
def test_a_method_may_give_predict_whole():
    for process in (uniform(V, Linear(0.1, 0.95)), absorbing(V + 1, Linear())):
        plain, whole = Plain(process, LeaveOneOut), Whole(process, LeaveOneOut)
        whole.network.load_state_dict(plain.network.state_dict())
        x_0 = X_0.repeat(40, 1)
        a, b = (m.terms(Batch(x_0), torch.Generator().manual_seed(5)) for m in (plain, whole))
        for name in TERMS:
            close(a[name], b[name])


@pytest.mark.parametrize("process", [uniform(V, Linear(0.1, 0.95)), CTMC(generator_matrix(V))], ids=["uniform", "ctmc"])
@torch.no_grad()
def test_the_generic_terms_are_unbiased(process):
    """20,000 draws within 5.5 standard errors: a false alarm has probability 4e-8 for each of the nine numbers.

    (A Mean that is wrong at t = 0, where x_t tells x_0, has an infinite bound under a process without a jump to CLEAN.)
    """
    for kind in (LeaveOneOut,) if isinstance(process, CTMC) else (restricted, LeaveOneOut):
        method, N = Plain(process, kind), 20_000
        x_0 = X_0[5].expand(N, L)
        draws = method.terms(Batch(x_0), torch.Generator().manual_seed(1))
        expected = exact.continuous_terms(method, X_0[5:6])
        for name in TERMS:
            assert five_sigma(draws[name], expected[name]), name
        close(total(draws), method.bound(Batch(x_0), torch.Generator().manual_seed(1)))


@torch.no_grad()
def test_the_generic_terms_count_no_padding():
    method = Plain(uniform(V, Linear(0.1, 0.95)), LeaveOneOut)
    nothing = Batch(X_0, torch.zeros_like(X_0, dtype=torch.bool))
    for value in method.terms(nothing, torch.Generator().manual_seed(0)).values():
        close(value, torch.zeros(len(X_0), dtype=D))
    x_t = method.corrupt(
        Batch(X_0, torch.tensor([True, False]).expand(X_0.shape)), 1.0, torch.Generator().manual_seed(0)
    )
    assert torch.equal(x_t[:, 1], X_0[:, 1])


@torch.no_grad()
def test_masked_closed_forms_are_the_generic_terms():
    """The weighted cross-entropy against the generic bound at the same noisy tokens, and draws of the terms."""
    method = timed("cosine")
    N, x_0 = 20_000, X_0[5:6]
    batch, generator = Batch(x_0.expand(N, L)), torch.Generator().manual_seed(2)
    draws, expected = method.terms(batch, generator), exact.continuous_terms(method, x_0)
    for name in TERMS:
        assert five_sigma(draws[name], expected[name]), name
    t, s = numbers(N, seed=3), torch.full((N,), CLEAN, dtype=D)
    x_t = method.corrupt(batch, t[:, None], generator)
    close(method.continuous_bound(batch, x_t, t), Diffusion.continuous_bound(method, batch, x_t, t))
    close(method.discrete_bound(batch, x_t, t, s), Diffusion.discrete_bound(method, batch, x_t, t, s))


# ---------------------------------------------------------------------------------- how methods are made
def test_built_by_name_with_the_right_network():
    net = Net(layers=1, hidden=16, heads=2, length=8)
    mdlm, md4 = methods.build("mdlm", 5, net), methods.build(MD4, 5, net)
    assert (mdlm.process.K, mdlm.process.mask, mdlm.shape) == (6, 5, (8,))
    assert not mdlm.network.time_conditioned
    assert md4.network.time_conditioned
    assert mdlm.network.states == 6
    x = torch.full((2, 8), 5)
    close(posterior(md4.predict(x, 0.5))[..., :5], torch.full((2, 8, 5), 0.2, dtype=D), check_dtype=False)
    own = methods.build("md4", V, table(V + 1, L, time=True), length=L)
    assert own.shape == (L,)
    with pytest.raises(ValueError, match="length="):
        methods.build("md4", V, table(V + 1, L, time=True))


def test_mistakes_are_said():
    with pytest.raises(InputError, match="unknown method 'mdml'; did you mean 'mdlm'"):
        methods.find("mdml")
    with pytest.raises(InputError, match="unknown schedule 'loglinaer'"):
        MDLM(None, V, (L,), MDLM.Config("loglinaer"))
    with pytest.raises(InputError, match="unknown schedule 'geometric'"):
        MD4(None, V, (L,), MD4.Config("geometric"))
    for eps in (-0.1, 0.5):
        with pytest.raises(InputError, match="must be in"):
            MD4(None, V, (L,), MD4.Config(eps=eps))
    with pytest.raises(InputError, match="exponent"):
        MD4(None, V, (L,), MD4.Config("polynomial", exponent=0.0))


def test_schedules_of_the_papers():
    assert isinstance(MDLM(None, V, (L,)).process.schedule, Linear)
    schedule = MD4(None, V, (L,), MD4.Config("cosine")).process.schedule
    assert isinstance(schedule, Cosine)
    assert (schedule.alpha_0, schedule.alpha_1) == (1 - 1e-4, 1e-4)
    schedule = MD4(None, V, (L,), MD4.Config("polynomial", exponent=3.0)).process.schedule
    assert isinstance(schedule, Polynomial)
    assert float(schedule.w) == 3.0


@torch.no_grad()
def test_the_exact_network_reaches_the_entropy_of_the_data():
    """The sum of the terms of MDLM, alpha_1 = 1e-3, with the true p(x_0 | x_t): H; up to O(alpha_1^2) with a jump at the
    end."""
    method, distribution = free(), data_distribution()
    denoiser = exact.Denoiser(method.process, distribution, L)
    logits = torch.zeros_like(method.network.logits[0])
    X = exact.states(V + 1, L)
    logits[exact.index(X, V + 1)] = posterior(denoiser.predict(X, 0.5)).log().clamp_min(-1e4)
    method.network.logits[0] = logits
    bound, jumps = (
        (distribution * total(counted(method, Batch(X_0), f))).sum() for f in (method.terms, method.jump_terms)
    )
    close(bound, exact.entropy(distribution), rtol=0, atol=1e-9)
    close(jumps, exact.entropy(distribution), rtol=0, atol=8e-6)
    assert jumps > exact.entropy(distribution) + 1e-8
