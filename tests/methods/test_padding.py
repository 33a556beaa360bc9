"""Text of any length: padding changes nothing, a packed row is the sum of its documents, shorter texts are drawn as they are.

What is compared is the same draws, or the expectation over all of them.
"""

from typing import Any

import pytest
import torch

from testing.small import LENGTH, V, apart, make
from testing.worlds import numbers
from zellige import InputError, Net, exact
from zellige.core.batch import Batch
from zellige.core.schedule import PRIOR
from zellige.data.tokenizer import Integers
from zellige.methods import METHODS, build
from zellige.samplers import Ancestral
from zellige.samplers.guide import Wrapper
from zellige.samplers.pairing import of_length
from zellige.sampling.sample import watch
from zellige.sampling.samples import collect

close = torch.testing.assert_close
SHORT = 5
VARIANTS = [(name, choices) for name, cls in METHODS.items() for choices in cls.variants]
BLOCKS: list[tuple[str, dict[str, Any]]] = [
    ("bd3lm", {"block": block, "time": time, "prediction": prediction})
    for block, time, prediction in [
        (1, False, "mean"), (2, False, "mean"), (4, True, "mean"), (8, False, "mean"), (8, True, "mean"),
        (2, True, "score"), (8, True, "score"),
    ]
]  # fmt: skip
MADE = [*VARIANTS, *BLOCKS, ("md4", {"time": False}), ("bd3lm", {"block": 2, "clip": (0.2, 0.7)})]
NAMES = [" ".join([name, *map(str, choices.values())]) for name, choices in MADE]


class Draws:
    """Uniforms that do not depend on how long the rows are: longer ones draw the same and some more."""

    def __init__(self):
        self.calls = 0

    def uniform(self, shape, device):
        self.calls += 1
        whole = numbers(*[2 * LENGTH if axis == 1 else n for axis, n in enumerate(shape)], seed=self.calls)
        return whole[:, : shape[1]] if len(shape) > 1 else whole


def tokens(rows: int = 3, length: int = LENGTH) -> torch.Tensor:
    return (V * numbers(rows, length, seed=9)).long()


def padded(x: torch.Tensor, count: int, segments: bool = True) -> Batch:
    """The first tokens of each row; the rest is padding."""
    mask = (torch.arange(x.shape[1]) < count).expand(x.shape)
    return Batch(x, mask, (~mask).long() if segments else None)


def gradients(method: Any, value: torch.Tensor) -> list[torch.Tensor]:
    found = list(method.parameters())
    each = torch.autograd.grad(value.sum(), found, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(each, found)]


def same(method: Any, ours: torch.Tensor, theirs: torch.Tensor, tolerance: float = 1e-9) -> None:
    """In value and gradient."""
    close(ours, theirs, rtol=tolerance, atol=tolerance)
    for a, b in zip(gradients(method, ours), gradients(method, theirs)):
        close(a, b, rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------------------------- padding
@pytest.mark.parametrize(("name", "choices"), MADE, ids=NAMES)
def test_padding_changes_nothing(name, choices):
    """Loss and bound, their gradients and every other likelihood, given the same draws; whatever stands in the padding.

    The network attends and convolves, so that either would show.
    """
    method = make(name, choices)
    short, x = Batch(tokens()[:, :SHORT]), tokens()
    for last in (x[:, SHORT:], (x[:, SHORT:] + 1) % V):
        long = padded(torch.cat((x[:, :SHORT], last), 1), SHORT)
        same(method, method.loss(long, Draws()), method.loss(short, Draws()))
        if method.bounded:
            ours, theirs = (method.terms(batch, Draws()) for batch in (long, short))
            assert ours.keys() == theirs.keys()
            for term in ours:
                close(ours[term], theirs[term], rtol=1e-9, atol=1e-9, msg=lambda m, term=term: f"{term}: {m}")
            same(method, method.bound(long, Draws()), method.bound(short, Draws()))
        for estimator in method.estimators().values():
            close(estimator(long, Draws()), estimator(short, Draws()), rtol=1e-9, atol=1e-9)


def test_what_reads_from_the_left_needs_no_segments_to_ignore_padding():
    for name, choices in (("ar", {}), ("bd3lm", {"block": 1})):
        method = make(name, choices)
        long, short = padded(tokens(), SHORT, segments=False), Batch(tokens()[:, :SHORT])
        same(method, method.loss(long, Draws()), method.loss(short, Draws()))


# ---------------------------------------------------------------------------------- packing
CUTS = [3, 4, 1]
SEGMENTS = torch.tensor([5, 5, 5, 2, 2, 2, 2, 9])  # any numbers will do


def at_times(method: Any, batch: Batch, x_t: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """The bound at these noisy tokens; t may be a time for each position."""
    if method.steps:
        return method.discrete_bound(batch, x_t, t, t - 1 / method.steps)
    return method.continuous_bound(batch, x_t, t)


@pytest.mark.parametrize(("name", "choices"), MADE, ids=NAMES)
def test_a_packed_row_is_the_sum_of_its_documents(name, choices):
    """In value and gradient, at the same noisy tokens and times; positions restart (rotary angles are float32 numbers)."""
    method, x = make(name, choices), tokens()
    batch = Batch(x, None, SEGMENTS.expand(x.shape))
    alone = [Batch(part) for part in x.split(CUTS, 1)]
    if name == "ar":
        return same(method, method.loss(batch), sum(method.loss(each) for each in alone), 1e-6)
    if name == "flexmdm":
        with pytest.raises(InputError, match="one text a row"):
            method.loss(batch)
        return None
    if name == "csm":
        if method.config.objective != "denoising" and method.config.neighbours == 0:
            same(method, method.loss(batch), sum(method.loss(each) for each in alone), 1e-6)
        return None
    t = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    if name == "bd3lm":  # each block of each document has a time of its own
        group, n = method.groups(batch)
        t = numbers(*n.shape).gather(1, group)
    x_t = method.corrupt(batch, t if t.ndim == 2 else t[:, None], Draws())
    split = t.split(CUTS, 1) if t.ndim == 2 else [t] * 3
    ours = at_times(method, batch, x_t, t)
    if method.block >= LENGTH:  # alone, a document is one block with one time
        split = [each[:, 0] for each in split]
    parts = [at_times(method, *what) for what in zip(alone, x_t.split(CUTS, 1), split)]
    same(method, ours, sum(parts), 1e-6)
    if method.process.start_time != PRIOR or method.block:
        close(method.prior_term(batch), sum(method.prior_term(each) for each in alone), rtol=1e-6, atol=1e-6)
    return None


@pytest.mark.parametrize(
    ("name", "choices"),
    [("mdlm", {}), ("mdlm", {"time": True}), ("md4", {}), ("md4", {"time": False, "eps": 0.05}), ("radd", {}), ("sedd", {}),
     ("bd3lm", {"block": 1}), ("bd3lm", {"block": 2}), ("bd3lm", {"block": 4}),
     ("bd3lm", {"block": 2, "prediction": "score"})],
)  # fmt: skip
def test_the_bound_of_a_packed_row_is_that_of_its_documents(name, choices):
    """In expectation over everything that is drawn: whether documents share a time, or a number of masks, does not matter."""
    length = 4 if name == "bd3lm" else 3
    method = make(name, choices, length=length, layers=1)
    x, segments = tokens(1, length), (torch.arange(length) == length - 1).long()
    steps = 12  # with counts every u between them gives the same; with times both sides have the same quadrature
    nodes = (torch.arange(steps) + 0.5).double() / steps, torch.full((steps,), 1 / steps).double()
    packed = lambda draw: lambda b, g: draw(Batch(b.tokens, None, segments.expand(b.tokens.shape)), g)  # noqa: E731
    ours = sum(exact.expectation(packed(draw), x, nodes) for draw in apart(method))
    documents = x.split([length - 1, 1], 1)
    theirs = sum(exact.expectation(draw, document, nodes) for draw in apart(method) for document in documents)
    same(method, ours, theirs, 1e-6)


def test_given_positions_of_a_document_are_seen_and_cost_nothing():
    """A loss mask inside a document, as of a prompt: its tokens matter to the others, which is what padding must not do."""
    for name in ("mdlm", "ar", "bd3lm"):
        method = make(name, {"block": 2} if name == "bd3lm" else {})
        x, mask = tokens(), (torch.arange(LENGTH) >= 4).expand(3, LENGTH)
        other = torch.cat(((x[:, :1] + 1) % V, x[:, 1:]), 1)
        ours, theirs = (method.loss(Batch(y, mask), Draws()) for y in (x, other))
        assert (ours - theirs).abs().min() > 1e-6
        whole = method.loss(Batch(x), Draws())
        assert (ours < whole).all()


# ---------------------------------------------------------------------------------- samples
class InRow(Wrapper):
    """A method asked about rows whose last token is padding."""

    def predict(self, x_t, t, **how):
        return self.method.predict(x_t, t, **how | {"segments": torch.tensor([0, 0, 1]).expand(x_t.shape)})


@pytest.mark.parametrize("name", ["mdlm", pytest.param("sedd", marks=pytest.mark.long), "udlm"])
@torch.no_grad()
def test_the_distribution_of_samples_is_that_without_padding(name):
    method = make(name, {}, length=3, layers=1)
    distribution = exact.sample_distribution(Ancestral(), InRow(method), 2, torch.tensor([-1, -1, 1]))  # pyright: ignore
    K = method.process.K
    short = exact.sample_distribution(Ancestral(), of_length(method, 2), 2)
    close(distribution.reshape(K, K, K)[:, :, 1].reshape(-1), short, rtol=1e-6, atol=1e-9)
    close(distribution.sum(), torch.ones((), dtype=torch.float64))


class Model:
    def __init__(self, method: Any):
        self.method, self.tokenizer = method, Integers(V)


@pytest.mark.parametrize(
    ("name", "choices", "sampler"),
    [("mdlm", {}, "first_hitting"), ("mdlm", {}, "ancestral"), ("md4", {}, "ancestral"), ("sedd", {}, "euler"),
     ("udlm", {}, "ancestral"), ("bd3lm", {"block": 2}, None), ("bd3lm", {"block": 4, "time": True}, None), ("ar", {}, None)],
)  # fmt: skip
def test_shorter_texts_do_not_depend_on_the_length_of_the_network(name, choices, sampler):
    drawn = []
    for length in (LENGTH, 2 * LENGTH):
        model = Model(make(name, choices, length=length))
        drawn.append(collect(watch(model, count=6, length=SHORT, steps=4, sampler=sampler, seed=3)).tokens)
    assert drawn[0] == drawn[1]
    assert len({tuple(x) for x in drawn[0]}) > 1


# ---------------------------------------------------------------------------------- what cannot
def test_a_grid_refuses():
    method = build("mdlm", V, Net(layers=1, hidden=8, heads=2, length=4, grid=(2, 2)))
    with pytest.raises(InputError, match="a network on a grid of 2 x 2 takes all its 4 positions, without segments"):
        method.loss(padded(tokens(2, 4), 3))
