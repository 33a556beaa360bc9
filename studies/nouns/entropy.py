"""How many pictures `nouns` has, their entropy, and what hides what.

python studies/nouns/entropy.py
"""

import math

import numpy as np

from zellige.plugins.kinds.nouns.parts import CLEAR, PARTS, parts


def main() -> None:
    of = parts()
    found = of.entropy()
    _, _, accessories, heads, _ = of.layers
    covering = int(((accessories != CLEAR).sum(1) == of.outline.sum()).sum())
    low = int((heads[:, of.outline] != CLEAR).any(1).sum())
    counts = [np.unique(looks, return_counts=True)[1] for looks in of.looks]
    shared = sum(n * int(c[c > 1].sum()) for n, c in zip(np.bincount(of.covers[1]).tolist(), counts))
    print(f"{' x '.join(f'{n} {part}' for n, part in zip(of.shape, PARTS))}")
    print(f"combinations  {found.combinations:,} = 2^{math.log2(found.combinations):.3f}")
    print(f"pictures      {found.pictures:,} = 2^{math.log2(found.pictures):.3f}")
    print(f"entropy       {found.bits:.3f} bits of a uniform combination's picture, {found.bits / 1024:.5f} bits/dim")
    print(f"look like another combination: {len(of.layers[0]) * shared / found.combinations:.1%} of the combinations")
    print(f"{covering} accessories cover the body, {low} heads cover part of it, in {len(of.covers[0]) - 1} ways")


if __name__ == "__main__":
    main()
