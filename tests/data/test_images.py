"""Folders of images, ImageNet's batches, CIFAR-100 and labels: the pixels and classes that were written, and what is refused."""

import gzip
import io
import shutil
import sys
import tarfile
import tracemalloc
import types
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from zellige.base.errors import InputError
from zellige.data import Data, catalogue, image_files
from zellige.data.corpus import as_data
from zellige.data.pixels import read_pixels, smaller
from zellige.data.prepare import prepare

RNG = np.random.default_rng(0)


def save(path, pixels, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **more)
    return pixels


@pytest.fixture
def folder(tmp_path):
    """Two classes, 20 images of 6 x 4 in colours each; their pixels by path."""
    root = tmp_path / "pictures"
    every = {}
    for i in range(40):
        name = f"{('cat', 'dog')[i % 2]}/{i:02}.png"
        every[name] = save(root / name, RNG.integers(0, 256, (6, 4, 3), dtype=np.uint8))
    return root, every


def images(corpus, split):
    return corpus.split(split).array().reshape(-1, *corpus.tokenizer.shape)


def labels(corpus, split):
    return [int(row["condition"]) for row in corpus.split(split)]


# ---------------------------------------------------------------------------------------------------- folders
def test_a_folder_is_read_bit_for_bit(folder, cache):
    root, every = folder
    corpus = prepare(Data("images", path=str(root), labels=True))
    assert corpus.tokenizer.shape == (6, 4, 3)
    assert (corpus.tokenizer.size, corpus.tokenizer.unit) == (256, "dim")
    assert [len(corpus.split(s)) for s in catalogue.SPLITS] == [36, 2, 2]
    assert corpus.about["classes"] == ["cat", "dog"]
    by_pixels = {pixels.tobytes(): name for name, pixels in every.items()}
    names = []
    for split in catalogue.SPLITS:
        for pixels, label in zip(images(corpus, split), labels(corpus, split)):
            names.append(by_pixels[pixels.astype(np.uint8).tobytes()])
            assert names[-1].startswith(("cat", "dog")[label])
    assert sorted(names) == sorted(every)  # each once
    assert {name[:3] for name in names[36:]} == {"cat", "dog"} or names[36:] != sorted(every)[36:]  # shuffled
    assert corpus.train.collate([corpus.train[0], corpus.train[1]]).condition.tolist() == labels(corpus, "train")[:2]
    plain = prepare(Data("images", path=str(root)))
    assert plain.train[0].keys() == {"tokens"}
    assert len([*(cache / "images").iterdir()]) == 1  # the same pixels: labels are always there


def test_labels_stay_with_their_images_block_after_block(folder, monkeypatch):
    monkeypatch.setattr(image_files, "TOGETHER", 7)
    root, every = folder
    of = {pixels.tobytes(): ("cat", "dog").index(name[:3]) for name, pixels in every.items()}
    corpus = prepare(Data("images", path=str(root), labels=True))
    pixels = images(corpus, "train").astype(np.uint8)
    assert labels(corpus, "train") == [of[one.tobytes()] for one in pixels]


def test_the_cache_is_whole_verified_and_made_again(folder, cache):
    root, every = folder
    choice = Data("images", path=str(root), size="3x2", levels=8)
    first = prepare(choice)
    (kept,) = (cache / "images").iterdir()
    assert first.train._tokens.files[0].path == kept / "pixels.bin"  # mapped; a worker opens it itself
    assert read_pixels(kept)["shape"] == [3, 2, 3]
    small = {(smaller(p[None], 3, 2)[0] // 32).tobytes() for p in every.values()}
    assert {x.astype(np.uint8).tobytes() for x in images(first, "train")} < small
    assert first.about["protocol"] == "to 3 x 2 by area means, 256 to 8 levels in equal bins"
    written = (kept / "pixels.bin").stat().st_mtime_ns
    prepare(choice)
    assert (kept / "pixels.bin").stat().st_mtime_ns == written  # not again
    for name in ("pixels.bin", "labels.npy", "meta.json"):
        raw = bytearray((kept / name).read_bytes())
        raw[-3] ^= 1
        (kept / name).write_bytes(raw)
        with pytest.raises(InputError, match=name):
            read_pixels(kept)
        assert np.array_equal(images(prepare(choice), "train"), images(first, "train"))
        assert read_pixels(kept) is not None
    name, pixels = next(iter(every.items()))
    save(root / name, 255 - pixels)
    assert prepare(choice).about["sha256"] != first.about["sha256"]


def test_images_are_never_all_in_memory(tmp_path, cache, monkeypatch):
    """Decoded block by block; then read from the cache."""
    monkeypatch.setattr("zellige.data.image_files.TOGETHER", 4)
    pixels = [save(tmp_path / f"{i}.png", np.full((128, 128, 3), i, np.uint8)) for i in range(100)]
    for _ in range(2):
        tracemalloc.start()
        prepare(Data("images", path=str(tmp_path)))
        assert tracemalloc.get_traced_memory()[1] < 0.6 * sum(image.nbytes for image in pixels)
        tracemalloc.stop()


def test_a_broken_image_leaves_nothing_behind(folder, cache):
    root, _ = folder
    broken = root / "cat" / "38.png"
    broken.write_bytes(broken.read_bytes()[:60])
    with pytest.raises(InputError, match=r"cat/38\.png' is damaged \(.*\); copy it again"):
        prepare(Data("images", path=str(root)))
    assert not cache.exists() or not [*cache.rglob("*")]


def test_splits_of_ones_own(folder):
    root, every = folder
    for i, name in enumerate(sorted(every)):
        split = {0: "val", 1: "test"}.get(i % 10, "train")
        target = root / split / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(root / name, target)
    corpus = prepare(Data("images", path=str(root), labels=True))
    assert [*corpus.rows] == ["train", "validation", "test"]
    assert len(corpus.validation) == 4
    assert corpus.about["classes"] == ["cat", "dog"]
    (root / "val" / "bird").mkdir()
    save(root / "val" / "bird" / "a.png", every["cat/00.png"])
    with pytest.raises(InputError, match=r"bird/a\.png' is of a class without training images; there are cat, dog$"):
        prepare(Data("images", path=str(root), labels=True))


@pytest.mark.parametrize("names", [("train_64x64", "valid_64x64"), ("train-5x4", "Val", "TEST"), ("training", "dev")])
def test_folders_whose_names_say_their_split_are_splits(tmp_path, names):
    """Van den Oord's ImageNet among them: train_64x64 and valid_64x64 were pooled, and cut by a hash of their paths."""
    made = {name: np.full((5, 4, 3), i, np.uint8) for i, name in enumerate(names)}
    for name, pixels in made.items():
        for i in range(20):
            save(tmp_path / name / f"{i}.png", pixels)
    splits = dict(zip(("train", "validation", "test"), names))
    corpus = prepare(Data("images", path=str(tmp_path)))
    assert [*corpus.rows] == [*splits]
    for split, name in splits.items():
        assert np.array_equal(images(corpus, split), np.stack([made[name]] * 20))
    shutil.rmtree(tmp_path / names[0])
    with pytest.raises(
        InputError, match=r"holds validation( and test)? and no train; give the folder that holds train"
    ):
        prepare(Data("images", path=str(tmp_path)))


def test_van_den_oords_imagenet(tmp_path):
    made = {name: RNG.integers(0, 256, (3, 64, 64, 3), dtype=np.uint8) for name in ("train_64x64", "valid_64x64")}
    for name, pixels in made.items():
        for i, image in enumerate(pixels):
            save(tmp_path / name / f"{i:07}.png", image)
    corpus = prepare(Data("imagenet64-oord", path=str(tmp_path)))
    assert np.array_equal(images(corpus, "train"), made["train_64x64"])
    assert np.array_equal(images(corpus, "validation"), made["valid_64x64"])
    assert corpus.test is corpus.validation
    with pytest.raises(InputError, match=r"`data.labels` has no effect on imagenet64-oord"):
        prepare(Data("imagenet64-oord", path=str(tmp_path), labels=True))
    save(tmp_path / "train_64x64" / "0000000.png", made["train_64x64"][0, :32])
    with pytest.raises(InputError, match=r"0\.png' is 32 x 64 x 3, and the images of imagenet64-oord are 64 x 64 x 3"):
        prepare(Data("imagenet64-oord", path=str(tmp_path)))


def test_grey_colours_and_sizes(tmp_path):
    root = tmp_path / "a"
    for i in range(30):
        save(root / f"{i}.png", RNG.integers(0, 256, (5 + i % 2, 5), dtype=np.uint8))
    with pytest.raises(
        InputError, match=r"png' is [56] x 5 and '.*png' is [56] x 5; give `data.size`, e.g. 32 or 48x36$"
    ):
        prepare(Data("images", path=str(root)))
    assert prepare(Data("images", path=str(root), size=4)).tokenizer.shape == (4, 4)
    assert prepare(Data("images", path=str(root), size=4, colours="rgb")).tokenizer.shape == (4, 4, 3)
    with pytest.raises(InputError, match=r"`data.size` is 6; '.*png' is [56] x 5, give 1 to 5$"):
        prepare(Data("images", path=str(root), size=6))
    save(root / "colours.jpg", RNG.integers(0, 256, (5, 5, 3), dtype=np.uint8))
    with pytest.raises(
        InputError, match=r"is (grey|rgb) and .* is (grey|rgb); give `data.colours` rgb or `data.colours` grey"
    ):
        prepare(Data("images", path=str(root), size=4))
    assert prepare(Data("images", path=str(root), size=4, colours="grey")).tokenizer.shape == (4, 4)
    with pytest.raises(
        InputError, match=r"lies in no folder that is its class; give CLASS/x.png, or no `data.labels`$"
    ):
        prepare(Data("images", path=str(root), size=4, colours="grey", labels=True))


def bad(path, kind):
    grey = RNG.integers(0, 256, (6, 4), dtype=np.uint8)
    if kind == "alpha":
        save(path, RNG.integers(0, 256, (6, 4, 4), dtype=np.uint8))
    elif kind == "transparent":
        grey[0, 0] = 3
        save(path, grey, transparency=3)
    elif kind == "16 bits":
        save(path, grey.astype(np.uint16) * 200)
    elif kind == "CMYK":
        Image.fromarray(RNG.integers(0, 256, (6, 4, 4), dtype=np.uint8), "CMYK").save(path, "JPEG")
    elif kind == "text":
        path.write_text("no image")
    elif kind == "cut":
        path.write_bytes(path.read_bytes()[:50])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("alpha", "has an alpha channel; flatten it on a background first, and save it without"),
        ("transparent", "has an alpha channel; flatten it on a background first, and save it without"),
        ("16 bits", "has 16 bits a colour; save it with 8"),
        ("CMYK", "has the colours CMYK; save it with 8 bits, as RGB or grey"),
        ("text", "is no PNG or JPEG image; take it out of the folder, or copy it again"),
        ("cut", "is damaged"),
    ],
)
def test_images_that_are_refused(folder, kind, message):
    root, _ = folder
    bad(root / "dog" / "39.png", kind)
    with pytest.raises(InputError) as error:
        prepare(Data("images", path=str(root)))
    assert str(error.value).startswith(f"'{root / 'dog' / '39.png'}' {message}")


@pytest.mark.parametrize("mode", ["RGBA", "LA", "L", "P", "RGB"])
def test_an_alpha_channel_that_hides_nothing_is_taken(tmp_path, mode):
    """matplotlib writes such. A transparent level or colour that no pixel has hides nothing either."""
    pixels = RNG.integers(0, 250, (30, 6, 4, 3), dtype=np.uint8)
    for i, image in enumerate(pixels):
        made = Image.fromarray(image[..., 0] if mode in ("L", "LA") else image).convert(mode)
        more = {"L": {"transparency": 255}, "RGB": {"transparency": (255, 255, 255)}, "P": {"transparency": 255}}
        made.save(tmp_path / f"{i}.png", **more.get(mode, {}))
    plain = [np.asarray(Image.open(tmp_path / f"{i}.png").convert("L" if "L" in mode else "RGB")) for i in range(30)]
    if mode != "P":  # of 256 colours
        assert np.array_equal(np.stack(plain), pixels[..., 0] if "L" in mode else pixels)
    corpus = prepare(Data("images", path=str(tmp_path)))
    assert corpus.tokenizer.shape == ((6, 4) if "L" in mode else (6, 4, 3))
    read = np.concatenate([images(corpus, split) for split in ("train", "validation", "test")])
    assert sorted(image.astype(np.uint8).tobytes() for image in read) == sorted(image.tobytes() for image in plain)


def test_a_folder_of_too_few_images_says_how_many_it_takes(tmp_path):
    for i in range(11):
        with pytest.raises(InputError, match=f"has {i} rows" if i else "no .png or .jpg") as error:
            prepare(Data("images", path=str(tmp_path)))
        split = "0.05 of them for the validation split is none; give 11 or more, or `data.validation` 1"
        assert not i or str(error.value) == f"'{tmp_path}' has {i} rows, and {split}"
        save(tmp_path / f"{i}.png", RNG.integers(0, 256, (4, 4), dtype=np.uint8))
        if i == 2:
            one = prepare(Data("images", path=str(tmp_path), validation=1, test=1))
            assert [len(one.split(s)) for s in catalogue.SPLITS] == [1, 1, 1]
    corpus = prepare(Data("images", path=str(tmp_path)))
    assert [len(corpus.split(s)) for s in catalogue.SPLITS] == [9, 1, 1]


def test_a_folder_of_images_is_known_as_one(folder):
    folder, _ = folder
    path, end = str(folder), "choose one by `data.name` images or `data.name` text"
    (folder / ".notes.txt").write_text("hidden")
    (folder / "Thumbs.db").write_bytes(b"\0\xff")
    assert as_data(path) == Data("images", path=path)
    there = sum(file.suffix in (".png", ".jpg") for file in folder.rglob("*"))
    for name, texts in (("README", "1 text file"), ("labels.csv", "2 text files")):
        (folder / name).write_text("words\n")
        with pytest.raises(InputError, match=f"' holds {there} images and {texts}, e.g. 'README'; {end}"):
            as_data(path)


def test_folders_that_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("text")
    for data, message in (
        (Data("images", path=str(tmp_path)), "no .png or .jpg file in folder"),
        (Data("images", path=str(tmp_path / "notes.txt")), "is no folder; give one that holds .png and .jpg files"),
        (Data("images"), "`data.name` images needs a folder of .png and .jpg files; give it by `data.path`"),
        (
            Data("images", path="a", size="4 x 4"),
            "`data.size` is '4 x 4'; it must be a whole number, or height x width: 48x36",
        ),
        (
            Data("sudoku", size="4x4"),
            "`data.size` is 4x4; a height and a width are for images, sudoku takes one number",
        ),
        (Data("digits", size="9x4"), "`data.size` is 9x4; the images are 8 x 8, give at most 8x8"),
        (Data("imagenet32"), "`data.name` imagenet32 needs the published batches"),
        (Data("imagenet32", path=str(tmp_path)), "no 'train_data_batch_1.npz' in folder"),
        (
            Data("imagenet64-oord"),
            "`data.name` imagenet64-oord needs the published folders train_64x64 and valid_64x64",
        ),
        (Data("imagenet64-oord", path=str(tmp_path)), "no folder 'train_64x64' in"),
    ):
        with pytest.raises(InputError) as error:
            prepare(data)
        assert message in str(error.value)


def test_sides_that_differ():
    corpus = prepare(Data("digits", size="4x2"))
    assert corpus.tokenizer.shape == (4, 2)
    assert corpus.about["protocol"] == "8 x 8 to 4 x 2 by area means"
    first = prepare(Data("digits")).train[0]["tokens"].numpy().reshape(4, 2, 2, 4).sum((1, 3))
    assert images(corpus, "train")[0].tolist() == ((first + 4) // 8).tolist()


def test_images_of_the_hub_by_any_name(monkeypatch, cache):
    pixels = RNG.integers(0, 256, (60, 6, 5, 3), dtype=np.uint8)

    class Rows(list):
        column_names = ("image", "label")
        features = {"label": types.SimpleNamespace(names=["cat", "dog", "fox"])}  # noqa: RUF012

    row = lambda i: {"image": Image.fromarray(pixels[i]), "label": i % 3}  # noqa: E731
    hub = types.ModuleType("datasets")
    hub.load_dataset = lambda name, configuration, cache_dir: {  # pyright: ignore
        "train": Rows(row(i) for i in range(40)), "test": Rows(row(i) for i in range(40, 60)),
    }  # fmt: skip
    monkeypatch.setitem(sys.modules, "datasets", hub)
    corpus = prepare(Data("images", path="someone/pictures", labels=True))
    assert [len(corpus.split(s)) for s in catalogue.SPLITS] == [38, 2, 20]
    assert np.array_equal(images(corpus, "validation"), pixels[38:40])
    assert np.array_equal(images(corpus, "test"), pixels[40:])
    assert labels(corpus, "test") == [i % 3 for i in range(40, 60)]
    assert corpus.about["classes"] == ["cat", "dog", "fox"]
    hub.load_dataset = lambda *_, **__: {
        "train": Rows({"image": Image.fromarray(pixels[0]), "label": 7} for _ in range(40))
    }
    with pytest.raises(InputError, match=r"has the label 7 in its train split; labels are 0 to 2$"):
        prepare(Data("images", path="someone/others", labels=True))


# ---------------------------------------------------------------------------------------------------- ImageNet
def imagenet(folder, side=32, last=1000):
    """Two small batches and the validation batch; their pixels (N, S, S, 3) and labels from 0."""
    folder.mkdir(exist_ok=True)
    pixels = RNG.integers(0, 256, (25, side, side, 3), dtype=np.uint8)
    numbers = RNG.integers(1, 1001, 25)
    numbers[-1] = last
    parts = {"train_data_batch_1": slice(0, 9), "train_data_batch_2": slice(9, 20), "val_data": slice(20, 25)}
    for name, part in parts.items():
        planes = pixels[part].transpose(0, 3, 1, 2).reshape(-1, 3 * side * side)
        np.savez(folder / f"{name}.npz", data=planes, labels=numbers[part], mean=np.zeros(3 * side * side))
    return pixels, numbers - 1


def test_imagenet_as_published(tmp_path, monkeypatch):
    monkeypatch.setattr("zellige.data.image_files.ROWS_TOGETHER", 4)  # several pieces a batch
    pixels, classes = imagenet(tmp_path / "a")
    corpus = prepare(Data("imagenet32", path=str(tmp_path / "a"), labels=True))
    assert np.array_equal(images(corpus, "train"), pixels[:20])
    assert np.array_equal(images(corpus, "test"), pixels[20:])  # what the literature reports on
    assert labels(corpus, "validation") == classes[20:].tolist()
    assert corpus.about["classes"][:2] == ["1", "2"]
    assert len(corpus.about["classes"]) == 1000
    (tmp_path / "a" / "map_clsloc.txt").write_text("n02119789 1 kit_fox\nn02100735 2 English_setter\n")
    assert prepare(Data("imagenet32", path=str(tmp_path / "a"), labels=True)).about["classes"][:3] == [
        "kit_fox", "English_setter", "3",
    ]  # fmt: skip
    small = prepare(Data("imagenet32", path=str(tmp_path / "a"), size=16, levels=16))
    assert np.array_equal(images(small, "train"), smaller(pixels[:20], 16, 16) // 16)
    with pytest.raises(
        InputError, match=r"holds 9 images of 3,072 numbers and 9 labels; imagenet64 has 12,288 numbers"
    ):
        prepare(Data("imagenet64", path=str(tmp_path / "a")))
    imagenet(tmp_path / "b", last=1001)
    with pytest.raises(InputError, match=r"val_data\.npz' holds the label 1,001; labels are 1 to 1,000$"):
        prepare(Data("imagenet32", path=str(tmp_path / "b")))
    cut = tmp_path / "b" / "train_data_batch_2.npz"
    cut.write_bytes(cut.read_bytes()[:2000])
    with pytest.raises(InputError, match=r"train_data_batch_2\.npz' is damaged"):
        prepare(Data("imagenet32", path=str(tmp_path / "b")))
    np.savez(cut, data=np.zeros((3, 3072), np.uint8))
    with pytest.raises(InputError, match=r"has no array 'labels' \(data\); give the published batches"):
        prepare(Data("imagenet32", path=str(tmp_path / "b")))
    pixels, _ = imagenet(tmp_path / "c", 64)
    assert np.array_equal(images(prepare(Data("imagenet64", path=str(tmp_path / "c"))), "train"), pixels[:20])


# ---------------------------------------------------------------------------------------------------- CIFAR-100, labels
def test_cifar100_as_published(tmp_path):
    """Two label bytes a record, coarse and fine; the fine ones are the classes, by the names in the archive."""
    raw = RNG.integers(0, 256, (30, 3074), dtype=np.uint8)
    raw[:, 0], raw[:, 1] = RNG.integers(0, 20, 30), RNG.integers(0, 100, 30)
    names = [f"thing_{i}" for i in range(100)]
    files = {
        "train.bin": raw[:20].tobytes(), "test.bin": raw[20:].tobytes(),
        "fine_label_names.txt": ("\n".join(names) + "\n").encode(), "coarse_label_names.txt": b"x\n",
    }  # fmt: skip
    with tarfile.open(tmp_path / "cifar-100-binary.tar.gz", "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-100-binary/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    corpus = prepare(Data("cifar100", path=str(tmp_path), labels=True))
    assert [len(corpus.split(s)) for s in catalogue.SPLITS] == [18, 2, 10]
    assert np.array_equal(images(corpus, "test"), raw[20:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    assert labels(corpus, "train") + labels(corpus, "validation") == raw[:20, 1].tolist()
    assert corpus.about["classes"] == names


def test_cifar10_as_it_is_extracted(tmp_path):
    """The folder in the archive, or that in which it lies; the version for Python is not opened, and says what to take."""
    raw = RNG.integers(0, 256, (60, 3073), dtype=np.uint8)
    raw[:, 0] = RNG.integers(0, 10, 60)
    binary = tmp_path / "a" / "cifar-10-batches-bin"
    binary.mkdir(parents=True)
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    for name, part in zip(names, np.split(raw, 6)):
        (binary / name).write_bytes(part.tobytes())
    for place in (binary, tmp_path / "a"):
        corpus = prepare(Data("cifar10", path=str(place), labels=True))
        assert [len(corpus.split(s)) for s in catalogue.SPLITS] == [45, 5, 10]
        assert np.array_equal(images(corpus, "test"), raw[50:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        assert labels(corpus, "train") + labels(corpus, "validation") == raw[:50, 0].tolist()
    (binary / "data_batch_3.bin").unlink()
    with pytest.raises(
        InputError, match=r"batches-bin' lacks 'data_batch_3.bin' of 6 files; extract cifar-10-binary.tar.gz"
    ):
        prepare(Data("cifar10", path=str(binary)))
    python = tmp_path / "b" / "cifar-10-batches-py"
    python.mkdir(parents=True)
    for name in names:
        (python / name.removesuffix(".bin")).write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    for place in (python, tmp_path / "b"):
        with pytest.raises(
            InputError,
            match=r"cifar-10-batches-py' is the version for Python, which is pickled and is not opened; "
            r"give cifar-10-binary.tar.gz \(https://www.cs.toronto.edu/~kriz/cifar.html\), or the folder that is in it$",
        ):
            prepare(Data("cifar10", path=str(place)))
    with pytest.raises(InputError, match=r"no 'cifar-10-binary.tar.gz' in folder"):
        prepare(Data("cifar10", path=str(tmp_path)))


def test_labels_of_mnist(published):
    folder = str(published / "mnist")
    corpus = prepare(Data("mnist", path=folder, labels=True))
    assert corpus.tokenizer.shape == (28, 28)  # the defaults are the papers': whole images of 256 levels
    assert corpus.tokenizer.size == 256
    with gzip.open(published / "mnist" / "train-labels-idx1-ubyte.gz") as file:
        every = list(file.read()[8:])
    assert corpus.train.labels.tolist() == every[:50_000]
    assert corpus.validation.labels.tolist() == every[50_000:]
    assert labels(corpus, "train")[:5] == [5, 0, 4, 1, 9]
    assert corpus.about["classes"] == [*"0123456789"]
    white = prepare(Data("binarized-mnist", path=folder, labels=True))
    assert white.test.labels.tolist() == corpus.test.labels.tolist()


def test_labels_of_cifar_in_arrays(published, tmp_path):
    source = published / "cifar10" / "cifar10_jpegq75_train5k.npz"
    with np.load(source) as archive:
        x, y = archive["x"], archive["y"]
    corpus = prepare(Data("array", kind="image", path=str(source), labels=True))
    assert np.array_equal(images(corpus, "test"), x[-250:])
    assert labels(corpus, "test") == y[-250:].tolist()
    named = prepare(Data("cifar10", path=str(published / "cifar10"), labels=True, size=4))
    assert named.about["classes"][3] == "cat"
    assert named.test.labels.tolist() == np.load(published / "cifar10" / "cifar10_jpegq75_test1k.npz")["y"].tolist()


def test_labels_that_are_refused(tmp_path):
    x = RNG.integers(0, 9, (40, 3, 3))
    path = tmp_path / "a.npz"
    for more, message in (
        ({}, "has no labels of its train split; leave out `data.labels`"),
        ({"y": np.arange(39)}, "rows of its"),
        ({"y": np.ones(40)}, "has float64 labels of shape"),
        ({"y": np.arange(40)}, "has the label 36 in its validation split; labels are 0 to 35"),
        ({"y": np.full(40, -1)}, "has the label -1 in its train split"),
        (
            {"y": np.full(40, 2), "class_names": np.array(["a", "b"])},
            "has the label 2 in its train split; labels are 0 to 1",
        ),
    ):
        np.savez(path, x=x, **more)
        with pytest.raises(InputError) as error:
            prepare(Data("array", kind="image", path=str(path), labels=True))
        assert message in str(error.value), message
    with pytest.raises(InputError, match=r"`data.labels` has no effect on sudoku"):
        prepare(Data("sudoku", labels=True))
    own = prepare(Data.of(x, 9, kind="image", labels=np.arange(40) % 4))
    assert labels(own, "test") == [38 % 4, 39 % 4]


# ---------------------------------------------------------------------------------------------------- texts
def test_topics_of_ag_news(published):
    import csv

    path = published / "ag_news" / "test.csv"
    with path.open(newline="", encoding="utf-8") as file:
        every = [(int(row[0]) - 1, f"{row[1]} {row[2]}") for row in csv.reader(file)]
    data = Data("ag_news", path=str(path), tokenizer="bytes", pack="document", labels=True)
    corpus = prepare(data, 256)
    assert corpus.about["classes"] == ["World", "Sports", "Business", "Sci/Tech"]
    pieces = []  # longer texts are several rows, each of the class of the whole
    for label, text in every:
        pieces += [label] * max(-(-(len(text.encode()) + 1) // 256), 1)
    assert corpus.test.labels.tolist() == pieces
    assert "segments" in corpus.test[0]
    assert int(corpus.test[0]["condition"]) == every[0][0]
    assert corpus.tokenizer.decode(corpus.test[0]["tokens"])[:20] == every[0][1][:20]
    with pytest.raises(InputError, match=r"a row must be one document: `data.pack` document$"):
        prepare(replace(data, pack="packed"), 256)


def test_labels_of_ones_own_texts(tmp_path):
    """An empty text is no row, and its label no label; a column of classes alone asks for them, one document a row."""
    texts = [f"line {i}" if i % 7 else "" for i in range(40)]
    lines = [f'{{"text": "{text}", "label": {i % 3 * 5}, "topic": {i % 2}}}' for i, text in enumerate(texts)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    data = Data("text", path=str(path), tokenizer="bytes", pack="document", labels=True)
    corpus = prepare(data, 16)
    assert corpus.about["classes"] == ["0", "5", "10"]
    assert [i for s in catalogue.SPLITS for i in labels(corpus, s)] == [i % 3 for i in range(40) if i % 7]
    by = prepare(Data("text", path=str(path), tokenizer="bytes", labels_by="topic"), 16)
    assert (by.about["classes"], by.about["pack"]) == (["0", "1"], "document")
    assert [i for s in catalogue.SPLITS for i in labels(by, s)] == [i % 2 for i in range(40) if i % 7]
    path.write_text("\n".join([*lines, '{"text": "new", "label": "x"}']))
    with pytest.raises(InputError, match=r"has the label 'x', which no training text has; there are 0, 5, 10$"):
        prepare(data, 16)
    path.write_text("\n".join(f'{{"text": "line", "label": "a{i}"}}' for i in range(10, 50)))
    with pytest.raises(InputError, match=r"the label 'a46', which .*; there are a10, a11, a12, a13, a14, \.\.\.$"):
        prepare(data, 16)
    path.write_text("\n".join([*lines, '{"text": "new"}']))
    with pytest.raises(InputError, match=r"no column 'label' in line 41 of .* \(text\); leave out `data.labels`$"):
        prepare(data, 16)
    for none in ("null", '""', "[1]", "{}", "NaN"):
        path.write_text("\n".join([*lines, f'{{"text": "new", "label": {none}}}']))
        with pytest.raises(
            InputError, match=r"^line 41 of .* has no label; write a word or a number as its 'label', or"
        ):
            prepare(data, 16)
    path.write_text("\n".join(line.replace('label": 5', 'label": 5.0') for line in lines[::-1]))
    assert prepare(data, 16).about["classes"] == ["0", "5", "10"]
    (tmp_path / "a.csv").write_text("text,label\n" + "line,a\n" * 40 + "new,\n")
    with pytest.raises(InputError, match=r"^line 42 of .* has no label"):
        prepare(data.replaced(path=str(tmp_path / "a.csv")), 16)
    (tmp_path / "a.txt").write_text("line\n" * 50)
    with pytest.raises(InputError, match=r"is text without a column 'label'"):
        prepare(Data("text", path=str(tmp_path / "a.txt"), tokenizer="bytes", pack="document", labels=True), 16)
