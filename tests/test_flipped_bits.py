"""One flipped bit in any file of a model, an export, a run or the caches is refused by the file's name, or is without effect.

Without effect: the tensors, the config, the tokenizer, the result, the curve, the samples and the tokens that are read are equal
to those before; of an interrupted evaluation, what is read, the rest being made again.
"""

import random
from pathlib import Path

import pytest
import torch

import zellige
from zellige import Data, InputError, Net, Train, load
from zellige.data.prepare import prepare
from zellige.evaluation import workers
from zellige.evaluation.evaluate import evaluate_rows
from zellige.evaluation.result import Result
from zellige.models.checkpoint.layout import newest
from zellige.models.checkpoint.read import check_sums, load_tensors, read_config, read_metrics, read_state
from zellige.models.config import from_json
from zellige.plugins.report import sections

TEXT = "the quick brown fox jumps over the lazy dog and the cat sat on the mat "
NET = Net(layers=1, hidden=16, heads=2, length=16, condition=8)
SEED = 20261122


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two steps with its evaluation and half of another, its model saved and exported, and the cache."""
    place = tmp_path_factory.mktemp("flips")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("ZELLIGE_CACHE", str(place / "cache"))
        Path("notes.txt").write_text(TEXT * 100)
        train = Train(steps=2, batch=2, samples=2, sample_steps=2, validate_rows=4, tensorboard=False, log_every=1)
        data = Data("text", path="notes.txt", tokenizer="bpe:300")
        zellige.train("mdlm", data=data, net=NET, train=train, run="run")
        zellige.evaluate("run", limit=4).save("run/evaluate-text-test.json")
        model = load("run")
        model.save("model")
        model.export("exported", "mdlm")
        with pytest.raises(KeyboardInterrupt):
            evaluate_rows(model.method, prepare(data, 16).train, keep=Path("run"), progress=interrupt)
        yield place


def interrupt(done: int, total: int) -> None:
    if done >= 32:
        raise KeyboardInterrupt


def same(a, b) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def model(folder: Path):
    made = load(folder)
    return made.method.state_dict(), made.config, made.about, made.tokenizer.fingerprint, made.tokenizer.name


def checkpoint(folder: Path):
    """All that a run goes on from."""
    check_sums(folder)
    return *model(folder), load_tensors(folder / "training.safetensors"), read_state(folder)


def configuration(folder: Path):
    plain = read_config(folder)
    return from_json(plain), plain


def corpus(folder: Path):
    made = prepare(Data("text", path="notes.txt", tokenizer="bpe:300"), 16)
    rows = {name: [row["tokens"] for row in made.split(name)] for name in made.rows}
    return {name: torch.stack(tokens) for name, tokens in rows.items()}, made.tokenizer.fingerprint, made.about


def drawn(folder: Path):
    return sections.validation_samples(folder, None)


def readings(place: Path) -> list[tuple]:
    """(file, what reads it, of which folder), of every file that is read."""
    (half,) = (place / "run").glob(".evaluate-*.jsonl")
    done = lambda folder: workers.ResultCache(folder, half.name.split("-")[1]).results  # noqa: E731
    whole = done(place / "run")
    assert len(whole) == 2
    last, (tokens,) = newest(place / "run" / "checkpoints"), (place / "cache" / "tokens").iterdir()
    files = [(file, model, place / "model") for file in sorted((place / "model").iterdir())]
    files += [(file, checkpoint, last) for file in sorted(last.iterdir())]
    files += [(file, corpus, tokens) for file in sorted(tokens.iterdir())]
    files += [(file, model, place / "exported") for file in sorted((place / "exported").iterdir())]
    files += [(place / "run" / "config.json", configuration, place / "run")]
    files += [(place / "run" / "metrics.csv", read_metrics, place / "run")]
    files += [(file, drawn, place / "run") for file in (place / "run" / "samples").iterdir()]
    files += [(half, lambda folder: whole | done(folder), place / "run")]
    result = place / "run" / "evaluate-text-test.json"
    return [*files, (result, lambda _: Result.from_json(result), place / "run")]


def equal(a, b) -> bool:
    return all(same(x, y) for x, y in zip(a, b, strict=True)) if isinstance(a, tuple) else same(a, b)


@pytest.mark.parametrize("flips", [200, pytest.param(1000, marks=pytest.mark.long)])
def test_a_flipped_bit(flips, run, monkeypatch):
    monkeypatch.chdir(run)
    monkeypatch.setenv("ZELLIGE_CACHE", str(run / "cache"))
    draw, refused = random.Random(SEED), 0
    files = readings(run)
    before = {(read, folder): read(folder) for _, read, folder in files}
    assert {file.name for file, _, _ in files} >= {
        "model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "SHA256SUMS", "training.json",
        "training.safetensors", "evaluate-text-test.json", "tokens.bin", "meta.json",
        "metrics.csv", "step-000002.jsonl",
    }  # fmt: skip
    for number in range(flips):
        file, read, folder = files[number % len(files)]
        whole = file.read_bytes()
        at, bit = draw.randrange(len(whole)), draw.randrange(8)
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        message, after = "", None
        try:
            after = read(folder)
        except InputError as error:
            message = str(error)
        if message:
            assert file.name in message or file.parent.name in message, (file, at, bit, message)
        else:
            assert equal(after, before[read, folder]), (file, at, bit)
        refused += bool(message)
        file.write_bytes(whole)
    assert refused > flips / 3
