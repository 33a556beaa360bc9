"""What the page calls samplers in plain words, and the examples that it offers for the models that come with Zellige."""

from typing import Any

from .. import samplers
from ..models import shipped

# name of a sampler -> (what it is called on the page, one sentence)
SAMPLERS: dict[str, tuple[str, str]] = {
    "ancestral": (
        "A few positions each step",
        "Removes a little of the noise in each step, at random positions. More steps change fewer positions at once.",
    ),
    "euler": (
        "A few positions each step, by Euler",
        "A first-order approximation of the usual steps; it needs more of them for the same quality.",
    ),
    "first_hitting": (
        "One position at a time",
        "Draws the time at which the next position is written: as many network evaluations as positions.",
    ),
    "any_order": ("One position at a time, in random order", "Writes positions in a random order, one a step or several."),
    "fixed_order": (
        "One position at a time, in your order",
        "Writes forward, backward, or in an order that you list under the options.",
    ),
    "confidence": (
        "Most confident first",
        "Writes in each step the positions of which the network is most confident.",
    ),
    "klass": (
        "All confident positions at once",
        "Writes in each step every position whose distribution is confident and no longer changes.",
    ),
    "remasking": (
        "With second thoughts",
        "Masks some tokens again after they were written, so that mistakes can be repaired.",
    ),
    "metropolis": (
        "Change one, keep it if it fits",
        "A chain of proposals: one token is changed, and the change is kept with the probability that is right.",
    ),
    "tau_leaping": (
        "Many jumps each step",
        "Tau-leaping: a random number of jumps in each step, then corrector steps if you ask for them.",
    ),
    "uniformisation": (
        "One jump at a time, without error",
        "Proposes jumps at random times and accepts each with the right probability; one position moves at a time.",
    ),
    "blockwise": (
        "Block after block",
        "Writes one block of tokens after another, each by the sampler named `block_sampler` under the options.",
    ),
    "left_to_right": ("Left to right", "Writes one token after another, as autoregressive models do."),
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
