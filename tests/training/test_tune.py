"""Tuning: a run whose weights are those of another model and an adapter, which alone is trained, on the bound of the answers."""

import json
import math
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import zellige
from zellige import InputError, Net, Train, Tune
from zellige.core.batch import Batch
from zellige.data import chat
from zellige.data.tokenizer import Characters
from zellige.methods import METHODS, build
from zellige.models.adapter import inject, lora_config, peft_name
from zellige.models.checkpoint.layout import ADAPTER, CONFIG, TRAINING, newest
from zellige.models.config import Adapter, Config
from zellige.models.model import Model

peft = pytest.importorskip("peft", reason="peft is not installed")
QUICK = Train(
    steps=4, batch=4, lr=0.05, warmup=1, samples=0, validate_every=2, save_every=2, keep=9, validate_rows=4, device="cpu",
    weight_decay=0.0, ema=0.0, tensorboard=False,
)  # fmt: skip
PAIRS = [{"prompt": "abc "[: 2 + i % 3], "answer": "cab bac"[i % 4 :]} for i in range(40)]


def save_base(folder: Path, method: str = "mdlm", letters: str = "abc \n", length: int = 24, **choices) -> Path:
    """A saved model with random weights, none of them zero."""
    cls = METHODS[method]
    tokenizer, net = (
        Characters(letters),
        Net(layers=2, hidden=16, heads=2, length=length, conv=3),
    )
    torch.manual_seed(0)
    config = Config(method, cls.Config(**choices), net=net)
    model = build(cls, tokenizer.size, net, config.options, net.length)
    with torch.no_grad():
        for p in model.network.parameters():
            p.normal_(std=0.3)
    return Model(model, tokenizer, config).save(folder)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a base, prompts and answers, and a tuned run."""
    folder = tmp_path_factory.mktemp("tune")
    save_base(folder / "base")
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    tune(folder, folder / "run")
    return folder


def tune(place: Path, run: Path, base: str = "base", train: Train = QUICK, **how) -> zellige.Record:
    how = {"data": str(place / "pairs.jsonl"), "rank": 2, "dropout": 0.2} | how
    return Tune(folder=run, train=train, **how).run(None if base == "" else place / base)


def test_the_adapter_alone_is_trained_and_stored(place):
    base, tuned = zellige.load(place / "base"), zellige.load(place / "run")
    before, after = base.method.state_dict(), tuned.method.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert list(before) == list(after)
    assert changed == {f"network.blocks.{i}.{at}.weight" for i in (0, 1) for at in ("qkv", "out", "mlp.0", "mlp.2")}
    last = newest(place / "run" / "checkpoints")
    assert last is not None
    assert not list(last.glob("model.safetensors"))
    assert sum(t.numel() for t in load_file(last / ADAPTER).values()) == 2 * 2 * (4 * 16 + 2 * 16 + 2 * 5 * 16)
    assert tuned.config.adapter is None  # merged, and so saved as any other model
    again = zellige.load(tuned.save(place / "merged"))
    assert all(torch.equal(after[name], tensor) for name, tensor in again.method.state_dict().items())


def test_it_is_the_adapter_that_peft_reads(place):
    """Base and adapter, put together by peft's own functions, compute what the loaded model computes."""
    last, base = newest(place / "run" / "checkpoints"), zellige.load(place / "base")
    theirs = peft.PeftModel.from_pretrained(base.method.network, str(last)).eval()
    x = torch.randint(0, 6, (3, 24), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        want = theirs.base_model.model.head(theirs.base_model.model.features(x))
        got = zellige.load(place / "run").method.network(x)
        plain = zellige.load(place / "base").method.network(x)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    assert (got - plain).abs().max() > 0.1
    said = theirs.peft_config["default"]
    assert (said.base_model_name_or_path, said.r, said.lora_alpha) == (str(place / "base"), 2, 32.0)


def test_before_the_first_step_it_is_its_base(place):
    x = torch.randint(0, 5, (3, 24), generator=torch.Generator().manual_seed(0))
    bound = lambda: model.method.bound(Batch(x), torch.Generator().manual_seed(0))  # noqa: E731
    for dtype in (torch.float32, torch.bfloat16):
        model = zellige.load(place / "base")
        model.method.to(dtype)
        before = bound()
        inject(model.method, lora_config(Adapter(targets=("qkv", "mlp.0")), "base"))
        assert torch.equal(before, bound())
        assert {p.dtype for p in model.method.parameters() if p.requires_grad} == {torch.float32}


def test_a_resumed_run_is_the_unbroken_one_bit_for_bit(place, tmp_path):
    """Adapter, moments and numbers, with dropout and an average of the weights."""
    train = zellige.Train(**vars(QUICK) | {"ema": 0.9})
    tune(place, tmp_path / "whole", train=train)
    plain, averaged = (load_file(run / "checkpoints" / "step-000004" / name) for run, name in (
        (place / "run", ADAPTER), (tmp_path / "whole", TRAINING)))  # fmt: skip
    raw = {peft_name(name.removeprefix("weights.")): t for name, t in averaged.items() if name.startswith("weights.")}
    assert plain.keys() == raw.keys()
    assert all(torch.equal(t, raw[name]) for name, t in plain.items())  # the same seed gives the same run
    shutil.copytree(tmp_path / "whole", tmp_path / "broken", symlinks=True)
    shutil.rmtree(tmp_path / "broken" / "checkpoints" / "step-000004")
    run = Tune(folder=tmp_path / "broken", resume=True).run()
    ends = [tmp_path / name / "checkpoints" / "step-000004" for name in ("whole", "broken")]
    for name in (ADAPTER, TRAINING, "metrics.csv"):
        whole, broken = ((end / name).read_bytes() for end in ends)
        if name == "metrics.csv":  # without what depends on the clock
            whole, broken = (
                [row.split(b",")[0:1] + row.split(b",")[4:8] for row in text.splitlines()] for text in (whole, broken)
            )
        assert whole == broken, name
    assert run.steps == 4
    with pytest.raises(InputError, match="`resume` with `rank` 3, but the run has 2"):
        Tune(folder=tmp_path / "broken", resume=True, rank=3).run()


def test_prompts_are_given_and_answers_end_as_the_family_ends_them(place, tmp_path):
    """What counts is the answer and its end: repeated to the end of the row, of the block, or once."""
    rows = {}
    for method, choices in (("mdlm", {}), ("bd3lm", {"block": 4}), ("ar", {})):
        base = save_base(tmp_path / method, method, **choices)
        tuning = Tune(data=str(place / "pairs.jsonl"), folder=tmp_path / "x").session(base)
        train, text = tuning.read(tuning.config).train, tuning.base.tokenizer
        row = train[1]
        assert text.decode(row["tokens"][:3]) == PAIRS[1]["prompt"]
        assert len(row["tokens"]) == {"mdlm": 16, "bd3lm": 12, "ar": 16}[method]
        rows[method] = text.decode(row["tokens"][row["mask"]])
    assert rows == {"mdlm": "ab bac" + "\n" * 7, "bd3lm": "ab bac\n\n\n", "ar": "ab bac\n"}


def chats(place):
    """A list of conversations in a .json: of 30 one is too long, and one has no answer."""
    told = [
        [{"role": "user", "content": "ab"[: 1 + i % 2]}, {"role": "assistant", "content": "cab"[i % 3 :]}]
        for i in range(30)
    ]
    told[7] = [{"role": "user", "content": "a" * 30}, told[7][1]]
    told[9] = told[9][:1]
    (place / "chat.json").write_text(json.dumps([{"messages": messages} for messages in told]))
    return str(place / "chat.json")


def test_a_model_without_a_template_learns_conversations_by_the_plain_one(tmp_path):
    """A base that was trained here; what is too long or has no answer is left out, and counted; with `strict` it is an error."""
    base = save_base(tmp_path / "base", letters="System: User: Assistant:\nbc", length=48)
    tuning = Tune(data=chats(tmp_path), folder=tmp_path / "run", train=QUICK, rank=2, strict=False).session(base)
    corpus, text = tuning.read(tuning.config), tuning.base.tokenizer
    row = corpus.train[2]
    given = int((~row["mask"]).sum())
    assert text.decode(row["tokens"][:given]) == "User: a\nAssistant:"
    assert text.decode(row["tokens"][given:]) == " b\n" + "\n" * (len(row["tokens"]) - given - 3)
    assert corpus.notes == (chat.note(text),)
    assert {name: corpus.about["pairs"][name] for name in ("of", "long", "empty")} == {"of": 30, "long": 1, "empty": 1}
    run = tuning.run()
    assert run.steps == 4
    assert not (tmp_path / "strict").exists()
    with pytest.raises(InputError, match=r"^record 8 of '.*' has 52 tokens, a row 48; shorten it or take it out"):
        Tune(data=chats(tmp_path), folder=tmp_path / "strict", train=QUICK, strict=True).run(base)
    assert not (tmp_path / "strict").exists()
    assert zellige.load(run.model.export(tmp_path / "out")).config.method == "mdlm"  # of no layout: Zellige's own


def test_records_without_answers_are_running_text_or_refused(place, tmp_path):
    """Texts are learnt whole; records of other fields are neither, unless a field is named."""
    rows = json.dumps({"title": "ab", "body": "cab bac"}) + "\n"
    text = json.dumps([{"text": "cab bac", "n": 1}] * 30)
    for name, content, field, given in (
        ("text.json", text, None, ""),
        ("named.jsonl", rows * 30, "body", ""),
        ("pairs.csv", "prompt,answer\n" + "ab,c\n" * 30, None, "field"),
    ):
        (tmp_path / name).write_text(content)
        asked = Tune(data=zellige.Data("text", path=str(tmp_path / name), field=field), folder=tmp_path / "x")
        assert asked.session(place / "base").config.data.given == given
    (tmp_path / "other.jsonl").write_text(rows * 30)
    with pytest.raises(InputError, match=r"'.*other.jsonl' holds records of title, body; give text; prompt and answer"):
        Tune(data=str(tmp_path / "other.jsonl"), folder=tmp_path / "x").run(place / "base")


def test_dropout_acts_on_what_an_adapter_reads(place, tmp_path):
    """In training alone, with the probability that is asked for; the run differs from one without."""
    base = zellige.load(place / "base")
    inject(base.method, lora_config(Adapter(targets=("qkv",), dropout=0.3), "base"))
    drops = [layer for layer in base.method.modules() if isinstance(layer, torch.nn.Dropout) and layer.p == 0.3]
    assert len(drops) == 2
    torch.manual_seed(0)
    x = drops[0].train()(torch.ones(10_000))
    assert abs(float((x == 0).float().mean()) - 0.3) < 0.03  # 6.5 standard deviations
    tune(place, tmp_path / "plain", dropout=0.0)
    runs = [load_file(run / "checkpoints" / "step-000004" / ADAPTER) for run in (place / "run", tmp_path / "plain")]
    assert any(not torch.equal(runs[0][name], runs[1][name]) for name in runs[0])


def test_a_run_goes_on_from_its_own_base_alone(place, tmp_path):
    """Not from one of the same sizes, and not where its base has other weights since."""
    shutil.copytree(place / "run", tmp_path / "run", symlinks=True)
    other = zellige.load(place / "base")
    with torch.no_grad():
        next(other.method.parameters()).add_(1e-3)
    other.save(tmp_path / "other")
    train = {"train.steps": 6}
    with pytest.raises(
        InputError, match=r"'.*run' is tuned from other weights than those in '.*other'; give its own base"
    ):
        Tune(folder=tmp_path / "run", resume=True, settings=train).run(tmp_path / "other")
    same = shutil.copytree(place / "base", tmp_path / "elsewhere")
    assert Tune(folder=tmp_path / "run", resume=True, settings=train).run(same).steps == 6


def test_the_loss_is_that_of_the_answers(place, tmp_path, monkeypatch):
    """What a step minimises is the method's loss of rows whose prompts are given; `zellige verify` compares its expectation with
    -log p(answer | prompt) (exact/identities/given.py)."""
    cls, seen = METHODS["mdlm"], []
    loss = cls.loss

    def spied(self, batch, generator=None):
        value = loss(self, batch, generator)
        seen.append((batch, value.detach()))
        return value

    monkeypatch.setattr(cls, "loss", spied)
    run = tune(place, tmp_path / "one", train=zellige.Train(**vars(QUICK) | {"steps": 1, "log_every": 1}), dropout=0.0)
    ((batch, value),) = seen
    texts = [
        [run.model.tokenizer.decode(part) for part in (row[~at], row[at])]
        for row, at in zip(batch.tokens, batch.counted)
    ]
    pairs = [[pair["prompt"], (pair["answer"] + "\n" * 16)[: 16 - len(pair["prompt"])]] for pair in PAIRS]
    assert len(texts) == 4
    assert all(text in pairs for text in texts)
    row = dict(zip(*((tmp_path / "one" / "metrics.csv").read_text().splitlines()[i].split(",") for i in (0, 1))))
    nats = float(value.sum() / batch.counted.sum())
    assert float(row["loss"]) == pytest.approx(nats / math.log(2) if row["unit"] == "bits/char" else nats, rel=1e-5)


def test_a_missing_extra_is_one_line(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(InputError, match=r"^tune needs 'peft'; pip install 'zellige\[tune\]'$"):
        Tune(data="pairs.jsonl").run(place / "base")
    with pytest.raises(InputError, match=r"^a tuned model needs 'peft'"):
        zellige.load(place / "run")


def test_what_is_wrong_with_a_base_is_said(place, tmp_path):
    run = shutil.copytree(place / "run", tmp_path / "run", symlinks=True)
    last = newest(run / "checkpoints")
    save_base(tmp_path / "other")
    entries = json.loads((last / CONFIG).read_text())
    model = zellige.load(tmp_path / "other")
    with torch.no_grad():
        next(model.method.parameters()).add_(1)
    model.save(tmp_path / "other")
    with pytest.raises(InputError, match=r"is tuned from other weights than those in '.*other'"):
        zellige.load(run, base=tmp_path / "other")
    assert zellige.load(run, base=tmp_path / "other", checksums=False)
    entries["train"]["start"] = str(tmp_path / "gone")
    (last / "SHA256SUMS").unlink()
    (last / CONFIG).write_text(json.dumps(entries))
    with pytest.raises(
        InputError, match=r"is tuned from '.*gone', and no run or model at .*; or say where it is with `base`"
    ):
        zellige.load(run)
    assert zellige.load(run, base=place / "base")
    (last / ADAPTER).write_bytes((last / ADAPTER).read_bytes()[:-8])
    with pytest.raises(InputError, match="is truncated"):
        zellige.load(run, base=place / "base")
    with pytest.raises(InputError, match="is no tuned model and has no `base`"):
        zellige.load(place / "base", base=place / "base")
