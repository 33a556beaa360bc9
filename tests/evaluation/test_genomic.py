"""Genomic Benchmarks: folders as published, the test split held out, five folds."""

import pytest
import torch

import zellige
from zellige import InputError
from zellige.data import Data
from zellige.data.corpus import Local
from zellige.data.tokenizer import Characters
from zellige.methods import METHODS, build
from zellige.models.config import Config
from zellige.models.model import Model
from zellige.nn import Net
from zellige.plugins.kinds.dna.windows import BASES
from zellige.plugins.studies.probes.genomic import TASKS, read_task
from zellige.plugins.studies.probes.probe import Labelled, ProbeRecord, labelled

NAME = "human_nontata_promoters"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two classes that two letters tell apart, in lower case, of two lengths."""
    place = tmp_path_factory.mktemp("genomic")
    for split, count in (("train", 20), ("test", 6)):
        for of, letters in (("negative", "ac"), ("positive", "gt")):
            (place / NAME / split / of).mkdir(parents=True)
            for i in range(count):
                (place / NAME / split / of / f"{i:03}.txt").write_text((letters * 9)[: 8 + 4 * (i % 2)] + "\n")
    return place


def test_a_task_is_its_folders(folder):
    data = labelled(NAME, folder)
    assert (data.classes, data.held_out, len(data.texts)) == (("negative", "positive"), 12, 52)
    assert data.labels.tolist() == [0] * 20 + [1] * 20 + [0] * 6 + [1] * 6
    assert set(data.texts[-6:]) == {"GTGTGTGT", "GTGTGTGTGTGT"}
    assert read_task(NAME, folder / NAME)[0] == data.texts
    train, choose, held_out = data.split(1)
    assert (len(train), len(choose), held_out.tolist()) == (36, 4, [*range(40, 52)])
    assert sorted([*train.tolist(), *choose.tolist()]) == [*range(40)]
    assert not torch.equal(choose, data.split(2)[1])
    assert len(Labelled("a", data.texts, data.labels, data.classes).split(0)[2]) == 10  # no split of its own: a fifth


def test_folds(folder):
    net = Net(kind="conv", layers=1, hidden=16, heads=1, length=10)
    config = Config("mdlm", METHODS["mdlm"].Config(), Data("dna"), net)
    model = Model(build("mdlm", 5, net).eval(), Characters(BASES, "text", (10,)), config, {})
    request = zellige.evaluations.EvaluateProbe(NAME, data=Local(path=str(folder)), linear=True, folds=3)
    record = request.run(model)
    assert {fold.name for fold in record.folds} == {row.name for row in record.rows}
    assert all(len(fold.accuracies) == 3 for fold in record.folds)
    assert record.folds[0].accuracies == (1.0, 1.0, 1.0)  # letters alone tell them apart
    assert record.row("bag of tokens").accuracy.total == 12
    assert ProbeRecord.from_dict(record.to_dict()).folds == record.folds


def test_what_is_no_task(folder, tmp_path):
    with pytest.raises(InputError, match=f"{NAME} is read from a folder"):
        labelled(NAME)
    with pytest.raises(InputError, match="is no task of Genomic Benchmarks"):
        labelled(TASKS[0], folder)
    (tmp_path / "train" / "a").mkdir(parents=True)
    with pytest.raises(InputError, match="is no task of Genomic Benchmarks"):
        labelled(NAME, tmp_path)
