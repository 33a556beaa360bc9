"""The page docs/laws.md: the distribution that each sampler of each method samples from, and the number that bounds it.

    .venv/bin/python docs/laws.py        writes it anew, after a method or a sampler changed

`tests/samplers/test_distribution.py` holds page and code equal.
"""

from pathlib import Path

from zellige.cli.drawing import described
from zellige.exact.identities import variants
from zellige.methods import METHODS
from zellige.samplers import distributions

PAGE = Path(__file__).with_name("laws.md")
HEAD = """\
# Which distribution, which number

Made from the code by `docs/laws.py`. Every sampler draws from a distribution, and every number bounds one. `zellige
sample` says in its last lines which distribution its texts came from and which command bounds -log p of it, `zellige
evaluate` whose samples its number is about.

- **The model of continuous time** passes from `PRIOR` to `CLEAN` continuously, the [ends of its
  schedule](core.md#process) too. `evaluate` bounds it.
- **The model of T steps** draws in each step what it reveals all at once. `evaluate --steps T` bounds it. The number
  of `evaluate` does not: few steps draw tokens together that depend on one another, and their texts are worse than
  that number says. In discrete time (`d3pm`, `--diffusion-steps`) T is the model's own, and `evaluate` bounds that;
  fewer steps than it has no number bounds.
- **Near** it: rates are held still for a step. The distribution comes as the steps grow, and of a given number of them no
  number is a bound.
- **Of its own**: no number bounds it, whatever the steps.

Temperature, top-p, argmax, several tokens at once, grids other than the uniform one and texts of another length than
the model's change the distribution, and then no number bounds it. `--ends jumps` is a bound of another model, which passes
each end of a published schedule in one jump; no sampler here draws from it. `--ends none`, as most papers print, is
no bound. T stands for the number of steps; `csm` has its number where all texts can be enumerated.

All of it is held by enumeration, with networks that depend on the state and the time, and coarse ends: `zellige
verify --only sampler.distribution`, `--only bound.distribution`, `sampler.ancestral-choose`, `bound.steps` and
`sampler.any_order-distribution`.

"""


def page() -> str:
    """All of it. Methods whose samplers have the same distributions share a table."""
    tables: dict[tuple[str, ...], list[str]] = {}
    for cls in METHODS.values():
        for words, method in variants(cls):
            if method.block == method.shape[0]:
                continue  # one block: MDLM
            T = method.steps or 64
            table = {name: described(distribution) for name, distribution in distributions(method, T).items()}
            rows = (f"| `{name}` | {words_of(text, T)} |" for name, text in table.items())
            tables.setdefault(tuple(rows), []).append(f"{cls.name}, {words}" if words else cls.name)
    head = "| sampler | distribution: the number that bounds it |\n|---|---|\n"
    return HEAD + "\n".join(
        f"**{'; '.join(names)}**\n\n{head}" + "\n".join(rows) + "\n" for rows, names in tables.items()
    )


def words_of(text: str, T: int) -> str:
    """With the letter T for the number of steps."""
    return text.replace(f"{T} steps", "T steps").replace(f"--steps {T}", "--steps T")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
