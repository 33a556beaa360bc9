"""The numbers of docs/learn: simple models of the stories beside the shipped ones, and samplers beside one another.

    python studies/included-models/learn.py baselines STORIES   n-gram models, on the test stories of `stories`
    python studies/included-models/learn.py sudoku             64 Sudokus by each sampler: its calls, how many are valid

STORIES is a folder with train.jsonl and validation.jsonl, as models.sh has it. Each takes about a minute of one core.
"""

import argparse
import math
import time
from collections import deque

import numpy as np

import zellige
from zellige import Data
from zellige.data.prepare import prepare
from zellige.evaluation.ngram import NGrams
from zellige.show.kinds import of

END = "<|endoftext|>"
SPLITS = ("train", "validation", "test")
SUDOKU: list[dict] = [
    *({"sampler": "ancestral", "steps": steps} for steps in (4, 16, 64, 256)),
    {"sampler": "first_hitting"},
    {"sampler": "remasking", "steps": 64},
    {"sampler": "confidence", "steps": 16},
    {"sampler": "confidence", "steps": 81},
    {"sampler": "confidence", "steps": 81, "temperature": 0.7},
    {"sampler": "confidence", "confidence": "entropy", "steps": 81, "temperature": 0.7},
]


def characters(rows: np.ndarray, model: zellige.Model, alphabet: dict[str, int]) -> np.ndarray:
    """The characters of rows of tokens, the end of a text one of them, (N, longest), -1 where a row has ended."""
    texts = [model.tokenizer.decode(row[row >= 0].tolist()).replace(END, "\0") for row in rows]
    out = np.full((len(texts), max(map(len, texts))), -1)
    for row, text in zip(out, texts):
        row[: len(text)] = [alphabet.setdefault(character, len(alphabet)) for character in text]
    return out


def corpus(model: zellige.Model, folder: str) -> dict[str, np.ndarray]:
    """The tokens of each story, (N, longest), -1 where it has ended."""
    data = Data("text", path=f"{folder}/train.jsonl", test=f"{folder}/validation.jsonl", pack="document")
    splits = prepare(data, int(model.method.shape[0]), tokenizer=model.tokenizer)
    return {name: (rows := splits.split(name)).between(0, rows.texts) for name in SPLITS}


def samples_of(model: zellige.Model, count: int, how: dict) -> tuple[np.ndarray, float, float]:
    """Tokens of `count` samples, the mean number of network evaluations of one, and the processor seconds of one."""
    began = time.process_time()
    frames = zellige.watch(model, count=count, batch=count, seed=0, defaults=False, **how)
    last = deque(frames, maxlen=1).pop()  # a frame holds what the network gave: keep one
    seconds = (time.process_time() - began) / count
    return last.x.numpy(), float(last.calls.float().mean()), seconds


def baselines(folder: str) -> None:
    model = zellige.load("stories")
    rows = corpus(model, folder)
    alphabet: dict[str, int] = {}
    chars = {split: characters(rows[split], model, alphabet) for split in SPLITS}
    n = int(((chars["test"] >= 0) & (chars["test"] != alphabet["\0"])).sum())
    print(f"test: {len(rows['test'])} stories, {n:,} characters, alphabet {len(alphabet)}")
    models = {"characters": (chars, len(alphabet), 6), "tokens": (rows, model.tokenizer.size, 4)}
    for name, (data, size, order) in models.items():
        grams = NGrams(data["train"], data["validation"], size, order)
        for m in range(order + 1):
            print(f"{name}, {m}-gram: {grams.nats(data['test'], m).sum() / n / math.log(2):.3f} bits/char", flush=True)


def sudoku() -> None:
    model = zellige.load("sudoku")
    for how in SUDOKU:
        tokens, calls, seconds = samples_of(model, 64, how)
        valid = of(model.tokenizer).valid(tokens)
        named = ", ".join(f"{key} {value}" for key, value in how.items())
        print(f"{named:<50} {calls:>6.1f} evaluations {seconds:>6.2f} s {np.mean(valid):>7.1%} valid", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["baselines", "sudoku"])
    parser.add_argument("stories", nargs="?", default="")
    chosen = parser.parse_args()
    sudoku() if chosen.what == "sudoku" else baselines(chosen.stories)
