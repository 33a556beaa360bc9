"""Tokens a second and memory of a bidirectional network with each cache, and what the caches do to a trained model.

    python benchmarks/caches.py --threads 1 --clock cpu --batch 1 4
    python benchmarks/caches.py --threads 1 --clock cpu --model runs/tales-mdlm --path tales/test.txt

The first writes the last `--tokens` of texts of `--length` with random weights, in blocks of 32, by `--per-step` tokens in each
evaluation: `any_order` inside `semi_autoregressive`, whose speed does not depend on the weights. Beside it an `ar` model of the
same sizes with its cache, from the same prompt. Memory is the largest that is resident during a call, above what was before it.

The second measures what the caches change: -log p of held-out texts as samples, exactly, one token per evaluation, in the order
from left to right and in that of confidence. Each token is drawn as the text has it, and its chance counted; the time is that
of these evaluations.
"""

import sys
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

import measure
import zellige
from zellige import Net
from zellige.evaluation.interval import mean
from zellige.exact.script import Forced
from zellige.methods import build
from zellige.samplers import AnyOrder, LeftToRight, SemiAutoregressive, run

STATES, BLOCK = 50_257, 32
WAYS = {
    "no cache": {},
    "prefix": {"cache": "prefix"},
    "dual": {"cache": "dual"},
    "dual, refresh 4": {"cache": "dual", "refresh": 4},
}


def speed(chosen: Any) -> None:
    """Print tokens a second and memory of each cache, and of an autoregressive model."""
    length, new, memory = chosen.length, chosen.tokens, measure.Memory()
    torch.manual_seed(0)
    net = Net(chosen.layers, chosen.hidden, chosen.hidden // 64, length)
    masked, ar = (build(name, STATES, net).eval() for name in ("mdlm", "ar"))
    calls: dict[str, int] = {}
    peaks: dict[str, float] = {}

    def write(name: str, sampler: Any, method: Any, fixed: Tensor) -> None:
        before = memory.mark()
        *_, last = run(sampler, method, tuple(fixed.shape), None, fixed=fixed)
        calls[name], peaks[name] = int(last.calls[0]), memory.largest() - before

    for batch in chosen.batch:
        prompt = torch.randint(STATES, (batch, length - new))
        fixed = torch.cat((prompt, torch.full((batch, new), -1)), 1)
        variants: dict[str, Any] = {
            name: partial(write, name, SemiAutoregressive(AnyOrder(chosen.per_step), BLOCK, **options), masked, fixed)
            for name, options in WAYS.items()
        }
        variants["ar, its cache"] = partial(write, "ar, its cache", LeftToRight(), ar, fixed)
        with torch.no_grad():
            seconds = measure.alternate(variants, chosen.rounds, warm=0, clock=chosen.clock)
        rows = []
        for name, times in seconds.items():
            middle, more = median(times), measure.compare(seconds, "no cache", name)["times"]
            rows.append((name, calls[name], f"{batch * new / middle:.2f}", f"{more:.2f}", f"{peaks[name]:,.0f}"))
        heads = (f"{new} of {length} tokens, batch {batch}", "evaluations", "tokens/s", "times no cache", "MiB")
        measure.show(rows, heads)
        print(flush=True)


@torch.no_grad()
def nats(method: Any, texts: Tensor, inside: str, block: int, options: dict[str, Any]) -> Tensor:
    """-log p of texts (B, N) as samples, (B,) nats."""
    sampler = SemiAutoregressive(zellige.samplers.find(inside)(**({"per_step": 1})), block, **options)
    method, total = method.of_length(texts.shape[1]), torch.zeros(len(texts), dtype=torch.float64)
    state = sampler.init(method, tuple(texts.shape))
    for t, s in pairwise(sampler.times(method, None)):
        begin = state.memory.begin
        forced = Forced(texts[:, begin : begin + block])
        state, total = sampler.step(method, state, t, s, forced), total - forced.probability.log()
    assert state.x.equal(texts)
    return total


def quality(chosen: Any) -> None:
    """Print what the caches do to a trained model."""
    model = zellige.load(chosen.model)
    length, rows = model.config.net.length, []
    tokens = torch.tensor(model.tokenizer.encode(Path(chosen.path).read_text(encoding="utf-8")))
    texts = tokens[: len(tokens) // length * length].view(-1, length)
    texts = texts[:: max(len(texts) // chosen.texts, 1)][: chosen.texts]
    for inside in ("fixed_order", "confidence"):
        base: Tensor | None = None
        for name, options in WAYS.items():
            began = time.process_time()
            total = nats(model.method, texts, inside, BLOCK, options) / length
            seconds = time.process_time() - began
            base = total if base is None else base
            change = "" if total is base else mean(total - base).text()
            rows.append((inside, name, mean(total).text(), change, f"{texts.numel() / seconds:.1f}"))
    measure.show(rows, ("order in a block", "cache", "nats/token", "change (95%)", "tokens/s"))


def main() -> int:
    parser = measure.options(__doc__ or "", rounds=1)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--per-step", type=int, default=4)
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--model", default="")
    parser.add_argument("--path", default="", help="held-out text, for --model")
    parser.add_argument("--texts", type=int, default=32)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    (quality if chosen.model else speed)(chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
