"""Levels: the plain text of an image, a grid, music, and back; what is saved is what is loaded."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zellige.base.errors import InputError
from zellige.data import load, require_same
from zellige.data.levels import Levels
from zellige.data.tokenizer import Characters
from zellige.plugins.kinds.molecules.tokens import Smiles
from zellige.plugins.kinds.music.notes import Notes, note_name

SUDOKU = Levels(9, (9, 9), labels=range(1, 10))
PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"


def test_a_puzzle_is_read():
    tokens = SUDOKU.encode(PUZZLE)
    assert len(tokens) == 81
    assert tokens[:9] == [4, 2, -1, -1, 6, -1, -1, -1, -1]
    assert SUDOKU.encode(PUZZLE.replace(".", "0")) == SUDOKU.encode(PUZZLE.replace(".", "_")) == tokens
    drawn = SUDOKU.decode(tokens, mask=".")
    assert drawn.splitlines()[:2] == ["53..7....", "6..195..."]
    assert SUDOKU.encode(drawn) == tokens
    zero = Levels(4, (2, 2))  # no labels: 0 is a level of its own
    assert zero.encode("01 .3") == [0, 1, -1, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PUZZLE[:80], "the prompt has 80 cells, the model takes 9 x 9 = 81; mark each free one with '.'"),
        ("x" + PUZZLE[1:], "'x' in the prompt is not in the model's vocabulary (1 to 9; . leaves a cell free)"),
    ],
)
def test_what_is_no_puzzle(text, message):
    with pytest.raises(InputError) as error:
        SUDOKU.encode(text)
    assert str(error.value) == message


def test_images_line_by_line():
    grey = Levels(17, (2, 3), "image", "dim", True)
    assert grey.decode([0, 16, 3, 4, 5, 17]) == "0 16 3\n4 5 ·"
    assert grey.encode("0 16 3\n4 5 .") == [0, 16, 3, 4, 5, -1]
    colours = Levels(256, (1, 2, 3), "image", "dim", True)
    assert colours.decode(np.array([1, 2, 3, 255, 0, 9])) == "1,2,3 255,0,9"
    assert grey.describe() == "2 x 3 images of 17 levels"


def test_music_voice_by_voice():
    assert [note_name(p) for p in (60, 69, 61, 36, -1)] == ["C4", "A4", "C#4", "C2", "-"]
    roll = Notes(4, (2, 4), ordered=True, labels=(-1, 60, 61, 62))
    assert roll.decode([3, 2, 1, 0, 3, 3, 4, 1]).splitlines() == [
        "soprano  D4 D4", "alto     C#4 D4", "tenor    C4 ·", "bass     - C4",
    ]  # fmt: skip
    with pytest.raises(InputError, match="is music"):
        roll.encode("C4 D4")


@given(st.sampled_from([(3,), (2, 3), (2, 2, 3), (2, 1, 2, 2)]), st.integers(2, 300), st.randoms(use_true_random=False))
def test_decode_and_back(shape, size, random):
    levels = Levels(size, shape, "image", "dim", True)
    row = [random.randrange(-1, size) for _ in range(math.prod(shape))]
    text = levels.decode(row, mask=".")
    assert levels.encode(text) == row
    for end in range(1, len(row)):  # what is drawn grows: a beginning is drawn as it will stand
        assert text.startswith(levels.decode(row[:end], mask="."))


@pytest.mark.parametrize(
    "tokenizer",
    [
        SUDOKU,
        Levels(8, (14, 14), "image", "dim", True),
        Notes(3, (2, 4), ordered=True, labels=(-1, 60, 61)),
        Smiles("CNO\n", shape=(29,)),
    ],
)
def test_saved_and_loaded(tmp_path, tokenizer):
    tokenizer.save(tmp_path)
    back = load(tmp_path)
    assert type(back) is type(tokenizer)
    assert back.to_dict() == tokenizer.to_dict() == json.loads((tmp_path / "tokenizer.json").read_text())
    assert back.fingerprint == tokenizer.fingerprint
    for name in ("kind", "shape", "ordered", "unit", "size"):
        assert getattr(back, name) == getattr(tokenizer, name)


def test_a_text_is_no_other_tokenizer_than_before():
    """The definition of characters without a shape has not changed: models that were saved keep their fingerprint."""
    assert Characters("ab ").to_dict() == {"zellige": "characters", "alphabet": " ab"}


def test_rows_of_another_form():
    image = Levels(8, (14, 14), "image", "dim", True)
    with pytest.raises(InputError) as error:
        require_same(image, Levels(256, (28, 28), "image", "dim", True))
    assert str(error.value) == (
        "the run was trained on 14 x 14 images of 8 levels, this data has 28 x 28 images of 256 levels; "
        "use `data.size` 14 `data.levels` 8"
    )
    with pytest.raises(InputError, match="this data has 9 x 9 grids of 9 symbols; give data of that form"):
        require_same(image, SUDOKU)
    with pytest.raises(InputError, match="is text, and the rows of this model are 14 x 14 images of 8 levels"):
        image.encode_pieces(["a text"])
