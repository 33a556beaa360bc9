"""Sequential Monte Carlo: several weighted particles for each sample, steered by a reward or annealed (arXiv
2601.10403).

    reward       p(x) exp(strength * reward(x))          `Rewarded`, a wrapper of a method
    annealing    p(x)^anneal

Each sample has a group of N particles of its own. A step from t to s samples each position of a particle from W,
normalised, and multiplies the particle's weight by the sum of W at each:

    W(x_s | x_t) = p(x_s | x_t)^anneal b(x_s | x_t)^{1 - anneal}        at each position

p is the reverse kernel, b that of uniformly distributed texts, so the tokens are annealed and the noise is not. With
anneal 1, W is the kernel, and its sum is 1.

A reward multiplies the weight by u(x_s) / u(x_t) in each step. At the end u = exp(strength * reward). Before, u is the
mean of exp(strength * reward) over a few sequences drawn from the clean posterior p(x_0 | x_t), the lookahead: a
particle whose predicted text has little reward loses weight early. The product of the ratios is the last u. A few
sequences say little about a rare reward, so u is averaged with the mean of the group, which counts as SHARED more
sequences.

If the effective sample size (sum w)^2 / sum w^2 of a group falls below a fraction of N, its particles are resampled in
proportion to their weights, systematically: particle i has floor(N w_i) copies or one more. At the end one particle is
drawn in proportion to the weights: it is the sample. The others stay in the state, with their weights.

**Which distribution.** For any network, N and steps, and any rule by which a group is resampled,

    E[Z sum_i w_i f(x_i)] = sum over paths x_1 .. x_0:  C prior(x_1)  prod W(x_s | x_t)  exp(strength * reward(x_0))  f(x_0)

with Z the estimate of the normalising constant, f any function, and C = V^{(1 - anneal) L}. So Z is unbiased; its
logarithm is too small on average (`Constant` has its interval). As N grows, the distribution of the sample tends to the
right side, normalised. With anneal 1 that is p(x) exp(strength * reward(x)) of the T-step model p. With another power
it is a tilted distribution of the model's *paths*. It tends to p^anneal with small steps if the network's conditionals
are consistent with one distribution p; those of a trained network seldom are. Choose strength and anneal beforehand: if
they depend on the particles, Z is biased.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..base.arguments import checked
from ..base.errors import InputError
from ..base.requests import declared, option
from ..core import maths, random
from ..core.positions import positions
from ..core.prediction import LeaveOneOut, Prediction, Substituted, kernel, posterior
from ..core.random import Randomness
from ..core.schedule import CLEAN
from ..core.student import student
from ..methods.diffusion import Diffusion
from .grid import OnGrid, grid_of
from .guide import Wrapper
from .pairing import Distribution, irreversible, steps_distribution
from .predict import free, predict_at
from .sampler import Exactness, Memory, State, Summary, check, extent, initial_state, ordered

USUAL = 8  # particles of a sample, where something weighs them
MOST = 1000
SHARED = 4  # sequences that the mean of a group counts for in the lookahead of each of its particles
NAMED = 20  # numbers of samples in a line
FEWEST, COUNTING = 4, 1.01  # groups for an interval of log Z; how many must count: below, one has 99.5% of the weight


class Rewarded(Wrapper):
    """A method whose samples have a reward: `Smc` samples from p(x) exp(strength * reward(x)).

    Args:
        reward: maps clean tokens (n, L) and their classes (n,), None without any, to n numbers; -inf forbids a text.
        strength: the factor of the reward.
        of_class: the classes are the reward's, and the model is given none.
    """

    changes = "a reward"

    @checked
    def __init__(
        self,
        method: Any,
        reward: Callable[[Tensor, Tensor | None], Any],
        strength: float = 1.0,
        of_class: bool = False,
    ):
        super().__init__(method)
        self.reward, self.strength, self.of_class = reward, strength, of_class

    def predict(self, x_t: Tensor, t: Tensor | float, *, condition: Tensor | None = None, **more: Any) -> Prediction:
        """The method's prediction; see `Diffusion.predict`."""
        if self.of_class:
            knows = getattr(self.method.network, "classes", None) is not None
            condition = torch.full_like(x_t[:, 0], -1) if knows else None
        return self.method.predict(x_t, t, condition=condition, **more)

    def log_potential(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """strength * reward of clean tokens x (n, L): (n,) float64. InputError where the reward is not n numbers."""
        value = self.reward(x, condition)
        try:
            value = torch.as_tensor(value, dtype=torch.float64).to(x.device)
        except (TypeError, ValueError, RuntimeError):
            raise InputError(f"`reward` gave no numbers; it must return one for each of {len(x)} samples") from None
        if value.shape != x.shape[:1]:
            raise InputError(
                f"`reward` gave the shape {tuple(value.shape)}; it must return {len(x)} numbers, one a sample"
            )
        if bool((value.isnan() | value.isposinf()).any()):
            wrong = "nan" if bool(value.isnan().any()) else "inf"
            raise InputError(
                f"`reward` gave {wrong}; it must return finite numbers, or -inf for a sample that may not be"
            )
        return torch.where(value.isneginf(), value, self.strength * value)


@dataclass(frozen=True)
class Group:
    """The weighted particles of one sample, the sample itself the first of them.

    Attributes:
        log_z: logarithm of the estimate of the normalising constant.
        ess: the smallest effective sample size of any step; 0 where the reward forbids every particle.
        resampled: how often the particles were drawn anew.
        weights, tokens: of each particle at the end; the weights sum to 1.
    """

    log_z: float
    ess: float
    resampled: int
    weights: list[float]
    tokens: list[list[int]]


@dataclass(frozen=True)
class Weighed(Summary):
    """The weighted particles of each sample (None: it has one particle),
    and whether the reward forbids all of them (-inf)."""

    groups: list[Group | None]
    forbidden: list[bool]

    @classmethod
    def joined(cls, parts: Sequence["Weighed"], places: Sequence[int]) -> "Weighed":
        groups, forbidden = [part.groups for part in parts], [part.forbidden for part in parts]
        return cls(ordered(places, *groups), ordered(places, *forbidden))

    def of_sample(self, number: int) -> dict[str, Any]:
        group = self.groups[number]
        particles = {} if group is None else {"particles": asdict(group)}
        return particles | ({"forbidden": True} if self.forbidden[number] else {})

    @classmethod
    def read(cls, result: Mapping[str, Any]) -> "Weighed | None":
        lines = result["samples"]
        groups = [Group(**line["particles"]) if "particles" in line else None for line in lines]
        forbidden = [line.get("forbidden", False) for line in lines]
        return cls(groups, forbidden) if any(groups) or any(forbidden) else None

    def describe(self, pm: Callable[[float, float], str], one_target: bool) -> str:
        """`8 particles each: log Z -1.234 ± 0.120, effective sample size at least 3.2, resampled 0 to 2 times`, and
        `the reward forbids 2 of 8 samples (-inf): 1, 5`, the first one being 1; "" without either.

        The interval (95%) is that of the mean of Z over the samples, where they have one target (`Constant`).
        """
        groups = [group for group in self.groups if group is not None]
        weighed = [_describe_groups(groups, pm, one_target)] if groups else []
        numbers = [number for number, forbidden in enumerate(self.forbidden, 1) if forbidden]
        if not numbers:
            return "\n  ".join(weighed)
        more = f" and {len(numbers) - NAMED:,} more" if len(numbers) > NAMED else ""
        named, count = ", ".join(f"{number:,}" for number in numbers[:NAMED]), len(self.forbidden)
        forbids = f"the reward forbids {len(numbers):,} of {count:,} sample{'s' * (count > 1)} (-inf): {named}{more}"
        return "\n  ".join([*weighed, forbids])

    def refuse(self) -> None:
        if all(self.forbidden):
            count = len(self.forbidden)
            raise InputError(
                f"`reward` forbids {'the sample' if count == 1 else f'all {count:,} samples'} (-inf for every "
                "particle); take more `particles` or another seed, or a reward that allows more"
            )


def _describe_groups(groups: Sequence[Group], pm: Callable[[float, float], str], one_target: bool) -> str:
    log_z, notes = torch.tensor([group.log_z for group in groups], dtype=torch.float64), ""
    if len(groups) == 1:
        value = f"{groups[0].log_z:.3f}"
    elif one_target:
        constant = Constant.of(log_z)
        value = pm(constant.value, constant.half)
        if math.isinf(constant.half):
            notes = f"\n  {constant.why}; take more samples or particles, or a weaker reward"
    else:
        allowed = log_z[log_z > -math.inf]
        value = f"{float(allowed.min()):.3f} to {float(allowed.max()):.3f}"
    sizes, times = extent([len(group.weights) for group in groups]), extent([group.resampled for group in groups])
    return (
        f"{sizes} particle{'' if sizes == '1' else 's'} each: log Z {value}, effective sample size at least "
        f"{min(group.ess for group in groups):.1f}, resampled {times} time{'' if times == '1' else 's'}{notes}"
    )


@dataclass(frozen=True)
class Particles(Memory):
    """The particles of B samples; the memory of `Smc`. The first one is the state's `x`.

    Attributes:
        others: (B, N - 1, L) the tokens of all but the first.
        log_weights: (B, N) float64, log of weights of sum 1.
        ahead: (B, N) log u of each, which its weight contains.
        log_z: (B,) logarithm of the estimate of the normalising constant so far.
        ess: (B,) the smallest effective sample size so far; 0 where no particle is left.
        resampled: (B,) how often the particles were drawn anew.
        begun: whether a step was made.
    """

    others: Tensor
    log_weights: Tensor
    ahead: Tensor
    log_z: Tensor
    ess: Tensor
    resampled: Tensor
    begun: bool = False

    @property
    def weights(self) -> Tensor:
        """(B, N), of sum 1."""
        return self.log_weights.exp()

    def take(self, rows: Tensor) -> "Particles":
        """The groups (B',) of it."""
        tensors = {name: value[rows] for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **tensors)

    def summary(self, state: State) -> Weighed:
        forbidden = (self.log_z == -math.inf).tolist()
        if self.log_weights.shape[1] == 1:
            return Weighed([None] * len(forbidden), forbidden)
        tokens = torch.cat((state.x[:, None], self.others), 1).tolist()
        values: list[list[Any]] = [v.tolist() for v in (self.log_z, self.ess, self.resampled, self.weights)]
        return Weighed([Group(*group) for group in zip(*values, tokens, strict=True)], forbidden)

    def weighed(self, log_factor: Tensor) -> "Particles":
        """Multiply the weights by exp(log_factor) (B, N); a group of which none is left has log_z -inf,
        and equal weights."""
        log_weights = self.log_weights + log_factor
        total = log_weights.logsumexp(-1)
        even = torch.full_like(log_weights, -math.log(log_weights.shape[-1]))
        log_weights = torch.where(total.isneginf()[:, None], even, log_weights - total[:, None])
        weighed = replace(self, log_weights=log_weights, log_z=self.log_z + total)
        ess = weighed.effective_size().masked_fill(total.isneginf(), 0.0)
        return replace(weighed, ess=torch.minimum(self.ess, ess))

    def effective_size(self) -> Tensor:
        """Effective sample size (sum w)^2 / sum w^2 of each group, (B,)."""
        return (-(2 * self.log_weights).logsumexp(-1)).exp()


@dataclass(frozen=True)
class Constant:
    """Estimate of the logarithm of a normalising constant by independent groups of particles with one target.

    Attributes:
        value: logarithm of the mean of their Z.
        half: half the 95% interval, by the jackknife over the groups and Student's t; infinite where the weights do not
            determine it: of fewer than FEWEST groups, or if fewer than COUNTING of them count.
        count: of the groups.
        effective: how many of them count, (sum Z)^2 / sum Z^2 (Kish).
    """

    value: float
    half: float
    count: int
    effective: float

    @property
    def why(self) -> str:
        """Reason that there is no interval."""
        if self.count < FEWEST:
            return f"log Z has no interval of fewer than {FEWEST} samples"
        return f"log Z is not determined: one of {self.count:,} samples has nearly all of the weight"

    @classmethod
    def of(cls, log_z: Tensor) -> "Constant":
        """Estimate from log Z of each group (n,), -inf where a group has no particle left."""
        n, total = len(log_z), log_z.logsumexp(0)
        value, effective = float(total) - math.log(n), float((2 * total - (2 * log_z).logsumexp(0)).exp())
        if n < FEWEST or not effective >= COUNTING:  # nan where no group has a particle left
            return cls(value, math.inf, n, effective)
        without = maths.log1mexp(total - log_z) + total - math.log(n - 1)  # log of the mean of the others
        return cls(value, student(n - 1) * math.sqrt((n - 1) ** 2 / n * float(without.var())), n, effective)


@declared
class Smc(OnGrid):
    """Weighted particles of the reverse kernel on a grid of times. `state.memory` is a `Particles`."""

    particles: int | None = option(
        f"weighted candidates (particles) for each sample (default: {USUAL} with a reward or with `anneal`, else 1)",
        default=None,
        minimum=1,
        maximum=MOST,
    )
    anneal: float = option(
        "weight particles towards the model's distribution to this power; above 1 sharpens it",
        default=1.0,
        above=0,
    )
    resample_below: float = option(
        "copy particles of large weight and drop others when the effective sample size falls below this fraction of "
        "their number",
        default=0.5,
        minimum=0,
        maximum=1,
    )
    lookahead: int = option(
        "texts that each particle predicts in each step, whose rewards weight it; 0: weight by the reward at the end alone",
        default=4,
        minimum=0,
        maximum=MOST,
    )

    name: ClassVar[str] = "smc"
    label: ClassVar[str] = "Several candidates, weighed"
    sentence: ClassVar[str] = "Several candidates are drawn together, and those of larger weight go on."
    exactness: ClassVar[Exactness] = "limit"
    samples_from: ClassVar[str] = "T steps"
    claim: ClassVar[str] = "exact in the limit of many steps and particles"
    convergence: ClassVar[int | None] = 1
    needs: ClassVar[str] = "reverse kernel: not csm"
    calls: ClassVar[str] = "steps x particles"
    revises: ClassVar[bool] = True
    report: ClassVar[type[Summary] | None] = Weighed

    @classmethod
    def reason_against(cls, method):
        return irreversible(method)

    def size(self, method: Any) -> int:
        """N, the number of particles of a sample."""
        if self.particles is not None:
            return self.particles
        return USUAL if self.anneal != 1 or getattr(method, "reward", None) is not None else 1

    def distribution(self, method: Diffusion, steps):
        count, times = self.size(method), self.times(method, steps)
        distribution = steps_distribution(len(times) - 1, method.steps, grid_of(method, self.grid))
        if self.anneal == 1 and getattr(method, "reward", None) is None:
            return distribution
        power = "" if self.anneal == 1 else f" to the power {self.anneal:g}"
        particles = f"by {count:,} weighted particle{'s' * (count > 1)}"
        return Distribution(f"{distribution.key}{power}, particles {count}", f"{distribution.text}{power}, {particles}")

    def most_calls(self, method, times):
        return super().most_calls(method, times) * self.size(method)

    def init(self, method: Any, shape, *, fixed=None, generator=None):
        check(self, method)
        self.admit(method, fixed)
        (B, L), N = shape, self.size(method)
        fixed = None if fixed is None else fixed.to(method.process.prior.device).expand(B, L)
        all_of_group = initial_state(method, (B, N * L), None if fixed is None else fixed.repeat(1, N), generator)
        x, at = (value.reshape(B, N, L) for value in (all_of_group.x, all_of_group.fixed))
        zeros = torch.zeros(B, N, dtype=torch.float64, device=x.device)
        particles = Particles(x[:, 1:], zeros - math.log(N), zeros, zeros[:, 0], zeros[:, 0] + N, zeros[:, 0].long())
        if self.anneal != 1:  # the weights are relative to uniform texts
            texts = (1 - self.anneal) * math.log(method.vocabulary) * (~at[:, 0]).double().sum(-1)
            particles = replace(particles, log_z=texts)
        return State(x[:, 0], at[:, 0], torch.zeros(B, dtype=torch.long, device=x.device), memory=particles)

    def step(self, method: Any, state, t, s, generator=None):
        particles: Particles = state.memory
        (B, L), N = state.x.shape, particles.log_weights.shape[1]
        t, s = (time.repeat_interleave(N, 0) if time.ndim else time for time in (t, s))
        x = torch.cat((state.x[:, None], particles.others), 1).flatten(0, 1)  # (B N, L)
        groups = torch.arange(B, device=x.device).repeat_interleave(N)
        inner = replace(replace(state, memory=None).take(groups), x=x)
        at = free(method, inner)  # (B N, L) bool, n of them
        later = positions(at).of(s.expand(at.shape))
        pred = predict_at(method, inner, at, t)
        calls = at.any(-1).reshape(B, N).sum(-1)  # (B,)

        reward = getattr(method, "log_potential", None)
        if reward is not None and self.lookahead and particles.begun:
            ahead = self._ahead(reward, pred, inner, at, (B, N), generator)  # (B, N): log u
            mean, count = ahead.logsumexp(-1, keepdim=True) - math.log(N), self.lookahead
            ahead = torch.logaddexp(ahead + math.log(count), mean + math.log(SHARED)) - math.log(count + SHARED)
            ahead = torch.where(mean.isneginf(), particles.ahead, ahead)
            particles = replace(particles.weighed(ahead - particles.ahead), ahead=ahead)
        weights = self._weights(pred, later, method)  # (n, K)
        if self.anneal != 1:
            particles = particles.weighed(positions(at).sum(weights.sum(-1).log()).reshape(B, N))
        particles, source = self._resampled(particles, generator)

        number = torch.full_like(at, -1, dtype=torch.long)
        number[at] = torch.arange(len(weights), device=at.device)
        x, at, number = inner.x[source], at[source], number[source]
        draws = random.categorical(weights[number[at]], generator, at.reshape(B, N * L))
        x = positions(at).put(x, draws).reshape(B, N, L)
        particles = replace(particles, begun=True)
        if bool((s == CLEAN).all()):
            x, particles = self._finished(reward, x, particles, inner, generator)
        return replace(state, x=x[:, 0], calls=state.calls + calls, memory=replace(particles, others=x[:, 1:]))

    def _ahead(
        self,
        reward: Any,
        pred: Prediction | None,
        inner: State,
        at: Tensor,
        shape: tuple[int, int],
        generator: Randomness,
    ) -> Tensor:
        """log u of each particle, (B, N): log of the mean of exp(strength * reward) over drawn clean sequences."""
        B, N = shape
        clean = torch.empty(0, 1, dtype=torch.float64, device=at.device) if pred is None else posterior(pred)
        values = []
        for _ in range(self.lookahead):
            tokens = random.categorical(clean, generator, at.reshape(B, -1))
            values.append(reward(positions(at).put(inner.x, tokens), inner.condition))
        return (torch.stack(values).logsumexp(0) - math.log(self.lookahead)).reshape(B, N)

    def _weights(self, pred: Prediction | None, s: Tensor, method: Diffusion) -> Tensor:
        """W(. | x_t), (n, K), not normalised."""
        if pred is None:
            return torch.empty(0, method.process.K, dtype=torch.float64, device=s.device)
        p = kernel(pred, s)
        if self.anneal == 1:
            return p
        able, kind = pred.process.clean, LeaveOneOut
        if isinstance(pred, Substituted):  # whose last step draws visible tokens anew, where mu allows others
            able, kind = able & (pred.mu > 0), Substituted
        uniform = maths.normalise(able.to(p)).expand(p.shape)
        b = kernel(kind(pred.process, uniform, pred.x_t, pred.t), s)
        return maths.product((p, b), (self.anneal, 1 - self.anneal))

    def _resampled(self, particles: Particles, generator: Randomness) -> tuple[Particles, Tensor]:
        """The particles after resampling where it is due, and which one each is a copy of, (B * N,) rows."""
        B, N = particles.log_weights.shape
        due = particles.effective_size() < self.resample_below * N
        source = torch.where(
            due[:, None], systematic(particles.weights, due, generator), torch.arange(N, device=due.device)
        )
        resampled = replace(
            particles,
            log_weights=torch.where(due[:, None], -math.log(N), particles.log_weights),
            ahead=particles.ahead.gather(1, source),
            resampled=particles.resampled + due,
        )
        return resampled, (source + N * torch.arange(B, device=due.device)[:, None]).flatten()

    def _finished(
        self, reward: Any, x: Tensor, particles: Particles, inner: State, generator: Randomness
    ) -> tuple[Tensor, Particles]:
        """The clean particles x (B, N, L), weighed by their reward, with the one that is drawn in the first place."""
        if reward is not None:
            value = reward(x.flatten(0, 1), inner.condition).reshape(x.shape[:2])
            particles = replace(particles.weighed(value - particles.ahead), ahead=value)
        first = random.categorical(particles.weights, generator)
        order = torch.arange(x.shape[1], device=x.device).repeat(len(x), 1)
        order[:, 0] = first
        order.scatter_(1, first[:, None], 0)
        x = x.gather(1, order[..., None].expand(x.shape))
        log_weights, ahead = (value.gather(1, order) for value in (particles.log_weights, particles.ahead))
        return x, replace(particles, log_weights=log_weights, ahead=ahead)


def systematic(weights: Tensor, due: Tensor, generator: Randomness = None) -> Tensor:
    """Index of the particle that each of N copies, (B, N) ascending: systematic resampling of weights (B, N) of sum 1.

    With one uniform u the j-th copy is of the first particle whose cumulative weight exceeds (j + u) / N. As u grows,
    the copies change where it passes a fraction of N times a cumulative weight, so u is drawn as one of N intervals
    between these. Groups that are not `due` (B,) take the first interval.
    """
    N = weights.shape[-1]
    cumulative = weights.cumsum(-1) * N
    edges = (cumulative[:, :-1] % 1.0).sort(-1).values
    edges = pad(pad(edges, (1, 0)), (0, 1), value=1.0)
    lengths = edges.diff()
    certain = torch.zeros_like(lengths)
    certain[:, 0] = 1.0
    interval = random.categorical(torch.where(due[:, None], lengths, certain), generator)[:, None]
    u = (edges.gather(1, interval) + edges.gather(1, interval + 1)) / 2
    copies = torch.arange(N, device=weights.device) + u
    return torch.searchsorted(cumulative, copies, right=True).clamp_max(N - 1)
