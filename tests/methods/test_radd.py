"""RADD: its four losses against each other and against the enumeration, its likelihood in an order, its network."""

import itertools
import math

import pytest
import torch

import zellige
from testing.small import Rows
from testing.worlds import Counting, L, V, five_sigma, table
from zellige import exact
from zellige.cli.evaluate_print import describe
from zellige.core.batch import Batch
from zellige.core.curves import Linear
from zellige.core.random import bernoulli, stratified
from zellige.evaluation.evaluate import evaluate_rows
from zellige.methods import RADD, build
from zellige.nn import Net
from zellige.samplers import AnyOrder, FixedOrder

D = torch.float64
close = torch.testing.assert_close
X_0 = exact.states(V, L)
MASK = V
GIVEN = torch.tensor([[True, False], [True, True], [False, True], [False, False]])


def radd(loss="k-dce", length=L, eps=0.0, **config):
    method = RADD(table(V + 1, length), V, (length,), RADD.Config(loss=loss, **config))
    method.process.schedule = Linear(eps)  # alpha from exactly 1 to exactly 0, unless said
    return method


# ---------------------------------------------------------------------------------- the four losses
def hidden(length=L):
    """Every way to mask some positions: (2^L, L) bool."""
    return torch.tensor(list(itertools.product([False, True], repeat=length)))


def expected(method, kind):
    """E of a loss given x_0, over its masks by enumeration and over t or lambda by quadrature: (M,) nats."""
    total = torch.zeros(len(X_0), dtype=D)
    for mask in hidden():
        x_t, k = X_0.masked_fill(mask, MASK), int(mask.sum())
        if k == 0:
            continue
        if kind == "k-dce":
            total += method.k_dce(Batch(X_0), x_t, torch.full((len(X_0),), k)) / (L * math.comb(L, k))
            continue
        for t, w in zip(*exact.quadrature()):
            time = torch.full((len(X_0),), float(t), dtype=D)
            lost = t if kind == "lambda-dce" else 1 - method.process.schedule.alpha(t)[0]
            of = {"lambda-dce": method.lambda_dce, "t-dce": method.t_dce, "t-dse": method.t_dse}[kind]
            total += w * lost**k * (1 - lost) ** (L - k) * of(Batch(X_0), x_t, time)
    return total


@pytest.mark.parametrize("kind", ["k-dce", "lambda-dce", "t-dce", "t-dse"])
def test_four_losses_have_the_expectation_of_any_order(kind):
    """Value and gradient."""
    method = radd()
    ours, any_order = expected(method, kind), exact.any_order(method, X_0)
    close(ours, any_order, rtol=1e-6, atol=1e-7)
    parameters = list(method.parameters())
    weights = torch.linspace(0.5, 1.5, len(X_0), dtype=D)
    (one,) = torch.autograd.grad((weights * ours).sum(), parameters)
    (other,) = torch.autograd.grad((weights * expected(method, "k-dce")).sum(), parameters)
    close(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["k-dce", "lambda-dce", "t-dce", "t-dse"])
@torch.no_grad()
def test_what_is_trained_is_a_draw_of_it(kind):
    """With both ends of time away from 0 and 1 too: the jumps are added where the loss has a schedule."""
    for eps in (0.0, 0.05):
        method = radd(kind, eps=eps)
        x_0 = X_0[5:6].expand(20_000, -1)
        free = radd(eps=0.0)
        truth = exact.any_order(free, X_0[5:6])
        if kind.startswith("t-") and eps:
            truth = sum(
                exact.continuous_terms(method, X_0[5:6], jumps=True)[k]
                for k in ("diffusion", "reconstruction", "prior")
            )
        draws = method.loss(Batch(x_0), torch.Generator().manual_seed(1))
        assert five_sigma(draws, torch.as_tensor(truth)), (kind, eps)


@torch.no_grad()
def test_the_default_has_the_least_variance():
    x_0 = exact.states(V, 3)[10:11].expand(20_000, -1)
    spread = [
        float(radd(kind, 3).loss(Batch(x_0), torch.Generator().manual_seed(0)).var())
        for kind in ("k-dce", "lambda-dce", "t-dse")
    ]
    assert spread[0] < 0.8 * min(spread[1:])
    assert RADD.Config().loss == "k-dce"


@pytest.mark.parametrize("kind", ["k-dce", "lambda-dce", "t-dce", "t-dse"])
def test_given_positions_are_not_noised_and_not_counted(kind):
    method = radd(kind, eps=0.01)
    x = X_0[:4]
    loss = method.loss(Batch(x, GIVEN), torch.Generator().manual_seed(0)).detach()
    assert loss.shape == (4,)
    assert float(loss[3]) == 0.0  # nothing counts there
    assert loss.isfinite().all()
    _, n, k, x_t = method.mask_exactly_k(Batch(x, GIVEN), torch.Generator().manual_seed(0))
    assert ((x_t == MASK) <= GIVEN).all()
    assert ((x_t == MASK).sum(-1) == torch.where(n > 0, k, 0)[:, 0]).all()


def test_loss_is_that_of_its_draws():
    """The losses as the command line trains them are the functions of explicit draws."""
    batch = Batch(X_0)
    method = radd("lambda-dce")
    g = torch.Generator().manual_seed(3)
    u = 1 - stratified(len(X_0), g)
    lost = bernoulli(u[:, None].expand(X_0.shape), g)
    close(
        method.loss(batch, torch.Generator().manual_seed(3)),
        method.lambda_dce(batch, X_0.masked_fill(lost, MASK), u),
    )
    g = torch.Generator().manual_seed(3)
    _, _, k, x_t = method.mask_exactly_k(batch, g)
    close(radd("k-dce").loss(batch, torch.Generator().manual_seed(3)), method.k_dce(batch, x_t, k[:, 0]))


# ---------------------------------------------------------------------------------- orders
@torch.no_grad()
def test_the_likelihood_in_each_order_is_a_distribution_and_their_mean_is_any_order():
    method = radd(length=3)
    x_0 = exact.states(V, 3)
    total = torch.zeros(len(x_0), dtype=D)
    for order in itertools.permutations(range(3)):
        nll = method.in_order(Batch(x_0), torch.tensor(order).argsort())
        close(nll.neg().exp().sum(), torch.ones((), dtype=D))
        distribution = exact.sample_distribution(FixedOrder(list(order)), method, 3)
        close(nll.neg().exp(), distribution[exact.index(x_0, V + 1)])  # what the sampler of that order draws
        total += nll / 6
    close(total, exact.any_order(method, x_0))
    # Jensen: the mean over orders bounds -log of the mixture, which is the distribution of the any-order sampler
    mixture = -exact.sample_distribution(AnyOrder(), method, 3)[exact.index(x_0, V + 1)].log()
    assert (total >= mixture - 1e-12).all()
    assert (total > mixture + 1e-4).any()


@torch.no_grad()
def test_forward_backward_and_random():
    method = radd(length=3)
    batch = Batch(exact.states(V, 3))
    each = method.estimators()
    close(each["forward"](batch), method.in_order(batch, torch.tensor([0, 1, 2])))
    close(each["backward"](batch), method.in_order(batch, torch.tensor([2, 1, 0])))
    assert [name for name, e in each.items() if e.exact] == ["forward", "backward"]
    many = Batch(batch.tokens[7:8].expand(20_000, -1))
    assert five_sigma(each["random"](many, torch.Generator().manual_seed(0)), exact.any_order(method, many.tokens[:1]))
    with_rows = each["random"](batch, [torch.Generator().manual_seed(i) for i in range(27)])
    one = each["random"](batch.take(torch.tensor([5])), [torch.Generator().manual_seed(5)])
    close(with_rows[5:6], one)


@torch.no_grad()
def test_given_positions_come_first_in_every_order():
    method, x = radd(), X_0[:4]
    nll = method.estimators()["forward"](Batch(x, GIVEN))
    for b in range(4):
        parts = []
        for i in (0, 1):
            if not GIVEN[b, i]:
                continue
            x_t = x[b : b + 1].clone()
            x_t[0, i] = MASK
            if GIVEN[b, 1] and i == 0:
                x_t[0, 1] = MASK
            parts.append(-method.predict(x_t, 0.5).mu[0, i, x[b, i]].log())
        assert float(nll[b]) == pytest.approx(float(sum(parts)), abs=1e-12)


@torch.no_grad()
def test_an_order_takes_one_row_and_one_head_for_each_token(monkeypatch):
    from zellige.methods import absorbing

    network = Counting(table(V + 1, 3))
    method = RADD(network, V, (3,))
    batch = Batch(exact.states(V, 3)[:5])
    whole = method.estimators()["forward"](batch)
    assert (network.rows, network.heads) == ([15], 15)  # rows and tokens share one call
    monkeypatch.setattr(absorbing, "TOKENS", 1)
    network.rows = []
    close(method.estimators()["forward"](batch), whole)
    assert network.rows == [5, 5, 5]


def test_an_order_has_a_gradient():
    method = radd()
    (g,) = torch.autograd.grad(method.in_order(Batch(X_0), torch.arange(L)).sum(), list(method.parameters()))
    assert g.isfinite().all()
    assert float(g.abs().sum()) > 0


@torch.no_grad()
def test_evaluated_in_an_order_it_is_exact_and_nothing_is_drawn():
    method, rows = radd(), Rows(X_0)
    r = evaluate_rows(method, rows, estimator="forward")
    assert (r.kind, r.draws, r.between) == ("exact", 1, 1.0)
    assert str(r).startswith("= ")
    assert r.nats is not None
    close(r.nats, method.in_order(Batch(X_0), torch.arange(L)))
    assert r.protocol["time"] == "one token at a time, left to right"
    assert r.protocol["strata"] == "none"
    assert evaluate_rows(method, rows, estimator="forward", seed=5, batch=2, draws=7).value == r.value
    assert any("exact for each" in line for line in describe(r))
    random = evaluate_rows(method, rows, estimator="random", draws=400)
    assert (random.kind, random.draws) == ("bound", 400)
    assert random.value == pytest.approx(float(exact.any_order(method, X_0).mean()) / L, abs=0.01)
    assert random.protocol["time"].endswith("another order for each draw")
    assert evaluate_rows(zellige.methods.MDLM(table(V + 1, L), V, (L,)), rows, estimator="backward").kind == "exact"


# ---------------------------------------------------------------------------------- its network, its choices
def test_the_network_has_biases_and_no_time():
    method = build("radd", 27, Net(layers=1, hidden=32, heads=2, length=8))
    names = dict(method.network.named_parameters())
    assert {"blocks.0.norm1.bias", "blocks.0.norm2.bias", "norm.bias"} <= set(names)
    assert not names["norm.bias"].any()
    assert not [n for n in names if "time" in n or "modulation" in n]
    assert not method.time_conditioned


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"loss": "kdce"}, "unknown loss 'kdce'; did you mean 'k-dce'? (all: zellige train radd --help)"),
        ({"schedule": "sine"}, "unknown schedule 'sine'; did you mean 'cosine'? (all: zellige train radd --help)"),
    ],
)
def test_wrong_input(config, message):
    with pytest.raises(zellige.InputError) as error:
        RADD(None, V, (L,), RADD.Config(**config))
    assert str(error.value) == message
