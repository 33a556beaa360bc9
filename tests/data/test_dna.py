"""DNA of FASTA and FASTQ files, in windows; the other strand."""

import gzip
import random

import pytest
import torch

from zellige import InputError
from zellige.core.batch import Batch
from zellige.data import Data, prepare
from zellige.nn import Net
from zellige.plugins.kinds.dna.windows import LENGTH, complement
from zellige.training.order import Augmentation

RANDOM = random.Random(0)
CHROMOSOMES = ["".join(RANDOM.choices("ACGTacgt", k=n)) for n in (403, 57, 9)] + ["N" * 45 + "ACGTA"]


def write(path, sequences, width=60):
    """Lines of `width` bases; a comment, an empty line and line ends of another system are no bases."""
    lines = ["; a comment"]
    for i, sequence in enumerate(sequences):
        lines += [f">chr{i} of a test", *(sequence[k : k + width] for k in range(0, len(sequence), width)), ""]
    path.write_bytes(gzip.compress("\r\n".join(lines).encode()) if path.suffix == ".gz" else "\n".join(lines).encode())
    return Data("dna", path=str(path))


def windows(corpus):
    parts = (corpus.rows[s] for s in ("train", "validation", "test"))
    return [corpus.tokenizer.decode(part[i]["tokens"]) for part in parts for i in range(len(part))]


@pytest.mark.parametrize("name", ["a.fa", "a.fasta.gz"])
def test_windows_of_fasta(name, tmp_path):
    corpus = prepare(write(tmp_path / name, CHROMOSOMES), 10)
    meant = [s[i : i + 10].upper() for s in CHROMOSOMES for i in range(0, len(s) - 9, 10)]
    kept = [w for w in meant if w.count("N") <= 5]
    assert len(kept) == len(meant) - 4  # "NNNNNACGTA" is half known
    assert windows(corpus) == kept
    assert corpus.about["left_out"] == [
        "19 of 519 bases at the ends of sequences, which fill no window", "4 of 50 windows, which are mostly N",
    ]  # fmt: skip
    assert "lower case as upper case" in corpus.about["read"][0]


def test_the_default_window(tmp_path):
    """That of a network, but for sequences of one length."""
    assert Net().length == LENGTH
    for sequences, length in ((["ACGTA"] * 30, 5), (["ACGT" * 9000], LENGTH), (["ACG" * 400, "ACGT" * 9000], LENGTH)):
        assert prepare(write(tmp_path / "a.fa", sequences)).tokenizer.shape == (length,)


def test_fastq(tmp_path):
    path = tmp_path / "reads.fq"
    reads = ["".join(RANDOM.choices("ACGTN", k=n, weights=[9, 9, 9, 9, 1])) for n in [20, 25, 8] * 20]
    path.write_text(
        "".join(f"@read {i}\n{read}\n+\n{'@' * len(read)}\n" for i, read in enumerate(reads))
    )  # @: a quality, too
    data = Data("dna", path=str(path))
    assert windows(prepare(data, 10)) == [r[k : k + 10] for r in reads for k in range(0, len(r) - 9, 10)]
    path.write_text("\n@a\nACGT\n+\n!!!!\n\n\n@b\n\n+\n\n@c\nTTGAC\n+c\n!!!!!\n\n" * 6)  # b has no bases
    assert windows(prepare(data, 4)) == ["ACGT", "TTGA"] * 6
    for text, line in [
        ("@a\nACGT\n+\n!!!!\n\nACGT\n", "line 6 of '.*' does not begin with @"),
        ("@a\nACGT\n+\n!!!\n", "line 4 of '.*' has 3 qualities for 4 bases"),
        ("@a\nACGT\n+\n!!!!\nACGT\n", "line 5 of '.*' does not begin with @"),
        ("@a\nACGT\n!!!!\n@b\n", r"line 3 of '.*' does not begin with \+"),
        ("@a\nACGT\n", "ends in the middle of a read"),
    ]:
        path.write_text(text)
        with pytest.raises(InputError, match=line):
            prepare(data, 4)


def test_other_letters_are_refused(tmp_path):
    data = write(tmp_path / "a.fa", ["ACGT" * 20, "ACGT" * 20 + "ACRT"])
    with pytest.raises(
        InputError, match=r"line 8 of '.*a.fa' has the letter 'R'; DNA has A, C, G, T, and N for a base"
    ):
        prepare(data, 4)
    (tmp_path / "a.fa").write_text("ACGT\n")
    with pytest.raises(InputError, match=r"line 1 of '.*' stands before any header"):
        prepare(data, 4)
    with pytest.raises(InputError, match=r"has no window of 300 known bases \(160 bases in 2 sequences\)"):
        prepare(write(tmp_path / "a.fa", ["ACGT" * 20] * 2), 300)


def test_the_other_strand(tmp_path):
    """In half of the rows, off by 0.02 with probability at most 2 exp(-2 n 0.02^2) = 2e-14 (Hoeffding); in parts as in one."""
    tokenizer = prepare(write(tmp_path / "a.fa", CHROMOSOMES), 10).tokenizer
    other = complement(tokenizer)
    encode = lambda text: torch.tensor(tokenizer.encode(text))  # noqa: E731
    assert tokenizer.decode(torch.tensor(other)[encode("GATTACANNC")].flip(0).tolist()) == "GNNTGTAATC"
    row = encode("GATTACANNC")
    before, change = Batch(row.expand(400, -1)), Augmentation(3, 1, complement=other)
    after = torch.cat([change(before, step, 0).tokens for step in range(100)])
    same, changed = ((after == x).all(1) for x in (row, encode("GNNTGTAATC")))
    assert (same | changed).all()
    assert abs(float(changed.double().mean()) - 0.5) < 0.02
    part = Augmentation(3, 2, complement=other)(Batch(row.expand(200, -1)), 7, 1).tokens
    assert torch.equal(part, change(before, 7, 0).tokens[1::2])
    for alphabet in ("ACGTX", "ACG"):
        (tmp_path / "a.csv").write_text("sequence\n" + f"{alphabet}\n" * 40)
        with pytest.raises(InputError, match="the data has '[XC]', without a complement" if "X" in alphabet else "'A'"):
            prepare(Data("dna", path=str(tmp_path / "a.csv"), reverse_complement=True))
