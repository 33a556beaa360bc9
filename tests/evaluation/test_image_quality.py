"""FID and its kin: against torch-fidelity's numbers, on copies of a set, in the features of networks that are saved and read."""

import json
import math
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import zellige
from zellige import Data, Net, cli
from zellige.base.errors import InputError
from zellige.data.levels import Levels
from zellige.data.prepare import prepare
from zellige.evaluation import image_quality, metrics
from zellige.evaluation.image_quality import Views, frechet, inception, kernel_distance, radii, within
from zellige.evaluation.interval import Proportion, student
from zellige.evaluation.metrics import METRICS, measure_images
from zellige.methods import build
from zellige.models.config import Config
from zellige.models.model import Model
from zellige.nn.classifier import ImageClassifier
from zellige.plugins.evaluations.generate import image_features
from zellige.plugins.evaluations.generate.image_features import features_of, trained
from zellige.plugins.evaluations.generate.samples import SamplesRecord
from zellige.plugins.report.sweep import sweep_figure
from zellige.show import kinds

WIDTH = 16


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    """The digits of scikit-learn, (1797, 8, 8, 3) uint8."""
    images = np.rint(load_digits().images * 255 / 16).astype(np.uint8)
    return np.repeat(images[..., None], 3, -1)


@pytest.fixture(scope="module")
def record(tmp_path_factory) -> image_features.FeaturesRecord:
    folder = tmp_path_factory.mktemp("features") / "seen"
    return zellige.evaluations.TrainFeatures(str(folder), Data("digits"), width=WIDTH, epochs=8).run()


@pytest.fixture
def folder(record, tmp_path) -> Path:
    """A copy of the classifier's folder."""
    return Path(shutil.copytree(record.request.folder, tmp_path / "seen"))


@pytest.fixture(scope="module")
def features(record):
    return features_of(record.request.folder)


def blurred(x: np.ndarray) -> np.ndarray:
    padded = np.pad(x.astype(float), ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    return np.rint(sum(padded[:, i : i + 8, j : j + 8] for i in range(3) for j in range(3)) / 9).astype(np.uint8)


def noised(x: np.ndarray, sigma: float) -> np.ndarray:
    noise = np.random.default_rng(0).normal(0, sigma, (*x.shape[:3], 1))
    return np.rint(np.clip(x + noise, 0, 255)).astype(np.uint8)


# ---------------------------------------------------------------------------------------------------- the formulas
def precision_recall(samples: torch.Tensor, real: torch.Tensor) -> tuple[float, float]:
    return float(within(samples, real, radii(real)).mean()), float(within(real, samples, radii(samples)).mean())


@pytest.mark.filterwarnings("ignore:std")  # of one split
def test_the_numbers_are_those_of_torch_fidelity():
    """Recorded from the functions of torch-fidelity 0.4.0, with subsets of all rows (KID) and one split (Inception score)."""
    draws = np.random.default_rng(0)
    x = torch.from_numpy(draws.standard_normal((60, 6)))
    y = torch.from_numpy(1.2 * draws.standard_normal((50, 6)) + 0.3)
    assert frechet(x, y) == pytest.approx(1.5096206551289661, rel=1e-9)
    assert kernel_distance(x[:50], y) == pytest.approx(0.39057665583329504, rel=1e-9)
    assert precision_recall(x, y) == pytest.approx((0.9666666388511658, 0.7200000286102295), abs=1e-6)
    assert inception(x, 1)[0] == pytest.approx(1.368668195823019, rel=1e-9)


def test_the_inception_score_has_the_interval_of_the_mean_of_its_splits():
    """Each split by its definition, in the order in which the library shuffles them."""
    logits = 3 * torch.randn(53, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        order = torch.randperm(53)
    scores = []
    for p in logits[order].softmax(-1).chunk(10):
        scores.append(float((p * (p.log() - p.mean(0).log())).sum(-1).mean().exp()))
    half = student(len(scores) - 1) * np.std(scores, ddof=1) / math.sqrt(len(scores))
    found = metrics.inception_score(logits)
    assert found.value == pytest.approx(np.mean(scores))
    assert found.half == pytest.approx(half)


def test_the_numbers_are_those_of_the_installed_torch_fidelity():
    """The same, where the extra is there."""
    try:
        from torch_fidelity import metric_fid as theirs  # pyright: ignore[reportMissingImports]
    except (ImportError, RuntimeError):
        pytest.skip("the extra 'fid' is not installed")
    x, y = torch.randn(300, 6, dtype=torch.float64), torch.randn(200, 6, dtype=torch.float64).exp()
    of = [theirs.fid_features_to_statistics(z) for z in (x, y)]
    assert frechet(x, y) == pytest.approx(theirs.fid_statistics_to_metric(*of, False)[theirs.KEY_METRIC_FID], rel=1e-9)


def test_precision_and_recall_by_their_definition():
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(30, 2, generator=g), torch.randn(40, 2, generator=g) + 1

    def covered(points, centres) -> float:
        reach = [sorted(math.dist(c, other) for other in centres.tolist())[3] for c in centres.tolist()]
        hits = [any(math.dist(p, c) <= r for c, r in zip(centres.tolist(), reach)) for p in points.tolist()]
        return sum(hits) / len(hits)

    assert precision_recall(x.double(), y.double()) == (covered(x, y), covered(y, x))


def test_the_library_with_our_network_on_the_images(features, pixels):
    """Features handed over, and the network handed over, are the same number."""
    from torchmetrics.image.fid import FrechetInceptionDistance

    class Network(torch.nn.Module):
        num_features = WIDTH

        def forward(self, x):
            return features.read(x)[0].double()

    metric = FrechetInceptionDistance(feature=Network())
    metric.update(torch.from_numpy(pixels[:600]), real=True)
    metric.update(torch.from_numpy(pixels[600:1100]), real=False)
    ours = frechet(features.views(pixels[600:1100]).features, features.views(pixels[:600]).features)
    assert ours == pytest.approx(float(metric.compute()), rel=1e-6)


def test_jackknife_of_a_mean_is_students_of_the_groups():
    x = torch.from_numpy(np.random.default_rng(1).standard_normal(50))
    number = image_quality.jackknife(lambda rows: float(rows.mean()), x)
    groups = x.reshape(5, 10).mean(0)
    assert number.value == pytest.approx(float(x.mean()))
    assert number.half == pytest.approx(student(9) * float(groups.std()) / math.sqrt(10))


# ---------------------------------------------------------------------------------------------------- copies of a set
def test_of_a_set_and_its_copies(features, pixels):
    """Against itself 0; half of itself is near it, two halves are nearer than a blurred copy; more noise is further away."""
    whole = features.views(pixels)
    itself = measure_images(whole, whole)
    assert itself["FID"].value == pytest.approx(0, abs=1e-9)
    assert itself["precision"].value == itself["recall"].value == 1
    assert itself["KID"].value <= 0  # unbiased, and the same images stand on both sides
    half, other = features.views(pixels[:900]).features, features.views(pixels[900:]).features
    of = lambda x: frechet(features.views(x).features, whole.features)  # noqa: E731
    distances = [frechet(half, whole.features), frechet(half, other), of(noised(pixels, 60)), of(noised(pixels, 120))]
    assert distances == sorted(distances)
    assert distances[0] > 1e-3
    assert of(blurred(pixels)) > distances[1]
    far = measure_images(features.views(noised(pixels, 120)), whole)
    assert far["FID"].low > distances[1]
    assert far["recall"].high < 1
    assert far["KID"].low > 0


def test_precision_and_recall_go_by_their_own_names():
    """Samples in the middle of the real images: all of them are good, and they do not reach far."""
    draw = torch.Generator().manual_seed(0)
    x, y = 0.3 * torch.randn(60, 3, generator=draw), torch.randn(80, 3, generator=draw)
    measured = measure_images(
        Views(x, torch.randn(60, 4, generator=draw)), Views(y, torch.randn(80, 4, generator=draw))
    )
    by_definition = precision_recall(x.double(), y.double())
    assert (measured["precision"].value, measured["recall"].value) == pytest.approx(by_definition)
    assert by_definition[0] > by_definition[1] + 0.2
    right = Proportion(round(60 * by_definition[0]), 60)  # all or nearly all: Student's interval would have no width
    assert measured["precision"] == right.number
    assert measured["precision"].half > 0.02


def test_fid_is_biased_in_n_and_kid_is_not(features, pixels):
    """Of random parts of one set: FID falls with n; KID stays about 0."""
    views = features.views(pixels).shuffled(0)
    parts = {n: [views.features[i : i + n] for i in range(0, 1600, 2 * n)] for n in (50, 200, 400)}
    others = {n: [views.features[i : i + n] for i in range(n, 1600, 2 * n)] for n in parts}
    distances = [float(np.mean([frechet(x, y) for x, y in zip(parts[n], others[n])])) for n in parts]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 2 * distances[-1]
    kernel = [kernel_distance(x, y) for x, y in zip(parts[50], others[50])]
    assert abs(np.mean(kernel)) < 3 * np.std(kernel) / math.sqrt(len(kernel))


def test_the_same_seed_the_same_numbers(features, pixels):
    views, real = features.views(pixels[:200]), features.views(pixels[200:500])
    state = torch.random.get_rng_state()
    assert measure_images(views, real, 3) == measure_images(views, real, 3) != measure_images(views, real, 4)
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize(("samples", "real"), [(WIDTH, 200), (200, WIDTH)])
def test_fewer_than_the_rank_needs(samples, real):
    of = lambda n: Views(torch.zeros(n, 32), torch.zeros(n, 2))  # noqa: E731
    with pytest.raises(InputError, match="needs more than 32"):
        measure_images(of(samples + 8), of(real + 8))


# ---------------------------------------------------------------------------------------------------- feature networks
def test_features_are_written_and_read(record, features, folder):
    config = record.config
    data = prepare(Data("digits", labels=True))
    images = kinds.of(data.tokenizer).pixels(data.split("test").array())
    right = features.views(images).logits.argmax(1).numpy() == data.split("test").labels
    assert config.accuracy == right.mean() > 0.8
    assert "not Inception" in features.about.name
    weights = bytearray((folder / image_features.WEIGHTS).read_bytes())
    weights[-3] ^= 1
    (folder / image_features.WEIGHTS).write_bytes(weights)
    with pytest.raises(InputError, match="has changed since it was written"):
        features_of(str(folder))


def test_the_record_of_features_is_read_and_names_what_made_it(record, tmp_path):
    record.save(tmp_path / "r.json")
    assert zellige.Record.load(tmp_path / "r.json") == record
    assert record.holds(replace(record, config=replace(record.config, accuracy=0.5))) == {"accuracy": ""}


def test_images_of_another_size_and_colours(pixels):
    """A colour network takes grey images; a grey one refuses colours; another size is resized."""
    torch.manual_seed(0)

    def of(colours: int):
        config = image_features.FeatureConfig(
            "x", "", 8, 8, colours, ["a", "b"], 4, epochs=1, seed=0, accuracy=1.0, tested=1
        )
        return trained(ImageClassifier(colours, 2, 4).eval(), config, "")

    assert of(3).views(pixels[:5]).features.shape == (5, 4)
    large = pixels[:5].repeat(2, 1).repeat(2, 2)
    near, there = of(1).views(large).features, of(1).views(pixels[:5]).features
    assert near.shape == there.shape
    coloured = pixels[:5].copy()
    coloured[..., 0] += 1
    with pytest.raises(InputError, match="grey images"):
        of(1).views(coloured)


def test_inception_by_its_hash_alone(tmp_path, monkeypatch, pixels):
    """Of the library what counts is how it is asked: which layers, which file; a file of another hash is never opened."""
    asked = []

    class Extractor(torch.nn.Module):
        def __init__(self, name, layers, feature_extractor_weights_path):
            super().__init__()
            asked.append((name, layers, feature_extractor_weights_path))

        def forward(self, x):
            assert x.dtype == torch.uint8
            assert x.shape[1] == 3
            return x.flatten(1).float(), x.mean((2, 3), dtype=torch.float32)

    package = SimpleNamespace(FeatureExtractorInceptionV3=Extractor, URL_INCEPTION_V3="https://nowhere.invalid/w.pth")
    monkeypatch.setitem(sys.modules, "torch_fidelity", SimpleNamespace(feature_extractor_inceptionv3=package))
    file = tmp_path / "weights.pth"
    file.write_bytes(b"stand-in")
    with pytest.raises(InputError, match="another sha256"):
        features_of(str(file))
    assert asked == []
    monkeypatch.setattr(image_features, "SHA256", image_features.sha256(file))
    features = features_of(str(file))
    assert asked == [("inception-v3-compat", ["2048", "logits_unbiased"], str(file))]
    assert features.views(pixels[:3]).features.shape == (3, 8 * 8 * 3)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(InputError, match="cannot be downloaded"):
        features_of("inception")
    (tmp_path / "checkpoints" / "w.pth").write_bytes(b"stand-in")  # as the download leaves it
    features_of("inception")
    assert asked[-1][-1] == str(tmp_path / "checkpoints" / "w.pth")


# ---------------------------------------------------------------------------------------------------- the command
def test_the_fraction_recognised(features, pixels):
    """Of real images it is the accuracy of the classifier, with Wilson's interval."""
    views, labels = features.views(pixels), torch.from_numpy(load_digits().target)
    right = Proportion(int((views.logits.argmax(1) == labels).sum()), len(labels))
    assert right.value > 0.8
    number = metrics.recognised(views.logits, labels)
    assert (number.value, number.low, number.high) == (right.value, *right.interval)
    known = Views(views.features, views.logits, labels).shuffled(1)
    assert metrics.recognised(known.logits, known.asked) == number


def test_the_command(tmp_path, monkeypatch, capsys, folder, features):
    """The table has n and real images beside; the JSON the protocol; samples that are kept give the same numbers."""
    monkeypatch.chdir(tmp_path)
    tokenizer, cls = Levels(17, (8, 8), "image", "dim", ordered=True), zellige.METHODS["mdlm"]
    net = Net(layers=1, hidden=16, heads=2, length=64, classes=10)
    method, about = build(cls, 17, net, cls.Config(), 64), {"data": {"classes": [*"0123456789"]}}
    Model(method, tokenizer, Config("mdlm", cls.Config(), Data("digits", labels=True), net), about).save("model")

    def run(words: str) -> dict:
        assert cli.main(shlex.split(f"evaluate model --generate --features seen --quiet {words}")) == 0
        return json.loads((tmp_path / "out" / "generate-images.json").read_text())

    drawn = run("--class all --count 40 --steps 2 --out out")
    text = capsys.readouterr().out
    assert "images, n" in text
    assert "not Inception" in text
    point, real = drawn["result"]["points"][0], drawn["result"]["real"]
    assert (point["samples"], real["samples"], real["name"]) == (40, 40, "digits train")
    assert [*point["measures"]] == [metric.name for metric in METRICS.values() if metric.of_images]
    lines = [json.loads(line) for line in Path("out/generate.jsonl").read_text().splitlines()]
    images = np.array([line["tokens"] for line in lines]).reshape(-1, 8, 8, 1).repeat(3, -1)
    found = features.views(np.rint(images * 255 / 16).astype(np.uint8)).logits.argmax(1)
    assert [line["class"] for line in lines] == [*"0123456789"] * 4
    assert point["measures"]["recognised"]["value"] == float((found == torch.arange(40) % 10).double().mean())
    assert real["measures"]["recognised"]["value"] > 0.8
    assert point["measures"]["FID"]["low"] > real["measures"]["FID"]["high"]
    assert drawn["protocol"]["features"]["sha256"] == image_features.sha256(tmp_path / "seen" / image_features.WEIGHTS)
    assert drawn["protocol"]["reference"] == "digits test, 180 images"
    again = run("--samples out/generate.jsonl --out out")
    assert again["result"]["points"][0]["measures"] == point["measures"]
    curve = run("--count 20 --calls 1 2 --samplers ancestral --out out")
    assert len(curve["result"]["points"]) == 3
    assert all("recognised" not in point["measures"] for point in curve["result"]["points"])
    assert (tmp_path / "out" / "generate-images-calls.svg").is_file()
    record = SamplesRecord.from_dict(curve)
    figure = sweep_figure(record.points, record.real, "calls", "features")
    assert figure is not None
    for ax, name in zip(figure.axes, ("FID", "KID")):
        drawn = ax.get_lines()[0].get_ydata()
        points = sorted(curve["result"]["points"], key=lambda p: p["calls"])
        assert list(drawn) == [p["measures"][name]["value"] for p in points]
        assert ax.get_ylabel().startswith(name)
    assert "| n | FID |" in (tmp_path / "out" / "generate-images.md").read_text()
