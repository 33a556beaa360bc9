"""The tables that `zellige list` prints. Importing this imports nothing heavy."""

import json
from pathlib import Path

from ..base.plugins import others, package_of, plugged

LISTS = {
    "models": "trained models included in Zellige; try: zellige sample stories",
    "methods": "for train and compare: paper, noise, parameterization, likelihood",
    "samplers": "for sample and infill: distribution, requirements, network evaluations",
    "data": "data sets for --data.name: size, split, licence",
    "checkpoints": "published models, used by their id",
    "recipes": "settings of papers, for train --recipe: reported result and cost",
    "tables": "tables of papers, for plan and compare --table: their rows and recipes",
    "plugins": "methods, samplers, commands and more that other packages bring",
}
LEGENDS = {  # what a list's columns say, below it
    "methods": "likelihood: 'bound' is an upper bound on -log p; '= in one order' means that -log p is exact if the "
    "tokens are revealed one by one in a fixed order",
    "samplers": "draws from: the distribution of the samples; bounded by: the number of zellige evaluate that bounds "
    "-log p of the samples (forward, divergence: its --estimator); evaluations: of the network, per text",
}
TABLES = Path(__file__).with_name("lists.json")  # what torch is needed for; docs/_tools/lists.py writes it


GROUPS = {"methods": "zellige.methods", "samplers": "zellige.samplers", "data": "zellige.datasets"}  # of entry points


def table(what: str) -> list[dict[str, str]]:
    """The rows of `zellige list`: a header's names in the first one."""
    if what in ("data", "models", "tables", "plugins"):  # from tables that need no torch
        rows = {"data": data, "models": models, "tables": paper_tables, "plugins": plugins}[what]()
    else:
        rows = json.loads(TABLES.read_text(encoding="utf-8"))[what]
    return with_plugged(rows, GROUPS[what]) if what in GROUPS else rows


def with_plugged(rows: list[dict[str, str]], group: str) -> list[dict[str, str]]:
    """The rows, with one for each name that another package brings, before those of other names of ours."""
    second = [*rows[0]][1]
    new = [
        dict.fromkeys(rows[0], "") | {"name": name, second: f"of the package {' and '.join(map(package_of, points))}"}
        for name, points in others(group).items()
    ]
    whole = sum(row.keys() == rows[0].keys() for row in rows)
    return [*rows[:whole], *new, *rows[whole:]]


def data() -> list[dict[str, str]]:
    """A row for each data set by name."""
    from ..data import DATASETS

    return [
        {
            "name": name,
            "what": d.what,
            "size": d.size,
            "train / validation / test": d.split,
            "licence": d.licence,
            "needs": d.needs.replace("`data.path`", "--data.path"),
        }
        for name, d in DATASETS.all().items()
    ]


def paper_tables() -> list[dict[str, str]]:
    """A row for each table of a paper."""
    from ..papers.tables import TABLES

    return [
        {
            "name": name,
            "paper": table.paper,
            "arXiv": table.arxiv,
            "what": table.what,
            "rows": str(len(table.rows)),
            "with a recipe": str(sum(bool(row.recipe) for row in table.rows)),
        }
        for name, table in TABLES.items()
    ]


def models() -> list[dict[str, str]]:
    """A row for each model that comes with Zellige, from its card."""
    from ..models import shipped

    cards = {name: shipped.card(name) for name in shipped.names()}
    return [
        {"name": name, **{key: card[key] for key in ("what", "method", "size", "test")}} for name, card in cards.items()
    ]


def plugins() -> list[dict[str, str]]:
    """A row for each thing that another package brings, and what is wrong with it;
    one that is broken hides no other."""
    return [
        {"name": one.name, "what": one.kind, "package": one.package, "state": one.problem or "ready"}
        for one in plugged()
    ]
