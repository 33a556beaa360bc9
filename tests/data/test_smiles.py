"""Is a text a molecule: what RDKit 2026.09.1 answered (`MolFromSmiles`), and the data set itself."""

import csv
import lzma

import numpy as np
import pytest

from zellige import Data, InputError
from zellige.data.prepare import prepare
from zellige.plugins.kinds.molecules.properties import Property
from zellige.plugins.kinds.molecules.smiles import is_molecule

YES = """
    CC1CNCCOCOC1 O=C1C=2OCCCOC12 CN1CC1(C#C)C#C CC1=NC=CC(O)=C1 O=C1C=CCN2CC1C2 C(C#N)C#CC#N OC1CC(=O)N2CCN12
    CCC(CO)CCCN CC1COC(C)=N1 CCNN1CC11CC2OC12 NC1NC(C#N)C2CN12 CCN(C)C1=NNN=N1 C1OC2(CC2)C1=O OC1=CN(C=O)C1=N
    C1=C=C2C3C4C1C4C23 FCCN=C1ON=NC=N1 CC1OC1C#CC#N CCC1NC2C(C)C2O1 CC1N2C1(O)C2 O=CC1(CO1)C#C OC1(OCC=C1)C#N
    C1C2C3CC1OCOC23O CC12C3OC1C(C)(O)C23 C12CC1CCCOC=N2 CCC1=CCC(C1)C=O OCCC1=CC2CC2C1 CC1C2[NH2+]CC12C([O-])=O
    OCCC12CN1CC=C2 O=C1CCCC11COC1 CC12CC1(O)C(C2)C#C CC(C)(C)CC(N)=O CC(=O)C(O)C1(O)CC1 C1NC2=C(NN=C2)C=C1
    N#CC(C#N)N1CCC1 OC12C3C4C5C3C1C5C24 CCC1C2CC(C#C)C12 O=N(=O)C1=CC=CN1 C[N+](C)(C)C [O-]C=O c1ccc2[nH]ccc2c1
    n1ccccc1
"""
NO = r"""
    C[NH2+]C(C)CC([-])=O C#CCC1=ON=N1 CC1=NC(N4=CO1 CCC1=CN=C(N1]C#C CC1C2COC1C2(CO [=H3+]CCN=C1[]N--N=NO1
    CCOC1C(N)4C1C#N O=]1C2C3N2CC13C#C CC1HNC(CO)CO1 3CN1N=CF(C)N=C1N CC1C21N2C=CC= CC([C)C(C)C=O= OCC1COCO1)C#C
    OC1CNC(=O=)C1O CC1=CC[CC(O2)=C[ #2C1=C(N)CCOC1(O CC(C)N1C=C)(C)=NNN1 OC1(COHCC1C=O C1NFC=NC2=1C=NO2
    C1C2C3CCOC2C113+ CNN=C1C=CNN=11F CCC=O)C#C[ #CC1CCC=CCO1 CC1=C(C)C2CCC31C2 COC1OC1C# CC1]C)FC2OC1C21CO1
    OF#CC1C52(CN2)CO1 =OC1C(C#3N)C1C#N CC(=)C1=NC(N)=CO1 CC1C(F=O)OC11CCC1 O=C(4#C)C1CNC1=O CCC112NC3C1NC23C
    OC1CC11COC(=F)N1 CN1N=C(#CO)N=C1O )C(C#N)C1(CO)CN1 #1OC1C1C2OCOC12 C1C2CC3C4OC(24)C13 C= =C C() C( CC) C%1
    c1cccc1 c C.C C==C [Xx] C1=CC=CC=1C1 F=F C[H
"""


@pytest.mark.parametrize("text", YES.split())
def test_a_molecule(text):
    """Molecules of QM9, and such whose characters were changed at random, that RDKit takes."""
    assert is_molecule(text)


@pytest.mark.parametrize("text", ["", *NO.split()])
def test_no_molecule(text):
    """Molecules of QM9 with characters changed at random, and broken ones, that RDKit refuses."""
    assert not is_molecule(text)


def test_every_real_molecule_is_one(shared):
    """Of QM9's 133,885; here each 100th."""
    with lzma.open(shared / "data" / "molecules" / "qm9_smiles.csv.xz", "rt") as file:
        rows = [row["smiles"] for row in csv.DictReader(file)][::100]
    assert len(rows) > 1000
    assert [row for row in rows if not is_molecule(row.strip())] == []


def test_properties_that_are_counted():
    """Benzene has a ring and naphthalene two; cubane, with twelve bonds on eight atoms, five; hydrogens are no heteroatoms."""
    texts = ["CCO", "c1ccccc1", "c1ccc2ccccc2c1", "C12C3C4C1C5C2C3C45", "C1CC11CC1", "c1cc[nH]c1", "FC(F)(F)C#N"]
    assert [Property("rings").counted(text) for text in texts] == [0, 1, 2, 5, 2, 1, 0]
    assert [Property("heteroatoms").counted(text) for text in texts] == [1, 0, 0, 0, 0, 1, 4]
    assert Property("rings").counted("C1CC") is None


def test_classes_of_a_property():
    """Whole numbers are classes, the last one open; other numbers are cut at their quantiles; words are their own classes."""
    labels, names = Property.of("rings:3").classes(["0", "7", "2", "1"])
    assert (labels.tolist(), names) == ([0, 2, 2, 1], ("0", "1", "2+"))
    assert [Property("rings", 3).class_of(n, names) for n in (0, 1, 2, 9)] == [0, 1, 2, 2]
    labels, names = Property.of("logp:4").classes([*map(str, np.linspace(-1, 2.9, 40))])
    assert np.bincount(labels).tolist() == [10] * 4
    assert names == ("below -0.025", "-0.025 to 0.95", "0.95 to 1.925", "1.925 or more")
    labels, names = Property.of("rings").classes(["4", "0", "4", "11"])
    assert (labels.tolist(), names) == ([1, 0, 1, 2], ("0", "4", "11"))
    assert [Property("rings").class_of(n, names) for n in (11, 5)] == [2, -1]
    labels, names = Property.of("id").classes(["1000002", "1e6", "1000001.0", "0.1234562", "1000001", "0.1234561"])
    assert (labels.tolist(), names[:2]) == ([4, 2, 3, 1, 3, 0], ("0.1234561", "0.1234562"))
    assert names[2:] == ("1000000", "1000001", "1000002")
    assert Property("id").class_of(1000001, names) == 3
    labels, names = Property.of("y:3").classes(["0.10001", "0.10002", "0.10003", "0.10004"])
    assert (labels.tolist(), names) == ([0, 1, 2, 2], ("below 0.10002", "0.10002 to 0.10003", "0.10003 or more"))
    labels, names = Property.of("colour").classes(["red", "blue", "red"])
    assert (labels.tolist(), names) == ([1, 0, 1], ("blue", "red"))


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("rings:1", "it must be rings, heteroatoms or a column"),
        (
            "smell:3",
            "`data.labels_by` smell has the value 'sweet', and only numbers make classes; leave out the number",
        ),
        ("taste", "no column 'taste' in the header of"),
        ("", "`data.labels` of molecules needs a property"),
    ],
)
def test_a_property_that_makes_no_classes(word, said, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("smiles,smell\n" + "CCO,sweet\nC1CC1,sour\n" * 30)
    with pytest.raises(InputError) as refused:
        prepare(Data("qm9", path=str(path), labels=True, labels_by=word))
    assert said in str(refused.value)


def test_molecules_by_a_property(tmp_path):
    """Each row has the class of its own molecule, counted or of a column; the split and its order are those without classes."""
    path = tmp_path / "a.csv"
    texts = ["CCO", "C1CC1", "C1CC11CC1", "CN", "c1ccccc1"] * 12
    path.write_text("smiles,smell\n" + "".join(f"{text},{'no' if 'C1' in text else 'yes'}\n" for text in texts))
    plain = prepare(Data("qm9", path=str(path)))
    for word, expected in (
        ("rings:2", lambda text: min(text.count("1") // 2, 1)),
        ("smell", lambda text: "C1" not in text),
    ):
        corpus = prepare(Data("qm9", path=str(path), labels=True, labels_by=word))
        rows = corpus.train
        assert corpus.about["classes"] == {"rings:2": ["0", "1+"], "smell": ["no", "yes"]}[word]
        assert np.array_equal(rows.array(), plain.train.array())
        assert rows.labels.tolist() == [expected(corpus.tokenizer.decode(row).strip()) for row in rows.array()]


def test_a_value_on_a_bound_is_in_the_class_above_as_its_name_says():
    found, names = Property.of("mass:3").classes(["0.5", "1.5", "2.5", "2.5", "3.5", "4.5", "1.25"])
    assert names == ("below 1.5", "1.5 to 2.5", "2.5 or more")
    assert found.tolist() == [0, 1, 2, 2, 2, 2, 0]
