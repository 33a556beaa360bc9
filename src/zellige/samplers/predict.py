"""Parts of a sampler's step: evaluate the network where the state may change, and put the sampled tokens in."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..base.waiting import fixed
from ..core import random
from ..core.batch import Batch
from ..core.positions import positions
from ..core.prediction import Prediction, Score
from ..core.random import Randomness
from ..core.schedule import CLEAN, as_time
from ..methods.diffusion import Diffusion
from ..methods.method import Method
from .guide import Truncated, Wrapper
from .pairing import not_absorbing
from .sampler import State

CHOOSE: dict[str, Any] = {  # an option of samplers
    "help": "choose, then predict, if that is exact; False: predict at every position",
    "hidden": True,
}


def predict_at(method: Diffusion, state: State, at: Tensor, t: Tensor | float) -> Prediction | None:
    """Evaluate the network at the positions `at` (B, L) bool: a prediction of leading shape (N,), or None if there is
    none.

    The network is evaluated only for sequences with such a position, and its head only there. Given positions are
    CLEAN.
    """
    time = clean_where_fixed(method, state, t)
    if not fixed():  # else all sequences: no shape depends on the noise
        rows = at.any(-1).nonzero()[:, 0]  # (R,)
        if len(rows) == 0:
            return None
        state, time, at = replace(state, memory=None).take(rows), time[rows], at[rows]
    more = {"context": state.context, "condition": state.condition, "segments": state.segments}
    return method.predict(state.x, time, at=at, **more)


def reads_tokens(method: Method) -> str | None:
    """Reason against a method: it gives no p(x_0 | x_t) of the network itself, as `hidden_at` and `as_masks` read it."""
    if isinstance(method, Wrapper) and not isinstance(method, Truncated):
        return "reads the network itself, whose distribution guidance changes"
    if why := not_absorbing(method, one=True):
        return why
    inner: Any = method.method if isinstance(method, Truncated) else method
    reads = inner.network is not None and type(inner).read is not Diffusion.read
    return None if reads and method.parameterization == "mean" else "needs a network of p(x_0 | x_t)"


def hidden_at(method: Diffusion, state: State, at: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden states (N, D) at the positions `at` (B, L) bool, masks or not, and the times (B, L) of the evaluation.

    Only sequences with such a position are evaluated.
    """
    rows, time = at.any(-1).nonzero()[:, 0], clean_where_fixed(method, state, expected_time(method, state))
    context = None if state.context is None else state.context.take(rows)
    condition = None if state.condition is None else state.condition[rows]
    batch = Batch(state.x[rows], condition=condition)
    return method.hidden(state.x[rows], time[rows], batch, context, positions(at[rows])), time


def as_masks(method: Diffusion, h: Tensor, time: Tensor) -> Prediction:
    """Prediction from hidden states h (N, D) at times (N,), as if each position held a mask."""
    return method.read(method.logits(h), torch.full((len(h),), method.process.mask_id, device=h.device), time)


def redraw(
    method: Diffusion,
    state: State,
    at: Tensor,
    t: Tensor | float,
    distribution: Callable[[Prediction], Tensor],
    generator: Randomness = None,
) -> State:
    """Evaluate the network at the positions `at`, and sample their tokens from `distribution` (N, K) of the
    prediction."""
    pred = predict_at(method, state, at, t)
    if pred is None:
        random.discard(at.shape, generator)
        return state
    return fill(state, at, random.categorical(distribution(pred), generator, at), at.any(-1))


def choose_then_predict(
    method: Diffusion,
    state: State,
    reveal: Tensor,
    t: Tensor,
    distribution: Callable[[Prediction], Tensor],
    generator: Randomness = None,
) -> State:
    """Reveal each free mask with a probability that does not depend on the network, then sample its token.

    Args:
        reveal: the probability, (1,) or (B, 1, 1); or one for each token, (K,) or (B, 1, K): then positions are chosen
            with the largest, and a sampled token k is kept with probability reveal_k / largest (thinning).
        distribution: the clean posterior (N, K) of the prediction.
    """
    largest = reveal.amax(-1)  # () or (B, 1)
    at = free(method, state) & random.bernoulli(largest.expand(state.x.shape), generator)  # (B, L), N of them
    if reveal.shape[-1] == 1:
        return redraw(method, state, at, t, distribution, generator)
    pred = predict_at(method, state, at, t)
    if pred is None:
        for _ in range(2):  # the draws below, which other rows may make
            random.discard(at.shape, generator)
        return state
    x = random.categorical(distribution(pred), generator, at)  # (N,)
    where = positions(at)
    relative = (reveal / largest[..., None]).expand(len(at), 1, -1)[where.row, 0, x]  # (N,), reveal_k / largest
    keep = random.bernoulli(relative, generator, at)  # (N,): thinning
    return fill(state, at, torch.where(keep, x, where.of(state.x)), at.any(-1))


def predict_then_choose(
    method: Diffusion,
    state: State,
    s: Tensor,
    t: Tensor,
    reveal: Callable[[Score, Tensor], Tensor],
    distribution: Callable[[Prediction, Tensor], Tensor],
    generator: Randomness = None,
) -> State:
    """Evaluate a score network at every mask, reveal each with the probability of its score, then sample its token.

    A score is not normalised: its total determines how likely a mask is revealed. So the network is evaluated at all
    masks, but only the revealed ones are sampled.

    Args:
        s: the time () or (B, 1) after the step.
        reveal: of a score at masks and the times (N,): the probability (N,) that a mask is a token at s.
        distribution: the kernel (N, K) of any other prediction, such as a truncated one, which is then sampled as in
            `redraw`.
    """
    at = free(method, state)
    where = positions(at)
    pred, later = predict_at(method, state, at, t), where.of(s.expand(at.shape))
    if pred is None:
        for _ in range(2):  # the draws below, which other rows may make
            random.discard(at.shape, generator)
        return state
    if not isinstance(pred, Score):
        random.discard(at.shape, generator)
        return fill(state, at, random.categorical(distribution(pred, later), generator, at), at.any(-1))
    reveals = random.bernoulli(reveal(pred, later), generator, at)  # (N,) bool
    revealed_at = where.put(at, reveals)
    v = where.among(revealed_at, pred.v)
    v = torch.where(method.process.clean, v, 0.0)
    return fill(state, revealed_at, random.categorical(v, generator, revealed_at), at.any(-1))


def expected_evaluations(reveal: Tensor, free: int) -> float:
    """Expected network evaluations of a sequence with `free` masks, if a step reveals a remaining mask with probability
    reveal (n,).

    A step evaluates the network if it reveals any: sum_i 1 - (1 - r_i)^free, with r_i the probability that a position
    is revealed in step i. For the kernel of absorbing noise r_i = alpha_s - alpha_t (RADD, arXiv 2406.03736, on its
    expected function evaluations).
    """
    mask_probability = torch.cat((reveal.new_ones(1), (1 - reveal).cumprod(0)[:-1]))  # (n,) before each step
    return float((1 - (1 - mask_probability * reveal) ** free).sum())


def free(method: Diffusion, state: State) -> Tensor:
    """Return the positions (B, L) bool that a reverse step may change."""
    return method.process.movable(state.x) & ~state.fixed


def pick(scores: Tensor, count: int, generator: Randomness = None) -> Tensor:
    """Select up to `count` positions, one after another without replacement, in proportion to exp(scores) (B, L):
    (B, L) bool.

    A position of score -inf is never selected.
    """
    at = torch.zeros_like(scores, dtype=torch.bool)
    for _ in range(min(count, scores.shape[-1])):
        left = scores.masked_fill(at, -torch.inf)  # (B, L)
        top = left.amax(-1, keepdim=True)
        possible = ~top.isneginf()
        where = random.categorical(torch.where(possible, (left - top).exp(), 1.0), generator)  # (B,)
        at = at.scatter(-1, where[:, None], possible | at.gather(-1, where[:, None]))
    return at


def expected_time(method: Diffusion, state: State) -> Tensor:
    """Time (B, 1) at which the expected fraction of masks among the positions that are not given is the observed one.

    Rounded to 1/1000; for a T-step model to one of the T times on which its network was trained.
    """
    process, given_at, device = method.process, given_positions(method, state), state.x.device
    share = (process.movable(state.x) & ~given_at).sum(-1).double() / (~given_at).sum(-1).clamp_min(1)
    even = torch.arange(1001, dtype=torch.float64, device=device) / 1000
    t = method.grid(method.steps, device)[:-1].flip(0).clamp_max(1.0) if method.steps else even
    alpha = process.schedule.alpha(t)  # (n, 1), or (n, K)
    noise = 1 - (alpha if alpha.shape[-1] == 1 else alpha[:, process.clean]).mean(-1)
    between = (noise[1:] + noise[:-1]) / 2
    return t[torch.searchsorted(between, share.to(noise))][:, None]


def hides(method: Diffusion) -> bool:
    """Return whether a position can be left out of a sample: where noise is a mask, which carries no information on its
    token.

    With the mask at a position the clean posterior of the others is their distribution with that position summed out.
    Noise that is a token is an observation of it.
    """
    return getattr(method.process, "hides", method.parameterization == "insertion")


def given_positions(method: Diffusion, state: State) -> Tensor:
    """Return the positions (B, L) bool whose tokens are given; hidden positions are not."""
    return state.fixed & (state.x != method.process.mask) if hides(method) else state.fixed


def clean_where_fixed(method: Diffusion, state: State, t: Tensor | float) -> Tensor:
    """Times (B, L): t, and CLEAN at given positions, which carry no noise."""
    time = as_time(t, state.x.device).to(state.x.device, torch.float64)
    return torch.where(given_positions(method, state), CLEAN, time)


def fill(state: State, at: Tensor, tokens: Tensor, asked: Tensor) -> State:
    """Put tokens (N,) in at `at` (B, L), after one network evaluation of each sequence in `asked` (B,) bool."""
    return replace(state, x=positions(at).put(state.x, tokens), calls=state.calls + asked)
