"""Units: of a tokenizer that loses something, no command has a number per character or per word."""

import json
import re
import shlex
from pathlib import Path

import pytest

import zellige
from testing.lossy import coin_words, pieces_of, random_letters, saved, words_of
from zellige import Net, Train, cli

SMALL = "--net.layers 1 --net.hidden 8 --net.heads 2 --net.length 8"
BRIEF = "--train.steps 2 --train.batch 4 --train.samples 0 --train.validate-rows 8 --train.warmup 0 --train.device cpu"
NUMBERS = re.compile(r"/(char|word)|per (char|word)|_per_(char|token|unit|word)|bits", re.IGNORECASE)


@pytest.fixture(scope="module", params=["coins", "random"])
def lossy(request, tmp_path_factory):
    """A folder with such a text and a run on it, what its protocol says, and the options that name the text."""
    from tokenizers import normalizers

    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "coins":
        tokenizer, text, said = pieces_of(normalizers.Lowercase()), coin_words(900), "of a tokenizer that drops case"
    else:
        texts = [random_letters(6, seed) for seed in range(900)]
        tokenizer, text, said = words_of([*LETTERS]), " ".join(texts), "of a tokenizer; 100.0% unknown"
    (folder / "a.txt").write_text(text, encoding="utf-8")
    spec = saved(tokenizer, folder / "tokenizer")
    data = f"--data.name text --data.path {folder / 'a.txt'} --data.tokenizer {spec} --data.cache {folder / 'cache'}"
    return folder, said, data


LETTERS = "abc"  # of which no text has any


def commands(data: str) -> dict[str, str]:
    """What each command is asked, in order: the first makes the run."""
    pairs = {"context": "aB ", "continuation": "Cd"}
    Path("pairs.jsonl").write_text("\n".join([json.dumps(pairs)] * 3))
    return {
        "plan": f"plan mdlm {SMALL} {BRIEF} --vocabulary 31 --json -",
        "train": f"train mdlm {data} {SMALL} {BRIEF} --run run --json train.json",
        "evaluate": "evaluate run --draws 2 --limit 8 --json -",
        "bracket": "evaluate run --bracket --limit 2 --numbers 1 2 --own 0 --json -",
        "pairs": "evaluate run --pairs pairs.jsonl --draws 2 --json -",
        "steps": "evaluate run --steps 2 4 --draws 2 --limit 8 --json -",
        "report": "report run",
    }


def test_no_command_has_a_number_per_character_or_word(lossy, monkeypatch, capsys):
    folder, said, data = lossy
    monkeypatch.chdir(folder)
    for name, command in commands(data).items():
        code = cli.main(shlex.split(command))
        out, err = capsys.readouterr()
        assert code == 0, (name, err)
        shown = out + err
        assert not (found := NUMBERS.search(shown)), (name, shown[max(found.start() - 99, 0) : found.end() + 99])
        assert said in " ".join(shown.split()) or name in ("plan", "report"), (name, shown)
    page = (folder / "run" / "report.html").read_text(encoding="utf-8")
    assert said in page
    files = [path for path in (folder / "run").rglob("*") if path.suffix in (".json", ".csv", ".html")]
    assert {"config.json", "metrics.csv", "report.html"} <= {path.name for path in files}
    for path in files:
        if path.name == "tokenizer.json":  # WordPiece's own
            continue
        text = re.sub(r"<(style|script|svg)\b.*?</\1>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert not (found := NUMBERS.search(text)), (path.name, text[max(found.start() - 99, 0) : found.end() + 99])


def test_a_claim_per_character_is_none_of_ours(lossy, monkeypatch, capsys):
    """The number that would be claimed: the nats a token over the characters of one."""
    folder, _, data = lossy
    monkeypatch.chdir(folder)
    if not (folder / "run").is_dir():
        cli.main(shlex.split(commands(data)["train"]))
    (folder / "claims").mkdir(exist_ok=True)
    claims = ["model,data,protocol,value,unit"]
    claims += [f"../run,,--draws 2 --limit 8,9.9,{unit}" for unit in ("bits/char", "bits/word", "nats/token")]
    (folder / "claims" / "claims.csv").write_text("\n".join(claims))
    cli.main(["evaluate", "--audit", "claims", "--json", "audit.json"])
    shown = capsys.readouterr().out
    assert shown.count("is not among ours") == 2
    verdicts = json.loads((folder / "audit.json").read_text())
    assert not re.search(r'"unit": "bits', json.dumps([row.get("ours") for row in verdicts["result"]["claims"]]))


def test_compare_is_per_token(lossy, monkeypatch):
    folder, said, _ = lossy
    monkeypatch.chdir(folder)
    source = zellige.Data("text", path="a.txt", tokenizer=str(folder / "tokenizer" / "tokenizer.json"))
    done = zellige.compare(
        ["mdlm", "ar"], run=folder / "compared", data=source, net=Net(layers=1, hidden=8, heads=2, length=8),
        train=Train(steps=2, batch=4, warmup=0, validate_rows=8, samples=0, device="cpu"), calls=(2,), samples=4, draws=2,
    )  # fmt: skip
    assert said in str(done)
    for name in ("compare.json", "compare.md"):
        text = (folder / "compared" / name).read_text()
        assert not NUMBERS.search(text), name
        assert said in text


def test_the_page_is_per_token(lossy, monkeypatch):
    """`play` bounds a text of the model per token."""
    client_of = pytest.importorskip("fastapi.testclient", reason="the extra `web` is missing").TestClient
    from zellige.plugins.web import play

    folder, _, data = lossy
    monkeypatch.chdir(folder)
    if not (folder / "run").is_dir():
        cli.main(shlex.split(commands(data)["train"]))
    with client_of(play.application({"run": zellige.load("run")}), base_url="http://127.0.0.1") as client:
        told = client.get("/api/models").json()
        assert not NUMBERS.search(json.dumps(told[0]["unit"]))
        assert told[0]["unit"] == "nats/token"
