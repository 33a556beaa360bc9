"""Is a text a molecule: what RDKit 2026.09.1 answered (`MolFromSmiles`), and the data set itself."""

import csv
import lzma

import pytest

from zellige.data.smiles import is_molecule

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
