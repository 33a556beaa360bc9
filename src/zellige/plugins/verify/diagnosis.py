"""Diagnosis of a method that fails `verify`: which quantity is wrong, by how much, and the cause that explains it.

Each cause is a number that the wrong quantity would be, if that were the cause: an end that is left out is off by that
term, bits for nats by a factor 1/log 2, a weight of s in place of t by (1 - alpha_t)/(1 - alpha_s) at every step. What
is enumerated is compared with all of them, so that a cause is named only where it explains the whole error.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from zellige.core.batch import Batch
from zellige.core.prediction import Mean
from zellige.core.schedule import CLEAN
from zellige.exact import bounds, enumeration
from zellige.methods.absorbing import Absorbing
from zellige.methods.diffusion import Diffusion
from zellige.methods.method import Method

from .identities.bound import closed_and_generic
from .identities.check import INSIDE, L, V, data_distribution, one_alpha, pairs, variants
from .identities.draw import nodes

SURE = 1e-4  # of an error, what a cause may leave unexplained
FACTORS = {
    "bits for nats: the ratio is 1.443": 1 / math.log(2),
    "nats taken for bits: the ratio is 0.693": math.log(2),
    "half of it is left out, or it is a mean over the 2 positions for a sum": 1 / L,
    "it is counted twice, or once for each of the 2 positions": float(L),
    "a sign is wrong": -1.0,
    "it is left out": 0.0,
}


def explained(cls: type[Method]) -> list[str]:
    """Sentences on the errors of a method, from the first variant with a known cause; none if none is known.

    Where the network is asked or read wrongly, nothing is said of what follows from that.
    """
    for name, method in variants(cls):
        if not isinstance(method, Diffusion):
            continue
        try:
            wrong_predictions = [*_distribution(method), *_sight(method)]
            sentences = wrong_predictions or [*_moments(method)] or [*_terms(method)]
        except Exception:  # a wrong method may fail anywhere; its checks have said so
            continue
        if sentences:
            return [f"{name}: {sentence}" if name else sentence for sentence in dict.fromkeys(sentences)]
    return []


# ---------------------------------------------------------------------------------- what the network says
@torch.no_grad()
def _distribution(method: Diffusion) -> Iterator[str]:
    """Errors of the prediction as a distribution on the states that x_t can come from."""
    process, X = method.process, enumeration.states(method.process.K, L)
    pred = method.predict(X, INSIDE[1], context=method.clean(Batch(X)))
    if (mu := getattr(pred, "mu", None)) is None:
        return
    if process.mask is not None and float(largest := mu[..., process.mask].max()) > 1e-9:
        yield f"the prediction has up to {float(largest):.3g} of its mass on the mask: a network never says it"
    total = mu.sum(-1)
    if float((total - 1).abs().max()) > 1e-9:
        least, largest = float(total.min()), float(total.max())
        cause = ": a normaliser over V + 1 in place of V" if process.mask is not None and largest < 1 + 1e-9 else ""
        yield f"the prediction sums to {least:.3g} to {largest:.3g}, not to 1{cause}"
    if process.mask is not None and isinstance(pred, Mean):
        kept_probability = mu.gather(-1, X[..., None])[..., 0][process.mask != X]
        if float((1 - kept_probability).max()) > 1e-9:
            least = float(kept_probability.min())
            yield f"a token that is not masked has only {least:.3g} of the prediction: it must be carried over"


@torch.no_grad()
def _sight(method: Diffusion) -> Iterator[str]:
    """Errors of the network's input, for a network that reads one text alone: it must not see what it predicts."""
    mask = method.process.mask
    x_0 = enumeration.states(V, L)
    if mask is None or method.clean(Batch(x_0)) is not None:
        return
    inputs, features = [], method.network.features

    def watched(x: Tensor, *args: Any, **more: Any) -> Tensor:
        inputs.append(x)
        return features(x, *args, **more)

    def shown(ask: Callable[[], Any]) -> bool:
        inputs.clear()
        ask()
        return bool(inputs) and not bool(torch.cat(inputs).eq(mask).any())

    method.network.features = watched
    try:
        all_masks, t = torch.full_like(x_0, mask), torch.full((len(x_0),), 0.5, dtype=torch.float64)
        draw = lambda of: lambda: [of(Batch(x_0), torch.Generator().manual_seed(seed)) for seed in range(4)]  # noqa: E731
        questions = [("bound", lambda: method.continuous_bound(Batch(x_0), all_masks, t))] if not method.steps else []
        for name, ask in (*questions, ("loss", draw(method.loss)), ("bound", draw(method.bound))):
            if shown(ask):
                yield f"the {name} asks the network about texts without a mask: it sees the tokens that it predicts"
    finally:
        method.network.features = features


# ---------------------------------------------------------------------------------- its closed forms, moment by moment
@torch.no_grad()
def _moments(method: Diffusion) -> Iterator[str]:
    """Errors of the bound at a time and of a step, relative to the generic bound."""
    if not one_alpha(method):
        return
    schedule, alpha = method.process.schedule, lambda t: float(method.process.schedule.alpha(t))
    if not method.steps:
        causes = {
            "the weight is that of 1 - t in place of t": lambda t: float(schedule.weight(1 - t) / schedule.weight(t)),
            "-alpha'/alpha, the rate of losing, for -alpha'/(1 - alpha)": lambda t: (1 - alpha(t)) / alpha(t),
            "the weight -alpha'/(1 - alpha) is missing": lambda t: 1 / float(schedule.weight(t)),
            "t for 1/t": lambda t: t * t,
            "it is multiplied by t": lambda t: t,
        }
        yield from _ratios(method, [(t, None) for t in INSIDE], causes)
    causes_of_steps = {
        "the weight is of s in place of t": lambda t, s: (1 - alpha(t)) / (1 - alpha(s)),
        "the probability to be revealed is not there": lambda t, s: (1 - alpha(t)) / (alpha(s) - alpha(t)),
        "(alpha_s - alpha_t) is not divided by 1 - alpha_t": lambda t, s: 1 - alpha(t),
    }
    steps = [(0.75, 0.5), (0.5, 0.25), (1.0, 0.25)]
    yield from _ratios(method, [step for step in steps if step[0] <= method.process.start_time], causes_of_steps)


def _ratios(method: Diffusion, moments: list[tuple], causes: dict[str, Callable[..., float]]) -> Iterator[str]:
    """Cause of the ratio of the method's bound to the generic one at all these moments (t, s or None)."""
    ratios, apart, where = [], [], moments[0]
    for t, s in moments:
        x_0, x_t, time, q = pairs(method.process, t)
        values, true = closed_and_generic(method, x_0, x_t, time, s)
        alike = true.isinf() & (values == true)  # a score's step that its clipped kernel never takes
        values, true = values.masked_fill(alike, 0.0), true.masked_fill(alike, 0.0)
        positive = true > 1e-9
        ratio = values[positive] / true[positive]
        ratios.append(ratio)
        apart.append(float((q * (values - true)).sum() / q.sum()))
        where = (t, s) if abs(apart[-1]) >= max(map(abs, apart)) else where
    if all(bool((ratio - 1).abs().max() < SURE) for ratio in ratios):
        return
    worst = max(apart, key=abs)
    kind = f"at t = {where[0]:g}" if where[1] is None else f"of the step from t = {where[0]:g} to {where[1]:g}"
    unit = " per unit of time" if where[1] is None else ""
    begin = f"the bound {kind} is {abs(worst):.3g} nats{unit} {'below' if worst < 0 else 'above'} its definition"
    arguments = [(t,) if s is None else (t, s) for t, s in moments]
    functions = {**{cause: lambda *_, c=c: c for cause, c in FACTORS.items()}, **causes}
    for cause, f in functions.items():
        if all(bool((ratio - f(*a)).abs().max() < SURE * max(1.0, abs(f(*a)))) for ratio, a in zip(ratios, arguments)):
            yield f"{begin}: {cause}"
            return
    yield f"{begin}: its ratio goes from {float(torch.cat(ratios).min()):.3g} to {float(torch.cat(ratios).max()):.3g}"


# ---------------------------------------------------------------------------------- the terms that are drawn
def _terms(method: Diffusion) -> Iterator[str]:
    """Errors of the expectation of the sampled terms, against enumeration,
    and against the entropy at the exact network."""
    if method.steps > 8:  # too many draws to enumerate for a sentence
        return
    x_0, distribution = enumeration.states(V, L), data_distribution()
    entropy = float(enumeration.entropy(distribution))
    reaches = isinstance(method, Absorbing) and _exact(method, distribution)
    with torch.no_grad():
        for name, draw in (("bound", method.bound), *([("loss", method.loss)] * method.loss_is_bound)):
            values = bounds.expectation(draw, x_0, nodes(method, loss=name == "loss"))
            terms = _true_terms(method, x_0, jumps=name == "loss")
            whole = torch.stack(list(terms.values())).sum(0)
            off = values - whole
            if float(off.abs().max()) < 1e-5:
                continue
            gap = float((distribution * values).sum()) - entropy if reaches else float((distribution * off).sum())
            reference = "the entropy, at the exact network" if reaches else "the sum of its terms"
            begin = f"the {name} is {abs(gap):.3g} nats {'below' if gap < 0 else 'above'} {reference}"
            yield f"{begin}{_cause(off, values, whole, terms)}"


def _cause(off: Tensor, ours: Tensor, whole: Tensor, terms: dict[str, Tensor]) -> str:
    """The cause of `off`, as the end of a sentence; nothing where none explains it."""
    ends = ("prior", "reconstruction")
    causes = {f"the {name} term is missing": -terms[name] for name in ends}
    causes |= {f"the {name} term counts twice": terms[name] for name in ends}
    causes |= {"the prior and the reconstruction term are missing": -terms["prior"] - terms["reconstruction"]}
    causes |= {words: (c - 1) * whole for words, c in FACTORS.items()}
    causes |= {f"of the diffusion term, {words}": (c - 1) * terms["diffusion"] for words, c in FACTORS.items()}
    for words, by in causes.items():
        if float(by.abs().max()) > 1e-5 and float((off - by).abs().max()) < 1e-5 + 1e-3 * float(by.abs().max()):
            return f": {words}"
    return ""


def _true_terms(method: Diffusion, x_0: Tensor, jumps: bool) -> dict[str, Tensor]:
    """By enumeration: the three terms of continuous time,
    or those of T steps with the first and last of them as ends."""
    if not method.steps:
        terms = bounds.continuous_terms(method, x_0, jumps=jumps)
        return {name: terms[name] for name in ("diffusion", "reconstruction", "prior")}
    times = method.grid(method.steps)
    prior_term, last_term = bounds.step_bound(method, x_0, times[:2]), bounds.expected(method, x_0, times[-2], CLEAN)
    return {
        "diffusion": bounds.step_bound(method, x_0, times) - prior_term - last_term,
        "reconstruction": last_term,
        "prior": prior_term,
    }


@torch.no_grad()
def _exact(method: Diffusion, distribution: Tensor) -> bool:
    """Write the exact p(x_0 | x_t) into the table of an absorbing method; False if its logits mean something else."""
    if (
        method.parameterization != "mean"
        or not one_alpha(method)
        or method.clean(Batch(enumeration.states(V, L))) is not None
    ):
        return False
    X, logits = enumeration.states(method.process.K, L), method.network.logits
    true: Any = enumeration.Denoiser(method.process, distribution, L).predict(X, 0.5)
    logits.zero_()
    logits[0] = true.mu.clamp_min(1e-300).log().clamp_min(-80.0)
    at_mask = method.process.mask == X
    prediction: Any = method.predict(X, 0.5)
    return bool((prediction.mu - true.mu)[at_mask].abs().max() < 1e-9)
