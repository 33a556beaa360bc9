"""What samplers cost on images of 32 x 32 x 3 places with 256 levels: network calls, places its head saw, seconds, memory.

python benchmarks/image_sampling.py [--steps N] [--channels N] [--threads N] [--clock cpu] [--json FILE]

One image from each, by an untrained U-Net (`--net.kind unet`), each in a process of its own. The memory is the largest that was
resident while the image was drawn, beside what was resident with the model loaded and called once.
"""

import json
import subprocess
import sys
from typing import Any

import torch

import measure
from zellige.methods import METHODS, build
from zellige.nn import Net
from zellige.samplers import SAMPLERS, run

GRID, LEVELS = (32, 32, 3), 256
LENGTH = GRID[0] * GRID[1] * GRID[2]
GAUSSIAN = {"process": "gaussian", "head": "logistic"}
PAPER = {"process": "gaussian", "head": "logistic", "base": 3.0, "growth": 100.0, "min_time": 0.01}
CORRECTED = {"corrector": 10, "corrector_step": 1.5, "corrector_from": 0.0909}
CASES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {  # method, its choices, sampler, its options
    "md4, ancestral": ("md4", {}, "ancestral", {}),
    "md4, ancestral on even steps": ("md4", {}, "ancestral", {"grid": "uniform"}),
    "md4, ancestral, every mask asked": ("md4", {}, "ancestral", {"choose": False}),
    "md4, tau_leaping": ("md4", {}, "tau_leaping", {}),
    "md4, confidence": ("md4", {}, "confidence", {}),
    "md4, remasking": ("md4", {}, "remasking", {}),
    "d3pm, ancestral, argmax last": ("d3pm", GAUSSIAN, "ancestral", {"argmax": "last"}),
    "tauldr, ancestral": ("tauldr", PAPER, "ancestral", {}),
    "tauldr, euler": ("tauldr", PAPER, "euler", {}),
    "tauldr, tau_leaping, argmax last": ("tauldr", PAPER, "tau_leaping", {"argmax": "last"}),
    "tauldr, 10 corrector steps from 0.1 on": ("tauldr", PAPER, "tau_leaping", {"argmax": "last", **CORRECTED}),
}


def draw(case: str, steps: int, channels: int, clock: str) -> dict[str, float]:
    """One image: network calls, the places of the head in all, seconds, MiB beside the model."""
    name, choices, sampler, options = CASES[case]
    net = Net(
        length=LENGTH, grid=GRID, kind="unet", channels=channels, multipliers=(1, 2), blocks=1, attention=(16,),
        condition=4 * channels,
    )  # fmt: skip
    config = METHODS[name].Config(**choices, **({"diffusion_steps": steps} if name == "d3pm" else {}))
    method: Any = build(name, LEVELS, net, config, LENGTH, ordered=True).eval()
    seen: list[int] = []
    with torch.inference_mode():
        torch.nn.init.normal_(method.network.head.weight, std=0.1)
        method.predict(torch.zeros(1, LENGTH, dtype=torch.long), 0.5)
        method.network.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[0]))
        memory, how, now = measure.Memory(), SAMPLERS[sampler](**options), measure.CLOCKS[clock]
        before, start = memory.mark(), now()
        *_, state = run(how, method, (1, LENGTH), steps, generator=torch.Generator().manual_seed(0))
        seconds = now() - start
    return {
        "calls": int(state.calls[0]), "places": sum(seen), "seconds": seconds, "MiB": memory.largest() - before,
    }  # fmt: skip


def main() -> None:
    """Print the table; or with --case the numbers of one, as JSON."""
    parser = measure.options(__doc__ or "", 1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--channels", type=int, default=16, help="of the U-Net's first resolution")
    parser.add_argument("--case", choices=CASES)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.case:
        print(json.dumps(draw(options.case, options.steps, options.channels, options.clock)))
        return
    print(f"{options.steps} steps, {options.channels} channels, {options.threads} threads")
    print("| method, sampler | network calls | places its head saw | seconds | peak memory |\n|---|---|---|---|---|")
    rows = {}
    for case in CASES:
        command = [sys.executable, __file__, "--case", case]
        for name in ("steps", "channels", "threads", "clock"):
            command += [f"--{name}", str(getattr(options, name))]
        rows[case] = row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(
            f"| {case} | {row['calls']} | {row['places']:,} | {row['seconds']:.1f} | {row['MiB']:.0f} MiB |", flush=True
        )
    if options.json:
        options.json.write_text(json.dumps({"machine": measure.machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
