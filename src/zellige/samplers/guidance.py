"""Guidance: samples of a class, by a model that knows classes, by a classifier of noisy texts, or as a product of
models.

    classifier-free    ratio(s) = ratio(s | y)^g ratio(s)^{1 - g}                                       `ClassifierFree`
    classifier         ratio(s)[k] P(y | x_t with k at this position)^g / P(y | x_t)^g                  `ByClassifier`
    product            ratio_1(s)^{g_1} ratio_2(s)^{g_2} ...                                            `Product`

Each is a wrapper of a method. It changes the ratios of the method's prediction, and kernels, rates and posteriors
follow (`core.prediction.combined`, `tilted`). Of a score it changes the one at s = t, the score itself, and the others
follow: the rates are multiplied as above, the kernels are not. They are UDLM's D-CFG and D-CBG (arXiv 2412.10193); the
rates are those of Nisonoff et al. (arXiv 2406.01572).

**Which distribution.** In continuous time an exact classifier of strength 1 turns the rates of p(x) into those of p(x |
y), Doob's transform: P(y | x_t) is a martingale of the reverse chain. T steps tend to p(x | y) with order 1 in 1/T,
since a step tilts each position as if the others stayed. The classifier, and all guidance of a score, also changes when
a mask is revealed, so masks cannot be chosen before the network is evaluated. With another strength or a learnt
classifier the samples are those of the chain of these kernels. In general this is no p(x) P(y | x)^g, and no number
bounds it. Classifier-free guidance of strength 1 is the model given its class, of strength 0 the model without one;
both have their bounds.

**Cost.** Classifier-free: two evaluations of the network, in one batch. A classifier: one evaluation of each text that
differs in one token, K for each position that may move; with `first_order` one evaluation and its gradient.

**Blocks and left to right.** The context of a sampler remembers what guidance needs of the tokens before: the caches
with and without the class (`Both`), or the tokens for the classifier (`Read`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..base.arguments import checked
from ..base.errors import InputError
from ..core import maths
from ..core.prediction import Prediction, combined, tilted
from ..core.process import Process
from ..core.schedule import CLEAN, PRIOR, as_time
from .guide import Wrapper
from .pairing import blank

INPUTS = 4096  # texts that a classifier reads at once


class NoisyClassifier(Protocol):
    """Classifier of noisy texts of `length` tokens into `classes`."""

    length: int
    classes: Sequence[str]

    def log_p(self, x: Tensor, t: Tensor, process: Process | None) -> Tensor:
        """log P(class | x_t), (B, classes), of x (B, L) at times t (B, L) of the `process`; None: no noise, unknown
        tokens are blank."""
        ...

    def slopes(self, x: Tensor, t: Tensor, process: Process | None, label: Tensor) -> Tensor:
        """Gradient of log P(label | x_t) in the one-hot tokens: (B, L, K)."""
        ...


class Guide(Wrapper):
    """A method, guided.

    Args:
        method: a Method, or what answers as one.
        label: the class of every text, where `samplers.run` is given no `condition`.
    """

    changes = "guidance"

    def __init__(self, method: Any, label: int | None = None):
        super().__init__(method)
        if method.parameterization != "next" and method.process is None:
            raise InputError(
                f"{method.name} has no noise to undo, so nothing can guide it; use a model of another method"
            )
        self.label = label

    @property
    def parameterization(self) -> str:
        """Parameterization of the method, or "tilted" where its predictions are no distributions any more."""
        kind = self.method.parameterization
        return "tilted" if kind in ("mean", "leave_one_out") and self.tilts else kind

    @property
    def tilts(self) -> bool:
        """Return whether distributions become weights without a fixed sum."""
        return self.method.process.mask is None

    def labels(self, condition: Tensor | None, x: Tensor) -> Tensor:
        """The class of each text (B,); -1 for none."""
        if condition is None and self.label is None:
            raise InputError("guidance needs a class for each text; give `condition`, or the guide a `label`")
        return torch.full_like(x[:, 0], self.label) if condition is None else condition.to(x.device)  # pyright: ignore

    def unlabelled(self, labels: Tensor) -> Tensor | None:
        """The condition of a network that is given no class."""
        return None if getattr(self.method.network, "classes", None) is None else torch.full_like(labels, -1)


# ---------------------------------------------------------------------------------- with and without the class
@dataclass(frozen=True)
class Both:
    """A cache of the texts with their class, and after these of the same texts without: 2B rows."""

    cache: Any
    rows: int

    def __len__(self) -> int:
        return len(self.cache)

    def take(self, rows: Tensor) -> "Both":
        """The rows (N,) of it."""
        return Both(self.cache.take(torch.cat((rows, rows + self.rows))), len(rows))

    def last(self, count: int) -> "Both":
        """Its last positions."""
        return Both(self.cache.last(count), self.rows)


class ClassifierFree(Guide):
    """p(. | y)^strength p(.)^{1 - strength}, of a network that knows classes and was trained to do without (label
    dropout).

    Of a score p is the score; else, where noise is a mask, the clean posterior, and the noise says when a token is
    revealed (as UDLM's code); otherwise the kernel and the rate.

    Args:
        strength: 1 is the model given its class, 0 the model without; more exaggerates the class.
    """

    @checked
    def __init__(self, method: Any, strength: float, label: int | None = None):
        super().__init__(method, label)
        if self.unlabelled(torch.zeros(1)) is None:
            raise InputError(
                "the model was trained without classes; guide it by a `classifier`, or train with `data.labels`"
            )
        self.powers = (strength, 1 - strength)
        self.changes = f"classifier-free guidance {strength:g}"

    @property
    def passes(self) -> int:
        """Passes of the network in one evaluation: with the class and without."""
        return 2 * self.method.passes

    def predict(self, x_t, t, *, at=None, condition=None, context=None, segments=None) -> Prediction:
        """The product of the prediction with the class and of that without; see `Diffusion.predict`."""
        t = as_time(t, x_t.device).to(x_t.device).expand(x_t.shape)
        context = _inside(context) if context is None or isinstance(context, Both) else _twice(context)
        pred = self.method.predict(
            _twice(x_t),
            _twice(t),
            at=None if at is None else _twice(at),
            condition=self._conditions(condition, x_t),
            context=context,
            segments=None if segments is None else _twice(segments),
        )
        return combined(_halves(pred), self.powers)

    def extend(self, cache, x, valid=None, condition=None) -> Both:
        """Both caches, extended; see `Method.extend`."""
        valid = None if valid is None else _twice(valid)
        return Both(self.method.extend(_inside(cache), _twice(x), valid, self._conditions(condition, x)), len(x))

    def advance(self, cache, x, condition=None) -> tuple[Tensor, Both]:
        """Hidden states of both, (B, n, 2D), and both caches; see `Method.advance`."""
        h, cache = self.method.advance(_inside(cache), _twice(x), condition=self._conditions(condition, x))
        return torch.cat(h.chunk(2), -1), Both(cache, len(x))

    def next(self, h: Tensor) -> Tensor:
        """Distribution of the next token from the hidden states of both (*, 2D): (*, V)."""
        return maths.normalise(maths.product([self.method.next(half) for half in h.chunk(2, -1)], self.powers))

    def _conditions(self, condition: Tensor | None, x: Tensor) -> Tensor:
        labels = self.labels(condition, x)
        return torch.cat((labels, torch.full_like(labels, -1)))


def _inside(context: Any) -> Any:
    return context if context is None else context.cache


def _twice(x: Tensor) -> Tensor:
    return torch.cat((x, x))


def _halves(pred: Prediction) -> list[Prediction]:
    """The predictions of the first half of the rows and of the second."""
    values = vars(pred)
    halves = zip(*(value.chunk(2) if isinstance(value, Tensor) else (value, value) for value in values.values()))
    return [type(pred)(**dict(zip(values, half))) for half in halves]


# ---------------------------------------------------------------------------------- a classifier
@dataclass(frozen=True)
class Read:
    """A cache, and the tokens (B, n) that were read into it."""

    cache: Any
    tokens: Tensor

    def __len__(self) -> int:
        return len(self.cache)

    def take(self, rows: Tensor) -> "Read":
        """The rows (N,) of it."""
        return Read(self.cache.take(rows), self.tokens[rows])

    def last(self, count: int) -> "Read":
        """Its last positions."""
        return Read(self.cache.last(count), self.tokens[:, -count:] if count else self.tokens[:, :0])


class ByClassifier(Guide):
    """p(.) P(y | .)^strength, of a model that is given no class, and a classifier of its noisy texts.

    Args:
        classifier: a `NoisyClassifier`, such as a trained run of `zellige train classifier`.
        strength: the power of P(y | x).
        first_order: log P(y | x) is taken to be linear in each token: one evaluation and its gradient for all tokens.
    """

    @checked
    def __init__(
        self, method: Any, classifier: Any, strength: float = 1.0, label: int | None = None, first_order: bool = False
    ):
        super().__init__(method, label)
        self.classifier, self.strength, self.first_order = classifier, strength, first_order
        self.changes = f"a classifier, guidance {strength:g}"

    @property
    def tilts(self) -> bool:
        return True

    def predict(self, x_t, t, *, at=None, condition=None, context=None, segments=None) -> Prediction:
        """The prediction with its ratios times those of the classifier; see `Diffusion.predict`."""
        labels, known = self.labels(condition, x_t), context.tokens if isinstance(context, Read) else x_t[:, :0]
        cache = context.cache if isinstance(context, Read) else context
        pred = self.method.predict(x_t, t, at=at, condition=self.unlabelled(labels), context=cache, segments=segments)
        t = as_time(t, x_t.device).to(x_t.device, torch.float64).expand(x_t.shape)
        where = torch.ones_like(x_t, dtype=torch.bool) if at is None else at
        change = self._changes(known, x_t, t, where, labels)
        change = change.reshape(*x_t.shape, -1) if at is None else change
        return tilted(pred, (self.strength * change).exp())

    def extend(self, cache, x, valid=None, condition=None) -> Read:
        """The cache, and the tokens in it; see `Method.extend`."""
        known = Read(None, x[:, :0]) if cache is None else cache
        inner = self.method.extend(known.cache, x, valid, self.unlabelled(x[:, 0]))
        return Read(inner, torch.cat((known.tokens, x), 1))

    def advance(self, cache, x, condition=None) -> tuple[Tensor, Read]:
        """Hidden states (B, n, D + V), the last V of the last position what the classifier says of the next token."""
        known = Read(None, x[:, :0]) if cache is None else cache
        h, inner = self.method.advance(known.cache, x, condition=self.unlabelled(x[:, 0]))
        tokens = torch.cat((known.tokens, x[:, 1:] if cache is None else x), 1)  # the first one begins the text
        unknown = torch.full_like(x[:, :1], blank(self.method))  # pyright: ignore
        t, where = (
            torch.full(unknown.shape, PRIOR, dtype=torch.float64, device=x.device),
            torch.ones_like(unknown).bool(),
        )
        before = tokens[:, max(tokens.shape[1] + 1 - self.classifier.length, 0) :]
        change = self._changes(before, unknown, t, where, self.labels(condition, x))
        change = pad(change[:, None, : self.method.vocabulary], (0, 0, h.shape[1] - 1, 0))
        return torch.cat((h.double(), change), -1), Read(inner, tokens)

    def next(self, h: Tensor) -> Tensor:
        """Distribution of the next token from the states of `advance`: (*, V)."""
        h, change = h.split((h.shape[-1] - self.method.vocabulary, self.method.vocabulary), -1)
        p = self.method.next(h.to(next(self.method.parameters()).dtype))
        return maths.normalise(p * (self.strength * change).exp())

    @torch.no_grad()
    def _changes(self, known: Tensor, x_t: Tensor, t: Tensor, at: Tensor, label: Tensor) -> Tensor:
        """log P(y | x_t with k at one position) - log P(y | x_t), (N, K) for the positions in `at` (B, L).

        `known` (B, n) are clean tokens before x_t; what comes after it is not known.
        """
        empty, process = blank(self.method), self.method.process
        behind = self.classifier.length - known.shape[1] - x_t.shape[1]
        if behind > 0 and empty is None:  # any token there would be evidence
            raise InputError(
                f"the classifier reads {self.classifier.length:,} tokens, and the noise of {self.method.name} has no mask "
                "for those that are not there yet; sample whole texts of this length, or use a model with masks"
            )
        x = pad(torch.cat((known, x_t), 1), (0, behind), value=empty)
        latest = t.amax(-1, keepdim=True)  # of what is not written yet: at this time masks say nothing
        t = torch.cat((pad(t, (known.shape[1], 0), value=CLEAN), latest.expand(-1, behind)), 1)
        row, position = at.nonzero().unbind(-1)
        position, K = position + known.shape[1], self.method.vocabulary + 1 if process is None else process.K
        if self.first_order:
            slopes = self.classifier.slopes(x, t, process, label)[row, position]
            return slopes - slopes.gather(-1, x[row, position, None])
        log_p = self.classifier.log_p(x, t, process).gather(-1, label[:, None])  # (B, 1)
        changed = x[row].repeat_interleave(K, 0)
        token = torch.arange(K, device=x.device).repeat(len(row))
        changed[torch.arange(len(changed)), position.repeat_interleave(K)] = token
        rows, log_p_changed = row.repeat_interleave(K), []
        for part, of in zip(changed.split(INPUTS), rows.split(INPUTS)):
            log_p_changed.append(self.classifier.log_p(part, t[of], process).gather(-1, label[of, None]))
        return torch.cat([log_p[:0], *log_p_changed]).reshape(-1, K) - log_p[row]


# ---------------------------------------------------------------------------------- several models
class Product(Guide):
    """p_1^{g_1} p_2^{g_2} ... of models with one noise and one vocabulary; each is evaluated.

    Args:
        others: the other methods with their powers: [(expert.method, 0.5)].
        power: the power of the first, `method`.
    """

    @checked
    def __init__(self, method: Any, others: Sequence[tuple[Any, float]], power: float = 1.0):
        super().__init__(method)
        self.others, self.powers = [other for other, _ in others], (power, *(g for _, g in others))
        for other in self.others:
            if other.vocabulary != method.vocabulary or (other.process is None) != (method.process is None):
                raise InputError(
                    f"a product needs one vocabulary and one kind of model: {method.name} has {method.vocabulary:,} "
                    f"tokens, {other.name} {other.vocabulary:,}"
                )
            if method.process is None or (method.block < method.window and method.block):
                raise InputError(f"a product is of models that see the whole text; {method.name} reads it in blocks")

    @property
    def passes(self) -> int:
        """Passes of all networks in one evaluation."""
        return sum(each.passes for each in (self.method, *self.others))

    def of_length(self, length: int) -> "Product":
        copied = super().of_length(length)
        copied.others = [other.of_length(length) for other in self.others]
        return copied

    def predict(self, x_t, t, **more: Any) -> Prediction:
        """The product of the predictions; see `Diffusion.predict`."""
        return combined([each.predict(x_t, t, **more) for each in (self.method, *self.others)], self.powers)
