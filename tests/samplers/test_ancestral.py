"""Ancestral sampling: choose-then-ask against the plain kernel, its order, its grids."""

import math

import pytest
import torch

from testing.pairs import close, d3pm, denoiser, distance, genmd4, md4, mdlm, sedd
from testing.worlds import CTMC, L, V, data_distribution, generator_matrix, per_token, table
from zellige import exact
from zellige.base.errors import InputError
from zellige.core.curves import Geometric, Linear, Polynomial
from zellige.core.prediction import kernel
from zellige.core.process import absorbing, uniform
from zellige.core.schedule import CLEAN, PRIOR
from zellige.methods import MD4, MDLM, RADD, SEDD
from zellige.samplers import Ancestral, Euler, TauLeaping, run

D = torch.float64
METHODS = {
    "mdlm": mdlm,
    "mdlm, mask in the middle": lambda: mdlm(1),
    "md4": md4,
    "an exponent per token": genmd4,
    "sedd": sedd,
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("heat", [{}, {"temperature": 0.5}, {"top_p": 0.7}, {"temperature": 0.0}])
@torch.no_grad()
def test_choose_then_ask_has_the_distribution_of_the_plain_kernel(name, heat):
    method = METHODS[name]()
    for grid, T in (("uniform", 1), ("cosine", 3)):
        chosen, plain = (exact.sample_distribution(Ancestral(grid, choose=c, **heat), method, T) for c in (True, False))
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


ENDS = [(s, m) for s in (Ancestral, TauLeaping) for m in METHODS] + [
    (TauLeaping, "uniform"),
    (TauLeaping, "leapt over"),
]


@pytest.mark.parametrize(("sampler", "name"), ENDS)
@torch.no_grad()
def test_the_last_step_by_argmax(sampler, name):
    """The steps before it draw as ever; then the likeliest clean text of the kernel, from each state."""
    method = denoiser(uniform(V, Linear(1e-2))) if name not in METHODS else METHODS[name]()
    method.ordered = name == "leapt over"
    last = sampler(argmax="last")
    times = last.times(method, 4)
    ours, plain = (exact.sample_distributions(s, method, times) for s in (last, sampler()))
    close(ours[:-1], plain[:-1], rtol=0, atol=1e-12)
    X = exact.states(method.process.K, L)
    each = kernel(method.predict(X, times[-2]), times[-1].expand(X.shape)).argmax(-1)
    close(ours[-1], torch.zeros(len(X), dtype=D).index_add(0, exact.index(each, method.process.K), plain[-2]))
    assert not torch.allclose(ours[-1], plain[-1])


@torch.no_grad()
def test_argmax_in_every_step_leaves_nothing_to_chance():
    """But for the start; of noise that absorbs not even that. A prompt is kept."""
    method, sampler = mdlm(), Ancestral(argmax="every")
    distribution = exact.sample_distribution(sampler, method, 3)
    assert sorted(distribution.tolist())[-2:] == [0.0, 1.0]
    fixed = torch.tensor([[1, -1]])
    draws = [
        list(run(sampler, method, (1, L), 3, fixed=fixed, generator=torch.Generator().manual_seed(s)))[-1].x
        for s in (0, 1)
    ]
    assert torch.equal(*draws)
    assert draws[0][0, 0] == 1
    for wrong in ({"argmax": "first"}, {"argmax": ""}):
        with pytest.raises(InputError, match=r"`argmax` is .*; it must be none, last, every or mu"):
            Ancestral(**wrong)
    with pytest.raises(InputError, match="`argmax` is 'every'; it must be none or last"):
        TauLeaping(argmax="every")


@torch.no_grad()
def test_argmax_of_mu_leaves_out_what_x_t_says():
    """The last step to the most probable token of the network's softmax; a kernel multiplies in q(x_t | x_0) (uniform
    noise)."""
    method, X = denoiser(uniform(V, Linear(0.01)), "leave_one_out"), exact.states(V, L)
    state = Ancestral().init(method, X.shape)
    state = type(state)(X, state.fixed, state.calls)
    t, clean = (torch.tensor(time, dtype=D) for time in (0.6, CLEAN))
    pred = method.predict(X, t)
    of_mu, of_kernel = (
        exact.transition(Ancestral(argmax=argmax), method, state, t, clean).argmax(-1) for argmax in ("mu", "last")
    )
    assert torch.equal(X[of_mu], pred.mu.argmax(-1))
    assert torch.equal(X[of_kernel], kernel(pred, CLEAN).argmax(-1))
    assert not torch.equal(of_mu, of_kernel)
    earlier = (exact.transition(Ancestral(argmax=argmax), method, state, t, t / 2) for argmax in ("mu", "none"))
    assert torch.equal(*earlier)
    with pytest.raises(InputError, match="needs a network that predicts clean tokens, and this one gives a score"):
        exact.transition(Ancestral(argmax="mu"), sedd(True), state, t, clean)


# ---------------------------------------------------------------------------------- against the data's distribution
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
    exact_method, data = denoiser(P), exact.embed(P, data_distribution(), L)
    a, b = (distance(exact.sample_distribution(Ancestral(), exact_method, T), data) for T in (64, 128))
    assert math.log2(a / b) == pytest.approx(1.0, abs=0.15)
    assert b < 0.02


@torch.no_grad()
def test_discrete_time():
    """T steps are the T-step model; fewer skip times of its grid, whether they divide T or not."""
    for method in (d3pm(), d3pm(uniformly=True)):
        clean = method.process.clean[exact.states(method.process.K, L)].all(-1)
        for T, grid in ((12, "uniform"), (6, "uniform"), (5, "uniform"), (5, "cosine"), (1, "uniform"), (None, "0.3")):
            times = Ancestral(grid).times(method, T)
            close(times[1:-1] * 12, (times[1:-1] * 12).round())
            distribution = exact.sample_distribution(Ancestral(), method, times)
            close(distribution[clean], exact.log_likelihood(method, times).exp(), rtol=0, atol=1e-12)
    with pytest.raises(InputError) as error:
        Ancestral().times(d3pm(), 1000)
    assert str(error.value) == "1,000 steps are more than the 12 of exact; use 12 or fewer"
    with pytest.raises(
        InputError, match="grid 'log-snr' needs continuous time; exact has 12 steps, use uniform or cosine"
    ):
        Ancestral("log-snr").times(d3pm(), 6)


# ---------------------------------------------------------------------------------- grids
def test_grids_run_from_where_the_process_starts_to_clean():
    """Even over the span: (0, 1 + alpha_1) with a mask, else (0, 1)."""
    method, other = mdlm(), denoiser(uniform(V, Linear()))
    for grid, inside in (
        ("uniform", [0.75, 0.5, 0.25]),
        ("cosine", [math.cos(math.pi / 2 * u) for u in (0.25, 0.5, 0.75)]),
    ):
        times = Ancestral(grid).times(method, 4)
        close(times[1:-1], (1 + 1e-3) * torch.tensor(inside, dtype=D))
        assert (times[0], times[-1]) == (PRIOR, CLEAN)
        times = Ancestral(grid).times(other, 4)
        close(times[1:-1], torch.tensor(inside, dtype=D))
        assert (times[0], times[-1]) == (1.0, CLEAN)
    assert len(Ancestral().times(method, 1)) == 2
    assert len(Ancestral().times(method, None)) == 65
    with pytest.raises(InputError, match="`steps` is 0; it must be 1 or more"):
        Ancestral().times(method, 0)
    with pytest.raises(
        InputError,
        match=r"unknown grid 'sine'; auto, uniform, cosine, log-snr, published, or the size of a step, such as 0\.05",
    ):
        Ancestral("sine")


def test_published_grids():
    """From t = 1 in even steps to 1e-5, and one more to clean tokens; RADD has no such step, MD4 ends at 0."""
    even = torch.linspace(1, 1e-5, 5, dtype=D)
    network, clean = None, torch.tensor([CLEAN], dtype=D)
    for method in (MDLM(network, V, (L,)), SEDD(network, V, (L,), SEDD.Config("uniform"))):
        assert torch.equal(Ancestral("published").times(method, 4), torch.cat((even, clean)))
    assert torch.equal(Euler("published").times(RADD(network, V, (L,)), 4), torch.cat((even[:-1], clean)))
    last = Ancestral("published").times(md4("linear"), 4)
    close(last, torch.cat((torch.sin(math.pi / 2 * torch.linspace(1, 0, 5, dtype=D)), clean)))
    with pytest.raises(InputError, match="grid 'published' is not known of exact; use uniform"):
        Ancestral("published").times(denoiser(uniform(V, Linear())), 4)


@torch.no_grad()
def test_on_the_published_grid_the_distribution_is_that_of_its_times():
    """Choosing first changes nothing, and as steps grow the distribution is the data's but for the first and the last of the
    times."""
    method = denoiser(absorbing(V + 1, Linear()))
    method.published_end = 0.01
    chosen, plain = (exact.sample_distribution(Ancestral("published", choose=c), method, 3) for c in (True, False))
    close(chosen, plain, rtol=0, atol=1e-12)
    clean = (exact.states(V + 1, L) < V).all(-1)
    few, many = (
        distance(exact.sample_distribution(Ancestral("published"), method, T)[clean], data_distribution())
        for T in (8, 64)
    )
    assert many < few / 4


def test_a_grid_by_the_size_of_its_steps():
    times = Ancestral("0.3").times(mdlm(), None)
    close(times[1:-1], torch.tensor([0.7, 0.4, 0.1], dtype=D))
    assert (times[0], times[-1]) == (PRIOR, CLEAN)
    close(Ancestral("0.25").times(mdlm(), None)[1:-1], torch.tensor([0.75, 0.5, 0.25], dtype=D))  # it divides 1
    assert len(Euler("1").times(mdlm(), None)) == 2
    with pytest.raises(InputError, match=r"grid 0\.3 says how many steps there are; leave out `steps`"):
        Ancestral("0.3").times(mdlm(), 4)
    for size in ("0", "-1", "2", "nan"):
        with pytest.raises(InputError, match="it must be between 1e-06 and 1"):
            Ancestral(size)


def test_md4_has_the_grid_of_its_paper():
    """Its linear schedule on its own grid steps through the alphas of the cosine schedule on the uniform one (MD4, eq. 6).

    But for the ends, where both are linear in t: over the span the alphas differ by eps at most.
    """
    linear, cosine = md4("linear"), md4("cosine")
    eps = 1 - linear.process.schedule.alpha_0
    for sampler in (Ancestral(), Euler(), TauLeaping()):
        own, theirs = sampler.times(linear, 7), sampler.times(cosine, 7)
        close(theirs[1:-1], -eps + (1 + 2 * eps) * torch.arange(6, 0, -1, dtype=D) / 7)
        close(linear.process.schedule.alpha(own), cosine.process.schedule.alpha(theirs), rtol=0, atol=eps)
    close(Ancestral("uniform").times(linear, 7), Ancestral("uniform").times(cosine, 7))
    discrete = MD4(None, V, (L,), MD4.Config(diffusion_steps=4))
    close(Ancestral().times(discrete, 4), Ancestral("uniform").times(discrete, 4))


@torch.no_grad()
def test_the_log_snr_grid():
    """Even in log alpha/(1 - alpha); an infinite end is where the uniform grid's last or first step stands."""
    for noise, last in ((Geometric(1e-3, 8.0), 0.0), (Linear(1e-3), 1 / 8)):
        method = denoiser(uniform(V, noise))
        times = Ancestral("log-snr").times(method, 8)
        snr = noise.log_snr(torch.cat((times[:-1], torch.tensor([last], dtype=D))))[:, 0]
        close(snr.diff(), snr.diff().mean().expand(8), rtol=1e-9, atol=1e-9)
        assert (times[0], times[-1]) == (1.0, CLEAN)
        data, distribution = exact.embed(method.process, data_distribution(), L), []
        for T in (64, 128):
            distribution.append(distance(exact.sample_distribution(Ancestral("log-snr"), method, T), data))
        assert distribution[1] < 0.6 * distribution[0]
    with pytest.raises(
        InputError, match="grid 'log-snr' needs one alpha for all tokens; with exact use uniform or cosine"
    ):
        Ancestral("log-snr").times(genmd4(), 4)


@torch.no_grad()
def test_the_log_snr_grid_amplifies_a_wrong_score_less():
    """A score that is wrong by 5% at alternate tokens, uniform noise, 16 steps: nearer to the distribution than the grid even
    in t."""
    method = sedd(uniformly=True)
    exact_predict, wrong = method.predict, torch.tensor([1.05, 0.95, 1.05], dtype=D)

    def predict(x_t, t, **how):
        pred = exact_predict(x_t, t, **how)
        v = pred.v * wrong
        return type(pred)(pred.process, v.scatter(-1, pred.x_t[..., None], 1.0), pred.x_t, pred.t)

    method.predict = predict  # type: ignore[method-assign]
    data = exact.embed(method.process, data_distribution(), L)
    even, snr = (
        distance(exact.sample_distribution(Ancestral(grid), method, 16), data) for grid in ("uniform", "log-snr")
    )
    assert snr < even


@torch.no_grad()
def test_own_times_are_taken_as_they_are():
    method = mdlm()
    own = [PRIOR, 0.7, 0.1, CLEAN]
    states = list(run(Ancestral(), method, (50, L), own, generator=torch.Generator().manual_seed(0)))
    assert len(states) == 4
    assert (states[-1].x < V).all()


@torch.no_grad()
def test_the_mask_is_never_drawn_even_if_the_network_wants_it():
    network = table(V + 1, L)
    network.logits.data[..., V] = 1e4
    for choose in (True, False):
        distribution = exact.sample_distribution(Ancestral(choose=choose), MDLM(network, V, (L,)), 3)
        assert (distribution[(exact.states(V + 1, L) == V).any(-1)] == 0).all()
        close(distribution.sum(), torch.ones((), dtype=D))
