"""TABLES: the tables of the papers as data. Each row has what the paper reports and the recipe that trains it.

    zellige list tables                                  # all of them
    zellige plan mdlm-1 --gpus 8                         # what each row of one would cost
    zellige compare --table mdlm-1 --minutes 5           # its rows on data at hand: never a reproduction

The values are copied from the papers' text. Rows about other kinds of models (flows, continuous diffusion, weights of
GPT-2) are left out. A row without a recipe says why in its note. The recipes have their reported numbers from here
(`reported`).
"""

from collections.abc import Mapping
from typing import Any

from ..base.errors import InputError
from ..base.plugins import Registry
from ..base.requests import declared
from ..show.numbers import SIGN
from . import PAPERS, made, read


@declared
class Reported:
    """The number of a paper: `≤ 3.435 bits/dim, test, table 3`; "-" where the paper gives none.

    kind: "bound" or "exact". where: of which split, in which table.
    """

    value: str
    unit: str
    where: str
    kind: str = "bound"

    def __str__(self) -> str:
        return f"{signed(self.value, self.unit, self.kind)} {self.unit}" if self.value else "-"


LIKELIHOODS = ("PPL", "bits/char", "bits/dim")  # units of numbers that may be bounds


def signed(value: str, unit: str, kind: str) -> str:
    """A value with `≤` or `=` where it is a likelihood."""
    return f"{SIGN[kind]} {value}" if unit in LIKELIHOODS else value


@declared
class TableRow:
    """One row of a table.

    Attributes:
        name: what the paper calls it.
        values: what it reports, in the order of the table's columns, with its spread: `1.61 ± 0.02`; "" where it has
            none.
        recipe: the recipe that trains it; "" where there is none, and `note` says why.
        exact: its likelihood is exact, no bound.
        quoted_from: the paper whose number it is, if it is another paper's.
        note: what else is known of the row.
    """

    name: str
    values: tuple[str, ...]
    recipe: str = ""
    exact: bool = False
    quoted_from: str = ""
    note: str = ""

    @property
    def quoted(self) -> bool:
        """Return whether the number is another paper's."""
        return bool(self.quoted_from)

    @property
    def remark(self) -> str:
        """The note, after the paper that is quoted."""
        return ", ".join(filter(None, (self.quoted_from and f"quoted from {self.quoted_from}", self.note)))

    @property
    def kind(self) -> str:
        """Of its likelihood."""
        return "exact" if self.exact else "bound"


@declared
class Column:
    """Quantity of a column: its unit, and its name where the table has several of a unit."""

    unit: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name}, {self.unit}" if self.name else self.unit


@declared
class PublishedTable:
    """A table of a paper.

    Attributes:
        paper, arxiv: what the paper is called, and its number.
        number: of the table, or (`figure`) of the figure.
        what: it is about, in a few words.
        protocol: on what the numbers were measured.
        evaluation: the command that measures a trained row, with RUN in the place of its folder.
    """

    paper: str
    arxiv: str
    number: str
    what: str
    protocol: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    evaluation: str = "zellige evaluate RUN"
    figure: bool = False

    @property
    def title(self) -> str:
        """`MDLM (arXiv 2406.07524), table 1`"""
        return f"{self.paper} (arXiv {self.arxiv}), {self.place}"

    @property
    def place(self) -> str:
        return f"{'figure' if self.figure else 'table'} {self.number}"

    @property
    def recipes(self) -> tuple[str, ...]:
        """The recipes of its rows, each once."""
        return tuple(dict.fromkeys(row.recipe for row in self.rows if row.recipe))

    def shown(self, row: TableRow) -> list[str]:
        """The values of a row as they are printed, "-" where there is none."""
        return [
            signed(v, column.unit, row.kind) if v else "-" for column, v in zip(self.columns, row.values, strict=True)
        ]

    def reported(self, row: TableRow, whose: str = "") -> Reported:
        """The first number of a row, and where it stands; whose: before the number of the table,
        where it needs saying."""
        given = [(column, value) for column, value in zip(self.columns, row.values, strict=True) if value]
        if not given:
            return Reported("", "", f"{whose}{self.place}")
        first, value = given[0]
        more = [f"{column.unit} {plain(v)}" for column, v in given if column.unit != first.unit]
        where = ", ".join(filter(None, (first.name, self.protocol, f"{whose}{self.place}")))
        where += f" ({', '.join(more)})" if more else ""
        return Reported(plain(value), first.unit, where, row.kind)


def plain(value: str) -> str:
    """A value without its spread: 1.61 of `1.61 ± 0.02`."""
    return value.partition(" ")[0]


ZERO_SHOT = "zellige evaluate RUN --suite zero-shot"
TABLES: Registry[PublishedTable] = Registry("table", "zellige list tables")


def _table(paper: Mapping[str, Any], entries: Mapping[str, Any], where: str) -> PublishedTable:
    """A table of what its paper's file says of it."""
    columns = tuple(made(Column, column, f"{where}, columns") for column in entries.get("columns", ()))
    rows = tuple(made(TableRow, row, f"{where}, rows") for row in entries.get("rows", ()))
    whole = {"paper": paper["paper"], "arxiv": paper["arxiv"], **entries, "columns": columns, "rows": rows}
    return made(PublishedTable, whole, where)


TABLES |= {
    name: _table(read(paper), entries, f"papers/{paper}.toml, table {name}")
    for paper in PAPERS
    for name, entries in read(paper).get("tables", {}).items()
}


def reported(recipe: str, paper: str) -> Reported:
    """Reported number of a recipe: a likelihood first, on its own data before zero-shot, by its paper before one that
    quotes it.

    Raises:
        InputError: no table has a row that it trains.
    """
    found = [(table, row) for table in TABLES.values() for row in table.rows if row.recipe == recipe]
    if not found:
        raise InputError(f"no table has a row of the recipe {recipe}; add one to the file of its paper")

    def rank(one: tuple[PublishedTable, TableRow]) -> tuple[bool, ...]:
        table, row = one
        return not any(row.values), row.quoted, table.columns[0].unit not in LIKELIHOODS, table.evaluation == ZERO_SHOT

    table, row = min(found, key=rank)
    return table.reported(row, "" if table.paper == paper else f"{table.paper}'s ")
