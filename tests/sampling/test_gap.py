"""A gap of any length of a model that writes from left to right, against the definition."""

import itertools
import re
from dataclasses import replace

import pytest
import torch

import zellige
from sampling.test_calls import model_of
from sampling.test_generate import model as of_letters
from zellige import InputError, Net
from zellige.core.batch import Batch
from zellige.data.tokenizer import Integers
from zellige.methods import METHODS, build
from zellige.samplers.sampler import GAP
from zellige.sampling import gap
from zellige.sampling.gap import fill_gap

BEFORE, AFTER = [2, 0, 3, 1, 1], [3, 0, 2]
N = 6


def left(method, row, label=None):
    """-log p(x_i | x_1 .. x_{i-1}) of one text (n,): nats (n,).

    By the likelihoods of whole blocks, summed over the rest of the last one.
    """
    exact, values = method.bound if method.name == "ar" else method.estimators()["forward"], [0.0]
    for n in range(1, len(row) + 1):
        rest = torch.tensor([*itertools.product(range(4), repeat=-n % method.block)], dtype=torch.long)
        x = torch.cat((torch.tensor([row[:n]]).expand(len(rest), -1), rest), 1)
        labels = None if label is None else torch.full((len(x),), label)
        values.append(-float((-exact(Batch(x, condition=labels))).logsumexp(0)))
    return torch.tensor(values, dtype=torch.float64).diff()


@pytest.mark.parametrize("name", ["ar", "bd3lm"])
@torch.no_grad()
def test_from_left_to_right(name):
    """Each token given those on its left, for itself and for others in its place, which have probability 1 together."""
    method, x = model_of(name).method, torch.randint(4, (3, 11), generator=torch.Generator().manual_seed(1))
    counted = torch.arange(11) >= torch.tensor([[0], [4], [7]])
    own = method.left_to_right(Batch(x, counted), x)[0]
    for row, found, free in zip(x.tolist(), own, counted):
        assert torch.allclose(found, left(method, row).where(free, 0.0), atol=1e-5)
    each = method.left_to_right(Batch(x), *(torch.full_like(x, token) for token in range(4)))
    assert torch.allclose(each.neg().exp().sum(0), torch.ones_like(own))
    assert torch.allclose(each.gather(0, x[None])[0], method.left_to_right(Batch(x), x)[0])


def test_of_one_block_it_is_the_likelihood_in_that_order():
    method, x = model_of("mdlm").method, torch.randint(4, (3, 16), generator=torch.Generator().manual_seed(2))
    assert torch.allclose(method.left_to_right(Batch(x), x)[0].sum(-1), method.estimators()["forward"](Batch(x)))


@pytest.mark.parametrize(("name", "label"), [("ar", None), ("bd3lm", None), ("bd3lm", 2)])
@torch.no_grad()
def test_of_the_candidates_the_likeliest_together_with_what_follows(name, label, monkeypatch):
    monkeypatch.setattr(gap, "KEPT", 4)
    model = model_of(name, **({} if label is None else {"classes": 3}))
    model.tokenizer = Integers(4)  # the rules of Sudoku are no part of it
    room, classes = 16 - len(BEFORE) - len(AFTER), () if label is None else (label,)
    request = zellige.Sample(
        fixed=[[*BEFORE, GAP, *AFTER]], alone=True, count=2, best_of=N, seed=3, steps=8, classes=classes
    )
    rows, network = [], model.method.network
    for entry in ("features", "extend"):
        evaluate, i = getattr(network, entry), int(entry == "extend")
        count = lambda *given, of=evaluate, i=i, **more: (rows.append(len(given[i])), of(*given, **more))[1]  # noqa: E731
        monkeypatch.setattr(network, entry, count)
    found = fill_gap(request, model)
    if name == "bd3lm":  # a step of ar has another entry
        assert sum(rows) == sum(found.calls)

    drawn = zellige.Sample(fixed=[*BEFORE, *[-1] * room], alone=True, count=2 * N, seed=3, steps=8, classes=classes)
    drawn, sizes = drawn.run(model), set()
    for k, row in enumerate(found.tokens):
        group = range(N * k, N * (k + 1))
        fillings = []
        for number in group:
            cuts = [drawn.tokens[number][: len(BEFORE) + size] for size in range(1, room + 1)]
            cuts.sort(key=lambda cut: float(left(model.method, [*cut, AFTER[0]], label)[-1]))
            fillings += [[*cut, *AFTER] for cut in cuts[: gap.CUTS]]
        first = lambda cut: float(left(model.method, [*cut, AFTER[0]], label)[len(BEFORE) :].sum())  # noqa: E731
        every = sorted({tuple(filling[: -len(AFTER)]) for filling in fillings}, key=first)
        assert len(every) > 4
        fillings = [[*cut, *AFTER] for cut in every[:4]]
        nats = [float(left(model.method, filling, label)[len(BEFORE) :].sum()) for filling in fillings]
        assert row == fillings[min(range(len(nats)), key=nats.__getitem__)]
        if name == "ar":
            assert found.calls[k] == sum(drawn.calls[number] for number in group) + N + 4
        sizes |= {len(filling) for filling in fillings}
    assert len(sizes) > 1


def test_no_filling_has_the_end_of_a_text(monkeypatch):
    """Candidates that begin with it are left out, and where all do, nothing is filled in."""
    model = model_of("ar")
    model.tokenizer = Integers(4)
    request = zellige.Sample(fixed=[[2, 0, GAP, 3, 1]], alone=True, count=30, best_of=2, seed=1)
    assert any(1 in row[2:-2] for row in fill_gap(request, model).tokens)
    monkeypatch.setattr(gap, "end_token", lambda *_: 1)
    candidates = zellige.Sample(fixed=[2, 0, *[-1] * 12], alone=True, count=60, seed=1).run(model).tokens
    begin = [row[2] == 1 for row in candidates]
    assert {0, 1, 2} == {sum(pair) for pair in zip(begin[::2], begin[1::2])}
    for k, row in enumerate(fill_gap(request, model).tokens):
        assert 1 not in row[2:-2]
        assert (row == [2, 0, 3, 1]) == (begin[2 * k] and begin[2 * k + 1])
        assert (row[:2], row[-2:]) == ([2, 0], [3, 1])


@pytest.mark.parametrize("name", ["ar", "bd3lm"])
def test_near_the_end_of_the_network_and_with_a_length(name):
    model = model_of(name)
    model.tokenizer = Integers(4)
    full = [2, 0, 3, 1, 1, 0, 2, 3, GAP, 3, 0, 2, 1, 2, 0, 1]  # one token is left
    (row,) = fill_gap(zellige.Sample(fixed=[full], alone=True, best_of=5), model).tokens
    assert len(row) == 16
    assert (row[:8], row[9:]) == (full[:8], full[9:])
    request = zellige.Sample(fixed=[[2, GAP, 3, 0]], alone=True, count=20, best_of=2)
    longest = [max(map(len, fill_gap(replace(request, length=n), model).tokens)) for n in (5, None)]
    assert longest[0] <= 5 < longest[1]


@pytest.mark.parametrize("name", ["ar", "bd3lm"])
def test_in_a_text(name):
    m, text = of_letters(name=name), "the __*z of"
    filled = zellige.infill(m, text, count=3, best_of=4, seed=2)
    assert all(re.fullmatch(r"the [a-z ]+z of", one) for one in filled)
    assert len({*filled}) > 1
    assert zellige.infill(m, ["a_b", text, "to__* do"], count=3, best_of=4, seed=2)[1] == filled


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        (
            "ar",
            "the __*",
            {"best_of": 4},
            "nothing stands after the span of any length; to continue a text, use zellige sample",
        ),
        ("ar", "the __* of", {}, "chosen among candidates by what stands after it; give `best_of`, e.g. 32"),
        (
            "ar",
            "the __* of",
            {"best_of": 1},
            "chosen among candidates by what stands after it; give `best_of`, e.g. 32",
        ),
        (
            "bd3lm",
            "the __* of _",
            {"best_of": 4},
            "the text has __* and other gaps, and bd3lm writes from left to right",
        ),
        ("bd3lm", "the __* of __*", {"best_of": 4}, "the text has 2 spans __*; give one"),
        ("bd3lm", "the __*", {}, "nothing stands after the span of any length; to continue a text, use zellige sample"),
        (
            "mdlm",
            "the __* of",
            {"best_of": 4},
            "mdlm keeps the length of a text; write one _ for each missing token, or",
        ),
        (
            "udlm",
            "the __* of",
            {"best_of": 4},
            "udlm keeps the length of a text; write one _ for each missing token, or",
        ),
    ],
)
def test_what_cannot_be_filled(name, text, options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        zellige.infill(of_letters(name=name), text, **options)


@pytest.mark.parametrize("options", [{"time": True}, {"process": "uniform"}, {"prediction": "score"}])
def test_blocks_without_that_likelihood(options):
    m, net = of_letters(name="bd3lm"), Net(layers=1, hidden=16, heads=2, length=24)
    m.method = build("bd3lm", 27, net, METHODS["bd3lm"].Config(block=8, **options))
    with pytest.raises(InputError, match="span of any length, and this bd3lm has no likelihood from left to right"):
        zellige.infill(m, "the __* of", best_of=4)
    x = torch.zeros(1, 8, dtype=torch.long)
    with pytest.raises(InputError, match="bd3lm has no likelihood of a token given those on its left"):
        m.method.left_to_right(Batch(x), x)
