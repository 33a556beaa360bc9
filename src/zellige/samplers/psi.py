"""Psi samplers: ancestral steps mixed with noise on the clean prediction (Duo++, arXiv 2602.21185).

A step from time t to s samples each position from

    kappa q(x_s | x_t, x_0) + (1 - kappa) q(x_s | x_0),    x_0 ~ p(x_0 | x_t)

kappa = 1 is `ancestral`. kappa = 0 predicts clean tokens and adds noise to them, so that any token may still change.
Works with every noise and every prediction.

**kappa** is given for three phases: t > t_on, t_off < t <= t_on, and t <= t_off. It is a number, or a rule that follows
from sigma, the probability with which ReMDM (arXiv 2503.00307) masks a token again:

    kappa = max(0, 1 - sigma / (1 - alpha_s)),    sigma_max = min(1, (1 - alpha_s) / alpha_t)

    cap:ETA        sigma = min(ETA, sigma_max)
    rescale:ETA    sigma = ETA sigma_max
    rescale-published:ETA    sigma = ETA min(ETA, sigma_max), as the authors' code

With absorbing noise a token is masked again with probability (1 - kappa) (1 - alpha_s) = min(sigma, 1 - alpha_s). So
`cap` and `rescale` are those of `remasking`, unless sigma is above 1 - alpha_s.

**pause.** The first 1 - t_on of the steps run evenly from t = 1 to the time at which alpha is `pause`. The next
t_on - t_off stay at this time, and the others run evenly to t = 0.

**Keeps the marginals, not the distribution.** Given x_0, a step has exactly q(x_s | x_0). So with the exact network and
x_t ~ p_t, each position of x_s has its marginal of p_s. But the positions are sampled independently given x_t, and with
kappa < 1 a fraction of them is sampled again however short the step is. So with more than one position, the joint
distribution has an error even in the limit of many steps.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.requests import GRID, declared, known_grid, option
from ..core.positions import positions
from ..core.prediction import Prediction, kernel, posterior
from ..core.schedule import CLEAN
from ..methods.diffusion import Diffusion
from .ancestral import is_greedy, with_argmax
from .grid import spaced
from .pairing import Distribution, count_of_steps, discrete_times, irreversible, one_alpha, usual_steps
from .predict import free, redraw
from .remasking import most_masked
from .sampler import Exactness, Sampler

RULES = ("cap", "rescale", "rescale-published")
KAPPA = "a number from 0 to 1, cap:ETA, rescale:ETA or rescale-published:ETA"


def rule_of(text: str) -> tuple[str, float]:
    """Read a rule of kappa: ("", 0.95) of "0.95", ("cap", 0.02) of "cap:0.02". Raises InputError."""
    kind, colon, number = text.rpartition(":")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if (kind if colon else "cap") not in RULES or not 0 <= value <= 1:
        raise InputError(f"kappa is '{text}'; it must be {KAPPA}, e.g. 0.95 or cap:0.02")
    return kind, value


@declared
class Psi(Sampler):
    """Ancestral steps mixed with noise on the clean prediction; kappa = 1 is ancestral."""

    kappa: str = option(
        f"probability that a position takes an ancestral step; else its prediction gets new noise: {KAPPA}",
        default="0.95",
        check=rule_of,
    )
    kappa_early: str = option("like `kappa`, for the early steps, while t > `t_on`", default="1", check=rule_of)
    kappa_late: str = option("like `kappa`, for the last steps, at t <= `t_off`", default="1", check=rule_of)
    t_on: float = option(
        "time t at which `kappa` begins; t falls from 1 to 0. With `pause`: the fraction of the steps that is left then",
        default=0.5,
        minimum=0,
        maximum=1,
    )
    t_off: float = option("time t, or that fraction, at which `kappa` ends", default=0.1, minimum=0, maximum=1)
    pause: float | None = option(
        "fraction of unchanged tokens (alpha) at which time stands still during the steps of `kappa` (default: time goes on)",
        default=None,
        above=0,
        below=1,
    )
    grid: str = option(GRID, default="auto", check=known_grid)
    argmax: Literal["none", "last", "mu"] = option(
        "in the last step, to clean tokens: sample them (none), take the likeliest (last), or take the "
        "likeliest of the network's prediction (mu)",
        default="none",
    )

    name: ClassVar[str] = "psi"
    label: ClassVar[str] = "With fresh noise"
    sentence: ClassVar[str] = "Each step noises its own prediction again, in part, so that any token may still change."
    exactness: ClassVar[Exactness] = "marginals"
    claim: ClassVar[str] = "keeps the marginals alone"
    needs: ClassVar[str] = "reverse kernel: not csm"
    calls: ClassVar[str] = "steps"
    revises: ClassVar[bool] = True
    reconstructs: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        if self.t_off > self.t_on:
            raise InputError(f"kappa runs from `t_on` {self.t_on:g} down to `t_off` {self.t_off:g}; e.g. 0.5 and 0.1")
        if self.pause is not None and self.grid not in ("auto", "uniform", "published"):
            raise InputError(f"`pause` has times of its own; use grid uniform or published, not {self.grid}")

    @classmethod
    def reason_against(cls, method):
        return irreversible(method)

    def distribution(self, method, steps):
        return Distribution(self.name, "its own distribution, that keeps the marginals")

    def times(self, method: Diffusion, steps: int | None) -> Tensor:
        """A grid; with `pause` its three parts, each even in t."""
        depends = any(kind for kind, _ in map(rule_of, (self.kappa, self.kappa_early, self.kappa_late)))
        if (depends or self.pause is not None) and not one_alpha(method.process):
            raise InputError(
                f"{method.name} has no alpha that all tokens share; give kappa as a number, without `pause`"
            )
        if self.pause is None:
            return spaced(method, steps, self.grid)
        if discrete_times(method):
            raise InputError(f"`pause` needs continuous time; with {method.name} leave it out")
        published = self.grid == "published"
        end = getattr(method, "published_end", None) if published else 0.0
        if end is None:
            raise InputError(f"grid 'published' is not known of {method.name}; use uniform")
        n = count_of_steps(steps, usual_steps(method)) + 1
        still = min(float(method.process.schedule.inverse(self.pause)), method.process.start_time)
        high = round((1 - self.t_on) * n)
        middle = min(round((self.t_on - self.t_off) * n), n - high)
        parts = [(max(1.0, still), still, high), (still, still, middle), (still, min(still, end), n - high - middle)]
        times = torch.cat([torch.linspace(*part, dtype=torch.float64) for part in parts])
        if published:
            return torch.cat((times, times.new_tensor([CLEAN])))
        times[0], times[-1] = method.process.start_time, CLEAN
        return times

    def share(self, method: Diffusion, t: Tensor, s: Tensor) -> Tensor:
        """kappa of a step from t to s, (*) -> (*); 1 in a step to clean tokens, where it does not matter."""
        if self.pause is None:
            early, late = t > self.t_on, t <= self.t_off
        else:
            early = method.process.schedule.alpha(t)[..., 0] < self.pause - 1e-9
            late = ~early & (s < t)
        kappa = torch.where(
            early,
            self._kappa(self.kappa_early, method, t, s),
            torch.where(late, self._kappa(self.kappa_late, method, t, s), self._kappa(self.kappa, method, t, s)),
        )
        return torch.where(s == CLEAN, 1.0, kappa)

    def _kappa(self, rule: str, method: Diffusion, t: Tensor, s: Tensor) -> Tensor:
        kind, eta = rule_of(rule)
        if not kind:
            return torch.full_like(t, eta, dtype=torch.float64)
        alpha_t, alpha_s = (method.process.schedule.alpha(time)[..., 0] for time in (t, s))
        sigma = most_masked(alpha_t, alpha_s)
        if kind != "rescale":
            sigma = sigma.clamp_max(eta)
        if kind != "cap":
            sigma = eta * sigma
        return (1 - sigma / (1 - alpha_s).clamp_min(1e-300)).clamp_min(0.0)

    def step(self, method: Diffusion, state, t, s, generator=None):
        kappa, greedy = self.share(method, t, s), is_greedy(self.argmax, s)
        at = free(method, state) | ((kappa < 1) & ~state.fixed)  # (B, L) bool, N of them
        later, share, greedy = (positions(at).of(value.expand(at.shape)) for value in (s, kappa, greedy))

        def distribution(pred: Prediction) -> Tensor:
            forward = pred.process.push(posterior(pred).to(pred.process.prior), CLEAN, later)
            p = share[:, None] * kernel(pred, later) + (1 - share[:, None]) * forward  # (N, K)
            return with_argmax(p, pred, self.argmax, greedy)

        return redraw(method, state, at, t, distribution, generator)
