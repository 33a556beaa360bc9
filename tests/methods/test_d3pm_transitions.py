"""The matrices of D3PM: stochastic, with the distribution they are said to keep, by the formulas of the paper and by brute
force."""

import itertools
import math

import numpy as np
import pytest
import torch

from testing.worlds import numbers
from zellige.base.errors import InputError
from zellige.core import maths
from zellige.core.matrices import Chain, Kernels, afford
from zellige.core.process import Mixture, Process
from zellige.core.process import absorbing as absorbing_noise
from zellige.core.process import uniform as uniform_noise
from zellige.core.schedule import CLEAN, PRIOR, Tabulated
from zellige.methods import d3pm_transitions as tr
from zellige.methods.d3pm_noise import read_embedding
from zellige.methods.d3pm_transitions import table

D = torch.float64
close = torch.testing.assert_close
SIZES = (2, 3, 8, 27)


def strengths_of(process: Process) -> torch.Tensor:
    """How strong each step of a chain is, (T,)."""
    assert isinstance(process, Chain)
    assert isinstance(process.steps, Kernels)
    return process.steps.strengths


def embedding(N: int = 12, d: int = 3, seed: int = 5) -> torch.Tensor:
    return 2 * numbers(N, d, seed=seed) - 1


def kernels(K: int, beta: float):
    """Every matrix that is said to be doubly stochastic and symmetric."""
    yield tr.uniform(K, beta)
    for width in (0, 1, K - 1):
        yield tr.gaussian(K, beta, width)
    for width in range(1, K):
        yield tr.band(K, min(beta, K / (2 * width)), width)
    if K > 2:
        yield torch.linalg.matrix_exp(beta * tr.nearest(embedding(K), min(2, K - 1)))


# ---------------------------------------------------------------------------------- one matrix
@pytest.mark.parametrize("K", SIZES)
@pytest.mark.parametrize("beta", [1e-4, 0.02, 0.3, 1.0])
def test_doubly_stochastic_and_symmetric(K, beta):
    for Q in kernels(K, beta):
        assert Q.shape == (K, K)
        assert Q.dtype == D
        assert (Q >= -1e-16).all()
        close(Q.sum(0), torch.ones(K, dtype=D), rtol=0, atol=1e-13)
        close(Q.sum(1), torch.ones(K, dtype=D), rtol=0, atol=1e-13)
        close(Q, Q.mT, rtol=0, atol=1e-15)


@pytest.mark.parametrize("K", SIZES)
def test_absorbing_keeps_its_state_and_nothing_else(K):
    for state in (0, K // 2, K - 1):
        Q = tr.absorbing(K, 0.3, state)
        close(Q.sum(1), torch.ones(K, dtype=D))
        stays = torch.zeros(K, dtype=D).index_fill(0, torch.tensor(state), 1.0)
        close(stays @ Q, stays)
        close(torch.linalg.matrix_power(Q, 200), stays.expand(K, K), rtol=0, atol=1e-12)


@pytest.mark.parametrize("beta", [0.01, 0.2, 1.0, 30.0])
@pytest.mark.parametrize("K", [2, 3, 8])
def test_gaussian_is_eq_8(K, beta):
    f = lambda n: math.exp(-4 * n * n / ((K - 1) ** 2 * beta))  # noqa: E731
    whole = sum(f(n) for n in range(-(K - 1), K))
    Q = tr.gaussian(K, beta)
    for i, j in itertools.product(range(K), repeat=2):
        expected = f(i - j) / whole if i != j else 1 - sum(f(i - k) for k in range(K) if k != i) / whole
        assert float(Q[i, j]) == pytest.approx(expected, rel=1e-12, abs=1e-16)


def test_ends_of_the_gaussian():
    """No noise at beta = 0; where it is wide every jump is as likely, 1/(2K - 1), and a chain of it forgets."""
    for K in SIZES:
        close(tr.gaussian(K, 1e-9), torch.eye(K, dtype=D), rtol=0, atol=1e-300)
        wide = torch.full((K, K), 1 / (2 * K - 1), dtype=D)
        close(
            tr.gaussian(K, 1e9).masked_fill(torch.eye(K, dtype=torch.bool), 0),
            wide.fill_diagonal_(0),
            rtol=1e-7,
            atol=0,
        )
        far = torch.linalg.matrix_power(tr.gaussian(K, 1.0), 4000)
        close(far, torch.full_like(far, 1 / K), rtol=0, atol=1e-10)


def test_gaussian_has_the_variance_of_a_gaussian():
    """Far from the ends of many levels: jumps of variance (K - 1)^2 beta / 8."""
    K, n = 401, torch.arange(-200, 201, dtype=D)
    for beta in (0.002, 0.01):
        row = tr.gaussian(K, beta)[200]
        close((row * n**2).sum(), torch.tensor((K - 1) ** 2 * beta / 8, dtype=D), rtol=1e-6, atol=0)


@pytest.mark.parametrize("K", [3, 8])
def test_band_has_its_width(K):
    n = (torch.arange(K)[:, None] - torch.arange(K)).abs()
    for width in range(1, K):
        Q = tr.band(K, 0.3, width)
        close(Q[(n > 0) & (n <= width)], torch.full((int(((n > 0) & (n <= width)).sum()),), 0.3 / K, dtype=D))
        assert (Q[n > width] == 0).all()
        wide = tr.gaussian(K, 0.3, width)
        assert (wide[n > width] == 0).all()
        assert (wide[n <= width] > 0).all()
    close(tr.band(K, 0.3, K - 1), tr.uniform(K, 0.3))
    close(tr.gaussian(K, 0.3, K - 1), tr.gaussian(K, 0.3))


def test_small_betas_change_little_and_in_proportion():
    """(Q - I)/beta tends to a rate matrix, where there is one."""
    K = 5
    for f in (lambda b: tr.uniform(K, b), lambda b: tr.absorbing(K, b, 2), lambda b: tr.band(K, b, 2),
              lambda b: torch.linalg.matrix_exp(b * tr.nearest(embedding(K), 2))):  # fmt: skip
        rate = [(f(b) - torch.eye(K, dtype=D)) / b for b in (1e-4, 1e-5)]
        close(rate[0], rate[1], rtol=0, atol=2e-4)
        close(rate[1].sum(-1), torch.zeros(K, dtype=D), rtol=0, atol=1e-9)
        assert (rate[1].masked_fill(torch.eye(K, dtype=torch.bool), 0) >= 0).all()


def test_no_entry_is_so_small_that_a_ratio_overflows():
    Q = tr.gaussian(256, 1e-4)
    assert float(Q[Q > 0].min()) > 1e-61
    assert (Q[0] > 0).sum() < 20


# ---------------------------------------------------------------------------------- nearest neighbours
@pytest.mark.parametrize("k", [1, 2, 5])
def test_neighbours_by_brute_force(k):
    e = embedding()
    for i, found in enumerate(tr.neighbours(e, k).tolist()):
        order = sorted((float((e[i] - e[j]).square().sum()), j) for j in range(len(e)) if j != i)
        assert found == [j for _, j in order[:k]]
    line = tr.neighbours(torch.arange(4)[:, None], 1)
    assert line[:, 0].tolist() == [1, 0, 1, 2]  # the lower of two as near


@pytest.mark.parametrize("k", [1, 3])
def test_nearest_is_eq_9(k):
    e = embedding()
    R, near = tr.nearest(e, k), tr.neighbours(e, k).tolist()
    for i, j in itertools.product(range(len(e)), repeat=2):
        if i != j:
            assert float(R[i, j]) == ((j in near[i]) + (i in near[j])) / (2 * k)
    close(R, R.mT)
    close(R.sum(-1), torch.zeros(len(e), dtype=D))
    assert 0.5 <= float(-R.diagonal().mean()) <= 1.0 + 1e-12  # a token has k neighbours on the mean


@pytest.mark.parametrize("schedule", ["linear", "cosine", "mutual-information"])
def test_graph_is_the_exponential_of_sums(schedule):
    """Q_{0,t} = exp(a_t R) with R of eq. 9, one step after the other or at once (A.4, eq. 16)."""
    e, T = embedding(), 12
    P, R = tr.graph(e, 3, T, schedule), tr.nearest(e, 3)
    slowest = -torch.linalg.eigvalsh(R)[-2]
    step = torch.eye(len(e), dtype=D)
    for i in range(1, T):
        a = -torch.log(P.schedule.alpha(i / T))[0] / slowest
        close(P.matrix(CLEAN, i / T), torch.linalg.matrix_exp(a * R), rtol=0, atol=1e-12)
        step = step @ P.matrix((i - 1) / T, i / T)
        close(step, P.matrix(CLEAN, i / T), rtol=0, atol=1e-12)
        mode = torch.linalg.eigh(R).eigenvectors[:, -2]
        close(
            mode @ step, P.schedule.alpha(i / T) * mode, rtol=0, atol=1e-12
        )  # alpha is what is left of the slowest mode
    close(P.prior, torch.full((len(e),), 1 / len(e), dtype=D))
    assert (P.matrix(CLEAN, 1 / T) > 0).all()
    assert P.T == T


def test_graph_loses_information_evenly():
    """A.7: t/T of the information is gone at t, whatever the distribution of x_0."""
    e, T = embedding(20, 2), 40
    weights = numbers(20, seed=3) ** 2 + 0.01
    for distribution in (None, weights / weights.sum()):
        P = tr.graph(e, 4, T, "mutual-information", distribution)
        p = torch.full((20,), 1 / 20, dtype=D) if distribution is None else distribution
        for i in range(1, T):
            assert 1 - float(tr.kept(P.matrix(CLEAN, i / T), p)) == pytest.approx(i / T, abs=3e-4)
        close(P.matrix(CLEAN, 1.0), P.prior.expand(20, -1))


def test_information_by_enumeration():
    distribution, Q = torch.tensor([0.2, 0.5, 0.3], dtype=D), tr.gaussian(3, 0.7)
    joint = distribution[:, None] * Q
    entropy = lambda p: -sum(float(v) * math.log(float(v)) for v in p.reshape(-1) if v > 0)  # noqa: E731
    expected = (entropy(distribution) + entropy(joint.sum(0)) - entropy(joint)) / entropy(distribution)
    assert float(tr.kept(Q, distribution)) == pytest.approx(expected, rel=1e-12)
    assert float(tr.kept(torch.eye(3, dtype=D), distribution)) == pytest.approx(1.0)
    assert float(tr.kept(distribution.expand(3, -1), distribution)) == pytest.approx(0.0, abs=1e-15)


def test_informed_masks_are_masked_in_proportion():
    """At the mask the schedule is 1/(T - i + 1), whatever the distribution (A.7)."""
    distribution = torch.tensor([0.2, 0.5, 0.3, 0.0], dtype=D)
    removed = torch.tensor([0.05, 0.3, 0.5, 0.95], dtype=D)
    exponents = tr.informed(lambda a: tr.absorbing(4, 1 - math.exp(-a), 3), distribution, removed)
    close(1 - torch.exp(-exponents), removed, rtol=2e-4, atol=0)


# ---------------------------------------------------------------------------------- how much noise
def test_a_long_chain_loses_everything_before_its_end():
    """beta from 0.02 to 1: the product of 1 - beta is below any float64 before its end, and alpha decreases to 0 all the same."""
    alpha = table("linear-to-one", 1000, 256, False)
    product = (1 - torch.linspace(0.02, 1.0, 1000, dtype=torch.float64)).cumprod(0)
    assert (alpha.diff() < 0).all()
    assert alpha[-1] == product[-2] == 0
    torch.testing.assert_close(alpha[1:300], product[:299])


def test_betas():
    for T in (1, 10, 1000):
        i = torch.arange(1, T + 1, dtype=D)
        close(tr.betas("mutual-information", T), 1 / (T - i + 1), rtol=1e-9, atol=0)
        alpha = table("cosine", T, 9, True)
        close((1 - tr.betas("cosine", T)).cumprod(0), alpha[1:])
    close(tr.betas("linear", 1000), torch.linspace(1e-4, 0.02, 1000, dtype=D), rtol=1e-9, atol=0)


@pytest.mark.parametrize("K", [2, 5, 16, 64])
def test_left_is_nearly_the_second_eigenvalue(K):
    """Never more, since it is a Rayleigh quotient, and for weak noise hardly less."""
    for beta, near in ((0.01, 1e-3), (0.3, 0.03)):
        for jumps, Q in (
            (tr.gaussian_jumps(K, torch.tensor([beta], dtype=D)), tr.gaussian(K, beta)),
            (tr.band_jumps(K, torch.tensor([beta], dtype=D), max(K // 4, 1)), tr.band(K, beta, max(K // 4, 1))),
        ):
            second = float(torch.linalg.eigvalsh(Q)[-2])
            assert second - near <= float(tr.left(jumps)[0]) <= second + 1e-12


@pytest.mark.parametrize(("K", "T", "same"), [(256, 1000, True), (256, 100, True), (32, 1000, False), (8, 100, False)])
def test_a_gaussian_kernel_has_the_betas_of_the_paper_where_they_forget(K, T, same):
    """DDPM's betas, 1e-4 to 0.02 in 1,000 steps, to the last digit; on few levels e^-6 of the slowest mode is never reached."""
    beta = torch.linspace(0.1 / T, 20 / T, T, dtype=D)
    P = tr.levels("gaussian", K, T, "linear")
    assert bool((strengths_of(P) / beta - 1).abs().max() < 1e-12) is same
    whole = P.matrix(CLEAN, 1.0)
    assert float(torch.linalg.eigvalsh((whole + whole.mT) / 2)[-2]) < math.exp(-5.9)
    assert (math.prod(tr.left(tr.gaussian_jumps(K, beta)).tolist()) < math.exp(-6)) is same


def test_many_levels_matched_have_nearly_the_betas_of_the_paper():
    beta = tr.betas("linear", 1000)
    for K, more in ((256, 0.01), (1024, 0.004)):
        each = tr.strengths(lambda b, K=K: tr.gaussian_jumps(K, b), beta)
        close(each, beta, rtol=more, atol=0)
        close(each, beta * (K / (K - 1)) ** 2, rtol=2e-3, atol=0)


@pytest.mark.parametrize("K", [2, 8, 40])
def test_each_step_takes_as_much_of_the_slowest_mode_as_on_many_levels(K):
    T = 200
    beta = tr.betas("linear", T)
    width = max(K // 4, 1)
    for jumps, kernel, most in (
        (tr.gaussian_jumps, tr.gaussian, tr.STRONGEST),
        (lambda K, b: tr.band_jumps(K, b, width), lambda K, b: tr.band(K, b, width), K / (2 * width + 1)),
    ):
        each = tr.strengths(lambda b, f=jumps: f(K, b), beta, most)
        close(tr.left(jumps(K, each)), torch.exp(-(math.pi**2) * beta / 16), rtol=1e-9, atol=0)
        whole = torch.eye(K, dtype=D)
        for b in each.tolist():
            whole = whole @ kernel(K, b)
        assert math.exp(-6.5) < float(torch.linalg.eigvalsh((whole + whole.mT) / 2)[-2]) < math.exp(-5.5)
    assert float(tr.left(tr.gaussian_jumps(8, tr.betas("linear", 1000))).prod()) > 0.6  # the paper's would not do


@pytest.mark.parametrize("kind", ["gaussian", "band"])
@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize(("K", "T"), [(2, 16), (3, 256), (8, 40), (30, 100)])
def test_chains_forget(kind, schedule, K, T):
    P = tr.levels(kind, K, T, schedule)
    assert isinstance(P, Chain)
    assert float(P.divergence(torch.arange(K), 1.0).max()) < 1e-4
    assert P.start_time == 1.0
    close(P.prior, torch.full((K,), 1 / K, dtype=D))
    strengths = strengths_of(P)
    assert (strengths.diff() >= -1e-12).all()
    step = torch.eye(K, dtype=D)
    for i in range(1, T + 1):
        step = step @ P.matrix((i - 1) / T, i / T)
    close(step, P.matrix(CLEAN, 1.0), rtol=0, atol=1e-12)


def test_a_narrow_band_forgets_as_far_as_it_can():
    """One level at a time over 64 levels in 20 steps: the strongest band there is, and the prior's term says what is left."""
    P = tr.levels("band", 64, 20, "linear", width=1)
    assert float(strengths_of(P).max()) == pytest.approx(64 / 3)
    close(P.matrix(19 / 20, 1.0)[30, 29:32], torch.full((3,), 1 / 3, dtype=D))
    assert float(P.divergence(torch.tensor(0), 1.0)) > 1.0


def test_mixtures_are_chains_of_their_matrices():
    """What needs no matrix is what the matrices say: uniform, absorbing into the mask, and into the middle level."""
    T, K = 6, 5
    beta = tr.betas("cosine", T).tolist()
    alpha = Tabulated(table("cosine", T, K, True))
    grey = torch.zeros(K, dtype=D).index_fill(0, torch.tensor(K // 2), 1.0)
    for mixture, Q in (
        (uniform_noise(K, alpha), lambda b: tr.uniform(K, b)),
        (absorbing_noise(K, alpha), lambda b: tr.absorbing(K, b, K - 1)),
        (Mixture(grey, alpha), lambda b: tr.absorbing(K, b, K // 2)),
    ):
        chain = Chain([Q(b) for b in beta], mixture.prior, mixture.mask, mixture.clean)
        for s, t in itertools.combinations([CLEAN, *(i / T for i in range(T + 1)), PRIOR], 2):
            close(chain.matrix(s, t), mixture.matrix(s, t), rtol=1e-6, atol=1e-7)


def test_steps_are_made_when_asked():
    made = []

    def kernel(b):
        made.append(b.tolist())
        return torch.stack([tr.uniform(3, float(one)) for one in b])

    steps = Kernels(kernel, torch.tensor([0.1, 0.2, 0.3], dtype=D))
    assert len(steps) == 3
    assert made == []
    close(torch.stack(list(steps)), torch.stack([tr.uniform(3, b) for b in (0.1, 0.2, 0.3)]))
    close(steps.of([2, 0], torch.device("cpu")), torch.stack([tr.uniform(3, b) for b in (0.3, 0.1)]))
    assert made == [[0.1], [0.2], [0.3], [0.3, 0.1]]


# ---------------------------------------------------------------------------------- wrong input
def test_wrong_choices_are_one_line(tmp_path):
    def said(f, *args):
        with pytest.raises(InputError) as error:
            f(*args)
        assert "\n" not in str(error.value)
        return str(error.value)

    e = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
    assert (
        said(tr.graph, e, 1, 4, "linear")
        == "the graph of the 1 nearest tokens falls into 2 parts; give more `neighbours`"
    )
    assert said(tr.nearest, e, 4) == "`neighbours` is 4; with 4 tokens it must be from 1 to 3"
    assert said(tr.nearest, e, 0) == "`neighbours` is 0; with 4 tokens it must be from 1 to 3"
    assert said(tr.levels, "band", 8, 10, "linear", 8) == "`width` is 8; with 8 levels it must be from 0 to 7"
    assert said(tr.levels, "gaussian", 50_000, 10, "linear") == said(afford, 50_000)

    file = tmp_path / "e.npy"
    assert said(read_embedding, str(file), 4).startswith(f"no file at '{file}'; ")
    file.write_text("words")
    assert said(read_embedding, str(file), 4).startswith(f"'{file}' is no array; ")
    for array, wrong in ((np.zeros(4), "is no table of numbers; "), (np.zeros((4, 2), dtype="U3"), "is no table of numbers; "),
                         (np.zeros((5, 2)), "has 5 rows and the vocabulary 4 tokens; "),
                         (np.full((4, 2), np.nan), "has entries that are not finite; ")):  # fmt: skip
        np.save(file, array)
        assert said(read_embedding, str(file), 4).startswith(f"'{file}' {wrong}")
    np.save(file, np.array([[1, 2]], dtype=object), allow_pickle=True)
    assert said(read_embedding, str(file), 4).startswith(f"'{file}' is no array; ")
    np.save(file, np.array([[0, 1], [2, 3]], dtype=np.float32))
    close(read_embedding(str(file), 2), torch.tensor([[0.0, 1.0], [2.0, 3.0]], dtype=D))
    np.savez(tmp_path / "e.npz", a=np.zeros((4, 2)))
    assert "is no table of numbers" in said(read_embedding, str(tmp_path / "e.npz"), 4)


def test_kl_of_rows_is_finite_where_entries_are_cut():
    P = tr.levels("gaussian", 64, 50, "linear")
    x_0 = torch.arange(64)
    distribution = P.marginal(x_0, 1 / 50)
    assert torch.isfinite(maths.kl(distribution, P.marginal(x_0, 2 / 50))).all()
