"""Measures of images: how near samples are to real images in the features of a network, and how they vary.

By the names of the papers, with features of D numbers an image:

    FID                |m - m'|^2 + tr(C + C' - 2 (C C')^(1/2)), means and covariances (Heusel et al. 2017, arXiv 1706.08500)
    KID                squared MMD of the kernel (x.y / D + 1)^3, unbiased (Binkowski et al. 2018, arXiv 1801.01401)
    Inception score    exp of the mean of KL(p(y | x) | p(y)) by a classifier (Salimans et al. 2016, arXiv 1606.03498)
    precision, recall  the share of samples within the manifold of real images, and the other way round; a manifold is the balls
                       around its images that reach to their third neighbours (Kynkäänniemi et al. 2019, arXiv 1904.06991)

The first three are computed by torchmetrics, which has no precision and recall; these stand here. FID, the Inception score and
recall are biased in the number of samples n, so they are compared at equal n only. All hang on whose features they are.

Intervals, 95%, the real images held fixed: the jackknife over 10 groups of samples (the bootstrap would not do: a set with
repetitions is a smaller set, whose FID is larger); of the Inception score Student's t over its 10 splits, of precision over
samples.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core.random import mix
from ..errors import InputError
from .interval import student
from .sample_quality import Number, mean

PARTS = 10  # of the samples: the splits of the Inception score, the groups of the jackknife
BLOCK = 1000  # images in a block of KID, at most
NEIGHBOUR = 3
MANIFOLD = 10_000  # real images of which precision and recall take the manifold, at most
DISTANCES = 2**24  # computed at once: 128 MB in float64
PROTOCOL = "zellige-images-1"
CHOICES = {
    "KID": f"polynomial kernel of degree 3, mean over disjoint blocks of at most {BLOCK:,}",
    "Inception score": f"{PARTS} splits",
    "precision, recall": f"{NEIGHBOUR} neighbours, at most {MANIFOLD:,} real images",
}
INTERVAL = (
    f"real images fixed: jackknife over {PARTS} groups of samples; Inception score: Student's t over {PARTS} splits; "
    "precision: over samples"
)


@dataclass(frozen=True)
class Views:
    """What a network makes of N images: features (N, D), and logits (N, classes)."""

    features: Tensor
    logits: Tensor

    def shuffled(self, seed: int) -> "Views":
        """In an order by the seed, in float64: a split may stand class after class."""
        order = torch.randperm(len(self.features), generator=torch.Generator().manual_seed(mix(seed, "images")))
        return Views(self.features[order].double(), self.logits[order].double())


def library() -> str:
    """Whose formulas they are, with the version."""
    return f"torchmetrics {version('torchmetrics')}; precision and recall: zellige"


def check_enough(samples: int, real: int, width: int) -> None:
    """InputError where a covariance of so many images in `width` features cannot have full rank."""
    if samples < 2 * PARTS:
        raise InputError(f"{PARTS} splits of {samples} samples say nothing; set `count` to {2 * PARTS} or more")
    if samples <= width:
        raise InputError(
            f"FID in {width:,} features needs more than {width:,} samples (the covariance of fewer has no full rank), "
            f"there are {samples:,}; set `count` to {width + 1:,} or more"
        )
    if real <= width:
        raise InputError(
            f"FID in {width:,} features needs more than {width:,} real images, the reference has {real:,}; give a larger one"
        )


def measure_images(samples: Views, real: Views, seed: int = 0) -> dict[str, Number]:
    """Every measure of these samples against real images, by name."""
    check_enough(len(samples.features), len(real.features), samples.features.shape[1])
    samples, real = samples.shuffled(seed), real.shuffled(seed)
    x, y = samples.features, real.features
    manifold, blocks = y[:MANIFOLD], math.ceil(len(x) / BLOCK)
    reach = radii(manifold)
    return {
        "FID": jackknife(lambda x: fid(x, y), x),
        "KID": jackknife(lambda x: kid(x, y, blocks), x),
        "Inception score": inception_score(samples.logits),
        "precision": mean(within(x, manifold, reach)),
        "recall": jackknife(lambda x: float(within(manifold, x, radii(x)).mean()), x),
    }


def jackknife(measure: Callable[[Tensor], float], x: Tensor) -> Number:
    """What `measure` says of all rows of x, with the interval from leaving out a tenth at a time."""
    group = torch.arange(len(x)) % PARTS
    left_out = [measure(x[group != i]) for i in range(PARTS)]
    value, half = measure(x), student(PARTS - 1) * math.sqrt((PARTS - 1) * float(np.var(left_out)))
    return Number(value, value - half, value + half)


# ---------------------------------------------------------------------------------------------------- of torchmetrics
class Given(nn.Module):
    """A feature network for the library, whose images are the features."""

    def __init__(self, width: int):
        super().__init__()
        self.num_features = width

    def forward(self, x: Tensor) -> Tensor:
        return x


def fid(samples: Tensor, real: Tensor) -> float:
    """The Fréchet distance of features (N, D) and (M, D)."""
    from torchmetrics.image.fid import FrechetInceptionDistance

    metric = FrechetInceptionDistance(feature=Given(samples.shape[1]))
    metric.update(real.double(), real=True)
    metric.update(samples.double(), real=False)
    return float(metric.compute())


def kid(samples: Tensor, real: Tensor, blocks: int = 1) -> float:
    """The squared MMD of features (N, D) and (M, D): the mean over disjoint blocks of as many of both, each by the library."""
    from torchmetrics.image.kid import KernelInceptionDistance

    values = []
    for x, y in zip(samples.tensor_split(blocks), real.tensor_split(blocks)):
        size = min(len(x), len(y))
        metric = quiet(KernelInceptionDistance, feature=Given(x.shape[1]), subsets=1, subset_size=size)
        metric.update(y[:size].double(), real=True)
        metric.update(x[:size].double(), real=False)
        values.append(float(seeded(metric.compute)[0]))
    return float(np.mean(values))


def inception_score(logits: Tensor) -> Number:
    """Of a classifier's logits (N, classes), in 10 splits."""
    from torchmetrics.image.inception import InceptionScore

    metric = quiet(InceptionScore, feature=Given(logits.shape[1]), splits=PARTS)
    metric.update(logits.double())
    value, deviation = map(float, seeded(metric.compute))
    half = student(PARTS - 1) * deviation / math.sqrt(PARTS)
    return Number(value, value - half, value + half)


def quiet(metric: Any, **options: Any) -> Any:
    """A metric of the library, without its warning that it holds all features."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Metric .* will save all extracted features")
        return metric(**options)


def seeded(compute: Callable[[], Any]) -> Any:
    """What the library computes, which permutes its rows by the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return compute()


# ---------------------------------------------------------------------------------------------------- precision and recall
def precision_recall(samples: Tensor, real: Tensor) -> tuple[float, float]:
    """Of features (N, D) and (M, D).

    >>> line = torch.arange(8.0)[:, None]
    >>> precision_recall(line[:4], line)
    (1.0, 0.875)
    """
    return float(within(samples, real, radii(real)).mean()), float(within(real, samples, radii(samples)).mean())


def radii(x: Tensor) -> Tensor:
    """(N,) the distance of each of x (N, D) to its third neighbour."""
    parts = x.split(max(1, DISTANCES // len(x)))
    nearest = [torch.cdist(part, x).topk(NEIGHBOUR + 1, largest=False).values for part in parts]
    return torch.cat(nearest)[:, -1]  # the first of them is the image itself


def within(points: Tensor, centres: Tensor, reach: Tensor) -> np.ndarray:
    """(N,) whether points (N, D) lie in a ball around one of the centres (M, D) of radius reach (M,)."""
    parts = points.split(max(1, DISTANCES // len(centres)))
    return torch.cat([(torch.cdist(part, centres) <= reach).any(1) for part in parts]).numpy()
