"""Sampling, Zellige's against the published way: the same distribution, and the time that one batch takes.

python benchmarks/sampling.py [--method sedd] [--rounds N] [--threads N] [--json FILE]
"""

import json
import statistics
from collections import Counter

import torch

import measure
import reference
from zellige.methods import build
from zellige.nn import Net
from zellige.samplers import Ancestral, run

NET = Net(layers=6, hidden=256, heads=8, length=256)
SMALL = Net(layers=2, hidden=128, heads=4, length=256)  # a thousand published steps of NET take five minutes
CASES = {  # method, states with the mask, batch, steps, whether the published sampler caches, network
    "mdlm, V = 50,258, T = 16": ("mdlm", 50_258, 1, 16, False, NET),
    "mdlm, V = 28, T = 1000, batch 16": ("mdlm", 28, 16, 1000, True, SMALL),
    "sedd, V = 50,258, T = 16": ("sedd", 50_258, 1, 16, False, NET),
    "sedd, V = 28, T = 128, batch 16": ("sedd", 28, 16, 128, False, SMALL),
}


def pair(name: str, states: int, net: Net = NET):
    """A method with a head that is not zero, and the published network with the same function.

    Scores are of one distribution: at a mask they sum to alpha / (1 - alpha) in the mean, or all masks would go in the first
    step.
    """
    torch.manual_seed(0)
    method = build(name, states - 1, net).eval()
    score = method.parameterization == "score"
    spread = 1 if score else 3  # of logits
    torch.nn.init.normal_(method.network.head.weight, std=spread * net.hidden**-0.5)
    torch.nn.init.constant_(method.network.head.bias, -(spread**2) / 2 if score else 0)  # E e^z = 1
    theirs = reference.Network(states, net.hidden, net.layers, net.heads).eval()
    theirs.take(method.network)
    return method, theirs


def ours(method, batch: int, steps: int, seed: int):
    """Tokens, and the network calls of each row."""
    generator = torch.Generator().manual_seed(seed)
    sampler = Ancestral("published") if method.parameterization == "score" else Ancestral()
    with torch.inference_mode():
        *_, state = run(sampler, method, (batch, *method.shape), steps, generator=generator)
    return state.x, state.calls


def published(method, network, batch: int, steps: int, seed: int, cache: bool):
    """The same along the same schedule: the probability of a mask at each of the times, from 1 to 0; of SEDD as published."""
    torch.manual_seed(seed)
    if method.parameterization == "score":  # T times from 1 to 1e-5, and the denoising step
        sigmas = method.process.schedule.sigma(torch.linspace(1, 1e-5, steps + 1, dtype=torch.float64))[:, 0].float()
        return reference.sample_score(network, (batch, *method.shape), sigmas, method.process.mask)
    alpha = method.process.schedule.alpha(torch.linspace(1, 0, steps + 1, dtype=torch.float64))[:, 0]
    masked = (1 - alpha).float()
    masked[0], masked[-1] = 1.0, 0.0
    return reference.sample(network, (batch, *method.shape), masked, method.process.mask, cache)


def same_distribution(name: str, rows: int = 20_000) -> tuple[float, float]:
    """Two tokens of three, T = 3: the distance between the distributions of many draws of both, and what chance alone gives."""
    small = Net(layers=1, hidden=16, heads=2, length=2)
    method, network = pair(name, 4, small)

    def distribution(x):
        count = Counter(map(tuple, x.tolist()))
        return torch.tensor([count[i, j] / len(x) for i in range(3) for j in range(3)], dtype=torch.float64)

    mine = [distribution(ours(method, rows, 3, seed)[0]) for seed in (0, 1)]
    theirs = distribution(published(method, network, rows, 3, 2, cache=False)[0])
    distance = lambda p, q: float((p - q).abs().sum() / 2)  # noqa: E731
    return distance(mine[0], theirs), distance(*mine)


def main() -> None:
    parser = measure.options(__doc__.splitlines()[0], rounds=5)
    parser.add_argument("--method", choices=("mdlm", "sedd"), help="its cases alone")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        case, way = options.peak.split("/")
        name, states, batch, steps, cache, net = CASES[case]
        steps = min(steps, 16)  # as much memory as with all of them
        memory = measure.Memory()
        method, network = pair(name, states, net)
        state = memory.mark()
        ours(method, batch, steps, 0) if way == "zellige" else published(method, network, batch, steps, 0, cache)
        print(json.dumps({"sampling": memory.largest() - state}))
        return
    chosen = (options.method,) if options.method else ("mdlm", "sedd")
    distributions = {name: same_distribution(name) for name in chosen}
    out: dict = {
        "machine": measure.machine(),
        "distance between distributions, and by chance": distributions,
        "cases": {},
    }
    rows = []
    for case, (name, states, batch, steps, cache, net) in CASES.items():
        if name not in chosen:
            continue
        method, network = pair(name, states, net)
        calls = {}

        def mine(method=method, batch=batch, steps=steps, calls=calls):
            calls["zellige"] = ours(method, batch, steps, 0)[1].double().mean().item()

        def theirs(method=method, network=network, batch=batch, steps=steps, cache=cache, calls=calls):
            calls["published"] = published(method, network, batch, steps, 0, cache)[1]

        rounds, warm = (options.rounds, 1) if steps < 100 else (max(1, options.rounds // 5), 0)
        seconds = measure.alternate({"published": theirs, "zellige": mine}, rounds, warm, options.clock)
        faster = measure.compare(seconds, "published", "zellige")
        result = {
            **{f"{way} seconds": statistics.median(s) for way, s in seconds.items()},
            **{f"{way} calls per row": n for way, n in calls.items()},
            "faster": faster,
            **{f"{way} MiB": measure.peak(__file__, f"{case}/{way}", options.threads)["sampling"] for way in seconds},
        }
        out["cases"][case] = result
        rows.append(
            (
                case,
                *(f"{result[f'{way} seconds']:.2f} s" for way in seconds),
                f"{faster['times']:.2f}x",
                f"{faster['low']:.2f}-{faster['high']:.2f}",
                *(f"{result[f'{way} calls per row']:,.0f}" for way in seconds),
                *(f"{result[f'{way} MiB']:,.0f} MiB" for way in seconds),
            )
        )
    measure.show(rows, ("sampling", "published", "zellige", "faster", "quartiles", "calls", "calls", "peak", "peak"))
    for name, (distance, chance) in distributions.items():
        print(
            f"{name}, 20,000 samples each: {distance:.4f} apart in total variation (two runs of one sampler: {chance:.4f})"
        )
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
