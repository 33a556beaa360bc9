"""Samplers: their law, as the enumeration of their own code, against the law they claim; and what they cost."""

import itertools
import math

import pytest
import torch

from tessella import exact
from tessella.errors import InputError
from tessella.methods import MD4, MDLM
from tessella.prediction import posterior
from tessella.process import absorbing, uniform
from tessella.samplers import SAMPLERS, Ancestral, FirstHitting, run
from tessella.schedule import CLEAN, PRIOR, Linear, Polynomial
from worlds import CTMC, Counting, Given, L, V, data_law, five_sigma, generator_matrix, per_token, table

D = torch.float64
close = torch.testing.assert_close


def mdlm(mask=V):
    return MDLM(table(V + 1, L), V, (L,), mask=mask)


def md4(schedule="cosine"):
    return MD4(table(V + 1, L, time=True), V, (L,), MD4.Config(schedule, eps=0.02))


def genmd4():
    """The exact network of an absorbing process with one exponent for each token."""
    return exact.Denoiser(absorbing(V + 1, Polynomial(per_token(0.5, 1.0, 2.5, 1.0))), data_law(), L)


def distance(p, q):
    return float((p - q).abs().sum()) / 2


# ---------------------------------------------------------------------------------- choose, then ask
METHODS = {"mdlm": mdlm, "mdlm, mask in the middle": lambda: mdlm(1), "md4": md4, "an exponent per token": genmd4}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("heat", [{}, {"temperature": 0.5}, {"top_p": 0.7}, {"temperature": 0.0}])
@torch.no_grad()
def test_choose_then_ask_has_the_law_of_the_plain_kernel(name, heat):
    method = METHODS[name]()
    for grid, T in (("uniform", 1), ("uniform", 2), ("cosine", 5)):
        chosen, plain = (exact.sample_law(Ancestral(grid, choose=c, **heat), method, T) for c in (True, False))
        close(chosen, plain, rtol=0, atol=1e-12)
        close(chosen.sum(), torch.ones((), dtype=D))
        assert (chosen[(exact.states(V + 1, L) == method.process.mask).any(-1)] < 1e-12).all()  # no mask is left
        if not heat:
            times = Ancestral(grid).times(method, T)
            clean = method.process.clean[exact.states(V + 1, L)].all(-1)
            close(chosen[clean], exact.log_likelihood(method, times).exp(), rtol=0, atol=1e-12)


@torch.no_grad()
def test_rows_may_stand_at_different_times():
    method, X = mdlm(), exact.states(V + 1, L)
    t, s = torch.rand(2, len(X), 1, generator=torch.Generator().manual_seed(0), dtype=D).sort(0, descending=True).values
    state = Ancestral().init(method, X.shape)
    state = type(state)(X, state.fixed, state.calls)
    for choose in (True, False):
        together = exact.transition(Ancestral(choose=choose), method, state, t, s)
        for b in (0, 7, 15):
            alone = type(state)(X[b : b + 1], state.fixed[:1], state.calls[:1])
            close(exact.transition(Ancestral(choose=choose), method, alone, t[b : b + 1], s[b : b + 1])[0], together[b])


# ---------------------------------------------------------------------------------- against the data's law
PROCESSES = {
    "absorbing": absorbing(V + 1, Linear()),
    "an exponent per token": absorbing(V + 1, Polynomial(per_token(1.0, 1.3, 2.5, 1.0))),
    "uniform": uniform(V, Linear(0.0)),
    "ctmc": CTMC(8 * generator_matrix(V)),
}


@pytest.mark.parametrize("name", PROCESSES)
@torch.no_grad()
def test_ancestral_converges_with_order_1(name):
    P = PROCESSES[name]
    denoiser, data = exact.Denoiser(P, data_law(), L), exact.embed(P, data_law(), L)
    a, b = (distance(exact.sample_law(Ancestral(), denoiser, T), data) for T in (64, 128))
    assert math.log2(a / b) == pytest.approx(1.0, abs=0.15)
    assert b < 0.02


@torch.no_grad()
def test_first_hitting_has_no_error():
    for P in (PROCESSES["absorbing"], absorbing(V + 1, Linear(0.2), mask=0), absorbing(V + 1, Polynomial(3.0))):
        denoiser, data = exact.Denoiser(P, data_law(), L), exact.embed(P, data_law(), L)
        close(exact.sample_law(FirstHitting(), denoiser, L), data, rtol=0, atol=1e-12)
    method = mdlm()  # and of any time-free network: the any-order autoregressive model
    law = exact.sample_law(FirstHitting(), method, L)
    expected = torch.zeros_like(law)
    for order in itertools.permutations(range(L)):
        for x in exact.states(V, L):
            seen, p = torch.full((1, L), V), 1.0
            for i in order:
                p = p * posterior(method.predict(seen, 0.5))[0, i, x[i]]
                seen[0, i] = x[i]
            expected[exact.index(x, V + 1)] += p / math.factorial(L)
    close(law, expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_first_hitting_asks_at_the_exact_times():
    """One token, a network that sees the time: p = integral over m = 1 - alpha in (0, 1) of mu(t(m)). 20,000 samples within 5.5
    standard errors (a false alarm: 4e-8 a token)."""
    method = MD4(table(V + 1, 1, time=True), V, (1,), MD4.Config("polynomial", eps=0.1))
    method.network_time = lambda t: 3 * t  # type: ignore[method-assign]
    (*_, state) = run(FirstHitting(), method, (20_000, 1), generator=torch.Generator().manual_seed(0))
    m = ((torch.arange(4000) + 0.5) / 4000).double()
    t = method.process.schedule.inverse(1 - m)
    expected = posterior(method.predict(torch.full((4000, 1), V), t[:, None]))[:, 0].mean(0)
    drawn = torch.nn.functional.one_hot(state.x[:, 0], V + 1).double()
    assert five_sigma(drawn, expected)
    assert not five_sigma(drawn, posterior(method.predict(torch.full((1, 1), V), 1.0))[0, 0])  # it does see the time


@torch.no_grad()
def test_first_hitting_times():
    """With n masks left 1 - alpha falls by U^(1/n): the largest of n uniforms."""
    method = MDLM(table(V + 1, 3), V, (3,))
    sampler = FirstHitting()
    state = sampler.init(method, (1, 3))
    u = [0.3, 0.6, 0.2]
    for n, v in zip((3, 2, 1), u):
        before = float(state.memory)
        state = sampler.step(method, state, torch.tensor(0.0), torch.tensor(0.0), Given(1 - v, 0.5, 0.5))
        assert float(state.memory) == pytest.approx(before * v ** (1 / n))
        assert int((state.x == V).sum()) == n - 1
    assert int(state.calls) == 3
    with pytest.raises(InputError, match="needs absorbing noise"):
        sampler.init(exact.Denoiser(uniform(V, Linear()), data_law(), L), (1, L))
    with pytest.raises(InputError, match="needs one alpha"):
        list(run(sampler, genmd4(), (1, L)))


# ---------------------------------------------------------------------------------- given tokens
@pytest.mark.parametrize("given", [[1, -1], [-1, 0]])
@torch.no_grad()
def test_what_is_given_stays_and_the_rest_has_its_conditional_law(given):
    given = torch.tensor(given)
    for P in (PROCESSES["absorbing"], PROCESSES["an exponent per token"]):
        denoiser, X = exact.Denoiser(P, data_law(), L), exact.states(V + 1, L)
        law = exact.embed(P, data_law(), L) * ((given == X) | (given < 0)).all(-1)
        law = law / law.sum()
        samplers = [(Ancestral(), 1), (Ancestral(), 7), (Ancestral("cosine", choose=False), 4)]
        if P is PROCESSES["absorbing"]:
            samplers.append((FirstHitting(), L))
        for sampler, T in samplers:  # one gap: exact at any number of steps
            ours = exact.sample_law(sampler, denoiser, T, given)
            if P is PROCESSES["absorbing"]:
                close(ours, law, rtol=0, atol=1e-12)
            assert ours[~((given == X) | (given < 0)).all(-1)].abs().max() == 0
    everything = torch.tensor([[2, 1]])
    for sampler in (Ancestral(), FirstHitting()):
        counting = Counting(table(V + 1, L))
        (*_, state) = run(sampler, MDLM(counting, V, (L,)), (1, L), 3, fixed=everything)
        assert torch.equal(state.x, everything)
        assert int(state.calls) == sum(counting.rows) == 0


# ---------------------------------------------------------------------------------- cost
@torch.no_grad()
def test_calls_are_counted_and_at_most_one_a_token():
    length = 12
    counting = Counting(Uniform())
    method = MDLM(counting, V, (length,))
    for sampler, T in ((Ancestral(), 1), (Ancestral(), 4), (Ancestral(), 200), (FirstHitting(), None)):
        counting.rows, counting.heads = [], 0
        states = list(run(sampler, method, (5, length), T, generator=torch.Generator().manual_seed(0)))
        last = states[-1]
        assert int(last.calls.sum()) == sum(counting.rows)
        assert counting.heads == 5 * length  # the head once for each token
        assert (last.calls <= min(length, len(states) - 1)).all()
        assert (last.x < V).all()
        assert len(states) == (length if T is None else T) + 1
    counting.rows = []
    (*_, last) = run(Ancestral(choose=False), method, (5, length), 200, generator=torch.Generator().manual_seed(0))
    assert (last.calls == 200).all()


class Uniform(torch.nn.Module):
    """All tokens alike, whatever it sees."""

    def features(self, x, time=None, **kwargs):
        return torch.zeros(*x.shape, V + 1, dtype=D)

    def head(self, h):
        return h


# ---------------------------------------------------------------------------------- the stream of a row
def generators(*seeds):
    return [torch.Generator().manual_seed(s) for s in seeds]


SAMPLED = {
    "ancestral": (Ancestral(), mdlm),
    "ancestral, cosine, cold": (Ancestral("cosine", temperature=0.7, top_p=0.9), md4),
    "plain": (Ancestral(choose=False), md4),
    "an exponent per token": (Ancestral(), genmd4),
    "first_hitting": (FirstHitting(), mdlm),
    "uniform noise": (Ancestral(), lambda: exact.Denoiser(uniform(V, Linear()), data_law(), L)),
}


@pytest.mark.parametrize("name", SAMPLED)
@torch.no_grad()
def test_a_row_with_its_own_generator_does_not_see_its_batch(name):
    sampler, make = SAMPLED[name]
    method = make()
    for T in (2, 6, 20):
        fixed = torch.tensor([[-1, -1], [-1, 2], [-1, -1], [0, -1], [-1, -1], [-1, -1]])
        (*_, whole) = run(sampler, method, (6, L), T, fixed=fixed, generator=generators(*range(6)))
        for b in range(6):
            (*_, alone) = run(sampler, method, (1, L), T, fixed=fixed[b : b + 1], generator=generators(b))
            assert torch.equal(alone.x[0], whole.x[b])
            assert int(alone.calls) == int(whole.calls[b])


@torch.no_grad()
def test_the_same_seed_gives_the_same_samples():
    for sampler in (Ancestral(), FirstHitting()):
        a, b = (
            [s.x for s in run(sampler, mdlm(), (4, L), 5, generator=torch.Generator().manual_seed(7))] for _ in range(2)
        )
        assert all(torch.equal(x, y) for x, y in zip(a, b))
        assert (a[0] == V).all()


# ---------------------------------------------------------------------------------- grids
def test_grids_run_from_where_the_process_starts_to_clean():
    method, other = mdlm(), exact.Denoiser(uniform(V, Linear()), data_law(), L)
    for grid, inside in (
        ("uniform", [0.75, 0.5, 0.25]),
        ("cosine", [math.cos(math.pi / 2 * u) for u in (0.25, 0.5, 0.75)]),
    ):
        times = Ancestral(grid).times(method, 4)
        close(times[1:-1], torch.tensor(inside, dtype=D))
        assert (times[0], times[-1]) == (PRIOR, CLEAN)
        assert Ancestral(grid).times(other, 4)[0] == 1.0
    assert len(Ancestral().times(method, 1)) == 2
    assert FirstHitting().times(method, 1000).tolist() == [2, 1, 0]
    with pytest.raises(ValueError, match="1 or more"):
        Ancestral().times(method, 0)
    with pytest.raises(ValueError, match="unknown grid"):
        Ancestral("sine")


@torch.no_grad()
def test_own_times_are_taken_as_they_are():
    method = mdlm()
    own = [PRIOR, 0.7, 0.1, CLEAN]
    states = list(run(Ancestral(), method, (50, L), own, generator=torch.Generator().manual_seed(0)))
    assert len(states) == 4
    assert (states[-1].x < V).all()


def test_every_sampler_says_what_it_is():
    for name, cls in SAMPLERS.items():
        for field in ("error", "order", "needs", "calls"):
            assert isinstance(getattr(cls, field), str), name


@torch.no_grad()
def test_samples_of_the_real_generator_have_the_enumerated_law():
    """50,000 samples within 5.5 standard errors of each of the 16 probabilities (a false alarm: 6e-7 in all)."""
    for sampler, method, T in ((Ancestral(), md4(), 3), (Ancestral(choose=False), md4(), 3), (FirstHitting(), mdlm(), L),
                               (Ancestral(), genmd4(), 2)):  # fmt: skip
        law = exact.sample_law(sampler, method, T)
        (*_, state) = run(sampler, method, (50_000, L), T, generator=torch.Generator().manual_seed(1))
        drawn = torch.nn.functional.one_hot(exact.index(state.x, V + 1), len(law)).double()
        assert five_sigma(drawn, law)


@torch.no_grad()
def test_the_mask_is_never_drawn_even_if_the_network_wants_it():
    network = table(V + 1, L)
    network.logits.data[..., V] = 1e4
    for choose in (True, False):
        law = exact.sample_law(Ancestral(choose=choose), MDLM(network, V, (L,)), 3)
        assert (law[(exact.states(V + 1, L) == V).any(-1)] == 0).all()
        close(law.sum(), torch.ones((), dtype=D))
