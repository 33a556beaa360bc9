"""On a GPU: a training step and sampling, Zellige's and the published way, into benchmarks/RESULTS-DEVICE-DATE.md (make gpu).

python benchmarks/gpu.py [--batch N] [--rounds N] [--precisions NAMES] [--out FOLDER] [--only WORDS]
python benchmarks/gpu.py --device cpu --small      # a trial of this file with tiny sizes: no figures to keep
"""

import argparse
import gc
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import measure
import reference
from zellige import Batch
from zellige.core.counter_random import Streams
from zellige.methods import METHODS, build
from zellige.models.config import Config
from zellige.nn import Net
from zellige.nn.network import unfilled
from zellige.nn.precision import PRECISIONS
from zellige.samplers import find, run
from zellige.show.numbers import byte_size, flop_rate, percent, token_rate
from zellige.training.cost import model_flops
from zellige.training.device import recognise
from zellige.training.ema import EMA
from zellige.training.order import StepSeeds

HERE = Path(__file__).parent
METHOD_NAMES = ("mdlm", "sedd", "bd3lm", "ar")
ON_GPU = [name for name in PRECISIONS if name != "int8"]
SAMPLERS = {"mdlm": "ancestral", "bd3lm": "blockwise", "ar": "left_to_right"}


@dataclass(frozen=True)
class Sizes:
    """A network, how many tokens there are, and the steps of a sampler."""

    net: Net
    vocabulary: int
    steps: int

    def tokens(self, batch: int, device: torch.device) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        return torch.randint(self.vocabulary, (batch, self.net.length), generator=generator).to(device)

    def method(self, name: str, device: torch.device) -> Any:
        torch.manual_seed(0)
        method = build(name, self.vocabulary, self.net).to(device)
        nn.init.normal_(method.network.head.weight, std=self.net.hidden**-0.5)  # at zero all tokens are alike
        return method


PAPERS = Sizes(Net(layers=12, hidden=768, heads=12, length=1024), 50_257, 256)  # GPT-2's tokens
SMALL = Sizes(Net(layers=2, hidden=32, heads=2, length=32), 20, 4)


def low(device: torch.device) -> Any:
    return torch.autocast(device.type, torch.bfloat16)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


# ------------------------------------------------------------------------------------------------- what is measured
def our_step(name: str, sizes: Sizes, batch: int, device: torch.device, compiled: bool) -> Callable[[], Any]:
    """A step as the trainer takes it: bfloat16 by autocast, clipping, fused AdamW, the average of the weights."""
    method, data = sizes.method(name, device).train(), Batch(sizes.tokens(batch, device))
    optimizer = torch.optim.AdamW(method.parameters(), lr=3e-4, fused=True)
    ema, seeds, count = EMA(method, 0.9999), StepSeeds(0, 1, device), itertools.count(1)
    loss_of = torch.compile(method.loss, dynamic=False) if compiled else method.loss

    def step() -> torch.Tensor:
        number = next(count)
        optimizer.zero_grad()
        with low(device):
            loss = loss_of(data, seeds.seed_part(number, 0)).sum() / data.tokens.numel()
        loss.backward()
        nn.utils.clip_grad_norm_(method.parameters(), 1.0)
        optimizer.step()
        ema.update(number)
        return loss.detach()

    return step


def published_step(sizes: Sizes, batch: int, device: torch.device, compiled: bool) -> Callable[[], Any]:
    """MDLM's step as its repository takes it (`reference`), in bfloat16 too."""
    net, K = sizes.net, sizes.vocabulary + 1
    network = reference.Network(K, net.hidden, net.layers, net.heads).to(device)
    network.take(sizes.method("mdlm", device).network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-4)
    ema, data = reference.EMA(network.parameters()), sizes.tokens(batch, device)
    loss_of = torch.compile(reference.loss, dynamic=False) if compiled else reference.loss

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        with low(device):
            loss = loss_of(network, data, K - 1)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        ema.update(network.parameters())
        return loss.detach()

    return step


def our_sampling(
    name: str, sizes: Sizes, batch: int, device: torch.device, precision: str, compiled: bool
) -> Callable[[], Any]:
    """As `zellige sample --precision --compile` draws: each text from a stream of its own, of counted random numbers."""
    method, sampler = sizes.method(name, device).eval().compute_in(precision, compiled), find(SAMPLERS[name])()
    taken = max(1, sizes.steps * (method.block or sizes.net.length) // sizes.net.length)  # of each block

    def draw() -> torch.Tensor:
        with torch.inference_mode():
            streams = Streams(range(batch), device)
            *_, state = run(sampler, method, (batch, sizes.net.length), taken, generator=streams)
        return state.x

    return draw


def published_sampling(sizes: Sizes, batch: int, device: torch.device) -> Callable[[], Any]:
    net, method = sizes.net, sizes.method("mdlm", device).eval()
    network = reference.Network(sizes.vocabulary + 1, net.hidden, net.layers, net.heads).to(device).eval()
    network.take(method.network)
    alpha = method.process.schedule.alpha(torch.linspace(1, 0, sizes.steps + 1, dtype=torch.float64))[:, 0]
    masked = (1 - alpha).float().to(device)
    masked[0], masked[-1] = 1.0, 0.0

    def draw() -> torch.Tensor:
        with low(device):
            return reference.sample(network, (batch, net.length), masked, method.process.mask, True)[0]

    return draw


def gpt2_sampling(sizes: Sizes, batch: int, device: torch.device, compiled: bool) -> Callable[[], Any]:
    """Transformers' GPT-2 of the same size, in bfloat16, with a cache of fixed size."""
    from transformers import GPT2Config, GPT2LMHeadModel

    net = sizes.net
    shape = {"n_positions": net.length, "n_embd": net.hidden, "n_layer": net.layers, "n_head": net.heads}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=sizes.vocabulary + 1, **shape)).to(device, torch.bfloat16).eval()
    begin = torch.zeros(batch, 1, dtype=torch.long, device=device)
    how = {"max_length": net.length, "do_sample": True, "top_k": 0, "pad_token_id": 0, "eos_token_id": None}
    how |= {"cache_implementation": "static", "disable_compile": not compiled}
    return lambda: model.generate(begin, attention_mask=torch.ones_like(begin), **how)


# ---------------------------------------------------------------------------------------------------- how
@dataclass(frozen=True)
class Row:
    """One line of a table: seconds of a call (its median), bytes at its peak; or why there are none."""

    way: str
    seconds: float = math.nan
    memory: float = 0.0
    problem: str = ""


def measured(way: str, make: Callable[[], Callable[[], Any]], device: torch.device, warm: int, rounds: int) -> Row:
    """The way made, called to warm up, and timed between two waits for the device; then all of it goes."""
    gc.collect()
    torch.compiler.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    print(f"{way} ...", file=sys.stderr, flush=True)
    seconds = []
    try:
        call = make()
        for number in range(warm + rounds):
            wait(device)
            began = time.perf_counter()
            result = call()
            wait(device)
            if number >= warm:
                seconds.append(time.perf_counter() - began)
        if not bool(torch.isfinite(result).all()):
            return Row(way, problem="a result that is not finite")
    except Exception as problem:  # one way that fails does not keep the others
        return Row(way, problem=str(problem).strip().splitlines()[0][:80] if str(problem) else type(problem).__name__)
    memory = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0.0
    return Row(way, statistics.median(seconds), memory)


def steps(sizes: Sizes, batch: int, device: torch.device, compile: bool) -> Iterator[tuple[str, str, Any]]:
    """(name of the method, way, what makes it) of each training step."""
    for compiled in (False, True) if compile else (False,):
        also = ", compiled" if compiled else ""
        yield "mdlm", f"mdlm, published{also}", lambda c=compiled: published_step(sizes, batch, device, c)
        for name in METHOD_NAMES:
            yield name, f"{name}{also}", lambda n=name, c=compiled: our_step(n, sizes, batch, device, c)


def samplings(
    sizes: Sizes, batch: int, device: torch.device, compile: bool, precisions: Iterable[str]
) -> Iterator[tuple[str, Any]]:
    both = (False, True) if compile else (False,)
    yield "mdlm, published, bfloat16", lambda: published_sampling(sizes, batch, device)
    for compiled in both:
        way = f"GPT-2 of transformers, bfloat16{', compiled' * compiled}"
        yield way, lambda c=compiled: gpt2_sampling(sizes, batch, device, c)
    for name in SAMPLERS:
        for precision in precisions:
            for compiled in both:
                way = f"{name}, {precision}{', compiled' * compiled}"
                yield way, lambda n=name, p=precision, c=compiled: our_sampling(n, sizes, batch, device, p, c)


def flops_of(name: str, sizes: Sizes) -> float:
    """FLOP of a row of this method, forward and backward, as a training counts them."""
    config = Config(name, METHODS[name].Config(), net=sizes.net)
    with unfilled():
        flops = model_flops(config, build(name, sizes.vocabulary, sizes.net))
    assert flops is not None
    return flops


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def report(options: argparse.Namespace) -> str:
    """The page: what it was measured on, a table of steps, a table of sampling."""
    device, sizes = torch.device(options.device), SMALL if options.small else PAPERS
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    known = recognise(name) if device.type == "cuda" else None
    tokens = options.batch * sizes.net.length
    chosen = lambda way: all(word in way for word in options.only)  # noqa: E731
    flops = {name: flops_of(name, sizes) for name in METHOD_NAMES}
    out: dict[str, Row] = {}
    trained, drawn = [], []
    for of, way, make in steps(sizes, options.batch, device, options.compile):
        if chosen(f"step {way}"):
            row = out[way] = measured(way, make, device, 3, options.rounds)
            same = out.get("mdlm, published" + ", compiled" * way.endswith("compiled"))
            trained.append(line(row, tokens, flops[of] * options.batch, known, same if of == "mdlm" else None))
    for way, make in samplings(sizes, options.batch, device, options.compile, options.precisions):
        if chosen(f"sampling {way}"):
            row = measured(way, make, device, 1, max(1, options.rounds // 5))
            drawn.append([way, *([row.problem, "", ""] if row.problem else sampled(row, tokens))])
    net, machine = sizes.net, measure.machine()
    trial = ["**A trial of this file with tiny sizes: none of these figures means anything.**", ""] * options.small
    heads = ["step", "ms", "tokens/s", "model FLOP/s", "MFU", "peak memory", "faster than published"]
    return "\n".join(
        [
            f"# {name}, {time.strftime('%Y-%m-%d')}",
            "",
            *trial,
            f"    python benchmarks/gpu.py {' '.join(sys.argv[1:])}".rstrip(),
            "",
            f"{net.layers} x {net.hidden}, {net.heads} heads, L = {net.length:,}, {sizes.vocabulary + 1:,} states, batch "
            f"{options.batch}, bfloat16 by autocast; torch {machine['torch']}, Python {machine['python']}.",
            f"The median of {options.rounds} steps after 3. Peak: {known.source if known else 'not in the table of devices'}.",
            "FLOP are the model's, forward and backward, with the head at every position, as `zellige plan` counts them.",
            "",
            "## A training step",
            "",
            table(heads, trained),
            f"## Sampling, {sizes.steps} steps of {options.batch} texts",
            "",
            table(["sampler", "s", "tokens/s", "peak memory"], drawn),
        ]
    )


def line(row: Row, tokens: int, flops: float, known: Any, published: Row | None) -> list[str]:
    """A line of the table of steps; without a known device no utilisation."""
    if row.problem:
        return [row.way, row.problem, *[""] * 5]
    rate = flops / row.seconds
    share = percent(rate / known.bfloat16) if known else ""
    memory = byte_size(row.memory) if row.memory else ""
    faster = f"{published.seconds / row.seconds:.2f}x" if published and published.seconds > 0 else ""
    return [
        row.way,
        f"{1e3 * row.seconds:.1f}",
        token_rate(tokens / row.seconds),
        flop_rate(rate),
        share,
        memory,
        faster,
    ]


def sampled(row: Row, tokens: int) -> list[str]:
    memory = byte_size(row.memory) if row.memory else ""
    return [f"{row.seconds:.2f}", token_rate(tokens / row.seconds), memory]


def main(words: list[str] | None = None) -> Path:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="tiny sizes: a trial of this file")
    parser.add_argument("--batch", type=int, default=16, help="rows of a step, and texts that are drawn at once")
    parser.add_argument("--rounds", type=int, default=20, help="steps that are timed")
    parser.add_argument("--precisions", nargs="+", default=ON_GPU, choices=ON_GPU, help="those of sampling")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave out what is compiled")
    parser.add_argument("--only", nargs="+", default=[], help="words of what is to be measured: step mdlm, compiled")
    parser.add_argument("--out", type=Path, default=HERE, help="the folder of the page")
    options = parser.parse_args(words)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.exit(0, "benchmarks/gpu.py: no GPU that torch can use here; nothing was measured\n")
    if options.device == "cpu" and not options.small:
        parser.error("on a CPU only a trial, with --small")
    torch.set_float32_matmul_precision("high")  # for both ways alike: what autocast leaves in float32
    page = report(options)
    name = page.partition(",")[0].removeprefix("# ").lower().replace(" ", "-")
    target = options.out / f"RESULTS-{name}-{time.strftime('%Y-%m-%d')}{'-trial' if options.small else ''}.md"
    target.write_text(page, encoding="utf-8")
    print(page)
    print(target)
    return target


if __name__ == "__main__":
    main()
