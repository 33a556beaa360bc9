"""Guidance: with the exact classifier p(x | y) in every form of sampling,
and by definition on networks that are not exact."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zellige.core import maths
from zellige.core.batch import Batch
from zellige.core.prediction import Score, kernel, posterior, reverse_rate, score
from zellige.core.process import Process
from zellige.core.schedule import CLEAN
from zellige.exact import enumeration, script
from zellige.methods.diffusion import Diffusion
from zellige.methods.method import Method
from zellige.nn.block import Net
from zellige.nn.classifier import Classifier
from zellige.nn.transformer import DiT
from zellige.samplers import Ancestral, AnyOrder, Blockwise, LeftToRight
from zellige.samplers.guidance import ByClassifier, ClassifierFree, Product
from zellige.samplers.pairing import rateless
from zellige.samplers.sampler import Sampler

from .blocks import next_distributions, of_tokens
from .check import (
    INSIDE,
    L,
    Largest,
    V,
    above,
    again,
    apart,
    data_distribution,
    discrete,
    numbers,
    one_alpha,
    own,
    reachable,
    shared,
    truth_of,
)
from .networks import classed, takes_classes, with_numbers
from .sampler import order, starts

GUIDANCE = "guidance: by a classifier, by the class, by another model"
CLASSES, CLASS, STRENGTH = 2, 1, 2.5


class Bayes:
    """The exact classifier of noisy texts of a known distribution (V^L,), given P(class | x_0) (V^L, classes)."""

    length, classes = L, range(CLASSES)

    def __init__(self, distribution: Tensor, given: Tensor):
        self.distribution, self.given = distribution, given

    def log_p(self, x: Tensor, t: Tensor, process: Process | None) -> Tensor:
        K = V + 1 if process is None else process.K
        X, itself = enumeration.states(V, L), F.one_hot(x, K).double()
        if process is None:
            q = torch.where(x[..., None] == V, 1.0, itself)  # V is a blank
        else:
            X = enumeration.states(K, L)[enumeration.is_clean(process, L)]
            q = process.likelihood(x, CLEAN, t)
            q = torch.where(q.sum(-1, keepdim=True) > 0, q, itself)  # no token but the mask is possible at PRIOR
        joint = self.distribution * q[:, torch.arange(L), X].prod(-1)  # (B, texts)
        return (maths.normalise(joint) @ self.given).log()


def given() -> Tensor:
    """P(class | x_0), (V^L, classes)."""
    return (2 * numbers(V**L, CLASSES)).softmax(-1)


def conditional(distribution: Tensor) -> Tensor:
    """p(x_0 | y), (V^L,)."""
    joint = distribution * given()[:, CLASS]
    return joint / joint.sum()


def guided_truth(method: Diffusion) -> Any:
    """The exact network, guided by the exact classifier at strength 1."""
    return ByClassifier(truth_of(method), Bayes(data_distribution(), given()), 1.0, CLASS)


def all_noisy(method: Diffusion, t: float) -> tuple[Tensor, Tensor]:
    """Every text of the states, (N, L), and its times."""
    X = enumeration.states(method.process.K, L)
    return X, torch.full(X.shape, t, dtype=torch.float64)


# ---------------------------------------------------------------------------------- the exact classifier
def _distance(method: Diffusion, sampler: Sampler, steps: int) -> float:
    target = enumeration.embed(method.process, conditional(data_distribution()), L)
    return apart(script.sample_distribution(sampler, guided_truth(method), steps), target)


@own("guidance.classifier")
@torch.no_grad()
def the_exact_classifier_draws_the_class(method: Diffusion):
    """T steps tend to p(x | y) with order 1; one mask a step, in any order, has no error."""
    identity = "exact classifier, T steps: p(x | y), order"
    if discrete(method) and starts(method):  # log(T) / T where the last steps are large against t, else 1 / T
        a, b = (_distance(method, Ancestral(), steps) for steps in (64, 128))
        yield above(GUIDANCE, identity, math.log2(a / b), 0.75, "≥ 0.75", f"{a:.2e} at T = 64, {b:.2e} at T = 128")
    elif Ancestral.reason_against(method) is None and not discrete(method):
        yield from order(method, Ancestral(), identity, _distance, GUIDANCE)
    truth = truth_of(method)
    if AnyOrder.reason_against(truth) is None:
        worst = Largest()
        worst.see(_distance(method, AnyOrder(), L), 0.0, "one token a step")
        yield worst.row(GUIDANCE, "exact classifier, one mask a step = p(x | y)")


@own("guidance.rates", lambda method: rateless(method) is None)
@torch.no_grad()
def the_rates_are_those_of_the_class(method: Diffusion):
    """Doob's transform: the exact classifier makes the rates given y of those of p(x)."""
    worst = Largest()
    guided, target = guided_truth(method), truth_of(method, conditional(data_distribution()))
    for t in INSIDE:
        x, time, _ = reachable(method.process, t)
        rates, those = (reverse_rate(m.predict(x, time)) for m in (guided, target))
        worst.see(rates, those, f"t = {t}")
    yield worst.row(GUIDANCE, "exact classifier: rates = those of p(x | y)")


def token_by_token(method: Method) -> bool:
    """Return whether a text is written by a token at a time, without an error of steps: left to right, or masks in
    blocks of one."""
    return method.process is None or (method.block == 1 and method.process.mask is not None)


@own("guidance.next", lambda method: method.block > 0 and getattr(method.process, "mask", V) is not None)
@torch.no_grad()
def the_exact_classifier_draws_the_class_token_by_token(method: Any):
    """On a network that is not exact, whose own distribution p(x) the classifier knows; with a cache,
    and no error of steps."""
    model, sampler = method, LeftToRight()
    if method.parameterization != "next":
        model, sampler = again(method, block=1), Blockwise(Ancestral())
    worst, p = Largest(), script.run_distribution(sampler, model, L, 1)
    guided: Any = ByClassifier(model, Bayes(p, given()), 1.0, CLASS)
    worst.see(script.run_distribution(sampler, guided, L, 1), conditional(p), "all x")
    yield worst.row(GUIDANCE, "exact classifier, token by token = p(x | y)")


# ---------------------------------------------------------------------------------- by definition
class Judge:
    """A classifier that is a table of the noisy text, and sees the time."""

    length, classes = L, range(CLASSES)

    def log_p(self, x: Tensor, t: Tensor, process: Process | None) -> Tensor:
        K = V + 1 if process is None else process.K
        table = numbers(2, K**L, CLASSES, size=0.8)[:, enumeration.index(x, K)]
        return (table[0] + table[1] * t.clamp(0, 1).amax(-1, True)).log_softmax(-1)


@own("guidance.definition")
@torch.no_grad()
def a_classifier_changes_the_kernel_by_its_ratios(method: Diffusion):
    """On a network that is not exact and a classifier that is none of it: every text that differs in one token,
    one by one."""
    kernels, rates, judge = Largest(), Largest(), Judge()
    guided: Any = ByClassifier(method, judge, STRENGTH, CLASS)
    for s, t in ((0.1875, 0.5625), (CLEAN, 0.1875)):
        x, time = all_noisy(method, t)
        context, K = method.clean(Batch(x)), method.process.K
        ratio = torch.zeros(*x.shape, K, dtype=torch.float64)
        before = judge.log_p(x, time, method.process)[:, CLASS]
        for i in range(L):
            for k in range(K):
                y = x.clone()
                y[:, i] = k
                ratio[:, i, k] = (judge.log_p(y, time, method.process)[:, CLASS] - before).exp() ** STRENGTH
        plain, pred = (m.predict(x, time, context=context) for m in (method, guided))
        movable = method.process.movable(x)
        if not isinstance(plain, Score):  # a score's kernel follows from its rates
            weights = kernel(plain, s) * ratio
            kernels.see(kernel(pred, s)[movable], (weights / weights.sum(-1, keepdim=True))[movable], f"{s} < {t}")
        if rateless(method) is None:
            rates.see(reverse_rate(pred), reverse_rate(plain) * ratio, f"t = {t}")
    if kernels.where or method.parameterization != "score":
        yield kernels.row(GUIDANCE, "classifier: the kernel times P(y | x_s)^g")
    if rateless(method) is None:
        yield rates.row(GUIDANCE, "classifier: the rates times its ratios^g")
    if Ancestral.reason_against(method) is None:
        steps = Largest()
        for heat in (1.0, 0.6):
            samplers = (Ancestral(temperature=heat, choose=choose) for choose in (True, False))
            plain, chosen = (script.sample_distribution(sampler, guided, 2) for sampler in samplers)
            steps.see(chosen, plain, f"temperature {heat}")
        yield steps.row(GUIDANCE, "... and ancestral draws from that kernel")


@own("guidance.free", takes_classes)
@torch.no_grad()
def with_and_without_the_class(method: Method):
    """p(. | y)^g p(.)^{1-g}: of the clean posteriors at a mask, of scores, and else of the kernels;
    at the ends g = 0 and 1."""
    if not (several := classed(method)):
        return
    products, ends, draws = Largest(), Largest(), Largest()
    for model in several:
        if model.process is not None:
            for t in (0.1875, 0.5625):
                _see_predictions(model, t, products, ends)
        if token_by_token(model):
            _see_tokens(model, draws)
    if products.where or ends.where or method.process is not None:
        yield products.row(GUIDANCE, "class: p(. | y)^g p(.)^(1 - g)", 1e-6)  # embeddings of the time are float32
        yield ends.row(GUIDANCE, "... g = 1 and 0: the model with, without it", 1e-6)
    if any(map(token_by_token, several)):
        yield draws.row(GUIDANCE, "class: token by token, with both caches", 1e-6)


def _see_predictions(model: Any, t: float, products: Largest, ends: Largest) -> None:
    (x, time), s = all_noisy(model, t), t / 3 if not model.process.T else 0.0625
    context = model.clean(Batch(x))
    labels, none = torch.full((len(x),), CLASS), torch.full((len(x),), -1)
    said, silent = (model.predict(x, time, context=context, condition=c) for c in (labels, none))
    pred = ClassifierFree(model, STRENGTH).predict(x, time, context=context, condition=labels)
    movable, powers = model.process.movable(x), (STRENGTH, 1 - STRENGTH)
    what = score if isinstance(said, Score) else posterior if model.process.mask is not None else lambda p: kernel(p, s)
    product = torch.stack([what(p).double() ** g for p, g in zip((said, silent), powers)]).prod(0)
    product = torch.where(what(said) > 0, product, 0.0)
    product = product if isinstance(said, Score) else product / product.sum(-1, keepdim=True)
    products.see(what(pred)[movable], product[movable], f"t = {t}")
    if (
        one_alpha(model) and model.process.mask is not None and not isinstance(said, Score)
    ):  # when a mask is revealed is left to the noise
        mask = model.process.mask
        products.see(kernel(pred, s)[movable][:, mask], kernel(said, s)[movable][:, mask], f"the mask, t = {t}")
    for strength, target in ((1.0, said), (0.0, silent)):
        one = ClassifierFree(model, strength, CLASS).predict(x, time, context=context)
        ends.see(kernel(one, s)[movable], kernel(target, s)[movable], f"g = {strength}, t = {t}")


def _see_tokens(model: Any, draws: Largest) -> None:
    """Token by token, each class with a cache of its own, against both in one batch."""
    X = enumeration.states(V, L)
    said, silent = (next_distributions(model, X, torch.full((len(X),), number)) for number in (CLASS, -1))
    p = of_tokens(maths.normalise(said**STRENGTH * silent ** (1 - STRENGTH)), X).prod(-1)
    sampler = LeftToRight() if model.process is None else Blockwise(Ancestral())
    guided: Any = ClassifierFree(model, STRENGTH, CLASS)
    draws.see(script.run_distribution(sampler, guided, L, 1), p, "all x")


@own("guidance.product")
@torch.no_grad()
def a_product_of_models(method: Diffusion):
    """Two networks that are not exact, with powers 0.7 and 0.5; in T steps the model of that kernel."""
    if 0 < method.block < method.window:
        return
    worst, other = Largest(), again(method)
    other.network.logits.mul_(-0.4)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
    guided = Product(method, [(other, 0.5)], 0.7)
    for t in (0.1875, 0.5625):
        x, time = all_noisy(method, t)
        movable, s = method.process.movable(x), t / 3 if not method.process.T else 0.0625
        parts, masked = [m.predict(x, time) for m in (method, other)], method.process.mask is not None
        what = score if isinstance(parts[0], Score) else posterior if masked else lambda p, s=s: p.ratio(s)
        product = what(parts[0]).double() ** 0.7 * what(parts[1]).double() ** 0.5
        if masked and not isinstance(parts[0], Score):
            product = maths.normalise(product)
        worst.see(what(guided.predict(x, time))[movable], product[movable], f"t = {t}")
        if not masked and not isinstance(parts[0], Score):
            q = method.process.likelihood(x, s, time) * product
            worst.see(kernel(guided.predict(x, time), s), q / q.sum(-1, keepdim=True), f"kernel, t = {t}")
    yield worst.row(GUIDANCE, "product of models: ratios to their powers")


@shared("guidance.first-order")
def first_order_is_the_slope():
    """One evaluation of a transformer and its gradient, against difference quotients in the embedded text."""
    worst, h, K = Largest(), 1e-4, V + 1
    trunk = DiT(Net(layers=1, hidden=12, heads=3, length=L, condition=8), K, True, ends=False)
    judge: Any = with_numbers(Classifier(trunk, 12, CLASSES))
    x, label = enumeration.states(K, L), torch.full((K**L,), CLASS)
    time = torch.linspace(0, 1000, len(x)).double()
    slopes = judge.slopes(x, time, label)
    for i in range(L):
        for k in range(K):
            step = h * trunk.embedding.weight[k].detach()
            ends = []
            for sign in (1, -1):

                def move(
                    module: nn.Module, inputs: object, out: Tensor, i: int = i, change: Tensor = sign * step
                ) -> Tensor:
                    return out + change * (torch.arange(L) == i)[:, None]

                hook = trunk.embedding.register_forward_hook(move)
                with torch.no_grad():
                    ends.append(judge(x, time).log_softmax(-1)[:, CLASS])
                hook.remove()
            worst.see(slopes[:, i, k], (ends[0] - ends[1]) / (2 * h), f"position {i}, token {k}")
    yield worst.row(GUIDANCE, "first order = the slope in the one-hot tokens", 1e-6)


class Line:
    """A classifier whose log P is linear in the one-hot tokens, with their slopes: both orders are one."""

    length, classes = L, range(CLASSES)

    def _table(self, process: Process | None) -> Tensor:
        return numbers(L, V + 1 if process is None else process.K)

    def log_p(self, x: Tensor, t: Tensor, process: Process | None) -> Tensor:
        value = self._table(process)[torch.arange(L), x].sum(-1, keepdim=True)
        return torch.cat((-value, value), -1)

    def slopes(self, x: Tensor, t: Tensor, process: Process | None, label: Tensor) -> Tensor:
        return self._table(process).expand(len(x), -1, -1) * (2 * label - 1)[:, None, None]


@own("guidance.orders")
@torch.no_grad()
def both_orders_agree_on_a_line(method: Diffusion):
    worst = Largest()
    for t in INSIDE:
        x, time = all_noisy(method, t)
        at, context = method.process.movable(x), method.clean(Batch(x))
        ways = (ByClassifier(method, Line(), STRENGTH, CLASS, first_order=first) for first in (True, False))
        a, b = (score(way.predict(x, time, at=at, context=context)) for way in ways)
        worst.see(a, b, f"t = {t}")
    yield worst.row(GUIDANCE, "first order = exact, where log P is linear")
