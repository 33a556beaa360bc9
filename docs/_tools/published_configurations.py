"""What stands in the configurations that the papers' authors published, beside the recipes, value by value.

Both stand in the file of a paper (`zellige/papers/NAME.toml`), each written down by itself: so a wrong number in a recipe is a
disagreement, which a test finds (`tests/papers/test_recipes.py`), and docs/reference/recipes.md shows both. Where the paper
says another value, the recipe takes that one (`Entry.paper`), and one of its differences names the two.
"""

import math
from typing import Any

from zellige.base.requests import declared
from zellige.papers import PAPERS, made, read, recipe_entries
from zellige.papers.recipes import Recipe


@declared
class File:
    """A published file: where it was read."""

    repository: str
    path: str
    commit: str
    fork: str = ""

    def __str__(self) -> str:
        at = f"{self.commit[:8]} of the copy {self.fork}" if self.fork else self.commit[:8]
        return f"{self.repository}, {self.path} ({at})"


PAPER = "paper"  # in place of a file


@declared
class Entry:
    """One value.

    Attributes:
        ours: the choice of a recipe that it is about: `train.lr`, `net.dropout`, `data.flip`, `options.auxiliary`, `steps`.
        key, value: what it is called in the file, and its value there; of `PAPER` the section.
        file: a name in FILES, or PAPER.
        here: the same value as a recipe says it, where that is another way: in another unit, at another scale of the loss.
        how: how `here` comes from `value`, in words.
        paper: the paper's own value, as a recipe says it, where it contradicts the file; `words` that a difference must have.
    """

    ours: str
    key: str
    value: Any
    file: str
    here: Any = None
    how: str = ""
    paper: Any = None
    words: tuple[str, ...] = ()

    @property
    def wanted(self) -> Any:
        """What the recipe must say."""
        return next(value for value in (self.paper, self.here, self.value) if value is not None)


FILES = {
    name: made(
        File, {"repository": of["name"], "fork": of.get("fork", ""), **file}, f"papers/{paper}.toml, file {name}"
    )
    for paper in PAPERS
    for of in read(paper).get("repositories", [])
    for name, file in of["files"].items()
}
PUBLISHED = {
    name: [
        made(Entry, {"ours": choice, **value}, f"papers/{paper}.toml, {choice} of {name}")
        for choice, value in entries["published"].items()
    ]
    for paper in PAPERS
    for name, entries in recipe_entries(read(paper)).items()
}


# ---------------------------------------------------------------------------------- beside the recipes
def said(recipe: Recipe, ours: str) -> Any:
    """What a recipe says of a choice: `train.lr`, `options.block`, `drawing.corrector`, `steps`."""
    section, _, name = ours.partition(".")
    if not name:
        return getattr(recipe, section)
    return dict(recipe.drawing).get(name) if section == "drawing" else getattr(getattr(recipe.config, section), name)


def disagreements(recipe: Recipe, entries: list[Entry]) -> list[str]:
    """Where a recipe says another value than its entries, or a contradiction of paper and file that it does not name."""
    wrong = [
        f"{entry.ours} is {said(recipe, entry.ours)!r}; {entry.wanted!r} by {entry.key} = {entry.value!r}"
        for entry in entries
        if not _equal(said(recipe, entry.ours), entry.wanted)
    ]
    return wrong + [
        f"no difference has {word!r}, of {entry.ours}"
        for entry in entries
        for word in entry.words
        if not any(word in text for text in recipe.differs)
    ]


def _equal(ours: Any, wanted: Any) -> bool:
    if isinstance(ours, tuple):
        return [*ours] == wanted
    if isinstance(ours, float) or (isinstance(wanted, float) and isinstance(ours, int)):
        return isinstance(wanted, (int, float)) and math.isclose(ours, wanted, rel_tol=1e-12)
    return ours == wanted


def unstated(recipe: Recipe, entries: list[Entry]) -> list[str]:
    """The numbers of a recipe's training that no entry is about: all but when something is written or validated."""
    stated = {entry.ours for entry in entries}
    return [name for name in NUMBERS if name not in stated]


NUMBERS = [
    f"train.{name}" for name in ("steps", "batch", "lr", "warmup", "decay", "weight_decay", "betas", "clip", "ema")
] + ["net.dropout"]


def table(recipe: Recipe, entries: list[Entry]) -> str:
    """The entries of a recipe as Markdown."""
    rows = [f"| {' | '.join(_cells(recipe, entry))} |\n" for entry in entries]
    return "".join(["| here | value | published | where |\n|---|---|---|---|\n", *rows])


def _cells(recipe: Recipe, entry: Entry) -> list[str]:
    ours = said(recipe, entry.ours)
    shown = f"{ours:.6g}" if isinstance(ours, float) else str(ours)
    if entry.file == PAPER:
        return [f"`{entry.ours}`", shown, str(entry.value), f"the paper, {entry.key}"]
    here = f"`{entry.key}` = {entry.value}" + (f"; {entry.how}" if entry.how else "")
    here += "; the paper says otherwise, see above" if entry.paper is not None else ""
    return [f"`{entry.ours}`", shown, here, f"[{entry.file}](#files)"]


def files() -> str:
    """The list of the files, as Markdown."""
    rows = [f"| {name} | {file.repository} | `{file.path}` | {_at(file)} |\n" for name, file in FILES.items()]
    return "".join(["| | repository | file | read at |\n|---|---|---|---|\n", *rows])


def _at(file: File) -> str:
    return file.commit[:8] + (f", in the copy {file.fork}" if file.fork else "")
