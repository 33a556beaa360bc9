"""A model that was told classes: sampled, filled and judged by name, from Python and on the command line, saved and loaded."""

import html
import json
import shutil

import numpy as np
import pytest
import torch

import zellige
from zellige.base.errors import InputError
from zellige.cli import main
from zellige.core.batch import Batch
from zellige.data import Data
from zellige.models.class_names import class_names, find_classes
from zellige.plugins import report
from zellige.plugins.evaluations.generate.samples import real_images
from zellige.plugins.evaluations.pairs.choices import Question
from zellige.plugins.evaluations.pairs.request import EvaluatePairs
from zellige.show.terminal import Terminal

NET = zellige.Net(layers=1, hidden=16, heads=2, condition=8)
FEW = {"batch": 4, "validate_rows": 4, "samples": 3, "sample_steps": 4, "tensorboard": False}
ANIMALS = ["cat", "dog", "fox"]


def animals(path):
    """3 x 3 images of 4 levels, whose class is their level: dark cats, grey dogs, bright foxes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    x = np.minimum(y[:, None, None] + (rng.random((300, 3, 3)) < 0.1), 3)
    np.savez(path, x=x, y=y, class_names=np.array(ANIMALS))
    return x, y


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    animals(folder / "a.npz")
    data = Data("array", path=str(folder / "a.npz"), kind="image", labels=True)
    return zellige.train(
        "md4",
        data=data,
        net=NET,
        train=zellige.Train(steps=300, lr=1e-2, warmup=10, **(FEW | {"batch": 16})),
        run=folder / "run",
    )


@pytest.fixture(scope="module")
def model(run):
    return zellige.load(run.folder)


def test_names_and_numbers(model):
    assert class_names(model) == ANIMALS
    assert find_classes(model, "dog").tolist() == [1]
    assert find_classes(model, ["fox", 0, "2"]).tolist() == [2, 0, 2]
    assert find_classes(model, torch.tensor([1, 2])).tolist() == [1, 2]
    for wrong, message in (
        ("cta", "unknown class 'cta'; did you mean 'cat'? the 3 are cat, dog, fox"),
        ("Dog", "unknown class 'Dog'; did you mean 'dog'? the 3 are cat, dog, fox"),
        (3, "unknown class '3'; the 3 are cat, dog, fox"),
        (-1, "unknown class '-1'; the 3 are cat, dog, fox"),
        (1.5, "a class is 1.5; it must be a name or a number"),
    ):
        with pytest.raises(InputError) as error:
            zellige.sample(model, classes=wrong, steps=2)
        assert str(error.value) == message


def test_the_network_learns_what_a_class_looks_like(model):
    """Of 9 pixels, each of its class's level with probability 0.9: the mean level tells classes apart by far more than chance."""
    drawn = zellige.sample(model, classes=ANIMALS, count=30, steps=9, seed=1)
    assert drawn.shape == (90, 3, 3)
    levels = drawn.reshape(3, -1).mean(1)
    assert np.abs(levels - (np.arange(3) + 0.1)).max() < 0.35
    alone = zellige.sample(model, classes="dog", count=30, steps=9, seed=1)
    assert abs(alone.mean() - 1.1) < 0.35
    again = zellige.sample(model, classes=["dog"], count=30, steps=9, seed=1, batch=7)
    assert np.array_equal(alone, again)
    mixed = zellige.sample(model, count=60, steps=9, seed=1).reshape(60, -1).mean(1)
    assert mixed.min() < 0.5
    assert mixed.max() > 1.7  # without a class, all of them


def test_the_bound_given_the_class_is_lower(run, model):
    """A class is log2(3) / 9 bits per dimension here, less what the pixels give away themselves."""
    given, without = zellige.evaluate(model), zellige.evaluate(model, unconditional=True)
    assert given.protocol["class"] == "given the class"
    assert without.protocol["class"] == "without the class"
    assert given.value < without.value - 0.05
    assert given.file_name == "evaluate-array-test.json"
    assert without.file_name == "evaluate-array-test-unconditional.json"
    shutil.copytree(run.folder, copy := run.folder.parent / "copy", symlinks=True)
    assert zellige.evaluate(zellige.load(copy)).value == given.value
    unlabelled = Data("array", path=str(run.folder.parent / "a.npz"), kind="image")
    assert zellige.evaluate(model, unlabelled).value == without.value


def test_other_classes_are_refused(run, model, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "b.npz", x=rng.integers(0, 4, (90, 3, 3)), y=rng.integers(0, 3, 90))
    data = Data("array", path=str(tmp_path / "b.npz"), kind="image", labels=True)
    with pytest.raises(InputError, match=r"the model knows the classes cat, dog, fox, the data has 0, 1, 2; leave out"):
        zellige.evaluate(model, data)
    other = zellige.train(
        "md4", data=Data("digits", size=3), net=NET, train=zellige.Train(steps=1, **FEW), run=tmp_path / "o"
    )
    with pytest.raises(InputError, match=r"trained without classes; leave the class out, or train with `data\.labels`"):
        zellige.sample(other.folder, classes="cat")
    with pytest.raises(InputError, match="the model was trained without classes, and the data has labels"):
        zellige.evaluate(other.folder, Data("digits", size=3, labels=True))
    assert "class" not in zellige.evaluate(other.folder, limit=4).protocol


def test_infill_of_a_class(model):
    fixed = np.full((3, 3), -1)
    fixed[0] = 1
    drawn = zellige.infill(model, fixed=fixed.ravel(), classes=["dog", "fox"], count=20, steps=9)
    assert drawn.shape == (40, 3, 3)
    assert (drawn[:, 0] == 1).all()
    rows = zellige.infill(model, fixed=np.stack([fixed.ravel(), fixed.ravel()]), classes="dog", count=5, steps=9)
    assert rows.shape == (2, 5, 3, 3)
    with pytest.raises(InputError, match="2 classes and 2 rows of `fixed`; give one class, or one row"):
        zellige.infill(model, fixed=np.stack([fixed.ravel()] * 2), classes=["dog", "cat"], steps=4)


def test_real_images_are_of_the_classes_that_were_asked_for(model):
    """What FID compares with, and what stands beside; its images are about as bright as their class's number."""
    terminal = Terminal(quiet=True)
    reference, floor = real_images("test", model, None, 10, [2, 2], terminal)
    assert reference.name == "array test of these classes"
    assert reference.rows.mean(1).min() > 1.5
    assert floor.rows.mean(1).min() > 1.5
    assert len(floor.rows) == 10
    every = [real_images("test", model, None, 10, classes, terminal) for classes in ([], [0, 1, 2])]
    assert [reference.name for reference, _ in every] == ["array test"] * 2
    assert np.array_equal(every[0][0].rows, every[1][0].rows)


def test_saved_and_loaded(model, tmp_path):
    folder = model.save(tmp_path / "saved")
    back = zellige.load(folder)
    assert class_names(back) == ANIMALS
    a, b = (zellige.sample(m, classes="fox", count=3, steps=4) for m in (model, back))
    assert np.array_equal(a, b)


def test_frames_and_the_page_show_the_class(run, model):
    frames = [*zellige.watch(model, classes=["cat", "fox"], count=2, steps=3, batch=3)]
    assert [frame.classes for frame in frames if frame.step == 3] == [("cat", "cat", "fox"), ("fox",)]
    lines = sorted((run.folder / "samples").glob("*.jsonl"))[-1].read_text().splitlines()
    assert [json.loads(line)["class"] for line in lines] == ANIMALS
    page = report.write(run.folder).read_text()
    assert 'value="1">2, class dog</option>' in page
    assert "cat, dog, fox" in page


# ---------------------------------------------------------------------------------------------------- the command line
def test_the_command_line(run, capsys, tmp_path):
    folder, out = str(run.folder), tmp_path / "a.jsonl"
    assert main(["sample", folder, "--class", "cat", "fox", "--count", "2", "--steps", "4", "--out", str(out)]) == 0
    assert [json.loads(line)["class"] for line in out.read_text().splitlines()] == ["cat", "cat", "fox", "fox"]
    assert main(["infill", folder, "--class", "1", "--keep", "top", "--steps", "4", "--out", str(out)]) == 0
    assert json.loads(out.read_text())["class"] == "dog"
    capsys.readouterr()
    assert main(["evaluate", folder, "--draws", "2"]) == 0
    text = capsys.readouterr().out
    assert " given the class   perplexity" in text
    assert "given the class, " in text.replace("\n            ", " ").partition("protocol")[2]
    assert main(["evaluate", folder, "--draws", "2", "--unconditional"]) == 0
    assert "without the class" in capsys.readouterr().out
    assert main(["sample", folder, "--class", "cow"]) == 2
    assert "unknown class 'cow'" in capsys.readouterr().err


def test_data_that_lies_elsewhere_by_now(run, capsys, tmp_path):
    """Named by what can be typed, in every command; labels, kind and name stay the run's own."""
    folder, own = tmp_path / "run", run.folder.parent / "a.npz"
    shutil.copytree(run.folder, folder, symlinks=True)
    for config in folder.rglob("config.json"):
        entries = json.loads(config.read_text().replace(str(own), str(tmp_path / "gone.npz")))
        entries.pop("checksum", None)
        config.write_text(json.dumps(entries))
    for sums in folder.rglob("SHA256SUMS"):
        sums.unlink()
    draw = [
        "infill",
        str(folder),
        "--example",
        "1",
        "--keep",
        "top",
        "--steps",
        "2",
        "--out",
        str(tmp_path / "a.jsonl"),
    ]
    judge = ["evaluate", str(folder), "--draws", "2", "--limit", "4"]
    for words in (draw, [*judge, "--steps", "2"], judge):
        assert main(words) == 2
        assert "gone.npz" in capsys.readouterr().err
        assert main([*words, "--data.path", str(own)]) == 0
    assert "given the class" in capsys.readouterr().out
    assert main(["evaluate", "--from", str(next(folder.glob("evaluate-*.json")))]) == 0
    assert "the same number, bit for bit" in capsys.readouterr().out
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    assert "needs the run's texts: no file at " in html.unescape(page)
    assert "`data.path`" not in page


def test_trained_from_the_command_line(tmp_path, capsys):
    words = ["--net.layers", "1", "--net.hidden", "16", "--net.heads", "2", "--train.steps", "2", "--train.batch", "4"]
    words += [
        "--train.validate-rows",
        "4",
        "--train.samples",
        "2",
        "--train.sample-steps",
        "2",
        "--train.label-dropout",
        "0.2",
    ]
    data = ["--data.name", "digits", "--data.size", "4x2", "--data.labels", "--data.flip"]
    assert main(["train", "mdlm", *data, *words, "--run", str(tmp_path / "a")]) == 0
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    assert config["net"]["classes"] == 10
    assert config["about"]["data"]["classes"] == [*"0123456789"]
    assert config["data"]["size"] == "4x2"
    assert main(["sample", str(tmp_path / "a"), "--class", "7", "--steps", "2"]) == 0
    assert main(["train", "mdlm", *data, *words, "--data.labels", "--run", str(tmp_path / "b")]) == 2  # given twice
    plain = ["--data.name", "digits", "--data.size", "4"]
    assert main(["train", "mdlm", *plain, *words[:-2], "--run", str(tmp_path / "c")]) == 0
    capsys.readouterr()
    assert main(["sample", str(tmp_path / "c"), "--class", "7"]) == 2
    assert "leave the class out, or train with" in capsys.readouterr().err


@pytest.mark.parametrize("methods", [("mdlm", "ar"), pytest.param(("mdlm", "ar", "bd3lm"), marks=pytest.mark.long)])
def test_topics_as_classes(methods, tmp_path, capsys):
    """AG News' form: a class a text, told to a network of words, a document a row; causal ones and blocks too."""
    rng = np.random.default_rng(0)
    lines = [f'"{k + 1}","{"abcd"[k] * rng.integers(2, 5)}","{"abcd"[k]}"' for k in rng.integers(0, 4, 400)]
    for name in ("train.csv", "test.csv"):
        (tmp_path / name).write_text("\n".join(lines))
    data = Data("ag_news", path=str(tmp_path), tokenizer="characters", pack="document", fill=8, labels=True)
    net = zellige.Net(layers=1, hidden=16, heads=2, length=8, condition=8)
    for method in methods:
        settings = zellige.Train(steps=120, lr=1e-2, warmup=5, **(FEW | {"batch": 32, "samples": 4}))
        run = zellige.train(method, data=data, net=net, train=settings, run=tmp_path / method)
        model = zellige.load(run.folder)
        assert class_names(model) == ["World", "Sports", "Business", "Sci/Tech"]
        texts = zellige.sample(model, classes=["World", "Sci/Tech"], count=20, seed=2)
        first, last = "".join(texts[:20]), "".join(texts[20:])
        assert first.count("a") > 0.7 * sum(map(first.count, "abcd")), method
        assert last.count("d") > 0.7 * sum(map(last.count, "abcd")), method
        given, without = zellige.evaluate(model, limit=40), zellige.evaluate(model, limit=40, unconditional=True)
        assert given.value < without.value
        record = Question("", ("aaa", "ddd"), label="World")
        scored, other, none = (EvaluatePairs([record], draws=4, **how).run(model).nats
                               for how in ({}, {"classes": "3"}, {"unconditional": True}))  # fmt: skip
        assert scored[0] < none[0] < other[0], method
        assert other[1] < none[1] < scored[1], method
        if method == "ar":  # exact: by the bound of the rows themselves, told the class
            rows = Batch(torch.tensor([model.tokenizer.encode("aaa")] * 2), condition=torch.tensor([0, -1]))
            assert model.method.bound(rows).tolist() == pytest.approx([float(scored[0]), float(none[0])], rel=1e-5)
    file = tmp_path / "pairs.jsonl"
    lines = [{"continuation": "aaa", "class": "World"}, {"continuation": "ddd"}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for words, what in (
        ([], "given the class, of lines that have one"),
        (["--class", "Sports"], "given the class Sports"),
        (["--unconditional"], "without the class"),
    ):
        saved = tmp_path / "out.json"
        pairs = ["evaluate", str(tmp_path / "ar"), "--pairs", str(file), *words]
        assert main([*pairs, "--json", str(saved)]) == 0
        assert f" {what}   perplexity" in capsys.readouterr().out
        assert json.loads(saved.read_text())["protocol"]["class"] == what
    judged = ["evaluate", str(tmp_path / "mdlm"), "--generate", "--judge", str(tmp_path / "ar"), "--reference", "none"]
    judged += ["--count", "8", "--steps", "4", "--out", str(tmp_path / "out")]
    for words, what in (
        ([], "without the class"),
        (["--class", "World"], "given the class, World"),
        (["--class", "Sports", "0"], "given the class, Sports, World in turn"),
        (["--class", "all"], "given the class, all in turn"),
    ):
        assert main([*judged, *words]) == 0
        assert what in " ".join(capsys.readouterr().out.split())
        assert json.loads((tmp_path / "out" / "generate-ar.json").read_text())["protocol"]["class"] == what
    drawn = [json.loads(line) for line in (tmp_path / "out" / "generate.jsonl").read_text().splitlines()]
    assert [line["class"] for line in drawn] == ["World", "Sports", "Business", "Sci/Tech"] * 2
    assert main([*judged, "--class", "Worldd"]) == 2
    assert "did you mean 'World'" in capsys.readouterr().err
    assert main([*pairs, "--class", "Sports"]) == 2
    assert "leave one of the two out" in capsys.readouterr().err
