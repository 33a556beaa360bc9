"""What the products of matrices cost on a CPU: by the BLAS that PyTorch was built with, by oneDNN, in bfloat16 and in int8.

    python benchmarks/products.py --clock cpu
    python benchmarks/products.py --clock cpu --layers 6 --hidden 256 --states 2048 --length 608 --batch 4

A step of training (mdlm: loss, gradients, AdamW) and a forward pass with its logits, of one network. bfloat16 is torch.autocast
in training and rounded weights in the forward pass, its attention by matrix products or by PyTorch's kernel. The variants take
turns in one process.
"""

from copy import deepcopy
from statistics import median
from typing import Any

import torch

import measure
from zellige import Batch, Net
from zellige.methods import build
from zellige.nn import attention, linear
from zellige.nn.precision import products


def blas(call: Any) -> Any:
    """The call, without oneDNN."""

    def within() -> None:
        able, linear.able = linear.able, False
        try:
            call()
        finally:
            linear.able = able

    return within


def kernel(call: Any) -> Any:
    """The call, with PyTorch's attention in bfloat16."""

    def within() -> None:
        kept, attention.PRODUCTS = attention.PRODUCTS, ()
        try:
            call()
        finally:
            attention.PRODUCTS = kept

    return within


def main() -> None:
    parser = measure.options((__doc__ or "").splitlines()[0], rounds=9)
    for name, value in (("layers", 4), ("hidden", 192), ("states", 1024), ("length", 128), ("batch", 16)):
        parser.add_argument(f"--{name}", type=int, default=value)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    net = Net(chosen.layers, chosen.hidden, chosen.hidden // 64, chosen.length, conv=7)
    method = build("mdlm", chosen.states, net)
    batch = Batch(torch.randint(chosen.states, (chosen.batch, chosen.length)))
    optimizer = torch.optim.AdamW(method.parameters(), 1e-3, fused=True)

    def step(precision: str | None) -> None:
        with products(torch.device("cpu"), precision):
            loss = method.loss(batch, torch.Generator().manual_seed(0)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    copies = {name: deepcopy(method).eval().compute_in(name) for name in ("float32", "bfloat16", "int8")}

    def forward(name: str) -> None:
        with torch.no_grad():
            h = copies[name].hidden(batch.tokens, None)
            with products(h.device, name):
                copies[name].network.head(h)

    steps = {"BLAS": blas(lambda: step(None)), "oneDNN": lambda: step(None), "bfloat16": lambda: step("bfloat16")}
    steps["bfloat16, PyTorch's attention"] = kernel(steps["bfloat16"])
    passes = {"BLAS": blas(lambda: forward("float32")), "oneDNN": lambda: forward("float32")}
    passes |= {name: lambda name=name: forward(name) for name in ("bfloat16", "int8")}
    rows: list[tuple] = []
    for title, variants in (("training step", steps), ("forward pass", passes)):
        seconds = measure.alternate(variants, chosen.rounds, warm=2, clock=chosen.clock)
        for name, times in seconds.items():
            ratio = measure.compare(seconds, "BLAS", name)
            rows.append(
                (
                    f"{title}, {name}",
                    f"{1e3 * median(times):.0f} ms",
                    f"{ratio['times']:.2f}",
                    f"{ratio['low']:.2f}-{ratio['high']:.2f}",
                )
            )
    measure.show(rows, ("", "median", "times as fast", "quartiles"))


if __name__ == "__main__":
    main()
