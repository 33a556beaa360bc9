"""FID and its kin of real images against real images of another split, at several n: the floor that samples can reach; and of
blurred and noised copies.

    python studies/images/image_quality.py FOLDER --path shared/data/mnist        # FOLDER is made by evaluate --train-features
"""

import argparse

import numpy as np

from zellige import Data
from zellige.data.prepare import prepare
from zellige.data.rows import evenly_spaced
from zellige.evaluation.image_quality import library
from zellige.evaluation.metrics import METRICS, intervals, measure_images
from zellige.plugins.evaluations.generate.image_features import features_of
from zellige.show import kinds


def blurred(pixels: np.ndarray) -> np.ndarray:
    """The mean of 3 x 3 pixels, the edge repeated."""
    x = np.pad(pixels.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    H, W = pixels.shape[1:3]
    return np.rint(sum(x[:, i : i + H, j : j + W] for i in range(3) for j in range(3)) / 9).astype(np.uint8)


def noised(pixels: np.ndarray, sigma: float = 32.0) -> np.ndarray:
    """Gaussian noise, the same for the three colours."""
    noise = sigma * np.random.default_rng(0).standard_normal((*pixels.shape[:3], 1))
    return np.rint(np.clip(pixels + noise, 0, 255)).astype(np.uint8)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("features")
    options.add_argument("--data", default="mnist")
    options.add_argument("--path")
    chosen = options.parse_args()
    data = prepare(Data(chosen.data, path=chosen.path))
    kind, features = kinds.of(data.tokenizer), features_of(chosen.features)
    train, test = (kind.pixels(data.split(split).array()) for split in ("train", "test"))
    real = features.views(train)
    metrics = [m for m in METRICS.values() if m.of_images and "asked" not in m.takes]
    print(f"{features.about.name}\n{library()}; {intervals(m.name for m in metrics)}")
    print(f"against {len(train):,} training images\n")
    print("| images | n |", " | ".join(m.name for m in metrics), "|\n|---|---|" + "---|" * len(metrics))
    for name, change in (("test images", lambda x: x), ("blurred, 3 x 3", blurred), ("noised, sigma 32", noised)):
        for n in (1000, 5000, 10000) if name == "test images" else (5000,):
            numbers = measure_images(features.views(change(evenly_spaced(test, n))), real)
            print(
                f"| {name} | {n:,} |",
                " | ".join(m.text(numbers[m.name]) for m in metrics),
                "|",
                flush=True,
            )


if __name__ == "__main__":
    main()
