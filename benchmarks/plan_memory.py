"""The memory that `zellige plan` foretells, against a real training: the peak of its process, above what it began with.

    python benchmarks/plan_memory.py          # three configurations, each a process of its own; some minutes

The training is `zellige.train`, with its data, validation and checkpoint. What is compared is the anonymous memory of the process
(`RssAnon`, read every 2 ms; Linux), less what it had after a tiny training of the same kind, which loads every library. There is
an allocator between the two, which is told to give back at once what is freed; what it keeps all the same the plan has not.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

CASES = {  # method, vocabulary, network, rows of a step
    "mdlm, 6 x 384, L 256, V 5,000": ("mdlm", 5000, {"layers": 6, "hidden": 384, "heads": 6, "length": 256}, 12),
    "sedd, 4 x 256, L 512, V 500": ("sedd", 500, {"layers": 4, "hidden": 256, "heads": 4, "length": 512}, 12),
    "bd3lm, 4 x 512, L 128, V 20,000": ("bd3lm", 20000, {"layers": 4, "hidden": 512, "heads": 8, "length": 128}, 16),
}

AT_ONCE = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")  # bytes, of glibc


def anonymous() -> int:
    """Bytes of memory of this process that are no file's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def child(case: str) -> None:
    """Train and print the two numbers as JSON."""
    import numpy as np

    import zellige
    from zellige import Net, Train
    from zellige.models.config import Config
    from zellige.plugins.studies.plan.estimate import as_on_gpu, budget_of
    from zellige.training.device import DEVICES

    method, V, sizes, rows = CASES[case]
    net = Net(**sizes)
    numbers = np.random.default_rng(0).integers(V, size=(256, net.length))
    numbers.flat[:V] = np.arange(V)  # each is there
    how = {"batch": rows, "samples": 0, "validate_rows": 2, "validate_every": 0, "tensorboard": False, "device": "cpu"}
    how["precision"] = "float32"
    options = zellige.METHODS[method].Config(**({"block": 16} if method == "bd3lm" else {}))
    folder = Path(tempfile.mkdtemp())
    small = Net(layers=1, hidden=16, heads=2, length=net.length)
    zellige.train(method, data=numbers, net=small, train=Train(steps=2, **how), options=options, run=folder / "tiny")
    before, most, done = anonymous(), [0], threading.Event()

    def watch() -> None:
        while not done.is_set():
            most[0] = max(most[0], anonymous())
            time.sleep(0.002)

    thread = threading.Thread(target=watch)
    thread.start()
    with as_on_gpu():  # as the plan counts them
        run = zellige.train(
            method, data=numbers, net=net, train=Train(steps=4, **how), options=options, run=folder / "run"
        )
    done.set()
    thread.join()
    config = Config(method, options, net=run.config.net, train=run.config.train)
    memory = budget_of(config, run.model.tokenizer.size, 1, DEVICES["h100"]).ddp
    print(json.dumps([memory.total, most[0] - before, memory.activations]))


def main() -> None:
    print("| training | planned | of it activations | measured | planned / measured |\n|---|---|---|---|---|")
    for case in CASES:
        command, env = [sys.executable, __file__, case], os.environ | dict.fromkeys(AT_ONCE, str(1 << 16))
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
        planned, measured, activations = json.loads(done.stdout.splitlines()[-1])
        sizes = " | ".join(f"{bytes_ / 1e6:,.0f} MB" for bytes_ in (planned, activations, measured))
        print(f"| {case} | {sizes} | {planned / measured:.3f} |", flush=True)


if __name__ == "__main__":
    child(sys.argv[1]) if sys.argv[1:] else main()
