"""Network evaluations as `calls` counts them, against a network that counts the rows of each of its passes."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import zellige
from zellige import Data, Net
from zellige.data.tokenizer import Characters
from zellige.methods import METHODS, build
from zellige.models.config import Config
from zellige.models.model import Model
from zellige.sampling.best_of import DRAWS, best_of

COUNT = 3


def model_of(name: str, **net: Any) -> Model:
    """Of Sudokus of 4 x 4, with random weights."""
    data, size = zellige.data.prepare(Data("sudoku")), Net(layers=1, hidden=8, heads=2, length=16, condition=8, **net)
    torch.manual_seed(0)
    cls = METHODS[name]
    config = cls.Config(block=4) if name == "bd3lm" else cls.Config()  # pyright: ignore[reportCallIssue]
    method: Any = build(cls, 4, size, config).double()
    for p in method.parameters():
        p.data = torch.randn_like(p) / 2
    return Model(method, data.tokenizer, Config(name, method.config, Data("sudoku"), size))


CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("mdlm", {}, {}),
    ("mdlm", {}, {"symmetries": 3}),
    ("mdlm", {}, {"best_of": 3}),
    ("mdlm", {"self_condition": True}, {"best_of": 2, "symmetries": 3}),
    ("mdlm", {"self_condition": True}, {}),
    ("mdlm", {"self_condition": True}, {"symmetries": 3}),
    ("mdlm", {"self_condition": True}, {"symmetries": 3, "sampler": "ancestral", "options": {"estimate": "carried"}}),
    ("mdlm", {}, {"sampler": "smc", "options": {"particles": 4, "anneal": 1.5}}),
    ("mdlm", {"self_condition": True}, {"sampler": "smc", "symmetries": 2, "options": {"particles": 2, "anneal": 1.5}}),
    ("mdlm", {}, {"sampler": "tau_leaping", "options": {"corrector": 2}}),
    ("udlm", {}, {"sampler": "tau_leaping", "options": {"corrector": 2}}),
    ("udlm", {}, {"sampler": "informed", "options": {"corrections": 2}}),
    ("mdlm", {"self_condition": True}, {"sampler": "informed", "options": {"corrections": 2}, "symmetries": 2}),
    (
        "mdlm",
        {},
        {
            "sampler": "semi_autoregressive",
            "options": {"block_length": 8, "block_sampler": "confidence"},
            "symmetries": 2,
        },
    ),
    ("mdlm", {"self_condition": True}, {"sampler": "p2", "symmetries": 2}),
    ("mdlm", {"self_condition": True}, {"sampler": "confidence"}),
    ("bd3lm", {}, {"sampler": "blockwise", "options": {"block_sampler": "ancestral"}}),
    ("bd3lm", {}, {"sampler": "blockwise", "options": {"block_sampler": "first_hitting"}}),
    ("mdlm", {"classes": 3}, {"classes": 1}),  # as trained: one pass
    ("mdlm", {"classes": 3}, {"classes": 1, "guidance": 0.0}),
    ("mdlm", {"classes": 3}, {"classes": 1, "guidance": 2.5}),  # with and without it
    ("mdlm", {"classes": 3, "self_condition": True}, {"classes": 1, "guidance": 2.5}),
    ("udlm", {"classes": 3}, {"classes": 1, "guidance": 2.5, "sampler": "tau_leaping", "options": {"corrector": 2}}),
]


@pytest.mark.parametrize(("name", "net", "request_of"), CASES, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(CASES)])
@torch.no_grad()
def test_calls_are_the_passes_that_are_made(name, net, request_of):
    model, rows = model_of(name, **net), []
    network = model.method.network
    network.blocks[0].register_forward_hook(lambda module, given, _: rows.append(len(given[0])))
    extend = network.extend  # reads a finished block into the cache, past the hook
    network.extend = lambda cache, x, *rest, **more: (rows.append(len(x)), extend(cache, x, *rest, **more))[1]
    found = zellige.Sample(count=COUNT, steps=5, seed=1, **request_of).run(model)
    assert sum(rows) == sum(found.calls) > 0


@pytest.mark.parametrize(("prompt", "windows"), [(None, 3), ("abcdabcdabcda", 3), ("abcdabcdabcdabcda", 2)])
@pytest.mark.parametrize("name", ["ar", "bd3lm"])
@torch.no_grad()
def test_a_long_text_has_a_bound_for_each_window(name, prompt, windows, monkeypatch):
    """Each window that has a token to score is one evaluation for each candidate and draw; 16 is the network's window."""
    model, rows = model_of(name), []
    model.tokenizer = Characters("abcd")
    bound = type(model.method).bound
    monkeypatch.setattr(
        type(model.method), "bound", lambda self, batch, g=None: (rows.append(len(batch)), bound(self, batch, g))[1]
    )
    request = zellige.Sample(count=COUNT, seed=1, prompt=prompt, length=40)
    found = replace(request, best_of=3).run(model)
    draws = 1 if name == "ar" else DRAWS
    assert sum(rows) == COUNT * 3 * windows * draws
    candidates = replace(request, count=COUNT * 3).run(model)
    trajectory = request.trajectory(model, 3)
    known = best_of(3, trajectory, replace(candidates, expected_calls=5.0))
    assert known.expected_calls == 3 * (5 + windows * draws)
    assert found.calls == [sum(candidates.calls[k : k + 3]) + 3 * windows * draws for k in (0, 3, 6)]
    unknown = best_of(3, replace(trajectory, end=3), replace(candidates, expected_calls=5.0))
    assert unknown.expected_calls is None  # where a text ends is drawn
