"""Does text stay as good, and a token as cheap, far beyond the length that a model was trained at?

    python studies/lengths/long.py RUN [--length 2000] [--count 8] [--block-sampler first_hitting] [--steps 64] [--stride 64]

Draws `count` texts at once, and cuts them into pieces of 250 tokens. Of each piece: the seconds it took for a token of one text,
and what the 5-gram model of the train split says of it, in bits a token, beside real text cut alike. A model of blocks writes
from its cache; one that was trained on whole texts (mdlm, md4) semi-autoregressively, `stride` tokens at a time.
"""

import argparse
import math

import numpy as np

import zellige
from zellige.data.prepare import prepare
from zellige.evaluation.ngram import NGrams
from zellige.sampling.sample import watch

PIECE, ORDER = 250, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--length", type=int, default=2000)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--block-sampler", default="first_hitting")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--stride", type=int)
    chosen = parser.parse_args()
    model = zellige.load(chosen.run)
    corpus = prepare(model.config.data, model.config.net.length, tokenizer=model.tokenizer)
    how = (
        {}
        if model.method.sampler == "left_to_right"
        else {"block_sampler": chosen.block_sampler, "steps": chosen.steps}
    )
    how |= {"stride": chosen.stride} if chosen.stride else {}
    known, at = [], []  # how many tokens are there, and when
    frame = None
    for frame in watch(
        model, count=chosen.count, batch=chosen.count, length=chosen.length, seed=0, defaults=False, **how
    ):
        blank = model.method.begin if frame.mask is None else frame.mask
        known.append(int((frame.x != blank).sum(-1).min()))
        at.append(frame.seconds)
    assert frame is not None
    tokens = frame.x.cpu().numpy()
    grams = NGrams(corpus.train.array(), corpus.validation.array()[:2000], model.tokenizer.size, ORDER)

    def bits(rows: np.ndarray) -> float:
        return float(grams.nats(rows).mean() / rows.shape[1] / math.log(2))

    real = corpus.test.array().reshape(-1)
    real = bits(real[: len(real) // PIECE * PIECE].reshape(-1, PIECE)[:400])
    print(f"{chosen.count} texts of {chosen.length:,} tokens, trained at {model.method.shape[0]}: {at[-1]:.1f} s, "
          f"{at[-1] / chosen.count:.2f} s a text, {frame.calls.float().mean():.0f} network calls each")  # fmt: skip
    print(f"{'tokens':>15} {'ms a token':>11} {f'{ORDER}-gram, bits':>14}      real text {real:.3f}")
    for first in range(0, chosen.length - PIECE + 1, PIECE):
        start, end = (float(np.interp(n, known, at)) for n in (first, first + PIECE))
        cost = 1000 * (end - start) / PIECE / chosen.count
        print(f"{f'{first:,} to {first + PIECE:,}':>15} {cost:11.2f} {bits(tokens[:, first : first + PIECE]):14.3f}")
    print(model.tokenizer.decode(tokens[0].tolist()))


if __name__ == "__main__":
    main()
