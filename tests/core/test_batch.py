"""Rows of tokens in one tensor."""

import torch

from zellige.core.batch import padded


def test_rows_are_filled_up_and_may_all_be_empty():
    tokens, real = padded([[3, 5], [], [7]])
    assert tokens.tolist() == [[3, 5], [0, 0], [7, 0]]
    assert real.tolist() == [[True, True], [False, False], [True, False]]
    tokens, real = padded([[], []])
    assert (tokens.shape, tokens.dtype, real.shape) == ((2, 0), torch.long, (2, 0))
