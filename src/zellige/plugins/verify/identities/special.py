"""BERT and autoregression as chains: D3PM (arXiv 2107.03006), section 4; MDLM without SUBS: its section 5.3.

Both are written a second time as what they are, BERT by its recipe for masking a text and autoregression by the
distributions of the next token, and compared with the bound of a chain.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from zellige.core import bound
from zellige.core.batch import Batch
from zellige.core.matrices import Chain
from zellige.core.prediction import LeaveOneOut, truth
from zellige.core.process import absorbing_uniform
from zellige.core.schedule import CLEAN, PRIOR, Tabulated
from zellige.exact import bounds, enumeration
from zellige.methods import AR, D3PM, MDLM
from zellige.methods.absorbing import Masked
from zellige.methods.diffusion import Diffusion
from zellige.methods.method import Method

from .bound import BOUND, closed_form_is_the_generic_bound, total
from .check import L, Largest, Row, V, again, enumerable, even, own, some_texts, worst_of
from .coarse import a_coarse_chain_is_a_chain

PARTS = "without carry-over, without zero masking, without both"
CHOSEN, MASKED, RANDOM = 0.15, 0.8, 0.1  # BERT: of the positions; of those; the others keep their token


@own("bound.bert", lambda method: isinstance(method, D3PM) and method.config.process == "absorbing-uniform")
@torch.no_grad()
def bert_is_one_step(method: Diffusion):
    """One step of absorbing and uniform noise, read as p(x_0 | x_1). BERT counts the chosen positions alone,
    the bound all."""
    one = again(method, diffusion_steps=1, prediction="mean")
    assert isinstance(one, D3PM)
    lost = CHOSEN * (MASKED + RANDOM)
    noise = Tabulated(torch.tensor([1.0, 1 - lost], dtype=torch.float64))
    one.process = process = absorbing_uniform(V + 1, noise, MASKED / (MASKED + RANDOM))
    x_0 = enumeration.states(V, L)
    all_positions, chosen_ones = _bert(one, x_0)
    whole, chosen = Largest(), Largest()
    last = bounds.expectation(lambda *draw: one.terms(*draw)["reconstruction"], x_0, even(1))
    whole.see(last, all_positions, "all terms but the prior's")
    whole.see(bounds.step_bound(one, x_0, one.grid(1)) - bound.prior(process, x_0, 1.0).sum(-1), last, "enumerated")
    yield whole.row(BOUND, "one step less L_T = BERT's noise, all positions")
    X, t = enumeration.states(process.K, L), torch.ones(1, dtype=torch.float64)
    q = process.likelihood(X, CLEAN, t).movedim(-1, 0)[x_0[:, None, :], torch.arange(len(X))[:, None], torch.arange(L)]
    stayed = x_0[:, None] == X
    share = torch.where(stayed, 1 - (1 - CHOSEN) / q, 1.0)  # P(chosen | x_0, x_1)
    chosen.see((q.prod(-1) * (share * _cross_entropy(one, X, x_0)).sum(-1)).sum(-1), chosen_ones, "x_0")
    yield chosen.row(BOUND, "... times P(chosen | x_0, x_1) = BERT's loss")


def _cross_entropy(method: Diffusion, x: Tensor, x_0: Tensor) -> Tensor:
    """-log softmax of the logits without the mask at the tokens of x_0 (M, L), given each x (N, L): (M, N, L) nats."""
    logits = method.logits(method.hidden(x, 1.0))[..., :V].double()
    return -logits.log_softmax(-1)[:, torch.arange(L), x_0[:, None]].movedim(0, 1).reshape(len(x_0), len(x), L)


def _bert(method: Diffusion, x_0: Tensor) -> tuple[Tensor, Tensor]:
    """Expected cross-entropy of BERT's corrupted text at all positions, and at the chosen ones: (M,) nats each."""
    K = V + 1
    kept = 1 - MASKED - RANDOM
    outcomes = [(None, False, 1 - CHOSEN), (None, True, CHOSEN * kept), (V, True, CHOSEN * MASKED)]
    outcomes += [(k, True, CHOSEN * RANDOM / K) for k in range(K)]
    total = torch.zeros(2, len(x_0), dtype=torch.float64)
    for choice in itertools.product(outcomes, repeat=L):
        x = torch.stack(
            [x_0[:, i] if k is None else torch.full_like(x_0[:, i], k) for i, (k, *_) in enumerate(choice)], 1
        )
        p = torch.tensor([p for *_, p in choice], dtype=torch.float64).prod()
        ce = torch.stack([_cross_entropy(method, x[m : m + 1], x_0[m : m + 1])[0, 0] for m in range(len(x_0))])
        chosen = torch.tensor([chosen for _, chosen, _ in choice], dtype=torch.float64)
        total += p * torch.stack((ce.sum(-1), (chosen * ce).sum(-1)))
    return total[0], total[1]


@own("bound.ar-chain", lambda method: isinstance(method, Masked | AR))
@torch.no_grad()
def autoregression_is_a_chain(method: Method) -> Iterator:
    """Masks that come from the right, one a step and none at random:
    each step but one of its positions costs nothing."""
    worst, X = Largest(), enumeration.states(V, L)
    if isinstance(method, AR):
        worst.see(_tagged(method, X), method.bound(Batch(X)), "positions as tags of the tokens")
    elif isinstance(method, Diffusion) and method.clean(Batch(X)) is None:  # blocks are autoregression between them
        worst.see(_from_the_right(method, X), _next_tokens(method, X), "a time for each position")
    else:
        return
    yield worst.row(BOUND, "a chain that masks from the right = AR's -log p")


def _from_the_right(method: Diffusion, x_0: Tensor) -> Tensor:
    """The sum of the KLs of L steps, of absorbing noise with a time for each position: CLEAN, then PRIOR. (M,) nats."""
    total, place = torch.zeros(len(x_0), dtype=torch.float64), torch.arange(L).expand(x_0.shape)
    for step in range(L):  # that reveals this position
        t, s = (torch.where(place < first, CLEAN, PRIOR).double() for first in (step, step + 1))
        x_t = method.process.sample(x_0, t)
        target, pred = truth(method.process, x_0, x_t, t), method.predict(x_t, t)
        total += bound.discrete(target, pred, s).sum(-1)  # D3PM section 4
    return total


def _next_tokens(method: Diffusion, x_0: Tensor) -> Tensor:
    """-log p token by token, from the logits at the first mask: (M,) nats."""
    total = torch.zeros(len(x_0), dtype=torch.float64)
    for i in range(L):
        x = torch.cat((x_0[:, :i], torch.full_like(x_0[:, i:], method.process.mask_id)), 1)
        logits = method.logits(method.hidden(x, PRIOR))[:, i, :V].double()
        total += F.cross_entropy(logits, x_0[:, i], reduction="none")
    return total


def _tagged(method: AR, x_0: Tensor) -> Tensor:
    """The sum of the KLs of a chain on tokens with their positions as tags, L (V + 1) states: (M,) nats.

    Step i of L masks every token with the tag L - i. With tags it is one chain for all positions.
    """
    K = L * (V + 1)
    steps = torch.eye(K, dtype=torch.float64).repeat(L, 1, 1)
    clean, tag = torch.arange(K) % (V + 1) < V, torch.arange(L) * (V + 1)
    for i in range(L):
        rows = slice((L - 1 - i) * (V + 1), (L - i) * (V + 1))
        steps[i, rows] = 0.0
        steps[i, rows, rows.stop - 1] = 1.0
    process = Chain(steps, torch.where(clean, 0.0, 1 / L).double(), clean=clean)
    texts, total = x_0 + tag, torch.zeros(len(x_0), dtype=torch.float64)
    for i in range(L, 0, -1):
        at = L - i  # the position that this step reveals
        t, s = (torch.full(x_0.shape, n / L, dtype=torch.float64) for n in (i, i - 1))
        x_t = torch.where(torch.arange(L) < at, texts, tag + V)
        mu = torch.zeros(*x_0.shape, K, dtype=torch.float64)
        mu.scatter_(
            -1, (texts - texts % (V + 1))[..., None] + torch.arange(V), 1 / V
        )  # later positions: no matter what
        mu[:, :at] = F.one_hot(texts[:, :at], K).double()
        before = torch.cat((torch.full_like(x_0[:, :1], method.begin), x_0[:, :-1]), 1)
        h = method.hidden(before, None)[:, at]
        mu[:, at, tag[at] : tag[at] + V] = method.next(h)
        total += bound.discrete(truth(process, texts, x_t, t), LeaveOneOut(process, mu, x_t, t), s).sum(-1)
    return total


@own("bound.without-subs", lambda method: isinstance(method, MDLM) and method.steps > 0)
def mdlm_without_subs_is_a_chain(method: MDLM) -> Iterator[Row]:
    """Without carry-over, zero masking or both; the network sees the time or not.
    The rows of each with the largest error."""
    checks = []
    for carry_over, zero_masking, time in ((False, True, False), (False, False, True), (True, False, False)):
        more = {"carry_over": carry_over, "zero_masking": zero_masking, "time": time}
        instance: Any = enumerable(MDLM, diffusion_steps=4, **more)
        name = ", ".join(f"{option} False" for option in ("carry_over", "zero_masking") if not more[option])
        for check in (closed_form_is_the_generic_bound, a_coarse_chain_is_a_chain, _its_loss_is_its_bound):
            checks.append((name, check(instance)))
    for row in worst_of(checks):
        yield replace(row, group=PARTS)


def _its_loss_is_its_bound(method: Diffusion) -> Iterator[Row]:
    worst, x_0 = Largest(), some_texts()
    nodes = even(method.steps * (method.steps - 1))  # a loss draws one of all steps, or of those before the last
    with torch.no_grad():
        worst.see(bounds.expectation(method.loss, x_0, nodes), total(method, x_0))
    yield worst.row(BOUND, "E of the loss = the bound of T steps")
