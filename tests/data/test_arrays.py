"""Data that is not text: known pixels, pitches and grids of the real files; making small and symmetry against brute force."""

import csv
import gzip
import io
import itertools
import json
import lzma
import mmap
import sys
import tarfile
import types
from fractions import Fraction

import numpy as np
import pytest
import torch

import zellige
from zellige.base.errors import InputError
from zellige.data import DATASETS, Data, catalogue
from zellige.data.array_source import cut_splits
from zellige.data.images import cifar_images, idx
from zellige.data.pixels import overlap, quantised, smaller
from zellige.data.prepare import prepare
from zellige.plugins.kinds.puzzles.sudoku import grids4, invariants, puzzles_and_solutions, solved, symmetric
from zellige.show.kinds import of


def rows(corpus, split="train"):
    return corpus.split(split).array()


# ---------------------------------------------------------------------------------------------------- making small
@pytest.mark.parametrize(("old", "new"), [(8, 4), (28, 14), (28, 7), (7, 5), (5, 5), (9, 1)])
def test_smaller_is_the_mean_by_area(old, new):
    """Brute force: every pixel cut into new x new equal parts, the parts of a new pixel averaged in exact fractions."""
    x = np.random.default_rng(0).integers(0, 256, (3, old, old, 2), dtype=np.uint8)
    fine = x.repeat(new, 1).repeat(new, 2)  # each part now belongs to one new pixel
    found = smaller(x, new, new)
    assert found.shape == (3, new, new, 2)
    for n, i, j, c in itertools.product(range(3), range(new), range(new), range(2)):
        part = fine[n, i * old : (i + 1) * old, j * old : (j + 1) * old, c]
        mean = Fraction(int(part.sum()), part.size)
        assert found[n, i, j, c] == int(mean + Fraction(1, 2))  # half up
    assert (overlap(old, new).sum(1) == old).all()
    assert (overlap(old, new).sum(0) == new).all()


def test_a_divisor_is_a_mean_of_blocks():
    x = np.random.default_rng(1).integers(0, 256, (2, 28, 28), dtype=np.uint8)
    blocks = x.reshape(2, 14, 2, 14, 2).astype(int).sum((2, 4))
    assert np.array_equal(smaller(x, 14, 14), (blocks + 2) // 4)
    assert np.array_equal(smaller(x, 28, 28), x)


def test_bins_are_equally_wide():
    every = np.arange(256, dtype=np.uint8)
    assert np.array_equal(np.bincount(quantised(every, 256, 8)), [32] * 8)
    assert np.array_equal(quantised(every, 256, 2), every >= 128)
    assert np.array_equal(quantised(every, 256, 256), every)
    assert set(np.bincount(quantised(every, 256, 100))) == {2, 3}


# ---------------------------------------------------------------------------------------------------- images
def test_digits():
    corpus = prepare(Data("digits"))
    assert [len(corpus.split(s)) for s in catalogue.SPLITS] == [1437, 180, 180]
    assert rows(corpus)[0][:8].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    tokenizer = corpus.tokenizer
    assert (tokenizer.kind, tokenizer.shape, tokenizer.size, tokenizer.unit, tokenizer.ordered) == (
        "image", (8, 8), 17, "dim", True,
    )  # fmt: skip
    every = np.concatenate([rows(corpus, s) for s in catalogue.SPLITS])
    assert every.sum() == 561718
    small = prepare(Data("digits", size=4, levels=4))
    first = rows(corpus)[0].reshape(4, 2, 4, 2).sum((1, 3))
    assert rows(small)[0].tolist() == ((first + 2) // 4 * 4 // 17).ravel().tolist()
    assert small.about["protocol"] == "8 x 8 to 4 x 4 by area means, 17 to 4 levels in equal bins"
    json.dumps(small.about)


def test_mnist(published):
    folder = str(published / "mnist")
    corpus = prepare(Data("mnist", path=folder))
    assert [len(corpus.split(s)) for s in catalogue.SPLITS] == [50_000, 10_000, 10_000]
    first = corpus.train[0]["tokens"].numpy().reshape(28, 28)  # a five
    assert first[5, 12:20].tolist() == [3, 18, 18, 18, 126, 136, 175, 26]
    assert first.sum() == 27525
    with gzip.open(published / "mnist" / "t10k-images-idx3-ubyte.gz") as file:
        last = np.frombuffer(file.read(), np.uint8)[-784:]
    assert np.array_equal(rows(corpus, "test")[-1], last)
    assert corpus.about["sha256"]["train"] == DATASETS["mnist"].files["train"][1]
    assert corpus.about["sha256"]["test"] == DATASETS["mnist"].files["test"][1]
    small = prepare(Data("mnist", path=folder, size=14, levels=8))
    blocks = first.reshape(14, 2, 14, 2).sum((1, 3))
    assert np.array_equal(small.train[0]["tokens"].reshape(14, 14), (blocks + 2) // 4 * 8 // 256)
    white = prepare(Data("binarized-mnist", path=folder))
    assert white.tokenizer.size == 2
    shares, levels = rows(white, "test").mean(0), rows(corpus, "test").mean(0) / 255  # of 10,000 images at each place
    assert (
        np.abs(shares - levels).max() < 0.025
    )  # 784 means of 10,000 draws: P(miss) < 784 * 2 exp(-2 * 10,000 * 0.025^2) < 6e-3
    assert np.array_equal(
        rows(white, "test"), rows(prepare(Data("binarized-mnist", path=folder)), "test")
    )  # drawn once
    black, full = rows(corpus, "test") == 0, rows(corpus, "test") == 255
    assert not rows(white, "test")[black].any()
    assert rows(white, "test")[full].all()


def test_images_of_the_hub(monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (60, 6, 6), dtype=np.uint8)

    class Column(dict):
        column_names = property(lambda self: [*self])

    hub = types.ModuleType("datasets")
    hub.load_dataset = lambda name, configuration, split, cache_dir: Column(
        image=pixels[: 60 if split == "train" else 5]
    )  # pyright: ignore
    monkeypatch.setitem(sys.modules, "datasets", hub)
    corpus = prepare(Data("mnist", path="ylecun/mnist"))
    assert [len(corpus.split(s)) for s in catalogue.SPLITS] == [50, 10, 5]
    assert np.array_equal(rows(corpus, "validation"), pixels[50:].reshape(10, 36))
    assert corpus.about["hub"] == "ylecun/mnist"


def test_an_idx_file_that_is_none(tmp_path):
    whole = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 1, 5, 6, 7, 8])
    path = tmp_path / "a"
    path.write_bytes(whole)
    assert idx(path).tolist() == [[[5], [6]], [[7], [8]]]
    for wrong in (b"", whole[:3], whole[:10], b"\0\0\x0d\3" + whole[4:], whole[1:], whole[:-1], whole + b"1"):
        path.write_bytes(wrong)
        with pytest.raises(InputError, match=r"is not an idx file of bytes|does not hold the 2 x 2 x 1 bytes"):
            idx(path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(whole)[:20])
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(whole)
    with pytest.raises(InputError, match="is damaged"):
        prepare(Data("mnist", path=str(tmp_path)))
    (tmp_path / "t10k-images-idx3-ubyte").unlink()
    with pytest.raises(InputError, match=r"no 't10k-images-idx3-ubyte.gz' in folder"):
        prepare(Data("fashion-mnist", path=str(tmp_path)))


def test_larochelles_draw(tmp_path):
    bits = np.random.default_rng(0).integers(0, 2, (12, 784))
    for name in ("train", "valid", "test"):
        np.savetxt(tmp_path / f"binarized_mnist_{name}.amat", bits, fmt="%d")
    (tmp_path / "binarized_mnist_test.amat.xz").write_bytes(
        lzma.compress((tmp_path / "binarized_mnist_test.amat").read_bytes())
    )
    (tmp_path / "binarized_mnist_test.amat").unlink()
    corpus = prepare(Data("binarized-mnist", path=str(tmp_path)))
    assert all(np.array_equal(rows(corpus, split), bits) for split in ("validation", "test"))
    assert corpus.about["protocol"] == "binarised by one fixed draw (Larochelle)"


def cifar_record(label, red, green, blue):
    return bytes([label]) + b"".join(np.full(1024, c, np.uint8).tobytes() for c in (red, green, blue))


def test_cifar_as_published(tmp_path):
    """The layout of the binary version: label, then the red, green and blue planes, row by row."""
    planes = np.arange(3072, dtype=np.int64) % 251
    image = cifar_images(b"\7" + planes.astype(np.uint8).tobytes())[0]
    for row, column, colour in ((0, 0, 0), (0, 1, 0), (1, 0, 0), (31, 31, 2), (5, 7, 1)):
        assert image[row, column, colour] == planes[colour * 1024 + row * 32 + column]
    archive = tmp_path / "cifar-10-binary.tar.gz"
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    with tarfile.open(archive, "w:gz") as file:
        for i, name in enumerate(names):
            raw = b"".join(cifar_record(i, 10 * i + j, 2, 3) for j in range(4))
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(raw)
            file.addfile(member, io.BytesIO(raw))
    for path in (archive, tmp_path):
        corpus = prepare(Data("cifar10", path=str(path)))
        assert corpus.tokenizer.shape == (32, 32, 3)
        assert [len(corpus.split(s)) for s in catalogue.SPLITS] == [18, 2, 4]
        assert rows(corpus)[5][:6].tolist() == [11, 2, 3, 11, 2, 3]
        assert rows(corpus, "test")[0][:3].tolist() == [50, 2, 3]
    archive.write_bytes(archive.read_bytes()[:100])
    with pytest.raises(InputError, match=r"damaged|holds no whole 'data_batch_1.bin'"):
        prepare(Data("cifar10", path=str(archive)))


def test_local_copies_of_cifar(published):
    corpus = prepare(Data("cifar10", path=str(published / "cifar10"), size=8, levels=16))
    assert [len(corpus.split(s)) for s in catalogue.SPLITS] == [4500, 500, 1000]
    with np.load(published / "cifar10" / "cifar10_jpegq75_train5k.npz") as archive:
        first = archive["x"][0].astype(int)
    means = first.reshape(8, 4, 8, 4, 3).sum((1, 3))
    assert np.array_equal(rows(corpus)[0].reshape(8, 8, 3), (means + 8) // 16 * 16 // 256)


# ---------------------------------------------------------------------------------------------------- music
def test_chorales(published):
    path = published / "jsb-chorales" / "Jsb16thSeparated.json.xz"
    found = json.loads(lzma.decompress(path.read_bytes()))
    for given in (path, path.parent):
        corpus = prepare(Data("jsb-chorales", path=str(given)))
        tokenizer = corpus.tokenizer
        assert (tokenizer.kind, tokenizer.shape, tokenizer.unit, tokenizer.ordered) == ("roll", (128, 4), "note", True)
        assert tokenizer.labels == (-1, *range(36, 82))
        labels = np.array(tokenizer.labels)
        piece = np.array(found["test"][0])
        assert labels[rows(corpus, "test")[0]].tolist() == piece[:128].ravel().tolist()
        train = np.array(found["train"][0])
        begins = range(0, len(train) - 127, 16)
        for row, begin in zip(rows(corpus), begins):
            assert labels[row].tolist() == train[begin : begin + 128].ravel().tolist()
    assert [len(corpus.split(s)) for s in ("validation", "test")] == [
        sum(len(p) // 128 for p in found[s]) for s in ("valid", "test")
    ]
    silent = sum(row.count(-1) for p in found["train"] for row in p)
    assert silent
    assert (prepare(Data("jsb-chorales", path=str(path), size=1)).train.array() == 0).any()
    with pytest.raises(InputError, match=r"`data.size` is 641; it is the steps of a row, give 1 to 640"):
        prepare(Data("jsb-chorales", path=str(path), size=641))


def test_lakh_pianorolls_in_the_layout_of_their_authors(tmp_path):
    """train.npy and test.npy (N, 256) of 129 shuffled states, and the pitch of each; written as they were read."""
    generator = np.random.default_rng(0)
    key = generator.permutation(129)
    found = {split: generator.integers(0, 129, (n, 256)) for split, n in (("train", 40), ("test", 7))}
    for split, states in found.items():
        np.save(tmp_path / f"{split}.npy", states)
    data = Data("lakh-pianoroll", path=str(tmp_path), given="prefix:32")
    plain = prepare(data)
    assert plain.tokenizer.labels == ()
    np.savetxt(tmp_path / "descramble_key.txt", key)
    corpus = prepare(data)
    tokenizer = corpus.tokenizer
    assert (tokenizer.kind, tokenizer.shape, tokenizer.unit, tokenizer.ordered) == ("roll", (256, 1), "note", False)
    assert {split: len(corpus.split(split)) for split in ("train", "validation", "test")} == {
        "train": 38, "validation": 2, "test": 7,
    }  # fmt: skip
    assert corpus.test.array().tolist() == found["test"].tolist()
    assert corpus.train.tokens_total == 38 * 224
    assert corpus.test[0]["mask"].tolist() == [False] * 32 + [True] * 224
    pitches = of(tokenizer).pitches(corpus.test.array())[..., 0]
    assert (pitches == np.where(key[found["test"]] == 128, -1, key[found["test"]])).all()
    for states, message in (
        (found["test"] + 1, "holds 129; states are 0 to 128"),
        (found["test"] * 0.5, "and type float64; give whole numbers"),
        (found["test"][:, :9], "melodies of 9 and 256 sixteenths; give one length"),
    ):
        np.save(tmp_path / "test.npy", states)
        with pytest.raises(InputError, match=message):
            prepare(data)
    np.save(tmp_path / "test.npy", found["test"])
    (tmp_path / "descramble_key.txt").write_text("1 2 3")
    with pytest.raises(InputError, match="is no order of the pitches 0 to 128; remove it"):
        prepare(data)
    with pytest.raises(InputError, match=r"lakh-pianoroll needs a folder with train\.npy and test\.npy"):
        prepare(Data("lakh-pianoroll", path=str(tmp_path / "test.npy")))


@pytest.mark.parametrize(("steps", "rows_of", "lost"), [(5, 8, 3 + 1), (16, 2, 11 + 9), (20, 2, 7 + 1)])
def test_short_rows_of_chorales_have_no_gaps(steps, rows_of, lost, tmp_path):
    """Of 43 sixteenths to train and 41 to test: training rows hop a bar, or less where they are shorter."""
    path, piece = tmp_path / "a.json", [[40 + i, 41 + i, 42 + i, -1] for i in range(43)]
    path.write_text(json.dumps({"train": [piece], "valid": [piece[:steps]], "test": [piece[:41]]}))
    corpus = prepare(Data("jsb-chorales", path=str(path), size=steps))
    assert len(corpus.train) == rows_of
    assert corpus.about["left_out"] == [f"{lost} of {84 + steps} sixteenths, the ends of pieces, which fill no row"]


def test_what_is_no_chorale(tmp_path):
    path = tmp_path / "a.json"
    of = lambda *pieces: json.dumps({"train": pieces, "valid": [], "test": []})  # noqa: E731
    pitches = [of([[60, 55, pitch, 48]] * 128) for pitch in (128, 300, -2, 60.7, 10**30, "60")]
    for wrong in ("[]", "{}", "null", of([1, 2]), *pitches):
        path.write_text(wrong)
        with pytest.raises(InputError, match="does not hold four-voice chorales"):
            prepare(Data("jsb-chorales", path=str(path)))
    for wrong in (of(), of([]), of([[-1] * 4] * 128)):
        path.write_text(wrong)
        with pytest.raises(InputError, match=r"a\.json' holds no note; give Jsb16thSeparated\.json$"):
            prepare(Data("jsb-chorales", path=str(path)))
    for wrong, said in (("no", "is not JSON"), ("[" * 100_000, "is nested too deep")):
        path.write_text(wrong)
        with pytest.raises(InputError, match=rf"a\.json' {said}; give Jsb16thSeparated\.json$"):
            prepare(Data("jsb-chorales", path=str(path)))


# ---------------------------------------------------------------------------------------------------- puzzles
def test_all_288(published):
    grids = grids4()
    assert len(grids) == 288
    with (published / "sudoku" / "sudoku4_288.csv").open() as file:
        table = [row["Solution"] for row in csv.DictReader(file, delimiter="\t")]
    assert sorted(table) == ["".join(map(str, grid.ravel() + 1)) for grid in grids]
    corpus = prepare(Data("sudoku"))
    assert all(np.array_equal(rows(corpus, s), grids.reshape(288, 16)) for s in catalogue.SPLITS)
    assert corpus.tokenizer.decode(corpus.train[0]["tokens"]) == "1234\n3412\n2143\n4321"
    assert not corpus.tokenizer.ordered


def test_solved_by_brute_force():
    rng = np.random.default_rng(0)
    grids = np.concatenate([grids4()[:20], rng.permuted(grids4(), axis=1)[:200], rng.integers(0, 4, (50, 4, 4))])

    def good(grid):
        groups = [*grid, *grid.T, *(grid[i : i + 2, j : j + 2].ravel() for i in (0, 2) for j in (0, 2))]
        return all(len({*group}) == 4 for group in groups)

    assert solved(grids).tolist() == [good(grid) for grid in grids]


def test_sudokus_of_nine(published):
    path = published / "sudoku" / "sudoku9_pairs.csv.xz"
    puzzles, solutions = puzzles_and_solutions(path)
    corpus = prepare(Data("sudoku", size=9, path=str(path)))
    counts = [len(corpus.split(s)) for s in catalogue.SPLITS]
    assert counts == [5523, 307, 307]
    test = corpus.test
    assert np.array_equal(test.array(), solutions[-307:].reshape(-1, 81) - 1)
    assert np.array_equal(test.clues, puzzles[-307:].reshape(-1, 81).astype(int) - 1)
    known = test.clues >= 0
    assert np.array_equal(test.clues[known], test.array()[known])
    assert 17 <= known.sum(1).min() <= known.sum(1).max() < 81
    puzzle = "".join(".123456789"[d + 1] for d in test.clues[0])
    assert corpus.tokenizer.encode(puzzle) == test.clues[0].tolist()
    more = prepare(Data("sudoku", size=9, path=str(path), augment=2))
    every = more.train.array()
    assert len(every) == 3 * counts[0]
    assert solved(every.reshape(-1, 9, 9)).all()
    assert np.array_equal(every[: counts[0]], corpus.train.array())
    assert len(np.unique(every, axis=0)) > 2.99 * counts[0]
    held = set(invariants(test.array().reshape(-1, 9, 9) + 1))
    assert not held & set(invariants(every.reshape(-1, 9, 9) + 1))


def test_symmetries_of_sudoku(published):
    _, solutions = puzzles_and_solutions(published / "sudoku" / "sudoku9_pairs.csv.xz")
    grids = solutions[:300]
    images = symmetric(grids, np.random.default_rng(3))
    assert solved(images).all()
    assert (images != grids).any((1, 2)).all()
    assert invariants(images) == invariants(grids)  # what all symmetries share ...
    assert len(set(invariants(grids))) == 300  # ... and different grids do not
    same = symmetric(np.broadcast_to(grids[:1], (4000, 9, 9)), np.random.default_rng(0))
    assert len(np.unique(same, axis=0)) > 3990
    for digit in range(1, 10):  # every digit comes to the corner alike often
        assert abs((same[:, 0, 0] == digit).mean() - 1 / 9) < 0.025


def test_a_puzzle_and_its_solution_have_one_image(published):
    """A copy keeps the puzzle: what is given in it is given in the solution. With `given` puzzle these cells do not count."""
    path = published / "sudoku" / "sudoku9_pairs.csv.xz"
    puzzles, solutions = (x[:50] for x in puzzles_and_solutions(path))
    images = symmetric(np.stack((puzzles, solutions), 1), np.random.default_rng(1))
    assert np.array_equal(images[:, 1], symmetric(solutions, np.random.default_rng(1)))
    at = images[:, 0] > 0
    assert np.array_equal(at.sum((1, 2)), (puzzles > 0).sum((1, 2)))
    assert np.array_equal(images[:, 0][at], images[:, 1][at])
    corpus = prepare(Data("sudoku", size=9, path=str(path), augment=1, given="puzzle"))
    for rows in (corpus.train, corpus.test):
        assert np.array_equal(rows[len(rows) - 1]["mask"].numpy(), rows.clues[-1] < 0)
        assert rows.tokens_total == (rows.clues < 0).sum()
        assert np.array_equal(rows.clues[rows.clues >= 0], rows.array()[rows.clues >= 0])
    with pytest.raises(InputError, match="puzzle is for sudokus of 9 x 9"):
        prepare(Data("sudoku", given="puzzle"))


def test_a_twin_of_a_held_out_grid_is_left_out(tmp_path, published):
    _, solutions = puzzles_and_solutions(published / "sudoku" / "sudoku9_pairs.csv.xz")
    held, other = solutions[:2], solutions[2:22]
    twins = symmetric(held, np.random.default_rng(5))
    every = np.concatenate([twins[:1], other, twins[1:], held])
    lines = ["quizzes,solutions"]  # as Kaggle's file has them
    for grid in every:
        solution = "".join(map(str, grid.ravel()))
        lines.append(f"{solution[:40]}{'0' * 41},{solution}")
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines))
    corpus = prepare(Data("sudoku", path=str(path), validation=1, test=1))
    assert np.array_equal(corpus.train.array(), other.reshape(-1, 81) - 1)
    assert corpus.about["protocol"] == "2 symmetric twins of held-out grids left out of training"
    for wrong in ("1" * 81 + "," + "1" * 81, "1,2", lines[1][::-1]):
        path.write_text("\n".join([*lines, wrong]))
        with pytest.raises(InputError, match=r"line 26 of '.*' is not a"):
            prepare(Data("sudoku", path=str(path)))


# ---------------------------------------------------------------------------------------------------- texts of one length
def test_molecules(published):
    path = published / "molecules" / "qm9_smiles.csv.xz"
    corpus = prepare(Data("qm9", path=str(path)))
    lines = lzma.decompress(path.read_bytes()).decode().split()[1:]
    found = [corpus.tokenizer.decode(row) for s in catalogue.SPLITS for row in rows(corpus, s)]
    assert sorted(found) == sorted(lines)
    assert corpus.tokenizer.shape == (29,)
    assert corpus.tokenizer.kind == "smiles"
    assert sum(r.characters for r in corpus.rows.values()) == sum(len(line) + 1 for line in lines)
    assert np.array_equal(rows(corpus), rows(prepare(Data("qm9", path=str(path)))))


def test_dna(published, tmp_path):
    path = published / "dna" / "dnabert_ft_dev.csv"
    corpus = prepare(Data("dna", path=str(path)))
    lines = [line.split(",")[0] for line in path.read_text().splitlines()[1:]]
    assert corpus.tokenizer.decode(corpus.train[0]["tokens"]) == lines[0]
    assert corpus.tokenizer.decode(corpus.test[49]["tokens"]) == lines[-1]
    assert (corpus.tokenizer.size, corpus.tokenizer.shape, corpus.tokenizer.unit) == (4, (101,), "char")
    (tmp_path / "a.csv").write_text("sequence\nACGT\nACG\n")
    with pytest.raises(InputError, match="has sequences of 3 to 4 bases; give one length"):
        prepare(Data("dna", path=str(tmp_path / "a.csv")))


# ---------------------------------------------------------------------------------------------------- arrays
def test_own_arrays(tmp_path):
    x = np.random.default_rng(0).integers(0, 7, (100, 3, 5))
    x[0, 0, 0] = 6
    np.save(tmp_path / "a.npy", x)
    corpus = prepare(Data("array", path=str(tmp_path / "a.npy")))
    assert corpus.tokenizer.to_dict() | {"shape": (3, 5)} == {
        "zellige": "levels", "size": 7, "shape": (3, 5), "kind": "grid", "unit": "cell", "ordered": False, "labels": [],
    }  # fmt: skip
    assert [len(corpus.split(s)) for s in catalogue.SPLITS] == [90, 5, 5]
    assert np.array_equal(np.concatenate([rows(corpus, s) for s in catalogue.SPLITS]), x.reshape(100, 15))
    held = corpus.train._tokens
    while isinstance(held, np.ndarray):
        held = held.base
    assert isinstance(held, mmap.mmap)  # a .npy is mapped, not read into memory
    np.savez(tmp_path / "b.npz", x_train=x[:80], x_test=x[80:], y_train=np.arange(80))
    parts = prepare(Data("array", path=str(tmp_path / "b.npz"), vocabulary=9, kind="image", validation=10))
    assert (parts.tokenizer.size, parts.tokenizer.kind, parts.tokenizer.ordered) == (9, "image", True)
    assert [len(parts.split(s)) for s in catalogue.SPLITS] == [70, 10, 20]
    assert np.array_equal(rows(parts, "test"), x[80:].reshape(20, 15))
    given = Data.of(torch.as_tensor(x), 7)
    assert np.array_equal(rows(prepare(given)), x[:90].reshape(90, 15))
    assert prepare(Data.of(x, 7, kind="image", size=2, levels=3)).tokenizer.shape == (2, 2)


@pytest.mark.parametrize(
    ("array", "choices", "message"),
    [
        (np.zeros((9, 2, 2)), {}, "has shape (9, 2, 2) and type float64; give whole numbers, (N, ...)"),
        (np.zeros(9, int), {}, "has shape (9,) and type int64; give whole numbers, (N, ...)"),
        (np.full((9, 2), -3), {}, "holds -3; entries must be 0 or more"),
        (np.full((9, 2), 12), {"vocabulary": 12}, "holds 12; entries must be from 0 to 11"),
        (np.ones((9, 2), int), {"kind": "image"}, "has rows of shape (2,); images are (height, width)"),
        (np.array([{}, []], object), {}, "holds objects, which are pickled; refused: save it as an array of integers"),
    ],
)  # fmt: skip
def test_arrays_that_are_refused(tmp_path, array, choices, message):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=array)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(InputError) as error:
            prepare(Data("array", path=str(tmp_path / name), **choices))
        assert str(error.value).startswith(f"'{tmp_path / name}' {message}")


def test_files_that_are_no_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.ones((3, 2), int), b=np.ones((3, 2), int))
    with pytest.raises(InputError, match="has arrays a, b; name them train, validation and test"):
        prepare(Data("array", path=str(tmp_path / "a.npz")))
    np.savez(tmp_path / "a.npz", train=np.ones((3, 2), int), test=np.ones((3, 3), int))
    with pytest.raises(InputError, match="has rows of different shapes"):
        prepare(Data("array", path=str(tmp_path / "a.npz")))
    for name in ("b.npy", "b.npz"):
        (tmp_path / name).write_bytes(b"text")
        with pytest.raises(InputError, match=r"is not a \.npy or \.npz file|pickled"):
            prepare(Data("array", path=str(tmp_path / name)))


def test_cut_in_order():
    x = np.arange(100)
    entry = DATASETS["digits"]
    parts = cut_splits({"all": x}, Data("digits"), entry)
    assert {name: (p[0], p[-1]) for name, p in parts.items()} == {
        "train": (0, 79),
        "validation": (80, 89),
        "test": (90, 99),
    }
    parts = cut_splits({"train": x, "test": x[:7]}, Data("digits", validation=3), entry)
    assert [len(parts[s]) for s in catalogue.SPLITS] == [97, 3, 7]
    assert [*cut_splits({"all": x}, Data("digits", validation=0, test=0), entry)] == ["train"]
    with pytest.raises(InputError, match="digits has 100 rows, the test split would take 100"):
        cut_splits({"all": x}, Data("digits", test=100), entry)


# ---------------------------------------------------------------------------------------------------- end to end
TINY = zellige.Net(layers=1, hidden=16, heads=2, condition=8)


def settings(steps):
    return zellige.Train(steps=steps, batch=4, validate_rows=4, samples=1, sample_steps=4, tensorboard=False)


@pytest.fixture
def run(tmp_path):
    return zellige.train("mdlm", data=Data("digits", size=4), net=TINY, train=settings(4), run=tmp_path / "a")


def test_a_run_on_digits(run, tmp_path):
    assert run.config.net.length == 16
    assert run.config.net.grid == (4, 4)
    assert run.validation.unit == "bits/dim"
    model = zellige.load(run.folder)
    assert model.tokenizer.shape == (4, 4)
    assert model.method.ordered
    result = zellige.evaluate(model, draws=2, limit=20)
    assert result.unit == "bits/dim"
    assert result.units == 20 * 16
    assert abs(result.value - np.log2(17)) < 1  # untrained: about uniform
    assert result.protocol["packing"] == "digits: 8 x 8 to 4 x 4 by area means"
    (text,) = model.text(prepare(Data("digits", size=4)).test[0]["tokens"])
    assert [len(line.split()) for line in text.splitlines()] == [4, 4, 4, 4]
    assert len(zellige.sample(model, steps=4, count=2)) == 2
    assert zellige.report.write(run.folder).stat().st_size > 1000
    with pytest.raises(InputError, match=r"use `data.size` 4 `data.levels` 17"):
        zellige.evaluate(model, "digits")
    with pytest.raises(InputError, match="the run was trained on 4 x 4 images of 17 levels, and this data is text"):
        zellige.evaluate(model, "pydocs")


def test_resumed_with_the_network_that_was_given(run, tmp_path):
    """The shape is the data's: the same --net as at the start continues the run, with the same numbers as unbroken."""
    again = {"data": Data("digits", size=4), "net": TINY}
    zellige.train("mdlm", **again, train=settings(8), run=run.folder, resume=True)
    zellige.train("mdlm", **again, train=settings(4), run=tmp_path / "b")
    zellige.train("mdlm", train=settings(8), run=tmp_path / "b", resume=True)
    a, b = (zellige.load(folder, checkpoint="last").method.state_dict() for folder in (run.folder, tmp_path / "b"))
    assert all(torch.equal(a[name], b[name]) for name in a)
    with pytest.raises(InputError, match=r"`resume` with `data.size` 8, but the run has 4"):
        zellige.train("mdlm", data=Data("digits", size=8), run=run.folder, resume=True)
    with pytest.raises(InputError, match=r"`resume` with `net.layers` 2, but the run has 1"):
        zellige.train("mdlm", net=zellige.Net(2, 16, 2, condition=8), run=run.folder, resume=True)


def test_stopped_and_resumed_is_unbroken(tmp_path):
    choices = {"data": Data("sudoku"), "net": TINY}
    whole = zellige.Train(steps=6, batch=4, validate_rows=4, samples=0, save_every=3, tensorboard=False, keep=9)
    zellige.train("mdlm", **choices, train=whole, run=tmp_path / "a")
    import shutil

    shutil.copytree(tmp_path / "a", tmp_path / "b", symlinks=True)
    shutil.rmtree(tmp_path / "b" / "checkpoints" / "step-000006")
    run = zellige.train("mdlm", run=tmp_path / "b", resume=True)
    a, b = (zellige.load(tmp_path / name, checkpoint="last").method.state_dict() for name in "ab")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert run.validation.unit == "bits/cell"


def test_a_length_of_ones_own(tmp_path):
    with pytest.raises(InputError) as error:
        zellige.train("mdlm", data="digits", net=zellige.Net(length=100), run=tmp_path / "a")
    assert str(error.value) == "`net.length` is 100, the rows of digits have 8 x 8 = 64; leave it out"
    with pytest.raises(InputError, match=r"`net.grid` is 4 x 16, the rows of digits are 8 x 8; leave it out"):
        zellige.train("mdlm", data="digits", net=zellige.Net(length=64, grid=(4, 16)), run=tmp_path / "a")
    assert not (tmp_path / "a").exists()
