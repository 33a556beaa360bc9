"""Nouns: how many pictures there are, which combination a picture is, and that nothing held out is learnt."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from zellige import Data, InputError, Net
from zellige.data import load
from zellige.data.prepare import prepare
from zellige.evaluation import metrics, tasks
from zellige.methods import build
from zellige.plugins.kinds.nouns import metrics as of_nouns
from zellige.plugins.kinds.nouns.parts import CLEAR, PARTS, Parts, parts, splits
from zellige.show.kinds import of


def some(*which: list[int]) -> Parts:
    """A few of the parts."""
    chosen = [*zip(parts().layers, parts().names, which)]
    return Parts(
        parts().colours,
        tuple(layer[some_of] for layer, _, some_of in chosen),
        tuple(tuple(names[i] for i in some_of) for _, names, some_of in chosen),
    )


@pytest.fixture(scope="module")
def few() -> Parts:
    """Parts that hide each other: accessories that cover a body, one that is empty, heads down to the body."""
    _, _, accessories, heads, _ = parts().layers
    full = np.flatnonzero((accessories != CLEAR).sum(1) == 147)[:2].tolist()
    empty = np.flatnonzero((accessories == CLEAR).all(1)).tolist()
    low = np.argsort(-((heads != CLEAR) & parts().outline).sum(1))[:3].tolist()
    return some([0, 1], [0, 7, 8, 29], [*full, *empty, 0, 50, 51], [*low, 0, 9], [3, 20])


def test_pictures_and_entropy_by_enumeration(few):
    pictures = few.pictures(np.arange(math.prod(few.shape)))
    groups, counts = np.unique(pictures, axis=0, return_inverse=True, return_counts=True)[1:]
    found, f = few.entropy(), counts / counts.sum()
    assert found[:2] == (len(pictures), len(counts))
    assert len(counts) < len(pictures)
    assert found.bits == pytest.approx(-(f * np.log2(f)).sum(), abs=1e-12)
    identity = few.identity(np.arange(len(pictures)))
    assert len(np.unique(np.stack([identity, groups]), axis=1).T) == len(np.unique(identity)) == len(counts)


def test_all_of_them():
    found = parts().entropy()
    assert found[:2] == (2 * 30 * 143 * 254 * 23, 44_159_218)
    assert found.bits == pytest.approx(24.97891124, abs=1e-8)


def test_parts_that_hide_more_are_refused():
    twice = some([0, 1], [0], [0], [5, 5], [0])
    with pytest.raises(ValueError, match="hide each other in more ways"):
        twice.entropy()


def test_the_nearest_is_that_of_a_search_through_all(few):
    every = few.pictures(np.arange(math.prod(few.shape)))
    random = np.random.default_rng(1)
    rows = every[random.integers(0, len(every), 12)].astype(np.int64)
    for row, wrong in zip(rows, itertools.cycle([0, 1, 30, 400])):
        row[random.choice(1024, wrong, replace=False)] = random.integers(-1, 235, wrong)
    distances = (rows[:, None] != every).sum(-1)
    numbers = few.nearest(rows)
    assert (distances[np.arange(12), numbers] == distances.min(1)).all()
    assert few.identity(numbers).tolist()[::4] == few.identity(distances.argmin(1)).tolist()[::4]


def test_a_part_is_right_where_it_is_seen(few):
    """Accessories that cover the body hide it, and one wrong pixel spoils the part to which it belongs."""
    number = np.array([np.ravel_multi_index((1, 2, 0, 3, 1), few.shape)])
    rows = few.pictures(number).astype(np.int64)
    np.testing.assert_equal(few.right(rows, number), [[1, np.nan, 1, 1, 1]])
    for part, at in enumerate(
        [0, None, *(np.flatnonzero(few.layers[i][j] != CLEAR)[-1] for i, j in ((2, 0), (3, 3), (4, 1)))]
    ):
        if at is not None:
            wrong = rows.copy()
            wrong[0, at] = -1
            right = few.right(wrong, number)[0]
            assert np.flatnonzero(right == 0).tolist() == [part]


def test_nothing_held_out_is_learnt():
    numbers = splits()
    assert {split: len(of_split) for split, of_split in numbers.items()} == {
        "train": 1_000_000, "validation": 5000, "test": 5000,
    }  # fmt: skip
    pictures = {split: parts().identity(of_split) for split, of_split in numbers.items()}
    assert not np.isin(pictures["train"], np.concatenate([pictures["validation"], pictures["test"]])).any()
    for held_out, learnt in zip(parts().split(numbers["test"]), parts().split(numbers["train"])):
        assert np.isin(held_out, learnt).all()


def test_a_row_is_composed_when_it_is_read(tmp_path):
    corpus = prepare(Data("nouns", labels_by="glasses"))
    numbers = splits()["validation"]
    assert (corpus.validation.array(3) == parts().pictures(numbers[[0, 1666, 3333]])).all()
    row = corpus.validation[7]
    assert (row["tokens"].numpy() == parts().pictures(numbers[7:8])[0]).all()
    glasses = int(parts().split(numbers)[4][7])
    assert (int(row["condition"]), len(corpus.about["classes"])) == (glasses, 23)
    assert corpus.about["classes"][glasses] == parts().names[4][glasses]
    corpus.tokenizer.save(tmp_path)
    assert load(tmp_path).to_dict() == corpus.tokenizer.to_dict()
    assert corpus.tokenizer.describe() == "32 x 32 pictures of 235 colours"
    with pytest.raises(InputError, match="the parts of nouns are background, body, accessory, head and glasses"):
        prepare(Data("nouns", labels_by="hat"))


def test_colours_are_those_of_the_palette():
    tokenizer = prepare(Data("nouns")).tokenizer
    kind, row = of(tokenizer), np.arange(1024) % 236
    pixels = kind.pixels(row).reshape(-1, 3)  # pyright: ignore[reportAttributeAccessIssue]
    assert (pixels[:235] == parts().colours).all()
    assert pixels[235].tolist() == [86, 108, 150]
    assert kind.pieces([0, 235]) == ["#d5d7e1", "·"]
    assert tokenizer.encode(tokenizer.decode(row, mask=".")) == [-1 if token == 235 else token for token in row]


def test_a_part_is_kept():
    """The head of a held-out picture, wherever the glasses leave it free, and nothing else."""
    kind, number = of(prepare(Data("nouns")).tokenizer), splits()["test"][:1]
    row, head = parts().pictures(number)[0].astype(int), parts().layers[3][parts().split(number)[3][0]]
    glasses = parts().layers[4][parts().split(number)[4][0]]
    expected = np.where((head != CLEAR) & (glasses == CLEAR), row, -1)
    assert kind.given(row).tolist() == kind.given(row, "head").tolist() == expected.tolist()
    both = kind.given(row, "head,glasses")
    assert ((both >= 0) == ((head != CLEAR) | (glasses != CLEAR))).all()
    assert (kind.given(row, "top") >= 0).sum() == 512


@pytest.fixture
def drawn() -> tuple[np.ndarray, np.ndarray]:
    """Three held-out pictures, one of training and one with a wrong pixel of the background; their combinations."""
    numbers = np.concatenate([splits()["test"][:3], splits()["train"][:2]])
    rows = parts().pictures(numbers).astype(np.int64)
    rows[4, 0] = 99
    return rows, numbers


def test_metrics_by_hand(drawn):
    rows, numbers = drawn
    known = of_nouns.judged(rows, "glasses")
    found = metrics.measure(**known, asked=parts().split(numbers)[PARTS.index("glasses")])
    seen = (~np.isnan(known["right_parts"][4])).sum()
    assert {name: number.value for name, number in found.items()} == pytest.approx(
        {"valid picture": 0.8, "right parts": 1 - 1 / seen / 5, "new picture": 0.75, "held-out picture": 0.75,
         "right class": 1.0}
    )  # fmt: skip
    assert {metrics.find(name).subject for name in found} == {"nouns", ""}  # what results are named by


def test_a_hidden_part_has_no_class():
    """Bodies that an accessory covers look alike: they are neither right nor wrong."""
    numbers, body = splits()["test"], PARTS.index("body")
    bodies, hidden = parts().split(numbers)[body], ~(parts().seen(numbers)[1] == body).any(1)
    some = np.concatenate([np.flatnonzero(hidden & (bodies > 0))[:2], np.flatnonzero(~hidden)[:3]])
    found = of_nouns.judged(parts().pictures(numbers[some]), "body")["found"]
    assert found.tolist() == [-1, -1, *bodies[some[2:]]]


def test_the_task_counts_each_part(drawn, monkeypatch):
    monkeypatch.setattr(of_nouns, "draw_tokens", lambda *_, **__: drawn[0].tolist())
    model = SimpleNamespace(method=build("mdlm", 235, Net(layers=1, hidden=8, heads=1, length=1024)))
    corpus = SimpleNamespace(about={"name": "nouns"})
    found = tasks.task_shares(model, corpus, limit=5)  # pyright: ignore[reportArgumentType]
    hidden = ("body right", "accessory right")
    assert {name: (share.right, share.total) for name, share in found.items() if name not in hidden} == {
        "valid": (4, 5), "background right": (4, 5), "head right": (5, 5), "glasses right": (5, 5),
        "new among the valid": (3, 4),
    }  # fmt: skip
