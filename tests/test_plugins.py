"""A package of somebody else's plugs in one of everything, installed as a user would; broken ones are a line each."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SMALL = "--net.hidden 16 --net.layers 1 --net.heads 2 --net.length 16 --net.conv 0 --train.steps 2 --train.batch 4"
SMALL = SMALL.split()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the installed package, and nothing else."""
    folder = tmp_path_factory.mktemp("packages")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target"]
    subprocess.run([*install, str(folder), str(HERE / "plugged")], check=True, timeout=300)
    return folder


def run(code: str, *folders: Path, cwd: Path) -> str:
    """What a fresh interpreter prints that finds the packages in these folders."""
    path = os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


USED = f"""
import contextlib, io, sys, json
from pathlib import Path
import zellige
from zellige.cli import main

def said(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return code, out.getvalue(), err.getvalue()

small = {SMALL}
found = {{"rows": json.loads(said("list", "plugins", "--json", "-")[1])["result"]}}
lists = {{what: json.loads(said("list", what, "--json", "-")[1])["result"] for what in ("methods", "samplers", "data")}}
found["lists"] = {{
    what: [row["name"] for row in rows if "of the package zellige-plugged" in row.values()] for what, rows in lists.items()
}}
found["verified"] = said("verify", "mdlm", "--sampler", "backwards", "--json", "-")[:2]
found["command"] = said("count", "a", "b")
found["trained"] = said("train", "plain", "--data.name", "letters", *small, "--run", "runs/p")[0]
found["scheduled"] = said("train", "mdlm", "--schedule", "squared", "--data.name", "letters", *small, "--run", "runs/m")[0]
found["evaluated"] = said("evaluate", "runs/m", "--tokens", "12")
saved = Path("runs/m/tokens.json")
record = zellige.Record.load(saved)
record.save("again.json")
same = saved.read_text() == Path("again.json").read_text()
found["read"] = [type(record).__name__, record.different, record.request.tokens, same]
found["exported"] = said("export", "runs/m", "--to", "mdlm", "--out", "out")[0]

import torch
found["drawn"] = zellige.sample("runs/m", sampler="backwards", options={{"keep": 3}}, count=2, steps=2)
said("sample", "runs/m", "--sampler", "backwards", "--keep", "3", "--count", "2", "--steps", "2", "--json", "drawn.json")
found["typed"] = json.loads(Path("drawn.json").read_text())["arguments"]["keep"]
model = zellige.load("runs/m")
method, x = model.method, None
sampler = zellige.SAMPLERS["backwards"](keep=2)
states = [state.x for state in zellige.run(sampler, method, (1, 16), 16)]
mask = method.process.mask
order = [int((a != b).nonzero()[0, 1]) for a, b in zip(states, states[1:])]
found["order"] = order
found["alpha"] = float(method.process.schedule.alpha(torch.tensor(0.3)))
from zellige.evaluation import metrics
import numpy as np
found["metric"] = metrics.measure(rows=[np.array([4, 1]), np.array([7, 1])])["first token"].value
config = json.loads(Path("out/config.json").read_text())
Path("out/config.json").write_text(json.dumps(config | {{"model_type": "plugged"}}))
Path("out/SHA256SUMS").unlink()
found["layout"] = zellige.load("out").about["published"]["layout"]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def used(place, tmp_path_factory):
    """Where each was used, with the runs that this left; and what was found."""
    folder = tmp_path_factory.mktemp("used")
    return folder, json.loads(run(USED, place, cwd=folder).splitlines()[-1])


def test_one_of_each_works_as_ours_do(used):
    _, found = used
    names = {"count", "plain", "backwards", "squared", "letters", "plugged", "first token", "tokens"}
    assert {row["name"] for row in found["rows"]} == names
    assert {(row["package"], row["state"]) for row in found["rows"]} == {("zellige-plugged", "ready")}
    assert found["lists"] == {"methods": ["plain"], "samplers": ["backwards"], "data": ["letters"]}
    code, report = found["verified"]
    distances = json.loads(report)["result"]["pairings"]
    assert code == 0
    assert all(row["backwards"] < 1e-12 for row in distances.values())
    assert found["command"][:2] == [0, "2 words\n"]
    assert found["trained"] == found["scheduled"] == found["exported"] == 0
    assert found["evaluated"][0] == 0
    assert "12 different tokens" in found["evaluated"][1]
    assert found["read"] == ["Different", 12, 12, True]
    assert [len(text) for text in found["drawn"]] == [16, 16]
    assert found["typed"] == 3
    assert found["order"] == [0, 1, *range(15, 1, -1)]  # `keep` positions first, then from the end
    assert found["alpha"] == pytest.approx(1e-3 + 0.999 * 0.7**2, abs=1e-6)  # alpha_1 is 1e-3
    assert found["metric"] == 5.5
    assert found["layout"] == "plugged"


TRUST = """
import contextlib, io, shutil
from pathlib import Path
import zellige
from zellige.base.trust import allow
from zellige.models import shipped
shutil.copytree(shipped.find("stories"), "copy", ignore=shutil.ignore_patterns("SHA256SUMS"))
Path("copy/generation_config.json").write_text('{"sampler": "backwards"}')
files = ["runs/p", "runs/m", "copy"]
for path, read in (*((file, zellige.load) for file in files), ("runs/m/tokens.json", zellige.Record.load)):
    try:
        read(path)
        print("loaded", path)
    except zellige.InputError as error:
        print(error)
with allow(code=True):
    print(zellige.load("runs/m").config.options.schedule)
from zellige.cli import main
with contextlib.redirect_stderr(io.StringIO()) as err:
    code = main(["train", "--config", "plain.json", "--run", "runs/q"])
print(code, err.getvalue().strip())
print(zellige.load("runs/p", method="plain").method.name)
"""


def test_a_file_runs_the_code_of_a_package_only_where_it_was_named_or_allowed(place, used):
    """In a process that has not named it: the method of a run, the schedule among its options, the sampler of its defaults."""
    folder, _ = used
    (folder / "plain.json").write_text('{"method": "plain"}')
    lines = run(TRUST, place, cwd=folder).splitlines()
    assert "names the method 'plain' of the package zellige-plugged, whose code would run; add `allow_code`" in lines[0]
    assert "names the schedule 'squared' of the package zellige-plugged, whose code would run" in lines[1]
    assert (
        "generation_config.json' names the sampler 'backwards' of the package zellige-plugged, whose code" in lines[2]
    )
    assert "names the evaluation 'EvaluateTokens' of the package zellige_plugged, whose code would run" in lines[3]
    assert lines[4] == "squared"
    assert lines[5].startswith("2 error: 'plain.json' names the method 'plain' of the package zellige-plugged")
    assert lines[6:] == ["plain"]


def broken(folder: Path, package: str, group: str, line: str) -> None:
    """A package that is installed, by what pip leaves of it."""
    place = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (place / "entry_points.txt").write_text(f"[{group}]\n{line}\n")


WRONG = """
import contextlib, io, json
from zellige.cli import main
with contextlib.redirect_stdout(io.StringIO()) as out:
    assert main(["list", "plugins", "--json", "-"]) == 0
print(json.dumps({(row["name"], row["package"]): row["state"] for row in json.loads(out.getvalue())["result"]}.__repr__()))
"""
STATES = {
    (
        "lost",
        "p-missing",
    ): "method 'lost' of the package p-missing does not import (ModuleNotFoundError: No module named "
    "'nowhere_to_be_found'); mend or uninstall the package",
    (
        "nameless",
        "p-attribute",
    ): "sampler 'nameless' of the package p-attribute does not import (AttributeError: module 'json' "
    "has no attribute 'Nothing'); mend or uninstall the package",
    ("number", "p-type"): "schedule 'number' of the package p-type is 'math:pi'; it must be a class of "
    "zellige.core.schedule.Schedule",
    ("mdlm", "p-taken"): "the name is taken by a method of Zellige's; rename it",
    ("train", "p-command"): "the name is taken by a command of Zellige's; rename it",
    ("twice", "p-one"): "command 'twice' is in the packages p-one and p-two; uninstall all but one",
    ("twice", "p-two"): "command 'twice' is in the packages p-one and p-two; uninstall all but one",
    ("called", "p-name"): "metric 'called' of the package p-name calls itself 'entropy'; give both one name",
}


def test_each_way_to_be_broken_is_one_line_and_hides_no_other(place, tmp_path):
    broken(tmp_path, "p-missing", "zellige.methods", "lost = nowhere_to_be_found:X")
    broken(tmp_path, "p-attribute", "zellige.samplers", "nameless = json:Nothing")
    broken(tmp_path, "p-type", "zellige.schedules", "number = math:pi")
    broken(tmp_path, "p-taken", "zellige.methods", "mdlm = json:loads")
    broken(tmp_path, "p-command", "zellige.commands", "train = json:loads")
    broken(tmp_path, "p-one", "zellige.commands", "twice = json:loads")
    broken(tmp_path, "p-two", "zellige.commands", "twice = json:dumps")
    broken(tmp_path, "p-name", "zellige.metrics", "called = named_otherwise:METRIC")
    module = "from zellige.evaluation.metrics import METRICS\nMETRIC = METRICS['entropy']\n"
    (tmp_path / "named_otherwise.py").write_text(module)
    states = eval(json.loads(run(WRONG, place, tmp_path, cwd=tmp_path).splitlines()[-1]))
    assert {key: state for key, state in states.items() if state != "ready"} == STATES
    assert len([state for state in states.values() if state == "ready"]) == 8
