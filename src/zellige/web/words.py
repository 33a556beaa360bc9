"""What the page calls samplers in plain words, and the examples that it offers for the models that come with Zellige."""

from typing import Any

from .. import samplers
from ..models import shipped

# name of a sampler -> (what it is called on the page, one sentence)
SAMPLERS: dict[str, tuple[str, str]] = {
    "ancestral": ("A few positions each step", "At random positions; more steps change fewer of them at once."),
    "euler": (
        "A few positions each step, by Euler",
        "A first-order approximation; it needs more steps for the same quality.",
    ),
    "first_hitting": ("One position at a time", "At its exact time: as many network evaluations as positions."),
    "any_order": (
        "One position at a time, in random order",
        "As many network evaluations as positions, or several positions a step.",
    ),
    "fixed_order": (
        "One position at a time, in your order",
        "Forward, backward, or in an order that you list under More options.",
    ),
    "confidence": ("Most confident first", "Each step writes the positions of which the network is most confident."),
    "klass": (
        "All confident positions at once",
        "Each step writes every position whose distribution is confident and stable.",
    ),
    "remasking": ("With second thoughts", "Masks some tokens again, so that mistakes can be repaired."),
    "metropolis": (
        "Change one, keep it if it fits",
        "Each proposal changes one token; it is kept with the right probability.",
    ),
    "tau_leaping": (
        "Many jumps each step",
        "Tau-leaping: Poisson numbers of jumps, and corrector steps if you ask for them.",
    ),
    "uniformisation": (
        "One jump at a time, without error",
        "Jumps at random times, each accepted with the right probability.",
    ),
    "blockwise": ("Block after block", "Each block is written by the block sampler under More options."),
    "speculative": (
        "Draft several, then verify",
        "Tokens are drafted together and verified one after another in the same evaluation.",
    ),
    "left_to_right": ("Left to right", "One token after another, as autoregressive models do."),
}

# name of an included model, in the order of the page -> texts to start from (`_`: a masked token; `.`: an empty cell)
EXAMPLES: dict[str, tuple[str, ...]] = {
    "tales": ("Once upon a time there was a king who", "The wolf said to the little girl,"),
    "tales-mdlm": (
        "Once upon a time there was a ____ who lived in a ____ near the forest.",
        "The king ________, and his daughter ________________ happily ever after.",
    ),
    "mnist": (),
    "sudoku": ("53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79",),
    "chorales": (),
    "molecules": (),
}


def included() -> list[str]:
    """The models that come with Zellige and are installed, in the order of the page."""
    names = shipped.names()
    return [name for name in EXAMPLES if name in names] + [name for name in names if name not in EXAMPLES]


def sampler_words(name: str) -> dict[str, str]:
    """{label, about} of a sampler; of one without an entry its name and the first sentence of its docstring."""
    label, about = SAMPLERS.get(name) or (name, first_sentence(samplers.SAMPLERS[name]))
    return {"label": label, "about": about}


def first_sentence(cls: Any) -> str:
    return " ".join((cls.__doc__ or "").split()).partition(". ")[0].removesuffix(".") + "."
