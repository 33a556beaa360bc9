"""The page docs/reference/recipes.md: RECIPES, as the code has them, with the cost that `zellige list recipes` prints."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

from zellige import Data, Net, Train
from zellige.cli.tables import table as listed_rows
from zellige.methods import METHODS
from zellige.papers.recipes import RECIPES, Recipe
from zellige.show.numbers import scaled
from zellige.training.cost import PEAK, UTILISATION
from zellige.training.setup import typed

sys.path.insert(0, str(Path(__file__).parent))
import published_configurations as published  # pyright: ignore[reportMissingImports]

HEAD = f"""\
# Recipes

A recipe is the configuration of a paper: its network, its optimizer, its data, and the number that it reports. **None of the
recipes has been trained to its end here.** The numbers below are the papers', as a goal. This page is made from the code by
`docs/_tools/recipes.py`.

```sh
zellige list recipes
zellige train --recipe mdlm-owt --run runs/mdlm-owt
zellige train --recipe mdlm-owt --train.batch 64 --net.layers 6
```

A recipe sets the method and every option. Options on the command line override it, and then the configuration is no longer
the paper's. `config.json` keeps the name of the recipe, so `zellige train --recipe mdlm-owt --resume` continues the run. In
Python, use `zellige.train(recipe="mdlm-owt")`; the configuration is `zellige.papers.recipes.RECIPES["mdlm-owt"].config`.
Data of the Hugging Face hub (OpenWebText, LM1B) need `pip install '.[data]'`.

PyTorch counts the FLOPs on the network without weights: one forward and one backward pass over every position of every
sequence, times the number of sequences in all steps. The hours are those of one H100 at {UTILISATION:.0%} of its
{PEAK / 1e12:.0f} TFLOP/s (bfloat16, dense), which a well-tuned training reaches. For other devices, and for memory and cost:

```sh
zellige plan mdlm-owt --gpus 64 --device h100 --mfu 0.4 --price 2.5
```

[Plan a training](../guides/plan.md) explains the estimate.

Below each recipe, a table compares its values with the files that the authors published ([the files](#files)). The text of
the paper has priority; where a file contradicts it, `differs` names both. Published limits of the gradient norm are
converted, because `--train.clip` acts on nats per token of the whole bound.

[Tables](tables.md) lists the papers' tables row by row, with the recipe of each. Compare numbers of the column "reported" only
if they were measured on the same data: a perplexity on LAMBADA (a test set of its own) cannot be compared with one on the
documents of the training corpus.

| recipe | reported | measured on | network | tokens | FLOP | H100 hours |
|---|---|---|---|---|---|---|
"""


def changed(chosen: Any, usual: Any, prefix: str) -> list[str]:
    """The options of a dataclass that are not the default, as they are typed."""
    options = []
    for entry in dataclasses.fields(chosen):
        value = getattr(chosen, entry.name)
        if value != getattr(usual, entry.name):
            name = entry.name.replace("_", "-")
            switch = f"--{prefix}{'' if value else 'no-'}{name}"
            options.append(switch if isinstance(value, bool) else f"--{prefix}{name} {typed(value)}")
    return options


def drawn(recipe: Recipe) -> str:
    """The sampler of a recipe as it is typed, with what is not the default."""
    chosen = {} if recipe.sampler == METHODS[recipe.method].sampler else {"sampler": recipe.sampler}
    chosen |= dict(recipe.drawing) | {"steps": recipe.steps}
    return " ".join(f"--{name.replace('_', '-')} {typed(value)}" for name, value in chosen.items())


def section(name: str, recipe: Recipe) -> str:
    config = recipe.config
    options = [
        *changed(config.options, METHODS[config.method].Config(), ""), *changed(config.data, Data(), "data."),
        *changed(config.net, Net(), "net."), *changed(config.train, Train(), "train."),
    ]  # fmt: skip
    lines = [
        f"\n## {name}\n",
        f"{recipe.paper} (arXiv {recipe.arxiv}): {recipe.reported}, {recipe.reported.where}. From {recipe.source}.",
        f"Drawn with `zellige sample runs/{name} {drawn(recipe)}`.\n",
        f"    zellige train {config.method} {' '.join(options)}\n",
    ]
    lines += [f"- not given; ours: {', '.join(recipe.ours)}"] if recipe.ours else []
    lines += [f"- differs: {what}" for what in recipe.differs]
    entries = published.table(recipe, published.PUBLISHED[name])
    return "\n".join(lines) + f"\n\n{entries}"


def variant(name: str, recipe: Recipe) -> str:
    """The section of a recipe that is another one but for a few choices: these alone."""
    base, whole = RECIPES[recipe.base], published.PUBLISHED
    config, usual = recipe.config, base.config
    same = config.method == usual.method
    words = [] if same else [config.method]
    words += changed(config.options, usual.options if same else METHODS[config.method].Config(), "")
    for part in ("data", "net", "train"):
        words += changed(getattr(config, part), getattr(usual, part), f"{part}.")
    new = [f"differs: {what}" for what in recipe.differs if what not in base.differs]
    new += [f"not given; ours: {', '.join(recipe.ours)}"] if recipe.ours and recipe.ours != base.ours else []
    gone = [f"not: {what}" for what in base.differs if what not in recipe.differs]
    entries = [entry for entry in whole[name] if entry not in whole[recipe.base]]
    lines = [
        f"\n## {name}\n",
        f"{recipe.paper} (arXiv {recipe.arxiv}): {recipe.reported}, {recipe.reported.where}. As [{recipe.base}](#{recipe.base}), "
        f"but `{' '.join(words)}`.\n",
        *[f"- {line}" for line in [*new, *gone]],
    ]
    return (
        "\n".join(lines) + ("\n" if new or gone else "") + (f"\n{published.table(recipe, entries)}" if entries else "")
    )


def page() -> str:
    rows = []
    for name, row in zip(RECIPES, listed_rows("recipes"), strict=True):
        recipe = RECIPES[name]
        tokens = scaled(recipe.train.steps * recipe.train.batch * recipe.net.length)
        flops, hours = list(row.values())[-2:]
        cells = [f"[{name}](#{name})", row["reported"], recipe.reported.where, f"{recipe.net.kind}, {row['size']}"]
        rows.append(f"| {' | '.join([*cells, tokens, flops, hours])} |\n")
    sections = [(variant if recipe.base else section)(name, recipe) for name, recipe in RECIPES.items()]
    return "".join([HEAD, *rows, *sections, "\n## Files\n\n", published.files()])
