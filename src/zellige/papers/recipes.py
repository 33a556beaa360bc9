"""RECIPES: how a paper trained a model, by name, in the words of this library, and the number that it reports.

    zellige.train(recipe="mdlm-owt")        # zellige train --recipe mdlm-owt; zellige list recipes

A paper's own text comes first; what it leaves out is taken from its authors' code. What neither says is a choice of
ours, and is named so (`Recipe.ours`); where a network or a data set cannot be the paper's, or the code contradicts it,
`Recipe.differs` says how. The number that a paper reports stands in its table (`tables`).

A limit of the gradient's norm is of the loss that it was made for. Ours is in nats per token, of the whole bound; a
published loss that is c times ours and clipped at g is clipped here at g/c.
"""

from typing import Any

from ..base.errors import InputError
from ..base.plugins import Registry
from ..base.requests import declared
from ..data import Data
from ..methods import METHODS
from ..methods.method import Method
from ..models.config import Config, Train
from ..nn.block import Net
from . import PAPERS, made, notes, read, recipe_entries, tables
from .tables import Reported


@declared
class Recipe:
    """One configuration of a paper.

    Attributes:
        paper, arxiv: what it is called, and its number.
        source: where in the paper, or in its authors' code, the choices stand.
        method, options: the method's name, and its choices that are not the default.
        vocabulary: data tokens of the tokenizer, or levels of a pixel.
        sampler, drawing, steps: what the paper draws with, its options that are not the default, how many steps;
            samples of validations, which are only looked at, take `train.sample_steps`.
        parameters: those that the paper or its checkpoint has; None where neither says, or what they say does not add
            up.
        ours: what the source does not give, so that the value here is a choice of our own.
        differs: what is known to be otherwise than in the paper.
        base: the recipe that it is but for a few choices; "" where it stands alone.
        name: in RECIPES.
    """

    paper: str
    arxiv: str
    source: str
    method: str
    data: Data
    net: Net
    train: Train
    vocabulary: int
    options: tuple[tuple[str, Any], ...] = ()
    sampler: str = "ancestral"
    drawing: tuple[tuple[str, Any], ...] = ()
    steps: int = 1000
    parameters: float | None = None
    ours: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    base: str = ""
    name: str = ""

    @property
    def reported(self) -> Reported:
        """The number to reach, as the table of the paper has it."""
        return tables.reported(self.name, self.paper)

    @property
    def config(self) -> Config:
        """All of it as the config of a run."""
        return Config(self.method, METHODS[self.method].Config(**dict(self.options)), self.data, self.net, self.train)

    def for_method(self, method: str | type[Method] | None) -> Config:
        """The config, where `method` is None or that of this recipe; else InputError."""
        if method is not None and method not in (self.method, METHODS[self.method]):
            name_of_other = method if isinstance(method, str) else method.__name__
            raise InputError(f"recipe {self.name} trains {self.method}, not {name_of_other}; leave the method out")
        return self.config

    @property
    def note(self) -> str:
        """Note of a run on its recipe, at its start."""
        number = self.reported if self.reported.value else "no number"
        return f"recipe {self.name}: {self.paper} reports {number} ({self.reported.where})"


def _recipe(paper: str, name: str, entries: dict[str, Any]) -> Recipe:
    """A recipe of what the file of its paper says of it, each section as the dataclass that checks it."""
    where, document = f"papers/{paper}.toml, recipe {name}", read(paper)
    options = made(METHODS[entries["method"]].Config, entries["options"], f"{where}, options")
    entries = {entry: value for entry, value in entries.items() if entry != "published"} | {
        "paper": document["paper"],
        "arxiv": document["arxiv"],
        "name": name,
        "data": made(Data, entries["data"], f"{where}, data"),
        "net": made(Net, entries["net"], f"{where}, net"),
        "train": made(Train, entries["train"], f"{where}, train"),
        "options": tuple((option, getattr(options, option)) for option in entries["options"]),
        "drawing": tuple(entries["drawing"].items()),
        "ours": notes(paper, entries.get("ours", [])),
        "differs": notes(paper, entries["differs"]),
    }
    return made(Recipe, entries, where)


RECIPES: Registry[Recipe] = Registry("recipe", "zellige list recipes")
_ALL = [_recipe(paper, name, entries) for paper in PAPERS for name, entries in recipe_entries(read(paper)).items()]
RECIPES |= {recipe.name: recipe for recipe in sorted(_ALL, key=lambda recipe: bool(recipe.base))}
