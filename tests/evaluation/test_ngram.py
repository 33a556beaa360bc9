"""The n-gram baseline is a law, it is the law that it says, and EM finds the best weights."""

from collections import Counter

import numpy as np
import pytest

from zellige.evaluation.ngram import NGrams

V = 3


@pytest.fixture(scope="module")
def chain() -> np.ndarray:
    """Rows of a Markov chain on three tokens, (600, 12)."""
    random = np.random.default_rng(0)
    step = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.45, 0.45, 0.1]])
    rows = np.zeros((600, 12), int)
    for i in range(1, 12):
        rows[:, i] = (random.random((600, 1)) > step[rows[:, i - 1]].cumsum(1)).sum(1)
    return rows


def sequences(length: int) -> np.ndarray:
    return np.array(np.unravel_index(np.arange(V**length), (V,) * length)).T


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_probabilities_of_all_sequences_sum_to_one(chain, order):
    # few rows, so that unseen contexts occur: the back-off has to keep the sum too
    grams = NGrams(chain[:4], chain[4:40], V)
    assert np.exp(-grams.nats(sequences(5), order)).sum() == pytest.approx(1, abs=1e-12)


def test_equals_counting_by_hand(chain):
    grams = NGrams(chain[:50], chain[50:80], V, order=2)
    pairs = Counter(tuple(row[i : i + 2]) for row in chain[:50] for i in range(11))
    first = Counter(row[i] for row in chain[:50] for i in range(11))
    single = Counter(chain[:50].ravel())
    (u0, u1), (w0, w1, w2) = grams.weights[1], grams.weights[2]
    a, b = 0, 2
    one = np.log(u0 / V + u1 * single[a] / 600)
    two = np.log(w0 / V + w1 * single[b] / 600 + w2 * pairs[a, b] / first[a])
    np.testing.assert_allclose(grams.log_prob([[a, b]])[0], [one, two], atol=1e-14)


def test_weights_are_the_best_on_validation(chain):
    """No other mixture makes the validation rows likelier by more than 1e-4 nats per token."""
    train, validation = chain[:30], chain[30:200]
    grams = NGrams(train, validation, V, order=3)
    frequencies = grams._frequencies(validation)[:, :, 2:].reshape(4, -1)
    frequencies = frequencies[:, ~np.isnan(frequencies).any(0)]
    others = np.random.default_rng(1).dirichlet(np.ones(4), 2000)
    others = np.concatenate([others, 0.98 * grams.weights[3] + 0.02 * np.eye(4)])
    assert grams.weights[3].sum() == pytest.approx(1)
    assert np.log(grams.weights[3] @ frequencies).mean() > np.log(others @ frequencies).mean(1).max() - 1e-4


def test_finds_the_entropy_of_the_chain(chain):
    grams = NGrams(chain[:500], chain[500:550], V)
    step = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.45, 0.45, 0.1]])
    left = np.linalg.matrix_power(step, 200)[0]
    rate = -(left[:, None] * step * np.log(step)).sum()
    found = {m: -grams.log_prob(chain[550:], m)[:, 3:].mean() for m in range(5)}
    assert found[0] == pytest.approx(np.log(3))
    assert found[2] == pytest.approx(rate, abs=0.05)
    assert found[1] > found[2] + 0.1
    assert abs(found[4] - found[2]) < 0.03  # a longer memory gains nothing here


def test_rows_are_independent_and_padding_counts_for_nothing(chain):
    grams = NGrams(chain[:100], chain[100:150], V)
    rows = chain[200:205]
    together = grams.nats(rows)
    np.testing.assert_allclose([grams.nats(row[None])[0] for row in rows], together)
    padded = np.concatenate([rows, np.full((5, 4), -1)], 1)
    np.testing.assert_allclose(grams.nats(padded), together)
    assert grams.log_prob(padded)[:, 12:].tolist() == [[0.0] * 4] * 5
    padded_train = np.concatenate([chain[:100], np.full((100, 3), -1)], 1)
    np.testing.assert_allclose(NGrams(padded_train, chain[100:150], V).nats(rows), together)


def test_one_long_row(chain):
    grams = NGrams(chain[:100].ravel(), chain[100:150].ravel(), V)
    assert grams.log_prob(chain[200]).shape == (12,)
    assert grams.nats(chain[200]).shape == (1,)


def test_a_large_vocabulary_needs_no_table(chain):
    grams = NGrams(chain[:100], chain[100:150], 50_258, order=3)
    assert np.isfinite(grams.nats(chain[200:210])).all()
    with pytest.raises(ValueError, match="lower order"):
        NGrams(chain[:100], chain[100:150], 100_000, order=4)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_rows_shorter_than_the_order_are_rows_with_padding(length):
    """So are samples of a model that ended all of them early."""
    draw = np.random.default_rng(4)
    grams = NGrams(draw.integers(0, 3, (50, 9)), draw.integers(0, 3, (20, 9)), 3, order=4)
    rows = draw.integers(0, 3, (5, length))
    padded = np.pad(rows, ((0, 0), (0, 6)), constant_values=-1)
    np.testing.assert_array_equal(grams.nats(rows), grams.nats(padded))
