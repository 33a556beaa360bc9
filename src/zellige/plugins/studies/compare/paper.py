"""The rows of a paper's table as entrants of a comparison, on data that is at hand in the place of the paper's.

Each recipe keeps its method and that method's options; network, data and training are the substitute's. Recipes that
are the same training there (they differ in size, steps or data alone) are trained once.
"""

from dataclasses import dataclass, replace
from typing import Any

from zellige.base.errors import InputError
from zellige.data import Data
from zellige.methods import METHODS
from zellige.models.config import Train
from zellige.nn.block import Net
from zellige.papers.recipes import RECIPES, Recipe
from zellige.papers.tables import TABLES, PublishedTable
from zellige.training.setup import CPU, SIZES

from .entrant import Entrant
from .record import Paper, PaperRow

NETWORK = ("constant", "rescale")  # of a recipe's network, what the substitute's has too
TEXT, IMAGES = "pydocs", "digits"  # data that needs no download


@dataclass(frozen=True)
class Rows:
    """A table that is compared: who trains its rows, and what the comparison says of it.

    Attributes:
        entrants: one for each training that differs.
        folders: of each row of the table, the folder of its run; "" where nothing trains it.
        notes: of each row, why nothing trains it, or what trains it too.
    """

    name: str
    table: PublishedTable
    entrants: list[Entrant]
    folders: tuple[str, ...]
    notes: tuple[str, ...]

    def without(self, reasons: dict[str, str]) -> "Rows":
        """The same without the entrants that the substitute's data does not admit, by their folders."""
        kept = [entrant for entrant in self.entrants if entrant.folder not in reasons]
        if not kept:
            raise InputError(
                f"no row of {self.name} can be trained: {next(iter(reasons.values()), 'none has a recipe')}"
            )
        notes = tuple(reasons.get(folder, note) for folder, note in zip(self.folders, self.notes))
        return replace(self, entrants=kept, notes=notes, folders=tuple("" if f in reasons else f for f in self.folders))

    def record(self, data: str, minutes: float) -> Paper:
        """Entries of the table in the comparison's files."""
        rows = tuple(
            PaperRow(row.name, tuple(self.table.shown(row)), row.recipe, folder, note)
            for row, folder, note in zip(self.table.rows, self.folders, self.notes)
        )
        title = f"{self.table.title}: {self.table.what}"
        columns = tuple(map(str, self.table.columns))
        return Paper(self.name, title, self.table.protocol, columns, data, minutes, rows)


def rows_of(name: str, length: int) -> Rows:
    """The rows of a table for sequences of this length.

    Raises:
        InputError: there is no such table.
    """
    table, found, folders, notes = TABLES[name], dict[Any, Entrant](), list[str](), list[str]()
    for row in table.rows:
        if not row.recipe:
            folders.append("")
            notes.append(row.remark)
            continue
        entrant = _entrant(RECIPES[row.recipe], length)
        first = found.setdefault((entrant.name, entrant.options, tuple(entrant.net.items())), entrant)
        folders.append(first.folder)
        notes.append(f"here the same training as {first.folder}" if first.folder != row.recipe else "")
    return Rows(name, table, [*found.values()], tuple(folders), tuple(notes))


def substitute(name: str, data: Any, net: Net | None, train: Train | None, minutes: float) -> tuple[Any, Net, Train]:
    """Data, network and training of a table's rows: what is given,
    else those of the smallest size on data that is there."""
    recipes = TABLES[name].recipes
    images = bool(recipes) and bool(RECIPES[recipes[0]].net.grid)
    data = Data(IMAGES if images else TEXT) if data is None else data
    usual_net, usual_train = SIZES[CPU].of(getattr(data, "name", TEXT))  # of no method: with even times, as papers
    train = replace(usual_train if train is None else train, minutes=minutes)
    return data, usual_net if net is None else net, train


def _entrant(recipe: Recipe, length: int) -> Entrant:
    """The method of a recipe with its options, which it takes to shorter sequences."""
    options, usual = recipe.config.options, Net()
    if hasattr(options, "block"):
        whole = options.block >= recipe.net.length
        options = replace(options, block=length if whole else min(options.block, length))
    if getattr(options, "embedding", ""):
        options = replace(options, embedding="")  # of other tokens
    net = {part: value for part in NETWORK if (value := getattr(recipe.net, part)) != getattr(usual, part)}
    return Entrant(METHODS[recipe.method], recipe.method, options, {}, title=recipe.name, net=net)
