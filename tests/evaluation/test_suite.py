"""Suites and protocols: rows are cut as each paper's code cuts them; the table is the same whoever makes it."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import zellige
from zellige import Net, cli
from zellige.data import Local
from zellige.data.detokenize import DETOKENIZERS
from zellige.data.losses import Losses
from zellige.data.tokenizer import Bytes, Characters
from zellige.evaluation.result import Result
from zellige.methods import build
from zellige.models.config import Config
from zellige.models.model import Model
from zellige.plugins.evaluations.suite import sets
from zellige.plugins.evaluations.suite.protocol import CODE, PROTOCOLS
from zellige.plugins.evaluations.suite.request import EvaluateSuite
from zellige.plugins.evaluations.suite.suite import SUITES, SuiteRow

# ------------------------------------------------------------------------------------------------------- the detokenizers


@pytest.mark.parametrize(
    ("name", "spaced", "running"),
    [
        ("wikitext2", " = Robert Boulter = \n", " = Robert Boulter =\n"),
        ("wikitext2", " He 's an actor , born in 1 @,@ 970 . Then ... \n", " He's an actor, born in 1,970. Then ...\n"),
        ("wikitext2", ' A 3 @.@ 5 @-@ inch ( 89 mm ) " gun " ; it fired .', ' A 3.5-inch (89 mm) "gun"; it fired .'),
        ("wikitext2", "the players ' hall : N of [ 5 ]", "the players' hall: 1 of [5]"),
        ("wikitext2", " = = Career = = \n", " == Career ==\n"),
        ("ptb", "it was n't the firm 's $ N N loss", "it wasn't the firm's $1 1 loss"),
        ("ptb", "the owners ' <unk> a\\/b", "the owners' ? a/b"),
        ("lm1b", 'He said : " no " ( again ) , did n \'t he ?', 'He said: "no" (again), did n\'t he?'),
        ("lm1b", "It cost $ 5 . See http : / / a / b !", "It cost $5. See http://a/b!"),
        ("lambada", " “Yes,” he said\n", '\n"Yes," he said'),
        ("arxiv", "we show @xmath0 , that ( in [ 1 ] ) it holds .", "we show @xmath0, that (in [1]) it holds."),
    ],
)
def test_detokenizers(name, spaced, running):
    assert DETOKENIZERS[name](spaced) == running


def test_what_is_not_spaced_is_left_alone():
    plain = 'A sentence, with "quotes" (and more); he\'s 3.5-inch.'
    for name in ("wikitext2", "ptb", "lm1b", "arxiv"):
        assert DETOKENIZERS[name](plain) == plain


# ---------------------------------------------------------------------------------------------------------------- rows


class Words(Bytes):
    """Bytes, of which 0 ends a text and 1 begins one."""

    raw = False
    separator = 0

    def __init__(self):
        self.separator, self.inner = 0, self

    def token_to_id(self, word):
        return 1 if word == "[CLS]" else None

    def encode_pieces(self, pieces, of="the corpus"):
        return [np.frombuffer(piece.encode(), np.uint8) for piece in pieces]


def rows_of(protocol, documents, length=6):
    p = PROTOCOLS[protocol]
    return sets.cut_rows(documents, Words(), length, pack=p.pack, eos=p.eos, begin=p.begin, end=p.end, name="it")


def shown(row):
    return "".join({0: "$", 1: "^"}.get(t, chr(t)) for t in row["tokens"].tolist())


@pytest.mark.parametrize(
    ("protocol", "rows"),
    [
        ("zellige", ["abc$de", "$fghij", "k$$lmn"]),  # one stream, an end after each document, the tail left out
        ("sedd", ["abc$de", "$fghij", "k$$lmn"]),
        ("mdlm", ["^abc$$", "^de$f$", "^ghij$", "^k$$l$", "^mno$$"]),  # BOS, length - 2 of the stream, EOS
        ("bd3lm", ["^abcd$", "^efgh$", "^ijkl$"]),  # nothing between the documents
    ],
)
def test_rows_are_cut_as_the_paper_does(protocol, rows):
    found = rows_of(protocol, ["abc", "de", "fghijk", "", "lmno"])
    assert [shown(row) for row in found] == rows
    masks = [row.get("mask") for row in found]
    if protocol == "bd3lm":  # its first token is neither noised nor counted
        assert all(mask.tolist() == [False] + [True] * 5 for mask in masks)
        assert found.tokens_total == 15
    else:
        assert masks == [None] * len(rows)


def test_one_document_a_row():
    p = replace(PROTOCOLS["mdlm"], pack="document")
    found = sets.cut_rows(["abc", "defghijk"], Words(), 6, pack=p.pack, eos=p.eos, begin=p.begin, end=False, name="it")
    assert [shown(row)[: int(row["mask"].sum())] for row in found] == ["^abc$", "^defgh"]
    assert [row["mask"].sum() for row in found] == [5, 6]


def test_lines_and_running_text(tmp_path):
    text = " \n = A = \n \n First line . \n Second \x85 \u2028line . \n \n"  # only \n ends one
    (tmp_path / "WikiText-2").mkdir()
    (tmp_path / "WikiText-2" / "wiki.test.tokens").write_text(text)
    path = sets.folder_of(str(tmp_path), "wikitext2")
    lines = sets.read_texts("wikitext2", "test", detokenize=True, lines=True, path=path).documents
    assert lines == [
        "",
        " = A =\n",
        "",
        " First line.\n",
        " Second \x85 \u2028line.\n",
        "",
    ]  # the blank ones are documents too
    one = sets.read_texts("wikitext2", "test", detokenize=True, lines=False, path=path)
    assert one.documents == ["\n = A =\n\n First line.\n Second \x85 \u2028line.\n\n"]
    assert "note" not in one.about
    (tmp_path / "WikiText-2" / "wiki.test.tokens").write_text(text.replace("First", "<unk>"))
    assert "raw form" in sets.read_texts("wikitext2", "test", detokenize=False, lines=True, path=path).about["note"]
    with pytest.raises(zellige.InputError, match=r"has no validation split, only test"):
        sets.read_texts("wikitext2", "validation", detokenize=True, lines=True, path=path)


def test_a_protocol_says_all_of_itself():
    for name, p in PROTOCOLS.items():
        said = json.loads(json.dumps(p.to_dict()))
        assert said["name"] == name == p.name
        choices = {f.name for f in dataclasses.fields(p)} - {"name", "about", "sources"}
        assert set(said["choices"]) == choices
        assert all(len(c["means"]) > 10 and c["from"] for c in said["choices"].values())
    assert PROTOCOLS["mdlm"].to_dict()["choices"]["t_min"]["from"].startswith(CODE)
    assert PROTOCOLS["zellige"].to_dict()["choices"]["t_min"]["from"] == "our choice"


# ------------------------------------------------------------------------------------------------------------ the table


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    net = Net(layers=1, hidden=32, heads=2, length=64)
    method = build(zellige.METHODS["mdlm"], 256, net)
    with torch.no_grad():
        for p in method.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return Model(method, Bytes(), Config("mdlm", zellige.METHODS["mdlm"].Config(), net=net), {"step": 7})


@pytest.fixture(scope="module")
def data(shared):
    return str(shared / "data")


def test_a_set_says_what_the_tokenizer_loses_of_it():
    """Beside what was cut of it; a set without a loss has no such note."""
    lossy, lossless = ({"protocol": losses.protocol} for losses in (Losses(("case",), 0.031), Losses()))
    about = {"cut": 3, "left_out": 17}
    rows = [SuiteRow("ptb", Result(1.5, 1.4, 1.6, "nats/token", about=about, **of)) for of in (lossy, lossless)]
    cut = "3 texts are cut to a row, 17 tokens left out"
    assert [row.note for row in rows] == [f"{cut}, of a tokenizer that drops case; 3.1% unknown", cut]


def test_the_same_table_across_batch_size_and_processes(model, data):
    """WikiText-2, LAMBADA and AG News from local files; the others are named with a reason."""
    one = EvaluateSuite(data=Local(data), limit=24, seed=3).run(model)
    two = EvaluateSuite(data=Local(data), limit=24, seed=3, batch=7, processes=2).run(model)
    assert [row.name for row in one.rows] == [*SUITES["zero-shot"]]
    got = {row.name: row.result for row in one.rows if row.result is not None}
    assert set(got) == {"wikitext2", "lambada", "ag_news"}
    for row in two.rows:
        if row.result is None:
            assert row.reason.startswith(f"no folder '{row.name}' in ")
            continue
        a, b = got[row.name], row.result
        assert abs(a.value - b.value) < 1e-5
        assert a.draws_half == pytest.approx(b.draws_half, abs=1e-5)  # inf, where draws are too few for an interval
        assert a.draws_low < a.value < a.draws_high
        assert a.per_sequence is not None
        assert a.per_sequence.value > a.perplexity
    assert (
        EvaluateSuite(data=Local(data), limit=24, seed=4, only=["lambada"]).run(model).rows[0].result.value
        != got["lambada"].value
    )  # type: ignore[union-attr]
    plain = json.loads(zellige.show.record.dumps(one.to_dict()))  # pyright: ignore
    row = plain["result"]["sets"][1]
    assert row["set"] == "wikitext2"
    assert row["protocol"]["protocol"]["choices"]["detokenize"]["value"] is True
    assert {"value", "perplexity", "over_draws", "draws"} <= set(row["result"])


def test_each_protocol_changes_what_is_judged(model, data):
    found = {
        name: EvaluateSuite(protocol=name, data=Local(data), limit=8, only=["wikitext2"]).run(model).rows[0].result
        for name in PROTOCOLS
    }
    kinds = {name: r.kind for name, r in found.items() if r is not None}
    assert kinds == {"zellige": "bound", "mdlm": "estimate", "sedd": "estimate", "bd3lm": "estimate"}
    assert len({r.value for r in found.values() if r is not None}) == 4
    assert {n: r.units for n, r in found.items() if r} == {"zellige": 512, "mdlm": 512, "sedd": 512, "bd3lm": 8 * 63}


def test_a_shorter_context_and_a_wrong_vocabulary(model, data):
    short = replace(PROTOCOLS["zellige"], length=16)
    assert EvaluateSuite(protocol=short, data=Local(data), limit=8, only=["lambada"]).run(model).about["length"] == 16
    long = replace(short, length=128)
    with pytest.raises(zellige.InputError, match=r"rows have 128 tokens, the model takes 64"):
        EvaluateSuite(protocol=long, data=Local(data), only=["lambada"]).run(model)
    small = Model(model.method, Characters("ab \n"), model.config)
    with pytest.raises(zellige.InputError, match=r"'I' in lambada is not in the vocabulary"):
        EvaluateSuite(data=Local(data), only=["lambada"], protocol=replace(short, detokenize=False)).run(small)


def test_the_command(model, data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model.save(tmp_path / "m")
    command = f"evaluate m --suite zero-shot --protocol bd3lm --data.path {data} --limit 16 --json r.json --quiet"
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    assert cli.main(command.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "zero-shot, protocol bd3lm: mdlm, 0.03M parameters, step 7 (EMA)"
    assert lines[4].split() == ["set", "tokens", "(95%)", "corpus", "per", "sequence", "their", "±"]
    assert [line.split()[0] for line in lines[5:8]] == ["wikitext2", "lambada", "ag_news"]
    assert lines[5].split()[2] == "≈"
    assert any(line == f"  ptb: no folder 'ptb' in '{data}'" for line in lines)
    assert all(len(line) <= 80 for line in lines if "tokenised form" not in line and "no folder" not in line)
    plain = json.loads(Path("r.json").read_text())
    assert plain["protocol"]["choices"]["eos"]["value"] is False
    assert list((tmp_path / "cache" / "evaluations").glob(".*")) == []  # nothing is left behind
    assert (
        cli.main(f"evaluate m --steps 4,64 continuous --data.name lambada --data.path {data}/lambada --limit 8".split())
        == 0
    )
    out = capsys.readouterr().out.splitlines()
    assert out[4].split()[:3] == ["steps", "bits/char", "(95%)"]
    assert [line.split()[0] for line in out[5:8]] == ["4", "64", "continuous"]


def test_a_model_with_classes_is_told_none_and_that_is_written(model, data, tmp_path, monkeypatch, capsys):
    net = replace(model.config.net, classes=2)
    method = build(zellige.METHODS["mdlm"], 256, net)
    Model(method, model.tokenizer, replace(model.config, net=net), {"step": 7}).save(tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    command = f"evaluate m --suite zero-shot --data.path {data} --only lambada --limit 4 --json r.json --quiet"
    assert cli.main(command.split()) == 0
    assert "without the class" in " ".join(capsys.readouterr().out.split())
    written = json.loads(Path("r.json").read_text())
    (one,) = written["result"]["sets"]
    assert written["protocol"]["class"] == one["protocol"]["class"] == "without the class"
    assert len(one["result"]["about"]["tokens_sha256"]) == len(written["result"]["about"]["weights_sha256"]) == 64


@pytest.mark.long
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_table_goes_on_to_the_same_bits(model, data, tmp_path, stop):
    """The command is stopped in the middle, by Ctrl-C or by the machine, and called again."""
    model.save(tmp_path / "m")
    environment = os.environ | {"ZELLIGE_CACHE": str(tmp_path / "cache")}
    command = [
        sys.executable,
        "-m",
        "zellige",
        "evaluate",
        str(tmp_path / "m"),
        "--suite",
        "zero-shot",
        "--data.path",
        data,
    ]
    command += ["--only", "wikitext2", "--draws", "16", "--limit", "1500", "--json", "-", "--quiet"]

    def start():
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whoever runs the tests may ignore it
        )  # fmt: skip

    whole = start().communicate()[0]
    half, folder = start(), tmp_path / "cache" / "evaluations"
    while not any(file.stat().st_size > 20_000 for file in folder.glob(".*")):
        time.sleep(0.05)
        assert half.poll() is None
    half.send_signal(stop)
    half.communicate()
    assert half.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[stop]
    again = start().communicate()[0]
    value = lambda text: json.loads(text)["result"]["sets"][0]["result"]  # noqa: E731
    assert value(again) == value(whole)
    assert list(folder.glob(".*")) == []
