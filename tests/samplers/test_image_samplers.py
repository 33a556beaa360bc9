"""Samplers on images of 32 x 32 x 3 levels of 256: what the network is asked, and what is held beside it."""

import itertools

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from zellige.methods import CSM, D3PM, MD4, MDLM, TauLDR
from zellige.samplers import (
    Ancestral,
    AnyOrder,
    Confidence,
    Euler,
    FirstHitting,
    FixedOrder,
    Metropolis,
    Remasking,
    TauLeaping,
    run,
)

L, V, FREE = 3072, 256, 300


class Counting(nn.Module):
    """The cheapest network, which counts its calls and the positions of its head."""

    block = 0

    def __init__(self, outputs: int):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.linear = nn.Embedding(V + 1, 2), nn.Linear(2, outputs)
        self.calls = self.positions = 0

    def features(self, x, time=None, **kwargs):
        self.calls += len(x)
        return self.embedding(x)

    def head(self, h):
        self.positions += h.numel() // 2
        return self.linear(h)


def of(cls, **options):
    config = cls.Config(**options)
    method = cls(Counting(cls.outputs(V, config)), V, (L,), config)
    method.ordered = True
    return method


MASKED = {
    "mdlm": lambda: of(MDLM),
    "md4": lambda: of(MD4),
    "d3pm": lambda: of(D3PM),
}


@pytest.mark.parametrize("name", MASKED)
@torch.no_grad()
def test_the_network_is_asked_where_something_is_revealed_and_nowhere_else(name):
    """In 1,000 steps of two images, all of one free and 300 places of the other; a step that reveals nothing costs no call."""
    method, sampler = MASKED[name](), Ancestral()
    fixed = torch.full((2, L), -1)
    fixed[1, FREE:] = 7
    network, before = method.network, None
    for state in run(sampler, method, (2, L), 1000, fixed=fixed, generator=torch.Generator().manual_seed(0)):
        if before is not None:
            revealed = (state.x != before.x).sum(-1)
            assert torch.equal(state.calls - before.calls, (revealed > 0).long())
            assert (network.calls, network.positions) == (int((revealed > 0).sum()), int(revealed.sum()))
        before, network.calls, network.positions = state, 0, 0
    assert before is not None
    calls, tokens = before.calls.tolist(), [L, FREE]
    for row, free in enumerate(tokens):
        expected = sampler.expected_calls(method, sampler.times(method, 1000), free)
        assert expected is not None
        assert abs(calls[row] - expected) < 6 * (min(expected, 1000 - expected) + 1) ** 0.5
        assert calls[row] <= min(free, 1000)
    assert calls[1] < FREE


# ---------------------------------------------------------------------------------- memory
class Largest(TorchDispatchMode):
    """The numbers in the largest tensor that an operation makes."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().nbytes():
                # a view that is expanded holds no more than its storage
                held = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.numbers = max(self.numbers, min(tensor.numel(), held))
        return out


GAUSSIAN = {"process": "gaussian", "head": "logistic", "min_time": 0.01}
CASES = {
    "md4": (lambda: of(MD4), [
        Ancestral(), Ancestral(choose=False), Ancestral(argmax="last"), Euler(), FirstHitting(), Confidence(), Remasking(),
        Remasking(remasking="conf"), TauLeaping(corrector=1),
    ]),
    "mdlm": (lambda: of(MDLM), [AnyOrder(), FixedOrder(), Ancestral(top_p=0.9)]),
    "d3pm": (lambda: of(D3PM, process="gaussian", head="logistic", last="image", diffusion_steps=4), [Ancestral(argmax="last")]),
    "tauldr": (lambda: of(TauLDR, **GAUSSIAN), [
        Ancestral(), Euler(), TauLeaping(corrector=1, argmax="last"), TauLeaping(jumps="one", corrector=1),
    ]),
    "csm": (lambda: of(CSM), [Metropolis()]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_no_sampler_holds_more_than_a_few_numbers_for_each_level_of_each_place(name):
    """No tensor of (L, K, K), nor many times (L, K): in the first steps, in the middle, and in the step to clean levels."""
    make, samplers = CASES[name]
    method = make()
    for sampler in samplers:
        times = sampler.times(method, None if name == "csm" else 4)
        with Largest() as largest:
            state = sampler.init(method, (1, L), generator=torch.Generator().manual_seed(0))
            how = sampler.truncated(method)
            pairs = list(itertools.pairwise(times))
            for t, s in [*pairs[:2], pairs[-1]]:
                state = sampler.step(how, state, t, s, torch.Generator().manual_seed(1))
        assert largest.numbers <= 4 * L * (V + 1), sampler.name
