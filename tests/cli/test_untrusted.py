"""Files of strangers: they run no code and fetch nothing unless it is allowed, and no file of options is read for ever."""

import csv
import json
import shlex
import shutil
import time
from pathlib import Path

import fsspec
import pytest
import torch

import zellige
from zellige import Config, Data, Net, cli
from zellige.base import trust
from zellige.data.tokenizer import Bytes
from zellige.methods import METHODS, build
from zellige.models.config import Train
from zellige.models.model import Model

TEXT = "the value of the object is returned by the function and it is the name of a class\n"
OWN = """
from pathlib import Path

from zellige.methods import MDLM

Path({marker!r}).touch()


class Own(MDLM):
    name = "own"
"""
FEW = "--net.layers 1 --net.hidden 16 --net.heads 2 --net.length 16 --train.steps 1 --train.batch 2 --train.samples 0 --quiet"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A text; `own.py`, which leaves a mark where it runs; models that were trained on the text, here and elsewhere."""
    folder = tmp_path_factory.mktemp("untrusted")
    (folder / "notes.txt").write_text(TEXT * 60)
    (folder / "own.py").write_text(OWN.format(marker=str(folder / "ran")))
    here, far = {"path": "notes.txt"}, {"path": "memory://untrusted/notes.txt"}
    mixed = {"mix": "notes.txt=0.5,https://127.0.0.1:9/x.txt=0.5"}
    for name, where in (("m", here), ("far", far), ("mixed", mixed)):
        torch.manual_seed(0)
        net = Net(layers=1, hidden=16, heads=2, length=16)
        method = build("mdlm", 256, net, METHODS["mdlm"].Config())
        data = Data("text", tokenizer="bytes", **where)
        Model(method, Bytes(), Config("mdlm", METHODS["mdlm"].Config(), data, net, Train())).save(folder / name)
    return folder


@pytest.fixture
def run(folder, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path))

    def call(command: str):
        code = cli.main(shlex.split(command))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def ran(folder):
    """Whether the code of own.py has run; not yet."""
    (folder / "ran").unlink(missing_ok=True)
    yield (folder / "ran").exists
    (folder / "ran").unlink(missing_ok=True)


def refused(answer: tuple[int, str, str], *words: str) -> bool:
    code, out, err = answer
    return (code, out, err.count("\n")) == (2, "", 1) and all(word in err for word in ("error: ", *words))


def written_result(folder: Path, run, name: str, **changes) -> None:
    """A result as somebody else may hand it over: with other arguments, and without the checksum."""
    assert run(f"evaluate m --draws 1 --limit 4 --json {name}")[0] == 0
    document = json.loads((folder / name).read_text())
    document.pop("checksum", None)
    for key, value in changes.items():
        document["arguments"][key] = value
    (folder / name).write_text(json.dumps(document))


# ---------------------------------------------------------------------------------------------- code
@pytest.mark.parametrize(
    "text",
    [
        '{"method": "own.py:Own"}',
        "method: own.py:Own",
        'method = "own.py:Own"',
        '{"format": 1, "method": "own.py:Own"}',
    ],
    ids=["json", "yaml", "toml", "run"],
)
def test_a_file_of_options_runs_no_code_unasked(run, ran, text, request):
    name = f"c.{request.node.callspec.id.replace('run', 'json')}"
    Path(name).write_text(text)
    for command in ("train", "sweep --train.lr 1e-3,2e-3", "plan"):
        answer = run(f"{command} --config {name} --data.path notes.txt {FEW}")
        assert answer[0] == 2, command
        assert not ran()
        if command == "train":
            assert refused(answer, f"'{name}' has code run here, 'own.py:Own'", "--allow-code")


def test_code_runs_where_it_is_allowed_or_typed(run, ran, tmp_path):
    Path("c.yaml").write_text("method: own.py:Own\n")
    assert run(f"train --config c.yaml --allow-code --data.path notes.txt --run {tmp_path}/a {FEW}")[0] == 0
    assert ran()
    code, _, err = run(f"train mdlm --config c.yaml --data.path notes.txt --run {tmp_path}/b {FEW}")
    assert (code, "code" in err) == (0, False)  # what is typed outranks the file, whose method is not read
    assert run(f"train own.py:Own --data.path notes.txt --run {tmp_path}/c {FEW}")[0] == 0


def test_a_result_runs_no_code_unasked(run, ran, folder):
    written_result(folder, run, "r.json", method="own.py:Own")
    assert refused(run("evaluate --from r.json"), "'r.json' has code run here, 'own.py:Own'", "--allow-code")
    assert not ran()
    run("evaluate --from r.json --allow-code")
    assert ran()


def test_claims_run_no_code_and_write_no_file_unasked(run, ran, folder):
    (folder / "claims").mkdir(exist_ok=True)
    protocols = (
        "--method own.py:Own",
        "--method=own.py:Own",
        "--generate --out stolen",
        "--data.path http://127.0.0.1:9/x",
    )
    with (folder / "claims" / "claims.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerows(
            [("model", "protocol", "value", "unit"), *(("../m", each, "1", "bits/char") for each in protocols)]
        )
    run("evaluate --audit claims --json audit.json")
    assert not ran()
    assert not (folder / "claims" / "stolen").exists()
    why = [claim["why"] for claim in json.loads((folder / "audit.json").read_text())["result"]["claims"]]
    assert [words in each for words, each in zip(("own.py:Own", "own.py:Own", "--out", "fetched"), why)] == [True] * 4


@pytest.mark.parametrize("entry", ["method", "network", "recipe"])
def test_the_folder_of_a_model_runs_no_code(run, ran, folder, entry):
    """A name of a file is no name of a method there, allowed or not."""
    there = folder / "theirs"
    shutil.rmtree(there, ignore_errors=True)
    shutil.copytree(folder / "m", there)
    for file in there.glob("SHA256SUMS"):
        file.unlink()
    config = json.loads((there / "config.json").read_text())
    config.pop("checksum", None)
    (there / "config.json").write_text(json.dumps(config | {entry: "own.py:Own"}))
    for command in ("sample theirs --steps 2", "evaluate theirs --limit 2 --allow-code"):
        run(command)
        assert not ran()


# ---------------------------------------------------------------------------------------------- what lies elsewhere
@pytest.fixture
def asked(monkeypatch):
    """The addresses that were to be fetched; none is reached."""
    addresses: list[str] = []
    monkeypatch.setattr(
        "zellige.data.remote_files.silence", lambda address: addresses.append(address) or "nobody is there"
    )
    return addresses


def test_the_data_of_a_strangers_model_is_not_fetched_unasked(run, folder, asked):
    """By no command that judges it, nor where something else of its data is typed; in Python neither."""
    address = "http://127.0.0.1:9"
    there = folder / "tracked"
    shutil.rmtree(there, ignore_errors=True)
    model = zellige.load(folder / "m")
    torch.manual_seed(0)
    config = Config(
        "mdlm", model.config.options, Data("text", path=f"{address}/x.txt", tokenizer="bytes"), model.config.net
    )
    Model(model.method, model.tokenizer, config).save(there)
    for words in ("", "--data.pack document", "--steps 2", "--bracket", "--split train"):
        answer = run(f"evaluate tracked --limit 2 {words}")
        assert refused(
            answer, f"has data fetched from elsewhere, '{address}/x.txt'", "--allow-remote", "--data.path"
        ), words
    for request in (zellige.Evaluate(), zellige.evaluations.EvaluateBracket()):
        with pytest.raises(zellige.InputError, match="fetched from elsewhere"):
            request.run(str(there))
    assert asked == []
    code, _, err = run("evaluate tracked --limit 2 --allow-remote")
    assert (code, asked) == (2, [f"{address}/x.txt"]), err
    assert run("evaluate tracked --limit 2 --draws 1 --data.path notes.txt")[0] == 0  # ours, in its place


def test_it_is_fetched_where_it_is_allowed(run, folder):
    memory = fsspec.filesystem("memory")
    memory.pipe("/untrusted/notes.txt", (TEXT * 60).encode())
    try:
        assert refused(run("evaluate far --limit 2"), "'memory://untrusted/notes.txt'")
        assert refused(run("evaluate mixed --limit 2"), "'https://127.0.0.1:9/x.txt=0.5'")
        code, out, err = run("evaluate far --limit 4 --draws 1 --allow-remote")
        assert (code, "bits/" in out) == (0, True), err
        with trust.allow(remote=True):
            value = zellige.evaluate(str(folder / "far"), limit=4, draws=1).value
        assert (
            value
            == zellige.evaluate(str(folder / "far"), zellige.load(folder / "far").config.data, limit=4, draws=1).value
        )
        with pytest.raises(zellige.InputError, match="fetched from elsewhere"):
            zellige.evaluate(str(folder / "far"), limit=4)
        written_result(folder, run, "f.json", data={"name": "text", "path": "memory://untrusted/notes.txt"})
        assert refused(run("evaluate --from f.json"), "'f.json' has data fetched from elsewhere")
    finally:
        memory.rm("/untrusted", recursive=True)


# ---------------------------------------------------------------------------------------------- files that never end
LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi")
)
MERGED = "a: &a {k: v}\n" + "".join(
    f"{b}: &{b} {{<<: [{', '.join([f'*{a}'] * 9)}]}}\n" for a, b in zip("abcdefgh", "bcdefghi")
)
ENDLESS = {
    "laughs.yaml": LAUGHS,
    "merged.yaml": MERGED,
    "itself.yaml": "train: &a\n  steps: 2\n  more: *a\n",
    "list.yaml": "train: &a [1, *a]\n",
    "deep.yaml": "[" * 20_000,
    "deep.json": "[" * 20_000,
    "deep.toml": "a = " + "[" * 20_000,
    "deeper.json": '{"a":' * 20_000 + "1" + "}" * 20_000,
    "closed.json": '{"a":' * 900 + "1" + "}" * 900,
    "dotted.toml": ".".join(["a"] * 20_000) + " = 1",
    "many.yaml": "".join(f"a{i}: 1\n" for i in range(20_000)),
    "large.yaml": "a: " + "x" * 2_000_000,
    "digits.json": '{"train": {"steps": ' + "9" * 5_000 + "}}",
    "digits.yaml": "train: {steps: " + "9" * 5_000 + "}",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_file_of_options_that_grows_as_it_is_read_is_one_line(run, name):
    Path(name).write_text(ENDLESS[name])
    began = time.process_time()
    code, out, err = run(f"train mdlm --config {name} --data.path notes.txt")
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert f"'{name}'" in err
    assert "; " in err
    assert time.process_time() - began < 10.0


def test_an_alias_that_is_short_is_read(run, tmp_path):
    Path("short.yaml").write_text(
        "train: {steps: &few 1, batch: 2, validate_every: *few, samples: 0}\nnet: {layers: *few}\n"
    )
    assert run(f"train mdlm --config short.yaml --data.path notes.txt --run {tmp_path}/s {FEW}")[0] == 0
    config = json.loads((tmp_path / "s" / "config.json").read_text())
    assert (config["train"]["validate_every"], config["net"]["layers"]) == (1, 1)
