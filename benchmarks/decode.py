"""Tokens a second of a text on a CPU, with each method and precision, beside GPT-2 of `transformers`.

    python benchmarks/decode.py --threads 1 --clock cpu               # pip install 'zellige[eval]', for transformers
    python benchmarks/decode.py --threads 1 --clock cpu --precision int8 --only ar bd3lm

Untrained networks with the shapes of GPT-2, 50,257 states, one text. The variants of a precision take turns in one process.
GPT-2 has its cache and float32; CTranslate2, if it is installed, runs the same network with its own kernels. `weights` multiplies
each matrix of the network by a vector and nothing else, by PyTorch's own product. `dual` is `mdlm` by the sampler
`semi_autoregressive` in blocks of 32 with the cache dual, 4 or 8 tokens an evaluation.
"""

import sys
import tempfile
from collections.abc import Callable
from copy import deepcopy
from importlib.util import find_spec
from statistics import median
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import measure
from zellige import Net
from zellige.methods import build
from zellige.samplers import AnyOrder, SemiAutoregressive, find, run

STATES, END = 50_257, "<|endoftext|>"
PRECISIONS = ("float32", "bfloat16", "int8")


def samplers(method: Any, precision: str, tokens: int) -> dict[str, Callable[[], object]]:
    """The ways to write a text with a method."""

    def write(sampler: Any, steps: int | None = None) -> Callable[[], object]:
        return lambda: [*run(sampler, method, (1, tokens), steps)]

    name = method.name
    if name == "ar":
        return {f"ar {precision}": write(find("left_to_right")())}
    if name == "bd3lm":
        return {f"bd3lm T = {steps} {precision}": write(find("blockwise")(), steps) for steps in (4, 8, 16)}
    dual = {
        f"dual {count} {precision}": write(SemiAutoregressive(AnyOrder(count), 32, cache="dual")) for count in (4, 8)
    }
    return {f"mdlm T = 16 {precision}": write(find("ancestral")(), 16)} | dual


def gpt2(layers: int, hidden: int, tokens: int) -> Any:
    """An untrained GPT-2."""
    sizes = {"n_layer": layers, "n_embd": hidden, "n_head": hidden // 64, "n_positions": tokens + 1}
    return GPT2LMHeadModel(GPT2Config(vocab_size=STATES, **sizes)).eval()


def by_transformers(model: Any, tokens: int) -> Callable[[], object]:
    """Write with GPT-2 of transformers."""
    begin = torch.zeros(1, 1, dtype=torch.long)
    how = {"min_new_tokens": tokens, "max_new_tokens": tokens, "do_sample": True, "top_k": 0, "pad_token_id": 0}
    return lambda: model.generate(begin, attention_mask=torch.ones_like(begin), **how)


def words() -> Any:
    """A tokenizer with a word for each state, without which CTranslate2 takes no network."""
    vocabulary = {f"w{n}": n for n in range(STATES - 1)} | {END: STATES - 1}
    special = dict.fromkeys(("bos_token", "eos_token", "unk_token"), END)
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(vocabulary, END)), **special)


def by_ctranslate2(model: Any, tokens: int, folder: str, precision: str) -> Callable[[], object]:
    """Write with the same GPT-2 by CTranslate2."""
    import ctranslate2

    converter = ctranslate2.converters.TransformersConverter(folder)
    converter.convert(f"{folder}/{precision}", quantization=precision, force=True)
    generator = ctranslate2.Generator(f"{folder}/{precision}", device="cpu", intra_threads=torch.get_num_threads())
    how = {"min_length": tokens, "max_length": tokens, "sampling_topk": 0, "include_prompt_in_result": False}
    return lambda: generator.generate_batch([[END]], **how)


def matrices(network: Any, tokens: int) -> Callable[[], object]:
    """Read the weights of a network once for each token."""
    weights = [p for name, p in network.named_parameters() if p.ndim == 2 and not name.startswith("embedding")]
    vectors = [torch.randn(p.shape[1]) for p in weights]
    return lambda: [matrix.mv(vector) for _ in range(tokens) for matrix, vector in zip(weights, vectors)]


def main() -> int:
    parser = measure.options((__doc__ or "").splitlines()[0], rounds=5)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--only", nargs="+", choices=("ar", "bd3lm", "mdlm"), default=("ar", "bd3lm", "mdlm"))
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    n = chosen.tokens
    published = gpt2(chosen.layers, chosen.hidden, n)
    net = Net(chosen.layers, chosen.hidden, chosen.hidden // 64, n)
    for precision in chosen.precision:
        ways: dict[str, Callable[[], object]] = {"GPT-2 of transformers": by_transformers(published, n)}
        with tempfile.TemporaryDirectory() as folder:
            if find_spec("ctranslate2") and precision != "bfloat16":
                published.save_pretrained(folder)
                words().save_pretrained(folder)
                ways[f"CTranslate2 {precision}"] = by_ctranslate2(published, n, folder, precision)
        for name in chosen.only:
            method = build(name, STATES, net).eval()
            if name == "ar" and precision == "float32":
                ways["weights"] = matrices(deepcopy(method.network), n)
            ways |= samplers(method.compute_in(precision), precision, n)
        with torch.no_grad():
            seconds = measure.alternate(ways, chosen.rounds, clock=chosen.clock)
        rows = []
        for name, times in seconds.items():
            ratio = measure.compare(seconds, "GPT-2 of transformers", name)
            speed = f"{n / median(times):.1f}"
            rows.append((name, speed, f"{ratio['times']:.2f}", f"{ratio['low']:.2f}-{ratio['high']:.2f}"))
        measure.show(rows, ("", "tokens/s", "times GPT-2", "quartiles"))
        print(flush=True)
    if not find_spec("ctranslate2"):
        print("CTranslate2 is not installed: pip install ctranslate2")
    return 0


if __name__ == "__main__":
    sys.exit(main())
