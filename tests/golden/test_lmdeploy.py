"""The rules by which LMDeploy unmasks the blocks of SDAR, against our samplers, token for token, on recorded logits.

LMDeploy keeps three states of a token, 0 masked, 1 unmasked, 2 cached; a block is cached in the round after its last token. Its
candidates are the likeliest tokens, which is temperature 0 here.
"""

import json

import pytest
import torch
from safetensors.torch import load_file

from testing.places import DECODING
from zellige.core.curves import Linear
from zellige.core.prediction import Mean
from zellige.core.process import absorbing
from zellige.samplers import Confidence, FixedOrder, State

if not DECODING.is_dir():
    pytest.skip(f"no recorded decoding at {DECODING}", allow_module_level=True)
CASES = {case["name"]: case for case in json.loads((DECODING / "index.json").read_text())}
MASKED, UNMASKED, CACHED = range(3)


def sampler(case):
    """Ours for a strategy: a round of LMDeploy is a step here."""
    per_step = max(case["block"] // case["denoising_steps"], 1)
    if case["strategy"] == "low_confidence_static":
        return Confidence(per_step=per_step, temperature=0.0)
    if case["strategy"] == "low_confidence_dynamic":
        return Confidence(threshold=case["threshold"], temperature=0.0)
    return FixedOrder(per_step=per_step, given="counted", temperature=0.0)


class Round:
    """A method that predicts the logits (blocks, block, V) of one round."""

    parameterization, time_conditioned, steps, block = "mean", False, 0, 0

    def __init__(self, logits):
        *_, length, self.vocabulary = logits.shape
        self.shape, self.window, self.logits = (length,), length, logits
        self.process = absorbing(self.vocabulary + 1, Linear())

    def grid(self, steps, device=None):
        return torch.linspace(1, 0, 2, dtype=torch.float64)

    def predict(self, x, t, at, **_):
        logits = self.logits[self.unfinished]  # a sampler asks about these blocks alone
        p = torch.nn.functional.pad(logits[at].double().softmax(-1), (0, 1))
        return Mean(self.process, p, x[at], torch.as_tensor(t).expand(x.shape)[at])


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_each_round_reveals_the_same_tokens(name):
    case, recorded = CASES[name], load_file(DECODING / f"{name}.safetensors")
    ours, blocks = sampler(case), (case["blocks"], case["block"])
    mask, ids = recorded["mask.0"].view(blocks), recorded["ids.0"].view(blocks)
    V = case["vocabulary"]
    x = torch.where(mask == MASKED, V, ids)
    assert (mask == MASKED).any()
    for n in range(case["rounds"]):
        candidates = recorded[f"candidates.{n}"].view(blocks)
        method = Round(recorded[f"logits.{n}"].view(*blocks, V))
        assert method.logits.argmax(-1).equal(candidates)
        method.unfinished = (x == V).any(-1)
        state = State(x, torch.zeros_like(x, dtype=torch.bool), torch.zeros(len(x), dtype=torch.long))
        x = ours.step(ours.truncated(method), state, torch.tensor(1.0), torch.tensor(0.0)).x
        before, mask = mask, recorded[f"mask.{n + 1}"].view(blocks)
        assert (x == V).equal(mask == MASKED)
        assert torch.where(x == V, candidates, x).equal(recorded[f"ids.{n + 1}"].view(blocks))
        done = (before != MASKED).all(-1)
        assert (mask == CACHED).equal(done[:, None].expand(blocks))
    assert not (x == V).any()
