"""Is a text a molecule? The grammar of SMILES (Weininger 1988; OpenSMILES) and the valences of its atoms.

A text is read into atoms and bonds, and is a molecule where

    grammar     every bracket, branch and ring is closed, every bond has two ends, and all of it is one molecule
    valence     no atom has more bonds than its element and charge admit: a charged atom as many as the element of its electrons
    aromatic    the atoms in small letters lie on rings, and double bonds can be put between them such that each that needs one
                has one (a perfect matching)

These are RDKit's rules too, but for its details of exotic elements; `tests/data/test_smiles.py` has what it answered.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from zellige.base.arguments import is_number

_ATOM = re.compile(
    r"(?P<bare>Cl|Br|[BCNOPSFI]|[bcnops])"
    r"|\[(?P<isotope>[0-9]+)?(?P<element>[A-Z][a-z]?|[bcnops])(?P<turn>@{1,2})?(?P<hydrogens>H[0-9]?)?(?P<charge>\+[0-9]?|-[0-9]?|\+\+|--)?\]"
)
_BONDS = {"-": 1, "/": 1, "\\": 1, "=": 2, "#": 3, ":": 1}
_ELECTRONS = {
    "B": 3,
    "C": 4,
    "N": 5,
    "O": 6,
    "F": 7,
    "P": 5,
    "S": 6,
    "Cl": 7,
    "Br": 7,
    "I": 7,
    "H": 1,
}  # in the outer shell
_VALENCE = {1: 1, 3: 3, 4: 4, 5: 3, 6: 2, 7: 1}  # by these electrons
_MORE = {"P": (5, 7), "S": (4, 6)}  # without a charge


@dataclass
class Atom:
    """An atom as it is written. `hydrogens`: None where they are not written, and fill it up."""

    element: str
    aromatic: bool
    charge: int = 0
    hydrogens: int | None = None
    bonds: dict[int, int] = field(default_factory=dict)  # the other atom -> order; an aromatic bond counts 1 here

    @property
    def most(self) -> int:
        """The bonds that it may have."""
        electrons = _ELECTRONS[self.element] - self.charge
        valence = _VALENCE.get(electrons, 0)
        return max(_MORE.get(self.element, (valence,))) if not self.charge else valence

    @property
    def used(self) -> int:
        return sum(self.bonds.values()) + (self.hydrogens or 0)

    @property
    def needs_double(self) -> bool:
        """Of an aromatic atom: whether a double bond has to go to one of its neighbours on the ring."""
        return _VALENCE.get(_ELECTRONS[self.element] - self.charge, 0) > self.used


def is_molecule(text: str) -> bool:
    """Return whether a text is the SMILES of one molecule.

    >>> [is_molecule(text) for text in ("CC(=O)O", "c1ccccc1", "C1CC", "CC(C", "FC(F)(F)(F)F", "c1cccc1", "c1cc[nH]c1")]
    [True, True, False, False, False, False, True]
    """
    atoms = atoms_of(text)
    return bool(atoms) and all(atom.used <= atom.most or _nitro(atom, atoms) for atom in atoms) and _aromatic(atoms)


def atoms_of(text: str) -> list[Atom] | None:
    """The atoms of a text, with their bonds; None where it is no SMILES of one molecule."""
    atoms: list[Atom] = []
    branches: list[int] = []
    rings: dict[str, tuple[int, str]] = {}  # number -> the atom that opened it, the bond that was written there
    at, bond, last = 0, "", -1

    def join(a: int, b: int, sign: str) -> bool:
        if a == b or b in atoms[a].bonds:
            return False
        atoms[a].bonds[b] = atoms[b].bonds[a] = _BONDS.get(sign, 1)
        return True

    while at < len(text):
        sign = text[at]
        if atom := _ATOM.match(text, at):
            new_atom = _atom(atom)
            if new_atom is None:
                return None
            atoms.append(new_atom)
            if last >= 0 and not join(last, len(atoms) - 1, bond):
                return None
            at, bond, last = atom.end(), "", len(atoms) - 1
            continue
        ring = re.compile(r"[0-9]|%[0-9][0-9]").match(text, at)
        if last < 0:
            return None
        if ring:
            if text[at - 1] == "(":
                return None
            if ring[0] in rings:
                begin, before = rings.pop(ring[0])
                if (bond and before and _BONDS[bond] != _BONDS[before]) or not join(begin, last, bond or before):
                    return None
            else:
                rings[ring[0]] = last, bond
            at, bond = ring.end(), ""
            continue
        if sign in _BONDS and not bond:
            bond = sign
        elif sign == "(" and not bond and text[at - 1] != "(":
            branches.append(last)
        elif sign == ")" and branches and not bond and text[at - 1] != "(":
            last = branches.pop()
        else:
            return None
        at += 1
    return None if rings or branches or bond else atoms


def _atom(written: re.Match[str]) -> Atom | None:
    """The atom of a match; None for an element without a valence here."""
    name = written["bare"] or written["element"]
    element = name.capitalize()
    if element not in _ELECTRONS:
        return None
    if written["bare"]:
        return Atom(element, name.islower())
    hydrogens, charge = written["hydrogens"], written["charge"] or ""
    size = int(charge[1:]) if is_number(charge[1:]) else len(charge)
    return Atom(
        element, name.islower(), -size if charge[:1] == "-" else size, int(hydrogens[1:] or 1) if hydrogens else 0
    )


def _nitro(atom: Atom, atoms: list[Atom]) -> bool:
    """Return whether an atom is a nitrogen with five bonds, as nitro groups are often written:
    two double bonds to oxygens."""
    oxygens = [j for j, order in atom.bonds.items() if order == 2 and atoms[j].element == "O"]
    return atom.element == "N" and not atom.charge and atom.used == 5 and len(oxygens) == 2


def _aromatic(atoms: list[Atom]) -> bool:
    """Return whether every aromatic atom lies on a ring, and double bonds can be placed between those that need one."""
    ring = {frozenset(pair) for pair in _ring_bonds(atoms)}
    small = [i for i, atom in enumerate(atoms) if atom.aromatic]
    if any(not any(frozenset((i, j)) in ring for j in atoms[i].bonds) for i in small):
        return False
    needs = {i for i in small if atoms[i].needs_double}
    near = {i: [j for j in atoms[i].bonds if j in needs and frozenset((i, j)) in ring] for i in needs}
    return _matched(needs, near)


def _matched(free: set[int], near: dict[int, list[int]]) -> bool:
    """Return whether `free` can be split into pairs of neighbours;
    the atom with the fewest neighbours is tried first."""
    if not free:
        return True
    tightest = min(free, key=lambda i: sum(j in free for j in near[i]))
    return any(_matched(free - {tightest, j}, near) for j in near[tightest] if j in free)


def _ring_bonds(atoms: list[Atom]) -> Iterator[tuple[int, int]]:
    """The bonds that lie on a ring: those without which their ends are still joined."""
    for i, atom in enumerate(atoms):
        for j in atom.bonds:
            if j < i:
                continue
            visited, ends = {i}, [i]
            while ends:
                node = ends.pop()
                for neighbour in atoms[node].bonds:
                    if {node, neighbour} != {i, j} and neighbour not in visited:
                        visited.add(neighbour)
                        ends.append(neighbour)
            if j in visited:
                yield i, j
