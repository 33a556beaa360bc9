"""The measures of samples: by hand, by the plain definition over sets, and their intervals by simulation."""

import math
from itertools import chain

import numpy as np
import pytest
import torch

from zellige.base.errors import InputError
from zellige.evaluation import metrics
from zellige.evaluation.interval import Number, mean, student
from zellige.evaluation.metrics import METRICS, Metric
from zellige.plugins.evaluations.generate import printing
from zellige.plugins.evaluations.generate.sample_sets import ScoredSet, Way
from zellige.samplers import State
from zellige.samplers.growing import Growth


def ragged(seed: int, rows: int = 12, vocabulary: int = 5) -> list[list[int]]:
    g = np.random.default_rng(seed)
    return [g.integers(0, vocabulary, g.integers(1, 30)).tolist() for _ in range(rows)]


# ------------------------------------------------------------------------------------------------------- by hand


def test_entropy_of_a_uniform_law_is_log_of_its_size():
    rows = [list(range(8)) * 4, [*range(8)], [5] * 9]
    assert metrics.entropies(rows) == pytest.approx([math.log(8), math.log(8), 0.0])
    assert mean(metrics.entropies(rows)).value == pytest.approx(2 / 3 * math.log(8))


def test_entropy_by_hand_and_invariance():
    """Frequencies 1/2, 1/4, 1/4; neither the order of the tokens nor their names matter."""
    assert metrics.entropies([[0, 1, 0, 2], [9, 9, 4, 3]]) == pytest.approx([1.5 * math.log(2)] * 2)
    row = ragged(1)[3]
    other = [100 - t for t in reversed(row)]
    assert metrics.entropies([row])[0] == pytest.approx(metrics.entropies([other])[0], abs=1e-12)


@pytest.mark.parametrize("n", metrics.ORDERS)
def test_constant_and_all_different_text(n):
    """L tokens that are all the same hold one n-gram among L - n + 1; all different ones none twice."""
    constant, different = [[3] * 20], [list(range(20))]
    assert metrics.distinct(constant, n).value == pytest.approx(1 / (20 - n + 1))
    assert metrics.distinct(different, n).value == 1.0
    assert metrics.repetitions(constant, n)[0] == pytest.approx(1 - 1 / (20 - n + 1))
    assert metrics.repetitions(different, n)[0] == 0.0


def test_no_gram_reaches_over_the_end_of_a_row():
    assert metrics.distinct([[1, 2], [1, 2]], 2).value == 0.5
    assert metrics.distinct([[1, 2], [3, 4]], 2).value == 1.0
    code, row = metrics.grams([[1, 2], [], [3], [4, 5, 6]], 2)
    assert len(code) == 3
    assert row.tolist() == [0, 3, 3]


@pytest.mark.parametrize("n", metrics.ORDERS)
@pytest.mark.parametrize("seed", [0, 1])
def test_counts_are_those_of_sets(n, seed):
    rows = ragged(seed)
    each = [[tuple(row[i : i + n]) for i in range(len(row) - n + 1)] for row in rows]
    every = [*chain(*each)]
    assert metrics.distinct(rows, n).value == pytest.approx(len(set(every)) / len(every), abs=1e-12)
    expected = [1 - len(set(one)) / len(one) if one else math.nan for one in each]
    assert metrics.repetitions(rows, n) == pytest.approx(expected, nan_ok=True)


def test_one_row_alone_is_both_measures():
    """Of one sample, seq-rep-4 is 1 - distinct-4."""
    row = ragged(7)[2] * 3
    assert metrics.repetitions([row])[0] == pytest.approx(1 - metrics.distinct([row], 4).value)


def both(nats: torch.Tensor, tokens: torch.Tensor) -> tuple[Number, Number]:
    """Corpus-level perplexity, and the mean over sequences."""
    return metrics.perplexity(nats, tokens), mean(metrics.perplexities(nats, tokens))


def test_perplexity_of_a_uniform_judge_is_the_vocabulary():
    tokens = torch.tensor([3.0, 10.0, 7.0], dtype=torch.float64)
    corpus, each = both(tokens * math.log(11.0), tokens)
    assert corpus.value == pytest.approx(11)
    assert each.value == pytest.approx(11)
    assert corpus.half == pytest.approx(0, abs=1e-6)


def test_the_two_perplexities_by_hand():
    """Two texts, of 1 token at perplexity 16 and of 3 at perplexity 2: the geometric mean over tokens, and the mean of both."""
    nats, tokens = torch.tensor([math.log(16), 3 * math.log(2)]), torch.tensor([1, 3])
    corpus, each = both(nats, tokens)
    assert corpus.value == pytest.approx((16 * 2**3) ** (1 / 4))
    assert each.value == pytest.approx((16 + 2) / 2)
    again = both(torch.cat([nats, torch.zeros(1)]), torch.cat([tokens, torch.zeros(1).long()]))
    assert again == (corpus, each)


def test_equal_lengths_obey_jensen():
    nats = torch.rand(50, generator=torch.Generator().manual_seed(0)) * 100
    corpus, each = both(nats, torch.full((50,), 40))
    assert corpus.value < each.value
    log = (nats.double() / 40).mean()
    assert math.log(corpus.value) == pytest.approx(float(log))


@pytest.mark.parametrize("n", [5, 6, 20, 101])
def test_the_median_document_and_its_interval(n):
    """Ranks of the binomial, for lengths 1 to n of which the longest did not end."""
    lengths = np.where(np.arange(1, n + 1) > n - 2, np.nan, np.arange(1.0, n + 1))
    found = metrics.median_length(np.random.default_rng(0).permutation(lengths))
    assert found.value == (n + 1) / 2
    tail = [sum(math.comb(n, i) for i in range(k)) / 2**n for k in range(1, n)]  # P(fewer than k below the median)
    k = sum(p <= 0.025 for p in tail)
    high = n + 1 - k
    assert found.low == (k or -math.inf)
    assert found.high == (high if k > 0 and high <= n - 2 else math.inf)
    longest = metrics.longest_length(lengths)
    assert (longest.value, longest.high) == (n - 2, math.inf)
    share = metrics.endless(lengths)
    assert share.value == 2 / n
    assert 0 < share.low < share.value < share.high


def test_no_median_where_half_of_the_documents_did_not_end():
    assert math.isnan(metrics.median_length(np.array([1.0, 2.0, math.nan, math.nan])).value)
    assert math.isnan(metrics.longest_length(np.array([math.nan])).value)


def test_texts_that_end_by_themselves():
    """Not one as long as may be, nor one that was stopped since it repeats itself."""
    x = torch.zeros(3, 8, dtype=torch.long)
    memory = Growth(8, 8, torch.tensor([3, 8, 5]), torch.arange(3), repeats=torch.tensor([False, False, True]))
    assert memory.summary(State(x, x > 0, x[:, 0], memory=memory)).ended == [True, False, False]


def test_nothing_judged_is_one_line():
    for metric in (metrics.perplexity, metrics.perplexities):
        with pytest.raises(InputError, match="no token to judge"):
            metric(torch.zeros(2), torch.zeros(2).long())


# ------------------------------------------------------------------------------------------------------- intervals


def test_the_jackknife_is_that_of_leaving_rows_out():
    rows = ragged(3)
    for n in (1, 3):
        without = [metrics.distinct(rows[:i] + rows[i + 1 :], n).value for i in range(len(rows))]
        spread = (len(rows) - 1) / len(rows) * np.sum((np.array(without) - np.mean(without)) ** 2)
        assert metrics.distinct(rows, n).half == pytest.approx(student(len(rows) - 1) * math.sqrt(spread))
    for alone in ([[1, 2, 1]], [[1, 2, 1], [4], [5]]):  # all n-grams are of one row: nothing is left without it
        assert metrics.distinct(alone, 2) == metrics.Number(1.0, -math.inf, math.inf)


def test_intervals_cover():
    """Rows of a known law: each interval holds the value of far more rows; for distinct-n, which is biased, the repeats' mean."""
    g = np.random.default_rng(0)
    law = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
    draw = lambda rows: g.choice(5, (rows, 16), p=law)  # noqa: E731
    truth = mean(metrics.entropies(draw(20000))).value, np.nanmean(metrics.repetitions(draw(20000), 2))
    repeats = [draw(20) for _ in range(200)]
    middle = np.mean([metrics.distinct(r, 3).value for r in repeats])
    hits = np.zeros(3)
    for r in repeats:
        numbers = (
            mean(metrics.entropies(r)),
            mean(metrics.repetitions(r, 2)),
            metrics.distinct(r, 3),
        )
        hits += [x.low <= t <= x.high for x, t in zip(numbers, (*truth, middle))]
    assert (hits[:2] > 0.9 * 200).all()
    assert (hits[:2] < 0.99 * 200).all()
    assert hits[2] > 0.93 * 200  # conservative


# ------------------------------------------------------------------------------------------------------- the table


def test_what_is_known_decides_what_is_measured():
    """Each metric where all that it takes is known, and nowhere else; in the order of the table."""
    rows = ragged(0)
    nats, tokens = torch.ones(12), torch.full((12,), 3)
    alone = [name for name, metric in METRICS.items() if metric.takes == ("rows",)]
    judged = [name for name, metric in METRICS.items() if metric.takes == ("nats", "tokens")]
    assert [*metrics.measure(rows=rows)] == alone
    assert [*metrics.measure(nats=nats, tokens=tokens)] == judged
    assert [*metrics.measure(nats=nats, tokens=tokens, rows=rows)] == judged + alone
    assert metrics.measure(nats=nats) == metrics.measure() == {}
    with pytest.raises(ValueError, match="no metric takes 'row'"):
        metrics.measure(row=rows)


def test_of_one_value_a_sample_the_mean_is_taken():
    rows = ragged(0)
    assert metrics.measure(rows=rows)["entropy"] == mean(metrics.entropies(rows))
    assert metrics.measure(runs=np.array([1, 2, 6]))["memorisation"] == mean([1, 2, 6])
    assert metrics.measure(rows=rows)["distinct-2"] == metrics.distinct(rows, 2)


def test_what_nothing_gives_is_not_taken():
    with pytest.raises(ValueError, match="the metric 'sparkle' takes 'glitter', which nothing gives it"):
        Metric("sparkle", len, ("rows", "glitter"), True)


def test_a_metric_without_a_row_is_neither_saved_nor_printed():
    number = Number(1.0, 0.9, 1.1)
    samples = ScoredSet(way=Way(), samples=1, samples_sha256="", tokens=1, measures={"sparkle": number})
    for plant in (
        lambda: samples.also({"entropy": number, "sparkle": number}),
        lambda: metrics.definitions(["sparkle"]),
        lambda: metrics.intervals(["sparkle"]),
        lambda: printing.shown(samples, "sparkle"),
    ):
        with pytest.raises(ValueError, match=r"the metric 'sparkle' has no row; add it to METRICS"):
            plant()


@pytest.mark.parametrize(
    ("name", "number", "text"),
    [
        ("perplexity", Number(9.9994, 9.9, 10.1), "9.999 ± 0.100"),
        ("perplexity", Number(12.345, 12, 12.7), "12.35 ± 0.35"),
        ("KID", Number(-0.0123, -0.02, -0.0046), "-0.01230 ± 0.00770"),
        ("KID", Number(1.5, 1.4, 1.6), "1.500 ± 0.100"),
        ("energy distance", Number(0.0128, 0.0018, 0.035), "0.0128 -0.0110 +0.0222"),
        ("memorisation", Number(12.64, 11.4, 13.9), "12.6 ± 1.2"),
        ("entropy", Number(12.3456, 12.3, 12.4), "12.346 ± 0.050"),
    ],
)
def test_decimals_are_those_of_the_row(name, number, text):
    assert METRICS[name].text(number) == text


def test_intervals_and_definitions_name_families_once():
    names = ["entropy", "distinct-1", "distinct-2", "seq-rep-4"]
    assert metrics.intervals(names) == (
        "entropy, seq-rep-4: Student's t over samples; distinct-n: jackknife over samples"
    )
    assert [*metrics.definitions(names)] == ["entropy", "distinct-n", "seq-rep-4"]


# ------------------------------------------------------------------------------------------------------- MAUVE


def test_mauve_is_asked_once_a_seed(monkeypatch):
    """Of the package what counts is how it is asked: features, another seed each time; the mean of what it says."""
    import sys
    from types import SimpleNamespace

    asked = []

    def compute_mauve(p_features, q_features, seed, verbose):
        asked.append((p_features.shape, q_features.shape, seed, verbose))
        return SimpleNamespace(mauve=0.5 + 0.1 * (seed - 7))

    monkeypatch.setitem(sys.modules, "mauve", SimpleNamespace(compute_mauve=compute_mauve))
    found = metrics.mauve(torch.zeros(6, 3), torch.zeros(4, 3), seed=7)
    assert asked == [((6, 3), (4, 3), 7 + i, False) for i in range(5)]
    assert found.value == pytest.approx(0.7)
    assert found.half == pytest.approx(student(4) * math.sqrt(0.025) / math.sqrt(5))


def test_mauve_of_its_authors():
    """Where the package is there: the same features give 1, far ones almost nothing."""
    pytest.importorskip("mauve", reason="the extra 'mauve' is not installed")
    g = torch.Generator().manual_seed(0)
    a, far = torch.randn(200, 8, generator=g), 5 + torch.randn(200, 8, generator=g)
    assert metrics.mauve(a, a).value == pytest.approx(1.0, abs=1e-3)
    assert metrics.mauve(a, far).value < 0.1
