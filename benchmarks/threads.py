"""A training step of size tiny and a sample of `stories` by how threads wait (`zellige.base.processes`): milliseconds, in turn.

python benchmarks/threads.py                 # beside other work, or on an idle machine: the load stands in each line
"""

import argparse
import os
import subprocess
import sys
import time

from zellige.base import processes

WAYS: dict[str, dict[str, str]] = {
    "as it comes": {}, "passive": {"OMP_WAIT_POLICY": "passive"}, "10,000 turns": {"GOMP_SPINCOUNT": "10000"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}  # fmt: skip


def measure(work: str, seconds: float) -> None:
    """Print the milliseconds of one step, or of sixteen tokens."""
    import torch

    import zellige
    from zellige.core.batch import Batch
    from zellige.methods import METHODS, build
    from zellige.training.setup import SIZES

    tiny = SIZES["tiny"]
    method = build("mdlm", 2048, tiny.net, METHODS["mdlm"].Config()).train()
    batch, generator = Batch(torch.randint(2048, (tiny.train.batch, *method.shape))), torch.Generator().manual_seed(0)
    optimizer, model = torch.optim.AdamW(method.parameters()), zellige.load("stories")

    def step() -> None:
        if work == "sample":
            zellige.sample(model, length=16)
            return
        method.loss(batch, generator).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step()
        steps += 1
    print(round((time.perf_counter() - began) / steps * 1e3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=("train", "sample"))
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    if chosen.work:
        measure(chosen.work, chosen.seconds)
        return
    plain = {name: value for name, value in os.environ.items() if name not in (*processes.CHOSEN, "OMP_NUM_THREADS")}
    for _ in range(chosen.rounds):
        for work in ("train", "sample"):
            command = [sys.executable, __file__, "--work", work, "--seconds", str(chosen.seconds)]
            times = [
                subprocess.run(command, env=plain | way, capture_output=True, text=True, check=True).stdout.strip()
                for way in WAYS.values()
            ]
            shown = ", ".join(f"{name} {ms}" for name, ms in zip(WAYS, times))
            print(f"{work:6}  load {os.getloadavg()[0]:.1f}  ms: {shown}", flush=True)


if __name__ == "__main__":
    main()
