"""The benchmark of a GPU, tried whole on the CPU with tiny sizes; it says so, and gives no figure of use."""

import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TRIAL = ["--device", "cpu", "--small", "--rounds", "1", "--batch", "2", "--no-compile"]


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu

    precision = torch.get_float32_matmul_precision()
    yield gpu
    torch.set_float32_matmul_precision(precision)
    for name in ("gpu", "measure", "reference"):
        sys.modules.pop(name, None)


@pytest.mark.long
def test_a_trial_measures_everything_and_says_that_it_is_one(gpu, tmp_path):
    page = gpu.main([*TRIAL, "--out", str(tmp_path)])
    assert page.name.endswith("-trial.md")
    lines = page.read_text().splitlines()
    assert lines[2].startswith("**A trial")
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    steps = [row for row in table if len(row) == 7 and row[0] not in ("step", "---")]
    assert [row[0] for row in steps] == ["mdlm, published", "mdlm", "sedd", "bd3lm", "ar"]
    for row in steps:
        assert float(row[1]) > 0
        assert row[3].endswith("FLOP/s")
        assert row[4:6] == ["", ""]  # no utilisation of a CPU, and no peak
    drawn = [row for row in table if len(row) == 4 and row[0] not in ("sampler", "---")]
    ours = [f"{name}, {bits}" for name in ("mdlm", "bd3lm", "ar") for bits in ("float32", "tf32", "bfloat16")]
    assert [row[0] for row in drawn] == ["mdlm, published, bfloat16", "GPT-2 of transformers, bfloat16", *ours]
    assert all(row[2].endswith("tokens/s") for row in drawn)


def test_one_way_that_fails_is_a_line_and_the_others_stay(gpu, monkeypatch, tmp_path):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")

    monkeypatch.setattr(gpu, "published_step", full)
    text = gpu.main([*TRIAL, "--only", "step", "mdlm", "--out", str(tmp_path)]).read_text()
    assert "| mdlm, published | CUDA out of memory. Tried to allocate 20 GiB |" in text
    assert "| mdlm | " in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(("words", "code", "message"), [([], 0, "no GPU"), (["--device", "cpu"], 2, "only a trial")])
def test_without_a_gpu_it_says_so(words, code, message, gpu, capsys):
    with pytest.raises(SystemExit) as left:
        gpu.main(words)
    assert left.value.code == code
    assert message in capsys.readouterr().err
