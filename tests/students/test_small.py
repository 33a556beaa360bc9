"""What goes with a model is trained: the order of its rows, the rate, the optimizer."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from testing.small import Rows
from zellige import Data
from zellige.base.errors import InputError
from zellige.data import prepare
from zellige.plugins.students.requests import check_new
from zellige.plugins.students.small import FitOptions, fit, held_out


def test_a_new_folder_may_be_in_new_folders(tmp_path):
    """Which are not left behind where it is only asked."""
    check_new(tmp_path / "new" / "sub" / "x")
    assert not [*tmp_path.iterdir()]
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        check_new(tmp_path / "file" / "x")


def test_nothing_is_judged_on_the_texts_of_the_training():
    tokens = torch.arange(80).reshape(20, 4) % 3
    whole = prepare(Data.of(tokens, 3, kind="grid", validation=0.1, test=0.2))
    assert [len(held_out(whole, *splits)) for splits in (("test", "validation"), ("validation", "test"))] == [4, 2]
    for shares, rows in ({"validation": 0, "test": 0.2}, 4), ({"validation": 0.1, "test": 0}, 2):
        assert len(held_out(prepare(Data.of(tokens, 3, kind="grid", **shares)), "test", "validation")) == rows
    with pytest.raises(
        InputError, match=r"no test or validation split to judge by, only train; set `data\.validation`"
    ):
        held_out(prepare(Data.of(tokens, 3, kind="grid", validation=0, test=0)), "test", "validation")


def test_each_row_is_seen_once_before_any_is_seen_again_and_the_rate_warms_up(monkeypatch):
    """A twentieth of the steps; then a cosine to 0."""
    rates, betas, read = [], set(), []
    step = torch.optim.AdamW.step

    def watched(self, *args, **how):
        rates.append(self.param_groups[0]["lr"])
        betas.add(self.param_groups[0]["betas"])
        return step(self, *args, **how)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    network, rows = nn.Linear(1, 1), Rows(torch.arange(10)[:, None])

    def loss_of(texts, generator):
        read.extend(texts.tokens[:, 0].tolist())
        return network(torch.ones(1, 1)).square().sum()

    data: Any = rows
    fit(network, data, loss_of, FitOptions(60, 4, 0.5, seed=3), betas=(0.7, 0.8))
    epochs = [tuple(read[at : at + 10]) for at in range(0, 240, 10)]
    assert all(sorted(epoch) == [*range(10)] for epoch in epochs)
    assert len({*epochs}) == 24
    expected = [0.5 * min((s + 1) / 3, (1 + math.cos(math.pi * s / 60)) / 2) for s in range(60)]
    assert rates == pytest.approx(expected)
    assert betas == {(0.7, 0.8)}
    assert not network.weight.requires_grad
