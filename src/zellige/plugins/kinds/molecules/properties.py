"""Classes of molecules by a property: one that is counted from the SMILES, or a column of the file (`data.labels_by`).

    rings            independent rings: bonds - atoms + 1
    heteroatoms      atoms other than carbon (hydrogens are not written)
    NAME             the column NAME of the .csv: words, or numbers

NAME:N makes N classes of numbers. Of whole numbers from 0 the last class is N - 1 or more; other numbers are cut at
their quantiles, into classes of equal size. Without N each value is a class.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from zellige.base.arguments import is_number
from zellige.base.errors import InputError, quoted

from .smiles import Atom, atoms_of, is_molecule


def rings(atoms: Sequence[Atom]) -> int:
    """Number of independent rings of one molecule (its cyclomatic number)."""
    return sum(len(atom.bonds) for atom in atoms) // 2 - len(atoms) + 1


def heteroatoms(atoms: Sequence[Atom]) -> int:
    """Number of atoms other than carbon and hydrogen."""
    return sum(atom.element not in ("C", "H") for atom in atoms)


COUNTED: dict[str, Callable[[Sequence[Atom]], int]] = {"rings": rings, "heteroatoms": heteroatoms}
MOST = 1000  # classes


@dataclass(frozen=True)
class Property:
    """What `data.labels_by` names.

    Attributes:
        name: of the property, a key of COUNTED or a column.
        count: number of classes; 0: one for each value.
    """

    name: str
    count: int = 0

    @classmethod
    def of(cls, word: str) -> "Property":
        """Read `rings:5`. Raises InputError for a number of classes below 2."""
        name, _, count = word.partition(":")
        if not name or (":" in word and not (is_number(count) and 2 <= int(count) <= MOST)):
            raise InputError(
                f"`data.labels_by` is {quoted(word)}; it must be {', '.join(COUNTED)} or a column, with a number of "
                f"classes as rings:5 (2 to {MOST:,})"
            )
        return cls(name, int(count or 0))

    def counted(self, text: str) -> int | None:
        """The property of a SMILES; None where it is no molecule, or the property is not counted."""
        atoms = atoms_of(text) if self.name in COUNTED else None
        return COUNTED[self.name](atoms) if atoms else None

    def counts(self, texts: Sequence[str]) -> np.ndarray:
        """The property of each text, (N,) float64, NaN where it is no valid molecule."""
        numbers = [self.counted(text) if is_molecule(text) else None for text in texts]
        return np.array([np.nan if number is None else number for number in numbers], float)

    def class_of(self, value: float, names: Sequence[str]) -> int:
        """The class of a counted value among these names; -1 for one that none of them has."""
        if self.count:
            return min(int(value), self.count - 1)
        return names.index(_name(value)) if _name(value) in names else -1

    def classes(self, values: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
        """The class of each of these values (N,), and the names of the classes.

        Raises:
            InputError: words where numbers are asked for, or more than MOST classes.
        """
        numbers = _numbers(values)
        if self.count and numbers is None:
            wrong = next(value for value in values if _numbers([value]) is None)
            raise InputError(
                f"`data.labels_by` {self.name} has the value '{wrong}', and only numbers make classes; leave out the "
                "number"
            )
        if self.count and numbers is not None:
            return self._cut(numbers)
        keys = [_name(x) for x in numbers] if numbers is not None else list(values)
        names = sorted({*keys}, key=float if numbers is not None else None)
        if len(names) > MOST:
            raise InputError(
                f"`data.labels_by` {self.name} has {len(names):,} values; make classes of them, as {self.name}:5"
            )
        at = {name: i for i, name in enumerate(names)}
        return np.array([at[key] for key in keys], np.int64), tuple(names)

    def _cut(self, x: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
        """Whole numbers from 0 as they are, the last class open; others at their quantiles."""
        if (x >= 0).all() and (x == np.rint(x)).all():
            names = (*map(str, range(self.count - 1)), f"{self.count - 1}+")
            return np.minimum(x, self.count - 1).astype(np.int64), names
        ends = np.unique(np.quantile(x, np.arange(1, self.count) / self.count))
        in_digits = ([f"{end:.{digits}g}" for end in ends] for digits in range(4, 18))
        bounds = next(bounds for bounds in in_digits if len({*bounds}) == len(ends))
        names = (f"below {bounds[0]}", *(f"{a} to {b}" for a, b in itertools.pairwise(bounds)), f"{bounds[-1]} or more")
        return np.searchsorted(ends, x, side="right"), names


def _name(value: float) -> str:
    """A number as it is read again."""
    return repr(float(value)).removesuffix(".0")


def _numbers(values: Sequence[str]) -> np.ndarray | None:
    """The values as finite numbers; None where one is none."""
    try:
        x = np.array([float(value) for value in values])
    except ValueError:
        return None
    return x if all(map(math.isfinite, x)) else None
