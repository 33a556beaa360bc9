"""Symmetries of data: what they are, that the first one changes nothing, and which data have none."""

import numpy as np
import pytest

from zellige.base.errors import InputError
from zellige.data import Data
from zellige.data.levels import Levels
from zellige.data.symmetry import symmetries
from zellige.data.tokenizer import Characters
from zellige.plugins.kinds.puzzles.sudoku import grids4, solved


def images(x, found):
    """(n, N, L): of each symmetry the images of sequences x (N, L)."""
    return found.renames[np.arange(len(found))[:, None, None], x[:, found.moves].swapaxes(0, 1)]


def test_of_sudokus():
    grids = grids4().reshape(-1, 16).astype(int)
    found = symmetries(Data("sudoku"), Levels(4, (4, 4)), 6)
    copies = images(grids, found)
    assert np.array_equal(copies[0], grids)
    assert all(solved(copy.reshape(-1, 4, 4)).all() for copy in copies)
    assert len({copy.tobytes() for copy in copies}) == 6
    again = symmetries(Data("sudoku"), Levels(4, (4, 4)), 3)
    assert np.array_equal(again.moves, found.moves[:3])


def test_of_images_and_dna():
    picture = np.arange(12)[None]
    found = symmetries(Data("digits", flip=True), Levels(12, (2, 3, 2)), 2)
    mirrored = picture.reshape(1, 2, 3, 2)[:, :, ::-1].reshape(1, 12)
    assert np.array_equal(images(picture, found), np.stack((picture, mirrored)))
    dna = Characters("ACGNT", shape=(5,))
    found = symmetries(Data("dna", reverse_complement=True), dna, 2)
    copies = images(np.array([dna.encode("AACGN")]), found)
    assert [dna.decode(copy[0].tolist()) for copy in copies] == ["AACGN", "NCGTT"]


def test_data_without_them():
    with pytest.raises(InputError, match=r"`symmetries` is for sudokus, DNA with .*; leave it out$"):
        symmetries(Data("digits"), Levels(12, (2, 3)), 2)
    with pytest.raises(InputError, match=r"`symmetries` is 3, and these data have 2: as it is, and mirrored; give 2$"):
        symmetries(Data("digits", flip=True), Levels(12, (2, 3, 2)), 3)
