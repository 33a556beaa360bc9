"""The pictures of docs/reference/api.md, drawn from the imports of the code as they are.

    .venv/bin/python docs/_tools/floor_plan.py        writes docs/pictures/plan.svg, and plan-NAME.svg for each package

`tests/test_architecture.py` asks the same functions, and holds the imports between packages in plan.svg equal to the code's.
"""

import ast
import tomllib
from collections.abc import Iterable
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE, PICTURES = ROOT / "src" / "zellige", ROOT / "docs" / "pictures"
PAPER, INK, FAINT, BOX, OUTSIDE = (
    "#fbfaf6",
    "#1d1d1b",
    "#8a8578",
    "#dfe8ea",
    "#f0e6d2",
)  # a page of its own in dark, too
ARROWS = ("#2f6f7e", "#b3582b", "#5b5b9f", "#4c7a3d", "#8a3b5e")


@cache
def modules() -> dict[str, Path]:
    """Every module by its dotted name below the package: "core.bound"; "methods" is the package's own file, "" the top's."""
    names = {path: path.relative_to(SOURCE).with_suffix("").parts for path in sorted(SOURCE.rglob("*.py"))}
    return {".".join(name[:-1] if name[-1] == "__init__" else name): path for path, name in names.items()}


@cache
def imports(name: str) -> frozenset[str]:
    """The modules of the package that a module imports: at its head, in a function, or for type checkers alone."""
    files = modules()
    path, package = files[name], name.split(".") if name else []
    package = package if path.name == "__init__.py" else package[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    targets = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not (node.level or (node.module or "").split(".")[0] == "zellige"):
            continue
        inside = node.module.split(".") if node.module else []
        base = package[: len(package) - node.level + 1] + inside if node.level else inside[1:]
        for alias in node.names:
            below = ".".join([*base, alias.name])
            targets.add(below if below in files else ".".join(base))
    return frozenset(targets - {name, ""})


def room(name: str) -> str:
    """The package, or the module at the top, in which a module stands."""
    return name.split(".")[0]


def storeys() -> list[list[str]]:
    """The contract of pyproject.toml, top first: the names on one line do not import each other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(c for c in project["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def arrows() -> dict[tuple[str, str], int]:
    """(a room, a room below that it imports) -> by how many imports of its files."""
    count: dict[tuple[str, str], int] = {}
    for name in modules():
        for target in imports(name):
            if name and room(name) != room(target):
                count[room(name), room(target)] = count.get((room(name), room(target)), 0) + 1
    return dict(sorted(count.items()))


def layers(inside: Iterable[str], edges: set[tuple[str, str]]) -> list[list[str]]:
    """Files in rows: each stands above all that it imports, as low as it can; in a row, near what it is joined to.

    A package is one box here, so two boxes may import each other, by different files; such an import moves neither.
    """
    below = {name: {b for a, b in edges if a == name} for name in inside}

    def reached(start: str) -> set[str]:
        found, todo = set(), [start]
        while todo:
            todo += (new := below[todo.pop()] - found)
            found |= new
        return found

    reach = {name: reached(name) for name in below}
    below = {name: {b for b in names if name not in reach[b]} for name, names in below.items()}
    height: dict[str, int] = {}
    for name in TopologicalSorter(below).static_order():
        height[name] = max((height[b] + 1 for b in below[name]), default=0)
    joined = {name for edge in edges for name in edge}
    rows = [[n for n in below if height[n] == i and n in joined] for i in range(max(height.values()) + 1)]
    place = {name: j - len(row) / 2 for row in rows for j, name in enumerate(row)}
    for _ in range(8):
        for row in rows:
            centre = {n: [place[b if a == n else a] for a, b in edges if n in (a, b)] for n in row}
            row.sort(key=lambda n: (sum(centre[n]) / len(centre[n]), n))
            place |= {name: j - len(row) / 2 for j, name in enumerate(row)}
    alone = [
        name for name in below if name not in joined and "." in name
    ]  # not a package's file that holds a sentence only
    return [row[i : i + 8] for row in [alone, *rows] for i in range(0, len(row), 8)][::-1]


class Sheet:
    """A picture: boxes of text in rows, the first row on top, and arrows from the box that imports to the one imported."""

    def __init__(self, rows: int, high: float, width: float = 11.0):
        import matplotlib

        matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "zellige", "font.family": "DejaVu Sans"}
        from matplotlib.figure import Figure

        self.width, self.high, self.rows = width, high, rows
        self.fig = Figure(figsize=(width, rows * high + 0.2), facecolor=PAPER)
        self.ax: Any = self.fig.add_axes((0, 0, 1, 1))
        self.ax.set(xlim=(0, width), ylim=(-rows * high - 0.1, 0.1))
        self.ax.axis("off")
        self.boxes: dict[str, tuple[float, float, float]] = {}  # name -> x, y of its middle, half its width

    def box(self, x: float, y: float, wide: float, half: float, colour: str, alpha: float = 1.0) -> None:
        """A box from x on, y in its middle."""
        from matplotlib.patches import FancyBboxPatch

        style = {
            "boxstyle": "round,pad=0,rounding_size=0.07",
            "fc": (colour, alpha),
            "ec": FAINT,
            "lw": 0.8,
            "zorder": 3,
        }
        self.ax.add_patch(FancyBboxPatch((x, y - half), wide, 2 * half, **style))

    def text(self, x: float, y: float, text: str, size: float) -> None:
        self.ax.text(x, y, text, size=size, ha="center", va="center", zorder=4, color=INK)

    def row(self, i: int, names: list[str], colour: str, notes: dict[str, str]) -> None:
        """Boxes side by side in the i-th row, each with its name and, where it has one, a note below it."""
        short = {name: name.rpartition(".")[2] for name in names}
        need = [max(len(short[name]) * 0.083, len(notes.get(name, "")) * 0.062) + 0.2 for name in names]
        gap = (self.width - sum(need)) / (len(names) + 1)
        x, y = gap, -(i + 0.5) * self.high
        for name, wide in zip(names, need):
            half = 0.2 if name in notes else 0.15
            self.box(x, y, wide, half, colour)
            self.text(x + wide / 2, y + (0.07 if name in notes else 0), short[name], 9)
            if name in notes:
                self.text(x + wide / 2, y - 0.1, notes[name], 6.5)
            self.boxes[name] = (x + wide / 2, y, half)
            x += wide + gap

    def arrow(self, a: str, b: str) -> None:
        """From the lower edge of a to the upper edge of b, behind the boxes."""
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path as Curve

        (x0, y0, h0), (x1, y1, h1) = self.boxes[a], self.boxes[b]
        y0, y1 = y0 - h0, y1 + h1
        bend = min(self.high, (y0 - y1) / 2)
        curve = Curve([(x0, y0), (x0, y0 - bend), (x1, y1 + bend), (x1, y1)], [1, 4, 4, 4])
        colour = ARROWS[list(self.boxes).index(a) % len(ARROWS)]
        self.ax.add_patch(PathPatch(curve, fc="none", ec=colour, lw=0.85, alpha=0.75, zorder=2))
        self.ax.plot([x1], [y1 + 0.02], marker="v", ms=3.2, color=colour, zorder=2.5, mew=0)

    def save(self, name: str, description: str) -> None:
        """Write docs/pictures/NAME.svg."""
        about = {"Date": None, "Description": description}
        self.fig.savefig(PICTURES / f"{name}.svg", format="svg", metadata=about, facecolor=PAPER)


def plan() -> None:
    """The whole house as a staircase: rows import columns, a number counts the imports; none stands left of the stairs."""
    order, edges = [name for storey in storeys() for name in storey], arrows()
    sheet = Sheet(len(order), high=0.42)
    step = sheet.width / len(order)
    for i, name in enumerate(order):
        files = sum(room(m) == name for m in modules())
        y = -(i + 0.5) * sheet.high
        sheet.box((i + 0.02) * step, y, 0.96 * step, 0.19, BOX)
        sheet.text((i + 0.5) * step, y + 0.04 * (files > 1), name, 7.5)
        if files > 1:
            sheet.text((i + 0.5) * step, y - 0.1, f"{files} files", 5.5)
        for j, other in enumerate(order):
            if count := edges.get((name, other)):
                sheet.box((j + 0.1) * step, y, 0.8 * step, 0.15, OUTSIDE, min(1.0, 0.25 + count / 40))
                sheet.text((j + 0.5) * step, y, str(count), 7.5)
    sheet.save("plan", " ".join(f"{a}->{b}" for a, b in edges))


def package(name: str) -> None:
    """One package: its files, each above what it imports, and below them the packages on which they stand."""
    inside = [m for m in modules() if room(m) == name]
    groups = {m: ".".join(m.split(".")[:2]) for m in inside}  # a package inside counts as one box
    edges = {(groups[m], groups[t]) for m in inside for t in imports(m) if t in groups and groups[m] != groups[t]}
    rows = layers(dict.fromkeys(groups.values()), edges)
    order = [n for row in storeys() for n in row]
    count = {b: c for (a, b), c in arrows().items() if a == name}
    sheet = Sheet(len(rows) + bool(count), high=0.72)
    for i, row in enumerate(rows):
        sheet.row(i, row, BOX, {m: f"{n} files" for m in row if (n := sum(g == m for g in groups.values())) > 1})
    notes = {b: f"{c} ×" for b, c in count.items()}
    sheet.row(len(rows), sorted(count, key=order.index), OUTSIDE, notes)
    for a, b in sorted(edges):
        sheet.arrow(a, b)
    sheet.save(f"plan-{name}", f"{name}: its files, and the packages that they import")


def main() -> None:
    plan()
    for name in sorted({room(m) for m in modules() if "." in m}):
        package(name)


if __name__ == "__main__":
    main()
