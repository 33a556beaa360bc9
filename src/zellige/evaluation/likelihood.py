"""Likelihood of a group of texts by a method: the bound, or another estimator, in replicates of stratified draws.

The draws of a group are evenly spread over its strata, and the whole set is repeated in independent replicates. The error of the
draws is estimated from the differences of the replicates. (The variance within a stratified set says nothing, since its
draws differ in their times.) Random numbers belong to groups, not to batches, so the batch size changes no result.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from ..base.errors import InputError, unknown
from ..base.requests import bounded_grid
from ..core import maths, random
from ..core.batch import Batch, Estimator
from ..core.proposal import Proposal
from ..core.random import Randomness, mix
from ..core.schedule import PRIOR
from ..exact import enumeration, metropolis
from ..methods import diffusion as bound_terms
from ..methods.absorbing import Masked
from ..methods.diffusion import Diffusion
from ..methods.method import MIXTURE, Method
from ..nn.attention import documents
from ..samplers import distributions
from ..samplers.grid import grid_of, spaced
from ..samplers.pairing import AUTOREGRESSION, BLOCKS, CHAIN, CONTINUOUS, Distribution, steps_distribution, steps_number

DIVERGENCE = "divergence"  # the estimator of methods without a bound, on a space that can be enumerated
ENDS = ("model", "jumps", "none", "published")
TERMS = ("drawn", "all")
Draw = Callable[[Batch, Randomness], dict[str, Tensor]]


@dataclass
class Likelihood:
    """One way to compute -log p with a method: the estimator, its times, and the terms of the bound.

    Attributes:
        method, estimator: "bound", or the name of another likelihood that the method supports.
        t_min: times are drawn from [t_min, 1]; above 0 only as in published code, and then it is no bound.
        ends: endpoint terms of the bound: those of the model ("model"); each in one jump, as published schedules have them,
            a bound of another model ("jumps"); left out ("none"), as in most papers; or those of the paper's code if it has
            others ("published": MD4, GenMD4, D3PM's images). The last two give no bound.
        steps: the bound of the model of this many steps, for a method in continuous time, or for a coarse chain of one with
            T steps; 0: the method as it is.
        grid: times of these steps, as for a sampler: "uniform", "cosine", "log-snr"; "auto": the method's own.
        terms: for a bound of T steps: each draw has one of the steps between the first and the last ("drawn"), or "all".
        proposal: distribution of the times between the ends, see `pilot`; None: uniform.
    """

    method: Method
    estimator: str = "bound"
    t_min: float = 0.0
    ends: str = "model"
    steps: int = 0
    terms: str = "drawn"
    proposal: Proposal | None = None
    grid: str = "uniform"

    def __post_init__(self) -> None:
        m, self.other = self.method, estimator_of(self.method, self.estimator)
        self.certain = m.exact if self.other is None else self.other.exact
        if not 0 <= self.t_min < 1:
            raise InputError(f"`t_min` is {self.t_min:g}; it must be at least 0 and below 1")
        self.grid = grid_of(m, bounded_grid(self.grid))
        if self.steps:
            if why := _no_steps(m, self.other is not None):
                raise InputError(f"`steps` is for a bound of T steps, and {why}; leave it out")
            if 0 < m.steps < self.steps:
                raise InputError(
                    f"{self.steps:,} steps are more than the {m.steps:,} of {m.name}; use {m.steps:,} or fewer"
                )
            self.times  # an impossible grid is refused here  # noqa: B018
        elif self.grid != "uniform":
            raise InputError(f"`grid` {self.grid} is for a bound of T steps; give `steps`, too")
        if self.ends not in ENDS:
            raise unknown("ends", self.ends, ENDS)
        self.published = self.ends == "published"
        if self.terms not in TERMS:
            raise unknown("terms", self.terms, TERMS)
        if self.terms == "all" and (why := self._no_sum()):
            raise InputError(f"`terms` all is the sum over the steps of a bound of T steps, and {why}; leave it out")
        if self.published:
            why = self._none_published()
            if why:
                raise InputError(
                    f"`ends` published is for those of the code of MD4, GenMD4 and D3PM, and {why}; use model or none"
                )
            return
        as_defined = self.other is not None or self.certain or m.steps or self.steps
        self.published = not as_defined and (self.t_min > 0 or self.ends == "none")

    @property
    def kind(self) -> str:
        """Kind of the number, as in `Result`."""
        if self.certain:
            return "exact"
        if not self.method.bounded:
            return "loss"
        approximate = self.other is None and self.method.approximate
        return "estimate" if self.published or approximate else "bound"

    @property
    def evaluated_method(self) -> Method:
        """Method whose terms are computed: that of published code if its bound is one of another method."""
        m = self.method
        published_method = m.as_published() if self.ends == "published" and isinstance(m, Diffusion) else None
        return m if published_method is None else published_method

    @property
    def T(self) -> int:
        """Number of steps of the bound; 0 in continuous time."""
        return self.steps or self.method.steps

    @property
    def other_steps(self) -> dict[str, Any]:
        """The steps of the bound and their grid, as arguments of `evaluate`; {} if they are the method's own."""
        return steps_number(self.steps, self.method.steps, self.grid) if self.steps else {}

    @functools.cached_property
    def times(self) -> Tensor:
        """Times (T + 1,) of the steps of the bound."""
        return spaced(cast(Diffusion, self.evaluated_method), self.T, self.grid)

    @property
    def drawn_steps(self) -> range:
        """Steps of which one is drawn, or all are summed: all but the last and a jump from PRIOR."""
        return bound_terms.between(cast(Diffusion, self.evaluated_method), self.T)

    @property
    def draws_times(self) -> bool:
        """Return whether each draw has one time between the ends, as in `methods.diffusion`."""
        m = self.evaluated_method
        generic = isinstance(m, Diffusion) and type(m).terms in (Diffusion.terms, Masked.terms)
        elsewhere = self.ends == "published" and m is self.method
        draws_mask_counts = self._draws_mask_counts and self.terms == "drawn"
        return generic and not (elsewhere or draws_mask_counts or self.certain or self.other is not None)

    @property
    def importance(self) -> bool:
        """Return whether times are drawn by importance.

        With a mask all terms are of similar size, and times are drawn uniformly.
        """
        if not (self.draws_times and self.terms == "drawn"):
            return False
        process = self.method.process
        return process is not None and process.mask is None

    def _no_sum(self) -> str | None:
        """Why there is no sum over steps."""
        if self.other is not None:
            return "this is another estimator"
        if not self.T:
            return f"{self.method.name} has {'no time' if self.method.process is None else 'continuous time'}"
        return None if self.draws_times else f"{self.method.name} has terms of its own"

    def _none_published(self) -> str | None:
        """Why there are no terms as published."""
        if self.other is not None:
            return "this is another estimator"
        if not isinstance(self.method, Diffusion):
            return f"{self.method.name} has no time"
        cls, base = type(self.method), Diffusion
        if cls.published is base.published and cls.as_published is base.as_published:
            return f"that of {self.method.name} leaves them out"
        return "its times are its own: leave `t_min` out" if self.t_min else None

    @property
    def time(self) -> str:
        """Description of the times at which the bound is evaluated, for the protocol."""
        if self.other is not None:
            return self.other.about
        if self.certain:
            return "one token at a time, left to right"
        ends = ", the ends as published" if self.ends == "published" else ""
        steps = f"{self.T} steps" + ("" if self.grid == "uniform" else f" on the grid {self.grid}")
        if self.T and self.draws_times:
            first = "the last" if self.method.start_time != PRIOR or self.T == 1 else "the first and the last"
            n = len(self.drawn_steps)
            how = "by importance" if self.importance else "evenly"
            if self.terms == "all" or n == 0:
                return f"{f'all {steps}' if self.T > 1 else 'one step'} of every sequence{ends}"
            drawn_steps = f"{first} of every sequence, of the {n} others one drawn {how} (stratified)"
            return f"{steps}: {drawn_steps}{ends}"
        if self.T or self.ends == "published":
            return (steps if self.T else "whole of t in [0, 1]") + f" (stratified){ends}"
        spacing = "(stratified, by importance)" if self.importance else "(stratified)"
        if not self.published:
            return f"whole of t in [0, 1] {spacing}" + (", a jump at each end" if self.ends == "jumps" else "")
        low = f"t in [{self.t_min:g}, 1]" if self.t_min else "t in [0, 1]"
        return f"{low} {spacing}, {'without' if self.ends == 'none' else 'with'} the ends of time"

    @property
    def distribution(self) -> Distribution | None:
        """Distribution for which it is a bound, or -log p; None if it is no bound."""
        if self.published or self.kind == "loss":
            return None
        distribution = bounded_distribution(self.method, self.estimator, self.steps, self.grid)
        return distribution.changed("jumps", "with a jump at each end") if self.ends == "jumps" else distribution

    @property
    def bounds(self) -> list[str]:
        """Samplers, without options, of whose distribution it is a bound, or -log p.

        None if it is no bound, or one of another model.
        """
        if self.distribution is None or self.ends == "jumps":
            return []
        number = ({"estimator": self.estimator} if self.estimator != "bound" else {}) | self.other_steps
        table = distributions(self.method, self.T or None)
        same = [{}, {"estimator": "any_order"}] if self.estimator == "any_order" else [number]
        return [name for name, distribution in table.items() if distribution.number in same]

    @property
    def strata(self) -> str | None:
        """Quantity over which the draws are evenly spread; None if nothing is drawn or stratified."""
        if self.other is not None:
            return self.other.strata
        if self.certain or self.terms == "all":
            return None
        return "numbers of masks" if self._draws_mask_counts else "times"

    @property
    def _draws_mask_counts(self) -> bool:
        """Return whether numbers of masks are drawn instead of times.

        With fewer steps than tokens, times are drawn: most numbers of masks would have no weight.
        """
        m = self.method
        return isinstance(m, Diffusion) and m.draws_mask_counts and not 0 < self.steps < m.shape[0]

    def __call__(self, batch: Batch, generator: Randomness = None) -> dict[str, Tensor]:
        """One draw of each term: name -> (B,) nats."""
        m = self.evaluated_method
        if self.other is not None:
            return {self.estimator: self.other(batch, generator)}
        if not isinstance(m, Diffusion):
            return m.terms(batch, generator)
        if not self.draws_times:
            return self._drawn_otherwise(m, batch, generator)
        if self.T or not self.published:
            return bound_terms.elbo(
                m,
                batch,
                generator,
                self.times if self.T else None,
                proposal=self.proposal,
                every=self.terms == "all",
                jumps=self.ends == "jumps",
            )
        return {"diffusion": self.between(batch, generator)} | self._endpoint_terms(m, batch, generator)

    def between(self, batch: Batch, generator: Randomness = None) -> Tensor:
        """One draw of the term whose times are drawn, between the ends: (B,) nats."""
        m: Any = self.evaluated_method
        if self.T:
            return bound_terms.sampled_step(m, batch, self.times.to(batch.tokens.device), generator, self.proposal)
        return bound_terms.inside(m, batch, generator, self.proposal, self.t_min)

    def _drawn_otherwise(self, m: Diffusion, batch: Batch, generator: Randomness) -> dict[str, Tensor]:
        """One draw of each term if a method has its own terms, or numbers of masks are drawn."""
        if self.ends == "published":
            return m.published(batch, generator, self.steps)
        if self.steps:
            assert isinstance(m, Masked)
            return m.terms_of_steps(batch, self.times, generator)
        if self.ends == "jumps" and not self.t_min:
            return m.jump_terms(batch, generator)
        if not self.published:
            return m.terms(batch, generator)
        if not self.t_min:
            return {"diffusion": m.terms(batch, generator)["diffusion"]}
        diffusion = (
            _from_t_min(cast(Masked, m), self.t_min, batch, generator)
            if self._draws_mask_counts
            else self.between(batch, generator)
        )
        return {"diffusion": diffusion} | self._endpoint_terms(m, batch, generator)

    def _endpoint_terms(self, m: Diffusion, batch: Batch, generator: Randomness) -> dict[str, Tensor]:
        """One draw of each endpoint term of continuous time; none if the ends are left out."""
        if self.ends not in ("model", "jumps"):
            return {}
        jumps = self.ends == "jumps"
        ends = {"reconstruction": bound_terms.clean_end, "prior": bound_terms.noisy_end}
        return {name: end(m, batch, generator, jumps) for name, end in ends.items()}


@dataclass
class Work:
    """Evaluates groups of texts by their number: `work(index)` returns plain lists, so another process can call it.

    Attributes:
        rows, chosen: the data set, and the numbers of the rows to evaluate.
        texts: texts of a group.
        draws: draws of each text in one replicate.
        replicates: number of independent sets of draws.
        batch: rows (texts x draws) per network evaluation.
    """

    likelihood: Likelihood
    rows: Any
    chosen: list[int]
    texts: int
    draws: int
    replicates: int
    seed: int
    batch: int
    device: torch.device

    def __len__(self) -> int:
        return -(-len(self.chosen) // self.texts)

    def group(self, index: int) -> Batch:
        """Return the texts of a group."""
        indices = self.chosen[index * self.texts : (index + 1) * self.texts]
        return self.rows.collate([self.rows[i] for i in indices])

    def __call__(self, index: int) -> dict[str, Any]:
        """Return {"terms": name -> replicates -> texts, "squares": replicates -> texts, "tokens": ..., "documents": ...}."""
        group, terms, squares = self.group(index), {}, []
        for replicate in range(self.replicates):
            terms_of_replicate = self._draw(group, mix(self.seed, index, replicate))
            for name, value in terms_of_replicate.items():
                terms.setdefault(name, []).append(value.mean(0).tolist())
            squares.append(torch.stack(list(terms_of_replicate.values())).sum(0).square().mean(0).tolist())
        return {
            "terms": terms,
            "squares": squares,
            "tokens": number_of_tokens(group).tolist(),
            "documents": number_of_documents(group).tolist(),
        }

    @torch.no_grad()
    def _draw(self, group: Batch, seed: int) -> dict[str, Tensor]:
        """Each term of each text: name -> (draws, texts) float64.

        Row d * texts + j of the network's input is draw d of text j.
        """
        n = len(group.tokens)
        total = n * self.draws
        size = max(d for d in range(1, min(self.batch, total) + 1) if total % d == 0)
        terms: dict[str, list[Tensor]] = {}
        for shard in range(total // size):
            rows = torch.arange(shard * size, (shard + 1) * size) % n
            part = group.take(rows).to(self.device)
            # the same for each part of the group: `Shard` takes its rows
            generator = torch.Generator().manual_seed(seed)
            for name, value in self.likelihood(part, random.Shard(generator, shard, total // size)).items():
                terms.setdefault(name, []).append(value.double().cpu())
        return {name: torch.cat(values).reshape(self.draws, n) for name, values in terms.items()}


@contextlib.contextmanager
def evaluating(method: Method) -> Iterator[None]:
    """Within the block the method is in evaluation mode; afterwards it is as before."""
    training = method.training
    method.eval()
    try:
        yield
    finally:
        method.train(training)


def admitted(
    method: Method, estimator: str, ends: str = "model", steps: int = 0, terms: str = "drawn", grid: str = "uniform"
) -> str:
    """Return the estimator for a method. InputError: the method does not support it, whatever the data."""
    if estimator == "bound" and not method.bounded and metropolis.enumerable(method) is None:
        estimator = DIVERGENCE
    Likelihood(method, estimator, 0.0, ends, steps, terms, grid=grid)
    return estimator


def estimator_of(method: Method, name: str) -> Estimator | None:
    """The estimator of that name; None for the bound."""
    if method.latents:
        raise InputError(MIXTURE)
    if name == "bound" and method.bounded:
        return None
    estimators = dict(method.estimators())
    if not method.bounded:
        why = metropolis.enumerable(method)
        if name == "bound":
            use = "use `estimator` loss" if why else "use `estimator` divergence or loss"
            raise InputError(f"{method.name} defines no likelihood bound{f', and {why}' if why else ''}; {use}")
        if why is None:
            about = "all texts enumerated, the distribution that Metropolis-Hastings keeps"
            estimators[DIVERGENCE] = Estimator(_of(method, metropolis.invariant), about, exact=True)
            about = "all texts enumerated, the ratios along a path from text to text, left to right"
            estimators["path"] = Estimator(_of(method, metropolis.path_distribution), about, exact=True)
    if name not in estimators:
        names = ["bound"] * method.bounded + [*estimators]
        raise unknown("estimator", name, names)
    return estimators[name]


def bounded_distribution(
    method: Method, estimator: str = "bound", steps: int = 0, grid: str = "uniform"
) -> Distribution:
    """The distribution that an estimator of a method bounds, in T steps if any."""
    if estimator in (DIVERGENCE, "path"):
        return CHAIN
    if method.parameterization == "next":
        return AUTOREGRESSION
    T = 0 if estimator in ("any_order", "random") else steps or method.steps
    distribution = steps_distribution(T, method.steps, grid) if T else CONTINUOUS
    if estimator in ("forward", "backward"):
        distribution = AUTOREGRESSION.changed(estimator, estimator)
    return distribution.changed(*BLOCKS) if 0 < method.block < method.shape[0] else distribution


def _no_steps(method: Method, other: bool) -> str | None:
    """Why there is no T-step bound of this method in addition to its own."""
    if other:
        return "this is another estimator"
    timeless = not method.bounded or method.exact or method.process is None
    return f"{method.name} has no time" if timeless else None


def _from_t_min(method: Masked, t_min: float, batch: Batch, generator: Randomness) -> Tensor:
    """Mean of the diffusion term over t in [t_min, 1] for a time-free masked network: (B,) nats.

    As in the bound, a number of masks k is drawn; its weight is its probability under the masked fractions of these times.
    """
    group, n, k, x_t = method.mask_exactly_k(batch, generator)
    low, high = (float(1 - method.process.schedule.alpha(t)[..., 0]) for t in (t_min, 1.0))
    weight = (maths.binomial_tail(n, k, high) - maths.binomial_tail(n, k, low)) / k / (1 - t_min)
    return (n * weight * method.cross_entropy(batch, x_t, None, group=group)).sum(-1)


def _of(method: Method, distribution_of: Callable[[Method], Tensor]) -> Callable[..., Tensor]:
    """-log of the distribution on all texts that `distribution_of` makes of the method: (B,) nats."""
    distribution = functools.cache(lambda: distribution_of(method))
    return lambda batch, generator=None: -distribution()[enumeration.index(batch.tokens.cpu(), method.vocabulary)].log()


def entropy_and_divergence(nats: float, tokens: Tensor) -> dict[str, float]:
    """Mean of -log pi over texts (N, L) in two terms: entropy of the texts, and their divergence from pi."""
    share = tokens.unique(dim=0, return_counts=True)[1].double() / len(tokens)
    entropy = float(enumeration.entropy(share))
    return {"entropy of the texts": entropy, DIVERGENCE: nats - entropy}


def number_of_tokens(batch: Batch) -> Tensor:
    """(B,) tokens that count."""
    if batch.mask is not None:
        return batch.mask.sum(-1).double()
    return torch.full((len(batch.tokens),), float(batch.tokens.shape[1]), dtype=torch.float64)


def number_of_documents(batch: Batch) -> Tensor:
    """(B,) documents with a token that counts; 0 if rows are no documents."""
    if batch.segments is None or batch.mask is None:
        return torch.zeros(len(batch), dtype=torch.float64)
    start, _ = documents(batch.segments)
    return (
        torch.zeros(batch.mask.shape, dtype=torch.float64).scatter_reduce(1, start, batch.mask.double(), "amax").sum(-1)
    )
