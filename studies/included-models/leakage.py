"""Are the test sets of the included models in their training sets? Exact and near duplicates, as the models saw both.

    python studies/included-models/leakage.py shared/data            # all of them, minutes
    python studies/included-models/leakage.py shared/data mnist      # one
    python studies/included-models/leakage.py shared/data stories chorales --bounds      # and what that does to the bound

The folder holds simple-stories/, mnist/, jsb-chorales/, molecules/ and sudoku/, as the tests have them. Every
example of the test split is compared with every example of the training split; nothing is sampled but where a line says so.

    stories     runs of tokens that a test story shares with a training story
    mnist       the nearest training image of each test image, by the Euclidean distance of pixels from 0 to 1; beside it, the
                same for 10,000 training images among the others, which is what unrelated images come to
    chorales    rows up to transposition, and the first two bars of each soprano: Bach set many melodies more than once
    molecules   texts, and graphs: atoms, charges, hydrogens and bonds, without stereochemistry, however they are spelled
    sudoku      grids up to all symmetries. Grids whose `sudoku.invariants` differ are not symmetric
"""

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from ship import PLACES

from zellige import evaluate
from zellige.data import Corpus
from zellige.data.prepare import prepare
from zellige.models.model import load
from zellige.plugins.evaluations.generate.memorisation import longest
from zellige.plugins.kinds.molecules.smiles import atoms_of
from zellige.plugins.kinds.puzzles.sudoku import invariants
from zellige.show.kinds import of
from zellige.show.numbers import pm

RUN = 32  # tokens: some 110 characters, a long sentence
BAR = 16  # sixteenths
FOUND: dict[str, np.ndarray] = {}  # which test examples are nearly in the training set, for `bounds`
Line = tuple[str, str]  # what is counted, the count


def corpus(name: str, folder: Path) -> Corpus:
    """The data of a model's config, split as in its training; copies that training adds are left out."""
    model = load(name)
    data = replace(model.config.data, path=str(folder / PLACES[name]), augment=0)
    if name == "stories":  # split by files
        texts = str(folder / "simple-stories" / "tinystories-train*.txt.xz")
        data = replace(data, path=texts, test=data.path, documents="blank")
    return prepare(data, model.config.net.length, tokenizer=model.tokenizer)


def stories(data: Corpus) -> Iterator[Line]:
    test = data.split("test")
    texts = [row[row >= 0].tolist() for row in test.between(0, test.texts)]
    runs, sizes = longest(texts, data.train), np.array([*map(len, texts)])
    FOUND["stories"] = runs >= RUN
    yield "whole stories", share(runs == sizes)
    yield f"stories with a run of {RUN} tokens or more", share(runs >= RUN)
    yield "longest run: median, largest", f"{np.median(runs):.0f}, {runs.max()} tokens"


def images(data: Corpus) -> Iterator[Line]:
    white = data.tokenizer.size - 1
    test, training = (torch.from_numpy(data.split(split).array()).float() / white for split in ("test", "train"))
    apart, among = nearest(test, training), nearest(training[: len(test)], training, themselves=True)
    yield "the same image", share(apart == 0)
    least = float(among.quantile(0.001))
    yield f"nearer than {least:.2f}, as 0.1% of training images are to another", share((apart < least).numpy())
    for name, distances in (("test image", apart), ("training image", among)):
        yield (
            f"distance of a {name} to the nearest other: least, median",
            f"{distances.min():.2f}, {distances.median():.2f}",
        )


def nearest(images: torch.Tensor, training: torch.Tensor, themselves: bool = False) -> torch.Tensor:
    """(N,) Euclidean distance to the nearest of the training images; `themselves`: the first N of these, each but itself."""
    squares, out = training.square().sum(-1), []
    for start in range(0, len(images), 500):
        part = images[start : start + 500]
        distances = part.square().sum(-1, keepdim=True) + squares - 2 * part @ training.T
        if themselves:
            index = torch.arange(len(part))
            distances[index, start + index] = torch.inf
        best = distances.argmin(-1)
        out.append((part - training[best]).norm(dim=-1))  # exact, where the difference of squares rounds
    return torch.cat(out)


def chorales(data: Corpus) -> Iterator[Line]:
    test, training = (data.split(split).array().reshape(-1, 64, 4) for split in ("test", "train"))
    rows = {transposed(row) for row in training}
    yield "whole rows of four bars, in any key", share([transposed(row) in rows for row in test])
    bars = {transposed(bar) for row in training for bar in row.reshape(-1, BAR, 4) if moves(bar)}
    parts = [bar for row in test for bar in row.reshape(-1, BAR, 4) if moves(bar)]
    yield "bars with movement in every voice, in any key", share([transposed(bar) in bars for bar in parts])
    melodies = {transposed(row[: 2 * BAR, :1]) for row in training}
    FOUND["chorales"] = np.array([transposed(row[: 2 * BAR, :1]) in melodies for row in test])
    yield "melodies of two bars (soprano), in any key", share(FOUND["chorales"])


def transposed(notes: np.ndarray) -> bytes:
    """Notes (steps, voices), 0 where there is silence, moved so that the lowest is 1."""
    sounding = notes > 0
    return np.where(sounding, notes - notes[sounding].min(initial=127) + 1, 0).astype(np.int16).tobytes()


def moves(bar: np.ndarray) -> bool:
    return bool((bar != bar[0]).any(0).all())


def molecules(data: Corpus) -> Iterator[Line]:
    model = load("molecules")
    test, training = (of(model.tokenizer).values(data.split(split).array()) for split in ("test", "train"))
    texts, graphs = set(training), set(map(graph, training))
    yield "the same text", share([text in texts for text in test])
    yield "the same graph, spelled in any way, at most", share([graph(text) in graphs for text in test])


def graph(text: str) -> tuple[int, ...]:
    """A form of a molecule that does not depend on its spelling: colours of atoms, refined by their neighbours' as often as there
    are atoms. Different forms are different molecules; the same form may be two, so what is counted is an upper bound.
    """
    atoms = atoms_of(text) or []
    colours = [hash((a.element, a.aromatic, a.charge, a.hydrogens if a.charge else None)) for a in atoms]
    for _ in atoms:
        colours = [
            hash((colour, *sorted((order, colours[j]) for j, order in a.bonds.items())))
            for colour, a in zip(colours, atoms)
        ]
    return tuple(sorted(colours))


def sudoku(data: Corpus) -> Iterator[Line]:
    test, training = (data.split(split).array().reshape(-1, 9, 9) + 1 for split in ("test", "train"))
    grids, keys = {grid.tobytes() for grid in training}, {*invariants(training)}
    yield "the same grid", share([grid.tobytes() in grids for grid in test])
    yield "a symmetric grid, at most", share([key in keys for key in invariants(test)])


CHECKS: dict[str, Callable[[Corpus], Iterator[Line]]] = {
    "stories": stories, "mnist": images, "chorales": chorales, "molecules": molecules,
    "sudoku": sudoku,
}  # fmt: skip


def bounds(name: str, data: Corpus, draws: int = 2) -> Iterator[Line]:
    """The bound of all test examples, of those that are found in training, and of the others; intervals over examples."""
    result = evaluate(load(name), data=data, split="test", draws=draws)
    assert result.nats is not None
    assert result.sizes is not None
    nats, sizes = result.nats.numpy(), result.sizes.numpy()
    units = (
        sizes * math.log(2) * result.about.get("characters_per_token", 1.0)
    )  # bits per character or note; per token where the tokens do not tell the text
    everything = np.ones(len(sizes), bool)
    for what, rows in (("all", everything), ("those found", FOUND[name]), ("the others", ~FOUND[name])):
        ratio = nats[rows].sum() / units[rows].sum()
        residual = (nats[rows] - ratio * units[rows]) / units[rows].mean()
        half = 1.96 * residual.std(ddof=1) / math.sqrt(rows.sum())
        yield f"bound of {what}, {int(rows.sum())}", f"≤ {pm(ratio, half)}"


def share(found: object) -> str:
    flags = np.asarray(found)
    return f"{int(flags.sum()):,} of {len(flags):,}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[*CHECKS, []], help="which of them; all if not given")
    parser.add_argument("--bounds", action="store_true", help="of stories and chorales, the bound without them")
    chosen = parser.parse_args()
    print("| data of | test, training | of the test set, found in training | |\n|---|---|---|---|")
    for name in chosen.names or CHECKS:
        data = corpus(name, chosen.folder)
        sizes = ", ".join(f"{data.split(split).texts:,}" for split in ("test", "train"))
        lines = chain(
            CHECKS[name](data), *([bounds(name, data)] if chosen.bounds and name in ("stories", "chorales") else [])
        )
        for number, (what, count) in enumerate(lines):
            head = f"`{name}` | {sizes}" if not number else " | "
            print(f"| {head} | {what} | {count} |", flush=True)


if __name__ == "__main__":
    main()
