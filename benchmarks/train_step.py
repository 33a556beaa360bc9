"""One training step, Zellige's against the published way: loss, backward, clipping, AdamW, moving average.

python benchmarks/train_step.py [--rounds N] [--threads N] [--json FILE]
"""

import gc
import json
import statistics
from contextlib import nullcontext
from functools import partial

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import measure
import reference
from zellige.core.batch import Batch
from zellige.methods import build
from zellige.methods.method import Method
from zellige.nn import Net
from zellige.training.ema import EMA

NET = Net(layers=6, hidden=256, heads=8, length=256)
SIZES = {"V = 50,258": (50_258, 8), "V = 28": (28, 16)}  # states with the mask, batch
PRECISIONS = {"float32": nullcontext, "bfloat16": lambda: torch.autocast("cpu", torch.bfloat16)}


def tokens(states: int, batch: int, length: int = NET.length) -> torch.Tensor:
    return torch.randint(states - 1, (batch, length), generator=torch.Generator().manual_seed(0))


def published(states: int, batch: int, precisions=tuple(PRECISIONS)):
    """precision -> a call that makes one step on x_0 (B, L); all on one model."""
    net = reference.Network(states, NET.hidden, NET.layers, NET.heads)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    ema, data = reference.EMA(net.parameters()), tokens(states, batch)

    def step(precision: str, x_0=data):
        optimizer.zero_grad()
        with PRECISIONS[precision]():
            loss = reference.loss(net, x_0, states - 1)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        ema.update(net.parameters())

    return {p: partial(step, p) for p in precisions}


def zellige(states: int, batch: int, precisions=tuple(PRECISIONS)):
    """The same with Zellige's method."""
    return training(build("mdlm", states - 1, NET), tokens(states, batch), precisions)


def training(method: Method, data: torch.Tensor, precisions=tuple(PRECISIONS)):
    """precision -> a call that makes one step on x_0 (B, L), as Zellige's trainer steps; all on one model."""
    optimizer = torch.optim.AdamW(method.parameters(), lr=3e-4, weight_decay=0, fused=True)
    ema, count = EMA(method, 0.9999), 0

    def step(precision: str, x_0=data):
        nonlocal count
        count += 1
        optimizer.zero_grad()
        with PRECISIONS[precision]():
            loss = method.loss(Batch(x_0)).mean() / method.shape[0]
        loss.backward()
        nn.utils.clip_grad_norm_(method.parameters(), 1.0)
        optimizer.step()
        ema.update(count)

    return {p: partial(step, p) for p in precisions}


WAYS = {"published": published, "zellige": zellige}


def main() -> None:
    options = measure.options(__doc__.splitlines()[0], rounds=7).parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        size, way, precision = options.peak.split("/")
        memory = measure.Memory()
        empty = memory.now()
        step = WAYS[way](*SIZES[size], (precision,))[precision]
        step(x_0=tokens(SIZES[size][0], 1)[:, :4])  # a step on almost nothing: the optimizer's state is there now
        state = memory.mark()
        for _ in range(3):
            step()
        print(json.dumps({"all": memory.largest() - empty, "step": memory.largest() - state}))
        return
    rows, out = [], {"machine": measure.machine(), "sizes": {}}
    for size, (states, batch) in SIZES.items():
        steps = {f"{way} {p}": call for way, make in WAYS.items() for p, call in make(states, batch).items()}
        seconds = measure.alternate(steps, options.rounds if states > 1000 else 2 * options.rounds, 2, options.clock)
        with FlopCounterMode(display=False) as counter:
            steps["zellige float32"]()
        steps.clear()
        gc.collect()
        for precision in PRECISIONS:
            ours, same = f"zellige {precision}", f"published {precision}"
            memory = {way: measure.peak(__file__, f"{size}/{way}/{precision}", options.threads) for way in WAYS}
            result = {
                "published seconds": statistics.median(seconds[same]),
                "zellige seconds": statistics.median(seconds[ours]),
                "faster": measure.compare(seconds, same, ours),
                "faster than published float32": measure.compare(seconds, "published float32", ours),
                "FLOP": counter.get_total_flops(),
                "MiB": memory,
                "memory": memory["zellige"]["all"] / memory["published"]["all"],
                "memory of the step": memory["zellige"]["step"] / memory["published"]["step"],
            }
            out["sizes"].setdefault(size, {})[precision] = result
            rows.append(
                (
                    f"{size}, {precision}",
                    f"{result['published seconds']:.3f} s",
                    f"{result['zellige seconds']:.3f} s",
                    f"{result['faster']['times']:.2f}x",
                    f"{result['faster']['low']:.2f}-{result['faster']['high']:.2f}",
                    f"{result['faster than published float32']['times']:.2f}x",
                    f"{memory['published']['all']:,.0f} MiB",
                    f"{memory['zellige']['all']:,.0f} MiB",
                    f"{result['memory']:.2f}",
                    f"{result['memory of the step']:.2f}",
                )
            )
    head = ("training step", "published", "zellige", "faster", "quartiles", "than float32")
    head += ("published", "zellige", "memory", "of the step")
    measure.show(rows, head)
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
