"""SELFIES: every sequence of symbols is a molecule, and a molecule comes back from its symbols."""

import itertools

import numpy as np
import pytest

from zellige import Data, InputError
from zellige.data import selfies
from zellige.data.prepare import prepare
from zellige.data.smiles import is_molecule
from zellige.data.tokenizer import load

SMILES = ["CC=O", "C#N", "c1cc[nH]c1", "C1CC1O", "NC(=O)C#C", "[NH3+]CC([O-])=O", "CCF", "O=N(=O)C"] * 3


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("selfies")
    (folder / "a.csv").write_text("\n".join(["smiles", *SMILES]))
    return prepare(Data("qm9", path=str(folder / "a.csv"), tokenizer="selfies", cache=str(folder / "cache")))


def rows(corpus):
    return np.concatenate([corpus.rows[split].array() for split in ("train", "validation", "test")])


def test_a_molecule_comes_back(corpus):
    of = corpus.tokenizer
    assert corpus.about["left_out"] == ["3 of 24 molecules, which SELFIES cannot write"]  # five bonds at a nitrogen
    assert (of.kind, of.unit, of.separator, of.shape) == ("smiles", "token", 0, (max(map(len, rows(corpus))),))
    texts = [of.decode(row) for row in rows(corpus)]
    spelled = {"c1cc[nH]c1": "C=1C=C[NH1]C=1", "[NH3+]CC([O-])=O": "[NH3+1]CC([O-1])=O"}
    assert {*texts} == {spelled.get(text, text) for text in SMILES} - {"O=N(=O)C"}
    kept = [text for text in SMILES if text != "O=N(=O)C"]
    assert sum(split.characters for split in corpus.rows.values()) == sum(len(text) + 1 for text in kept)
    for row in rows(corpus):
        tokens = of.encode(of.decode(row))
        assert [*row] == tokens + [0] * (len(row) - len(tokens))


def test_every_sequence_of_symbols_is_a_molecule(corpus):
    """All of one and two symbols, and 300 of twelve; where a sequence holds no atom the text is empty."""
    of = corpus.tokenizer
    drawn = np.random.default_rng(0).integers(1, of.size, (300, 12)).tolist()
    short = [list(s) for n in (1, 2) for s in itertools.product(range(1, of.size), repeat=n)]
    texts = [of.decode(tokens) for tokens in [*short, *drawn]]
    assert [text for text in texts if text and not is_molecule(text)] == []
    assert len({*texts}) > 200


def test_what_stands_after_its_end_is_no_part_of_a_molecule(corpus):
    of = corpus.tokenizer
    text = of.decode([*of.encode("CC"), 0, *of.encode("O"), 0, 0])
    assert text == "CC\nO"
    assert not is_molecule(text)


def test_symbols_are_read_and_shown_while_parts_are_masked(corpus, tmp_path):
    of = corpus.tokenizer
    assert of.encode("[C][C][=O]") == of.encode("CC=O")
    assert of.decode([*of.encode("[C][C]"), of.size, *of.encode("[F]")]) == "[C][C]·[F]"
    of.save(tmp_path)
    again = load(tmp_path)
    assert (again.fingerprint, again.to_dict()) == (of.fingerprint, of.to_dict())
    for text, said in [("CCBr", r"'\[Br\]' in the prompt is not in the model's vocabulary"), ("C(", "is no SMILES")]:
        with pytest.raises(InputError, match=said):
            of.encode(text)


def test_the_cache_is_read_and_mended(corpus, tmp_path, monkeypatch):
    lines = ["CC", "O=N(=O)C", "C#N"]
    first = selfies.translated(lines, tmp_path)
    assert first == [["[C]", "[C]"], [], ["[C]", "[#N]"]]
    (file,) = tmp_path.glob("selfies/*/symbols.txt")
    file.write_text("[C]\n\n[C]")
    assert selfies.translated(lines, tmp_path) == first
    monkeypatch.setattr(selfies, "symbols_of", None)
    assert selfies.translated(lines, tmp_path) == first


def test_wrong_choices(tmp_path):
    (tmp_path / "a.csv").write_text("smiles\nO=N(=O)C\n")
    data = Data("qm9", path=str(tmp_path / "a.csv"), cache=str(tmp_path / "cache"))
    with pytest.raises(
        InputError, match=r"`data.tokenizer` is 'bpe:100'; molecules are cut into characters or selfies"
    ):
        prepare(Data("qm9", path=data.path, tokenizer="bpe:100"))
    with pytest.raises(InputError, match="SELFIES can write no molecule of"):
        prepare(Data("qm9", path=data.path, tokenizer="selfies", cache=data.cache))
    with pytest.raises(InputError, match="is for molecules"):
        prepare(Data("text", path=data.path, tokenizer="selfies"), 8)


def test_a_model_reads_data_as_it_was_trained(corpus):
    again = prepare(Data("qm9", path=corpus.about["files"][0]), tokenizer=corpus.tokenizer)
    assert np.array_equal(rows(again), rows(corpus))
