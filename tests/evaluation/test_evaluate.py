"""The interval covers, the split of its variance is right, the number is that of the enumeration and of nothing else."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import zellige
from testing.small import Rows
from zellige.core.batch import Batch
from zellige.core.random import stratified
from zellige.data import prepare
from zellige.data.rows import Rows as DataRows
from zellige.evaluation.evaluate import evaluate_rows, rows_of, words_per_token
from zellige.evaluation.interval import student
from zellige.evaluation.result import Result, difference, summarize
from zellige.exact.enumeration import states
from zellige.methods import build
from zellige.methods.method import Method
from zellige.models.config import Config
from zellige.models.model import Model
from zellige.nn.table import Table

V, L = 3, 2


def method(name="mdlm", **config):
    torch.manual_seed(0)
    cls = zellige.METHODS[name]
    chosen = cls.Config(**config)
    network = Table(V + 1, L, time=cls.timed(chosen)).double()
    with torch.no_grad():
        network.logits.copy_(1.5 * torch.randn(network.logits.shape, dtype=torch.float64))
    return build(cls, V, network, chosen, length=L)


# ------------------------------------------------------------------------------------------------------- the interval


@pytest.mark.parametrize(
    ("freedom", "half"),
    [(1, 12.7062047), (2, 4.3026527), (3, 3.1824463), (4, 2.7764451), (7, 2.3646243), (30, 2.0422725), (120, 1.9799304),
     (1000, 1.9623391)],
)  # fmt: skip
def test_student_is_the_table(freedom, half):
    assert student(freedom) == pytest.approx(half, abs=2e-7)


def test_student_is_smooth_where_the_formula_changes_and_ends_at_the_normal():
    gaps = [student(n) - student(n + 1) for n in range(395, 406)]
    assert all(0 < b < a for a, b in itertools.pairwise(gaps))
    assert student(10**9) == pytest.approx(1.959963985, abs=1e-8)
    assert student(5, 0.99) == pytest.approx(4.0321430, abs=1e-6)


@pytest.mark.parametrize("texts", [3, 20])
def test_the_interval_covers_95_percent(texts):
    g = torch.Generator().manual_seed(texts)
    sizes = torch.full((texts,), 100.0)
    hits, runs = 0, 2000
    for _ in range(runs):
        y = 100 * (2 + torch.randn(texts, generator=g, dtype=torch.float64))
        r = summarize(y, sizes, "nats/token")
        hits += r.low <= 2 <= r.high
    assert abs(hits / runs - 0.95) < 4 * math.sqrt(0.95 * 0.05 / runs)


def test_texts_of_several_lengths_are_weighed_by_their_length():
    """The ratio estimator: the corpus number, and an interval that covers the ratio of the means."""
    g = torch.Generator().manual_seed(0)
    hits, runs = 0, 1000
    for _ in range(runs):
        sizes = 10 + 90 * torch.rand(40, generator=g, dtype=torch.float64)
        y = sizes * 1.7 + sizes.sqrt() * torch.randn(40, generator=g, dtype=torch.float64)
        r = summarize(y, sizes, "nats/token")
        assert r.value == pytest.approx(float(y.sum() / sizes.sum()))
        hits += r.low <= 1.7 <= r.high
    assert abs(hits / runs - 0.95) < 0.025


def test_the_variance_is_split_between_texts_and_draws():
    g = torch.Generator().manual_seed(0)
    texts = 2.0 + 0.3 * torch.randn(4000, 1, generator=g, dtype=torch.float64)
    noise = torch.randn(4000, 64, generator=g, dtype=torch.float64)
    few, many = (summarize(texts + 0.4 * noise[:, :n], torch.ones(4000), "nats/token") for n in (2, 64))
    assert few.between == pytest.approx(0.09 / (0.09 + 0.16 / 2), abs=0.05)
    assert few.floor == pytest.approx(many.floor, rel=0.05)  # what is promised is what more draws give
    assert many.half == pytest.approx(many.floor, rel=0.03)


def test_bits_are_nats_over_log_2_and_perplexity_is_exp():
    y, sizes = torch.tensor([90.0, 110.0, 100.0]), torch.full((3,), 100.0)
    nats, bits = summarize(y, sizes, "nats/token"), summarize(y, sizes, "bits/char")
    assert bits.value == pytest.approx(nats.value / math.log(2))
    assert bits.perplexity == pytest.approx(nats.perplexity) == pytest.approx(math.e)
    assert (nats.per, bits.per) == ("token", "character")
    assert bits.perplexity_low == pytest.approx(math.exp(nats.low))
    assert str(bits) == "≤ 1.443 ± 0.358 bits/char (95%)"


def test_one_text_has_no_interval():
    r = summarize(torch.tensor([90.0]), torch.tensor([100.0]), "nats/token")
    assert str(r) == "≤ 0.900 ± unknown nats/token (95%)"
    assert json.loads(zellige.show.record.dumps(r.to_dict()))["interval"]["low"] is None  # pyright: ignore


def test_a_paired_difference_is_that_of_the_texts():
    g = torch.Generator().manual_seed(0)
    hard = 100 + 30 * torch.randn(50, generator=g, dtype=torch.float64)
    a = summarize(hard + torch.randn(50, generator=g, dtype=torch.float64), torch.full((50,), 50.0), "bits/char")
    b = summarize(hard - 5, torch.full((50,), 50.0), "bits/char", "exact")
    d = difference(a, b)
    assert d.value == pytest.approx(a.value - b.value)
    assert d.half < 0.05 * a.half  # the texts' own difficulty has gone
    assert str(d).endswith(" bits/char (95%)")
    assert str(d)[0].isdigit()
    with pytest.raises(ValueError, match="same texts"):
        difference(a, summarize(hard[:9], torch.full((9,), 50.0), "bits/char"))


# --------------------------------------------------------------------------------------------------------- the number


def any_order(m, x):
    """-log p averaged over the orders of two tokens, by hand: (N,) nats."""
    mask = V
    total = torch.zeros(len(x), dtype=torch.float64)
    for order in ((0, 1), (1, 0)):
        x_t = torch.full_like(x, mask)
        for i in order:
            logits = m.network.head(m.network.features(x_t))[:, i].clone()
            logits[:, mask] = -torch.inf
            total -= logits.log_softmax(-1).gather(-1, x[:, i : i + 1])[:, 0] / 2
            x_t = x_t.clone()
            x_t[:, i] = x[:, i]
    return total.detach()


def test_the_estimate_is_that_of_the_enumeration():
    """All 9 texts, many draws: any-order likelihood by hand, and the bound that equals it up to its ends of time."""
    m, x = method(), states(V, L)
    truth = any_order(m, x)
    for estimator in ("any_order", "bound"):
        r = evaluate_rows(m, Rows(x), draws=2048, seed=1, estimator=estimator)
        assert r.nats is not None
        assert (r.nats - truth).abs().max() < 0.12  # of one text: which of its two tokens is masked is a coin
        assert r.value == pytest.approx(float(truth.mean()) / L, abs=0.01)
    assert set(r.terms) == {"diffusion", "reconstruction", "prior"}
    assert sum(r.terms.values()) == pytest.approx(r.value * L)


@pytest.mark.parametrize("name", ["mdlm", "md4"])
@pytest.mark.parametrize("draws", [1, 3, 4, 100])
def test_the_number_does_not_depend_on_the_batch(name, draws):
    m, rows = method(name), Rows(states(V, L).repeat(5, 1)[: 37 if draws < 9 else 5])
    found = [evaluate_rows(m, rows, draws=draws, seed=3, batch=batch).value for batch in (1, 5, 64, 1000)]
    assert max(found) - min(found) < 1e-12
    assert evaluate_rows(m, rows, draws=draws, seed=4).value != found[0]


class Times(Method):
    """Its terms are the times that were drawn."""

    name = "times"

    def __init__(self):
        super().__init__(None, V, (L,))

    def terms(self, batch, generator=None):
        return {"time": stratified(len(batch), generator)}


@pytest.mark.parametrize("draws", [2, 8, 64])
@pytest.mark.parametrize("batch", [4, 64])
def test_the_draws_of_a_text_are_spread_over_time(draws, batch):
    """In each half evenly, so that their mean is that of [0, 1] up to half a stratum; the halves are independent."""
    r = evaluate_rows(Times(), Rows(torch.zeros(40, L, dtype=torch.long)), draws=draws, batch=batch)  # type: ignore[arg-type]
    assert r.nats is not None
    assert (r.nats - 0.5).abs().max() <= 1 / draws + 1e-9
    assert len(r.nats.round(decimals=12).unique()) > 5


def test_the_split_is_honest_for_stratified_draws():
    """Equal texts: all of the variance is the draws', and the promise of what more draws give is close to nothing."""
    m, rows = method("md4"), Rows(torch.zeros(200, L, dtype=torch.long))
    assert evaluate_rows(m, rows, draws=4, seed=0).between < 0.25


def test_padding_is_not_counted():
    m, x = method(), states(V, L)
    mask = torch.tensor([[True, False]]).expand(len(x), -1)
    r = evaluate_rows(m, Rows(x, mask), draws=256)
    assert r.units == len(x)
    whole = evaluate_rows(m, Rows(x), draws=4)
    assert whole.units == 2 * len(x)
    assert evaluate_rows(m, Rows(x), draws=4, characters=4.5 * len(x)).units == pytest.approx(4.5 * len(x))


def test_a_limit_takes_texts_evenly_spaced():
    m, x = method(), states(V, L)
    r = evaluate_rows(m, Rows(x), draws=4, limit=3)
    assert r.sequences == 3
    assert r.protocol["texts"] == "3 of 9, evenly spaced"
    seen = []
    rows = Rows(x)
    rows.collate = lambda i: seen.extend(i) or Batch(x[i])
    evaluate_rows(m, rows, draws=4, limit=3)
    assert seen == [0, 3, 6]


def test_training_mode_comes_back_and_progress_is_told():
    m = method().train()
    told = []
    evaluate_rows(m, Rows(states(V, L)), draws=32, progress=lambda *a: told.append(a))
    assert m.training
    assert told[-1] == (9, 9)
    assert [done for done, _ in told] == [2, 4, 6, 8, 9]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 0}, "`draws` is 0; it must be 1 or more"),
        ({"limit": 1}, "`limit` is 1; it must be 2 or more: an interval needs two texts"),
        ({"estimator": "exakt"}, "unknown estimator 'exakt'; all of them: bound, any_order, forward, backward, random"),
    ],
)
def test_wrong_input(options, message):
    with pytest.raises(zellige.InputError) as error:
        evaluate_rows(method(), Rows(states(V, L)), **options)
    assert str(error.value) == message


def test_json_round_trip(tmp_path):
    r = evaluate_rows(method(), Rows(states(V, L)), draws=4)
    r.save(tmp_path / "r.json")
    again = Result.from_json(tmp_path / "r.json")
    assert again == r  # unrounded
    plain = json.loads((tmp_path / "r.json").read_text())
    assert plain["interval"]["low"] == r.low
    assert plain["protocol"]["bound"] == "float64"
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(zellige.InputError, match=r"is not a result of zellige evaluate; give one"):
        Result.from_json(tmp_path / "other.json")


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe:300"])
def test_bits_per_word_are_all_nats_over_all_words(tmp_path, tokenizer):
    """The nats of a text over the words that Python's split finds in it, in tokens and in characters."""
    lines = [f"the {a} sees no {b} or {c}" for a, b, c in itertools.product(("cat", "old dog", "ox"), repeat=3)]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")
    length = 16
    data = zellige.Data("text", path=str(tmp_path / "lines.txt"), tokenizer=tokenizer, validation=0.2, test=0.4)
    corpus = prepare(data, length)
    net, config = zellige.Net(layers=1, hidden=8, heads=2, length=length), zellige.METHODS["ar"].Config()
    network = build(zellige.METHODS["ar"], corpus.tokenizer.size, net, config, length)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    asked = rows_of(Model(network, corpus.tokenizer, Config("ar", config, data, net)), corpus, "test")
    result = replace(evaluate_rows(network, asked.rows, characters=asked.characters), about=asked.about)
    tokens = asked.rows.array().reshape(-1)
    words = len(corpus.tokenizer.decode(tokens).split())
    per_word = result.per_word
    assert per_word is not None
    assert per_word.value == pytest.approx(result.value * result.scale * result.units / words / math.log(2), rel=2e-3)
    assert per_word.half == pytest.approx(result.half * per_word.value / result.value)
    entry = result.to_dict()["result"]["per_word"]
    assert [entry["value"], entry["high"] - entry["value"], entry["unit"]] == [
        per_word.value, pytest.approx(per_word.half), "bits/word",
    ]  # fmt: skip
    assert per_word in result.claimable()
    assert replace(result, about={}).per_word is None
    documents = DataRows(tokens, 24, documents=np.array([0, 10, 31, len(tokens)]))  # the longer ones in pieces
    pieces = [corpus.tokenizer.decode(row[row >= 0]) for row in documents.array()]
    assert words_per_token(documents, corpus.tokenizer) * len(tokens) == pytest.approx(len(" ".join(pieces).split()))
