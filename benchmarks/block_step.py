"""Attention of a training step of block diffusion, and a denoising call behind a long prefix, each in two ways.

python benchmarks/block_step.py [--rounds N] [--threads N] [--small] [--json FILE]

Training: attention alone, forward and backward, two streams of L tokens in blocks of 16, 8 heads of width 32. Published: one
call of `scaled_dot_product_attention` with the mask of 2L x 2L. Ours: chunks of queries whose keys stop where they see.

Sampling: one call of a network of 6 blocks, hidden 256, for a block of 16 after a prefix of 1,008 tokens; with a cache, and
without: then everything is read again.
"""

import json
import statistics
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

import measure
from zellige.nn import DiT, Net, attention

BLOCK, HEADS, WIDTH = 16, 8, 32
SIZES = {"L = 1,024, B = 1": (1024, 1), "L = 1,024, B = 4": (1024, 4), "L = 256, B = 8": (256, 8)}
SMALL = {"L = 64, B = 2": (64, 2)}


class Attention:
    """Queries, keys and values (2B, H, L, W) of two streams, the noisy rows first, and both ways of attending."""

    def __init__(self, length: int, batch: int):
        generator, shape = torch.Generator().manual_seed(0), (2 * batch, length, HEADS, WIDTH)
        self.inputs = [torch.randn(shape, generator=generator).transpose(1, 2).requires_grad_() for _ in range(3)]
        self.sight = attention.sight(BLOCK, 2, torch.zeros(batch, length, dtype=torch.long))
        block = torch.arange(length) // BLOCK
        q, k = block[:, None], block[None]
        nothing = torch.zeros(length, length, dtype=torch.bool)
        self.mask = torch.cat((torch.cat((q == k, k < q), 1), torch.cat((nothing, k <= q), 1)))

    def step(self, way: str) -> float:
        """Forward and backward; a number that both ways must agree on."""
        out = attention.attend(*self.inputs, self.sight.plan) if way == "zellige" else self.dense(*self.inputs)
        loss = out.square().mean()
        torch.autograd.grad(loss, self.inputs)
        return float(loss.detach())

    def dense(self, *inputs: Tensor) -> Tensor:
        length = self.mask.shape[0] // 2
        q, k, v = (torch.cat(y.chunk(2), 2) for y in inputs)
        return torch.cat(F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask).split(length, 2))


def call(prefix: int, clock: str, rounds: int) -> dict:
    """Seconds of a denoising call after a prefix, with a cache and without, and of writing the block into the cache."""
    torch.manual_seed(0)
    net = DiT(Net(length=prefix + BLOCK, hidden=HEADS * WIDTH, heads=HEADS), 28, block=BLOCK).eval()
    x = torch.randint(28, (1, prefix + BLOCK))
    with torch.no_grad():
        cache = net.extend(None, x[:, :prefix])
        variants = {
            "without": lambda: net.features(x)[:, prefix:],
            "with": lambda: net.features(x[:, prefix:], cache=cache),
            "extend": lambda: net.extend(cache, x[:, prefix:]),
        }
        assert torch.allclose(variants["without"](), variants["with"](), atol=1e-4)
        seconds = measure.alternate(variants, rounds, 1, clock)
    return {"seconds": seconds, "faster": measure.compare(seconds, "without", "with")}


def main() -> None:
    parser = measure.options(__doc__.splitlines()[0], rounds=7)
    parser.add_argument("--small", action="store_true", help="a size that only shows that it runs")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        size, way = options.peak.split("/")
        small, whole = Attention(32, 1), Attention(*{**SIZES, **SMALL}[size])
        measure.peak_of_steps(measure.Memory(), partial(small.step, way), partial(whole.step, way))
        return
    rows, out = [], {"machine": measure.machine(), "attention": {}}
    for size, shape in (SMALL if options.small else SIZES).items():
        peak = lambda way, size=size: measure.peak(__file__, f"{size}/{way}", options.threads)["step"]  # noqa: E731
        row, out["attention"][size] = measure.beside(size, Attention(*shape).step, peak, options)
        rows.append(row)
    measure.show(rows, measure.BESIDE)
    prefix = BLOCK if options.small else 1008
    out["call"] = made = call(prefix, options.clock, options.rounds)
    seconds = {way: f"{1000 * statistics.median(s):.1f} ms" for way, s in made["seconds"].items()}
    print(f"\na call after {prefix:,} tokens: {seconds['without']} without a cache, {seconds['with']} with one", end="")
    print(f" ({made['faster']['times']:.1f}x), {seconds['extend']} to add the block to it")
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
