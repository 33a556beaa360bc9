"""Students of an exact teacher: each way to distill lowers its loss, and given tokens cost nothing; a mixture's network."""

import math
from functools import partial
from typing import Any

import pytest
import torch

from testing.small import make
from zellige import Config, Data, Model, TrainDistill
from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.data import prepare
from zellige.exact import enumeration
from zellige.methods import MDLM, UDLM, build
from zellige.nn import DiT, Net, Table
from zellige.plugins.students.command import rounds_lines
from zellige.plugins.students.distill import WAYS, Distilled, DistillRecord, Round, held_out_loss, train_rounds, windows
from zellige.plugins.students.small import FitOptions

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
    rounds = train_rounds(student, teacher, loss, rows, rows, [4, 2, 1], 0.9, FitOptions(10, 20, 0.1))
    assert [(r.teacher, r.student) for r in rounds] == [(4, 2), (2, 1)]
    assert rounds[0].after[0] < rounds[0].before[0]  # of the same noise
    given = Batch(rows.tokens, torch.zeros_like(rows.tokens, dtype=torch.bool))
    assert loss(student, teacher, given, 4, torch.Generator().manual_seed(0)).abs().max() < 1e-12


CASES = [("sdtt", "mdlm", 0), ("consistency", "udlm", 0), ("di4c", "udlm", 2), ("di4c", "mdlm", 2)]


@pytest.mark.parametrize(("by", "name", "latents"), CASES)
@torch.no_grad()
def test_student_and_teacher_see_their_own_document(by, name, latents):
    student, teacher = (make(name, {}, length=4, vocabulary=V, latents=count) for count in (latents, 0))
    segments = torch.tensor([0, 0, 1, 1]).expand(256, 4)

    def loss(*other: int) -> torch.Tensor:
        batch = Batch(torch.tensor([0, 1, *other]).expand(256, 4), segments == 0, segments)
        source = torch.Generator().manual_seed(0)
        return WAYS[by].loss(student, teacher, batch, 4, source, merge=2, divergence="kl")

    torch.testing.assert_close(loss(0, 0), loss(1, 1))


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


def test_each_round_is_taught_by_the_average_that_the_one_before_left():
    """The first by the teacher; the student keeps the average of its weights, not the last ones."""
    student, teacher = (build(MDLM, 2, Table(3, 2).double(), length=2) for _ in range(2))
    rows: Any = Rows(enumeration.states(V, L))
    taught, after = [], []

    def loss(student, teacher, batch, n, generator):
        if not torch.is_grad_enabled():  # held-out texts, before a round and after it
            after.append(student.network.logits.detach().clone())
        else:
            taught.append((n, teacher.network.logits.detach().clone(), student.network.logits.detach().clone()))
        return (student.network.logits - 3.0).square().sum().expand(len(batch))

    train_rounds(student, teacher, loss, rows, rows, [4, 2, 1], 0.9, FitOptions(6, 4, 0.1))
    first, second = ([seen for seen in taught if seen[0] == n] for n in (4, 2))
    assert all(torch.equal(seen[1], teacher.network.logits) for seen in first)
    left = after[1]  # by the first round
    assert all(torch.equal(seen[1], left) for seen in second)
    assert (left - 3).square().sum() > (first[-1][2] - 3).square().sum()  # behind those before the last step
    assert torch.equal(student.network.logits, after[-1])


def test_each_round_and_seed_has_random_numbers_of_its_own():
    """For the steps of a round and for its held-out texts."""
    rows: Any = Rows(enumeration.states(V, L))

    def seeds(seed: int) -> set[int]:
        student, seen = build(MDLM, 2, Table(3, 2).double(), length=2), set()

        def loss(student, teacher, batch, n, generator):
            seen.add(generator.initial_seed())
            return student.network.logits.square().sum().expand(len(batch))

        train_rounds(student, student, loss, rows, rows, [4, 2, 1], 0.9, FitOptions(2, 4, 0.1, seed))
        return seen

    assert len(seeds(0) | seeds(1)) == 8


def test_a_student_of_bfloat16_weights_is_trained_in_float32():
    """In bfloat16, with 8 bits of mantissa, a step of 1e-5 would round to nothing."""
    data = Data.of(torch.arange(160).reshape(20, 8) % 3, 3, kind="grid")
    method = make("mdlm").float().compute_in("bfloat16")
    model = Model(method, prepare(data, 8).tokenizer, Config("mdlm", method.config, data, method.network.net))
    model.method = method.verified_by(lambda h, x, turn: h)
    model.about = {"published": {"layout": "mdlm", "weights": "raw"}, "step": 7}
    request = TrainDistill(teacher_steps=2, rounds=1, steps=2, batch=4, lr=1e-5, precision="bfloat16")
    made = request.run(model).model
    student = made.method
    assert made.about["published"] == {"layout": "mdlm"}  # its weights are not the published ones,
    assert student.verifier is None  # and the head is that of the teacher's
    before, after = (of.network.blocks[0].qkv.weight for of in (method, student))
    assert (before.dtype, after.dtype, student.precision) == (torch.bfloat16, torch.float32, "float32")
    assert float((after != before.float()).double().mean()) > 0.9


def test_some_texts_are_held_out_evenly_spaced_in_batches(monkeypatch):
    monkeypatch.setattr("zellige.plugins.students.distill.HELD_OUT", 40)
    rows, seen = Rows(torch.arange(100)[:, None]), []

    def loss(student, teacher, batch, n, generator):
        seen.append(batch.tokens[:, 0])
        return batch.tokens[:, 0]

    student: Any = build(MDLM, 2, Table(3, 2), length=2)
    mean, _ = held_out_loss(loss, student, student, rows, 4, seed=0)  # pyright: ignore[reportArgumentType]
    assert [len(part) for part in seen] == [32, 8]
    assert torch.cat(seen).tolist() == [i * 100 // 40 for i in range(40)]
    assert mean == float(torch.cat(seen).double().mean())
    assert held_out_loss(loss, student, student, Rows(torch.tensor([[3]])), 4, seed=0) == (3.0, math.inf)  # pyright: ignore[reportArgumentType]


def test_some_window_ends_at_clean_tokens():
    method = build(MDLM, 2, Table(3, 2).double(), length=2)
    ends = windows(method, 8, 2, 70, torch.Generator().manual_seed(0))
    assert {*ends[:, -1].tolist()} == {*method.grid(8)[2:].tolist()}  # CLEAN is the last


def test_the_interval_of_few_texts_is_students():
    """Of 3 texts 4.303 standard errors; of one text it is not known."""
    rounds = (Round(4, 2, (3.0, 0.2), (1.0, 0.1)),)
    few, one = (Distilled("sdtt", "letters", "", "kl", 2, 10, 0, texts, rounds) for texts in (3, 1))
    assert DistillRecord(few).figures()[0].half == pytest.approx(0.43027, rel=1e-4)
    assert DistillRecord(one).figures()[0].half == math.inf
    assert rounds_lines(few)[-1].endswith("3 ± 0.9      1 ± 0.4")
