"""The notebooks of examples/ run as they are stored, and its scripts run; nano.py is the library's MDLM."""

import importlib.util
import json
import math
import re
import sys
import tempfile
from pathlib import Path

import pytest
import torch

import zellige
from zellige.data import prepare
from zellige.methods import build
from zellige.samplers import SAMPLERS

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


# ---------------------------------------------------------------------------------- scripts
def script(name: str):
    """A file of examples/ as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


V, L, B = 11, 12, 5


@pytest.fixture
def twins():
    """nano.py, its network, and the library's MDLM (alpha = 1 - t) with the same weights, float64."""
    nano = script("nano")
    torch.manual_seed(3)
    method = build("mdlm", V, zellige.Net(2, 32, 4, L), zellige.METHODS["mdlm"].Config(alpha_1=0.0)).double().eval()
    for p in method.parameters():
        torch.nn.init.normal_(p, std=0.3)
    network = nano.Transformer(V, L, layers=2, width=32, heads=4).double()
    weights = {name.removeprefix("network."): p for name, p in method.state_dict().items() if "network." in name}
    network.load_state_dict(weights | {name: weights[name][:V] for name in ("head.weight", "head.bias")})
    return nano, network, method


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def test_nano_has_the_losses_of_the_library(twins):
    """For the same draws: that by numbers of masks, which trains, and that in time (MDLM eq. 11); gradients too."""
    nano, network, method = twins
    x = torch.randint(V, (B, L), generator=seeded())
    ours, theirs = nano.bound_by_count(network, x, seeded()), method.loss(zellige.Batch(x), seeded())
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)
    ours.sum().backward()
    theirs.sum().backward()
    grads = {name: p.grad for name, p in method.network.named_parameters()}
    for name, p in network.named_parameters():
        torch.testing.assert_close(p.grad, grads[name][: len(p)])  # of the head: not that of the mask
    generator = seeded()
    t = method.draw_times(zellige.Batch(x), generator)
    x_t = method.corrupt(zellige.Batch(x), t[:, None], generator)
    theirs = method.continuous_bound(zellige.Batch(x), x_t, t)
    torch.testing.assert_close(nano.bound_in_time(network, x, seeded()), theirs, rtol=1e-12, atol=0)


@pytest.mark.parametrize("steps", [1, 6, 40])
def test_nano_draws_the_samples_of_the_library(twins, steps):
    """Whole texts, and masked spans of given ones."""
    nano, network, method = twins
    given = torch.randint(V, (B, L), generator=seeded())
    given[:, 3:9] = -1
    for fixed in (None, given):
        drawn = zellige.run(SAMPLERS["ancestral"](), method, (B, L), steps, fixed=fixed, generator=seeded())
        start = torch.full((B, L), V) if fixed is None else fixed.where(fixed >= 0, torch.tensor(V))
        *_, last = drawn
        assert torch.equal(nano.sample(network, start, steps, seeded()), last.x)


def test_nano_runs(capsys):
    """It learns: from log2 of the number of characters to less than the entropy of a uniform text."""
    words = "--steps 40 --batch 8 --length 32 --width 32 --heads 2 --layers 1 --lr 1e-2 --sample-steps 8"
    network = script("nano").main(words.split())
    out = capsys.readouterr().out
    (bits,) = map(float, re.findall(r"at most ([\d.]+) bits/char", out))
    assert bits < math.log2(network.vocabulary) - 0.5
    assert "a sample\n" in out
    assert "filled in\n" in out


def test_a_training_in_one_file(capsys):
    """It learns, says so in the library's unit, and saves what the library loads."""
    words = "--steps 40 --batch 8 --length 32 --hidden 32 --heads 2 --layers 1 --lr 1e-2 --warmup 5 --ema 0.8"
    words += " --validate-every 20 --rows 16 --sample-steps 4 --out made"
    model = script("train").main(words.split())
    out = capsys.readouterr().out
    first, last = (float(bits) for bits in re.findall(r"validation ≤ ([\d.]+) ± \S+ bits/char", out))
    assert last < first < math.log2(27) + 0.05
    back = zellige.load("made")
    assert back.about["step"] == 40
    assert zellige.sample(back, count=2, steps=4) == zellige.sample(model, count=2, steps=4)
    assert all(text in out for text in zellige.sample(back, count=2, steps=4))
    corpus = prepare(zellige.Data("pydocs"), 32)
    again = zellige.evaluate(back, corpus, "validation", draws=1, limit=16)
    assert f"{again}" in out


def test_scripts_are_named_in_the_docs():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert all(f"(../examples/{name}.py)" in index for name in ("train", "nano"))


def test_blosum62_is_a_transition_matrix_that_prefers_what_is_alike():
    matrix = torch.from_numpy(script("blosum62").matrix())
    torch.testing.assert_close(matrix, matrix.mT)
    torch.testing.assert_close(matrix.sum(0), torch.ones(20).double())
    letters = "ACDEFGHIKLMNPQRSTVWY"
    of_i = dict(zip(letters, matrix[letters.index("I")].tolist()))
    assert of_i["V"] > of_i["L"] > of_i["M"] > of_i["G"]


if __name__ == "__main__":  # python -m tests.test_examples NAME ...: run them, and store them as they ran
    import nbformat

    for notebook in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as empty:
            nbformat.write(executed(notebook, Path(empty)), ROOT / "examples" / f"{notebook}.ipynb")
