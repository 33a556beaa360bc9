"""How often a GPU would be waited for in a step, counted on the CPU (benchmarks/waits.py)."""

import sys
from pathlib import Path

import pytest
import torch

from zellige.samplers.sampler import LOOK

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TRAINED = {
    "mdlm": 1,
    "md4": 2,
    "radd": 1,
    "sedd": 1,
    "udlm": 1,
    "bd3lm": 1,
    "ar": 1,
    "genmd4": 2,
    "gidd": 1,
    "d3pm": 1,
    "d3pm uniform": 1,
    "tauldr": 2,
    "csm": 1,
}
SAMPLED = {  # the largest number in eight steps
    "bd3lm blocks": 1,
    "bd3lm blocks, first hitting": 1,
    "ar": 1,
    "mdlm ancestral": 1,
    "mdlm first hitting": 1,
    "mdlm any order": 1,
    "mdlm confidence": 1,
    "mdlm confidence, threshold": 1,
    "udlm ancestral": 1,
    "sedd ancestral": 1,
}


@pytest.fixture
def waits(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import waits

    yield waits
    for name in ("waits", "measure"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("case", TRAINED)
def test_in_a_step_of_training(case, waits):
    assert waits.training_step(case).waits.total() <= TRAINED[case]


@pytest.mark.parametrize("case", SAMPLED)
def test_in_eight_steps_of_sampling(case, waits):
    counts = waits.waits_of(waits.sampling_steps(case))
    assert len(counts) >= 2 * LOOK
    assert waits.most_in(counts, LOOK) <= SAMPLED[case]


@pytest.mark.parametrize("case", SAMPLED)
def test_around_a_graph(case, waits):
    """A step with `--compile` starts few operations beside its graph, and waits no more often; the first begins a text."""
    counts = waits.sampling_steps(case, graphs=True)[1:]
    assert waits.most_in(waits.waits_of(counts), LOOK) <= SAMPLED[case]
    operations = sum(counted.operations.total() for counted in counts) / len(counts)
    assert operations < (10 if case.split()[0] in ("mdlm", "udlm", "sedd") else 60)


def test_what_is_a_wait(waits):
    x = torch.arange(4)
    for read in (
        lambda: x.sum().item(),
        lambda: bool(x.any()),
        lambda: x.nonzero(),
        lambda: x[x > 1],
        lambda: x.tolist(),
        lambda: x.cpu(),
        lambda: x.masked_select(x > 1),
        lambda: x.unique(),
        lambda: x.repeat_interleave(x),
        lambda: torch.equal(x, x),
        lambda: torch.tensor([1, 2]),
    ):
        with waits.Counted() as counted:
            read()
        assert counted.waits.total() >= 1
    with waits.Counted() as counted:
        x.where(x > 1, 0).gather(0, x).masked_fill(x > 2, 7).sum()
    assert counted.waits.total() == 0
