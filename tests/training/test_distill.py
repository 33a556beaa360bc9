"""Students of an exact teacher: each way to distill lowers its loss, and given tokens cost nothing; a mixture's network."""

from functools import partial
from typing import Any

import pytest
import torch

from zellige.core.batch import Batch
from zellige.errors import InputError
from zellige.exact import enumeration
from zellige.methods import MDLM, UDLM, build
from zellige.nn import DiT, Net, Table
from zellige.training.distill import WAYS, train_rounds

V, L = 2, 2


class Rows:
    """Texts of a data set, and nothing else of it."""

    def __init__(self, tokens: torch.Tensor):
        self.tokens = tokens

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, i: int) -> torch.Tensor:
        return self.tokens[i]

    def collate(self, rows: list[torch.Tensor]) -> Batch:
        return Batch(torch.stack(rows))


@pytest.mark.parametrize(("by", "cls", "latents"), [("sdtt", MDLM, 0), ("consistency", UDLM, 0), ("di4c", UDLM, 2)])
def test_a_student_comes_nearer_to_its_teacher(by, cls, latents):
    config = MDLM.Config(time=True) if cls is MDLM else UDLM.Config()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Table(cls.states(V, config), L, time=True, latents=latents).double()
    student: Any = build(cls, V, network, config, length=L).double()
    p = torch.tensor([0.5, 0.05, 0.1, 0.35], dtype=torch.float64)
    teacher: Any = enumeration.Denoiser(student.process, p, L, student.parameterization)
    rows: Any = Rows(enumeration.states(V, L).repeat_interleave((40 * p).long(), 0))
    loss = partial(WAYS[by].loss, merge=2, divergence="kl")
    rounds = train_rounds(student, teacher, loss, rows, rows, [4, 2, 1], ema=0.9, seed=0, steps=10, batch=20, lr=0.1)
    assert [(r.teacher, r.student) for r in rounds] == [(4, 2), (2, 1)]
    assert rounds[0].after[0] < rounds[0].before[0]  # of the same noise
    given = Batch(rows.tokens, torch.zeros_like(rows.tokens, dtype=torch.bool))
    assert loss(student, teacher, given, 4, torch.Generator().manual_seed(0)).abs().max() < 1e-12


def test_a_transformer_reads_the_latent_of_each_row_and_no_class():
    network = DiT(Net(layers=1, hidden=8, heads=2, length=4, latents=3), 3)
    x = torch.tensor([[0, 1, 2, 2]]).expand(3, -1)
    h = network.features(x, condition=torch.arange(3))
    assert torch.equal(network.features(x[:1], condition=torch.tensor([2]))[0], h[2])
    assert not torch.allclose(h[0], h[1])
    with pytest.raises(InputError, match="is a mixture over a latent; give its value for each row"):
        network.features(x)
    with pytest.raises(InputError, match=r"for networks without classes and blocks; leave `net\.latents` out"):
        DiT(Net(layers=1, hidden=8, heads=2, length=4, latents=3, classes=2), 3)
