"""Ancestral sampling: x_s ~ p(x_s | x_t), the reverse kernel of the T-step model.

The same step is MDLM's ddpm, MD4's ancestral, SEDD's analytic, RADD's Tweedie and D3PM's step. It works with every
prediction and every process. It samples from the T-step model, whose distance from the continuous-time model is of
order 1 in 1/T.

**Choose, then predict.** For absorbing noise, whether a mask is revealed between t and s does not depend on the
network: the probability is (alpha_s - alpha_t)/(1 - alpha_t). So the positions to reveal are sampled first, and then
their tokens from the clean posterior p(x_0 | x_t). The distribution is that of the plain kernel, for at most one
network evaluation per revealed position. The caches of MDLM and RADD reach the same cost, but only for networks without
a time input. If each token has its own alpha (GenMD4), thinning keeps it exact. A score (SEDD) itself determines
whether a mask is revealed, so it is evaluated at all masks.

**Argmax.** A step may take the likeliest state of its kernel at each position instead of a sample: only in the step to
clean tokens (`last`, as D3PM's published code), or in every step (`every`). For uniform noise, the published code of
UDLM and Duo ends with the likeliest token of the network's softmax, without the factor q(x_t | x_s) of the kernel
(`mu`). Temperature 0 is different: tokens are the likeliest, but which masks are revealed stays random.

**Gumbel noise in float32.** Published code samples with float32 Gumbel noise, which has a largest value. So very
improbable states are never sampled, which acts as a lower temperature if there are many steps (Zheng et al. 2024).
`gumbel_bits` 24 samples with the same cut, in closed form (`core.random.truncated_gumbel`). Without it samples are
exact.

**A latent.** The network of a student of `zellige train distill --by di4c` has a second input, a latent of M equally
likely values. Each step samples one latent for all positions of a sequence, so the tokens of a step depend on each
other.

**A carried estimate.** A network with self-conditioning reads an estimate of the clean text. With `estimate` carried
this is its own prediction from the step before, which makes another model (`samplers.carried`).

**Grids** of times go from the start of sampling to clean tokens. `uniform` is even in t. `cosine` has more steps near t
= 1 (MD4, eq. 6). `log-snr` is even in log(alpha / (1 - alpha)), for scores under uniform noise (SEDD): there a step
multiplies errors of the network by about alpha_s / alpha_t, which is large in the first steps of the uniform grid.
`published` goes from t = 1 to 1e-5 (MD4: 0) and then, in one more step, to clean tokens, as the authors' code does
(`samplers.grid`). This is not the distribution of the T-step model.
"""

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.requests import declared, option
from ..base.waiting import fixed
from ..core import random
from ..core.positions import positions
from ..core.prediction import LeaveOneOut, Mean, Prediction, kernel, posterior, revealed_probability
from ..core.random import Randomness, truncated_gumbel
from ..methods.diffusion import Diffusion
from . import carried
from .grid import OnGrid, grid_of
from .guide import Truncated, Wrapper
from .pairing import Distribution, can_choose_first, irreversible, one_alpha, scores_masks, steps_distribution
from .predict import CHOOSE, choose_then_predict, expected_evaluations, fill, free, predict_at, predict_then_choose
from .sampler import Exactness, State

Argmax = Literal["none", "last", "every", "mu"]
LARGEST = 1 << 24  # B L K up to which the head at all positions takes a GPU less time than it would be waited for
LAST: dict[str, Any] = {
    "help": "in the last step, to clean tokens: take the likeliest tokens (last), or sample them (none)"
}


@declared
class Ancestral(OnGrid):
    """The reverse kernel on a grid of times."""

    argmax: Argmax = option(
        "steps that take the likeliest token instead of a sample: none, last (to clean tokens), or every; for ancestral "
        "also mu: the last step takes the likeliest token of the network's prediction",
        default="none",
    )
    gumbel_bits: int = option(
        "sample like published code whose Gumbel noise comes from uniform numbers of this many bits (24), so that very "
        "improbable tokens never occur; 0: exact",
        default=0,
        minimum=0,
        maximum=53,
    )
    estimate: Literal["own", "carried"] = option(
        "for a network with self-conditioning, the prediction that it reads: own (of a first pass in the same step) or "
        "carried (of the step before: half the passes, but another distribution)",
        default="own",
    )
    choose: bool = option(**CHOOSE, default=True)

    name: ClassVar[str] = "ancestral"
    label: ClassVar[str] = "A few positions each step"
    sentence: ClassVar[str] = "At random positions; more steps change fewer of them at once."
    exactness: ClassVar[Exactness] = "limit"
    samples_from: ClassVar[str] = "T steps"
    claim: ClassVar[str] = "exact in the limit of many steps"
    convergence: ClassVar[int | None] = 1
    needs: ClassVar[str] = "reverse kernel: not csm"
    calls: ClassVar[str] = "up to steps"
    reconstructs: ClassVar[bool] = True

    @classmethod
    def reason_against(cls, method):
        if getattr(method, "latents", 0) and isinstance(method, Wrapper) and not isinstance(method, Truncated):
            return "guides no model that is a mixture over a latent"
        return irreversible(method, mixture=True)

    def distribution(self, method: Diffusion, steps):
        if self.argmax != "none":
            return Distribution(f"argmax {self.argmax}", "the likeliest states, not the model's distribution")
        if self.gumbel_bits:
            return Distribution(
                f"gumbel {self.gumbel_bits}", "states of truncated Gumbel noise, not the model's distribution"
            )
        if self.carries:
            return Distribution("carried estimate", "its own: the network reads what it said in the step before")
        times = self.times(method, steps)
        if method.latents:
            return Distribution(
                f"mixture {method.latents}, steps {len(times) - 1}",
                f"the mixture of {method.latents:,} models of {len(times) - 1:,} steps, one drawn in each",
            )
        even = torch.equal(times, method.grid(len(times) - 1))
        return steps_distribution(len(times) - 1, method.steps, "uniform" if even else grid_of(method, self.grid))

    def has_fixed_shape(self, method: Diffusion, shape):
        if self.revises or self.argmax in ("last", "mu"):  # whether a step is the last one is read
            return False
        few = self.choose and can_choose_first(method)  # a step needs few positions, and would compute all
        return not few or math.prod(shape) * method.process.K <= LARGEST

    @property
    def carries(self) -> bool:
        """Whether the network reads the estimate of the step before."""
        return self.estimate == "carried"

    def passes(self, method):
        return super().passes(method) // (2 if self.carries else 1)  # of the two of self-conditioning

    def admit(self, method, fixed):
        if self.carries:
            carried.admits(method)  # pyright: ignore[reportArgumentType]

    def step(self, method: Diffusion, state, t, s, generator=None):
        if not method.latents:
            return self._step(method, state, t, s, generator)
        even = torch.ones(len(state.x), method.latents, dtype=torch.float64, device=state.x.device)  # (B, M)
        # one latent for the whole sequence, which such a network takes as its `condition`
        mixed = replace(state, condition=random.categorical(even, generator))
        return replace(self._step(method, mixed, t, s, generator), condition=state.condition)

    def _step(self, method: Diffusion, state: State, t: Tensor, s: Tensor, generator: Randomness) -> State:
        if self.choose and self._draws_kernel(s) and not self.carries:
            if can_choose_first(method):  # whether a mask is revealed does not depend on the network
                reveal = method.process.schedule.reveal_probability(t, s)  # (1,) or (K,)
                return choose_then_predict(method, state, reveal, t, posterior, generator)
            if scores_masks(method):
                return predict_then_choose(method, state, s, t, revealed_probability, kernel, generator)
        at = free(method, state)  # (B, L) bool, N of them
        pred, context = self._read(method, state, at, t)
        if pred is None:
            random.discard(at.shape, generator)
            return state
        p = self._drawn_from(pred, positions(at).of(s.expand(at.shape)))  # (N, K)
        return replace(fill(state, at, random.categorical(p, generator, at), at.any(-1)), context=context)

    # ---------------------------------------------------------------------------------- what a step reads
    def _read(self, method: Diffusion, state: State, at: Tensor, t: Tensor) -> tuple[Prediction | None, Any]:
        """The prediction at the positions `at` (B, L), None where there are none,
        and the context that the next step has."""
        if not self.carries:
            return predict_at(method, state, at, t), state.context
        return carried.look(method, state, t, positions(at)) if fixed() or bool(at.any()) else (None, state.context)

    # ---------------------------------------------------------------------------------- what a step draws
    def _draws_kernel(self, s: Tensor) -> bool:
        """Return whether a step to s draws from the kernel at every position: no likeliest state,
        no truncated noise."""
        greedy = self.argmax != "none" and (fixed() or bool(is_greedy(self.argmax, s).any()))
        return not greedy and not self.gumbel_bits  # truncated noise is that of the whole kernel, as in published code

    def _drawn_from(self, pred: Prediction, s: Tensor) -> Tensor:
        """Distribution (N, K) that a step to s (N,) draws from: the kernel p(x_s | x_t), as the options change it."""
        p = kernel(pred, s)  # D3PM eq. 4
        p = truncated_gumbel(p, self.gumbel_bits) if self.gumbel_bits else p
        return with_argmax(p, pred, self.argmax, is_greedy(self.argmax, s))

    def expected_calls(self, method: Diffusion, times, free):
        draws_kernel = self.argmax != "every" and not self.gumbel_bits
        chooses = self.choose and draws_kernel and not self.carries
        if not (chooses and can_choose_first(method) and one_alpha(method.process)):
            return None
        alpha = method.process.schedule.alpha(times)[..., 0]
        return expected_evaluations((alpha[1:] - alpha[:-1]) / (1 - alpha[:-1]), free)


# ---------------------------------------------------------------------------------- argmax
def is_greedy(argmax: str, s: Tensor) -> Tensor:
    """Return whether a step to s (*) takes the likeliest state: (*) bool."""
    return s.isneginf() if argmax in ("last", "mu") else torch.full_like(s, argmax == "every", dtype=torch.bool)


def with_argmax(p: Tensor, pred: Prediction, argmax: str, greedy: Tensor) -> Tensor:
    """The distribution p (N, K) of a step, or its likeliest state where `greedy` (N,); of argmax mu the network's
    likeliest token."""
    if argmax == "mu" and (fixed() or bool(greedy.any())):
        if not isinstance(pred, Mean | LeaveOneOut):
            raise InputError(
                "argmax mu needs a network that predicts clean tokens, and this one gives a score; use last"
            )
        p = torch.where(greedy[:, None], pred.mu, p)
    return argmax_where(p, greedy)


def argmax_where(distribution: Tensor, at: Tensor) -> Tensor:
    """Move the probability of a distribution (N, K) to its largest entry where `at` (N,) is True."""
    if not fixed() and not bool(at.any()):
        return distribution
    return torch.where(
        at[:, None],
        torch.zeros_like(distribution).scatter(-1, distribution.argmax(-1, keepdim=True), 1.0),
        distribution,
    )
