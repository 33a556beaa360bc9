"""Requests a second and latency of `zellige serve`, and what it adds to drawing the same texts in Python.

    python benchmarks/serve.py [--rounds N] [--threads N] [--json FILE] [--run RUN] [--steps 64] [--tokens 128]

The server is the command, in a process of its own; without a run it serves an untrained MDLM of the demo's size. One client asks
for one text, then sixteen ask at once; `sample` draws as many in this process. They take turns, and ratios are within a round.
"""

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import torch

import measure
import zellige
from zellige import Net
from zellige.data import Data
from zellige.data.tokenizer import Characters
from zellige.methods import build
from zellige.models.config import Config
from zellige.models.model import Model

AT_ONCE = (1, 16)
NET = Net(layers=4, hidden=128, heads=4, length=128, conv=7)


def untrained(folder: str) -> str:
    """A saved MDLM of the demo's size: what it takes does not depend on its weights."""
    tokenizer = Characters("abcdefghijklmnopqrstuvwxyz ")
    torch.manual_seed(0)
    method = build("mdlm", tokenizer.size, NET).eval()
    Model(method, tokenizer, Config("mdlm", type(method).Config(), Data("pydocs"), NET)).save(folder)
    return folder


@contextlib.contextmanager
def serving(run: str, threads: int) -> Iterator[str]:
    """The address of `zellige serve` in a process of its own."""
    command = [sys.executable, "-m", "zellige", "serve", run, "--port", "0"]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().split()[0]
        finally:
            server.terminate()


def main() -> None:
    parser = measure.options(__doc__.splitlines()[0], rounds=9)
    parser.add_argument("--run", help="a run, a saved folder or a hub id")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or untrained(f"{folder}/model")
        with serving(run, options.threads) as address:
            numbers = timed(zellige.load(run), address, options)
    rows = [
        (name, f"{n['requests a second']:.2f}", f"{n['latency']:.3f}", f"{n['slowest']:.3f}", f"{n['times of sample']:.2f}")
        for name, n in numbers.items()
    ]  # fmt: skip
    measure.show(rows, ("at once", "requests/s", "latency, s", "slowest, s", "times of sample"))
    if options.json:
        options.json.write_text(json.dumps(numbers | {"machine": measure.machine()}, indent=2) + "\n")


def timed(model: Any, address: str, options: Any) -> dict[str, dict[str, float]]:
    """Of each number of requests at once: medians over the rounds, and the slowest request of all."""
    latencies: dict[int, list[float]] = {count: [] for count in AT_ONCE}
    ask = {"max_tokens": options.tokens, "steps": options.steps}

    def served(count: int) -> None:
        async def one(client: httpx.AsyncClient, seed: int) -> float:
            began = time.perf_counter()
            (await client.post("/completions", json=ask | {"seed": seed})).raise_for_status()
            return time.perf_counter() - began

        async def all_at_once() -> list[float]:
            async with httpx.AsyncClient(base_url=address, timeout=600) as client:
                return await asyncio.gather(*(one(client, seed) for seed in range(count)))

        latencies[count] += asyncio.run(all_at_once())

    def drawn(count: int) -> None:
        zellige.sample(model, count=count, batch=count, length=options.tokens, steps=options.steps, seed=0)

    variants: dict[str, Callable[[], object]] = {f"served {n}": partial(served, n) for n in AT_ONCE}
    variants |= {f"drawn {n}": partial(drawn, n) for n in AT_ONCE}
    seconds = measure.alternate(variants, options.rounds, clock=options.clock)
    return {
        str(n): {
            "requests a second": n / statistics.median(seconds[f"served {n}"]),
            "latency": statistics.median(latencies[n][n:]),
            "slowest": max(latencies[n][n:]),
            "times of sample": measure.compare(seconds, f"served {n}", f"drawn {n}")["times"],
        }
        for n in AT_ONCE
    }


if __name__ == "__main__":
    main()
