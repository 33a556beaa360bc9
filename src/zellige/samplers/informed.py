"""Informed predictor-corrector: tokens are sampled again given all others (arXiv 2605.22765).

After a step to s, a corrector step samples some tokens again at the same time s, from

    p_s(x^i = y | the others)  in proportion to  p_s(y, the others) / p_s(x^i, the others),    the score at s

which follows from every prediction (`core.prediction.given_others`); from a leave-one-out mu it is mu Q_{0,s}. Under
absorbing noise a corrector step turns masks into tokens and tokens into masks. It costs one network evaluation.

**One position, chosen at random, keeps p_s exactly** with the exact network: it is a Gibbs step. Several positions at
once do not, since they are sampled independently. A choice that looks at the tokens does not either. Positions are
chosen one after another in proportion to exp(score / tau), tau = `pick_temperature`:

    random           score 0
    probability      - log p_s(the token | others)
    confidence       - log max_y p_s(y | others)
    margin           log max p_s(another token | others) - log p_s(the token | others)

**Self-correction** of GIDD (arXiv 2503.04482). After the last step there are `revise` more steps. Each evaluates the
network at the time `revise_time`, and samples a token for every position from its distribution given the others at
`revise_temperature`. Where this differs from the present token, it replaces it, at up to `resample` positions per step,
the most likely new tokens first. This moves towards likely texts and keeps no distribution.
"""

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.requests import TOKENS, declared, option
from ..core import maths, random
from ..core.positions import positions
from ..core.prediction import as_leave_one_out, given_others
from ..core.random import Randomness
from ..core.schedule import CLEAN
from ..methods.diffusion import Diffusion
from .ancestral import Ancestral
from .guide import temperature
from .pairing import Distribution, discrete_times, not_absorbing
from .predict import pick, predict_at
from .sampler import Exactness, State

CORRECTIONS = 1_000  # after a step, at most; each is a network evaluation


@declared
class Informed(Ancestral):
    """Ancestral steps, each followed by corrector steps; then steps of self-correction."""

    corrections: int = option("corrector steps after each step", default=1, minimum=0, maximum=CORRECTIONS)
    resample: int = option("tokens that each corrector step samples again", default=1, minimum=1, maximum=TOKENS)
    pick: Literal["random", "probability", "confidence", "margin"] = option(
        "tokens to sample again: random ones (exact if `resample` is 1), or those of low probability, confidence or margin",
        default="random",
    )
    pick_temperature: float = option(
        "temperature of `pick`: below 1, the worst tokens are picked more strictly", default=1.0, minimum=1e-3
    )
    revise: int = option(
        "self-correction: revise the finished text this many times; makes texts likelier and less varied",
        default=0,
        minimum=0,
        maximum=CORRECTIONS,
    )
    revise_time: float = option(
        "noise level (time) that the network is given in the steps of `revise`", default=0.01, minimum=0, maximum=1
    )
    revise_temperature: float = option("temperature of the tokens in the steps of `revise`", default=0.1, minimum=0)

    name: ClassVar[str] = "informed"
    label: ClassVar[str] = "With corrections"
    sentence: ClassVar[str] = "After each step some tokens are sampled again, given all the others."
    exactness: ClassVar[Exactness] = "heuristic"
    samples_from: ClassVar[str] = "its own distribution"
    claim: ClassVar[str] = "near the model's distribution, by default"
    convergence: ClassVar[int | None] = None
    needs: ClassVar[str] = "reverse kernel: not csm"
    calls: ClassVar[str] = "steps or more"
    revises: ClassVar[bool] = True
    reconstructs: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        if self.carries:
            raise InputError("`estimate` 'carried' is for sampler 'ancestral' alone; leave it out of informed")

    @classmethod
    def reason_against(cls, method):
        several = method.process is not None and not_absorbing(method) is None and not_absorbing(method, one=True)
        return super().reason_against(method) or several or None

    def distribution(self, method: Diffusion, steps):
        if self.revise:
            return Distribution("revised", "texts that the network revised")
        exact = self.corrections == 0 or (self.resample == 1 and self.pick == "random")
        return Distribution(self.name, f"its own distribution, {'near' if exact else 'away from'} that of the model")

    def times(self, method, steps):
        """Times of `ancestral`, and CLEAN once more for each step of self-correction."""
        if self.revise and method.process.mask is not None:
            raise InputError(
                f"`revise` needs noise that leaves wrong tokens, not masks; leave it out with {method.name}"
            )
        if self.revise and discrete_times(method):
            raise InputError(f"`revise` needs continuous time; leave it out with {method.name}")
        times = super().times(method, steps)
        return torch.cat((times, times.new_full((self.revise,), CLEAN)))

    def expected_calls(self, method, times, free):
        return None

    def most_calls(self, method, times):
        return super().most_calls(method, times) * (1 + self.corrections)

    def step(self, method: Diffusion, state, t, s, generator=None):
        if self.revise and bool((t == CLEAN).all()):
            return self.revised(method, state, generator)
        state = super().step(method, state, t, s, generator)
        for _ in range(self.corrections):
            state = self.correct(method, state, s, generator)
        return state

    def correct(self, method: Diffusion, state: State, s: Tensor, generator: Randomness = None) -> State:
        """Draw tokens again at time s, each from its distribution given the others; nothing where s is an end."""
        at = ~state.fixed & s.isfinite()
        count = min(self.resample, at.shape[-1])
        pred = predict_at(method, state, at, torch.where(s.isfinite(), s, 0.5))
        if pred is None:
            for _ in range(count):  # the draws below, which other rows may make
                random.discard(at.shape[:1], generator)
            random.discard((len(at), count), generator)
            return state
        p, where = given_others(pred), positions(at)
        scores = torch.full(at.shape, -torch.inf, dtype=torch.float64, device=p.device)
        chosen = pick(where.put(scores, self._scores(p, pred.x_t)), count, generator)
        place = chosen.int().argsort(dim=-1, descending=True, stable=True)[:, :count]  # (B, count)
        row = where.put(torch.zeros_like(state.x), torch.arange(len(p), device=p.device)).gather(1, place)
        tokens = random.categorical(p[row], generator)
        tokens = torch.where(chosen.gather(1, place), tokens, state.x.gather(1, place))
        return replace(state, x=state.x.scatter(1, place, tokens), calls=state.calls + at.any(-1))

    def _scores(self, p: Tensor, x: Tensor) -> Tensor:
        """Logarithms (N,) of the weights with which positions are picked, from p (N, K) and the tokens x (N,)."""
        now = p.gather(-1, x[:, None])[:, 0]
        other = p.scatter(-1, x[:, None], 0.0).amax(-1)
        odds = {
            "random": torch.ones_like(now),
            "probability": 1 / now.clamp_min(1e-300),
            "confidence": 1 / p.amax(-1),
            "margin": other / now.clamp_min(1e-300),
        }[self.pick]
        return maths.xlogy(torch.full_like(odds, 1 / self.pick_temperature), odds.clamp_min(1e-300))

    def revised(self, method: Diffusion, state: State, generator: Randomness = None) -> State:
        """Replace the `resample` tokens that differ most clearly from what the network draws in their place."""
        at = ~state.fixed
        pred = predict_at(method, state, at, self.revise_time)
        if pred is None:
            random.discard(at.shape, generator)
            return state
        p = maths.normalise(temperature(as_leave_one_out(pred).mu.double(), self.revise_temperature))
        drawn = random.categorical(p, generator, at)
        clear = torch.where(drawn == pred.x_t, 0.0, p.gather(-1, drawn[:, None])[:, 0])
        confidence = positions(at).put(torch.zeros(at.shape, dtype=p.dtype, device=p.device), clear)
        best = confidence.topk(min(self.resample, at.shape[-1])).indices
        chosen = torch.zeros_like(at).scatter(-1, best, True) & (confidence > 0)
        x = torch.where(chosen, positions(at).put(state.x, drawn), state.x)
        return replace(state, x=x, calls=state.calls + at.any(-1))
