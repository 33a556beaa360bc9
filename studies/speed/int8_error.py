"""What rounding to int8 costs: the bound in int8 minus that in float32, on the same texts with the same noise.

    python studies/speed/int8_error.py stories stories-mdlm FOLDER --texts simple-stories/tinystories-validation.txt.xz

A model that may be off by more than 0.01 nats/token is named: use it in float32 or bfloat16.
"""

import argparse
import lzma

import zellige
from zellige.evaluation.result import difference

MOST = 0.01  # nats/token


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--texts", required=True, help="an .xz of texts with a blank line between")
    parser.add_argument("--limit", type=int, default=200, help="how many of them")
    parser.add_argument("--draws", type=int, default=1, help="noisy copies of each")
    chosen = parser.parse_args()
    with lzma.open(chosen.texts, "rt") as file:
        texts = file.read().strip().split("\n\n")[: chosen.limit]
    for name in chosen.models:
        models = (zellige.load(name, precision=precision) for precision in ("float32", "int8"))
        results = [zellige.evaluate(model, texts, draws=chosen.draws) for model in models]
        error = difference(results[1], results[0])
        half = (error.high - error.low) / 2
        print(
            f"{name}: {results[0]}; int8 {error.value:+.5f} ± {half:.5f} {error.unit}, {len(texts):,} texts",
            flush=True,
        )
        if error.high > MOST:
            print(f"{name} may be off by more than {MOST} {error.unit} in int8", flush=True)


if __name__ == "__main__":
    main()
