"""What grows with what: the seconds of a step, of a sample and of a corpus against their sizes, and the exponents.

    python benchmarks/slopes.py [--only length vocabulary steps levels corpus] [--rounds N]

The slope from one size to the next is the exponent of the power law between them, of the median over rounds of the ratio within
a round (its quartiles beside it): 1 is in proportion, 0 costs nothing. `all` is the least-squares line through the logarithms
of all medians. The sizes of a series take turns; seconds are those of the processor, on one thread.

    length       a training step of mdlm against L: two rows, few states, so that the blocks are all there is
    vocabulary   a training step against V: mdlm, and the two closed forms of uniform noise
    steps        four samples against T: mdlm, and sedd, whose network is asked in each step; calls of the network, of a row
    levels       loss and backward pass on D3PM's Gaussian chain against K, of a network that costs next to nothing
    corpus       text to tokens against its size in MB, then opened: the first time read through, the second no more
"""

import gc
import json
import math
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import chain_step
import corpus
import measure
import sampling
import train_step
import uniform_step
from zellige.methods import SEDD, build
from zellige.nn import Net

Seconds = dict[int, list[float]]  # size -> one number for each round
Series = tuple[dict[str, Seconds], dict[str, dict[int, str]]]  # lines of seconds, and other columns of the table
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
VOCABULARIES = (28, 512, 4096, 16384, 50257)
STEPS = (16, 32, 64, 128, 256, 512, 1024)
LEVELS = (64, 128, 256, 512, 1024)
MEGABYTES = (1, 4, 16, 64)


# ---------------------------------------------------------------------------------------------------- the series
def length(rounds: int, clock: str) -> Series:
    """Rows fixed, not tokens: 1 is then what the matrices of the blocks cost, and 2 what attention does."""
    calls = {}
    for L in LENGTHS:
        method = build("mdlm", 27, Net(layers=4, hidden=128, heads=4, length=L))
        calls[L] = train_step.training(method, train_step.tokens(28, 2, L), ("float32",))["float32"]
    return {"mdlm": timed(calls, rounds, clock)}, {}


def vocabulary(rounds: int, clock: str) -> Series:
    methods: dict[str, tuple] = {"mdlm": ("mdlm",), "sedd uniform": ("sedd", SEDD.Config("uniform")), "udlm": ("udlm",)}
    lines, net = {}, uniform_step.NET
    for line, (name, *config) in methods.items():
        calls = {}
        for V in VOCABULARIES:
            data = train_step.tokens(V + 1, 8, net.length)
            calls[V] = train_step.training(build(name, V, net, *config), data, ("float32",))["float32"]
        lines[line] = timed(calls, rounds, clock)
    return lines, {}


def steps(rounds: int, clock: str) -> Series:
    lines, calls = {}, {}
    for name in ("mdlm", "sedd"):
        # Its head is 0, so sedd's score sums to 1, as a trained one does: masks are revealed when the schedule says.
        method = build(name, 27, Net(layers=2, hidden=64, heads=4, length=64)).eval()
        asked = calls[f"{name}, calls"] = {}

        def sample(T: int, method: Any = method, asked: dict[int, str] = asked) -> None:
            asked[T] = f"{sampling.ours(method, 4, T, 0)[1].double().mean().item():,.0f}"

        lines[name] = timed({T: partial(sample, T) for T in STEPS}, rounds, clock, warm=0)
    return lines, calls


def levels(rounds: int, clock: str) -> Series:
    T = 200  # enough that from K = 256 on every third product is held, as at the paper's 1,000
    batch, places = 8, 784
    calls, held = {}, {}
    for K in LEVELS:
        method = chain_step.make("logistic", K, places, T)
        calls[K] = partial(chain_step.step, method, None, chain_step.data(K, batch, places))
        held[K] = f"{method.process.products.nbytes / 2**20:,.0f}"  # pyright: ignore
    return {"d3pm gaussian": timed(calls, rounds, clock)}, {"products, MiB": held}


def text(rounds: int, _: str) -> Series:
    """BPE of 2,048 entries; each a process of its own, its processor time from when `prepare` is asked, its most memory."""
    whens = ("made", "opened", "opened again")
    lines: dict[str, Seconds] = {when: {size: [] for size in MEGABYTES} for when in whens}
    most = {when: dict.fromkeys(MEGABYTES, 0.0) for when in whens}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer, sentences = f"{folder}/tokenizer", corpus.lines_of(corpus.HERE.parent.parent / "shared" / "data")
        for size in MEGABYTES:
            corpus.write_text(Path(folder, f"{size}.txt"), sentences, size * 1e6, size)
        corpus.part("learn", f"{folder}/{MEGABYTES[0]}.txt", tokenizer, 2048)
        for i in range(rounds):
            for size in MEGABYTES:
                for when in whens:
                    result = corpus.part("corpus", f"{folder}/{size}.txt", tokenizer, f"{folder}/cache-{i}", 0)
                    lines[when][size].append(result["processor_s"])
                    most[when][size] = max(most[when][size], result["anonymous_mb"])
    return lines, {f"{when}, MB": {size: f"{mb:,.0f}" for size, mb in of.items()} for when, of in most.items()}


SERIES: dict[str, tuple[Callable[[int, str], Series], int]] = {  # how, and rounds
    "length": (length, 3),
    "vocabulary": (vocabulary, 3),
    "steps": (steps, 3),
    "levels": (levels, 5),
    "corpus": (text, 1),
}


# ---------------------------------------------------------------------------------------------------- the exponents
def timed(calls: dict[int, Callable[[], object]], rounds: int, clock: str, warm: int = 1) -> Seconds:
    """Seconds of the calls, the sizes in turn."""
    seconds = measure.alternate({str(size): call for size, call in calls.items()}, rounds, warm, clock)
    return {int(size): each for size, each in seconds.items()}


def slope(seconds: Seconds, small: int, large: int) -> str:
    """The exponent between two sizes, and its quartiles over rounds."""
    ratio = measure.compare({str(size): each for size, each in seconds.items()}, slow=str(large), fast=str(small))
    exponent = {name: math.log(times) / math.log(large / small) for name, times in ratio.items()}
    return f"{exponent['times']:.2f} ({exponent['low']:.2f} to {exponent['high']:.2f})"


def line_through(seconds: Seconds) -> str:
    """The exponent over all sizes, by least squares."""
    medians = [math.log(statistics.median(each)) for each in seconds.values()]
    return f"{statistics.linear_regression([math.log(size) for size in seconds], medians).slope:.2f}"


def show(quantity: str, lines: dict[str, Seconds], more: dict[str, dict[int, str]]) -> None:
    """A table: of each line seconds and the slope from the size before; other columns behind them."""
    row([quantity, *(head for name in lines for head in (f"{name}, s", "slope")), *more])
    row(["---"] * (1 + 2 * len(lines) + len(more)))
    sizes = list(next(iter(lines.values())))
    for before, size in zip([0, *sizes], sizes):
        cells = [f"{size:,}"]
        for seconds in lines.values():
            cells += [f"{statistics.median(seconds[size]):.3g}", slope(seconds, before, size) if before else ""]
        row([*cells, *(of[size] for of in more.values())])
    row(["all", *(cell for seconds in lines.values() for cell in ("", line_through(seconds))), *("" for _ in more)])


def row(cells: list[str]) -> None:
    print("|", " | ".join(cells), "|")


def main() -> None:
    parser = measure.options((__doc__ or "").splitlines()[0], rounds=0)
    parser.add_argument("--only", nargs="+", choices=SERIES, default=list(SERIES), help="these series")
    parser.set_defaults(threads=1, clock="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    out: dict[str, Any] = {"machine": measure.machine()}
    for name in options.only:
        series, rounds = SERIES[name]
        lines, more = series(options.rounds or rounds, options.clock)
        gc.collect()
        print(f"{name}: {options.rounds or rounds} rounds, threads: {options.threads}, {options.clock} clock\n")
        show(name, lines, more)
        print(flush=True)
        out[name] = {"seconds": lines, **more}
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
