"""A token of an autoregressive model with its cache, against GPT-2 of `transformers` with the same shapes.

    python benchmarks/decode.py --threads 1 --clock cpu

Untrained networks, one text at 50,257 states; `transformers` has to be installed. `weights` multiplies each matrix of the network
by a vector, and nothing else: they are read once for a token, so that no way to write one token at a time takes less.
"""

import sys
from itertools import pairwise

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import measure
from zellige import Net
from zellige.core.random import Streams
from zellige.methods import build
from zellige.samplers import LeftToRight

STATES = 50_257


def main() -> int:
    parser = measure.options(__doc__ or "", rounds=9)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--tokens", type=int, default=32)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    heads, n = chosen.hidden // 64, chosen.tokens
    method = build("ar", STATES, Net(chosen.layers, chosen.hidden, heads, n)).eval()
    sizes = {"n_layer": chosen.layers, "n_embd": chosen.hidden, "n_head": heads, "n_positions": n + 1}
    published = GPT2LMHeadModel(GPT2Config(vocab_size=STATES, **sizes)).eval()
    network = method.network
    matrices = [p for name, p in network.named_parameters() if p.ndim == 2 and not name.startswith("embedding")]
    vectors = [torch.randn(p.shape[1]) for p in matrices]
    sampler, begin = LeftToRight(), torch.zeros(1, 1, dtype=torch.long)

    @torch.no_grad()
    def ours() -> None:
        state, times, streams = sampler.init(method, (1, n)), sampler.times(method, None), Streams([1])
        for t, s in pairwise(times):
            state = sampler.step(method, state, t, s, streams)

    @torch.no_grad()
    def gpt2() -> None:
        how = {"min_new_tokens": n, "max_new_tokens": n, "do_sample": True, "top_k": 0, "pad_token_id": 0}
        published.generate(begin, attention_mask=torch.ones_like(begin), **how)

    @torch.no_grad()
    def weights() -> None:
        for _ in range(n):
            for matrix, vector in zip(matrices, vectors):
                matrix.mv(vector)

    ways = {"GPT-2": gpt2, "ar": ours, "weights": weights}
    seconds = measure.alternate(ways, chosen.rounds, clock=chosen.clock)
    rows = []
    for name in ways:
        times = measure.compare(seconds, "GPT-2", name)
        middle = sorted(seconds[name])[len(seconds[name]) // 2]
        rows.append(
            (name, f"{1000 * middle / n:.1f}", f"{times['times']:.2f}x ({times['low']:.2f}-{times['high']:.2f})")
        )
    measure.show(rows, ("", "ms a token", "faster than GPT-2 (quartiles)"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
