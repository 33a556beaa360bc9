"""SELFIES: every sequence of symbols is a molecule, and a molecule comes back from its symbols."""

import itertools

import numpy as np
import pytest
import torch

import zellige
from zellige import METHODS, Data, InputError, Net
from zellige.data.losses import Losses
from zellige.data.prepare import prepare
from zellige.data.tokenizer import load
from zellige.methods import build
from zellige.models.config import Config
from zellige.models.model import Model
from zellige.plugins.kinds.molecules import tokens as selfies
from zellige.plugins.kinds.molecules.smiles import is_molecule

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
    assert {(split.characters, split.losses) for split in corpus.rows.values()} == {(None, Losses(("spelling",)))}
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


def test_a_part_of_a_molecule_keeps_its_open_end(corpus):
    """After `CC(=O)` the next atom goes to the second carbon, and `=O` comes after an atom."""
    of = corpus.tokenizer
    assert of.decode([*of.encode("CC(=O)"), *of.encode("F")]) == "CC(=O)F"
    assert of.decode([*of.encode("CC"), *of.encode("=O")]) == "CC=O"
    assert of.decode([*of.encode("CC"), *of.encode("(=O)"), *of.encode("[F]")]) == "CC(=O)F"
    assert of.encode("CC=O") == of.encode("[C][C][=O]")  # nothing may follow: spelled as it is
    for text in ("c1cc", "(=O", "=O=C="):
        with pytest.raises(InputError, match=r"in the gap is no SMILES that SELFIES can write; close its rings"):
            of.encode(text, "the gap")


def test_molecules_have_their_gaps_filled(corpus):
    """Each gap is a symbol or the end, and nothing is drawn after the text; a molecule that is whole is refused."""
    of, length = corpus.tokenizer, corpus.tokenizer.shape[0]
    torch.manual_seed(0)
    net = Net(layers=1, hidden=16, heads=2, length=length)
    method = build("mdlm", of.size, net, METHODS["mdlm"].Config(), length, of.ordered)
    model = Model(method, of, Config("mdlm", METHODS["mdlm"].Config(), Data("smiles", tokenizer="selfies"), net))
    samples = zellige.Infill(text="CC(=O)__C", count=9, seed=1).run(model)
    given = of.encode("CC(=O)")
    for tokens, text in zip(samples.tokens, samples.texts):
        assert [tokens[: len(given)], tokens[len(given) + 2 :]] == [
            given,
            [*of.encode("C"), *[0] * (length - len(given) - 3)],
        ]
        assert text == of.decode(tokens)
    assert len({*samples.texts}) > 2
    assert all(text.startswith("CC(=O)") for text in zellige.sample(model, prompt="CC(=O)", count=4))
    assert len({*zellige.sample(model, prompt="CC(=O)", count=9)}) > 2
    for ask in (lambda: zellige.sample(model, prompt="CC=O"), lambda: zellige.infill(model, "CC=O__")):
        with pytest.raises(InputError, match=r"^'CC=O' is whole: no atom has a bond left"):
            ask()


def test_molecules_of_ones_own_have_a_name(corpus, tmp_path):
    """`smiles` reads a plain file, a molecule a line, as `qm9` reads its own, and a model of SELFIES reads it as SELFIES."""
    (tmp_path / "mine.txt").write_text("\n".join(SMILES))
    mine = prepare(Data("smiles", path=str(tmp_path / "mine.txt"), tokenizer="selfies", cache=str(tmp_path)))
    assert np.array_equal(rows(mine), rows(corpus))
    again = prepare(Data("smiles", path=str(tmp_path / "mine.txt"), cache=str(tmp_path)), tokenizer=corpus.tokenizer)
    assert np.array_equal(rows(again), rows(corpus))
    with pytest.raises(InputError, match=r"the data set smiles needs a file; give it by `data.path`"):
        prepare(Data("smiles"))


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


def test_the_longest_molecule_has_its_end(tmp_path):
    """Rows are one symbol longer than the longest, and each ends with what fills it up."""
    path = tmp_path / "a.csv"
    path.write_text("smiles\n" + "".join("C" * (i % 5 + 1) + "O\n" for i in range(20)))
    corpus = prepare(Data("qm9", path=str(path), tokenizer="selfies", validation=4, test=4))
    rows = np.concatenate([split.array() for split in corpus.rows.values()])
    ends = corpus.tokenizer.separator
    assert rows.shape == (20, 7)  # five carbons, an oxygen, an end
    assert sorted((rows != ends).sum(1)) == sorted(i % 5 + 2 for i in range(20))
    assert (rows[:, -1] == ends).all()
