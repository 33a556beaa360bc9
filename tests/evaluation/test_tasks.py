"""What a task asks: puzzles solved, molecules valid, unique and new, counted on answers that are known."""

import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from zellige import Data, InputError, Net, cli
from zellige.data.prepare import prepare
from zellige.evaluation import metrics, tasks
from zellige.methods import build
from zellige.models.config import Config
from zellige.models.model import Model
from zellige.plugins.evaluations.generate.request import EvaluateSamples
from zellige.plugins.kinds.molecules import task as asked_of_molecules
from zellige.plugins.kinds.molecules.tokens import Smiles
from zellige.plugins.kinds.puzzles import task
from zellige.plugins.kinds.puzzles.sudoku import grids4
from zellige.sampling.sample import Sample


class Texts:
    """A split of molecules, by their texts."""

    def __init__(self, tokenizer, texts):
        self.tokenizer, self.texts = tokenizer, texts

    def array(self):
        return np.array([self.tokenizer.encode(t.ljust(self.tokenizer.shape[0], "\n"), "it") for t in self.texts])


def test_molecules_are_counted(monkeypatch):
    """Of four drawn three are molecules, two of these differ, and one is not in the training split."""
    tokenizer = Smiles("CO=1()\n", shape=(6,))
    drawn = Texts(tokenizer, ["CCO", "CCO", "C1CC", "CC=O"]).array()
    monkeypatch.setattr(asked_of_molecules, "draw_tokens", lambda *_, **__: drawn.tolist())
    model = SimpleNamespace(tokenizer=tokenizer, method=build("mdlm", 7, Net(layers=1, hidden=8, heads=1, length=6)))
    corpus = SimpleNamespace(
        about={"name": "qm9"}, rows={"train": 0}, train=Texts(tokenizer, ["CCO", "C"]), split=lambda name: None
    )
    shares = tasks.task_shares(model, corpus, limit=4)  # pyright: ignore[reportArgumentType]
    assert {name: (s.right, s.total) for name, s in shares.items()} == {
        "valid": (3, 4), "unique among these": (2, 3), "new among those": (1, 2),
    }  # fmt: skip


def test_puzzles_are_solved_or_not(monkeypatch):
    """What fills the blanks with the solution solves them all, and one wrong cell does not; what was given is not drawn."""
    solutions = grids4().reshape(-1, 16).astype(np.int64)[:10]
    clues = np.where(np.arange(16) % 3 > 0, solutions, -1)
    rows = type("Rows", (), {"clues": clues, "array": lambda self: solutions, "__len__": lambda self: 10})()
    corpus = SimpleNamespace(about={"name": "sudoku"}, split=lambda name: rows)
    wrong = solutions.copy()
    wrong[:3, 0] = (wrong[:3, 0] + 1) % 4
    asked = []

    def drawn(model, count, seed, *_, fixed, **how):
        asked.append((how, fixed))
        return wrong[np.arange(count) * 10 // count].tolist()

    monkeypatch.setattr(task, "draw_tokens", drawn)
    model = type("M", (), {"method": build("mdlm", 4, Net(layers=1, hidden=8, heads=1, length=16))})()
    shares = tasks.task_shares(model, corpus)  # pyright: ignore[reportArgumentType]
    assert {name: (s.right, s.total) for name, s in shares.items()} == {
        "solved, the most confident cell first": (7, 10), "solved, cells in random order": (7, 10),
    }  # fmt: skip
    assert all((fixed == clues).all() for _, fixed in asked)
    assert tasks.task_shares(model, corpus, limit=5)["solved, cells in random order"].total == 5  # pyright: ignore


# ---------------------------------------------------------------------------------------------------- molecules with a property
TEXTS = ["CCO", "C1CC1", "C1CC11CC1", "CN", "CC=O"]


@pytest.fixture
def molecules(tmp_path, monkeypatch):
    """A data set in classes by rings, and an untrained model of it, "model"."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("smiles\n" + "".join(f"{text}\n" for text in TEXTS * 12))
    data = Data("qm9", path="a.csv", labels=True, labels_by="rings:2")
    corpus = prepare(data)
    net = Net(layers=1, hidden=16, heads=2, length=corpus.train.length, conv=3, classes=2)
    torch.manual_seed(0)
    method = build("mdlm", corpus.tokenizer.size, net)
    for p in method.parameters():
        torch.nn.init.normal_(p, std=0.3)
    config = Config("mdlm", method.Config(), data, net)
    Model(method, corpus.tokenizer, config, {"data": corpus.about}).save("model")
    return corpus


def test_metrics_of_molecules():
    """Of five drawn four are molecules, three differ, one is new; two of the four have the class asked for; rings 3 / 4."""
    drawn = ["CCO", "CCO", "C1CC1", "C1CC11CC1", "C1CC"]
    found = metrics.measure(
        texts=drawn, training_texts={"CCO", "C1CC1"}, asked=np.array([0, 1, 1, 0, 1]), found=np.array([0, 0, 1, 1, -1]),
        counted=np.array([0, 0, 1, 2, np.nan]),
    )  # fmt: skip
    assert {name: round(number.value, 6) for name, number in found.items()} == {
        "valid": 0.8, "unique": 0.75, "new": 0.333333, "right class": 0.5, "property": 0.75,
    }  # fmt: skip
    assert np.isnan(metrics.measure(texts=["C("])["unique"].value)


def test_molecules_by_a_property_are_judged(molecules, monkeypatch, capsys):
    """Every strength of guidance is a set of its own, drawn with it; the real molecules are valid and have their own classes."""
    strengths, run = [], Sample.run
    monkeypatch.setattr(Sample, "run", lambda self, *more: strengths.append(self.guidance) or run(self, *more))
    record = EvaluateSamples(count=8, steps=4, classes=("1+",), guidances=(0.0, 2.0), reference="train").run("model")
    assert strengths == [0.0, 2.0] == [point.way.guidance for point in record.points]
    assert record.judge == "molecules"
    real = record.real.measures  # pyright: ignore[reportOptionalMemberAccess]
    texts = [molecules.tokenizer.decode(row).strip() for row in molecules.train.array(8)]
    assert real["valid"].value == 1.0
    assert real["right class"].value == np.mean(["1" in text for text in texts])
    assert real["property"].value == np.mean([text.count("1") // 2 for text in texts])
    assert (
        cli.main(shlex.split("evaluate model --generate --count 8 --steps 4 --class 0 --guidances 0 2 --out out")) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if "again" not in line) <= 80  # its command is one line
    printed = " ".join(" ".join(lines).split())
    assert "against the strength of guidance; steps 4" in printed
    assert "property: rings:2, of the valid ones" in printed
    with pytest.raises(InputError, match="name it by `classes`"):
        EvaluateSamples(guidances=(1.0,))


@pytest.mark.usefixtures("molecules")
def test_figures_of_a_kind_with_metrics_of_its_own():
    """They show its first two; no figure is of perplexity or FID alone."""
    words = "--count 4 --steps 4 --calls 2 4 --temperatures 0.5 1 --samplers ancestral"
    assert cli.main(shlex.split(f"evaluate model --generate {words} --quiet --out figures")) == 0
    for by, labels in (("calls", ("valid", "unique")), ("frontier", ("valid", "unique"))):
        drawn = Path(f"figures/generate-molecules-{by}.svg").read_text()
        assert all(f">{label}<" in drawn for label in labels)
