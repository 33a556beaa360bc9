"""The conditional bound: by enumeration of small spaces, and independent of what it is batched with."""

import itertools
import json
import math
from typing import Any

import pytest
import torch

from testing.small import V as LETTERS
from testing.small import apart, make
from testing.worlds import data_distribution, table
from zellige import METHODS, Batch, InputError, exact
from zellige.core.curves import Linear
from zellige.core.prediction import kernel
from zellige.core.process import absorbing, uniform
from zellige.core.schedule import CLEAN
from zellige.data.tokenizer import Bytes, Characters
from zellige.data.tokenizer_by_name import train_bpe
from zellige.evaluation.conditional import Conditional, bound, bound_tokens, greedy, replicates, tokenize_pair, windows
from zellige.evaluation.interval import Proportion, student
from zellige.methods import build
from zellige.methods.method import Method
from zellige.plugins.evaluations.pairs.choices import Question, read_pairs
from zellige.plugins.evaluations.pairs.request import EvaluatePairs
from zellige.samplers import Ancestral, FirstHitting

close = torch.testing.assert_close
V, L = 2, 3
GIVEN = torch.tensor([True, False, False])  # the context is one token


def masked(method: Method, given: torch.Tensor, draw: Any = None):
    """A draw of the conditional bound, or of a part of it, for `exact.expectation`."""
    draw = draw or method.bound
    return lambda batch, script: draw(Batch(batch.tokens, (~given).expand(batch.tokens.shape)), script)


def conditional_law(law: torch.Tensor, x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """-log p(the rest | the given tokens) of each x (M, L), by summing the law (V^L,): (M,) nats."""
    X = exact.states(V, x.shape[1])
    of = lambda row, which: law[(X[:, which] == row[which]).all(-1)].sum()  # noqa: E731
    every = torch.ones_like(given)
    return torch.stack([of(row, given).log() - of(row, every).log() for row in x])


def enumerated(name: str, **choices) -> Method:
    """A method on a table of random logits, float64."""
    cls = METHODS[name]
    config = cls.Config(**choices)
    return build(cls, V, table(cls.states(V, config), L, time=cls.timed(config)), config, length=L)


# ------------------------------------------------------------------------------------------------------- what it bounds
class Told(exact.Denoiser):
    """Under absorbing noise a token that is there is clean; the all-mask input of PRIOR has tokens in it where some are
    given."""

    def predict(self, x_t, t, **more):
        return super().predict(x_t, torch.where(x_t == self.process.mask, torch.as_tensor(t), CLEAN), **more)


@pytest.mark.parametrize("given", [(True, False, False), (False, True, False)])
def test_the_exact_denoiser_gives_the_conditional_itself(given):
    """E[bound] = -log p(continuation | context) for absorbing noise, wherever the given tokens stand."""
    given, x = torch.tensor(given), exact.states(V, L)
    law = data_distribution(V, L)
    denoiser = Told(absorbing(V + 1, Linear(1e-6)), law, L)
    found = exact.expectation(masked(denoiser, given), x)
    close(found, conditional_law(law, x, given), rtol=0, atol=2e-5)


class OneTime(exact.Denoiser):
    """The exact network of noise that is the same at all positions: it does not see which of them are given."""

    def predict(self, x_t, t, **more):
        return super().predict(x_t, torch.as_tensor(t, dtype=torch.float64).expand(x_t.shape).amax(-1, True), **more)


def test_uniform_noise_bounds_another_law():
    """The clamped chain is no conditional of the data: its bound stays above, by more than the ends. Of a network that sees
    what is given it is exact."""
    x, law = exact.states(V, L), data_distribution(V, L)
    process = uniform(V, Linear(1e-6))
    denoiser = OneTime(process, law, L, "leave_one_out")
    whole = exact.expectation(masked(denoiser, torch.zeros(L, dtype=torch.bool)), x)
    assert float(law @ whole - exact.entropy(law)) == pytest.approx(0.0, abs=1e-4)  # of all tokens it is exact
    excess = float(law @ (exact.expectation(masked(denoiser, GIVEN), x) - conditional_law(law, x, GIVEN)))
    assert excess > 0.003
    seeing = exact.Denoiser(process, law, L, "leave_one_out")
    exactly = float(law @ (exact.expectation(masked(seeing, GIVEN), x) - conditional_law(law, x, GIVEN)))
    assert exactly == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("mdlm", {"diffusion_steps": 3}),
        ("d3pm", {"diffusion_steps": 3}),
        ("d3pm", {"diffusion_steps": 3, "process": "absorbing"}),
        ("udlm", {"diffusion_steps": 3}),
    ],
    ids=str,
)
def test_the_bound_is_one_of_the_law_that_fills(name, choices):
    """E[bound] >= -log p of the law of the very sampler with the context fixed, for every text: by enumeration of both."""
    method, x = enumerated(name, **choices), exact.states(V, L)
    nodes = (torch.arange(3).double() / 3 + 1e-6, torch.full((3,), 1 / 3, dtype=torch.float64))  # one time in each step
    found = exact.expectation(masked(method, GIVEN), x, nodes)
    for first in range(V):
        fixed = torch.where(GIVEN, first, -1)
        law = exact.sample_distribution(Ancestral(), method, 3, fixed)
        rows = x[:, 0] == first
        index = exact.index(x[rows], method.process.K)
        gap = found[rows] + law[index].log()
        assert (gap > -1e-9).all()
        assert gap.max() > 1e-3  # and no more than a bound


@pytest.mark.parametrize("name", ["mdlm", "radd", "sedd", "md4"])
def test_in_continuous_time_too(name):
    """For a network that sees no time against first_hitting, the same law but for the ends; else against many small steps."""
    method, x = enumerated(name), exact.states(V, L)
    found = sum(exact.expectation(masked(method, GIVEN, draw), x, exact.parts(2)) for draw in apart(method))
    free = not method.time_conditioned
    for first in range(V):
        fixed, rows = torch.where(GIVEN, first, -1), x[:, 0] == first
        sampler, steps = (FirstHitting(), L) if free else (Ancestral(), 64)
        law = exact.sample_distribution(sampler, method, steps, fixed)
        gap = found[rows] + law[exact.index(x[rows], method.process.K)].log()
        assert (gap > (-2e-3 if free else -2e-2)).all()  # the ends of time, the steps


@pytest.mark.parametrize("block", [1, 2])
def test_blocks_obey_the_chain_rule(block):
    """E[bound of all] = E[bound of the first blocks] + E[bound of the others, given them]."""
    method = make("bd3lm", {"block": block}, length=4)
    x = exact.states(LETTERS, 4)[::27]
    nodes = (
        (torch.arange(8) + 0.5).double() / 8,
        torch.full((8,), 1 / 8, dtype=torch.float64),
    )  # what decides numbers of masks
    given = torch.tensor([True, True, False, False])
    whole = exact.expectation(lambda b, s: method.bound(b, s), x, nodes)
    first = exact.expectation(lambda b, s: method.bound(Batch(b.tokens[:, :2]), s), x, nodes)
    then = exact.expectation(masked(method, given), x, nodes)
    close(whole, first + then, rtol=0, atol=1e-9)


def test_ar_is_exact_by_the_chain_rule():
    method = make("ar").requires_grad_(False)
    texts = [[0, 1, 2, 2, 1], [2, 2, 0, 1], [1, 0, 0, 2, 1, 1, 2, 0]]
    whole = [float(method.bound(Batch(torch.tensor([t])))) for t in texts]
    for n in (0, 1, 3):
        found = bound_tokens(method, [(t[:n], t[n:]) for t in texts], draws=5)
        before = [float(method.bound(Batch(torch.tensor([t[:n]])))) if n else 0.0 for t in texts]
        assert found.kind == "exact"
        assert found.draws == 1
        assert found.error.tolist() == [0.0] * 3
        close(found.nats, torch.tensor(whole).double() - torch.tensor(before).double(), rtol=0, atol=1e-5)


def test_no_bound_no_pairs():
    with pytest.raises(InputError, match=r"csm defines no likelihood bound, .*; use another model"):
        bound_tokens(make("csm"), [([0], [1])])


# ------------------------------------------------------------------------------------------------------- the drawing
def test_the_error_covers_the_expectation():
    """Intervals of 32 draws, built from replicates, cover the enumerated expectation in 89 to 100 of 100."""
    method, x = enumerated("mdlm"), exact.states(V, L)
    truth = exact.expectation(masked(method, GIVEN), x, exact.parts(2))
    pairs = [(row[:1], row[1:]) for row in x.tolist()]
    covered = []
    for seed in range(12):
        found = bound_tokens(method, pairs, 32, seed, batch=4096)
        covered += ((found.nats - truth).abs() <= student(7) * found.error + 1e-12).tolist()
    assert 0.90 <= sum(covered) / len(covered) <= 1.0
    many = bound_tokens(method, pairs, 4096, 0, batch=1 << 16)
    assert ((many.nats - truth).abs() <= 6 * many.error + 1e-9).all()


SEVERAL = [([], [0, 1, 2]), ([1, 2], [0]), ([2, 2, 1, 0], [1, 1]), ([0], [2, 2]), ([1], [2, 2]), ([0], [2, 2]),
           ([0, 1, 2] * 3, [1, 0]), ([2], [0, 1, 2] * 6)]  # fmt: skip


@pytest.mark.parametrize("name", [n for n in METHODS if n != "csm"])
def test_numbers_depend_on_nothing_else(name):
    """Nor on the batch's size, on the other pairs, nor on their order; equal pairs have equal numbers."""
    method = make(name).float()
    whole = bound_tokens(method, SEVERAL, 4, seed=3)
    for batch in (1, 5, 1000):
        close(bound_tokens(method, SEVERAL, 4, 3, batch).table, whole.table, rtol=1e-5, atol=1e-5)
    back = bound_tokens(method, SEVERAL[::-1], 4, seed=3)
    close(back.table.flip(0), whole.table, rtol=1e-5, atol=1e-5)
    alone = bound_tokens(method, SEVERAL[2:3], 4, seed=3)
    close(alone.table[0], whole.table[2], rtol=1e-5, atol=1e-5)
    close(whole.table[3], whole.table[5], rtol=1e-5, atol=1e-5)
    assert whole.tokens.tolist() == [3, 1, 2, 2, 2, 2, 2, 18]
    if not method.exact:
        assert not torch.allclose(bound_tokens(method, SEVERAL, 4, seed=4).table, whole.table, rtol=1e-4)
        assert torch.equal(bound_tokens(method, SEVERAL, 4, seed=3).table, whole.table)


class Times(torch.nn.Module):
    """Not a method: its terms are the times that were drawn."""

    bounded, exact, shape = True, False, (8,)

    def terms(self, batch, generator=None):
        from zellige.core.random import stratified

        return {"time": stratified(len(batch), generator)}


def test_each_replicate_is_spread_over_time():
    found = bound_tokens(Times(), SEVERAL[:7], 32)  # pyright: ignore[reportArgumentType]
    assert found.table.shape == (7, 8)
    assert ((found.table - 0.5).abs() <= 1 / 8 + 1e-12).all()  # four draws, one in each quarter
    assert found.table[0].std() > 0.01  # and the replicates are independent
    assert [replicates(d) for d in (1, 2, 16, 32, 128)] == [1, 2, 4, 8, 8]


def test_long_texts_are_cut():
    """A long context loses its beginning; a long continuation is the sum of its pieces."""
    method = make("mdlm")
    text = [0, 1, 2, 2, 1, 0, 1, 2, 0, 0, 1]
    pairs = [(text[:9], text[9:]), (text[3:9], text[9:]), ([], text), ([], text[:8]), (text[3:8], text[8:])]
    found = bound_tokens(method, pairs, 16)
    assert found.nats[0] == found.nats[1]
    assert found.nats[2] == pytest.approx(float(found.nats[3] + found.nats[4]), abs=1e-12)
    assert list(windows(0, 11, 8)) == [(0, 0, 8), (3, 8, 11)]


# ------------------------------------------------------------------------------------------------------- the greedy choice
@pytest.mark.parametrize("name", ["mdlm", "md4", "sedd", "bd3lm", "ar", "udlm"])
def test_greedy_is_decoding_token_by_token(name):
    """The continuation that decoding makes is greedy, and no other of its length is."""
    method = make(name, {"block": 2} if name == "bd3lm" else {})
    context, made = [0, 2], []
    if name == "udlm":
        assert greedy(method, [(context, [0])]) == [False]
        return
    for _ in range(3):
        each = [greedy(method, [(context, [*made, token])])[0] for token in range(LETTERS)]
        assert sum(each) == 1
        made.append(each.index(True))
    every = [(context, list(y)) for y in itertools.product(range(LETTERS), repeat=3)]
    assert [y for (_, y), same in zip(every, greedy(method, every, batch=7)) if same] == [made]


def test_greedy_is_the_largest_probability():
    method, context = make("mdlm"), [0, 2]
    first = next(y for y in range(LETTERS) if greedy(method, [(context, [y])])[0])
    x_t = torch.tensor([[*context, LETTERS]])
    law = kernel(method.predict(x_t, torch.tensor([[0.0, 0.0, 0.5]])), 0.0)[0, 2]
    assert int(law.argmax()) == first


# ------------------------------------------------------------------------------------------------------- texts and files
def test_the_border_lies_where_the_tokens_agree():
    tokenizer = train_bpe(300, ["the cat sat on the mat, the cat sat"] * 50)
    for context, continuation in [("the cat", " sat"), ("the c", "at sat"), ("", "the cat"), ("the mat,", " the")]:
        before, after = tokenize_pair(tokenizer, context, continuation)
        assert before + after == tokenizer.encode(context + continuation)
        assert (context + continuation).startswith(tokenizer.decode(before))
        assert len(tokenizer.decode(before)) <= len(context)  # nothing of the continuation is given away
        assert after
    assert tokenize_pair(tokenizer, "the cat", " sat", prefix=True)[0][0] == tokenizer.separator
    assert tokenize_pair(Characters("abc "), "a b", "c") == ([1, 0, 2], [3])
    assert tokenize_pair(Bytes(), "é", "x") == ([195, 169], [120])
    with pytest.raises(InputError, match="a continuation is empty; "):
        tokenize_pair(tokenizer, "the cat", "")
    with pytest.raises(InputError, match="has no token that ends documents; "):
        tokenize_pair(Characters("abc"), "a", "b", prefix=True)


class Little:
    """A model of texts of letters."""

    def __init__(self, name="mdlm"):
        self.tokenizer, self.method, self.about = Characters("abc"), make(name), {}


def test_a_file_of_pairs(tmp_path):
    """The mean is of the right choices, the accuracies are counted by hand, and the JSON has the nats of each."""
    model = Little()
    lines = [
        {"context": "ab", "continuation": "ca"},
        {"context": "a", "choices": ["b", "cab", "cc"], "answer": 1},
        {"choices": ["aa", "c"], "answer": "c"},
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    records = read_pairs(file)
    assert records == [Question("ab", ("ca",)), Question("a", ("b", "cab", "cc"), 1), Question("", ("aa", "c"), 1)]
    judged = EvaluatePairs(records, draws=8, seed=1).run(model)
    texts = [(r.context, c) for r in records for c in r.choices]
    each = bound(model, texts, 8, 1).nats.tolist()
    right = [each[0], each[2], each[5]]
    assert judged.result.value * math.log(2) == pytest.approx(sum(right) / 6)
    by_nats = (each[2] < min(each[1], each[3])) + (each[5] < each[4])
    per_character = (each[2] / 3 < min(each[1], each[3] / 2)) + (each[5] < each[4] / 2)
    assert (judged.accuracy, judged.normalised) == (Proportion(by_nats, 2), Proportion(per_character, 2))
    plain = judged.to_dict()
    assert [n for line in plain["result"]["pairs"] for n in line["nats"]] == each
    assert plain["result"]["accuracy"]["right"] == by_nats
    assert judged.note is None
    assert "approximate" in (EvaluatePairs(records, draws=2).run(Little("udlm")).note or "")


def test_equal_pairs_are_one_observation():
    """They have the same draws: repeating every pair narrows no interval, and of one pair there is none."""
    model, pairs = Little(), [Question("ab", ("ca",)), Question("a", ("bc",)), Question("", ("acb",))]
    once, often = (EvaluatePairs(questions, draws=32).run(model) for questions in (pairs, pairs * 16))
    for name in ("value", "low", "high", "draws_low", "draws_high", "freedom"):
        assert getattr(often.result, name) == pytest.approx(getattr(once.result, name))
        assert math.isfinite(getattr(often.result, name))
    assert often.result.sequences == 48
    one = EvaluatePairs(pairs[:1] * 16, draws=32).run(model).result
    assert (one.half, one.draws_half) == (math.inf, math.inf)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "is not JSON; "),
        ("[]", "has not one of continuation and choices; "),
        ('{"context": "a"}', "has not one of continuation and choices; "),
        ('{"context": 1, "continuation": "a"}', "has something that is no text; "),
        ('{"context": "a", "continuation": ""}', "has nothing to judge; "),
        (
            '{"context": "a", "choices": ["b", "c"]}',
            "has no right answer; give answer, a number from 0 to 1 or a choice",
        ),
        ('{"context": "a", "choices": ["b", "c"], "answer": 2}', "has no right answer; "),
        ("", "holds no pairs; "),
    ],
)
def test_wrong_files(text, error, tmp_path):
    file = tmp_path / "pairs.jsonl"
    file.write_text(text + "\n")
    with pytest.raises(InputError, match=error):
        read_pairs(file)


def test_the_error_is_that_of_the_mean_of_the_replicates():
    table = torch.tensor([[1.0, 2.0, 4.0, 5.0], [3.0, 3.0, 3.0, 3.0]], dtype=torch.float64)
    of = Conditional(table, torch.tensor([2, 2]), "bound", 8)
    assert of.nats.tolist() == [3.0, 3.0]
    assert of.error.tolist() == pytest.approx([math.sqrt(10 / 3 / 4), 0.0])


def test_wilson_is_the_table():
    """Newcombe 1998, Statistics in Medicine 17, table I, method 3."""
    table = {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0.0, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }
    for (right, total), ends in table.items():
        assert Proportion(right, total).interval == pytest.approx(ends, abs=5e-5)
