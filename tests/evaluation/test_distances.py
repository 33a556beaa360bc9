"""Distances of laws: by hand, by their definitions, by leaving texts out one at a time; and how often their intervals cover."""

import itertools
import math
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from zellige.base.errors import InputError
from zellige.evaluation import distances, metrics
from zellige.evaluation.interval import Number, from_jackknife, mean, student
from zellige.plugins.evaluations.generate.judge import JudgeReading
from zellige.plugins.evaluations.generate.memorisation import longest
from zellige.plugins.evaluations.generate.sample_sets import match_entropy
from zellige.plugins.evaluations.generate.text_features import RealText, hashed_ngrams, in_units_of

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "studies" / "coverage"))
from coverage_distances import CHANGES, covers, normal


def rows(g: np.random.Generator, count: int, vocabulary: int = 5) -> list[list[int]]:
    return [g.integers(0, vocabulary, g.integers(4, 12)).tolist() for _ in range(count)]


# ------------------------------------------------------------------------------------------------------- embeddings


def test_energy_distance_and_mmd_are_their_definitions():
    """The means over pairs of different texts, written out."""
    g = np.random.default_rng(0)
    x, y = g.normal(size=(6, 3)), g.normal(size=(5, 3)) + 0.4
    values = metrics.measure(vectors=x, real_vectors=y)
    for name, kernel in (("energy distance", lambda d: -d), ("MMD", lambda d: math.exp(-d * d / 2))):
        k = lambda a, b, kernel=kernel: kernel(math.dist(a, b))  # noqa: E731
        within = [np.mean([k(a, b) for a, b in itertools.permutations(z, 2)]) for z in (x, y)]
        across = np.mean([k(a, b) for a in x for b in y])
        assert values[name].value == pytest.approx(sum(within) - 2 * across, abs=1e-12)


def test_a_centred_kernel_has_rows_of_sum_zero():
    """Székely and Rizzo's: without the diagonal, whatever the kernel."""
    for n in (4, 7):
        k = np.random.default_rng(n).normal(size=(n, n))
        k += k.T
        assert distances.centred(k).sum(1) == pytest.approx(np.zeros(n), abs=1e-12)
        assert distances.crossed(k[:, :3]).sum() == pytest.approx(0, abs=1e-12)


def test_the_variance_of_a_discrepancy_is_unbiased():
    """Over all draws of five and of four texts out of three: the variance of single texts and pairs together is that of D."""
    points, p, q = np.array([0.0, 1.0, 2.5]), np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    kernel = -np.abs(points[:, None] - points)
    values, estimates, chances = [], [], []
    for xs in itertools.combinations_with_replacement(range(3), 5):
        for ys in itertools.combinations_with_replacement(range(3), 4):
            matrices = [kernel[np.ix_(a, b)] for a, b in ((xs, xs), (ys, ys), (xs, ys))]
            x, y = distances.witness(*matrices)
            chance = 1.0
            for drawn, law in ((xs, p), (ys, q)):
                counts = np.bincount(drawn, minlength=3)
                chance *= math.factorial(len(drawn)) * np.prod(law**counts / [math.factorial(c) for c in counts])
            values.append(x.mean() - y.mean())
            estimates.append(sum(distances.variances(*matrices)))
            chances.append(chance)
    values, chances = np.array(values), np.array(chances)
    assert chances.sum() == pytest.approx(1)
    mean_value = chances @ values
    assert mean_value == pytest.approx(p @ kernel @ p + q @ kernel @ q - 2 * p @ kernel @ q)
    assert chances @ np.array(estimates) == pytest.approx(chances @ (values - mean_value) ** 2)


def test_energy_distance_of_a_line_is_cramers():
    """In one dimension 2 E|x - y| - E|x - x'| - E|y - y'| is 2 int (F - G)^2: of two points at distance 1 it is 2."""
    x, y = np.zeros((5, 1)), np.ones((7, 1))
    assert metrics.energy_distance(x, y).value == pytest.approx(2.0)


def test_far_laws_have_the_jackknife_of_leaving_texts_out():
    """Where pairs bring next to nothing, the interval is about as long as the plain jackknife's."""
    g = np.random.default_rng(1)
    x, y = g.normal(size=(12, 2)), g.normal(size=(9, 2)) + 6
    number = lambda a, b: metrics.energy_distance(a, b)  # noqa: E731
    plain = from_jackknife(
        number(x, y).value,
        [number(np.delete(x, i, 0), y).value for i in range(len(x))],
        [number(x, np.delete(y, i, 0)).value for i in range(len(y))],
    )
    assert number(x, y).half == pytest.approx(plain.half, rel=0.1)


def test_single_texts_and_pairs_bring_the_variance_of_the_estimate():
    """V1 + V2, unbiased both, are the variance over repeats: of equal laws, and of others; to 12%, three of its errors."""
    for shift in (0.0, 0.4):
        g = np.random.default_rng(4)
        numbers, parts = [], []
        for _ in range(2000):
            x, y = g.normal(size=(8, 6)) + shift, g.normal(size=(10, 6))
            products = (x @ x.T, y @ y.T, x @ y.T)  # k(x, y) = x y: D is the squared difference of the means, unbiased
            at_x, at_y = distances.witness(*products)
            numbers.append(at_x.mean() - at_y.mean())
            parts.append(distances.variances(*products))
        single, pairs = np.mean(parts, axis=0)
        assert pairs == pytest.approx(6 * (2 / 8 / 7 + 2 / 10 / 9 + 4 / 80), rel=0.03)
        assert single == pytest.approx(4 * 6 * shift**2 * (1 / 8 + 1 / 10), abs=0.05)
        assert single + pairs == pytest.approx(np.var(numbers), rel=0.12)
        assert np.mean(numbers) == pytest.approx(6 * shift**2, abs=0.06)


def test_an_interval_holds_what_a_test_accepts():
    """By a grid of all values: those within t standard errors of theirs; below zero they have the noise alone."""
    grid = np.linspace(-3, 20, 230_001)
    for value, slope, noise in itertools.product((-0.5, 0.0, 0.4, 3.0), (0.0, 0.1, 2.0), (0.25, 0.3)):
        accepted = grid[np.abs(value - grid) <= 2.0 * np.sqrt(noise**2 + slope * np.maximum(grid, 0)) + 1e-9]
        assert distances.inverted(value, slope, noise, 2.0) == pytest.approx((accepted[0], accepted[-1]), abs=2e-4)
    assert distances.inverted(-1.0, 2.0, 0.25, 2.0) == (-1.5, -0.5)


def test_an_interval_of_d_holds_what_its_test_accepts():
    """By a grid of all values: V1 is its estimate less its regression on D, not below 0, nor above the widest direction's."""
    grid = np.linspace(-4, 30, 340_001)
    for value, single, slope in itertools.product((-0.5, 0.0, 0.4, 3.0), (-0.1, 0.0, 0.5), (0.0, 0.3, 1.0)):
        most = math.sqrt(8 * 0.09) * np.maximum(grid, 0)
        variance = 0.09 + np.minimum(np.maximum(single + slope * (grid - value), 0), most)
        held = grid[np.abs(value - grid) <= 2.0 * np.sqrt(variance) + 1e-9]
        assert distances.accepted(value, single, slope, 0.09, 2.0) == pytest.approx((held[0], held[-1]), abs=3e-4)


def test_the_estimates_of_d_and_v1_err_together_as_it_says():
    """The covariance over repeats, to 20%, of laws that differ; of equal ones it is rather too large."""
    g, of = np.random.default_rng(5), lambda x, y: (x @ x.T, y @ y.T, x @ y.T)
    all_of = [of(g.normal(size=(24, 3)) + 0.6, g.normal(size=(30, 3))) for _ in range(1200)]
    parts = [
        (float(at[0].mean() - at[1].mean()), distances.variances(*k)[0])
        for k in all_of
        for at in [distances.witness(*k)]
    ]
    expected = np.mean([distances.leaning(*k) for k in all_of])
    assert expected == pytest.approx(np.cov(np.transpose(parts))[0, 1], rel=0.2)


def test_the_variance_of_pairs_is_that_of_a_degenerate_statistic():
    """k(x, x') = x x' with E x = 0 is its own centring, with E h^2 = Var(x)^2; and D has the variance V2 that it says."""
    g = np.random.default_rng(2)
    kernels = [np.outer(v := g.normal(size=20), v) * (1 - np.eye(20)) for _ in range(3000)]
    estimates = [(distances.centred(kernel) ** 2).sum() / (20 * 17) for kernel in kernels]
    assert np.mean(estimates) == pytest.approx(1.0, abs=0.06)


def test_the_units_are_those_of_real_text():
    g = np.random.default_rng(3)
    real = np.concatenate([g.normal(size=(40, 3)) * [1.0, 50.0, 0.01] + 7, np.ones((40, 1))], 1)
    x = in_units_of(real)(real)
    assert x.shape == (40, 3)
    assert np.mean([np.sum((a - b) ** 2) for a in x for b in x]) == pytest.approx(1.0)
    assert in_units_of(real * 1000)(real * 1000) == pytest.approx(x)


def test_hashed_ngrams_know_the_text_and_not_its_length():
    one, twice, other, empty = hashed_ngrams(["abab" * 50, "abab" * 100, "the value", ""])
    assert np.abs(one - twice).max() < 0.02
    assert np.abs(one - other).max() > 0.1
    assert not empty.any()


# ------------------------------------------------------------------------------------------------------- n-grams, the judge


def test_total_variation_by_hand():
    """1-grams a a b c against a b b b: (1/4 + 1/2 + 1/4) / 2; without a common 2-gram 1; of the same texts 0."""
    assert metrics.total_variation([[0, 0], [1, 2]], [[0, 1], [1, 1]], 1).value == pytest.approx(0.5)
    assert metrics.total_variation([[0, 1]] * 2, [[1, 0]] * 2, 2).value == 1.0
    same = rows(np.random.default_rng(0), 6)
    assert metrics.total_variation(same, same, 3).value == 0.0
    assert math.isnan(metrics.total_variation([[1]], [[2]], 2).value)
    one, again, other = (
        metrics.total_variation(same, rows(np.random.default_rng(1), 8), 1, seed) for seed in (3, 3, 4)
    )
    assert one == again
    assert one.value == other.value
    assert one.half != other.half  # of other quarters


def test_the_interval_of_typicality_leaves_out_samples_and_real_texts():
    """Written out, of seven samples and three real texts: (n - 1) / n times the squares on either side."""
    g = np.random.default_rng(3)
    x, y = g.normal(size=7), g.normal(size=3) + 0.7
    value = lambda a, b: np.abs(a - b.mean()).mean()  # noqa: E731
    squares = 0.0
    for kept in ([value(np.delete(x, i), y) for i in range(7)], [value(x, np.delete(y, i)) for i in range(3)]):
        squares += (len(kept) - 1) / len(kept) * ((kept - np.mean(kept)) ** 2).sum()
    found = metrics.typicality(x, y)
    assert found.value == pytest.approx(value(x, y))
    assert found.half == pytest.approx(student(2) * math.sqrt(squares))


def test_typicality_is_the_distance_from_the_mean_of_real_text():
    x, y = np.array([1.0, 4.0, np.nan]), np.array([1.0, 3.0])
    number = metrics.typicality(x, y)
    assert number.value == pytest.approx((1 + 2) / 2)
    plain = from_jackknife(number.value, [2.0, 1.0], [np.mean([2, 1]), np.mean([0, 3])])
    assert number == plain


def test_real_text_is_split_in_two_and_never_compared_with_itself():
    """Texts at even places are the floor, at odd places the reference: of a text that stands twice in a row the floor is 0."""
    g = np.random.default_rng(4)
    some = rows(g, 8)
    texts = ["".join(map(str, row)) for row in some for _ in (0, 1)]
    reading = JudgeReading([r for r in some for _ in (0, 1)], torch.ones(16), torch.full((16,), 2), 0)
    real = RealText(texts, reading, hashed_ngrams, 20)
    assert real.size == 8
    assert real.floor["TV-2"].value == 0.0
    samples = real.distances(
        real.view(texts[:6], JudgeReading(reading.rows[:6], reading.nats[:6], reading.tokens[:6], 0))
    )
    assert samples["TV-2"].value > 0
    with pytest.raises(InputError, match="6 real texts are too few"):
        RealText(texts[:6], JudgeReading(some[:6], torch.ones(6), torch.ones(6), 0), hashed_ngrams, 6)


# ------------------------------------------------------------------------------------------------------- memorisation


def test_a_run_ends_with_its_row():
    """What ends one row of the training set and begins the next was never seen together."""
    assert longest([[3, 4], [5, 6]], np.array([[1, 2, 3], [4, 5, 6]])).tolist() == [1, 2]


@pytest.mark.parametrize("chunk", [9, 1000])
@pytest.mark.parametrize("seed", range(4))
def test_the_longest_run_is_that_of_trying_all(seed, chunk, monkeypatch):
    """Padding and tokens that no text has end a run; so do the ends of rows. In any chunks."""
    monkeypatch.setattr("zellige.plugins.evaluations.generate.memorisation.CHUNK", chunk)
    g = np.random.default_rng(seed)
    texts = [g.integers(0, 4, g.integers(0, 15)).tolist() for _ in range(6)]
    training = g.integers(-1, 6, (7, 9))
    every = {tuple(row[i:j]) for row in training.tolist() for i in range(9) for j in range(i + 1, 10)}
    runs = [
        max((j - i for i in range(len(t)) for j in range(i + 1, len(t) + 1) if tuple(t[i:j]) in every), default=0)
        for t in texts
    ]
    assert longest(texts, training).tolist() == runs


def test_a_copied_text_takes_no_more_memory():
    """Linear in the tokens: of 20 texts of 500 tokens, where one stands in the training set as a whole."""
    g = np.random.default_rng(5)
    texts, training = g.integers(0, 90, (20, 500)), g.integers(0, 90, (7, 500))
    training[3] = texts[11]
    tracemalloc.start()
    runs = longest(texts.tolist(), training)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert runs[11] == 500
    assert max(*runs[:11], *runs[12:]) < 6
    assert peak < 5e6


# ------------------------------------------------------------------------------------------------------- matched entropy


def curve(g: np.random.Generator, count: int, slope: float = 2.0) -> tuple[list[JudgeReading], JudgeReading]:
    """Sets at three temperatures whose texts have mean entropy 0, log 2, log 4 by construction of their rows, and nats beside."""
    sets = []
    shared = g.normal(size=count)
    for kinds, level in ((2, 1.0), (4, 1.0 + slope), (8, 1.0 + 2 * slope)):
        texts = [g.integers(0, kinds, 24).tolist() for _ in range(count)]
        sets.append(JudgeReading(texts, torch.from_numpy(24 * (level + 0.3 * shared)), torch.full((count,), 24), 0))
    real = [g.integers(0, 6, 24).tolist() for _ in range(count)]
    return sets, JudgeReading(
        real, torch.from_numpy(24 * (2 + 0.3 * g.normal(size=count))), torch.full((count,), 24), 0
    )


def test_matched_entropy_is_on_the_line_between_two_temperatures():
    """By numpy's interpolation; and the gap is log of one perplexity over the other."""
    sets, real = curve(np.random.default_rng(0), 30)
    at = match_entropy([0.5, 0.8, 1.0], sets, real)
    assert at is not None
    entropies = [metrics.entropies(one.rows).mean() for one in sets]
    logs = [float(one.nats.sum() / one.tokens.sum()) for one in sets]
    assert at.entropy == pytest.approx(metrics.entropies(real.rows).mean())
    assert math.log(at.perplexity.value) == pytest.approx(np.interp(at.entropy, entropies, logs))
    assert at.temperature == pytest.approx(np.interp(at.entropy, entropies, [0.5, 0.8, 1.0]))
    assert at.gap.value == pytest.approx(math.log(at.perplexity.value / at.real))
    again = match_entropy([1.0, 0.5, 0.8], [sets[2], sets[0], sets[1]], real)
    assert again is not None
    assert again.gap.value == pytest.approx(at.gap.value)
    assert match_entropy([0.5, 0.8], sets[:2], real) is None  # real text varies more than both
    assert match_entropy([0.5], sets[:1], real) is None


# ------------------------------------------------------------------------------------------------------- coverage


def texts_of(law: np.ndarray, g: np.random.Generator, count: int, length: int = 40) -> np.ndarray:
    """(count, length) of a Markov chain."""
    cumulative, x = law.cumsum(1), g.integers(0, len(law), count)
    out = [x]
    for _ in range(length - 1):
        out.append(x := (g.random(count)[:, None] > cumulative[out[-1]]).sum(1).clip(max=len(law) - 1))
    return np.stack(out, 1)


@pytest.mark.parametrize(("dimension", "change"), [(1, "equal"), (1, "shift 1.5"), (8, "scale 0.7"), (8, "1.3")])
def test_intervals_of_embeddings_cover(dimension, change):
    """93 to 97%, binomially: at equality, and where laws differ by about the noise, in place or in width.

    An interval of the plain variance, V1 + V2, covers 80% in one dimension, one of the jackknife 99.
    """
    hits = normal(np.random.default_rng(7), 300, (50, 50), dimension, change)
    assert all(covers(n, 300) for n in hits.values()), hits


@pytest.mark.long
@pytest.mark.parametrize("sizes", [(60, 60), (30, 120), (120, 30), (200, 200)])
@pytest.mark.parametrize("dimension", [1, 8, 64])
def test_intervals_of_embeddings_cover_of_any_size(dimension, sizes):
    """Equal laws, shifts and scales, small and large: 93 to 97%, binomially."""
    for change in CHANGES:
        hits = normal(np.random.default_rng(8), 400, sizes, dimension, change)
        assert all(covers(n, 400) for n in hits.values()), (change, hits)


def variations(g: np.random.Generator, repeats: int, count: int, kinds: int, n: int, other: float) -> list[Number]:
    """TV of texts of two Markov chains, whose matrices differ by that share."""
    law, noise = (g.dirichlet(np.full(kinds, 4 / kinds), size=kinds) for _ in range(2))
    mixed = (1 - other) * law + other * noise
    return [
        metrics.total_variation(texts_of(mixed, g, count).tolist(), texts_of(law, g, count).tolist(), n)
        for _ in range(repeats)
    ]


@pytest.mark.parametrize(("kinds", "n", "other"), [(12, 2, 0.0), pytest.param(40, 4, 0.3, marks=pytest.mark.long)])
def test_intervals_of_total_variation_cover(kinds, n, other):
    """The mean TV at this size, 93 to 97% of 150, binomially: equal laws, and hardly a match."""
    numbers = variations(np.random.default_rng(n), 150, 40, kinds, n, other)
    truth = math.fsum(x.value for x in numbers) / len(numbers)
    assert covers(hits := sum(x.low <= truth <= x.high for x in numbers), 150), (hits, truth)


@pytest.mark.long
@pytest.mark.parametrize("count", [40, 120])
@pytest.mark.parametrize("kinds", [12, 60])
def test_intervals_of_total_variation_cover_of_any_order(kinds, count):
    for n, other in itertools.product((1, 2, 3, 4), (0.0, 0.15, 0.5)):
        numbers = variations(np.random.default_rng(n), 300, count, kinds, n, other)
        truth = math.fsum(x.value for x in numbers) / len(numbers)
        hits = sum(x.low <= truth <= x.high for x in numbers)
        assert covers(hits, 300), (n, other, truth, hits)


def test_an_interval_of_two_sides_is_written_so():
    assert Number(0.0128, 0.0018, 0.035).sides(4) == "0.0128 -0.0110 +0.0222"
    assert Number(0.5, 0.4, 0.6).sides() == "0.500 ± 0.100"
    assert Number(0.5, -math.inf, math.inf).sides() == "0.500 ± unknown"


def test_without_a_match_the_total_variation_is_poissons():
    """No n-gram in common: t^2 matches more, of all n-grams, are still likely; equal texts that never vary have the same room."""
    apart = metrics.total_variation([[0, 0, 0]] * 8, [[1, 1, 1]] * 8, 1)
    assert (apart.value, apart.high) == (1.0, 1.0)
    assert apart.low == pytest.approx(1 - student(7) ** 2 / 24)
    few = metrics.total_variation([[0, 1]] * 3, [[0, 1]] * 3, 1)
    assert (few.value, few.low, few.high) == (0.0, -math.inf, math.inf)


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 0.3), (0.2, 0.3), (1.0, 0.3), (0.1, 0.6)])
def test_intervals_of_typicality_cover(shift, scale):
    g = np.random.default_rng(5)
    truth = float(np.abs(g.normal(shift, scale, 400_000)).mean())
    numbers = [metrics.typicality(g.normal(shift, scale, 40), g.normal(0, 0.3, 40)) for _ in range(1000)]
    assert covers(hits := sum(x.low <= truth <= x.high for x in numbers), 1000), hits


def test_intervals_of_memorisation_cover():
    g = np.random.default_rng(6)
    law = np.full((6, 6), 1 / 6)
    training = texts_of(law, g, 200)
    runs = lambda count: longest(texts_of(law, g, count, 20).tolist(), training)  # noqa: E731
    truth, numbers = runs(6000).mean(), [mean(runs(40)) for _ in range(400)]
    assert covers(hits := sum(x.low <= truth <= x.high for x in numbers), 400), hits


@pytest.mark.long
def test_intervals_at_matched_entropy_cover():
    g = np.random.default_rng(8)
    whole = match_entropy([0.5, 0.8, 1.0], *curve(g, 20_000))
    assert whole is not None
    truth: dict[str, float] = {"perplexity": whole.perplexity.value, "gap": whole.gap.value}
    hits, repeats = dict.fromkeys(truth, 0), 400
    for _ in range(repeats):
        at = match_entropy([0.5, 0.8, 1.0], *curve(g, 40))
        for name in truth:
            number: Number = getattr(at, name)
            hits[name] += number.low <= truth[name] <= number.high
    assert {name: covers(n, repeats) for name, n in hits.items()} == dict.fromkeys(truth, True), hits


def test_from_jackknife_is_students():
    number = from_jackknife(1.0, [1.0, 2.0, 3.0], [0.0, 0.0])
    assert number.half == pytest.approx(student(1) * math.sqrt(2 * 2 / 3))
