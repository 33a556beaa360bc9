"""What training changes of a batch: shares with their error probability, the same in parts as at once, and after a resume."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import zellige
from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.data import Data
from zellige.data.prepare import prepare
from zellige.training.order import Augmentation, Order

SHAPE = (4, 3, 2)


def batch(rows, seed=0):
    tokens = torch.randint(0, 9, (rows, 24), generator=torch.Generator().manual_seed(seed))
    return Batch(tokens, condition=torch.arange(rows) % 5)


def test_the_share_of_rows_without_their_class():
    """Of n = 40,000 rows a share off 0.1 by 0.01 has, by Hoeffding, a probability of at most 2 exp(-2 n 0.01^2) = 7e-4."""
    change = Augmentation(3, 1, 0.1)
    changed = [change(batch(400), step, 0).condition for step in range(100)]
    every = torch.stack(changed)
    assert abs(float((every == -1).double().mean()) - 0.1) < 0.01
    assert ((every == -1) | (every == torch.arange(400) % 5)).all()
    assert Augmentation(3, 1, 0.0)(batch(9), 0, 0).condition.tolist() == batch(9).condition.tolist()
    assert (Augmentation(3, 1, 1.0)(batch(9), 0, 0).condition == -1).all()
    assert Augmentation(3, 1, 0.5)(Batch(batch(9).tokens), 0, 0).condition is None


def test_the_share_of_rows_without_a_given_part():
    """As above: of 40,000 rows a share off 0.3 by 0.01 has a probability of at most 7e-4. The others keep their mask."""
    mask = torch.arange(24) % 3 > 0
    given = Batch(batch(400).tokens, mask=mask.expand(400, 24))
    change, whole = Augmentation(3, 1, given_dropout=0.3), []
    for step in range(100):
        masks = change(given, step, 0).counted
        whole.append(masks.all(1))
        assert torch.equal(masks[~whole[-1]], given.counted[~whole[-1]])
    assert abs(float(torch.stack(whole).double().mean()) - 0.3) < 0.01
    assert torch.equal(Augmentation(3, 1)(given, 0, 0).counted, given.counted)


def test_a_given_part_is_dropped_where_there_is_one(tmp_path):
    settings = zellige.Train(steps=1, batch=2, given_dropout=0.5)
    with pytest.raises(
        InputError, match=r"`train.given_dropout` needs a given part; use `data.given`, or leave it out"
    ):
        zellige.train("mdlm", data=Data("sudoku"), net=NET, train=settings, run=tmp_path / "a")
    (tmp_path / "texts.jsonl").write_text('{"text": "one text"}\n{"text": "another"}\n' * 9)
    texts = Data("text", path=str(tmp_path / "texts.jsonl"), pack="document", tokenizer="bytes", given="prefix:2")
    with pytest.raises(InputError, match=r"`train.given_dropout` needs rows without padding, and these hold documents"):
        zellige.train("mdlm", data=texts, net=replace(NET, length=16), train=settings, run=tmp_path / "a")


def test_half_of_the_images_are_mirrored():
    """Against numpy; the share of mirrored ones is off 1/2 by 0.02 with probability at most 2 exp(-2 n 0.02^2) = 2e-14."""
    change, count = Augmentation(3, 1, flip=SHAPE), 0
    for step in range(100):
        before = batch(400, step)
        after = change(before, step, 0).tokens
        pictures = before.tokens.numpy().reshape(-1, *SHAPE)
        mirrored = pictures[:, :, ::-1].reshape(400, -1)
        same, other = (after.numpy() == before.tokens.numpy()).all(1), (after.numpy() == mirrored).all(1)
        assert (same | other).all()
        count += (other & ~same).sum()
    assert abs(count / 40_000 - 0.5) < 0.02
    assert torch.equal(Augmentation(3, 1)(batch(5), 0, 0).tokens, batch(5).tokens)


def test_parts_are_the_whole():
    """Three parts of a step are what one process does to all of it; other steps and seeds do otherwise."""
    whole = Augmentation(7, 1, 0.5, SHAPE)(batch(30), 4, 0)
    for i in range(3):
        rows = torch.arange(i, 30, 3)
        part, same = Augmentation(7, 3, 0.5, SHAPE)(batch(30).take(rows), 4, i), whole.take(rows)
        assert torch.equal(part.tokens, same.tokens)
        assert torch.equal(part.condition, same.condition)  # pyright: ignore
    for seed, step in ((7, 5), (8, 4)):
        assert not torch.equal(Augmentation(seed, 1, 0.5, SHAPE)(batch(30), step, 0).condition, whole.condition)


NET = zellige.Net(layers=1, hidden=16, heads=2, condition=8)


def test_resumed_bit_for_bit_with_labels_dropout_and_flips(tmp_path):
    choices = {"data": Data("digits", size=4, labels=True, flip=True), "net": NET}
    settings = zellige.Train(
        steps=6, batch=4, accumulate=2, validate_rows=4, samples=1, sample_steps=4, save_every=3, tensorboard=False, keep=9,
        label_dropout=0.4,
    )  # fmt: skip
    run = zellige.train("md4", **choices, train=settings, run=tmp_path / "a")
    assert run.config.net.classes == 10
    shutil.copytree(tmp_path / "a", tmp_path / "b", symlinks=True)
    shutil.rmtree(tmp_path / "b" / "checkpoints" / "step-000006")
    again = zellige.train(
        "md4", **choices, train=settings, run=tmp_path / "b", resume=True
    )  # the same --net as at first
    a, b = (zellige.load(tmp_path / name, checkpoint="last").method.state_dict() for name in "ab")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert again.validation.value == run.validation.value
    with pytest.raises(InputError, match=r"`train.label_dropout` 0.1, but the run has 0.4"):
        zellige.train("md4", train=replace(settings, label_dropout=0.1), run=tmp_path / "b", resume=True)


def test_dropout_and_flips_change_the_training(tmp_path):
    weights = []
    for name, more, dropout in (("a", {}, 0.0), ("b", {"flip": True}, 0.0), ("c", {}, 0.9)):
        settings = zellige.Train(
            steps=3, batch=4, validate_rows=4, samples=0, tensorboard=False, label_dropout=dropout, warmup=0
        )
        zellige.train(
            "md4", data=Data("digits", size=4, labels=True, **more), net=NET, train=settings, run=tmp_path / name
        )
        weights.append(zellige.load(tmp_path / name).method.state_dict())
    for other in weights[1:]:
        assert any(not torch.equal(weights[0][name], other[name]) for name in other)
    table = "network.classes.weight"
    assert np.isfinite(weights[0][table]).all()
    assert len(weights[0][table]) == 11  # ten classes and none


def test_classes_that_do_not_fit(tmp_path):
    data = Data("digits", size=4, labels=True)
    with pytest.raises(InputError, match=r"`net.classes` is 7, and digits has 10; leave it out$"):
        zellige.train("md4", data=data, net=zellige.Net(1, 16, 2, classes=7), run=tmp_path / "a")
    with pytest.raises(InputError, match=r"`train.label_dropout` is 1.5; it must be between 0 and 1$"):
        zellige.Train(label_dropout=1.5)


# ---------------------------------------------------------------------------------- crops
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def alphabet(tmp_path):
    (tmp_path / "text.txt").write_text(LETTERS * 40)
    return Data(
        "text", path=str(tmp_path / "text.txt"), tokenizer="characters", crop=True, cache=str(tmp_path / "cache")
    )


def test_crops_begin_at_every_token_and_each_comes_once_an_epoch(alphabet):
    corpus = prepare(alphabet, 8)
    rows, plain = corpus.train.crops(), prepare(replace(alphabet, crop=False), 8).train
    stream = plain.array().reshape(-1).tolist() + plain.tail().tolist()
    assert len(rows) == len(stream) - 7
    assert [rows[i]["tokens"].tolist() for i in range(len(rows))] == [stream[i : i + 8] for i in range(len(rows))]
    assert rows.tokens_total == 8 * len(rows)
    order = Order(rows.sources, seed=3)
    for epoch in range(2):
        drawn = [order.draw(epoch * len(rows) + n)[0] for n in range(len(rows))]
        assert sorted(drawn) == [*range(len(rows))]
        assert drawn != sorted(drawn)
    assert len(corpus.validation) == len(corpus.validation.array())  # what is judged stands where it was cut
    for other, beside in (
        ({"pack": "packed"}, "`data.pack` packed"),
        ({"mix": "a=0.5,b=0.5", "path": None}, "`data.mix`"),
    ):
        with pytest.raises(
            InputError, match=f"`data.crop` takes rows anywhere in one running text, and not beside {beside}"
        ):
            prepare(replace(alphabet, **other), 8)


def test_resumed_bit_for_bit_with_crops_on_any_parts(alphabet, tmp_path):
    settings = zellige.Train(
        steps=6, batch=4, validate_rows=4, samples=0, save_every=3, tensorboard=False, keep=9, device="cpu",
    )  # fmt: skip
    net = replace(NET, length=8)
    run = zellige.train("md4", data=alphabet, net=net, train=settings, run=tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b", symlinks=True)
    shutil.rmtree(tmp_path / "b" / "checkpoints" / "step-000006")
    again = zellige.train("md4", train=settings, run=tmp_path / "b", resume=True)
    a, b = (zellige.load(tmp_path / name, checkpoint="last").method.state_dict() for name in "ab")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert again.validation.value == run.validation.value
    zellige.train("md4", data=replace(alphabet, crop=False), net=net, train=settings, run=tmp_path / "c")
    c = zellige.load(tmp_path / "c", checkpoint="last").method.state_dict()
    assert any(not torch.equal(a[name], c[name]) for name in a)
    with pytest.raises(InputError, match=r"`data.crop` False, but the run has True"):
        zellige.train("md4", data=replace(alphabet, crop=False), train=settings, run=tmp_path / "b", resume=True)
