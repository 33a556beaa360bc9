"""Time and memory for an image: training and bits/dim of a U-Net of a million parameters at 256 levels, by three methods.

python benchmarks/unet_step.py [--batch N] [--rounds N] [--threads N] [--clock cpu] [--json FILE]

28 x 28 and 32 x 32 x 3 places, float32, each method in a process of its own. Training: loss, backward pass and AdamW. Bits/dim:
one draw of the bound without gradients, of which an evaluation takes some for each image. Memory is what is resident at the most
beyond the imports: weights, gradients, moments and tables in it. The images are noise, which costs as much as any.
"""

import json
import statistics
from typing import Any

import torch

import measure
from zellige.core.batch import Batch
from zellige.methods import D3PM, MD4, TauLDR, build
from zellige.nn import Net

GRIDS = {"28 x 28": (28, 28), "32 x 32 x 3": (32, 32, 3)}
SMALL = {"8 x 8": (8, 8)}
METHODS: dict[str, Any] = {
    "md4": MD4.Config(),
    "d3pm": D3PM.Config("gaussian", head="logistic", last="image"),
    "tauldr": TauLDR.Config("gaussian"),
}


def measured(size: str, name: str, options: Any) -> dict[str, float]:
    """Seconds an image and MiB, of training and of a draw of the bound."""
    memory, grid = measure.Memory(), {**GRIDS, **SMALL}[size]
    start, length = memory.now(), torch.Size(grid).numel()
    torch.manual_seed(0)
    net = Net(length=length, grid=grid, kind="unet", channels=24, multipliers=(1, 2, 2))
    method = build(name, 256, net, METHODS[name], ordered=True)
    optimizer = torch.optim.AdamW(method.parameters())
    batch = Batch(torch.randint(256, (options.batch, length)))

    def train() -> None:
        optimizer.zero_grad()
        (method.loss(batch, torch.Generator().manual_seed(1)).mean() / length).backward()
        optimizer.step()

    @torch.no_grad()
    def bound() -> None:
        method.bound(batch, torch.Generator().manual_seed(1))

    out: dict[str, float] = {"parameters": sum(p.numel() for p in method.parameters())}
    for verb, call in {"train": train, "bound": bound}.items():
        call()  # makes what serves all later ones
        memory.mark()
        seconds = measure.alternate({verb: call}, options.rounds, 0, options.clock)[verb]
        out |= {f"{verb} s": statistics.median(seconds) / options.batch, f"{verb} MiB": memory.largest() - start}
    return out


def main() -> None:
    parser = measure.options(__doc__.splitlines()[0], rounds=3)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--small", action="store_true", help="a size that only shows that it runs")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        print(json.dumps(measured(*options.peak.split("/"), options)))
        return
    more = "--batch", str(options.batch), "--rounds", str(options.rounds), "--clock", options.clock
    rows, out = [], {"machine": measure.machine(), "batch": options.batch, "images": {}}
    for size in SMALL if options.small else GRIDS:
        for name in METHODS:
            one = out["images"][f"{size}/{name}"] = measure.peak(__file__, f"{size}/{name}", options.threads, *more)
            cells = [
                (f"{1000 * one[f'{verb} s']:,.0f} ms", f"{one[f'{verb} MiB']:,.0f} MiB") for verb in ("train", "bound")
            ]
            rows.append((f"{size}, {name}", f"{one['parameters']:,}", *cells[0], *cells[1]))
    measure.show(rows, ("an image", "parameters", "train", "peak", "bits/dim, a draw", "peak"))
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
