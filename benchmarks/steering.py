"""What guidance and Monte Carlo cost: time and network evaluations of a sample, beside plain sampling.

    python benchmarks/steering.py [--rounds 5] [--threads 1]

A random network of three layers of 96 with classes, MDLM and UDLM, 32 tokens of 28 kinds, 16 steps, 4 samples at once. The ways
take turns. An evaluation is one text read by the model's network, or by the classifier, which is of two layers of 64.
"""

import json
import statistics
from typing import Any

import torch

import measure
from zellige import Net, samplers
from zellige.methods import METHODS, build
from zellige.models.classifier import ClassifierConfig, TextClassifier, fresh, noise_of
from zellige.samplers.guidance import ByClassifier, ClassifierFree
from zellige.samplers.smc import Rewarded

V, L, B, STEPS, CLASSES = 28, 32, 4, 16, 4
SMALL = Net(layers=2, hidden=64, heads=4, length=L, condition=32)


class Counted:
    """Counts the texts that a network reads in `features`."""

    def __init__(self, network: Any):
        self.texts, read = 0, network.features

        def features(x: torch.Tensor, *more: Any, **named: Any) -> Any:
            self.texts += len(x)
            return read(x, *more, **named)

        network.features = features


def ways(name: str) -> tuple[dict[str, Any], Counted, Counted]:
    """Each way to sample of a method, and the two networks' counts."""
    torch.manual_seed(0)
    net = Net(layers=3, hidden=96, heads=4, length=L, condition=48, classes=CLASSES)
    method = build(name, V, net, METHODS[name].Config()).eval().requires_grad_(False)
    noise, block = noise_of(method)
    states, prior = method.process.K, method.process.prior.tolist() if noise == "tokens" else []
    config = ClassifierConfig("letters", [*"abcd"], "char", "", noise, block, states, prior, SMALL, 1, 0, [])
    judge = TextClassifier(fresh(SMALL, states, True, CLASSES).eval().requires_grad_(False), config)
    labels = torch.arange(B) % CLASSES

    def draw(around: Any = None, sampler: Any = None, condition: Any = labels) -> Any:
        def call() -> None:
            generator = torch.Generator().manual_seed(1)
            for _ in samplers.run(
                sampler or samplers.Ancestral(choose=False),
                method,
                (B, L),
                STEPS,
                generator=generator,
                condition=condition,
                around=around,
            ):
                pass

        return call

    def reward(tokens: torch.Tensor, _: Any) -> torch.Tensor:
        return (tokens == 0).double().mean(-1)

    found = {
        "plain, no class": draw(condition=None),
        "classifier-free, strength 2": draw(lambda m: ClassifierFree(m, 2.0)),
        "classifier, first order": draw(lambda m: ByClassifier(m, judge, 2.0, first_order=True)),
    }
    for particles in (1, 2, 4, 8, 16):
        found[f"reward, {particles} particles"] = draw(
            lambda m: Rewarded(m, reward), samplers.Smc(particles=particles), condition=None
        )
    return found, Counted(method.network), Counted(judge.network.trunk)


def main() -> None:
    chosen = measure.options(__doc__ or "", rounds=5).parse_args()
    torch.set_num_threads(chosen.threads)
    rows, document = [], {}
    for name in ("mdlm", "udlm"):
        calls, model, judge = ways(name)
        counts = {}
        for way, call in calls.items():
            model.texts = judge.texts = 0
            call()
            counts[way] = (model.texts / B / STEPS, judge.texts / B / STEPS)
        seconds = measure.alternate(calls, chosen.rounds, clock=chosen.clock)
        for way in calls:
            ratio = measure.compare(seconds, way, "plain, no class")
            per = 1000 * statistics.median(seconds[way]) / B
            document[f"{name}, {way}"] = {"milliseconds": per, "evaluations": counts[way], **ratio}
            rows.append(
                (
                    f"{name}, {way}",
                    f"{per:.0f}",
                    f"{ratio['times']:.2f}",
                    f"{ratio['low']:.2f} to {ratio['high']:.2f}",
                    *(f"{n:.2f}" for n in counts[way]),
                )
            )
    measure.show(rows, ("", "ms a sample", "times plain", "quartiles", "model, texts a step", "classifier"))
    if chosen.json:
        chosen.json.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
