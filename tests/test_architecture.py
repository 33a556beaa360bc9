"""The floor plan: imports point down, no files in a circle, papers apart from each other, long files with a reason."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import zellige

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "zellige"


def modules() -> dict[str, Path]:
    """Every module by its dotted name below the package: "core.bound"; "methods" is the package's own file."""
    names = {path: path.relative_to(SOURCE).with_suffix("").parts for path in SOURCE.rglob("*.py")}
    return {".".join(name[:-1] if name[-1] == "__init__" else name): path for path, name in names.items()}


def imports(name: str, files: dict[str, Path]) -> set[str]:
    """The modules of the package that a module imports, at its head or in a function; not those for type checkers alone."""
    path, package = files[name], name.split(".") if name else []
    package = package if path.name == "__init__.py" else package[:-1]
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    targets = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not (node.level or (node.module or "").split(".")[0] == "zellige"):
            continue
        inside = node.module.split(".") if node.module else []
        base = package[: len(package) - node.level + 1] + inside if node.level else inside[1:]
        for alias in node.names:
            below = ".".join([*base, alias.name])
            targets.add(below if below in files else ".".join(base))
    return targets - {name, ""}


def test_no_circle_between_files():
    """Not between packages only; an import in a function counts, since it hides a circle and does not break it."""
    files = modules()
    try:
        tuple(TopologicalSorter({name: imports(name, files) for name in files}).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_papers_do_not_import_each_other():
    files = modules()
    papers = {cls.__module__.removeprefix("zellige.") for cls in zellige.METHODS.values()}
    for paper in papers:
        assert not imports(paper, files) & (papers - {paper} | {"methods"}), paper
