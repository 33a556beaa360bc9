"""The table: each x_t has its own logits, and the time moves them smoothly."""

import itertools

import torch

from zellige.nn import Table


def test_every_sequence_has_its_own_logits():
    table = Table(states=3, length=2).double()
    x = torch.tensor(list(itertools.product(range(3), repeat=2)))
    h = table.features(x)
    assert h.shape == (9, 2, 3)
    assert h.dtype == torch.float64
    assert len(h.flatten(1).unique(dim=0)) == 9
    torch.testing.assert_close(table(x.flip(0)), table(x).flip(0))


def test_time_may_be_one_per_call_row_or_position():
    table = Table(states=3, length=2, time=True).double()
    x, t = torch.tensor([[0, 2], [1, 1]]), torch.tensor([0.2, 0.7], dtype=torch.float64)
    rows = table(x, t)
    torch.testing.assert_close(rows[0], table(x, t[0])[0])
    torch.testing.assert_close(rows, table(x, t[:, None].expand(2, 2)))
    assert torch.isfinite(table(x, torch.tensor(50.0, dtype=torch.float64))).all()
    near = table(x, t + 1e-6)
    assert 0 < (near - rows).abs().max() < 1e-4
