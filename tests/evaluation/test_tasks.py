"""What a task asks: puzzles solved, molecules valid, unique and new, counted on answers that are known."""

from types import SimpleNamespace

import numpy as np

from zellige import Net
from zellige.data.symbols import grids4
from zellige.data.tokenizer import Characters
from zellige.evaluation import tasks
from zellige.methods import build


class Texts:
    """A split of molecules, by their texts."""

    def __init__(self, tokenizer, texts):
        self.tokenizer, self.texts = tokenizer, texts

    def array(self):
        return np.array([self.tokenizer.encode(t.ljust(self.tokenizer.shape[0], "\n"), "it") for t in self.texts])


def test_molecules_are_counted(monkeypatch):
    """Of four drawn three are molecules, two of these differ, and one is not in the training split."""
    tokenizer = Characters("CO=1()\n", "smiles", (6,))
    drawn = Texts(tokenizer, ["CCO", "CCO", "C1CC", "CC=O"]).array()
    monkeypatch.setattr(tasks, "_drawn", lambda *_, **__: drawn.tolist())
    model = SimpleNamespace(tokenizer=tokenizer, method=build("mdlm", 7, Net(layers=1, hidden=8, heads=1, length=6)))
    corpus = SimpleNamespace(rows={"train": 0}, train=Texts(tokenizer, ["CCO", "C"]), split=lambda name: None)
    shares = tasks.task_shares(model, corpus, limit=4)  # pyright: ignore[reportArgumentType]
    assert {name: (s.right, s.total) for name, s in shares.items()} == {
        "valid": (3, 4), "unique among these": (2, 3), "new among those": (1, 2),
    }  # fmt: skip


def test_puzzles_are_solved_or_not(monkeypatch):
    """What fills the blanks with the solution solves them all, and one wrong cell does not; what was given is not drawn."""
    solutions = grids4().reshape(-1, 16).astype(np.int64)[:10]
    clues = np.where(np.arange(16) % 3 > 0, solutions, -1)
    rows = type("Rows", (), {"clues": clues, "array": lambda self: solutions, "__len__": lambda self: 10})()
    corpus = type("Corpus", (), {"split": lambda self, name: rows})()
    wrong = solutions.copy()
    wrong[:3, 0] = (wrong[:3, 0] + 1) % 4
    asked = []

    def drawn(model, count, seed, *_, fixed, **how):
        asked.append((how, fixed))
        return wrong[np.arange(count) * 10 // count].tolist()

    monkeypatch.setattr(tasks, "_drawn", drawn)
    model = type("M", (), {"method": build("mdlm", 4, Net(layers=1, hidden=8, heads=1, length=16))})()
    shares = tasks.task_shares(model, corpus)  # pyright: ignore[reportArgumentType]
    assert {name: (s.right, s.total) for name, s in shares.items()} == {
        "solved, the most confident cell first": (7, 10), "solved, cells in random order": (7, 10),
    }  # fmt: skip
    assert all((fixed == clues).all() for _, fixed in asked)
    assert tasks.task_shares(model, corpus, limit=5)["solved, cells in random order"].total == 5  # pyright: ignore
