"""GenMD4: its bound against the generic one, the gradient of its surrogate by enumeration of draws, its exponents in a run."""

import itertools
import math

import pytest
import torch
from safetensors.torch import load_file

import zellige
from testing.worlds import Counting, L, V, data_distribution, five_sigma, table
from zellige import Data, Net, Train, exact
from zellige.core import bound
from zellige.core.batch import Batch
from zellige.core.prediction import truth
from zellige.core.schedule import CLEAN, PRIOR
from zellige.methods import GenMD4, build
from zellige.nn import chunks
from zellige.samplers import Ancestral, FirstHitting, run

D = torch.float64
close = torch.testing.assert_close
X_0 = exact.states(V, L)
W = torch.tensor([0.6, 1.0, 2.5, 1.0], dtype=D)  # the last is the mask's
TIMES = (0.01, 0.4, 0.9)


def genmd4(w=W, **config):
    method = GenMD4(table(V + 1, L, time=True), V, (L,), GenMD4.Config(**config)).double()
    network = method.network
    network.features, plain = lambda x, time=None, **k: plain(x, time.double() / 1000, **k), network.features
    with torch.no_grad():
        if config.get("learn", True):
            method.schedule.raw.copy_(torch.log(torch.expm1(w)))
        else:
            method.schedule.fixed.copy_(w)
    return method


def pairs(method):
    """Every x_0 with every x_t that it can become: (N, L) each."""
    X = exact.states(V + 1, L)
    x_0, x_t = X_0.repeat_interleave(len(X), 0), X.repeat(len(X_0), 1)
    can = ((x_t == x_0) | (x_t == V)).all(-1)
    return x_0[can], x_t[can]


# ---------------------------------------------------------------------------------- the bound
@pytest.mark.parametrize("begin", [0.0, 1e-3, 0.1])
def test_closed_form_is_the_generic_bound(begin):
    """Value, and gradients to the network and to the exponents."""
    method = genmd4(begin=begin, eps=0.02)
    x_0, x_t = pairs(method)
    for t, s in [*((t, None) for t in TIMES), (0.9, 0.2), (PRIOR, 0.8), (PRIOR, 1.0), (0.3, CLEAN), (0.0, CLEAN)]:
        if t == 0.0 and begin == 0.0:
            continue
        time = torch.full(x_0.shape, t, dtype=D)
        pred, target = method.predict(x_t, time), truth(method.process, x_0, x_t, time)
        if s is None:
            ours, generic = method.continuous_bound(Batch(x_0), x_t, time[:, 0]), bound.continuous(target, pred).sum(-1)
        else:
            later = torch.full_like(time, s)
            ours = method.discrete_bound(Batch(x_0), x_t, time[:, 0], later[:, 0])
            generic = bound.discrete(target, pred, later).sum(-1)
        close(ours, generic, rtol=1e-9, atol=1e-9)
        weights = torch.linspace(0.5, 1.5, len(x_0), dtype=D)
        for a, b in zip(*(torch.autograd.grad((weights * v).sum(), list(method.parameters()), materialize_grads=True)
                          for v in (ours, generic))):  # fmt: skip
            close(a, b, rtol=1e-8, atol=1e-10)


def test_equal_exponents_are_a_weighted_cross_entropy():
    """Then sum_k r_k mu_k = r, which takes the 1 away: MD4's bound."""
    method = genmd4(torch.full((V + 1,), 1.7, dtype=D), begin=0.0)
    x_0, x_t = pairs(method)
    t = torch.full((len(x_0),), 0.4, dtype=D)
    mu = method.predict(x_t, 0.4).mu.gather(-1, x_0[..., None])[..., 0]
    close(method.continuous_bound(Batch(x_0), x_t, t), (1.7 / 0.4 * -mu.log() * (x_t == V)).sum(-1))


@torch.no_grad()
def test_at_the_exact_network_the_terms_are_the_entropy():
    process = genmd4(eps=1e-6).process
    denoiser = exact.Denoiser(process, data_distribution(), L)
    terms = exact.continuous_terms(denoiser, denoiser.x_0)
    distribution = data_distribution()
    total = (distribution * (terms["diffusion"] + terms["reconstruction"] + terms["prior"])).sum()
    assert float(total - exact.entropy(distribution)) == pytest.approx(0.0, abs=1e-6)
    assert float((distribution * terms["reconstruction"]).sum()) > 1e-3  # what lies before t_1 is in it


@torch.no_grad()
def test_terms_and_loss_are_draws_of_the_bound():
    method = genmd4(begin=0.05, eps=0.03)
    truth_ = exact.continuous_terms(method, X_0[4:5])
    many = Batch(X_0[4:5].expand(40_000, -1))
    terms = method.terms(many, torch.Generator().manual_seed(0))
    for name in ("diffusion", "reconstruction", "prior"):
        assert five_sigma(terms[name], truth_[name]), name
    truth_ = exact.continuous_terms(method, X_0[4:5], jumps=True)  # as in training
    total = sum(truth_[k] for k in ("diffusion", "reconstruction", "prior"))
    assert five_sigma(method.loss(many, torch.Generator().manual_seed(1)), torch.as_tensor(total))
    fixed = genmd4(begin=0.05, eps=0.03, learn=False)
    assert five_sigma(fixed.loss(many, torch.Generator().manual_seed(1)), torch.as_tensor(total))
    assert not list(fixed.schedule.parameters())


# ---------------------------------------------------------------------------------- the exponents' gradient
def reachable(x_0):
    """All x_t of one x_0 (L,): (2^L, L)."""
    mask = torch.tensor(list(itertools.product([False, True], repeat=L)))
    return x_0.expand(len(mask), -1).masked_fill(mask, V)


def expectation(method, x_0, t, s=None):
    """E over x_t of the bound at t, written out: differentiable in everything."""
    x_t = reachable(x_0)
    batch, time = Batch(x_0.expand(len(x_t), -1)), torch.full((len(x_t),), t, dtype=D)
    alpha = method.process.schedule.alpha_of(batch.tokens, time[:, None])
    q = torch.where(x_t == V, 1 - alpha, alpha).prod(-1)
    f = (
        method.continuous_bound(batch, x_t, time)
        if s is None
        else method.discrete_bound(batch, x_t, time, torch.full_like(time, s))
    )
    return (q * f).sum(), q.detach()


@pytest.mark.parametrize(("t", "s"), [(0.02, None), (0.4, None), (0.95, None), (0.0, CLEAN), (0.6, 0.2)])
def test_expected_gradient_of_the_surrogate_is_the_gradient_of_the_expectation(t, s):
    method = genmd4(begin=0.05, eps=0.01)
    parameters = list(method.parameters())
    for x_0 in X_0[[1, 4, 6]]:
        value, q = expectation(method, x_0, t, s)
        exactly = torch.autograd.grad(value, parameters, materialize_grads=True)
        x_t = reachable(x_0)
        i, j = (k.reshape(-1) for k in torch.meshgrid(torch.arange(len(x_t)), torch.arange(len(x_t)), indexing="ij"))
        batch, time = Batch(x_0.expand(len(i), -1)), torch.full((len(i),), t, dtype=D)
        later = None if s is None else torch.full_like(time, s)
        ours = method.rloo(batch, x_t[i], x_t[j], time, later)
        expected = (q[i] * q[j] * ours).sum()
        close(expected, value)
        for a, b in zip(torch.autograd.grad(expected, parameters, materialize_grads=True), exactly):
            close(a, b, rtol=1e-9, atol=1e-12)
        naive = torch.autograd.grad(expectation_of_values(method, x_0, t, s, q), parameters, materialize_grads=True)
        wrong = max(float((a - b).abs().max()) for a, b in zip(naive, exactly))
        assert wrong > 1e-3  # without the second term it would be another gradient


def expectation_of_values(method, x_0, t, s, q):
    x_t = reachable(x_0)
    batch, time = Batch(x_0.expand(len(x_t), -1)), torch.full((len(x_t),), t, dtype=D)
    f = (
        method.continuous_bound(batch, x_t, time)
        if s is None
        else method.discrete_bound(batch, x_t, time, torch.full_like(time, s))
    )
    return (q * f).sum()


def test_log_q_is_the_distribution_of_the_noise():
    method = genmd4(begin=0.05, eps=0.01)
    x_0, x_t = pairs(method)
    for t in (0.0, 0.3, 1.0):
        time = torch.full((len(x_0),), t, dtype=D)
        q = method.process.likelihood(x_t, CLEAN, time[:, None].expand(x_t.shape)).gather(-1, x_0[..., None])[..., 0]
        close(method.log_q(Batch(x_0), x_t, time), q.prod(-1).log(), rtol=1e-9, atol=1e-12)
        given = torch.tensor([[True, False]]).expand(x_0.shape)
        close(method.log_q(Batch(x_0, given), x_t, time), q[:, 0].log(), rtol=1e-9, atol=1e-12)


def test_the_loss_has_the_value_of_the_bound_and_finite_gradients_everywhere():
    for w in (W, torch.tensor([1e-3, 40.0, 500.0, 1.0], dtype=D)):  # tau^500 underflows
        method = genmd4(w, begin=1e-3)
        mask = torch.tensor([[True, False], [True, True], [False, False]] * 3)
        for batch in (Batch(X_0), Batch(X_0, mask)):
            loss = method.loss(batch, torch.Generator().manual_seed(0))
            assert loss.isfinite().all()
            for g in torch.autograd.grad(loss.sum(), list(method.parameters())):
                assert g.isfinite().all()
    assert (loss[2::3] == 0).all()
    nothing = method.rloo(Batch(X_0), X_0, X_0, torch.zeros(len(X_0), dtype=D), torch.full((len(X_0),), CLEAN, dtype=D))
    assert (nothing == 0).all()
    nothing.sum().backward()


def test_gradients_in_chunks(monkeypatch):
    """The same where the logits are never held together."""

    def gradients():
        torch.manual_seed(0)
        method = build("genmd4", V, Net(layers=1, hidden=16, heads=2, length=L)).double()
        torch.nn.init.normal_(method.network.head.weight, std=0.3)
        with torch.no_grad():
            method.schedule.raw.copy_(torch.log(torch.expm1(W)))
        loss = method.loss(Batch(X_0), torch.Generator().manual_seed(2))
        return loss.detach(), torch.autograd.grad(loss.mean(), list(method.parameters()), materialize_grads=True)

    whole = gradients()
    monkeypatch.setattr(chunks, "LARGE", 1)
    monkeypatch.setattr(chunks, "CHUNK", 3)
    for a, b in zip(whole, gradients()):
        close(a, b, rtol=1e-9, atol=1e-12)


def test_the_head_is_asked_at_masks_only_and_empty_rows_not_at_all():
    method = genmd4()
    method.network = network = Counting(method.network)
    z = X_0.clone()
    z[0] = V
    method.rloo(Batch(X_0), z, X_0, torch.full((len(X_0),), 0.5, dtype=D))
    assert (network.rows, network.heads) == ([1], L)


# ---------------------------------------------------------------------------------- sampling
@torch.no_grad()
def test_ancestral_is_the_plain_kernel_and_the_model():
    method = genmd4(begin=0.05, eps=0.02)
    for steps in (1, 2, 5):
        chosen, plain = (exact.sample_distribution(Ancestral(choose=c), method, steps) for c in (True, False))
        close(chosen, plain, rtol=1e-9, atol=1e-12)
        likelihood = exact.log_likelihood(method, Ancestral().times(method, steps))
        close(plain[exact.index(X_0, V + 1)], likelihood.exp())


@torch.no_grad()
def test_the_exact_network_draws_the_data_and_early_tokens_first():
    denoiser = exact.Denoiser(genmd4().process, data_distribution(), L)
    far, near = (
        float(
            (
                exact.sample_distribution(Ancestral(), denoiser, n)
                - exact.embed(denoiser.process, data_distribution(), L)
            )
            .abs()
            .sum()
        )
        for n in (32, 64)
    )
    assert math.log2(far / near) == pytest.approx(1.0, abs=0.2)
    assert FirstHitting.reason_against(genmd4()) is None
    # a larger exponent: more of the token is there at any time, so it is revealed earlier
    t = torch.tensor([0.1, 0.5, 0.9], dtype=D)
    alpha = genmd4().process.schedule.alpha(t)[:, :V]
    assert (alpha[:, 2] > alpha[:, 1]).all()
    assert (alpha[:, 1] > alpha[:, 0]).all()


def test_first_hitting_through_the_jump_at_the_begin():
    """Everything still masked at t = 0 is revealed, at t = 0."""
    g = [torch.Generator().manual_seed(i) for i in range(64)]
    *_, state = run(FirstHitting(), genmd4(begin=0.9, eps=0.0), (64, L), generator=g)
    assert (state.x != V).all()


# ---------------------------------------------------------------------------------- choices, a run
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"exponent": -1.0}, "`exponent` is -1; it must be above 0"),
        ({"eps": 1.0}, "`eps` is 1; it must be at least 0 and below 1"),
        ({"begin": -0.1}, "`begin` is -0.1; it must be at least 0 and below 1"),
    ],
)
def test_wrong_input(config, message):
    with pytest.raises(zellige.InputError) as error:
        GenMD4(None, V, (L,), GenMD4.Config(**config))
    assert str(error.value) == message


def test_what_it_learnt():
    learnt = genmd4().learned_quantities()
    close(learnt["exponent"], W[:V])
    _, half = learnt.values()
    alpha = genmd4().process.schedule.alpha_of(torch.arange(V), half)
    close(alpha, torch.full_like(alpha, 0.5))
    assert half.argsort().tolist() == W[:V].argsort().tolist()  # the larger the exponent, the earlier from t = 1
    assert build("mdlm", V, Net(layers=1, hidden=16, heads=2, length=L)).learned_quantities() == {}


def test_exponents_are_trained_averaged_saved_and_resumed(tmp_path):
    """They move, without weight decay; a run that stops and goes on is the unbroken one bit for bit."""
    data, net = Data.of(torch.randint(V, (64, 8)), vocabulary=V), Net(layers=1, hidden=16, heads=2, length=8)
    more = {"batch": 4, "warmup": 0, "decay": "constant", "lr": 1e-2, "samples": 0, "device": "cpu"}

    def trained(run, steps, **options):
        return zellige.train(
            "genmd4", data=data, net=net, train=Train(steps=steps, **more), run=tmp_path / run, **options
        )

    def saved(run, name):
        return load_file(tmp_path / run / "checkpoints" / "last" / f"{name}.safetensors")

    trained("whole", 6)
    trained("broken", 3)
    trained("broken", 6, resume=True)
    for file in ("model", "training"):
        one, other = saved("whole", file), saved("broken", file)
        assert one.keys() == other.keys()
        for name in one:
            assert torch.equal(one[name], other[name]), name
    average, raw = (
        next(t for n, t in saved("whole", file).items() if n.endswith("schedule.raw")) for file in ("model", "training")
    )
    start = math.log(math.expm1(1.0))
    assert (raw[:V] - start).abs().min() > 1e-3
    assert float(raw[V]) == pytest.approx(start, abs=1e-6)  # that of the mask: no gradient, and no weight decay either
    assert not torch.equal(average, raw)
    model = zellige.load(tmp_path / "whole")
    close(
        model.method.learned_quantities()["exponent"].float(),
        torch.nn.functional.softplus(average[:V]),
        rtol=1e-6,
        atol=1e-6,
    )
    assert len(list(zellige.sample(model, count=1, steps=4, seed=0))) == 1
    with pytest.raises(zellige.InputError, match="estimator"):
        zellige.evaluate(model, data=data, estimator="forward")
