"""Zellige was first called Tessella: what was written under that name still loads, resumes and gives the same numbers.

`written_by_tessella` holds a run of four steps, its evaluation and two of its samples, and a tokenizer of each kind.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import zellige
from zellige.data.tokenizer import load as load_tokenizer
from zellige.evaluation.result import Result

WRITTEN = Path(__file__).parent / "written_by_tessella"
FINGERPRINTS = {  # sha256, as Tessella printed them
    "characters": "7ffda8e3c94edd5da2a4fc364cb10d562886e1126e9831500cebf254082fa3a6",
    "bytes": "202a85937f7ecff5b5ef975bf28a375e10f299c1cd23f0b5981ccb377b0d49c1",
    "integers": "80915b68dc1485b74e7e8aa4c35f83ca5f272904b5a0aea5246ed71011348b65",
    "levels": "dc8da1f9a07c733c2c0e30772cf7148b42626df1cefabf71f626df58c29418c1",
    "tokens": "6c1e71ba1c5f13855023f9d8f002c8594d9d0e603f923c0ac432e72a0555d770",
}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A copy of what was written, as the working folder."""
    shutil.copytree(WRITTEN, tmp_path / "old", symlinks=True)
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


def test_a_run_gives_the_numbers_of_then_and_samples(folder):
    before = Result.from_json(folder / "run/evaluate-text-test.json")
    assert before.protocol["name"] == "tessella-1"
    now = zellige.evaluate("run", draws=before.draws, seed=before.seed)
    assert now.value == pytest.approx(before.value, abs=1e-6)
    assert now.terms == pytest.approx(before.terms, abs=1e-5)
    assert now.file_name == "evaluate-text-test-draws-2.json"  # of the same text
    texts = zellige.sample(
        "run", count=2, steps=4, seed=0
    )  # a seed draws other texts than then: its numbers are counted now
    assert len(texts) == len((folder / "sample.jsonl").read_text().splitlines())


def test_a_run_goes_on(folder):
    longer = replace(zellige.load("run").config.train, steps=6)
    run = zellige.train("mdlm", run="run", resume=True, train=longer)
    assert run.steps == 6
    rows = (folder / "run/metrics.csv").read_text().splitlines()
    assert rows[: len(before := (WRITTEN / "run/metrics.csv").read_text().splitlines())] == before
    saved = json.loads((folder / "run/config.json").read_text())
    assert "zellige" in saved
    assert "tessella" not in saved


@pytest.mark.parametrize("kind", FINGERPRINTS)
def test_a_tokenizer_is_the_same(folder, kind):
    tokenizer = load_tokenizer(folder / "tokenizers" / kind)
    assert tokenizer.fingerprint == FINGERPRINTS[kind]
    tokenizer.save(folder / "again")
    again = load_tokenizer(folder / "again")
    assert again.to_dict() == tokenizer.to_dict()
    assert "tessella" not in "".join(file.read_text() for file in (folder / "again").iterdir())
