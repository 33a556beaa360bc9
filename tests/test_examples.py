"""The notebooks of examples/ run from top to bottom, and are stored as they ran."""

import json
import re
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SHORTER = {  # what takes time: the rest of it is the long test's
    r"\bsteps=\d{3,}": "steps=4",
    r"\bonly=\"bound\"": 'only="bound.closed-form"',
    r"\bdraws=2,": "draws=1, limit=8,",
    r"\bsamples=32": "samples=4",
    r"\bcount=64, batch=64": "count=2",
}
SOURCES = {book.stem: json.loads(book.read_text(encoding="utf-8"))["cells"] for book in BOOKS}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MPLBACKEND", "Agg")


@pytest.mark.parametrize("name", SOURCES)
def test_a_notebook_runs_in_short(name):
    """Its cells in one namespace, with four steps of each training and fewer samples, texts and identities."""
    space = {"__name__": "notebook"}
    for number, cell in enumerate(SOURCES[name]):
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        for pattern, short in SHORTER.items():
            source = re.sub(pattern, short, source)
        if "IPython" in source:
            pytest.importorskip("IPython")
        exec(compile(source, f"{name}.ipynb, cell {number}", "exec"), space)


def executed(name: str, folder: Path):
    """The notebook as it runs in an empty folder, without what it wrote to stderr."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    book = nbformat.read(ROOT / "examples" / f"{name}.ipynb", as_version=4)
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    book.metadata.language_info = {"name": "python"}
    return book


def test_what_is_shortened_is_there():
    """Each pattern finds something."""
    whole = "\n".join("".join(cell["source"]) for cells in SOURCES.values() for cell in cells)
    assert [pattern for pattern in SHORTER if not re.search(pattern, whole)] == []


@pytest.mark.long
@pytest.mark.parametrize("name", SOURCES)
def test_a_notebook_runs_as_it_stands(name, tmp_path):
    assert executed(name, tmp_path).cells


@pytest.mark.parametrize("name", SOURCES)
def test_a_notebook_is_stored_as_it_ran(name):
    """Every cell once, in order, without an error or a warning; small enough to read; named in the index of the docs."""
    code = [cell for cell in SOURCES[name] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert any(outputs)
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert (ROOT / "examples" / f"{name}.ipynb").stat().st_size < 200_000
    assert f"(../examples/{name}.ipynb)" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_there_are_notebooks():
    assert len(BOOKS) == 4


if __name__ == "__main__":  # python -m tests.test_examples NAME ...: run them, and store them as they ran
    import nbformat

    for notebook in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as empty:
            nbformat.write(executed(notebook, Path(empty)), ROOT / "examples" / f"{notebook}.ipynb")
