"""Rules of decoders in which the network chooses the order,
against their definitions in loops over texts and positions."""

import itertools
import math
from collections.abc import Collection, Sequence
from typing import get_args

import torch
from torch import Tensor

from zellige.samplers import P2, Confidence, Klass, State
from zellige.samplers.confidence import RULES, Measure
from zellige.samplers.p2 import number

from .check import Largest, numbers, shared, state_of

DECODERS = "decoders"
B, N, K = 48, 5, 4  # texts, positions, tokens without the mask
MEASURES: tuple[Measure, ...] = get_args(Measure)
STEPS_LEFT = 2
VALUES = {"threshold": (0.4, 0.6), "factor": (0.9, 1.4, 2.2), "entropy_bound": (0.3, 0.9, 2.0), "per_step": (2,)}


def posteriors(shift: int) -> Tensor:
    """Distributions (B, N, K + 1) of many shapes, the mask's probability zero."""
    p = (2.5 * numbers(B + shift, N, K)[shift:]).softmax(-1)
    return torch.nn.functional.pad(p, (0, 1))


def some_masks() -> Tensor:
    """(B, N) bool: which positions are masks, from one in a text to all."""
    masks = numbers(B, N) > torch.linspace(-1, 0.6, B, dtype=torch.float64)[:, None]
    masks[:, 3] = True
    return masks


def with_masks(masks: Tensor, memory: Tensor | None = None) -> State:
    return state_of(torch.where(masks, K, 0), memory=memory)


def entropy(p: Sequence[float]) -> float:
    return -sum(q * math.log(q) for q in p if q > 0)


def confident(p: Sequence[float], measure: Measure) -> float:
    first, second, *_ = sorted(p, reverse=True)
    return {"probability": first, "margin": first - second, "entropy": 1 - entropy(p) / math.log(K)}[measure]


def allowed(rule: str, value: float, c: Sequence[float], H: Sequence[float], masks: int) -> bool:
    """Whether a rule lets a step reveal the masks with these confidences, the most confident of all, and entropies."""
    n = len(c)
    if rule == "threshold":
        return c[-1] >= value
    if rule == "factor":  # Fast-dLLM
        return (n + 1) * (1 - c[-1]) < value
    if rule == "entropy_bound":  # EB
        return sum(H) - max(H) <= value
    return n <= (value if rule == "per_step" else math.ceil(masks / STEPS_LEFT))


def see(worst: Largest, at: Tensor, wanted: Collection[int], where: str) -> None:
    """Compare the positions (N,) that were chosen with those that are wanted."""
    worst.see(at.double(), torch.tensor([float(i in wanted) for i in range(N)]).double(), where)


@shared("decoders.confidence")
@torch.no_grad()
def a_rule_reveals_what_it_says():
    """Fast-dLLM's threshold and factor, EB's entropy bound, MaskGIT's equal shares: which masks a step reveals."""
    p, masks, worst = posteriors(0), some_masks(), Largest()
    ways = [(rule, value) for rule in RULES for value in VALUES[rule]] + [("", 0.0)]
    for measure, (rule, value) in itertools.product(MEASURES, ways):
        sampler = Confidence(measure, **({rule: value} if rule else {}))
        at, _ = sampler.choose(with_masks(masks), masks, p[masks], torch.tensor(float(STEPS_LEFT)))
        for b in range(B):
            each = {i: p[b, i].tolist()[:K] for i in range(N) if masks[b, i]}
            c, H = {i: confident(q, measure) for i, q in each.items()}, {i: entropy(q) for i, q in each.items()}
            order = sorted(each, key=lambda i: (-round(c[i], 5), i))
            firsts = [order[:n] for n in range(1, len(order) + 1)]
            fit = [
                some for some in firsts if allowed(rule, value, [c[i] for i in some], [H[i] for i in some], len(order))
            ]
            see(worst, at[b], fit[-1] if fit else order[:1], f"{measure}, {rule} {value}")
    yield worst.row(DECODERS, "confidence: each rule reveals what it says")


@shared("decoders.klass")
@torch.no_grad()
def stable_masks_are_revealed():
    """KLASS over four evaluations of the same masks: a history of stable and changed distributions for each."""
    masks, worst, base = some_masks(), Largest(), posteriors(0)
    # mixed with ever less of another distribution, a part of them with a leap before the last evaluation
    shares = torch.tensor([0.9, 0.2, 0.1, 0.05])
    leap = (numbers(B, N) > 0.3)[..., None]
    seen = [
        torch.where(leap & (i == 2), posteriors(11), (1 - w) * base + w * posteriors(7)) for i, w in enumerate(shares)
    ]
    for history in (1, 2):
        sampler = Klass(0.5, 0.1, history)
        memory = torch.zeros(B, N, K + 2, dtype=torch.float64)
        for i, p in enumerate(seen):
            at, memory = sampler.choose(with_masks(masks, memory), masks, p[masks], torch.tensor(1.0))
            for b in range(B):
                now = {n: p[b, n].tolist()[:K] for n in range(N) if masks[b, n]}
                settled = [n for n in now if max(now[n]) >= 0.5 and _stable(seen, b, n, i, history)]
                wanted = settled or [min(now, key=lambda n: (-round(max(now[n]), 5), n))]
                see(worst, at[b], wanted, f"evaluation {i + 1}")
    yield worst.row(DECODERS, "klass: stable and confident masks, or one")


@shared("decoders.p2")
@torch.no_grad()
def the_least_likely_are_masked_again():
    """P2: which positions hold tokens after a step; some are given, some stand, some were masks."""
    p, masks, worst = posteriors(0), some_masks(), Largest()
    fixed = ~masks & (numbers(B + 1, N)[1:] > 0.5)
    x = (numbers(B, N) * 1e4).long() % K
    log_p = p.gather(-1, x[..., None])[..., 0].log()
    for eta, s in itertools.product((0.0, 0.7, 1.0, 3.0), (0.0, 0.3, 0.5, 0.9)):
        free = (~fixed).sum(-1)
        stays = P2(eta).stays(log_p, masks, fixed, number(free, torch.tensor(s)))
        for b in range(B):
            own = [i for i in range(N) if not fixed[b, i]]
            score = {i: round(float(log_p[b, i]) * (1 if masks[b, i] else eta), 5) for i in own}
            left = math.floor(len(own) * s + 1e-9)
            if not eta:  # no token is masked again, so no more masks are left than there were
                score = {i: score[i] for i in own if masks[b, i]}
                if left > len(score):
                    continue
            masked = sorted(score, key=lambda i: (score[i], -i))[:left]
            see(worst, stays[b], [i for i in range(N) if i not in masked], f"eta {eta}, time {s}")
    yield worst.row(DECODERS, "p2: the least likely are masked again")


def _stable(seen: list[Tensor], b: int, n: int, now: int, history: int) -> bool:
    """Whether a mask changed by less than 0.1 nats in each of the last `history` evaluations up to `now`."""
    if now < history:
        return False
    rows = [p[b, n].tolist()[:K] for p in seen[now - history : now + 1]]
    changes = [sum(q * math.log(q / r) for q, r in zip(new, old) if q > 0) for old, new in itertools.pairwise(rows)]
    return all(change < 0.1 for change in changes)
