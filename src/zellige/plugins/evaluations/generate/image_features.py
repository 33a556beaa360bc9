"""Feature networks of images, in whose features FID and its kin compare: Inception, or a classifier that was trained
here.

    features_of("inception")     that of FID's paper, as torch-fidelity has it; its weights are downloaded by their hash
    features_of("weights.pth")   the same from a file, which must have that hash
    features_of("folder")        a small classifier that `train_classifier` made and `save_features` wrote

A number in the features of a digit classifier is no FID of the literature, so each says what it is (`about`).
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.error import URLError

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from zellige.base.errors import InputError, not_installed
from zellige.base.files import writable
from zellige.base.requests import Progress
from zellige.base.schema import sha256, shown
from zellige.core.random import mix
from zellige.data import Corpus
from zellige.evaluation.image_quality import Views
from zellige.evaluation.interval import Proportion
from zellige.models.network_folder import check_place, files_of, load_network, save_network
from zellige.nn.classifier import ImageClassifier
from zellige.show.record import Figure, Trained

INCEPTION = "inception"
# of the weights of FID's paper, for PyTorch
SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
NAME, MADE_BY = "features", "zellige evaluate --train-features"
WEIGHTS, CONFIG = files_of(NAME)
BATCH = 128  # images in a step of training, and in a call


@dataclass(frozen=True)
class FeaturesIdentity:
    """A feature network, as the protocol of a result states it.

    Attributes:
        features: D, features of an image.
        sha256: of its weights.
        resizing: of images to its size.
        config: of a classifier that was trained here, its `FeatureConfig`.
    """

    name: str
    features: int
    sha256: str
    resizing: str
    config: dict[str, Any] | None = None


@dataclass(frozen=True)
class Features:
    """A feature network.

    Attributes:
        width: D, how many features an image has.
        about: its identity, for the protocol.
        read: images (B, H, W, 3) uint8 on its device -> features (B, D), logits (B, classes).
        device: where it works.
    """

    width: int
    about: FeaturesIdentity
    read: Callable[[Tensor], tuple[Tensor, Tensor]]
    device: torch.device | str = "cpu"

    @torch.no_grad()
    def views(self, pixels: np.ndarray, progress: Progress | None = None) -> Views:
        """Features and logits of images (N, H, W, 3) uint8."""
        outputs = []
        for first in range(0, len(pixels), BATCH):
            part = torch.from_numpy(np.ascontiguousarray(pixels[first : first + BATCH])).to(self.device)
            outputs.append([x.cpu().double() for x in self.read(part)])
            if progress:
                progress(min(first + BATCH, len(pixels)), len(pixels))
        features, logits = map(torch.cat, zip(*outputs))
        return Views(features, logits)


def features_of(path: str, device: torch.device | str = "cpu") -> Features:
    """The feature network of that name, file or folder.

    Raises:
        InputError: nothing there, damaged, or not what it must be; the library is missing, or cannot download its
            weights.
    """
    where = Path(path)
    if where.name == WEIGHTS:
        where = where.parent
    if where.is_dir():
        return load_features(where, device)
    if where.is_file() or path == INCEPTION:
        return inception(where if where.is_file() else None, device)
    raise InputError(
        f"no features at '{path}'; give {INCEPTION}, the file of its weights, or a folder of zellige evaluate "
        "--train-features"
    )


# ---------------------------------------------------------------------------------------------------- Inception
def inception(weights: Path | None = None, device: torch.device | str = "cpu") -> Features:
    """Inception as FID's paper used it: 2,048 features; weights from a file, else torch-fidelity's own,
    downloaded once."""
    if weights is not None:
        check_weights(weights)
    try:
        from torch_fidelity import feature_extractor_inceptionv3 as package  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise not_installed(
            "`features` inception", "torch-fidelity", "fid", ", or give a folder of zellige evaluate --train-features"
        ) from None
    except (RuntimeError, OSError) as problem:  # torchvision beside a torch of another build
        first = str(problem).partition("\n")[0]
        raise InputError(
            f"'torch-fidelity' cannot be imported ({first}); install the torchvision that belongs to this build of "
            "torch"
        ) from problem
    if weights is None:
        weights = Path(torch.hub.get_dir()) / "checkpoints" / Path(package.URL_INCEPTION_V3).name
        if not weights.is_file():
            fetch_weights(package.URL_INCEPTION_V3, weights)
        check_weights(weights)
    network: Any = package.FeatureExtractorInceptionV3(
        "inception-v3-compat", ["2048", "logits_unbiased"], feature_extractor_weights_path=str(weights)
    )
    network = network.to(device)
    about = FeaturesIdentity(
        "Inception v3 of 2015-12-05 (torch-fidelity)",
        2048,
        SHA256,
        resizing="to 299 x 299, bilinear as in TensorFlow 1, by torch-fidelity; grey as three equal colours",
    )
    return Features(2048, about, lambda x: network(x.permute(0, 3, 1, 2)), device)


def check_weights(path: Path) -> None:
    """InputError unless the file is the weights of FID's Inception: it is a pickle, so no other is opened."""
    if sha256(path) != SHA256:
        raise InputError(
            f"'{shown(path)}' does not hold the weights of FID's Inception (another sha256); give {INCEPTION}, that "
            "file, or a folder of zellige evaluate --train-features"
        )


def fetch_weights(url: str, path: Path) -> None:
    """Fetch a file whose name ends with the beginning of its hash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        torch.hub.download_url_to_file(url, str(path), hash_prefix=SHA256[:8], progress=False)
    except (URLError, OSError, RuntimeError) as problem:
        raise InputError(
            f"the weights of Inception cannot be downloaded ({problem}); fetch {url} elsewhere and give the file as "
            "`features`"
        ) from None


# ---------------------------------------------------------------------------------------------------- trained here
@dataclass(frozen=True)
class FeatureConfig:
    """Contents of features.json: the images that a classifier was trained on, its size, and its accuracy."""

    data: str
    data_sha256: Any
    height: int
    width: int
    colours: int
    classes: list[str]
    features: int
    epochs: int
    seed: int
    accuracy: float
    tested: int

    @property
    def name(self) -> str:
        """`a classifier of mnist (10 classes, 98.9% of 10,000 test images)`"""
        return f"a classifier of {self.data} ({len(self.classes)} classes, {self.accuracy:.1%} of {self.tested:,} test images)"


def train_classifier(
    data: Corpus,
    width: int = 64,
    epochs: int = 3,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> tuple[ImageClassifier, FeatureConfig]:
    """A classifier of labelled images: a `Corpus` with classes. `progress` is called with (steps done,
    steps in all)."""
    from zellige.show import kinds

    tokenizer, names = data.tokenizer, [str(name) for name in data.about.get("classes") or ()]
    if tokenizer.kind != "image" or not names:
        raise InputError(f"{data.about['name']} holds no labelled images; features are trained on such, e.g. mnist")
    kind: Any = kinds.of(tokenizer)
    colours = 3 if tokenizer.shape[2:] == (3,) else 1
    of = {split: (kind.pixels(data.split(split).array()), data.split(split).labels) for split in ("train", "test")}
    pixels, labels = (torch.from_numpy(np.array(x)) for x in of["train"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(mix(seed, "weights") % 2**63)
        network = ImageClassifier(colours, len(names), width).to(device)
    steps = epochs * math.ceil(len(pixels) / BATCH)
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    generator, step = torch.Generator().manual_seed(mix(seed, "order")), 0
    for _ in range(epochs):
        for rows in torch.randperm(len(pixels), generator=generator).split(BATCH):
            _, logits = network(brightness(pixels[rows].to(device), colours))
            loss = F.cross_entropy(logits, labels[rows].long().to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if progress:
                progress(step, steps)
    network.eval().requires_grad_(False)
    height, across = tokenizer.shape[:2]
    config = FeatureConfig(
        data.about["name"], data.about["sha256"], height, across, colours, names, features=width, epochs=epochs,
        seed=seed, accuracy=math.nan, tested=len(of["test"][0]),
    )  # fmt: skip
    predictions = trained(network, config, "", device).views(of["test"][0]).logits.argmax(1)
    right = (predictions == torch.from_numpy(np.array(of["test"][1]))).double().mean()
    return network, replace(config, accuracy=float(right))


@dataclass(frozen=True)
class FeaturesRecord(Trained):
    """A classifier that was trained for its features, in its folder; `config` has its accuracy on test images."""

    advice: ClassVar = f"give a folder of {MADE_BY}"
    unit: ClassVar = "accuracy"
    kind: ClassVar = "features"
    config: FeatureConfig

    def figures(self) -> list[Figure]:
        tested = self.config.tested
        accuracy = Proportion(round(self.config.accuracy * tested), tested)
        return [Figure("accuracy", self.config.accuracy, accuracy.half, "accuracy", "estimate")]


def free_folder(folder: str | Path) -> Path:
    """A folder that is new, or holds features. InputError: it holds something else, or cannot be written."""
    path = Path(folder)
    check_place(path, NAME)
    writable((path if path.is_dir() else path.parent) / CONFIG)
    return path


def trained(
    network: ImageClassifier, config: FeatureConfig, digest: str, device: torch.device | str = "cpu"
) -> Features:
    """A classifier as a feature network; images of another size are resized to its own."""
    size = (config.height, config.width)

    def read(x: Tensor) -> tuple[Tensor, Tensor]:
        if config.colours == 1 and not bool((x == x[..., :1]).all()):
            raise InputError(
                f"the features are those of grey images ({config.data}), and these have colours; give others"
            )
        images = brightness(x, config.colours)
        if images.shape[-2:] != size:
            images = F.interpolate(images, size, mode="bilinear", antialias=True)
        return network(images)

    about = FeaturesIdentity(
        f"{config.name}, not Inception",
        config.features,
        digest,
        resizing=f"to {size[0]} x {size[1]}, bilinear with antialiasing, where an image has another size",
        config=asdict(config),
    )
    return Features(config.features, about, read, device)


def brightness(pixels: Tensor, colours: int) -> Tensor:
    """(B, H, W, 3) uint8 -> (B, colours, H, W) float, 0 to 1."""
    return pixels[..., :colours].permute(0, 3, 1, 2).float() / 255


def save_features(network: ImageClassifier, config: FeatureConfig, folder: str | Path) -> Path:
    """Write features.safetensors, features.json and their SHA256SUMS; the folder."""
    return save_network(folder, NAME, network, config)


def load_features(folder: Path, device: torch.device | str = "cpu") -> Features:
    """The feature network of such a folder. InputError: a file is missing, damaged, or not of this kind."""

    def build(config: FeatureConfig) -> ImageClassifier:
        return ImageClassifier(config.colours, len(config.classes), config.features)

    network, config = load_network(folder, NAME, FeatureConfig, build, MADE_BY, device)
    return trained(network, config, sha256(folder / WEIGHTS), device)
