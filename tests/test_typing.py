"""What an editor and a type checker know of the public interface: a user's script, checked by pyright."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """\
from typing import assert_type

import numpy as np
import zellige
from zellige import Data, Model, Net, Train
from zellige.evaluation.result import Result
from zellige.evaluation.conditional import TextScore
from zellige.plugins.verify.verify import Report
from zellige.plugins.adapters.pipelines import Infilling, Sampling, Scoring
from zellige.plugins.studies.compare.comparison import Comparison
from zellige.training.run import Run

data = Data.of(["a text", "another"], tokenizer="bytes", pack="document")
run = zellige.train("mdlm", data=["a text"], net=Net(layers=2), train=Train(steps=20, batch=4), run="runs/first")
assert_type(run, Run)
assert_type(run.model, Model)
assert_type(zellige.load("runs/first", device="cpu", system="mdlm"), Model)
assert_type(zellige.evaluate(run, ["a text"], draws=2), Result)
assert_type(zellige.pipeline("sample", run, count=2, temperature=0.5), Sampling)
assert_type(zellige.pipeline("infill", run, mask_token="_"), Infilling)
assert_type(zellige.pipeline("score", run, draws=4), Scoring)
assert_type(zellige.pipeline("score", run)("a text"), TextScore)
assert_type(zellige.pipeline("score", run)(["a text"]), list[TextScore])
assert_type(zellige.sample(run, steps=8, sampler="confidence", confidence="margin"), list[str] | np.ndarray)
assert_type(zellige.infill(run, "a ____", count=2, block_sampler="ancestral"), list[str] | np.ndarray)
assert_type(zellige.infill(run, ["a ____"], count=2), list[list[str]] | np.ndarray)
assert_type(Model.from_pretrained("me/model"), Model)
assert_type(zellige.verify("mdlm"), Report)
assert_type(zellige.compare(["mdlm", "ar"], data=["a text"]), Comparison)
zellige.sample(run)[0].upper()
zellige.infill(run, "a ____")[0].upper()
for frame in zellige.watch(run, steps=4):
    assert_type(frame.text, list[str])

zellige.sample(run, stpes=8)  # wrong: no such argument
zellige.sample(run, confidence=3)  # wrong: a text
run.model.generate("a")  # wrong: no such attribute
zellige.pipeline("score", run, steps=3)  # wrong: goes with another task
zellige.Train(epochs=3)  # wrong: no such field
Data.of(["a"], vocab=3)  # wrong: no such argument
"""


def test_a_users_script(tmp_path):
    """Every line without a remark is accepted, and every line with one is refused."""
    pyright = shutil.which("pyright", path=Path(sys.executable).parent)
    if pyright is None:
        pytest.skip("pyright is not installed")
    (tmp_path / "script.py").write_text(SCRIPT)
    source = Path(__file__).resolve().parents[1] / "src"
    settings = {"include": ["script.py"], "extraPaths": [str(source)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [pyright, "--outputjson", "--pythonpath", sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    report = json.loads(done.stdout)
    wrong = {line for line, text in enumerate(SCRIPT.splitlines()) if "# wrong" in text}
    errors = {entry["range"]["start"]["line"]: entry["message"] for entry in report["generalDiagnostics"]}
    assert {*errors} == wrong, errors
