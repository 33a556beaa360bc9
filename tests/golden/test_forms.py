"""The closed forms of this folder (FORMS), each at three sizes and with parameters that no recorded case has.

What the published code computes is written here once more, plainly and in float64, from its description; the form says how ours
and that belong together, and is asserted to rounding. So no tolerance of a recorded case can hide a form that is wrong.
"""

import math

import pytest
import torch
from torch import Tensor, nn

from zellige.core import bound, maths, random
from zellige.core.batch import Batch
from zellige.core.curves import Cosine, CosinePower, Linear, Polynomial
from zellige.core.matrices import Chain
from zellige.core.prediction import Mean, Score, kernel, reverse, reverse_rate, truth
from zellige.core.process import absorbing, uniform
from zellige.core.schedule import CLEAN, PRIOR, Tabulated
from zellige.methods import CSM, D3PM, MD4, MDLM, RADD, UDLM, GenMD4, d3pm, d3pm_transitions, tauldr_rates
from zellige.nn import Table
from zellige.nn.logistic import logistic
from zellige.samplers import Remasking, State

D = torch.float64
SIZES = [(3, 2, 5), (7, 4, 11), (12, 3, 37)]  # tokens V, positions L, steps T
sized = pytest.mark.parametrize(("V", "L", "T"), SIZES)


class Said(nn.Module):
    """A network that says these logits (B, L, K), whatever it sees."""

    def __init__(self, logits: Tensor):
        super().__init__()
        self.logits = logits

    def features(self, x, time=None, **kwargs):
        return self.logits

    def head(self, h):
        return h


def close(ours: Tensor | float, theirs: Tensor | float, scale: float = 1.0) -> None:
    """Equal but for 1e-11 of the larger of `scale` and the values: some thousand roundings."""
    ours, theirs = (torch.as_tensor(each, dtype=D).detach() for each in (ours, theirs))
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11 * scale)


def apart(ours: Tensor, theirs: Tensor) -> None:
    """The form is not empty: without it the two differ."""
    assert float((ours - theirs).detach().abs().max()) > 1e-6


def drawn(V: int, L: int, seed: int = 0, rows: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Clean tokens (B, L), which of them are masked, and logits (B, L, V + 1) float64."""
    g = torch.Generator().manual_seed(100 * seed + V)
    masked = torch.rand(rows, L, generator=g) < 0.6
    masked[:, 0] = True
    return (torch.randint(V, (rows, L), generator=g), masked,
            torch.randn(rows, L, V + 1, generator=g, dtype=D))  # fmt: skip


# ---------------------------------------------------------------------------------- MDLM, RADD, SEDD, ReMDM
@sized
def test_mass_on_the_mask(V, L, T):
    """MDLM's d3pm: eq. 4 of a softmax over all V + 1 states, alpha = 1 - t, state by state."""
    from .test_mdlm import mass_on_the_mask

    x_0, masked, logits = drawn(V, L)
    x_t, p = torch.where(masked, V, x_0), logits.softmax(-1)
    method = D3PM(Said(logits), V, (L,), D3PM.Config(diffusion_steps=T))
    m = p[..., V]
    inside = method.predict(x_t, 0.5 if T % 2 == 0 else 1.0).mu[..., :V]
    close((inside * (1 - m[..., None]))[masked], p[..., :V][masked])  # its forward: ours over 1 - m
    for i in range(2, T):
        t = i / T
        alpha_t, alpha_s = 1 - t, 1 - (i - 1) / T
        weight = torch.cat(((alpha_s - alpha_t) * p[..., :V], ((1 - alpha_s) + alpha_s * m)[..., None]), -1)
        step = weight / weight.sum(-1, keepdim=True)
        r = (alpha_s - alpha_t) / (1 - alpha_t)
        at_token = step.gather(-1, x_0[..., None])[..., 0]
        theirs = (r * (r / at_token).log() + (1 - r) * ((1 - r) / step[..., V]).log()) * masked
        time = torch.full((len(x_0),), t, dtype=D)
        ours = method.discrete_bound(Batch(x_0), x_t, time, time - 1 / T)
        form = (mass_on_the_mask(m, time[:, None], T) * masked).sum(-1)
        close(ours + form, theirs.sum(-1))
        apart(ours, theirs.sum(-1))
        # its sampler: (move_t - move_s) p, and move_s on the mask, whatever mass p has there
        move_t, move_s = t, (i - 1) / T
        raced = torch.cat(((move_t - move_s) * p[..., :V], torch.full_like(m, move_s)[..., None]), -1)
        q = kernel(method.predict(x_t, t), (i - 1) / T)
        close((q[..., V] * move_t)[masked], raced[..., V][masked])
        close((q[..., :V] * move_t * (1 - m[..., None]))[masked], raced[..., :V][masked])


@sized
def test_kernels_that_are_not_divided(V, L, T):
    """MDLM's and ReMDM's distribution of a step lacks the factor 1/(1 - alpha_t); MDLM's cache has alpha = 1 - t."""
    x_0, masked, logits = drawn(V, L)
    x_t = torch.where(masked, V, x_0)
    for eps in (0.0, 0.02):
        method = MDLM(Said(logits), V, (L,), MDLM.Config(alpha_1=eps))
        p = logits[..., :V].softmax(-1)
        for i in range(1, T):
            t, s = i / T, (i - 1) / T
            move_t, move_s = (1 - eps) * t, (1 - eps) * s
            theirs = torch.cat(((move_t - move_s) * p, torch.full_like(p[..., :1], move_s)), -1)
            ours = kernel(method.predict(x_t, t), s)
            close((ours * move_t)[masked], theirs[masked])
            cached = kernel(method.predict(x_t, t), s) * t  # the same kernel: (1 - eps) cancels
            uncut = torch.cat(((t - s) * p, torch.full_like(p[..., :1], s)), -1)
            close(cached[masked], uncut[masked])


@pytest.mark.parametrize(("low", "high"), [(1e-3, 6.0), (1e-2, 4.0), (0.05, 9.0)])
def test_importance_sampling(low, high):
    """Its weight is -log m_0 where the density of log(1 - alpha) has log(m_1 / m_0): -log m_1 more."""
    m_0, m_1 = -math.expm1(-low), -math.expm1(-high)
    u = (torch.arange(20000, dtype=D) + 0.5) / 20000
    m = m_0 ** (1 - u) * m_1**u  # what it draws: 1 - alpha
    f = lambda m: (3 * m).sin() + 2  # noqa: E731
    exact = torch.linspace(math.log(m_0), math.log(m_1), 20001, dtype=D).exp()
    integral = float(torch.trapezoid(f(exact) / exact, exact))  # of the weight d(1 - alpha)/(1 - alpha)
    whole = math.log(m_1 / m_0)
    assert float(whole * f(m).mean()) == pytest.approx(integral, rel=1e-7)
    assert -math.log(m_0) * float(f(m).mean()) == pytest.approx(integral * (1 - math.log(m_1) / whole), rel=1e-7)


@pytest.mark.parametrize("n", [2, 5, 9])
def test_strata_of_rows(n):
    """Its times: a uniform for each stratum, u_b/n + b/n. Ours takes one for all; at u_b ours is theirs."""

    class One:
        def __init__(self, u):
            self.u = u

        def uniform(self, shape, device):
            return self.u.reshape(shape)

    u = torch.rand(n, generator=torch.Generator().manual_seed(n), dtype=D)
    theirs = (u / n + torch.arange(n, dtype=D) / n) % 1
    ours = torch.stack([random.stratified(n, One(u[b : b + 1] / n))[b] for b in range(n)])  # pyright: ignore
    close(ours, theirs)


@sized
def test_denoising_column(V, L, T):
    """SEDD's last step has no column for the mask (MDLM's: a zero) and does not sum to 1: ours, by its sum over the tokens."""
    x_0, masked, logits = drawn(V, L)
    x_t = torch.where(masked, V, x_0)
    process = absorbing(V + 1, Linear(0.01))
    for t in (1 / T, 0.5, 1.0):
        score = logits.exp().scatter(-1, x_t[..., None], 1.0)
        pred = Score(process, score, x_t, torch.full(x_t.shape, t, dtype=D))
        alpha = process.schedule.alpha(torch.tensor(t, dtype=D))[0]
        theirs = score[..., :V] * (1 - alpha) / alpha  # e^sigma - 1 at each token, from a mask
        close(reverse(pred, CLEAN)[masked][:, :V], theirs[masked])
        ours = kernel(pred, CLEAN)[masked]
        close(ours[:, :V], (theirs / theirs.sum(-1, keepdim=True))[masked])
        close(ours[:, V], torch.zeros(len(ours)))


@sized
def test_cross_entropy_of_a_log_score(V, L, T):
    """RADD's t_DCE is taken of log(a mu), a = alpha/(1 - alpha): a (-log mu - log a) a mask, so a constant more than ours."""
    x_0, masked, logits = drawn(V, L)
    x_t = torch.where(masked, V, x_0)
    method = RADD(Said(logits), V, (L,))
    t = torch.linspace(1 / T, 1 - 1 / T, len(x_0), dtype=D)
    alpha, beta = method.process.schedule.alpha(t), method.process.schedule.beta(t)
    a = alpha / (1 - alpha)
    log_score = a.log() + logits[..., :V].log_softmax(-1).gather(-1, x_0[..., None])[..., 0]
    theirs = (beta * a * -log_score * masked).sum(-1)
    constant = -(beta * a * a.log())[:, 0] * masked.sum(-1)
    close(method.t_dce(Batch(x_0), x_t, t) + constant, theirs)
    apart(constant, torch.zeros_like(constant))


@sized
def test_last_step_beyond_one(V, L, T):
    """RADD's last step reveals with 1.001: ours (all of it) times that, -0.001 on the mask."""
    x_0, _, logits = drawn(V, L)
    method, p = RADD(Said(logits), V, (L,)), logits[..., :V].softmax(-1)
    rate = 1.001
    theirs = torch.cat((rate * p, torch.full_like(p[..., :1], 1 - rate)), -1)
    ours = kernel(method.predict(torch.full_like(x_0, V), 1 / T), CLEAN)
    close(ours * rate - torch.nn.functional.one_hot(torch.tensor(V)).to(D) * (rate - 1), theirs)


# ---------------------------------------------------------------------------------- BD3-LM, Duo, UDLM
@pytest.mark.parametrize("eps", [1e-3, 0.01, 0.07])
def test_cosine_weights(eps):
    """BD3-LM's weight of cosine divides by 1 - alpha + eps; square and square root stop at eps. Duo's slope of its cosine lacks
    1 - eps."""
    t = torch.linspace(0.03, 0.97, 23, dtype=D)
    curve = CosinePower(1.0, 0.0, 1 - eps)
    move = 1 - curve.alpha(t)[:, 0]
    slope = -torch.func.jvp(lambda u: curve.alpha(u)[:, 0], (t,), (torch.ones_like(t),))[1]
    close(move, 1 - (1 - eps) * (math.pi / 2 * t).cos())
    close(curve.weight(t)[:, 0] * move / (move + eps), slope / (move + eps))
    for power in (2.0, 0.5):
        ours = 1 - Polynomial(torch.tensor(power, dtype=D), 0.0, 1.0).alpha(t)[:, 0]
        close(ours.clamp_min(eps), (t**power).clamp_min(eps))
    duo = Cosine(0.0)  # its alpha is 1 - (1 - eps)-times stretched time: cos at (1 - eps) t
    inside = (1 - eps) * t
    alpha = lambda u: 1 - (math.pi / 2 * (1 - (1 - eps) * u)).cos()  # noqa: E731
    close(duo.alpha(inside)[:, 0], alpha(t))
    true = torch.func.jvp(alpha, (t,), (torch.ones_like(t),))[1]
    close(-(duo.beta(inside) * duo.alpha(inside))[:, 0], true / (1 - eps))  # what it says d alpha / dt is


@pytest.mark.parametrize("n", [4, 9, 25])
@pytest.mark.parametrize("eta", [0.05, 0.3])
def test_psi_of_duo(n, eta):
    """kappa = 1 - sigma / (1 - alpha_s): capped at 0; max-rescale there has min(eta, sigma_max) where ReMDM has sigma_max."""
    t = torch.linspace(1, 1e-3, n + 1, dtype=D)[:-1]
    s = t - (1 - 1e-3) / n
    alpha_t, alpha_s = 1 - (1 - 1e-3) * t, 1 - (1 - 1e-3) * s
    state = State(torch.zeros(n, dtype=torch.long), torch.zeros(n, dtype=torch.bool), torch.zeros(n))
    largest = torch.minimum(torch.ones_like(t), (1 - alpha_s) / alpha_t)
    close(Remasking("cap", eta).sigma(state, state.fixed, alpha_t, alpha_s), largest.clamp_max(eta))
    ours = Remasking("rescale", eta).sigma(state, state.fixed, alpha_t, alpha_s)
    theirs = eta * largest.clamp_max(eta)
    close(ours * largest.clamp_max(eta) / largest, theirs)
    apart(ours, theirs)


@sized
@pytest.mark.parametrize("eps", [1e-3, 0.04])
def test_bound_at_another_alpha(V, L, T, eps):
    """UDLM's bound is written with alpha = 1 - t, whatever x_t was drawn with: it is ours with alpha_1 = 0."""
    g = torch.Generator().manual_seed(V)
    x_0, x_t = (torch.randint(V, (4, L), generator=g) for _ in range(2))
    mu = torch.randn(4, L, V, generator=g, dtype=D).softmax(-1)
    t = torch.linspace(0.1, 0.9, 4, dtype=D)[:, None].expand(4, L)
    alpha = (1 - t)[..., None]
    w = lambda p: V * alpha * p + 1 - alpha  # noqa: E731
    there, here = w(torch.nn.functional.one_hot(x_0, V).to(D)), w(mu)
    at = lambda v: v.gather(-1, x_t[..., None])  # noqa: E731
    ratio = there / at(there)
    inner = V / at(here) - V / at(there) + (ratio * (ratio * at(here) / here).log()).sum(-1, keepdim=True)
    theirs = (inner / (V * alpha))[..., 0]  # alpha' = -1
    cost = lambda end: UDLM(None, V, (L,), UDLM.Config(alpha_1=end, time=False)).cost(  # noqa: E731
        mu.log().flatten(0, 1), x_0.flatten(), x_t.flatten(), t.flatten()).reshape(4, L)  # fmt: skip
    close(cost(0.0), theirs, float(theirs.abs().max()))
    apart(cost(eps), theirs)


# ---------------------------------------------------------------------------------- MD4, GenMD4
@sized
@pytest.mark.parametrize("eps", [1e-4, 0.03])
def test_ends_of_md4(V, L, T, eps):
    """Its T steps stop at alpha = 1 - eps: ours reveals eps/(1 - alpha) more in the last, to CLEAN; between they are equal."""
    x_0, masked, logits = drawn(V, L)
    x_t = torch.where(masked, V, x_0)
    method = MD4(
        Said(torch.cat((logits[..., :V], torch.zeros_like(logits[..., :1])), -1)), V, (L,), MD4.Config("linear")
    )
    method.process.schedule = Linear(eps, 1 - eps)
    alpha = lambda u: (1 - 2 * eps) * (1 - u) + eps  # noqa: E731
    log_p = logits[..., :V].log_softmax(-1).gather(-1, x_0[..., None])[..., 0]
    for i in range(1, T):
        t, s = i / T, (i - 1) / T
        theirs = (-log_p * masked * (alpha(s) - alpha(t)) / (1 - alpha(t))).sum(-1)
        time = torch.full((len(x_0),), t, dtype=D)
        close(method.discrete_bound(Batch(x_0), x_t, time, time - 1 / T), theirs)
        if i == 1:
            ours = method.discrete_bound(Batch(x_0), x_t, time, torch.full_like(time, CLEAN))
            more = (-log_p * masked).sum(-1) * eps / (1 - alpha(t))
            close(ours, theirs + more)
            apart(ours, theirs)


@sized
def test_surrogate_of_genmd4(V, L, T):
    """Its loss is (f + g)/2 + (f - g)/2 (log q(x) - log q(y)) of two draws; ours has that gradient, and (f + g)/2 as value."""
    x_0, masked, logits = drawn(V, L)
    other = drawn(V, L, 1)[1]
    draws = [torch.where(where, V, x_0) for where in (masked, other)]
    logits = logits[..., :V].requires_grad_()
    pad = lambda v: torch.cat((v, v.new_zeros((*v.shape[:-1], 1))), -1)  # noqa: E731
    raw = torch.linspace(-1, 1, V, dtype=D)
    t = torch.linspace(0.2, 0.8, len(x_0), dtype=D)

    def method(rows: int) -> GenMD4:
        made = GenMD4(Said(pad(torch.cat([logits] * rows))), V, (L,), GenMD4.Config(begin=0.0))
        made.process.schedule.raw = nn.Parameter(pad(raw).clone())
        return made

    two, w = method(2), raw.clone().requires_grad_()
    schedule = two.process.schedule
    scale = 1 - float(schedule.alpha_1)  # its alpha is 1 - scale t^w
    power = nn.functional.softplus(w)[x_0]
    alpha = 1 - scale * t[:, None] ** power
    close(schedule.alpha_of(x_0, t[:, None]), alpha)
    log_p, rate = logits.log_softmax(-1), nn.functional.softplus(w) / t[:, None, None]  # MD4 eq. 32, r_k = w_k / t
    said = (rate * log_p.exp()).sum(-1) - power / t[:, None] * (log_p.gather(-1, x_0[..., None])[..., 0] + 1)
    f, g = ((said * where).sum(-1) for where in (masked, other))
    log_q = [torch.where(where, (1 - alpha).log(), alpha.log()).sum(-1) for where in (masked, other)]
    theirs = (f + g) / 2 + (f - g).detach() / 2 * (log_q[0] - log_q[1])
    ours = two.rloo(Batch(x_0), *draws, t)
    close(ours, (f + g) / 2)
    apart(ours, theirs)
    (a,), (b,) = (
        torch.autograd.grad(v.sum(), p, retain_graph=True) for v, p in ((ours, [schedule.raw]), (theirs, [w]))
    )
    close(a[:V], b, float(b.abs().max()))


# ---------------------------------------------------------------------------------- D3PM
@pytest.mark.parametrize("K", [5, 17, 33])
@pytest.mark.parametrize("beta", [0.3, 4.0])
def test_gaussians_of_other_spacing(K, beta):
    """Google's images spread K levels over 255, its text over K, where eq. 8 has K - 1: ours at a beta times the square of K -
    1 over that."""

    def theirs(spacing: float) -> Tensor:
        n = torch.arange(-(K - 1), K, dtype=D) * spacing
        weight = (-(n**2) / beta).softmax(0)
        Q = torch.stack([weight[K - 1 - i : 2 * K - 1 - i] for i in range(K)])
        Q.fill_diagonal_(0.0)
        return Q + torch.diag(1 - Q.sum(-1))

    for reach in (255, K):
        spacing = 2 / (K - 1) * reach / (K - 1)
        close(d3pm_transitions.gaussian(K, ((K - 1) / reach) ** 2 * beta), theirs(spacing))
        apart(d3pm_transitions.gaussian(K, beta), theirs(spacing))


@sized
@pytest.mark.parametrize("eps", [1e-6, 1e-3])
def test_eps_in_every_logarithm(V, L, T, eps):
    """Google's images: logs of q + eps in the posterior, both of x_0 one-hot and of p~; of the first step p~ itself."""
    g = torch.Generator().manual_seed(V)
    K = V + 1
    beta = torch.linspace(0.02, 0.3, T, dtype=D)
    steps = torch.stack([d3pm_transitions.uniform(K, float(b)) for b in beta])
    chain = Chain(steps, torch.full((K,), 1 / K, dtype=D))
    x_0, x_t = (torch.randint(K, (3, L), generator=g) for _ in range(2))
    logits = torch.randn(3, L, K, generator=g, dtype=D)
    whole = [torch.eye(K, dtype=D)]
    for Q in steps:
        whole.append(whole[-1] @ Q)
    for i in range(2, T + 1):
        t = torch.full((3,), i / T, dtype=D)

        def log_posterior(p: Tensor, i: int = i) -> Tensor:
            return ((steps[i - 1].mT[x_t] + eps).log() + (p @ whole[i - 1] + eps).log()).log_softmax(-1)

        one = log_posterior(torch.nn.functional.one_hot(x_0, K).to(D))
        theirs = (one.exp() * (one - log_posterior(logits.softmax(-1)))).sum((1, 2))
        ours = d3pm.image_step(
            chain, logits.flatten(0, 1), x_0.flatten(), x_t.flatten(), *(u.repeat_interleave(L) for u in (t, t - 1 / T)), eps
        ).reshape(3, L)  # fmt: skip
        close(ours.sum(-1), theirs)


@pytest.mark.parametrize("K", [4, 9, 40])
@pytest.mark.parametrize("eps", [1e-6, 1e-2])
def test_logistic_head(K, eps):
    """It says log(above - below + eps above), not normalised: ours is the share of a bin at eps = 0."""
    g = torch.Generator().manual_seed(K)
    loc, log_scale = torch.tanh(torch.randn(2, 3, generator=g, dtype=D)), torch.randn(2, 3, generator=g, dtype=D)
    x = torch.linspace(-1, 1, K, dtype=D)
    z = lambda edge: torch.sigmoid((edge - loc[..., None]) * torch.exp(2 - log_scale)[..., None])  # noqa: E731
    above, below = z(x + 1 / (K - 1)), z(x - 1 / (K - 1))
    theirs = lambda eps: above - below + eps * above  # noqa: E731
    ours = logistic(loc, log_scale, K).softmax(-1)
    close(ours, maths.normalise(theirs(0.0)))
    close(maths.normalise(ours * (above - below).sum(-1, keepdim=True) + eps * above), maths.normalise(theirs(eps)))


@pytest.mark.parametrize("T", [4, 13, 50])
@pytest.mark.parametrize(("low", "high"), [(1e-3, 0.1), (0.01, 0.4)])
def test_linear_betas_of_the_text_code(T, low, high):
    """low + (high - low) i/T, i = 0..T-1: never `high`: the first T points of a line of T + 1."""
    theirs = torch.tensor([low + (high - low) * i / T for i in range(T)], dtype=D)
    close(torch.linspace(low, high, T + 1, dtype=D)[:-1], theirs)
    assert float(theirs[-1]) < high
    # its fast inference has the stationary distribution at T, whatever is left: ours to PRIOR
    K, alpha = 6, torch.cat((torch.ones(1, dtype=D), (1 - theirs).cumprod(0)))
    ours = uniform(K, Tabulated(alpha))
    close(ours.matrix(CLEAN, PRIOR), torch.full((K, K), 1 / K, dtype=D))
    left = alpha[-1] * torch.eye(K, dtype=D) + (1 - alpha[-1]) / K
    close(ours.matrix(CLEAN, 1.0), left)


@pytest.mark.parametrize("K", [8, 15, 31])
@pytest.mark.parametrize("width", [3, 4, 5])
def test_bands_of_the_text_code(K, width):
    """Each column divided by its own band: equal to eq. 10 far from the ends at an odd width, one level more below at an
    even."""
    beta, low, high = 0.05, (width - 1) // 2, width // 2
    theirs = torch.zeros(K, K, dtype=D)  # rows are sources
    for source in range(K):
        reach = [level for level in range(K) if -low <= source - level <= high]
        for level in reach:
            theirs[source, level] = beta / len(reach)
        theirs[source, source] += 1 - beta
    ours = d3pm_transitions.band(K, beta * K / width, high)
    inner = slice(high, K - high)
    if width % 2:
        close(ours[inner], theirs[inner])
    else:
        source, level = torch.arange(K)[:, None], torch.arange(K)
        both = (source != level) & (source - level <= high) & (source - level >= -low)
        close(ours[inner][both[inner]], theirs[inner][both[inner]])
        beyond = level - source == high  # ours goes as far up as down
        close(theirs[inner][beyond[inner]], torch.zeros(int(beyond[inner].sum())))
        assert (ours[inner][beyond[inner]] > 0).all()


@pytest.mark.parametrize("N", [6, 11, 20])
@pytest.mark.parametrize("k", [2, 4])
def test_rates_of_the_text_code(N, k):
    """Columns are sources; edges by rank; a mask entered at one rate; its exponential is 512 steps of Euler."""
    embedding = torch.randn(N, 3, generator=torch.Generator().manual_seed(N), dtype=D)
    A = {"equal": torch.zeros(N, N, dtype=D), "rank": torch.zeros(N, N, dtype=D)}
    by_rank = [math.exp(-2 * r * r / k) for r in range(k)]
    for source in range(N):
        order = sorted(range(N), key=lambda other: float((embedding[other] - embedding[source]).norm()))
        for r, other in enumerate(order[1 : k + 1]):
            A["equal"][other, source] += 1
            A["rank"][other, source] += k * by_rank[r] / sum(by_rank)
    for name, edges in A.items():
        columns = (edges + edges.mT) / (2 * k)
        theirs = columns - torch.diag(columns.sum(0))
        ours = d3pm_transitions.nearest(embedding, k, name)
        close(ours.mT, theirs)
        rate = 1.5 + k
        padded = torch.zeros(N + 1, N + 1, dtype=D)
        padded[:N, :N], padded[N, :N] = columns, rate
        close(d3pm_transitions.masked(ours, rate).mT, padded - torch.diag(padded.sum(0)))
        euler = torch.linalg.matrix_power(torch.eye(N, dtype=D) + 0.4 * theirs / 512, 512)
        second = 0.5 * (0.4 * theirs) @ (0.4 * theirs) / 512  # (1 + A/n)^n = exp(A) (1 - A^2/(2 n) + O(1/n^2))
        exact = torch.linalg.matrix_exp(0.4 * ours).mT
        apart(exact, euler)
        assert float((exact - exact @ second - euler).abs().max()) < 4 / 512**2


@sized
@pytest.mark.parametrize("eps", [1e-6, 1e-3])
def test_eps_of_cloneofsimo(V, L, T, eps):
    """eps in both factors of eq. 4 and in x_0; at eps = 0 its KL is ours, which has no eps at all."""
    g = torch.Generator().manual_seed(V)
    x_0, x_t = (torch.randint(V, (3, L), generator=g) for _ in range(2))
    logits = torch.randn(3, L, V, generator=g, dtype=D)
    alpha = torch.linspace(1, 0.05, T + 1, dtype=D)
    method = D3PM(Said(logits), V, (L,), D3PM.Config("uniform", diffusion_steps=T))
    method.process = uniform(V, Tabulated(alpha))
    i = T // 2
    Q = lambda a: a * torch.eye(V, dtype=D) + (1 - a) / V  # noqa: E731
    here, before = Q(alpha[i] / alpha[i - 1]), Q(alpha[i - 1])

    def kl(eps: float) -> Tensor:
        clean = (torch.nn.functional.one_hot(x_0, V).to(D) + eps) / (1 + V * eps)
        each = [maths.normalise((here.mT[x_t] + eps) * (p @ before + eps)) for p in (clean, logits.softmax(-1))]
        return (each[0] * (each[0] / each[1]).log()).sum((1, 2))

    t = torch.full((3,), i / T, dtype=D)
    ours = method.discrete_bound(Batch(x_0), x_t, t, t - 1 / T)
    close(kl(0.0), ours)
    apart(kl(1e-3), ours)


# ---------------------------------------------------------------------------------- tauLDR, flow matching, csm
@pytest.mark.parametrize("S", [5, 8, 21])
@pytest.mark.parametrize("std", [1.5, 6.0])
def test_initial_gaussian(S, std):
    """It starts at S // 2 where the stationary distribution has S/2: for odd S half a state beside."""
    k = torch.arange(S, dtype=D)
    theirs = (-((k + 1 - S // 2) ** 2) / (2 * std**2)).softmax(0)
    ours = tauldr_rates.gaussian(S, 2.0, std)[1]
    shifted = (-((k + 1 - S / 2) ** 2) / (2 * std**2)).softmax(0)
    close(ours, shifted)
    half = (S / 2 - S // 2) * (2 * (k + 1) - S / 2 - S // 2) / (2 * std**2)  # the difference of the two exponents
    close(maths.normalise(theirs * half.exp()), ours)


@pytest.mark.parametrize("V", [3, 6, 10])
@pytest.mark.parametrize("kind", ["mask", "uniform"])
def test_flow_matching(V, kind):
    """Its rates given x_1 are the net flow [Rhat - R]_+ of ours: towards x_1 at beta alpha/(1 - alpha), and nowhere
    else. Its loss of tokens that are not masked has weight (1 - mu) each. A step jumps with 1 - exp(-h sum u)."""
    masking = kind == "mask"
    K = V + masking
    process = (absorbing if masking else uniform)(K, Linear(0.0))
    g = torch.Generator().manual_seed(V)
    t = torch.full((V,), 0.37, dtype=D)
    x_1 = torch.arange(V)
    x_t = torch.full_like(x_1, V) if masking else torch.randint(V, (V,), generator=g)
    alpha, beta = process.schedule.alpha(t)[:, 0], process.schedule.beta(t)[:, 0]
    towards = beta * alpha / (1 - alpha)  # kappa' / (1 - kappa) in its time
    theirs = torch.nn.functional.one_hot(x_1, K) * towards[:, None]
    theirs = theirs.scatter(-1, x_t[:, None], 0.0)
    back = reverse_rate(truth(process, x_1, x_t, t))
    ours = (back - process.rate_from(x_t, t)).clamp_min(0.0).scatter(-1, x_t[:, None], 0.0)
    close(ours, theirs)
    for h in (0.01, 0.2):
        jump = -torch.expm1(-h * theirs.sum(-1))
        close(jump, torch.where(x_t == x_1, 0.0, 1 - torch.exp(-h * towards)))
    mu = torch.randn(V, K, generator=g, dtype=D).softmax(-1)
    mu = mu * process.clean if masking else mu
    mu = mu / mu.sum(-1, keepdim=True)
    rates = (towards[:, None] * mu).scatter(-1, x_t[:, None], 0.0)  # its velocity
    target = theirs
    positive = torch.where(target > 0, target, 1.0)
    divergence = (rates - target + target * (positive.log() - rates.clamp_min(1e-300).log())).sum(-1)
    close(maths.score_entropy(target, rates).sum(-1), divergence)
    if masking:
        pred = Mean(process, mu, x_t, t)
        close(bound.continuous(truth(process, x_1, x_t, t), pred), divergence)  # at a mask: our bound
        leaving = (towards[:, None] * mu).scatter(-1, x_1[:, None], 0.0).sum(-1)  # of a token, which ours carries over
        close(leaving, towards * (1 - mu.gather(-1, x_1[:, None])[:, 0]))


@pytest.mark.parametrize("S", [4, 7, 12])
def test_mean_over_neighbours(S):
    """The third party's loss is a mean over the neighbours, the paper's and ours the sum."""
    from zellige.methods.csm_neighbourhood import NEIGHBOURHOODS
    from zellige.plugins.verify.identities.score import explicit

    g = torch.Generator().manual_seed(S)
    distribution, table = torch.randn(S, generator=g, dtype=D).softmax(0), torch.randn(S, S, generator=g, dtype=D)
    for name in ("cycle", "grid"):
        near = [
            [(i - 1) % S, (i + 1) % S] if name == "cycle" else [j for j in (i - 1, i + 1) if 0 <= j < S]
            for i in range(S)
        ]
        network = Table(S, 1).double()
        with torch.no_grad():
            network.logits[0, :, 0] = table
        method = CSM(network, S, (1,), CSM.Config(neighbourhood=name))
        each, _ = explicit(method, distribution)
        arrows = NEIGHBOURHOODS[name](S)
        theirs = torch.stack([
            torch.stack([(table[i, j] - (distribution[j] / distribution[i] - 1)) ** 2 for j in near[i]]).mean() for i in range(S)
        ])  # fmt: skip
        number = arrows.of(torch.arange(S)[:, None]).sum((-1, -2)) if name == "grid" else torch.full((S,), 2)
        close(each / number, theirs)
