"""GPT-2 folders: as `ar` they compute what transformers' own class computes, and they begin masked and block models."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import zellige
from zellige import cli
from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.nn.int8 import Int8Linear

from . import large

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
SIZES = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 48, "vocab_size": 293, "n_inner": 40,
         "layer_norm_epsilon": 0.03}  # fmt: skip
END, MASK = 290, 293  # <|endoftext|>, and the token more


def folder_of(path: Path, **more) -> torch.nn.Module:
    """A folder as transformers writes it, with random weights, none of them zero or one; its model."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(**SIZES | {"bos_token_id": END, "eos_token_id": END + 1} | more)
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * (0.3 if p.ndim == 1 else 0.2) + ("ln_" in name and "weight" in name))
    model.save_pretrained(path)
    large.tokenizer(path, "qwen")
    return model


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """The folder, transformers' model, and ours."""
    folder = tmp_path_factory.mktemp("gpt2") / "model"
    theirs = folder_of(folder)
    return folder, theirs, zellige.load(folder)


@torch.no_grad()
def logits_of(model, x: torch.Tensor, block: int) -> torch.Tensor:
    """transformers' logits under a mask of blocks; 0: every position sees every other."""
    order = torch.arange(x.shape[1]) // (block or x.shape[1])
    seen = torch.where(order[None] <= order[:, None], 0.0, -torch.inf)[None, None].expand(len(x), -1, -1, -1)
    for layer in model.transformer.h:
        layer.attn.is_causal = False
    try:
        return model(input_ids=x, attention_mask=seen).logits
    finally:
        for layer in model.transformer.h:
            layer.attn.is_causal = True


def tokens(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(256, (rows, length), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_int8_takes_a_quarter_of_the_matrices_and_counts_the_same_parameters(gpt2):
    """All of them; the head's rows are the table's, which count once."""
    folder, _, model = gpt2
    small = zellige.load(folder, precision="int8").method
    rounded = {name.split(".")[-1] for name, part in small.network.named_modules() if isinstance(part, Int8Linear)}
    assert rounded == {"qkv", "out", "up", "down", "head"}
    assert small.parameter_count == model.method.parameter_count
    x = tokens(2, 20)
    torch.testing.assert_close(small.network(x), model.method.network(x), atol=0.3, rtol=0.05)


@torch.no_grad()
def test_bfloat16_rounds_the_matrices_and_leaves_the_table(gpt2):
    """The head reads the table, which keeps its precision, so its inputs take that."""
    folder, _, model = gpt2
    method, x = zellige.load(folder, precision="bfloat16").method, tokens(2, 20)
    assert {p.dtype for p in (method.network.layers[0].up.weight, method.network.head.weight)} == {
        torch.bfloat16,
        torch.float32,
    }
    h = [each.advance(None, x)[0] for each in (method, model.method)]
    torch.testing.assert_close(method.logits(h[0]), model.method.logits(h[1]), atol=0.3, rtol=0.05)


@torch.no_grad()
def test_the_logits_are_those_of_transformers(gpt2):
    """At once, and behind a cache; the likelihood is exact, that of each token after <|endoftext|>."""
    _, theirs, model = gpt2
    x = tokens(2, 20)
    begun = torch.cat((torch.full((2, 1), END), x), 1)[:, :-1]
    want = theirs(input_ids=begun).logits
    network = model.method.network
    torch.testing.assert_close(network(begun)[..., :293], want, atol=1e-5, rtol=1e-5)
    h, cache = network.advance(None, begun[:, :9])
    parts = torch.cat((h, network.advance(cache, begun[:, 9:])[0]), 1)
    torch.testing.assert_close(network.head(parts)[..., :293], want, atol=1e-5, rtol=1e-5)
    nats = -want.double().log_softmax(-1).gather(-1, x[..., None])[..., 0].sum(-1)
    assert (model.config.method, model.method.config.begin, model.method.shape) == ("ar", END, (48,))
    torch.testing.assert_close(model.method.bound(Batch(x)), nats, atol=2e-5, rtol=1e-5)
    texts = zellige.sample(model, count=2, length=6, seed=3)
    assert texts == zellige.sample(model, count=2, length=6, seed=3)


def test_out_again_as_it_came(gpt2, tmp_path, capsys):
    folder, _, model = gpt2
    model.save(tmp_path / "saved")
    assert cli.main(["export", str(tmp_path / "saved"), "--out", str(tmp_path / "back")]) == 0
    assert "gpt2, as it came" in capsys.readouterr().out
    assert json.loads((tmp_path / "back/config.json").read_text()) == json.loads((folder / "config.json").read_text())
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "back")
    assert all(p.equal(q) for p, q in zip(again.parameters(), gpt2[1].parameters()))


def test_older_files(gpt2, tmp_path):
    """Names without `transformer.`, with the causal masks of each layer, the head written again, and a tokenizer of two
    files."""
    folder, _, model = gpt2
    old = {name.removeprefix("transformer."): t for name, t in load_file(folder / "model.safetensors").items()}
    old |= {f"h.{i}.attn.bias": torch.ones(1, 1, 48, 48).tril() for i in range(3)}
    old |= {"lm_head.weight": old["wte.weight"].clone()}
    save_file(old, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    inner = model.tokenizer.inner
    inner.model.save(str(tmp_path))
    added = {str(END + i): {"content": token, "special": True} for i, token in enumerate(large.SPECIAL["qwen"])}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    again, x = zellige.load(tmp_path), tokens(1, 8)
    assert again.method.bound(Batch(x)).equal(model.method.bound(Batch(x)))
    assert again.tokenizer.encode("the dog") == model.tokenizer.encode("the dog")
    old["lm_head.weight"][7, 3] += 1
    save_file(old, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"'lm_head\.weight' is another than 'wte\.weight', and this network has one"):
        zellige.load(tmp_path)


@pytest.mark.parametrize(
    ("method", "network", "block"),
    [pytest.param("mdlm", "a2d-gpt2", 0, marks=pytest.mark.long), ("bd3lm", "gpt2-blocks", 8)],
)
def test_a_training_begins_with_it(method, network, block, gpt2, tmp_path, monkeypatch):
    """The weights as they are, read in both directions or in blocks; the mask is the mean of the other rows."""
    folder, theirs, _ = gpt2
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text(large.TEXT)
    words = (
        f"train {method} --train.start {folder} --data.name text --data.path notes.txt --net.length 32 --train.steps 1"
    )
    words += " --train.batch 2 --train.samples 0 --train.lr 1e-9 --train.validate-rows 2 --train.device cpu --run run"
    assert cli.main([*words.split(), "--train.weight-decay", "0", *(["--block", "8"] if block else [])]) == 0
    model, table = zellige.load("run"), theirs.transformer.wte.weight
    assert (model.config.network, model.method.block, model.method.process.mask) == (network, block, MASK)
    with torch.no_grad():
        theirs.transformer.wte.weight = torch.nn.Parameter(torch.cat((table, table.mean(0, keepdim=True))))
        theirs.lm_head.weight = theirs.transformer.wte.weight
        x = tokens(2, 16)
        x[:, -3:] = MASK
        want = logits_of(theirs, x, block)[..., :MASK].double().log_softmax(-1)
        theirs.transformer.wte.weight = table
        theirs.lm_head.weight = table
        at = x == MASK
        mus = [model.method.predict(x, 0.5).mu]
        if block:
            mus += [model.method.predict(x, 0.5, context=x).mu]
            cache = model.method.extend(None, x[:, :8])
            mus += [
                torch.cat(
                    (
                        mus[0].view(2, 16, -1)[:, :8],
                        model.method.predict(x[:, 8:], 0.5, context=cache).mu.view(2, 8, -1),
                    ),
                    1,
                )
            ]
    for mu in mus:
        got = mu.view(2, 16, -1)[at][..., :MASK].double().log()
        torch.testing.assert_close(got, want[at], atol=1e-5, rtol=1e-5)
    assert cli.main(["export", "run", "--out", "out"]) == 0
    assert json.loads(Path("out/config.json").read_text())["model_type"] == network


def test_packed_documents_count_from_their_own_beginning(gpt2):
    """In one row as apart: a position's vector is that of its place in its document."""
    network, x = gpt2[2].method.network, tokens(1, 12)
    segments = torch.tensor([[0] * 5 + [1] * 7])
    with torch.no_grad():
        packed = network.features(x, segments=segments)
        apart = torch.cat((network.features(x[:, :5]), network.features(x[:, 5:])), 1)
    torch.testing.assert_close(packed, apart, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"activation_function": "relu"}, "says 'relu' for 'activation_function'; GPT-2 is known with 'gelu_new' only"),
        ({"scale_attn_by_inverse_layer_idx": True}, "says True for 'scale_attn_by_inverse_layer_idx'"),
        ({"n_head": 5}, "hidden 32 does not split into 5 heads"),
    ],
)
def test_another_network_is_refused(more, said, gpt2, tmp_path):
    for file in gpt2[0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text()) | more
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=said):
        zellige.load(tmp_path)
