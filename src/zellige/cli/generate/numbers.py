"""How one measure of samples is called and written."""

from typing import Any

from ...evaluation.sweep import measure_of

CALLED = {
    "perplexity": "perplexity, corpus",
    "perplexity per sequence": "perplexity, per sequence",
    "entropy": "unigram entropy, nats",
    "mauve": "MAUVE",
    "MMD": "MMD, squared",
    **{f"TV-{n}": f"total variation, {n}-grams" for n in (1, 2, 3, 4)},
    "typicality": "typicality, nats/token",
    "memorisation": "memorised run, tokens",
}


def shown(point: dict[str, Any], name: str) -> str:
    """`40.21 ± 1.30`: a perplexity or FID from 10 on has two decimals, a small KID five, distances four, all else three.

    Of a distance the sides of the interval differ: `0.0128 -0.0141 +0.0213`.
    """
    if name not in point["measures"]:
        return "-"
    n = measure_of(point, name)
    if name == "KID" and abs(n.value) < 1:
        return n.text(5)
    if name in ("energy distance", "MMD"):
        return n.sides(4)
    if name.startswith("TV-"):
        return n.sides()
    if name == "memorisation":
        return n.text(1)
    return n.text(2 if name.startswith(("perplexity", "FID")) and n.value >= 10 else 3)
