"""Compiled networks with a cache, whose sizes vary: without gradients PyTorch 2.13 does not compile them."""

import pytest
import torch

import zellige
from zellige.methods import build
from zellige.nn import Net
from zellige.samplers import choose_sampler, run


@pytest.mark.compile
@pytest.mark.parametrize(("name", "sampler"), [("ar", "left_to_right"), ("bd3lm", "blockwise")])
def test_a_cache_that_grows_is_compiled(name, sampler):
    torch.manual_seed(0)
    config = zellige.METHODS[name].Config(**({"block": 4} if name == "bd3lm" else {}))
    method = build(name, 8, Net(layers=1, hidden=16, heads=2, length=16), config)

    def draw():
        generator = torch.Generator().manual_seed(0)
        *_, last = run(choose_sampler(sampler, method), method, (2, 16), 4, generator=generator)
        return last.x

    plain = draw()
    method._compile = True
    assert torch.equal(draw(), plain)
