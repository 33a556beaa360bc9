"""One training step, Tessella's against the published way: loss, backward, clipping, AdamW, moving average.

python benchmarks/train_step.py [--rounds N] [--threads N] [--json FILE]
"""

import gc
import json
from contextlib import nullcontext

import torch
from torch import nn

import measure
import reference
from tessella.ema import EMA
from tessella.method import Batch
from tessella.methods import build
from tessella.nn import Net

NET = Net(layers=6, hidden=256, heads=8, length=256)
SIZES = {"V = 50,258": (50_258, 8), "V = 28": (28, 16)}  # states with the mask, batch
PRECISIONS = {"float32": nullcontext, "bfloat16": lambda: torch.autocast("cpu", torch.bfloat16)}


def tokens(states: int, batch: int) -> torch.Tensor:
    return torch.randint(states - 1, (batch, NET.length), generator=torch.Generator().manual_seed(0))


def published(states: int, batch: int, precisions=tuple(PRECISIONS)):
    """precision -> a call that makes one step; all on one model."""
    net = reference.Network(states, NET.hidden, NET.layers, NET.heads)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    ema, x_0 = reference.EMA(net.parameters()), tokens(states, batch)

    def step(precision: str):
        optimizer.zero_grad()
        with PRECISIONS[precision]():
            loss = reference.loss(net, x_0, states - 1)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        ema.update(net.parameters())

    return {p: lambda p=p: step(p) for p in precisions}


def tessella(states: int, batch: int, precisions=tuple(PRECISIONS)):
    """The same with Tessella's method, as its trainer steps."""
    method = build("mdlm", states - 1, NET)
    optimizer = torch.optim.AdamW(method.parameters(), lr=3e-4, weight_decay=0, fused=True)
    ema, data = EMA(method, 0.9999), Batch(tokens(states, batch))
    count = 0

    def step(precision: str):
        nonlocal count
        count += 1
        optimizer.zero_grad()
        with PRECISIONS[precision]():
            loss = method.loss(data).mean() / NET.length
        loss.backward()
        nn.utils.clip_grad_norm_(method.parameters(), 1.0)
        optimizer.step()
        ema.update(count)

    return {p: lambda p=p: step(p) for p in precisions}


WAYS = {"published": published, "tessella": tessella}


def main() -> None:
    options = measure.options(__doc__.splitlines()[0], rounds=7).parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        size, way, precision = options.peak.split("/")
        base = measure.resident()
        step = WAYS[way](*SIZES[size], (precision,))[precision]
        for _ in range(3):
            step()
        print(json.dumps(measure.resident() - base))
        return
    rows, out = [], {"machine": measure.machine(), "sizes": {}}
    for size, (states, batch) in SIZES.items():
        steps = {f"{way} {p}": call for way, make in WAYS.items() for p, call in make(states, batch).items()}
        seconds = measure.alternate(steps, options.rounds if states > 1000 else 2 * options.rounds, 2, options.clock)
        steps.clear()
        gc.collect()
        for precision in PRECISIONS:
            ours, same = f"tessella {precision}", f"published {precision}"
            result = {
                "published seconds": sorted(seconds[same])[len(seconds[same]) // 2],
                "tessella seconds": sorted(seconds[ours])[len(seconds[ours]) // 2],
                "faster": measure.compare(seconds, same, ours),
                "faster than published float32": measure.compare(seconds, "published float32", ours),
                "published MiB": measure.peak(__file__, f"{size}/published/{precision}", options.threads),
                "tessella MiB": measure.peak(__file__, f"{size}/tessella/{precision}", options.threads),
            }
            result["memory"] = result["tessella MiB"] / result["published MiB"]
            out["sizes"].setdefault(size, {})[precision] = result
            rows.append(
                (
                    f"{size}, {precision}",
                    f"{result['published seconds']:.3f} s",
                    f"{result['tessella seconds']:.3f} s",
                    f"{result['faster']['times']:.2f}x",
                    f"{result['faster']['low']:.2f}-{result['faster']['high']:.2f}",
                    f"{result['faster than published float32']['times']:.2f}x",
                    f"{result['published MiB']:,.0f} MiB",
                    f"{result['tessella MiB']:,.0f} MiB",
                    f"{result['memory']:.2f}",
                )
            )
    head = ("training step", "published", "tessella", "faster", "quartiles", "than float32", "peak", "peak", "ratio")
    measure.show(rows, head)
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
