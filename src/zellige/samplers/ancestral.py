"""Ancestral sampling: x_s ~ p(x_s | x_t), the reverse kernel of the T-step model.

One kernel with many names: MDLM's ddpm, MD4's ancestral, SEDD's analytic, RADD's Tweedie, D3PM's step. It works with
every prediction and every process. It samples from the T-step model, whose distance from the continuous-time model is
of order 1 in 1/T.

**Choose, then predict.** For an absorbing process, whether a mask is revealed between t and s does not depend on the
network: the probability is (alpha_s - alpha_t)/(1 - alpha_t), and its token is sampled from the clean posterior. So the
positions are sampled first. The network is evaluated only for sequences in which something changes, and its head only
at those positions. The distribution is that of the plain kernel. The cost is at most one network evaluation for each
revealed position, as with the caches of MDLM and RADD, but without a cache and also for time-conditioned networks. It
is MD4's `mean` sampler. If the schedule gives each token its own alpha (GenMD4), it is exact by thinning. A score
(SEDD) itself determines whether a mask is revealed: it is evaluated at all masks, and sampled from at those that are
revealed.

**Argmax.** A step may take the likeliest state of its kernel at each position instead of a sample: in the step to clean
tokens alone (`last`, as D3PM's published code), or in every step (`every`). Under uniform noise the published code of
UDLM and Duo ends with the likeliest token of mu itself, the network's softmax, while the kernel also contains
q(x_t | x_s) (`mu`). Temperature 0 is different: tokens are the likeliest, and which masks are revealed stays random.

**Gumbel noise in float32.** Published code samples with float32 Gumbel noise, which is cut off above, so improbable
states never win (Zheng et al. 2024). In many steps each token of a step is improbable, so more are cut off, which acts
as a lower temperature. The option `gumbel_bits` 24 samples with the same cut, in closed form
(`core.random.truncated_gumbel`); without it samples are exact.

**A latent.** The network of a student of `zellige train distill --by di4c` has another input, a latent of M equally
likely values. Each step samples one for all positions of a sequence, so the tokens of a step depend on each other.

**A carried estimate.** A network with self-conditioning reads an estimate of the clean text. With `estimate` carried
that is its own from the step before, which makes another model (`samplers.carried`).

**Grids** of times go from the start of sampling to clean tokens. `uniform` is even in t; `cosine` has more steps near
t = 1 (MD4, eq. 6). `log-snr` is even in log(alpha / (1 - alpha)), for scores under uniform noise (SEDD): there a step
multiplies errors of the network by about alpha_s / alpha_t, which is large in the first steps of the uniform grid. In
discrete time all times are some of the process's own. `published` goes from t = 1 to 1e-5 (MD4: 0) and then, in one
more step, to clean tokens, as the code of MDLM, UDLM, SEDD, RADD, MD4 and GenMD4 does (`samplers.grid`); this is not
the distribution of the T-step model.
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
    "help": "the last step, to clean tokens: take the likeliest tokens (last), or sample them (none)"
}


@declared
class Ancestral(OnGrid):
    """The reverse kernel on a grid of times."""

    argmax: Argmax = option(
        "take the likeliest token instead of sampling: in the last step, to clean tokens (last), in every"
        " step (every), or never (none); for ancestral also mu: in the last step the likeliest token of "
        "the network's prediction",
        default="none",
    )
    gumbel_bits: int = option(
        "truncate Gumbel noise as if made from uniform numbers of this many bits (published code: 24); 0: exact",
        default=0,
        minimum=0,
        maximum=53,
    )
    estimate: Literal["own", "carried"] = option(
        "for a network with self-conditioning, the prediction that it reads: of a first pass in the same "
        "step (own), or of the step before (carried): one pass instead of two, but another distribution",
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
