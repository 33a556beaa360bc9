"""D3PM whose noise knows which amino acids replace each other: BLOSUM62 as a transition matrix (D3PM, section 3.1).

    python examples/blosum62.py > blosum62.csv                              # of 20 rows that sum to 1

A score s of BLOSUM62 is twice log2 of how much more often than by chance two amino acids replace each other in related proteins.
The weights 2^(s/2) are scaled by rows and columns in turn until both sum to 1 (Sinkhorn), so the noise ends at equal frequencies.
The rows are in the order of the letters, which is that of `--data.tokenizer characters`.
"""

import numpy as np

ORDER = "ARNDCQEGHILKMFPSTWYV"
LOWER = """
4
-1 5
-2 0 6
-2 -2 1 6
0 -3 -3 -3 9
-1 1 0 0 -3 5
-1 0 0 2 -4 2 5
0 -2 0 -1 -3 -2 -2 6
-2 0 1 -1 -3 0 0 -2 8
-1 -3 -3 -3 -1 -3 -3 -4 -3 4
-1 -2 -3 -4 -1 -2 -3 -4 -3 2 4
-1 2 0 -1 -3 1 1 -2 -1 -3 -2 5
-1 -1 -2 -3 -1 0 -2 -3 -2 1 2 -1 5
-2 -3 -3 -3 -2 -3 -3 -3 -1 0 0 -3 0 6
-1 -2 -2 -1 -3 -1 -1 -2 -2 -3 -3 -1 -2 -4 7
1 -1 1 0 -1 0 0 0 -1 -2 -2 0 -1 -2 -1 4
0 -1 0 -1 -1 -1 -1 -2 -2 -1 -1 -1 -1 -2 -1 1 5
-3 -3 -4 -4 -2 -2 -3 -2 -2 -3 -2 -3 -1 1 -4 -3 -2 11
-2 -2 -2 -3 -2 -1 -2 -3 2 -1 -1 -2 -1 3 -3 -2 -2 2 7
0 -3 -3 -3 -1 -2 -2 -3 -3 3 1 -2 1 -1 -2 -2 0 -3 -1 4
"""


def matrix() -> np.ndarray:
    """(20, 20), symmetric, rows and columns sum to 1, in the order of the letters."""
    scores = np.zeros((20, 20))
    for i, line in enumerate(LOWER.split("\n")[1:21]):
        scores[i, : i + 1] = scores[: i + 1, i] = np.array(line.split(), float)
    letters = np.argsort([*ORDER])
    weights = 2 ** (scores[np.ix_(letters, letters)] / 2)
    scale = np.ones(20)
    for _ in range(1000):
        scale = np.sqrt(scale / (weights @ scale))  # keeps it symmetric
    return scale[:, None] * weights * scale


if __name__ == "__main__":
    for row in matrix():
        print(",".join(f"{p:.12f}" for p in row))
