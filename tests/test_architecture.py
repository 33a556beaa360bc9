"""The floor plan: imports point down, no files in a circle, papers apart from each other."""

import ast
import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import zellige

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_tools"))
import floor_plan  # noqa: E402


def test_no_circle_between_files():
    """Not between packages only; an import in a function or for type checkers counts, since it hides a circle."""
    try:
        tuple(TopologicalSorter({name: floor_plan.imports(name) for name in floor_plan.modules()}).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_imports_point_down():
    """Those for type checkers, too, which the contract of pyproject.toml does not see."""
    storey = {room: number for number, rooms in enumerate(floor_plan.storeys()) for room in rooms}
    for name in filter(None, floor_plan.modules()):
        above = floor_plan.room(name)
        for target in floor_plan.imports(name):
            below = floor_plan.room(target)
            assert above == below or storey[above] < storey[below], f"{name} imports {target}"


def test_papers_do_not_import_each_other():
    papers = {cls.__module__.removeprefix("zellige.") for cls in zellige.METHODS.values()}
    for paper in papers:
        assert not floor_plan.imports(paper) & (papers - {paper} | {"methods"}), paper


def test_no_file_takes_what_is_private_of_another():
    """A name with an underscore before it is for its own file: neither imported, nor asked of an imported module."""
    files = {path: ast.parse(path.read_text(encoding="utf-8")) for path in floor_plan.modules().values()}
    taken = []
    for path, tree in files.items():
        imports = [
            n
            for n in ast.walk(tree)
            if isinstance(n, ast.ImportFrom) and (n.level or f"{n.module}.".startswith("zellige."))
        ]
        names = {name.asname or name.name: name.name for n in imports for name in n.names}
        taken += [f"{path.name}: {name}" for name in names.values() if private(name)]
        asked = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
        taken += [f"{path.name}: {n.value.id}.{n.attr}" for n in asked if n.value.id in names and private(n.attr)]
    assert not taken


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def texts(tree: ast.AST) -> Iterator[str]:
    """The string literals, those with values in them as a whole: `{}` stands for each value."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


OPTIONS_BELOW = {  # files below cli/ that write options, beside whole commands (`zellige verify --json -`), and why
    "plugins/__init__.py": "the sentences of `zellige --help`",
    "plugins/verify/verify.py": "puts together the command that checks one identity again",
    "plugins/adapters/harness.py": "the options of lm_eval, a program of others",
    "plugins/adapters/sglang.py": "the options of SGLang, a program of others",
    "base/processes.py": "the options of torchrun and srun",
    "plugins/report/page.py": "names of colours in CSS",
    "training/meters.py": "puts together the command that goes on",
    "training/device.py": "puts together the command of torchrun",
    "training/forecast.py": "puts together the command of a shorter training",
}


def test_only_the_command_line_names_options():
    """Below it errors and notes name fields, as Python spells them; `cli/options.py` makes options of these."""
    command = r"(zellige \S|-m zellige\.plugins\.adapters\.harness)[^`;)]*"
    write = {
        str(path.relative_to(floor_plan.SOURCE))
        for path in floor_plan.SOURCE.rglob("*.py")
        if "cli" not in path.relative_to(floor_plan.SOURCE).parts
        and path.stem not in ("command", "features_command", "printing")
        for text in texts(ast.parse(path.read_text(encoding="utf-8")))
        if re.search(r"--[a-z{]", re.sub(command, "", text))
    }
    assert write == {*OPTIONS_BELOW}
