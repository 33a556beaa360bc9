"""Building blocks of the metrics of images (`metrics.fid` and those below it).

FID, KID and the Inception score are computed by torchmetrics, from D features per image; precision and recall are
computed here. All of them depend on the network that computes the features.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ..base.errors import InputError
from ..core.random import mix
from .interval import Number, student

M = TypeVar("M")

PARTS = 10  # of the samples: the splits of the Inception score, the groups of the jackknife
BLOCK = 1000  # images in a block of KID, at most
NEIGHBOUR = 3
MANIFOLD = 10_000  # real images of which precision and recall take the manifold, at most
DISTANCES = 2**24  # computed at once: 128 MB in float64
PROTOCOL = "zellige-images-1"


@dataclass(frozen=True)
class Views:
    """Outputs of a network for N images: features (N, D), and logits (N, classes).

    asked: (N,) the requested class of each image, as a column of the logits; None if unknown.
    """

    features: Tensor
    logits: Tensor
    asked: Tensor | None = None

    def shuffled(self, seed: int) -> "Views":
        """Return all in random order, in float64, since a split may be sorted by class."""
        order = torch.randperm(len(self.features), generator=torch.Generator().manual_seed(mix(seed, "images")))
        asked = None if self.asked is None else self.asked[order]
        return Views(self.features[order].double(), self.logits[order].double(), asked)


def library() -> str:
    """Name and version of the library that computes the metrics."""
    return f"torchmetrics {version('torchmetrics')}; precision and recall: zellige"


def check_enough(samples: int, real: int, width: int) -> None:
    """InputError: too few images for a covariance of full rank in `width` features."""
    if samples < 2 * PARTS:
        raise InputError(f"{PARTS} splits of {samples} samples say nothing; set `count` to {2 * PARTS} or more")
    if samples <= width:
        raise InputError(
            f"FID in {width:,} features needs more than {width:,} samples (the covariance of fewer has no full rank), "
            f"there are {samples:,}; set `count` to {width + 1:,} or more"
        )
    if real <= width:
        raise InputError(
            f"FID in {width:,} features needs more than {width:,} real images, the reference has {real:,}; give a "
            "larger one"
        )


def jackknife(measure: Callable[[Tensor], float], x: Tensor) -> Number:
    """Value of `measure` on all rows of x, with the interval from leaving out a tenth at a time."""
    group = torch.arange(len(x)) % PARTS
    left_out = [measure(x[group != i]) for i in range(PARTS)]
    value, half = measure(x), student(PARTS - 1) * math.sqrt((PARTS - 1) * float(np.var(left_out)))
    return Number(value, value - half, value + half)


# ---------------------------------------------------------------------------------------------------- of torchmetrics
class Given(nn.Module):
    """A feature network for torchmetrics that returns its input: the images are the features."""

    def __init__(self, width: int):
        super().__init__()
        self.num_features = width

    def forward(self, x: Tensor) -> Tensor:
        return x


def frechet(samples: Tensor, real: Tensor) -> float:
    """Fréchet distance of features (N, D) and (M, D)."""
    from torchmetrics.image.fid import FrechetInceptionDistance

    metric = FrechetInceptionDistance(feature=Given(samples.shape[1]))
    metric.update(real.double(), real=True)
    metric.update(samples.double(), real=False)
    return float(metric.compute())


def kernel_distance(samples: Tensor, real: Tensor, blocks: int = 1) -> float:
    """Squared MMD of features (N, D) and (M, D): the mean over disjoint blocks of both, of equal sizes.

    Each block is computed by torchmetrics.
    """
    from torchmetrics.image.kid import KernelInceptionDistance

    values = []
    for x, y in zip(samples.tensor_split(blocks), real.tensor_split(blocks)):
        size = min(len(x), len(y))
        metric = quiet(KernelInceptionDistance, feature=Given(x.shape[1]), subsets=1, subset_size=size)
        metric.update(y[:size].double(), real=True)
        metric.update(x[:size].double(), real=False)
        values.append(float(seeded(metric.compute)[0]))
    return float(np.mean(values))


def inception(logits: Tensor, splits: int = PARTS) -> tuple[float, float]:
    """Inception score of a classifier's logits (N, classes): the mean over the splits, and their standard deviation."""
    from torchmetrics.image.inception import InceptionScore

    metric = quiet(InceptionScore, feature=Given(logits.shape[1]), splits=splits)
    metric.update(logits.double())
    value, deviation = seeded(metric.compute)
    return float(value), float(deviation)


def quiet(metric: type[M], **options: Any) -> M:
    """A metric of torchmetrics, without the warning that it stores all features."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Metric .* will save all extracted features")
        return metric(**options)


def seeded(compute: Callable[[], Any]) -> Any:
    """Run a computation of torchmetrics, which permutes its rows by the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return compute()


# ---------------------------------------------------------------------------------------------------- precision and recall
def radii(x: Tensor) -> Tensor:
    """(N,) distance of each row of x (N, D) to its third nearest neighbour."""
    parts = x.split(max(1, DISTANCES // len(x)))
    nearest = [torch.cdist(part, x).topk(NEIGHBOUR + 1, largest=False).values for part in parts]
    return torch.cat(nearest)[:, -1]  # the first of them is the image itself


def within(points: Tensor, centres: Tensor, reach: Tensor) -> np.ndarray:
    """(N,) whether points (N, D) lie in a ball around one of the centres (M, D) of radius reach (M,)."""
    parts = points.split(max(1, DISTANCES // len(centres)))
    return torch.cat([(torch.cdist(part, centres) <= reach).any(1) for part in parts]).numpy()
