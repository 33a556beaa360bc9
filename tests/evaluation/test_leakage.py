"""Duplicates between a test and a training set are found in whatever form they have."""

import sys
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "studies" / "included-models"))
import leakage  # pyright: ignore[reportMissingImports]  # noqa: E402


def test_a_molecule_has_one_form_however_it_is_spelled():
    forms = [leakage.graph(text) for text in ("CCO", "OCC", "C(O)C")]
    assert forms[0] == forms[1] == forms[2]
    others = ("COC", "CC=O", "CCN", "C1CO1", "CC[O-]")
    assert len({forms[0], *map(leakage.graph, others)}) == 1 + len(others)


def test_a_row_has_one_form_in_every_key():
    row = np.array([[40, 35, 0, 12], [42, 35, 30, 14]])
    up = np.where(row > 0, row + 3, 0)
    assert leakage.transposed(row) == leakage.transposed(up)
    assert leakage.transposed(row) != leakage.transposed(np.where(row == 30, 31, row))  # one note differs
    assert leakage.transposed(row) != leakage.transposed(row + 3)  # silence is no note
    assert not leakage.moves(row)
    assert leakage.moves(row[:, [0, 3]])


def test_the_nearest_image_is_found_and_never_itself():
    training = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    assert leakage.nearest(torch.tensor([[3.0, 4.0], [0.0, -2.0]]), training).tolist() == [0, 2]
    assert leakage.nearest(training, training, themselves=True).square().round().tolist() == [1, 18, 1]
