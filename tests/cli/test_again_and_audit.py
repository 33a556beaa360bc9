"""A protocol that travels: every kind of result does itself again and says whether its number holds; claims are audited."""

import csv
import dataclasses
import json
import math
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from zellige import Config, Data, Net, Record, cli
from zellige.base.errors import InputError
from zellige.cli.evaluate_again import compared, of_unit, read_claims
from zellige.data import prepare
from zellige.data.tokenizer import Bytes
from zellige.evaluation.interval import Proportion
from zellige.evaluation.repeat import changes
from zellige.methods import METHODS, build
from zellige.models.config import Train
from zellige.models.model import Model
from zellige.plugins.evaluations.generate.image_features import save_features, train_classifier
from zellige.show.record import Figure

TEXT = "the value of the object is returned by the function and it is the name of a class\n"
KINDS = {
    "bound": "m --draws 2 --limit 4",
    "ends": "m --draws 2 --limit 4 --ends none",
    "steps": "m --steps 4 continuous --draws 2 --limit 4",
    "bracket": "m --bracket --numbers 1 2 --limit 2 --own 1 --orders forward --per-step 8",
    "pairs": "m --pairs pairs.jsonl --draws 8",
    "probe": "m --probe ag_news --data.path . --linear",
    "glue": "m --probe glue:rte --data.path glue --epochs 1",
    "suite": "m --suite zero-shot --data.path sets --only lambada ag_news --draws 2 --limit 4",
    "generate": "m --generate --judge judge --count 2 --steps 4 --no-distances --context 8",
    "distances": "m --generate --judge judge --count 8 --steps 2 --context 8 --features m --calls 2 4",
    "ngrams": "m --generate --judge judge --count 4 --steps 2 --context 8 --features ngrams",
    "images": "images --generate --features seen --count 20 --steps 2",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small model and a judge, random weights, with the text that they would have been trained on."""
    folder = tmp_path_factory.mktemp("travel")
    (folder / "notes.txt").write_text(TEXT * 60)
    pair = {"context": "the value of ", "choices": ["the object", "a class"], "answer": 0}
    (folder / "pairs.jsonl").write_text((json.dumps(pair) + "\n") * 2)
    rows = [(i % 4 + 1, f"title {i}", "of the name") for i in range(400)]
    with (folder / "test.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    for name, file in (("lambada", "lambada_test.jsonl"), ("ag_news", "test.csv")):
        (folder / "sets" / name).mkdir(parents=True)
        lines = [json.dumps({"text": TEXT}) + "\n"] * 4 if name == "lambada" else [(folder / "test.csv").read_text()]
        (folder / "sets" / name / file).write_text("".join(lines))
    (folder / "glue" / "rte").mkdir(parents=True)
    pairs = [json.dumps({"sentence1": TEXT, "sentence2": f"title {i}", "label": i % 2}) + "\n" for i in range(20)]
    for split in ("train", "validation"):
        (folder / "glue" / "rte" / f"{split}.jsonl").write_text("".join(pairs))
    torch.manual_seed(0)
    digits = Data("digits", labels=True)
    save_features(*train_classifier(prepare(digits), width=16, epochs=1), folder / "seen")
    images = prepare(Data("digits")).tokenizer
    net = Net(layers=1, hidden=16, heads=2, length=64)
    of_images = build("mdlm", images.size, net, METHODS["mdlm"].Config())
    Model(of_images, images, Config("mdlm", METHODS["mdlm"].Config(), Data("digits"), net, Train())).save(
        folder / "images"
    )
    for name, where in (("mdlm", "m"), ("ar", "judge")):
        torch.manual_seed(0)
        net = Net(layers=1, hidden=16, heads=2, length=16)
        method = build(name, 256, net, METHODS[name].Config())
        data = Data("text", path=str(folder / "notes.txt"), tokenizer="bytes")
        Model(method, Bytes(), Config(name, METHODS[name].Config(), data, net, Train())).save(folder / where)
    return folder


@pytest.fixture
def run(folder, monkeypatch, capsys, tmp_path_factory):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ZELLIGE_CACHE", str(folder / "cache"))

    def call(command: str):
        code = cli.main(shlex.split(command))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_result_does_itself_again(run, kind):
    code, _, err = run(f"evaluate {KINDS[kind]} --json {kind}.json")
    assert (code, err.count("error")) == (0, 0), err
    document = json.loads(Path(f"{kind}.json").read_text())
    assert {"zellige", "python", "platform", "torch"} <= set(document["versions"])
    about = document["result"]["about"]
    assert len(about["weights_sha256"]) == 64
    assert about["tokenizer_sha256"]
    assert document["protocol"]
    of_sets = [one["result"]["about"]["tokens_sha256"] for one in document["result"].get("sets", ())]
    of_samples = [point["samples_sha256"] for point in document["result"].get("points", ())]
    assert about.get("tokens_sha256") or about.get("sha256") or all(of_samples + of_sets)
    record = Record.load(f"{kind}.json")
    assert record.figures()
    code, out, _ = run(f"evaluate --from {kind}.json --json again.json")
    assert code == 0
    assert "bit for bit" in out
    assert f"  holds     {kind}.json" in out
    again = json.loads(Path("again.json").read_text())
    assert set(again["held"].values()) == {"bit for bit"}
    repeated = Record.load("again.json")
    assert repeated.figures() == record.figures()
    assert again["held"] == record.holds(repeated)


def test_a_judge_and_features_of_other_weights_are_named(run):
    """The protocol has the sha256 of whoever judged and whose features were compared; of what the judge itself wrote too."""
    command = "m --generate --judge judge --count 8 --steps 2 --context 8 --features other --cheats"
    shutil.copytree("judge", "other")
    run(f"evaluate {command} --json r.json")
    document = json.loads(Path("r.json").read_text())
    protocol = document["protocol"]
    hashes = [protocol["judge"]["weights_sha256"], protocol["judge"]["tokenizer_sha256"]]
    assert all(len(one) == 64 for one in [*hashes, protocol["compared"]["weights_sha256"]])
    assert protocol["compared"]["features"] == "mean hidden states of other"
    assert [cheat["name"] for cheat in document["result"]["cheats"]][-2:] == ["cold", "judge's own"]
    assert set(document["result"]["cheats"][-1]["measures"]) == set(document["result"]["points"][0]["measures"])
    tensors = load_file("judge/model.safetensors")
    with safe_open("judge/model.safetensors", "pt") as file:
        about = file.metadata()
    for name in ("judge", "other"):
        other = {key: value + 0.05 * torch.randn_like(value) for key, value in tensors.items()}
        save_file(other, f"{name}/model.safetensors", about)
        Path(name, "SHA256SUMS").unlink()
    try:
        code, out, err = run("evaluate --from r.json")
    finally:
        save_file(tensors, "judge/model.safetensors", about)
    assert code == 1
    assert "protocol: judge: weights_sha256 was " in err
    assert "protocol: compared: weights_sha256 was " in err
    assert "does not hold  perplexity was" in out


def test_what_changed_is_named_and_a_number_that_does_not_hold_fails(run, folder):
    run(f"evaluate {KINDS['bound']} --json r.json")
    document = json.loads(Path("r.json").read_text())
    del document["checksum"]
    assert document["protocol"]["distribution"] == "the model of continuous time"
    document["protocol"]["distribution_key"] = "steps 8"
    Path("other.json").write_text(json.dumps(document))
    code, out, _ = run("evaluate --from other.json")
    assert code == 1
    assert "; it was of `steps 8`, is of `continuous`" in out
    document["versions"]["torch"] = "1.0"
    document["result"]["value"] += 100
    Path("wrong.json").write_text(json.dumps(document))
    before = Path("notes.txt").read_text()
    try:
        Path("notes.txt").write_text(before.replace("value", "VALUE"))
        code, out, err = run("evaluate --from wrong.json")
    finally:
        Path("notes.txt").write_text(before)
    assert code == 1
    assert "note: torch was 1.0, is " in err
    assert "note: tokens was " in err
    assert "note: data was " in err
    assert "does not hold  bits/char was" in out


def test_options_typed_now_outrank_those_of_the_file(run):
    run(f"evaluate {KINDS['bound']} --json r.json")
    code, _, err = run("evaluate --from r.json --draws 4 --seed 3 --json again.json")
    again = json.loads(Path("again.json").read_text())
    assert code in (0, 1), err
    assert (again["arguments"]["draws"], again["seed"], again["arguments"]["limit"]) == (4, 3, 4)


def claims(lines: list[str], folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "claims.csv").write_text("model,data,protocol,value,unit,tolerance,kind\n" + "\n".join(lines) + "\n")
    return folder


def test_an_audit_prints_which_claims_hold(run, folder):
    run(f"evaluate {KINDS['bound']} --json r.json")
    value = json.loads(Path("r.json").read_text())["result"]["value"]
    how = "--draws 2 --limit 4"
    lines = [
        f"../m,,{how},{value:.6f},bits/char,,bound",
        f"../m,,{how},{value * 0.6931471805599453:.4f},nats/char,,",
        f"../m,../notes.txt,{how} --data.tokenizer bytes,{value:.6f},bits/char,,",
        f"../m,,{how} --ends none,{value:.3f},bits/char,1000,bound",
        f"../m,,{how},{value + 50:.3f},bits/char,,",
        f"../m,,{how},12,FID,,",
        "../nobody,,,1.0,bits/char,,",
    ]
    code, out, _ = run(f"evaluate --audit {claims(lines, folder / 'claims').name} --json audit.json")
    assert code == 1
    result = json.loads(Path("audit.json").read_text())["result"]
    verdicts = [row["verdict"] for row in result["claims"]]
    good, bad = ["holds"] * 3, ["is not a bound of what is claimed", "does not hold"]
    assert verdicts == [*good, *bad, "cannot be checked", "cannot be checked"]
    assert "3 of 7 claims hold" in out
    assert "'FID' is not among ours" in out
    code, out, _ = run(f"evaluate --audit {claims(lines[:3], folder / 'true').name}")
    assert (code, "3 of 3 claims hold\n" in out) == (0, True)


def test_a_claim_may_be_of_characters_or_of_a_task(run):
    run(f"evaluate {KINDS['bound']} --json r.json")
    result = dataclasses.replace(
        Record.load("r.json"),
        unit="nats/token",
        value=4.0,
        about={"characters_per_token": 2.0},
        tasks={"solved": Proportion(1, 4)},
    )
    per_char, solved = (of_unit(result.claimable(), unit) for unit in ("bits/char", "solved"))
    assert per_char.value == pytest.approx(2 / math.log(2))
    assert per_char.half == pytest.approx(result.figures()[0].half / math.log(2) / 2)
    assert (solved.value, solved.kind) == (0.25, "estimate")


@pytest.mark.parametrize(
    ("lines", "code", "holds", "checked", "last"),
    [
        ("u", 1, None, 0, "0 of 1 claim hold, 1 cannot be checked"),
        ("hu", 0, None, 1, "1 of 2 claims hold, 1 cannot be checked"),
        ("h", 0, True, 1, "1 of 1 claim hold"),
        ("fu", 1, False, 1, "0 of 2 claims hold, 1 cannot be checked"),
    ],
)
def test_what_cannot_be_checked_does_not_hold(run, folder, lines, code, holds, checked, last):
    """An audit that checked nothing has shown nothing."""
    how = "--draws 2 --limit 4"
    kinds = {"h": f"../m,,{how},8,bits/char,1000,", "f": f"../m,,{how},800,bits/char,1,", "u": f"../m,,{how},12,FID,,"}
    name = claims([kinds[kind] for kind in lines], folder / f"claims-{lines}").name
    ended, out, _ = run(f"evaluate --audit {name} --json audit.json")
    result = json.loads(Path("audit.json").read_text())["result"]
    assert (ended, result["holds"], result["checked"]) == (code, holds, checked)
    assert out.rstrip().endswith(last)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("model,value\nm,1\n", "has no column 'unit'"),
        ("model,value,unit,colour\nm,1,x,red\n", "has a column 'colour'"),
        ("model,value,unit\nm,much,x\n", "value of claim 1 of"),
        ("model,value,unit\n", "holds no claim"),
        ("model,value,unit\n,1,x\n", "has no model"),
        ("model,value,unit,kind\nm,1,x,truth\n", "it must be bound, exact, estimate or empty"),
        ("model,value,unit,low\nm,1,x,0\n", "claim 1 of .*; give both, low <= value <= high"),
        ("model,value,unit,high\nm,1,x,2\n", "give both, low <= value <= high"),
        ("model,value,unit,low,high\nm,1,x,2,0\n", "give both, low <= value <= high"),
    ],
)
def test_a_wrong_file_of_claims_is_one_sentence(tmp_path, text, wrong):
    (tmp_path / "claims.csv").write_text(text)
    with pytest.raises(InputError, match=wrong):
        read_claims(tmp_path)


def test_a_claim_beside_a_number(tmp_path):
    (tmp_path / "claims.csv").write_text("model,value,unit,kind,low,high\nm,3.41,bpc,,,\nm,2,ppl,exact,1.5,2.1\n")
    one, two = read_claims(tmp_path)
    assert (one.unit, one.half, two.half) == ("bits/char", pytest.approx(0.005), 0.5)
    ours = lambda value, kind="bound": Figure("bits/char", value, 0.01, "bits/char", kind)  # noqa: E731
    assert [compared(one, ours(v))[0] for v in (3.42, 3.43, 3.4)] == ["holds", "does not hold", "holds"]
    assert compared(two, ours(9.0))[0] == "cannot be checked"
    assert compared(two, ours(2.0, "loss"))[0] == "is not a bound of what is claimed"
    with pytest.raises(InputError, match="unit of several numbers"):
        of_unit(
            [
                Figure("a: perplexity", 1, 0, "perplexity", "bound"),
                Figure("b: perplexity", 2, 0, "perplexity", "bound"),
            ],
            "perplexity",
        )


def test_the_last_digit_of_a_claim_has_the_place_that_its_exponent_gives_it(tmp_path):
    values = ("6.0", "60e-1", "0.06E2", "6e2", "1.5e-3")
    (tmp_path / "claims.csv").write_text("model,value,unit\n" + "".join(f"m,{v},bpc\n" for v in values))
    assert [claim.half for claim in read_claims(tmp_path)] == pytest.approx([0.05, 0.05, 0.5, 50, 5e-5])


def test_in_what_sense_a_number_holds():
    one = Figure("x", 2.0, 0.1, "x", "bound")
    assert [one.holds(dataclasses.replace(one, value=v)) for v in (2.0, 2.000001, 2.05, 2.2)] == [
        "bit for bit",
        "up to rounding",
        "within its interval",
        "",
    ]
    width = dataclasses.replace(one, value=1e-7, half=0.0, size=5.0)
    assert [width.holds(dataclasses.replace(width, value=v)) for v in (2e-7, 6e-6)] == ["up to rounding", ""]
    of_steps = dataclasses.replace(one, distribution="steps 4")
    assert [of_steps.holds(one), one.holds(of_steps), of_steps.holds(of_steps)] == ["", "bit for bit", "bit for bit"]
    before = {
        "versions": {"torch": "1"},
        "protocol": {"time": "a"},
        "result": {"sets": [{"set": "ptb", "result": {"about": {"sha256": "1"}}}]},
    }
    now = {
        "versions": {"torch": "2"},
        "protocol": {"time": "b"},
        "result": {"sets": [{"set": "ptb", "result": {"about": {"sha256": "2"}}}]},
    }
    assert changes(before, now) == ["torch was 1, is 2", "ptb: data was 1, is 2", "protocol: time was a, is b"]
