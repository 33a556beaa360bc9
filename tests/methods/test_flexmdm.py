"""FlexMDM: what `verify flexmdm` does not see: given parts of a batch, training, samples of a trained model, what is refused."""

import pytest
import torch

from testing.small import LENGTH, V, make
from zellige import InputError, Net
from zellige.core.batch import Batch
from zellige.methods import build
from zellige.methods.flexmdm import FlexMDM, Span
from zellige.samplers import find, run
from zellige.samplers.sampler import GAP, HIDDEN


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def texts(*lengths: int) -> Batch:
    x = torch.randint(0, V, (len(lengths), LENGTH), generator=generator())
    return Batch(x, torch.arange(LENGTH) < torch.tensor(lengths)[:, None])


def test_a_given_beginning_is_a_span_that_ends_with_the_text():
    """What does not count before a token that does, as of pairs and of `data.given`."""
    method, whole = make("flexmdm"), texts(6, 4, 8)
    begin = torch.tensor([2, 3, 0])
    counted = whole.counted & (torch.arange(LENGTH) >= begin[:, None])
    ours = method.bound(Batch(whole.tokens, counted), generator(1))
    span = Span.of(begin, torch.tensor([6, 4, 8]))
    assert torch.equal(ours, sum(method.span_terms(whole, span, generator(1)).values()))
    assert ours[0] != method.bound(whole, generator(1))[0]


def test_training_on_spans_is_said_to_be_no_bound():
    """Each loss with its spans; without, the loss is the bound."""
    method, batch = make("flexmdm"), texts(6, 8)
    assert not method.loss_is_bound
    assert method.network.sees_given
    plain = make("flexmdm", {"spans": 0.0})
    assert plain.loss_is_bound
    assert not plain.network.sees_given
    assert torch.equal(plain.loss(batch, generator()), plain.bound(batch, generator()))


def test_the_loss_learns_lengths_and_tokens():
    """Texts aa or b: after a few steps the samples are these, about as often."""
    torch.manual_seed(0)
    method = build("flexmdm", 2, Net(layers=1, hidden=16, heads=2, length=3, condition=16), FlexMDM.Config(spans=0.25))
    optimizer = torch.optim.Adam(method.parameters(), lr=2e-2)
    x, mask = torch.tensor([[0, 0, 0], [1, 0, 0]]), torch.tensor([[True, True, False], [True, False, False]])
    batch = Batch(x.repeat(32, 1), mask.repeat(32, 1))
    for step in range(100):
        optimizer.zero_grad()
        method.loss(batch, generator(step)).mean().backward()
        optimizer.step()
    *_, last = run(find("insertion")(), method.eval(), (400, 3), 24, generator=generator())
    rows = [tuple(row[:n]) for row, n in zip(last.x.tolist(), last.memory.ends.tolist())]
    assert rows.count((0, 0)) + rows.count((1,)) > 300
    assert 110 < rows.count((1,)) < 260


def test_given_tokens_stay_and_masks_are_as_many():
    """0 1 __* 2 _ 0: a gap of any length, one mask, and nothing elsewhere."""
    method = make("flexmdm")
    fixed = torch.tensor([[0, 1, GAP, 2, -1, 0, HIDDEN, HIDDEN]])
    *_, state = run(find("insertion")(), method, (40, LENGTH), 6, fixed=fixed, generator=generator())
    sizes = set()
    for row, n, kept in zip(state.x.tolist(), state.memory.ends.tolist(), state.fixed.tolist()):
        assert (row[:2], row[n - 3], row[n - 1]) == ([0, 1], 2, 0)
        assert max(row[:n]) < V
        assert [i for i in range(LENGTH) if kept[i]] == [0, 1, n - 3, n - 1]
        sizes.add(n)
    assert {7, 8} <= sizes <= {5, 6, 7, 8}


@pytest.mark.parametrize(
    ("net", "message"),
    [({"self_condition": True}, "flexmdm inserts; leave it out"), ({"grid": (2, 4)}, "this data has a shape")],
)
def test_networks_that_do_not_fit_are_refused(net, message):
    with pytest.raises(InputError, match=message):
        build("flexmdm", V, Net(layers=1, hidden=8, heads=2, length=8, **net))


def test_what_it_does_not_do_is_refused():
    method = make("flexmdm")
    with pytest.raises(InputError, match="predicts no text of one length"):
        method.predict(torch.zeros(1, LENGTH).long(), 0.5)
    with pytest.raises(InputError, match="draws the length of each text"):
        next(run(find("insertion")(), method, (1, 4), 4))
    with pytest.raises(InputError, match="use insertion"):
        next(run(find("ancestral")(), method, (1, LENGTH), 4))
    with pytest.raises(InputError, match="one text a row"):
        method.bound(Batch(torch.zeros(1, LENGTH).long(), torch.arange(LENGTH)[None] % 3 > 0))
