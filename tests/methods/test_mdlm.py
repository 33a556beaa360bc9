"""MDLM without SUBS: what is refused. Its bound and its samples are `zellige verify mdlm --only bound.without-subs`."""

from typing import Any

import pytest
import torch

import zellige
from zellige.core.prediction import combined, tilted
from zellige.methods import MDLM, build
from zellige.nn.block import Net
from zellige.plugins.verify.identities.check import V, enumerable
from zellige.samplers.replay import path_of


def without(**more) -> Any:
    return enumerable(MDLM, diffusion_steps=3, **more)


def test_what_a_redrawing_last_step_breaks_is_refused():
    model, x = without(carry_over=False), torch.tensor([[0, V]])
    pred = model.predict(x, 1 / 3)
    for guide in (lambda: combined([pred, pred], [2.0, -1.0]), lambda: tilted(pred, torch.ones(1, 2, V + 1))):
        with pytest.raises(zellige.InputError, match="cannot be guided"):
            guide()
    with pytest.raises(zellige.InputError, match="draws visible tokens anew"):
        path_of(model, 3)
    path_of(without(zero_masking=False), 3)


@pytest.mark.parametrize(
    ("config", "part"),
    [(MDLM.Config(carry_over=False), "carry-over"), (MDLM.Config(zero_masking=False), "zero masking")],
)
def test_continuous_time_is_refused(config, part):
    with pytest.raises(zellige.InputError, match=f"without {part} mdlm needs discrete time: set `diffusion_steps`"):
        build("mdlm", 5, Net(layers=1, hidden=8, heads=2, length=4), config)
