"""Choices of methods that published models need: a text that begins with a token, a mask among the tokens."""

import itertools

import pytest
import torch

import zellige
from zellige.core.batch import Batch
from zellige.methods import AR, MDLM, build
from zellige.samplers import SAMPLERS, run

NET = zellige.Net(layers=1, hidden=16, heads=2, length=3)


def wild(method):
    torch.manual_seed(1)
    for p in method.double().network.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return method.eval()


@torch.no_grad()
def test_ar_that_begins_with_a_token():
    """A law of 3^3 texts, its probabilities sum to 1; the state that is no token is neither read nor said."""
    method = wild(build("ar", 3, NET, AR.Config(begin=1)))
    texts = torch.tensor(list(itertools.product(range(3), repeat=3)))
    log_p = -method.bound(Batch(texts))
    assert log_p.exp().sum().item() == pytest.approx(1, abs=1e-12)
    assert (method.inputs(Batch(texts))[:, 0] == 1).all()
    assert method.next(method.network.features(method.inputs(Batch(texts)))).shape == (27, 3, 3)
    method.network.embedding.weight[3] = torch.nan
    method.network.head.bias[3] = 100.0
    torch.testing.assert_close(-method.bound(Batch(texts)), log_p)
    *_, last = run(SAMPLERS["left_to_right"](), method, (4, 3), 3, generator=torch.Generator().manual_seed(0))
    assert last.x.max() < 3
    with pytest.raises(zellige.InputError, match="`begin` is 3; it must be a token of 0 to 2"):
        build("ar", 3, NET, AR.Config(begin=3))


@torch.no_grad()
def test_mask_among_the_tokens():
    """The same model with its states in another order: mask 1 of 4 against a mask that comes last."""
    inside = wild(build("mdlm", 4, NET, MDLM.Config(mask=1)))
    last = wild(build("mdlm", 3, NET))
    where = torch.tensor([0, 2, 3, 1])  # the state of `inside` that is each of `last`
    last.network.load_state_dict(inside.network.state_dict())
    last.network.embedding.weight.copy_(inside.network.embedding.weight[where])
    last.network.head.weight.copy_(inside.network.head.weight[where])
    last.network.head.bias.copy_(inside.network.head.bias[where])
    texts = torch.tensor(list(itertools.product(range(3), repeat=3)))
    bounds = [
        method.bound(Batch(x), torch.Generator().manual_seed(2))
        for method, x in ((last, texts), (inside, where[texts]))
    ]
    torch.testing.assert_close(*bounds, rtol=1e-12, atol=1e-12)
    *_, state = run(SAMPLERS["ancestral"](), inside, (64, 3), 4, generator=torch.Generator().manual_seed(0))
    assert (state.x != 1).all()
    with pytest.raises(zellige.InputError, match="`mask` is 4; it must be a token of 0 to 3"):
        build("mdlm", 4, NET, MDLM.Config(mask=4))
