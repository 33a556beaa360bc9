"""No step mixes devices, held without a GPU: on PyTorch's meta device a tensor that was left on the CPU does not go unseen.

Numbers on the CPU without a dimension are let through, as CUDA does. And no step copies from one device to the other, which is
waited for: `tests/testing/second_device.py` has one that counts.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from testing import second_device
from zellige import Batch, Net
from zellige.core.random import Counter
from zellige.methods import METHODS, build
from zellige.plugins.studies.plan.estimate import Numberless

CASES = {
    "d3pm": {}, "d3pm uniform": {"process": "uniform"}, "csm": {}, "tauldr": {}, "sedd": {},
    "sedd uniform": {"process": "uniform"},
    "radd": {}, "mdlm": {}, "mdlm timed": {"time": True}, "md4": {}, "genmd4": {}, "udlm": {}, "bd3lm": {"block": 4}, "ar": {},
}  # fmt: skip


def away(case: str):
    """A method whose tensors are elsewhere, rows, and random numbers."""
    name = case.split()[0]
    config = METHODS[name].Config(**CASES[case])
    method = build(name, 7, Net(layers=1, hidden=16, heads=2, length=16), config, ordered=True).to("meta")
    draws = Counter(5, *(torch.full((), number, device="meta") for number in (3, 0)), 1)
    return method, torch.zeros(4, 16, dtype=torch.long, device="meta"), draws


@pytest.mark.parametrize("case", CASES)
def test_a_step_of_training_and_the_bound(case):
    method, tokens, draws = away(case)
    with FakeTensorMode(allow_non_fake_inputs=True), Numberless(0.5):
        loss = method.loss(Batch(tokens), draws)
        loss.sum().backward()
        assert loss.device.type == "meta"
        if method.bounded and case != "bd3lm":  # whose bound asks of each row as many positions as were drawn
            assert {term.device.type for term in method.terms(Batch(tokens), draws).values()} == {"meta"}


def test_what_is_left_behind_is_seen():
    there, here = torch.zeros(3, device="meta"), torch.zeros(3)
    with FakeTensorMode(allow_non_fake_inputs=True), Numberless(0.5), pytest.raises(RuntimeError, match="device"):
        there + here


@pytest.fixture(scope="module")
def copies():
    """Of each case, sampler by sampler, the lines that copy, and how often."""
    root = Path(__file__).parents[2]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(root / "src"), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "tests.testing.second_device"]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.parametrize("case", second_device.CASES)
def test_no_step_copies_from_one_device_to_the_other(case, copies):
    """In either direction, of training or of any sampler that takes the method."""
    assert len(copies[case]) > 1
    assert {step: lines for step, lines in copies[case].items() if lines} == {}


@pytest.mark.long
def test_copies_in_both_directions_are_seen(copies):
    """As a schedule made its two ends, a number that is read as a list, an index of the host's, and `to` both ways."""
    assert copies["itself"] == {
        "new_tensor": {"to the device": 1},
        "as_tensor": {"to the device": 1},
        "index": {"to the device": 1},
        "to": {"to the device": 1},
        "cpu": {"from the device": 1},
        "tolist": {"from the device": 1},
        "arange": {},
        "full": {},
    }
