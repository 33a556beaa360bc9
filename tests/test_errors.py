"""Every row of errors.md: the message word for word, exit code 2, one line on stderr, nothing on stdout, no file touched."""

import json
import os
import pickle
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from zellige import cli, load
from zellige.base.errors import Diverged
from zellige.data.tokenizer import Integers

PAGE = Path(__file__).resolve().parent / "errors.md"
ROWS = re.findall(r"^\| `(zellige .+?)` \| (?:`` ?|`)(.+?)(?: ?``|`) \|$", PAGE.read_text(encoding="utf-8"), re.M)
TEXT = "the value of the object is returned by the function and it is the name of a class "


class Evil:
    def __reduce__(self):
        import posix

        return posix.system, ("touch was-run",)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folder that the page describes."""
    folder = tmp_path_factory.mktemp("errors")
    text = (TEXT * 2000)[:99_974] + "abcdefghijklmnopqrstuvwxyz"
    (folder / "notes.txt").write_text(text)
    (folder / "old.txt").write_bytes(text[:1204].encode() + b"\xe9" + text[1204:].encode())
    (folder / "empty.txt").write_text("")
    (folder / "genome.fa").write_text(">chr1\n" + "ACGTNACG\n" * 60)
    (folder / "protein.fa").write_text(">chr1\nACGT\nMKV\n")
    tables = {"mixed": "clear,0\ngrey,1\ngrey,2\nclear,1\n" * 10, "ragged": "clear,0\ngrey\n", "gaps": "clear,\n"}
    for name, rows in tables.items():
        (folder / f"{name}.csv").write_text(f"sky,wind\n{rows}")
    (folder / "code.yaml").write_text("method: own.py:Own\n")
    (folder / "deep.yaml").write_text("[" * 20_000)
    (folder / "rewards.py").write_text(
        "def letters(texts): return [len(t) for t in texts]\n"
        "def undefined(texts): return [float('nan') for t in texts]\n"
        "def single(texts): return [1.0]\n"
        "def words(texts): return ['a' for t in texts]\n"
        "def nothing(texts): return [-float('inf') for t in texts]\n"
        "def fails(texts): return 1 / 0\n"
    )
    (folder / "odd.yaml").write_text("train: {steps: 2}\nnet: {layer: 2}\n")
    (folder / "short.txt").write_text(text[:1800])
    (folder / "a.jsonl").write_text("".join(json.dumps({"id": i, "text": TEXT}) + "\n" for i in range(20)))
    pair = {"context": "the value of ", "continuation": "the object"}
    (folder / "pairs.jsonl").write_text(f"{json.dumps(pair)}\n" * 2)
    np.array([1, 2, 50257] * 3000, np.uint16).tofile(folder / "data.bin")
    (folder / "half.bin").write_bytes((folder / "data.bin").read_bytes()[:9000])
    index = struct.pack("<9sQBQQ", b"MMIDIDX", 1, 8, 1, 2) + struct.pack("<iqqq", 9000, 0, 0, 1)
    (folder / "half.idx").write_bytes(index)
    np.save(folder / "near.npy", np.eye(30))
    entries = np.arange(144).reshape(9, 4, 4)
    arrays = {"floats": entries / 2, "negative": entries - 1, "large": np.minimum(3 * entries, 300), "objects": [{}]}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", np.asarray(array), allow_pickle=True)
    chorale = [[60 + i % 7, 55, 52 + i % 3, 48] for i in range(64)]
    (folder / "chorales.json").write_text(json.dumps(dict.fromkeys(("train", "valid", "test"), [chorale] * 4)))
    (folder / "sets" / "lambada").mkdir(parents=True)
    (folder / "sets" / "lambada" / "lambada_test.jsonl").write_text(json.dumps({"text": "The End"}) + "\n")
    claims = {
        "colour": ",colour\na,1,x,red",
        "empty": "",
        "value": "\na,much,x",
        "model": "\n,1,x",
        "kind": ",kind\na,1,x,truth",
    }
    for name, rest in claims.items():
        (folder / "claims" / name).mkdir(parents=True)
        (folder / "claims" / name / "claims.csv").write_text(f"model,value,unit{rest}\n")
    (folder / "claims" / "unit").mkdir()
    (folder / "claims" / "unit" / "claims.csv").write_text("model,value\na,1\n")
    np.savetxt(
        folder / "matrix.csv",
        np.full((27, 27), 1 / 27) * np.where(np.arange(27) == 1, 1.1, 1.0)[:, None],
        delimiter=",",
    )
    (folder / "unanswered.jsonl").write_text('{"prompt": "a", "answer": "b"}\n{"prompt": "c"}\n')
    asked = {"asked": {"prompt": "a", "answer": "b"}, "long": {"prompt": "a", "answer": "b" * 40}}
    for name, pair in asked.items():
        (folder / f"{name}.jsonl").write_text(f"{json.dumps(pair)}\n" * 40)
    (folder / "last.ckpt").write_bytes(pickle.dumps(Evil()))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("ZELLIGE_CACHE", str(tmp_path_factory.mktemp("cache")))
        small = "--net.layers 2 --net.hidden 16 --net.heads 2 --net.length 32 --train.steps 2 --train.batch 2 --train.samples 0"
        on = f"--size small --data.name text --data.path notes.txt {small} --train.validate-rows 4 --quiet"
        for method in (
            "mdlm --run runs/a", "md4 --run timed", "d3pm --run discrete --diffusion-steps 256", "bd3lm --run blocks --block 8",
            "ar --run next",
        ):  # fmt: skip
            assert cli.main(shlex.split(f"train {method} {on}")) == 0
        images = on.replace("--data.name text --data.path notes.txt", "--data.name digits").replace(
            "--net.length 32", ""
        )
        assert cli.main(shlex.split(f"train csm --run scores {on}")) == 0
        assert cli.main(shlex.split(f"train mdlm --run images {images}")) == 0
        for other in ("sudoku --run grids", "jsb-chorales --data.path chorales.json --data.size 32 --run music"):
            assert cli.main(shlex.split(f"train mdlm {images.replace('digits', other)}")) == 0
        assert cli.main(shlex.split("evaluate --train-features seen --data.name digits --epochs 1 --quiet")) == 0
        assert cli.main(shlex.split("train classifier images --out judge --steps 1 --quiet")) == 0
        assert cli.main(shlex.split("train speculative runs/a --out drafts --steps 1 --batch 2 --quiet")) == 0
        few = "--by di4c --teacher-steps 2 --rounds 1 --steps 1 --batch 2 --quiet"
        assert cli.main(shlex.split(f"train distill runs/a --out several {few}")) == 0
    shutil.copytree(folder / "seen", folder / "unseen")
    (folder / "unseen" / "features.safetensors").write_bytes(b"0" * 100)
    best = (folder / "runs/a/checkpoints").resolve() / "step-000002"
    for name in ("cut", "keys", "new", "flipped", "nan", "tuned", "orphan"):
        shutil.copytree(best, folder / name)
    for name in ("keys", "new", "nan", "tuned", "orphan"):  # as if it had been written so
        (folder / name / "SHA256SUMS").unlink()
    for name, start in (("tuned", "timed"), ("orphan", "runs/gone")):
        entries = json.loads((folder / name / "config.json").read_text())
        adapter = {"rank": 2, "alpha": 4.0, "dropout": 0.0, "targets": ["qkv"], "length": 0, "base_sha256": "0" * 64}
        entries["train"]["start"] = start
        (folder / name / "config.json").write_text(json.dumps(entries | {"adapter": adapter}))
    data = bytearray((folder / "flipped" / "model.safetensors").read_bytes())
    data[-5] ^= 4
    (folder / "flipped" / "model.safetensors").write_bytes(data)
    tensors = load_file(folder / "nan" / "model.safetensors")
    tensors["network.embedding.weight"][0, :3] = torch.nan
    save_file(tensors, folder / "nan" / "model.safetensors")
    shutil.copytree(folder / "runs/a", folder / "edited")
    rows = folder / "edited" / "metrics.csv"
    rows.write_text(rows.read_text().replace("\n2,0,", "\n2,1,"))
    file = folder / "cut" / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    tensors = load_file(folder / "keys" / "model.safetensors")
    del tensors["network.blocks.0.qkv.weight"]
    save_file(tensors, folder / "keys" / "model.safetensors")
    _rewrite(folder / "new" / "model.safetensors", lambda header: header["__metadata__"].update(format="3"))
    theirs = load(best).export(folder / "theirs", "mdlm")
    for name in ("bare", "other", "words", "letters"):
        shutil.copytree(theirs, folder / name)
    letters = folder / "letters" / "tokenizer.json"
    letters.write_text(letters.read_text().replace("abc", "acb"))
    for name in ("bare", "other", "words"):  # as from somebody who gives no checksums
        (folder / name / "SHA256SUMS").unlink()
    (folder / "bare" / "config.json").unlink()
    tensors = load_file(theirs / "model.safetensors")
    del tensors["backbone.blocks.1.norm1.weight"]
    save_file(tensors | {"backbone.gate": torch.zeros(2)}, folder / "other" / "model.safetensors")
    Integers(50).save(folder / "words")
    torch.save({"state_dict": {}, "hyper_parameters": Evil()}, folder / "trained.ckpt")
    _encoders(folder)
    return folder


def _encoders(folder: Path) -> None:
    """BERT with its weights as a pickle, and with a tokenizer that has no mask."""
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    for name in ("pickled", "maskless"):
        (folder / name).mkdir()
        entries = (
            {"model_type": "bert", "max_position_embeddings": 32} | dict.fromkeys(sizes, 8) | {"num_attention_heads": 2}
        )
        (folder / name / "config.json").write_text(json.dumps(entries))
    (folder / "pickled" / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))
    save_file({"cls.predictions.bias": torch.zeros(8)}, folder / "maskless" / "model.safetensors")
    words = WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]")
    Tokenizer(words).save(str(folder / "maskless" / "tokenizer.json"))


def _rewrite(file: Path, change) -> None:
    """Change the header of a safetensors file."""
    raw = file.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + size :])


def tree(folder: Path) -> dict[str, tuple[int, ...]]:
    """What is in a folder, and what the system says of each file: who writes one changes its `st_ctime`, which nobody sets."""
    files = {}
    for place, _, names in os.walk(folder):
        files[place] = ()
        for name in names:
            at = os.lstat(path := os.path.join(place, name))
            files[path] = (at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns)
    return files


@pytest.fixture
def here(place, monkeypatch, tmp_path):
    monkeypatch.chdir(place)
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path))
    for extra in (
        "av",
        "datasets",
        "mido",
        "optuna",
        "transformers",
        "mauve",
        "torch_fidelity",
    ):  # as where they are not installed
        monkeypatch.setitem(sys.modules, extra, None)
    return place


def comparable(line: str) -> str:
    """How many bytes a file has depends on the libraries that wrote it."""
    return re.sub(r"\([\d,]+ of [\d,]+ bytes\)", "(some of its bytes)", line)


@pytest.mark.parametrize(("command", "message"), ROWS, ids=[c for c, _ in ROWS])
def test_the_page_tells_the_truth(command, message, here, capsys):
    before = tree(here)
    code = cli.main(shlex.split(command)[1:])
    out, err = capsys.readouterr()
    err = re.sub(r"^note: .*the model's defaults .*\n", "", err)  # a run on text has some
    err = re.sub(r"^sample \d+/\d+ steps left .*\n", "", err, flags=re.MULTILINE)  # where the machine is slow
    assert comparable(err) == comparable(f"error: {message}\n")
    assert code == 2
    assert out == ""
    assert tree(here) == before


def test_the_page_has_rows():
    assert len(ROWS) > 45


@pytest.mark.parametrize(("command", "message"), [ROWS[0], ROWS[1], ROWS[5]], ids=["command", "method", "option"])
def test_a_process_says_the_same(command, message, here):
    done = subprocess.run(
        [sys.executable, "-m", "zellige", *shlex.split(command)[1:]], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {message}\n")


def test_the_sentence_is_that_of_the_exception(here):
    import zellige

    with pytest.raises(zellige.InputError, match="unknown method 'mdml'; did you mean 'mdlm'"):
        zellige.train("mdml", run="runs/b")
    with pytest.raises(ValueError, match="the prompt has 43 tokens, the model takes 32"):
        zellige.sample("runs/a", prompt="the quick brown fox jumps over the lazy dog")


def test_a_loss_that_is_not_finite_is_said_in_lines(monkeypatch, capsys):
    """They were one line with `\\n` in it."""

    def diverge(*_):
        raise Diverged("loss is NaN at step 3\n  no checkpoint yet\n  again: `train.lr` 1e-4\a")

    monkeypatch.setattr("zellige.cli.dispatch", diverge)
    assert cli.main(["list", "data"]) == 1
    assert (
        capsys.readouterr().err == "error: loss is NaN at step 3\n  no checkpoint yet\n  again: `train.lr` 1e-4\\x07\n"
    )


def test_without_a_stdout_nothing_is_done(tmp_path):
    """Samples went nowhere, and the exit code was 0."""
    words = [sys.executable, "-m", "zellige", "list", "data"]
    closed = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *words], capture_output=True, text=True, check=False)
    assert (closed.returncode, closed.stderr) == (
        2, "error: stdout is closed, and the result would go nowhere; send it to a file, or to /dev/null\n",
    )  # fmt: skip
    reader, writer = os.pipe()
    os.close(reader)
    unread = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (unread.returncode, unread.stderr) == (141, "")


def test_a_signal_while_something_is_cleared_away_is_not_lost(monkeypatch, capsys):
    """Python prints what is raised in `__del__`, with its traceback, and goes on."""

    class Ends:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0)

    def work(*_):
        ends = Ends()
        del ends
        time.sleep(10)
        return 0

    monkeypatch.setattr("zellige.cli.dispatch", work)
    assert cli.main(["list", "data"]) == 143
    assert capsys.readouterr().err == "stopped\n"


def test_something_unforeseen_is_one_line_with_a_file(here, monkeypatch, capsys, tmp_path):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("zellige.sampling.samples.collect", lambda *_: 1 / 0)
    assert cli.main(["sample", "runs/a", "--no-defaults"]) == 1
    out, err = capsys.readouterr()
    found = re.fullmatch(r"error: ZeroDivisionError: division by zero \(traceback: (.+)\)\n", err)
    assert found
    assert out == ""
    assert "Traceback (most recent call last)" in Path(found[1]).read_text()


def test_a_pickle_is_not_run(here):
    cli.main(["sample", "last.ckpt"])
    assert not (here / "was-run").exists()
