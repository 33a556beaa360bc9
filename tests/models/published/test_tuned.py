"""Models in published layouts, tuned: imported, tuned, judged, sampled and written back, as transformers' classes read them."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import zellige
from zellige import Train, Tune, cli

from . import encoders, large
from .test_large import theirs as llama_of
from .test_qwen import MASK, block_causal, folder_of

pytest.importorskip("peft", reason="peft is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
QUICK = Train(
    steps=2, batch=4, lr=0.02, warmup=0, samples=0, validate_rows=2, device="cpu", ema=0.0, weight_decay=0.0, tensorboard=False
)  # fmt: skip
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def with_template(folder, template: str = TEMPLATE):
    """Give the tokenizer in a folder a chat template, as it is published."""
    path = folder / "tokenizer_config.json"
    entries = json.loads(path.read_text()) if path.is_file() else {}
    tokens = {"eos_token": "<|endoftext|>", "bos_token": {"content": "<|im_start|>", "special": True}}
    path.write_text(json.dumps(entries | tokens | {"chat_template": template}))


def base_of(system: str, folder):
    """A folder with random weights in the layout of a system."""
    folder.mkdir()
    if system == "sdar":
        more = {"architectures": ["SDARForCausalLM"], "model_type": "sdar", "block_size": 4, "mask_token_id": MASK}
        folder_of(folder, "Qwen3", more, "sdar")
    elif system == "qwen3":
        folder_of(folder, "Qwen3")
    elif system == "llada":
        mask = large.tokenizer(folder, system)
        config = large.config(system, mask)
        (folder / "config.json").write_text(json.dumps(config))
        save_file(large.weights(system, config), folder / "model.safetensors")
    else:
        encoders.tokenizer(folder)
        config = encoders.config(system)
        (folder / "config.json").write_text(json.dumps(config))
        save_file(encoders.weights(system, config), folder / "model.safetensors")
    return folder


def logits_of_theirs(system: str, folder, x: torch.Tensor) -> torch.Tensor:
    """Logits (B, L, K) by transformers' class, of a folder in the layout."""
    tensors, config = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    if system == "llada":
        seen = torch.ones(len(x), 1, x.shape[1], x.shape[1], dtype=torch.bool)
        return llama_of(system, config, tensors)(input_ids=x, attention_mask=seen).logits
    if system == "bert":
        return transformers.BertForMaskedLM.from_pretrained(folder).eval()(input_ids=x).logits
    (folder / "config.json").write_text(
        json.dumps(config | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]})
    )
    model = transformers.Qwen3ForCausalLM.from_pretrained(folder).eval()
    seen = block_causal(x.shape[1], 4 if system == "sdar" else 1)
    return model(input_ids=x, attention_mask=seen.expand(len(x), -1, -1, -1)).logits


def pairs_file(folder, messages: bool):
    lines = []
    for i in range(40):
        prompt, answer = "the cat saw"[: 5 + i % 4], ("it", "a dog", "a")[i % 3]
        chat = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
        lines.append({"messages": chat} if messages else {"prompt": prompt, "answer": answer})
    path = folder / "chat.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    "system", ["sdar", *(pytest.param(name, marks=pytest.mark.long) for name in ("qwen3", "llada", "bert"))]
)
def test_there_and_back(system, tmp_path, monkeypatch, capsys):
    """Import, tune, evaluate, sample and export; what is exported has the logits of base and adapter, and of transformers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    folder, chat = base_of(system, tmp_path / "base"), system in ("sdar", "qwen3")
    if chat:
        with_template(folder)
    assert cli.main(["import", "base", "--out", "mine", "--quiet"]) == 0
    base = zellige.load("mine")
    data = pairs_file(tmp_path, chat)
    tuning = Tune(data=str(data), train=QUICK, folder="run", rank=2).session("mine")
    run = tuning.run()
    assert run.config.train.start == str(tmp_path / "mine")  # from any folder
    inside = run.model.method.network  # merged
    beside = tuning.base.method.network.eval()  # still with the adapter beside its matrices
    x = torch.randint(5, 40, (2, 12), generator=torch.Generator().manual_seed(0))
    assert cli.main(["evaluate", "run", "--quiet", "--draws", "2"]) == 0
    assert cli.main(["sample", "run", "--count", "1", "--steps", "4", "--length", "8", "--quiet"]) == 0
    assert cli.main(["export", "run", "--out", "out", "--quiet"]) == 0
    capsys.readouterr()
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == json.loads(
        (folder / "config.json").read_text()
    )
    with torch.no_grad():
        got = inside.head(inside.features(x))
        torch.testing.assert_close(got, beside.head(beside.features(x)), atol=1e-5, rtol=1e-5)
        back = zellige.load("out").method.network
        assert torch.equal(back.head(back.features(x)), got)
        want = logits_of_theirs(system, tmp_path / "out", x)[..., : got.shape[-1]]
        torch.testing.assert_close(got[..., : want.shape[-1]], want, atol=2e-5, rtol=1e-5)
        plain = base.method.network
        assert (plain.head(plain.features(x)) - got).abs().max() > 1e-3


def test_messages_go_through_the_template_as_in_transformers(tmp_path):
    """Prompt and answer are what `apply_chat_template` gives, with a beginning and an end of their own; the template outlives
    saving."""
    folder = base_of("sdar", tmp_path / "base")
    with_template(folder)
    model = zellige.load(folder)
    tokenizer = zellige.load(model.save(tmp_path / "saved")).tokenizer
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "saved")
    data = pairs_file(tmp_path, True)
    tuning = Tune(data=str(data), folder=tmp_path / "run").session(tmp_path / "saved")
    rows = tuning.read(tuning.config).train
    for i in (0, 5):
        row, chat = rows[i], json.loads(data.read_text().splitlines()[i])["messages"]
        prompt = theirs.apply_chat_template(chat[:1], add_generation_prompt=True, tokenize=True)["input_ids"]
        whole = theirs.apply_chat_template(chat, tokenize=True)["input_ids"]
        end = tokenizer.separator
        assert row["tokens"].tolist()[: len(whole) + 1] == [*whole, end]
        assert set(row["tokens"].tolist()[len(whole) :]) == {end}
        assert int((~row["mask"][: len(whole)]).sum()) == len(prompt)
