"""How classifier-free guidance trades diversity for accuracy: digits by class of the model `mnist`, judged by another network.

    zellige evaluate --train-features features --data.name mnist      # the judge: trained on clean digits, never on samples
    python studies/images/guidance.py features [--count 20] [--steps 32] [--out docs/pictures/guidance.svg]

Accuracy: how many samples the judge puts into the class that was asked for, with Wilson's 95% interval. Diversity: the mean
distance of two samples of one class in the judge's features, with a 95% interval over the classes.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

import zellige
from zellige.evaluation.interval import Proportion, student
from zellige.plugins.evaluations.generate.image_features import features_of
from zellige.show import kinds

STRENGTHS = (0.0, 1.0, 2.0, 4.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("features")
    parser.add_argument("--count", type=int, default=20, help="of each class")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--out", default="guidance.svg")
    chosen = parser.parse_args()
    model, judge, rows = zellige.load("mnist"), features_of(chosen.features), []
    kind: Any = kinds.of(model.tokenizer)
    labels = torch.arange(10).repeat_interleave(chosen.count)
    for strength in STRENGTHS:
        began = time.perf_counter()
        drawn = zellige.Sample(
            count=chosen.count,
            classes=tuple(map(str, range(10))),
            guidance=strength,
            steps=chosen.steps,
            batch=20,
            defaults=False,
        ).run(model)
        seen = judge.views(kind.pixels(np.array(drawn.tokens)))
        accuracy = Proportion(int((seen.logits.argmax(-1) == labels).sum()), len(labels))
        distances = [float(torch.pdist(seen.features[labels == label]).mean()) for label in range(10)]
        half = student(9) * float(np.std(distances, ddof=1)) / 10**0.5
        rows.append(
            {
                "guidance": strength,
                "accuracy": accuracy.value,
                "interval": accuracy.interval,
                "diversity": float(np.mean(distances)),
                "half": half,
                "seconds": time.perf_counter() - began,
            }
        )
        print(
            f"guidance {strength:g}   {accuracy}   diversity {np.mean(distances):.2f} ± {half:.2f}   {rows[-1]['seconds']:.0f} s",
            flush=True,
        )
    Path(chosen.out).with_suffix(".json").write_text(json.dumps(rows, indent=1))
    draw(rows, chosen.out)


def draw(rows: list[dict], out: str) -> None:
    figure = Figure((6, 3.2), layout="constrained")
    axes = figure.subplots()
    for row in rows:
        low, high = row["interval"]
        error = [[100 * (row["accuracy"] - low)], [100 * (high - row["accuracy"])]]
        axes.errorbar(
            row["diversity"], 100 * row["accuracy"], xerr=row["half"], yerr=error, fmt="o", color="C0", capsize=2
        )
        axes.annotate(f"  {row['guidance']:g}", (row["diversity"], 100 * row["accuracy"]))
    axes.set_xlabel("diversity: mean distance of two samples of a class")
    axes.set_ylabel("accuracy of another classifier, %")
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main()
