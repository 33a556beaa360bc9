"""What one would pick instead, side by side: the other benchmarks one after another in one run, and of each the line that counts.

    python benchmarks/beside.py                            # half an hour on two idle cores
    python benchmarks/beside.py --threads 1 --clock cpu    # beside other work
    python benchmarks/beside.py --only training sampling

In each the published way and Zellige's take turns in one process; a line is the median of the ratios within a round, above 1
where Zellige's is faster. Memory is the peak of a process of its own, Zellige's over the published. Before and after them all the
machine's limits are measured: matrix products of 1,024 x 1,024, and copies of 256 MiB.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch

import measure

HERE = Path(__file__).parent


class Line(NamedTuple):
    """what is done, beside what, where its figures stand in the JSON of a run, and what limits it."""

    what: str
    beside: str
    place: tuple[str, ...]
    limit: str


def training(states: str) -> tuple[Line, ...]:
    """The lines of `train_step` at so many states; {share} is filled in: of the peak of matrix products, in this run."""
    what = "blocks, head at the masks" if states == "50,258" else "blocks, which both have"
    return tuple(
        Line(
            f"training, masks, V = {states}, {kind}",
            "MDLM's step",
            ("sizes", f"V = {states}", kind),
            f"matrix products ({what}): {{share:.0%}} of their peak",
        )
        for kind in ("float32", "bfloat16")
    )


def sizes(what: str, beside: str, limit: str, places: dict[str, str], group: str = "sizes") -> tuple[Line, ...]:
    return tuple(Line(f"{what}, {size}", beside, (group, place), limit) for size, place in places.items())


LARGE, SMALL = "V = 50,258", "V = 27"
MNIST, CIFAR = {"K = 256, 784 places": "K = 256, L = 784, B = 8"}, {"3,072 places": "K = 256, L = 3,072, B = 8"}
STATES = "exponentials at every state and position, memory bandwidth"
SUMS = "matrix products of K x K at each place"

# name -> the command of a benchmark, and its lines
PARTS: dict[str, tuple[tuple[str, ...], tuple[Line, ...]]] = {
    "training": (("train_step.py",), training("50,258") + training("28")),
    "uniform-d3pm": (
        ("uniform_step.py", "--method", "d3pm"),
        sizes("training, uniform noise", "D3PM's objective", STATES, {LARGE: LARGE, SMALL: SMALL}),
    ),
    "uniform-sedd": (
        ("uniform_step.py", "--method", "sedd"),
        sizes("training, uniform noise", "SEDD's objective", STATES, {LARGE: LARGE, SMALL: SMALL}),
    ),
    "tauldr": (
        ("ctmc_step.py",),
        sizes("training, Gaussian rates", "tauLDR's one-pass objective", SUMS, MNIST),
    ),
    "tauldr-cifar": (
        ("ctmc_step.py", "--length", "3072"),
        sizes("training, Gaussian rates", "the same", SUMS, CIFAR),
    ),
    "tauldr-two-pass": (
        ("ctmc_step.py", "--objective", "two-pass"),
        sizes("the same in two passes", "the same", "two network calls", MNIST),
    ),
    "tauldr-birth-death": (
        ("ctmc_step.py", "--process", "birth-death"),
        sizes("birth-death rates", "the same", "float64, a series and squarings", MNIST),
    ),
    "d3pm": (("chain_step.py",), sizes("training, Gaussian chain", "D3PM's objective", SUMS, MNIST | CIFAR)),
    "blocks": (
        ("block_step.py",),
        sizes(
            "attention of block diffusion",
            "a mask of 2L x 2L",
            "torch's attention kernel",
            {"L = 256": "L = 256, B = 8", "L = 1,024": "L = 1,024, B = 4"},
            "attention",
        ),
    ),
    "sampling": (
        ("sampling.py",),
        (
            Line("sampling, V = 50,258, T = 16", "MDLM's sampler", ("cases", "mdlm, V = 50,258, T = 16"), "the blocks"),
            Line(
                "the same, V = 28, T = 1,000, batch 16",
                "the same, its cache on",
                ("cases", "mdlm, V = 28, T = 1000, batch 16"),
                "the blocks",
            ),
            Line(
                "sampling from a score, V = 50,258, T = 16",
                "SEDD's analytic sampler",
                ("cases", "sedd, V = 50,258, T = 16"),
                "the head at every mask",
            ),
            Line(
                "the same, V = 28, T = 128, batch 16",
                "the same",
                ("cases", "sedd, V = 28, T = 128, batch 16"),
                "the blocks",
            ),
        ),
    ),
}


def limits(clock: str) -> dict[str, float]:
    """FLOP/s of matrix products by type, and bytes/s of a copy, read and written."""
    found = {}
    for kind in (torch.float32, torch.bfloat16):
        a, b = (torch.randn(1024, 1024).to(kind) for _ in range(2))
        seconds = measure.alternate({"product": lambda a=a, b=b: [a @ b for _ in range(8)]}, 7, 2, clock)["product"]
        found[str(kind).removeprefix("torch.")] = 8 * 2 * 1024**3 / statistics.median(seconds)
    source = torch.zeros(1 << 26)
    target = torch.empty_like(source)
    seconds = measure.alternate({"copy": lambda: target.copy_(source)}, 7, 2, clock)["copy"]
    return found | {"copy": 2 * 4 * len(source) / statistics.median(seconds)}


def figures(result: dict[str, Any]) -> tuple[list[float], list[float], list[float]]:
    """Seconds of both ways, (times, low, high), and the MiB of both, in what a benchmark wrote of one case."""
    seconds = [
        statistics.median(result["seconds"][way]) if "seconds" in result else result[f"{way} seconds"]
        for way in measure.WAYS
    ]
    MiB = [result["MiB"][way] if "MiB" in result else result[f"{way} MiB"] for way in measure.WAYS]
    return seconds, list(result["faster"].values()), [m["all"] if isinstance(m, dict) else m for m in MiB]


def run(name: str, options: Any, folder: Path) -> dict[str, Any]:
    """What a benchmark says, in a process of its own."""
    (script, *flags), file = PARTS[name][0], folder / f"{name}.json"
    flags += ["--threads", str(options.threads), "--clock", options.clock, "--json", str(file)]
    flags += ["--rounds", str(options.rounds)] if options.rounds else []
    subprocess.run([sys.executable, str(HERE / script), *flags], check=True, stdout=subprocess.DEVNULL)
    return json.loads(file.read_text())


def main() -> None:
    parser = measure.options((__doc__ or "").splitlines()[0], rounds=3)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="these benchmarks")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    before = limits(options.clock)
    out: dict[str, Any] = {"machine": measure.machine()}
    print(
        "| | beside | published | Zellige | times as fast (quartiles) | memory, of it | what limits it |\n"
        + "|---" * 7
        + "|"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            out[name] = run(name, options, Path(folder))
            for line in PARTS[name][1]:
                result = out[name]
                for key in line.place:
                    result = result[key]
                seconds, (times, low, high), MiB = figures(result)
                share = result.get("FLOP", 0) / seconds[1] / before.get(line.place[-1], 1)
                times = f"{times:.2f}" if times >= 1.2 else f"**{times:.2f}**"
                cells = line.what, line.beside, *(f"{s:.3g} s" for s in seconds), f"{times} ({low:.2f}-{high:.2f})"
                print(
                    "|", " | ".join((*cells, f"{MiB[1] / MiB[0]:.2f}", line.limit.format(share=share))), "|", flush=True
                )
    out["limits"] = {"before": before, "after": limits(options.clock)}
    print(f"\nthreads: {options.threads}, {options.clock} clock, rounds: {options.rounds}")
    for when, found in out["limits"].items():
        products = ", ".join(f"{found[kind] / 1e9:,.0f} GFLOP/s in {kind}" for kind in ("float32", "bfloat16"))
        print(f"{when}: matrix products {products}; copies {found['copy'] / 1e9:.1f} GB/s, read and written")
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
