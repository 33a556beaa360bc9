"""The page docs/reference/laws.md: the distribution of each sampler with each method, and the bound that holds for it."""

from zellige.cli.drawing import described
from zellige.methods import METHODS
from zellige.plugins.verify.identities import variants
from zellige.samplers import distributions

HEAD = """\
# Which distribution each sampler samples from, and which bound holds for it

For every method and sampler: from which distribution the samples come, and which command bounds -log p of it. `zellige
sample` and `zellige evaluate` print the same in their last lines. A bound describes samples only if both belong to the
same distribution. [Samplers and the distributions that they sample
from](../theory/samplers.md) explains the distributions.

- **The model of continuous time** includes the [endpoint terms of its schedule](../theory/model.md#process).
- **The model of T steps**: `zellige evaluate --steps T` bounds it for any T, on another grid with the sampler's `--grid`.
  `zellige evaluate` alone does not, because tokens of one step are sampled independently. In discrete time (`d3pm`,
  `--diffusion-steps`) T belongs to the model, and `zellige evaluate` bounds the model of T steps.
- **A coarse chain**, a model of T steps in fewer of them, is a chain like any other: `zellige evaluate --steps` with its
  number of steps bounds it, and that number may be larger or smaller than the bound of all T steps
  ([an example](../../studies/protocol/README.md#coarse-chains)).
- **Near a model**: the error vanishes as the number of steps grows, but no bound holds at a given number of steps.
- **`speculative`** needs a trained head and is in no table; [its page](../samplers/speculative.md) states its distribution.

Some options change the distribution, and then no bound holds: temperature, top-p, argmax, several tokens at once, the
grid `published` and those of a step size, and texts that are longer or shorter than the model's. `--ends jumps` bounds
another model, which passes each end of a published schedule in one step; no sampler samples from it. `--ends none`, which
most papers print, is not a bound. `csm` has a likelihood only where all texts can be listed.

`docs/_tools/laws.py` makes the tables from the code. They are checked by enumeration, with networks that depend on the
state and the time: `zellige verify --only sampler.distribution`, `bound.distribution`, `sampler.ancestral-choose`,
`bound.steps`, `bound.coarse` and `sampler.any_order-distribution`.

"""


def page() -> str:
    """All of it. Methods whose samplers have the same distributions share a table."""
    tables: dict[tuple[str, ...], list[str]] = {}
    for cls in METHODS.values():
        for words, method in variants(cls):
            if method.block == method.shape[0]:
                continue  # one block: MDLM
            T = method.steps or 64
            table = {
                name: described(distribution, "float32") for name, distribution in distributions(method, T).items()
            }
            rows = (f"| `{name}` | {words_of(text, T)} |" for name, text in table.items())
            tables.setdefault(tuple(rows), []).append(f"{cls.name}, {words}" if words else cls.name)
    head = "| sampler | distribution; the command that bounds its likelihood |\n|---|---|\n"
    return HEAD + "\n".join(
        f"**{'; '.join(names)}**\n\n{head}" + "\n".join(rows) + "\n" for rows, names in tables.items()
    )


def words_of(text: str, T: int) -> str:
    """With the letter T for the number of steps."""
    return text.replace(f"{T} steps", "T steps").replace(f"--steps {T}", "--steps T")
