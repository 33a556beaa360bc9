"""Interpolated n-gram models: a simple baseline for a small model.

    p_m(x_i | x_<i) = sum_{k=0..m} w_mk f_k(x_i | x_{i-k+1}..x_{i-1})

with f_0 = 1/V and f_k the relative frequency in the train split. The weights are those of deleted interpolation
(Jelinek and Mercer, 1980): for each m, EM finds those that make the validation split most likely. If a row has fewer than
m - 1 tokens before x_i, or the train split never continues that context, the longest order that is defined replaces m.
So every p_m( . | context) sums to one, and the probability of a row is exact. Like the diffusion model, an n-gram model
sees nothing outside the row.
"""

import numpy as np

from ..base.errors import InputError

EM_GAP, EM_STEPS = 1e-4, 2000  # nats per token


def order_within(most: int, vocabulary: int) -> int:
    """The highest order up to `most` whose n-grams of so many tokens fit 64 bits."""
    return next(n for n in range(most, 0, -1) if vocabulary**n < 2**63)


class NGrams:
    """Models of the orders 1 to `order`, fitted together on rows of tokens.

    Rows are integers, (N, L), or (L,) for one long row. A negative entry is padding: it does not count, and no context
    reaches over it. `weights[m]`, shape (m + 1,), interpolates the model of order m; the uniform distribution comes first.
    """

    def __init__(self, train, validation, vocabulary: int, order: int = 4):
        if vocabulary**order >= 2**63:
            raise InputError(f"{vocabulary} tokens to the power {order} do not fit 64 bits; use a lower order")
        self.vocabulary, self.order = vocabulary, order
        train = _rows(train)
        self._tables = [self._count(train, k) for k in range(1, order + 1)]
        frequencies = self._frequencies(_rows(validation))
        self.weights = [_em(frequencies[: m + 1]) for m in range(order + 1)]

    def log_prob(self, rows, order: int | None = None) -> np.ndarray:
        """log p_m(x_i | x_<i) of every token in nats, shape as `rows`; zero at padding."""
        tokens = _rows(rows)
        frequencies = self._frequencies(tokens)[: (self.order if order is None else order) + 1]
        order_defined = (~np.isnan(frequencies)).sum(0) - 1  # contexts are nested: orders 0..m are defined
        p = np.ones(tokens.shape)
        for m in np.unique(order_defined[order_defined >= 0]):
            at_order = order_defined == m
            p[at_order] = self.weights[m] @ frequencies[: m + 1, at_order]
        return np.log(p).reshape(np.shape(rows))

    def nats(self, rows, order: int | None = None) -> np.ndarray:
        """-log p_m of each row, (N,); exact."""
        return -_rows(self.log_prob(rows, order)).sum(1)

    def _keys(self, tokens: np.ndarray, k: int) -> np.ndarray:
        """The k tokens that end at each position as one integer, (N, L); -1 if there are fewer."""
        keys = np.zeros(tokens.shape, np.int64)
        for back in range(k - 1, -1, -1):
            previous = np.full(tokens.shape, -1, np.int64)
            previous[:, back:] = tokens[:, : max(tokens.shape[1] - back, 0)]
            keys = np.where((keys < 0) | (previous < 0), -1, keys * self.vocabulary + previous)
        return keys

    def _count(self, tokens: np.ndarray, k: int) -> tuple[np.ndarray, ...]:
        """The k-grams and their counts, then the same for their contexts: sorted, for binary search."""
        keys = self._keys(tokens, k)
        keys = keys[keys >= 0]
        return *np.unique(keys, return_counts=True), *np.unique(keys // self.vocabulary, return_counts=True)

    def _frequencies(self, tokens: np.ndarray) -> np.ndarray:
        """f_k at every position, (order + 1, N, L); nan if the context is unseen or cut off."""
        frequencies = np.full((self.order + 1, *tokens.shape), np.nan)
        frequencies[0][tokens >= 0] = 1 / self.vocabulary
        for k, (grams, times, contexts, totals) in enumerate(self._tables, 1):
            keys = self._keys(tokens, k)
            valid = keys >= 0
            total = _look_up(contexts, totals, keys[valid] // self.vocabulary)
            with np.errstate(invalid="ignore"):
                frequencies[k][valid] = _look_up(grams, times, keys[valid]) / total  # 0 / 0: the context is unseen
        return frequencies


def _rows(tokens) -> np.ndarray:
    return np.atleast_2d(np.asarray(tokens))


def _look_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the value of each wanted key, 0.0 if there is none."""
    if not len(keys):
        return np.zeros(len(wanted))
    at = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0).astype(float)


def _em(frequencies: np.ndarray) -> np.ndarray:
    """Mixture weights (m + 1,) that maximize the likelihood where all m + 1 frequencies are defined."""
    columns = frequencies.reshape(len(frequencies), -1)
    columns = columns[:, ~np.isnan(columns).any(0)]
    weights = np.full(len(columns), 1 / len(columns))
    if not columns.shape[1]:
        return weights
    for _ in range(EM_STEPS):
        gradient = (columns / (weights @ columns)).mean(1)
        if gradient.max() < 1 + EM_GAP:  # the mean log-likelihood is concave: none gains more than max gradient - 1
            break
        weights = weights * gradient
    return weights
