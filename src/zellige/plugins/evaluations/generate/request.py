"""What `zellige evaluate --generate` and `zellige evaluate --train-features` ask for. It imports no torch before it runs."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zellige.base.errors import InputError
from zellige.base.requests import Progress, Request, alone, aside, data_of_json, declared, option
from zellige.data import DATASETS, Data

from .options import SamplesRequest

if TYPE_CHECKING:
    from zellige.models.model import ModelSource

    from .image_features import FeaturesRecord
    from .samples import SamplesRecord


@declared
class EvaluateSamples(SamplesRequest["SamplesRecord"]):
    """Samples of a model, judged: text by a causal language model and beside real text, images by FID and its kin.

    Without a model (`run()`) it judges the texts of `samples`. The record has `.points`, a set of samples each with its
    `.measures` by name, `.real`, `.matched`, `.protocol` and `.save(path)`.
    """

    returns = "zellige.plugins.evaluations.generate.samples:SamplesRecord"

    def run(self, model: "ModelSource | None" = None, /) -> "SamplesRecord":
        """Judge samples of a `Model`, a run folder, a saved folder or a hub id; without one, those of a file."""
        from zellige.models.model import as_model

        from .samples import evaluate_samples

        if model is None and self.cheats:
            raise InputError("`cheats` are made of a run's training text; give the run too")
        return evaluate_samples(self, None if model is None else as_model(model)).made_by(self)


@declared
class TrainFeatures(Request["FeaturesRecord"]):
    """Train an image classifier, in whose features samples are compared where Inception does not fit: FID and KID of
    digits.

    The record has `.config`, with its accuracy on the test images, and `.save(path)`.
    """

    returns = "zellige.plugins.evaluations.generate.image_features:FeaturesRecord"

    folder: str | Path = option(
        "folder to write; zellige evaluate --generate --features reads it", default="features", flag="train-features"
    )
    data: Any = option(
        "images with classes: mnist, fashion-mnist, cifar10",
        default=Data("mnist"),
        hidden=True,
        read=partial(data_of_json, Data),
    )
    width: int = option("number of features per image; FID needs more samples than that", default=64, minimum=1)
    epochs: int = option("passes over the training images", default=3, minimum=1)
    seed: int = option("random seed", default=0, minimum=0)
    device: Literal["auto", "cpu", "cuda"] = option("where to compute; auto: the GPU if there is one", default="auto")
    reading: Progress | None = aside("called with (bytes read, bytes in all)", default=None)
    progress: Progress | None = aside("called with (steps done, steps in all)", default=None)

    def run(self) -> "FeaturesRecord":
        """Train on the training images, and write the folder.

        Raises:
            InputError: images without classes, a folder of something else, or no such device.
        """
        if self.data.name in DATASETS and not {"labels", "size"} <= {*DATASETS[self.data.name].reads}:
            raise InputError(f"{self.data.name} holds no images with classes; give such, e.g. `data.name` mnist")
        import torch

        from zellige.data.prepare import prepare

        from . import image_features

        folder, began = image_features.free_folder(self.folder), time.monotonic()
        if self.device == "cuda" and not torch.cuda.is_available():
            raise InputError("`device` is cuda, and there is no GPU here; use `device` cpu")
        device = "cuda" if self.device != "cpu" and torch.cuda.is_available() else "cpu"
        data = prepare(replace(self.data, labels=True), progress=self.reading)
        network, config = image_features.train_classifier(
            data, self.width, self.epochs, self.seed, device, self.progress
        )
        image_features.save_features(network, config, folder)
        return image_features.FeaturesRecord(config, time.monotonic() - began, request=self.saved())


train_features = alone(TrainFeatures, "train_features")
