"""How many held-out Sudokus does a model solve by infilling? Nothing searches: the model fills the blanks, once.

    zellige train mdlm --data.name sudoku --data.size 9 --data.path sudoku9_pairs.csv.xz --data.augment 10 \\
        --net.layers 4 --net.hidden 96 --net.heads 4 --train.steps 4000 --train.batch 32 --train.lr 2e-3 --run runs/sudoku
    python studies/sudoku/sudoku.py runs/sudoku [--count 200]

A puzzle counts as solved if the filled grid is its solution. A model of 4 x 4 grids, which come without puzzles, draws whole
grids, and those count in which each row, column and box has every digit once. Printed for several samplers, with the
interval of a share (Wilson).
"""

import argparse

import torch

import zellige
from zellige.data.prepare import prepare
from zellige.evaluation.interval import Proportion
from zellige.plugins.kinds.puzzles.sudoku import solved as valid
from zellige.samplers import SAMPLERS
from zellige.sampling.sample import watch
from zellige.sampling.samples import collect

WAYS = {
    "ancestral, 64 steps": {"sampler": "ancestral", "steps": 64},
    "ancestral, 512 steps": {"sampler": "ancestral", "steps": 512},
    "first_hitting, one cell at a time": {"sampler": "first_hitting"},
    "confidence, the surest cell first": {"sampler": "confidence", "confidence": "probability"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--count", type=int, help="200 puzzles, or 400 grids")
    chosen = parser.parse_args()
    model = zellige.load(chosen.run)
    side = model.tokenizer.shape[0]
    rows = prepare(model.config.data, model.config.net.length, tokenizer=model.tokenizer).test
    if rows.clues is None:
        given, solution, count = None, None, chosen.count or 400
        print(f"{count} grids of {side} x {side}")
    else:
        count = min(chosen.count or 200, len(rows))
        given, solution = torch.as_tensor(rows.clues[:count]), torch.as_tensor(rows.array()[:count])
        print(f"{count} held-out puzzles, {float((given >= 0).double().mean()) * side * side:.1f} cells given")
    for said, how in WAYS.items():
        if SAMPLERS[how["sampler"]].reason_against(model.method):
            continue
        drawn = collect(watch(model, fixed=given, count=count, batch=50, temperature=1.0, seed=0, **how))
        filled = torch.tensor(drawn.tokens)
        if solution is None:
            right = torch.as_tensor(valid(filled.reshape(-1, side, side).numpy()))
        else:
            right = (filled == solution).all(-1)
        share = f"{'valid' if given is None else 'solved'} {Proportion(int(right.sum()), count)}"
        if given is None or solution is None:
            share += f"   {len(set(map(tuple, filled[right].tolist())))} different"
        else:
            share += f"   cells {float((filled == solution)[given < 0].double().mean()):.1%}"
        print(f"{said:<36} {share}   {drawn.seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
