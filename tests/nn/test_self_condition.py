"""Self-conditioning: a network that reads its own first prediction is a network like any other."""

from typing import Any

import pytest
import torch

from zellige import InputError, Net, Sample, exact
from zellige.data.tokenizer import Characters
from zellige.methods import METHODS, build
from zellige.models.config import Config
from zellige.models.model import Model
from zellige.nn import DiT
from zellige.samplers import Ancestral, Blockwise, Informed, run

D, V, L = torch.float64, 2, 2
NET = Net(layers=1, hidden=8, heads=2, length=L, condition=8, self_condition=True)


def busy(module: Any, seed: int = 0) -> Any:
    """The module in float64 with weights that are all at work."""
    generator = torch.Generator().manual_seed(seed)
    for p in module.parameters():
        p.data = 0.5 * torch.randn(p.shape, generator=generator, dtype=D)
    return module.double().eval()


def made(name: str) -> Any:
    options = {"time": True} if name == "mdlm" else {}
    return busy(build(METHODS[name], V, NET, METHODS[name].Config(**options)))


def test_training_shows_half_of_the_rows_their_estimate():
    network = busy(DiT(NET, states=V, time=True)).train()
    x, t = torch.tensor([[0, 1]]).expand(4_000, L), torch.full((4_000,), 300.0, dtype=D)
    torch.manual_seed(0)
    h = network.features(x, t)
    values, number = h[:, 0, 0].unique(return_counts=True)
    assert len(values) == 2
    assert abs(int(number[0]) - 2_000) < 5 * 1_000**0.5  # five standard deviations: 6e-7
    assert (values - network.eval().features(x[:1], t[:1])[0, 0, 0]).abs().min() < 1e-9
    h.sum().backward()
    assert network.estimates.grad.abs().sum() > 0


def test_a_fresh_network_ignores_its_estimate():
    torch.manual_seed(0)
    network = DiT(NET, states=V, time=True).eval()
    network.head.weight.data.normal_()  # pyright: ignore[reportOptionalMemberAccess]
    before = network(exact.states(V, L), torch.zeros(V**L))
    network.estimates = None
    assert torch.equal(before, network(exact.states(V, L), torch.zeros(V**L)))


@pytest.mark.parametrize("name", ["mdlm", "udlm", "sedd"])
def test_the_chain_is_the_model_that_the_bound_bounds(name):
    """Two evaluations at each x_t leave the chain Markov: samples have p_theta, and the bound of its steps is above -log p."""
    method = made(name)
    times = Ancestral().times(method, 2)
    inside, X = exact.states(V, L), exact.states(method.process.K, L)
    with torch.no_grad():
        p = exact.log_likelihood(method, times)
        drawn = exact.sample_distribution(Ancestral(), method, times)
        clean = method.process.clean[X].all(-1)
        above = exact.step_bound(method, inside, times) + p
    torch.testing.assert_close(drawn[clean], p.exp(), rtol=1e-9, atol=1e-12)
    assert (above > -1e-9).all()
    assert above.max() > 1e-4


def test_an_evaluation_counts_as_two():
    method = made("mdlm")
    model = Model(method, Characters("ab"), Config("mdlm", method.config, net=NET), {"step": 7})
    samples = Sample(count=2, steps=4, seed=0).run(model)
    assert all(calls in (2, 4) for calls in samples.calls)
    assert samples.expected_calls == pytest.approx(2 * (2 - 1 / 4))  # a quarter of the pairs of masks share a step


def test_where_there_is_nothing_to_estimate_it_is_refused():
    with pytest.raises(InputError, match="for noisy texts, and ar has none"):
        build(METHODS["ar"], V, NET)
    with pytest.raises(InputError, match="the head must give one: `head` logits"):
        DiT(NET, states=V, outputs=V + 1)


def test_a_unet_has_none():
    with pytest.raises(InputError, match=r"`net\.self_condition` is for `net\.kind` dit"):
        Net(kind="unet", length=64, grid=(8, 8), self_condition=True)


def test_a_carried_estimate_counts_one_pass_and_does_not_depend_on_the_batch():
    method, sampler = made("udlm"), Ancestral(estimate="carried")
    assert (sampler.passes(method), Ancestral().passes(method)) == (1, 2)
    generators = lambda rows: [torch.Generator().manual_seed(int(i)) for i in rows]  # noqa: E731
    *_, together = run(sampler, method, (6, L), 3, generator=generators(range(6)))
    for i in range(6):
        *_, alone = run(sampler, method, (1, L), 3, generator=generators([i]))
        assert torch.equal(alone.x[0], together.x[i])
        assert int(alone.calls) == int(together.calls[i]) == 3


@pytest.mark.parametrize(
    "make", [lambda: Informed(estimate="carried"), lambda: Blockwise(Ancestral(estimate="carried"))]
)
def test_samplers_without_a_step_before_refuse_to_carry(make):
    with pytest.raises(InputError, match=r"`estimate` 'carried' .*; leave it out"):
        make()
