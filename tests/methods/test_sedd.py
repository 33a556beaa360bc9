"""SEDD: its closed forms against the definition, its bound against enumeration, and what a training step holds in memory."""

import itertools
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from testing.worlds import Counting, L, V, data_distribution, five_sigma, numbers, positions, table, value_and_gradient
from zellige import exact, guide
from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.core.prediction import Score, kernel, posterior, score
from zellige.core.schedule import PRIOR
from zellige.methods import SEDD, UDLM, build
from zellige.methods.diffusion import Diffusion
from zellige.nn import Net, chunks
from zellige.samplers import Ancestral, Euler

D = torch.float64
close = torch.testing.assert_close
X_0 = exact.states(V, L)
CHOICES = [
    SEDD.Config(process, schedule, scale)
    for process, schedule, scale in itertools.product(
        ("absorbing", "uniform"), ("loglinear", "geometric"), (None, False)
    )
    if process == "absorbing" or scale is None
]
each_choice = pytest.mark.parametrize("config", CHOICES, ids=lambda c: f"{c.process}-{c.schedule}-{c.scale_by_sigma}")

SHORT = [SEDD.Config("absorbing"), SEDD.Config("absorbing", "geometric", False), SEDD.Config("uniform", "geometric")]
each_noise = pytest.mark.parametrize(
    "config",
    [pytest.param(c, marks=() if c in SHORT else pytest.mark.long) for c in CHOICES],
    ids=lambda c: f"{c.process}-{c.schedule}-{c.scale_by_sigma}",
)


class Exact(nn.Module):
    """The network that SEDD's would be if it knew the data: log scores, by enumeration."""

    def __init__(self, config: SEDD.Config, distribution: torch.Tensor, length: int = L):
        super().__init__()
        self.method, self.config = SEDD(None, V, (length,), config), config
        self.denoiser = exact.Denoiser(self.method.process, distribution, length, "score")

    def features(self, x, time=None, **kwargs):
        sigma = time.double()[:, None]
        t = self.method.process.schedule.inverse(torch.exp(-sigma))
        v = score(self.denoiser.predict(x, t)).clamp_min(1e-300).log()
        return v + (sigma.expm1() * V).log()[..., None] if self.method.scaled else v

    def head(self, h):
        return h


def known(config: SEDD.Config) -> SEDD:
    return SEDD(Exact(config, data_distribution()), V, (L,), config)


def tabled(config: SEDD.Config, seed: int = 0) -> SEDD:
    """A free network whose scores are not far from those of data without structure."""
    K = SEDD.states(V, config)
    network = table(K, L, time=True, seed=seed)
    with torch.no_grad():
        network.logits.mul_(0.2)
    return SEDD(network, V, (L,), config)


# ---------------------------------------------------------------------------------- the closed forms
@each_choice
@pytest.mark.parametrize("t", [1e-5, 0.03, 0.5, 0.97, 1.0])
def test_the_closed_form_is_the_bound(config, t):
    method = SEDD(None, V, (L,), config)
    logits, x_0, x_t = positions(method.process.K)
    time = torch.full((len(x_0),), t, dtype=D)
    value, gradient = value_and_gradient(method.cost, logits, x_0, x_t, time)
    expected, slope = value_and_gradient(partial(Diffusion.cost, method), logits, x_0, x_t, time)
    close(value, expected, rtol=1e-9, atol=1e-15)
    close(gradient, slope, rtol=1e-9, atol=1e-12 * float(slope.abs().max()))
    assert (value >= 0).all()


@each_choice
@pytest.mark.parametrize("sigma", [1e-6, 1e-4, 1e-2, 1.0])
def test_single_precision_is_enough_at_any_noise(config, sigma):
    """Relative to the exact value at every position, also close to the true score, where published float32 loses all digits."""
    method = SEDD(None, V, (L,), config)
    t = method.process.schedule.inverse(
        torch.exp(torch.tensor(-max(sigma, 1.0001e-4 * (config.schedule != "loglinear")), dtype=D))
    )
    logits, x_0, x_t = positions(method.process.K)
    time = t.expand(len(x_0))
    logits = logits.float()
    close(method.cost(logits, x_0, x_t, time), method.cost(logits.double(), x_0, x_t, time), rtol=1e-5, atol=1e-9)
    distribution = known(config)
    x = exact.states(method.process.K, L)
    asked = distribution.logits(distribution.hidden(x, t.expand(len(x), 1)))
    for near in (1.0, 0.1, 0.01):  # log scores that are off by so much
        some = (asked + near * (numbers(*asked.shape, seed=5) - 0.5))[:, 0].float()
        for token in range(V):
            args = torch.full((len(x),), token), x[:, 0], t.expand(len(x))
            whole = method.cost(some.double(), *args)
            close(method.cost(some, *args), whole, rtol=2e-4, atol=2e-6 * float(whole.max()))


# ---------------------------------------------------------------------------------- the bound
@each_noise
@torch.no_grad()
def test_with_the_exact_score_the_bound_is_the_entropy(config):
    method, distribution = known(config), data_distribution()
    terms = exact.continuous_terms(method, X_0)
    whole = (distribution * (terms["diffusion"] + terms["reconstruction"] + terms["prior"])).sum()
    end = exact.marginal(method.process, exact.embed(method.process, distribution, L), L, 1.0)
    prior = method.process.prior[exact.states(method.process.K, L)].prod(-1)
    over = 0.0 if method.process.mask is not None else float((end * (end / prior).log()).sum())
    close(whole, exact.entropy(distribution) + over, rtol=0, atol=2e-5)


@each_noise
@torch.no_grad()
def test_loss_and_terms_are_draws_of_the_integrals(config):
    method, rows = tabled(config), 40_000
    x_0 = X_0[5:6]
    expected = exact.continuous_terms(method, x_0)
    batch, generator = Batch(x_0.expand(rows, -1)), torch.Generator().manual_seed(3)
    assert five_sigma(method.loss(batch, generator), expected["diffusion"])
    for name, value in method.terms(batch, generator).items():
        rare = float(expected[name]) < 1e-6 and not value.any()  # alpha(1) = e^-20 of geometric noise: in no draw
        assert rare or five_sigma(value, expected[name]), name
    assert not method.loss_is_bound


# ---------------------------------------------------------------------------------- reading the network
@each_choice
def test_a_score_is_positive_and_one_at_x_t(config):
    method = tabled(config)
    x = exact.states(method.process.K, L)
    for t in (0.3, 1.0, PRIOR):
        pred = method.predict(x, t)
        assert isinstance(pred, Score)
        assert (pred.v > 0).all()
        assert (pred.v.gather(-1, x[..., None]) == 1).all()
    assert method.predict(x, torch.full(x.shape, -torch.inf)).v.isfinite().all()  # tokens that are given


@each_choice
@pytest.mark.parametrize("s", [0.4, -torch.inf])
def test_an_extreme_network_still_leaves_a_distribution(config, s):
    """Log scores whose exponential no float holds, in float32 for absorbing noise."""
    method = tabled(config)
    method.network.float().logits.data.abs_().mul_(1e4)
    x = exact.states(method.process.K, L)
    p = kernel(method.predict(x, 0.7), torch.tensor(s, dtype=D))
    close(p.sum(-1), torch.ones(x.shape, dtype=D))


@torch.no_grad()
def test_rows_may_start_at_the_prior_beside_others():
    method = tabled(CHOICES[0])
    x = exact.states(V + 1, L)[[-1, -1, 3]]
    t, s = torch.tensor([[PRIOR], [0.7], [0.7]], dtype=D).expand(3, L), torch.tensor([[1.0], [0.3], [0.3]], dtype=D)
    together = kernel(method.predict(x, t), s.expand(3, L))
    for b in range(3):
        close(together[b], kernel(method.predict(x[b : b + 1], t[b : b + 1]), s[b].expand(1, L))[0])


def test_scale_by_sigma_puts_a_network_at_zero_on_the_true_total():
    """Then the score entropy is the cross-entropy of MDLM: log V at each mask."""
    method = SEDD(None, V, (L,))
    assert method.scaled
    assert not SEDD(None, V, (L,), SEDD.Config("uniform")).scaled
    t = torch.tensor([0.01, 0.5, 1.0], dtype=D)
    mask = torch.full((3,), V)
    value = method.cost(torch.zeros(3, V + 1, dtype=D), torch.zeros(3).long(), mask, t)
    close(value, method.process.schedule.weight(t)[:, 0] * torch.tensor(V, dtype=D).log())
    pred = method.read(torch.zeros(3, V + 1, dtype=D), mask, t)
    close(pred.v[:, :V].sum(-1), 1 / method.process.schedule.sigma(t)[:, 0].expm1())


def test_wrong_choices_are_refused():
    for config, message in (
        (SEDD.Config("unifrm"), "unknown process 'unifrm'; did you mean 'uniform'?"),
        (SEDD.Config(schedule="loglinar"), "unknown schedule 'loglinar'; did you mean 'loglinear'?"),
        (SEDD.Config("uniform", scale_by_sigma=True), "`scale_by_sigma` needs `process` absorbing"),
    ):
        with pytest.raises(InputError, match=message.replace("?", r"\?")) as error:
            SEDD(None, V, (L,), config)
        assert "\n" not in str(error.value)


# ---------------------------------------------------------------------------------- samples
@each_noise
@torch.no_grad()
def test_samples_approach_the_distribution(config):
    """Analytic and Euler, with the exact score; uniform noise ends at t = 1 a little away from its prior."""
    method, distribution = known(config), data_distribution()
    whole = exact.embed(method.process, distribution, L)
    grid = "log-snr" if config.schedule == "geometric" or config.process == "uniform" else "uniform"
    for sampler in (Ancestral(grid), Euler(grid)):
        few, many = (0.5 * (exact.sample_distribution(sampler, method, n) - whole).abs().sum() for n in (16, 64))
        assert many < 0.45 * few
        assert many < 0.03


@each_choice
def test_guidance_reads_a_score_through_its_posterior(config):
    method = known(config)
    x = exact.states(method.process.K, L)[-4:]
    pred = method.predict(x, 0.6)
    at = method.process.movable(x)
    p = posterior(pred)[at]
    coldest = posterior(guide.truncated(pred, heat=0.0))[at]
    assert torch.equal(coldest.argmax(-1), p.argmax(-1))
    close(coldest.amax(-1), torch.ones(len(p), dtype=D))
    cut = posterior(guide.truncated(pred, nucleus=0.5))[at]
    assert (cut[guide.top_p(p, 0.5) == 0] == 0).all()


# ---------------------------------------------------------------------------------- what is computed, and held
def test_the_head_is_computed_at_masks_only():
    method = build("sedd", V, Net(layers=1, hidden=16, heads=2, length=8))
    method.network = counting = Counting(method.network)
    x_0 = (V * numbers(4, 8)).long()
    x_t = x_0.masked_fill(numbers(4, 8, seed=1) < 0.3, V)
    method.continuous_bound(Batch(x_0), x_t, numbers(4, seed=2))
    assert counting.heads == int((x_t == V).sum())


class Largest(TorchDispatchMode):
    """The largest tensor that any operation makes, backward passes included."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for made in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(made, torch.Tensor) and made.untyped_storage().nbytes() >= made.numel():  # no expanded view
                self.numel = max(self.numel, made.untyped_storage().nbytes() // made.element_size())
        return out


@pytest.mark.parametrize("method", ["sedd", "udlm"])
@pytest.mark.parametrize(
    "config", [c for c in CHOICES if c.scale_by_sigma is None], ids=lambda c: f"{c.process}-{c.schedule}"
)
@pytest.mark.parametrize("draw", ["loss", "bound"])
def test_nothing_of_all_positions_and_states_is_held(method, config, draw, monkeypatch):
    """Chunks of 4 positions: no operation of a training step, or of a draw of the bound, makes more than 4 K numbers."""
    if method == "udlm" and (config.process, config.schedule) != ("uniform", "loglinear"):
        return
    options = config if method == "sedd" else UDLM.Config()
    K, positions = 400, 8 * 16
    torch.manual_seed(0)
    method = build(
        method, K - (config.process == "absorbing"), Net(layers=1, hidden=4, heads=1, length=16, condition=4), options
    )
    nn.init.normal_(method.network.head.weight)
    x_0 = ((K - 1) * numbers(8, 16)).long()
    gradients = []
    for size in (4, 10**6):
        monkeypatch.setattr(chunks, "LARGE", 1 if size == 4 else 1 << 40)
        monkeypatch.setattr(chunks, "CHUNK", size)
        method.zero_grad()
        with Largest() as largest:
            getattr(method, draw)(Batch(x_0), torch.Generator().manual_seed(1)).sum().backward()
        gradients.append(method.network.head.weight.grad.clone())
        assert largest.numel <= max(4 * K, 16 * 4 * positions) if size == 4 else largest.numel > 16 * K
    close(*gradients, rtol=1e-4, atol=1e-4 * float(gradients[1].abs().max()))
