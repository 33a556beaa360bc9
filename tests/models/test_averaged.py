"""A model averaged over symmetries of its data: what verify's enumeration leaves out."""

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

import zellige
from zellige import Data, InputError, Net
from zellige.methods import METHODS, build
from zellige.models.averaged import averaged
from zellige.models.config import Config
from zellige.models.model import Model
from zellige.plugins.evaluations.generate import sample_sets
from zellige.plugins.evaluations.generate.samples import draw_sets
from zellige.plugins.kinds.puzzles.sudoku import grids4
from zellige.plugins.web.guard import Limits
from zellige.show.terminal import Terminal

NET = Net(layers=1, hidden=8, heads=2, length=16, condition=8, self_condition=True)


@pytest.fixture(scope="module")
def model():
    """Of Sudokus of 4 x 4, self-conditioned, with random weights."""
    data = zellige.data.prepare(Data("sudoku"))
    torch.manual_seed(0)
    method: Any = build(METHODS["mdlm"], 4, NET, METHODS["mdlm"].Config(time=True)).double()
    for p in method.parameters():
        p.data = torch.randn_like(p) / 2
    return Model(method, data.tokenizer, Config("mdlm", method.config, Data("sudoku"), NET))


def test_a_carried_estimate_is_moved_and_renamed_with_the_sequence(model):
    """Given an estimate, the average is the mean of the copies' distributions given its copies."""
    network: Any = averaged(model, 3).method.network
    x = torch.as_tensor(grids4()[:5].reshape(5, 16).astype(int)).where(torch.arange(16) % 3 > 0, 4)
    time, e = torch.full((5,), 300.0, dtype=torch.float64), torch.rand(5, 16, 5, dtype=torch.float64)
    found = network.head(network.features(x, time, estimate=e)).exp()
    mean = torch.zeros(5, 16, 4, dtype=torch.float64)
    for move, rename in zip(network.moves.tolist(), network.renames.tolist()):
        y, seen = torch.empty_like(x), torch.empty_like(e)
        for i in range(16):
            y[:, i] = torch.tensor(rename)[x[:, move[i]]]
            for state in range(5):
                seen[:, i, rename[state]] = e[:, move[i], state]
        p = network.network.head(network.network.features(y, time, estimate=seen))[..., :4].softmax(-1)
        for i in range(16):
            for token in range(4):
                mean[:, move[i], token] += p[:, i, rename[token]] / 3
    assert (found[..., :4] - mean).abs().max() < 1e-12
    assert found[..., 4].max() == 0


def test_an_evaluation_of_the_average_counts_its_passes(model):
    assert averaged(model, 1) is model
    assert averaged(model, 3).method.passes == 6  # two of self-conditioning
    one, three = (zellige.Sample(count=2, steps=4, seed=1, symmetries=n).run(model) for n in (None, 3))
    assert [three.calls[i] == 3 * one.calls[i] for i in range(2)] == [True, True]
    carried = zellige.Sample(count=2, steps=4, sampler="ancestral", options={"estimate": "carried"}, symmetries=3)
    trajectory = carried.trajectory(model)
    assert trajectory.sampler.passes(trajectory.method) == 3


def test_judged_samples_are_of_the_average(model):
    request = zellige.evaluations.EvaluateSamples(symmetries=3)
    way = sample_sets.Way("ancestral", 4)
    draw = partial(sample_sets.draw_samples, model, way, 2, 1)
    one, three = draw(), draw(decoding=request)
    assert [three.calls[i] == 3 * one.calls[i] for i in range(2)] == [True, True]
    (judged,) = draw_sets(replace(request, count=2, seed=1, batch=2), model, [way], Terminal(quiet=True))
    assert judged.texts == three.texts


def test_a_server_counts_the_copies_as_work(model):
    average, sampler = averaged(model, 4).method, zellige.samplers.Ancestral()
    limits = Limits(steps=2 * 4 * 8, tokens=16)  # two passes of self-conditioning, four copies, eight steps
    limits.check_draw(sampler, average, 8, 16)
    with pytest.raises(InputError, match="network evaluations times positions; at most"):
        limits.check_draw(sampler, average, 9, 16)


def test_the_bound_of_the_average_names_its_copies(model):
    result = zellige.Evaluate(symmetries=2, draws=2, limit=4).run(model)
    assert result.protocol["symmetries"] == 2
    assert "-symmetries-2" in result.file_name
    plain = zellige.Evaluate(draws=2, limit=4).run(model)
    assert "symmetries" not in plain.protocol


@pytest.mark.parametrize(("sampler", "bounded_by"), [("first_hitting", {"symmetries": 3}), ("ancestral", None)])
def test_samples_name_the_average_and_only_its_bound(model, sampler, bounded_by):
    """`evaluate` bounds the average in continuous time alone, not in a number of steps."""
    found = zellige.Sample(sampler=sampler, steps=5, symmetries=3).run(model).distribution
    assert found is not None
    assert found.key.endswith("symmetries 3")
    assert found.number == bounded_by


def test_what_cannot_be_averaged(model):
    uniform: Any = build(METHODS["udlm"], 4, NET, METHODS["udlm"].Config())
    other = copy.copy(model)
    other.method = uniform
    with pytest.raises(
        InputError, match=r"`symmetries` averages .* of masks, and udlm needs absorbing noise; leave it out"
    ):
        averaged(other, 2)
    with pytest.raises(InputError, match=r"`symmetries` is 0; it must be 1 or more"):
        zellige.Sample(symmetries=0)


def test_symmetries_are_of_whole_texts(model):
    """As a shorter text of DNA is."""
    method = averaged(model, 2).method.of_length(8)
    with pytest.raises(InputError, match="`symmetries` are of whole texts of 16 tokens, and this one has 8"):
        [*zellige.samplers.run(zellige.samplers.Ancestral(), method, (1, 8), 2)]
