"""The models that come with Zellige in the order of the page, and the texts that it offers to start from."""

from zellige.models import shipped

# name of an included model, in the order of the page -> texts to start from (`_`: a masked token; `.`: an empty cell)
EXAMPLES: dict[str, tuple[str, ...]] = {
    "stories": ("Once upon a time, there was a little dog who", "Lily was sad because"),
    "stories-mdlm": (
        "Once upon a time, there was a little ____ who lived in a ____ near the forest.",
        "Tom wanted to play in the park.________________ So he went home and was sad.",
    ),
    "nouns": (),
    "mnist": (),
    "sudoku": ("53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79",),
    "chorales": (),
    "molecules": (),
}


def included() -> list[str]:
    """The models that come with Zellige and are installed, in the order of the page."""
    names = shipped.names()
    return [name for name in EXAMPLES if name in names] + [name for name in names if name not in EXAMPLES]
