"""Where there is no network: one line at once, whoever would have gone out; what lies on this machine is still found."""

import http.server
import json
import socket
import threading
import time

import pytest

import zellige
from zellige import cli
from zellige.base.errors import InputError
from zellige.data import Data, remote
from zellige.data.prepare import prepare
from zellige.data.tokenizer import Tokens

ASK = remote._ask
HUB = "the Hugging Face hub cannot be reached (Name or service not known)"


@pytest.fixture
def asked(monkeypatch):
    """The real question, on a machine that finds no host; a library that tries again has to wait, and must not."""
    names = []

    def unknown(host, *_, **__):
        names.append(host)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(remote, "_ask", ASK)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"waited {seconds} s to try again"))
    for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return names


def sentence(call, *arguments, **choices) -> str:
    with pytest.raises(InputError) as error:
        call(*arguments, **choices)
    return str(error.value)


def test_a_tokenizer(asked):
    said = sentence(prepare, Data(tokenizer="gpt3x"), 32)
    assert said == f"no tokenizer 'gpt3x' on this machine, and {HUB}; did you mean 'gpt2'?"
    said = sentence(prepare, Data(tokenizer="somebody/words"), 32)
    assert said == (
        f"no tokenizer 'somebody/words' on this machine, and {HUB}; use characters, bytes, bpe:4096, gpt2 or a tokenizer.json"
    )
    assert asked == ["huggingface.co"]  # once


def test_a_tokenizer_that_is_meant_as_a_path(tmp_path, asked):
    (tmp_path / "tokenizer.json").write_text("{}")
    wrong = str(tmp_path / "tokeniser.json")
    assert sentence(prepare, Data(tokenizer=wrong), 32) == f"no tokenizer at '{wrong}'; did you mean 'tokenizer.json'?"
    assert asked == []


def test_a_data_set_of_the_hub(asked):
    pytest.importorskip("datasets")
    for name, repository in (("wikitext2", "Salesforce/wikitext"), ("arxiv", "ccdv/arxiv-summarization")):
        said = sentence(prepare, Data(name, tokenizer="bytes"), 32)
        assert said == f"'{repository}' is not on this machine, and {HUB}; give local copies by `data.path`"
    assert sentence(prepare, Data("mnist", path="ylecun/mnist")).startswith("'ylecun/mnist' is not on this machine")
    assert asked == ["huggingface.co"]


def test_a_data_set_of_another_host(asked):
    said = sentence(prepare, Data("text8"), 32)
    assert said == (
        "cannot download 'http://mattmahoney.net/dc/text8.zip' (Name or service not known); give a local copy by `data.path`"
    )


def test_a_tokenizer_of_another_host(asked):
    """It is not the data that is missing."""
    said = sentence(prepare, Data("pydocs", tokenizer="gpt2"), 32)
    assert said.endswith("(Name or service not known); give a folder of encoder.json and vocab.bpe by `data.tokenizer`")


def test_a_model_and_a_judge(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = sentence(zellige.load, "somebody/model")
    assert said == f"no folder at 'somebody/model', and {HUB}; check the connection, or give a folder"
    pytest.importorskip("transformers")
    from zellige.plugins.evaluations.generate.judge import Judge

    assert sentence(Judge, "gpt2x").startswith("no judge 'gpt2x' on this machine, and none on the Hugging Face hub")


def test_a_suite_is_one_line(asked, tmp_path, capsys):
    pytest.importorskip("datasets")
    small = "--net.layers 1 --net.hidden 16 --net.heads 2 --net.length 32 --train.steps 1 --train.samples 0 --quiet"
    run = str(tmp_path / "run")
    assert cli.main(["train", "mdlm", "--train.device", "cpu", "--run", run, *small.split()]) == 0
    assert cli.main(["evaluate", run, "--suite", "zero-shot", "--quiet"]) == 2
    why = "none of the sets is on this machine or within reach (Name or service not known)"
    assert capsys.readouterr().err == f"error: {why}; give a folder of them by --data.path\n"


def test_what_has_been_fetched_before_is_there(asked, tmp_path, monkeypatch):
    """A tokenizer in the hub's cache serves without a network."""
    from huggingface_hub import constants
    from tokenizers import Tokenizer, models

    cache = tmp_path / "hub"
    folder = cache / "models--somebody--words" / "snapshots" / "0123"
    folder.mkdir(parents=True)
    (cache / "models--somebody--words" / "refs").mkdir()
    (cache / "models--somebody--words" / "refs" / "main").write_text("0123")
    words = {word: i for i, word in enumerate(["[UNK]", "the", "value"])}
    inner = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    inner.save(str(folder / "tokenizer.json"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    from zellige.data import tokenizer_by_name

    found = tokenizer_by_name.named_tokenizer("somebody/words", lambda *where: pytest.fail("fetched"))
    assert isinstance(found, Tokens)
    assert json.loads(found.inner.to_str())["model"]["vocab"] == words


def test_the_libraries_are_as_they_were_afterwards(asked):
    from huggingface_hub import constants

    assert not constants.HF_HUB_OFFLINE
    with remote.hub_silence() as silence:
        assert silence == "Name or service not known"
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE


def test_a_host_that_never_answers(monkeypatch):
    """Neither the look-up of a name nor a host that keeps silent is waited for; nor is it asked again at once."""
    asked, forever = [], threading.Event()

    def hang(address):
        asked.append(address)
        forever.wait()
        return ""

    monkeypatch.setattr(remote, "_ask", hang)
    monkeypatch.setattr(remote, "PATIENCE", 0.05)
    assert remote.silence("https://example.org/a") == "no answer within 0.05 s"
    assert remote.silence("https://example.org/b") == "no answer within 0.05 s"
    assert asked == ["https://example.org/a"]
    monkeypatch.setattr(remote, "PAUSE", 0.0)
    remote.silence("https://example.org/c")
    assert asked[1:] == ["https://example.org/c"]
    forever.set()


def test_any_answer_will_do(monkeypatch):
    """A refusal is an answer: what it means is for the library to say."""

    class Refuse(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_error(404)

        def log_message(self, *_):
            pass

    monkeypatch.setattr(remote, "_ask", ASK)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert remote.silence(f"http://127.0.0.1:{server.server_port}/x") == ""
        server.shutdown()
    assert remote.silence("file:///nowhere") == ""
