"""SDAR, Fast-dLLM v2, A2D, and Qwen3, Qwen2 and Llama: what is published in their layouts computes what transformers' own classes
compute under the same mask, goes back into them, and begins models of other methods."""

import itertools
import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import zellige
from zellige import cli
from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.evaluation.corpus import corpus_of
from zellige.plugins.published import qwen

from . import large

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
SMALL = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
    "vocab_size": 320, "max_position_embeddings": 64, "bos_token_id": 290, "eos_token_id": 291, "rms_norm_eps": 0.03,
}  # fmt: skip
SIZES = {
    "Qwen3": SMALL | {"head_dim": 16, "rope_theta": 2e4, "attention_bias": False},
    "Qwen2": SMALL | {"rope_theta": 3e4, "tie_word_embeddings": True},
    "Llama": SMALL | {"rope_theta": 4e4, "vocab_size": 293},
}
SDAR = {  # JetLM/SDAR-1.7B-Chat, the entries of config.json that say what it computes
    "architectures": ["SDARForCausalLM"],
    "auto_map": {
        "AutoConfig": "configuration_sdar.SDARConfig", "AutoModel": "modeling_sdar.SDARModel",
        "AutoModelForCausalLM": "modeling_sdar.SDARForCausalLM",
    },
    "attention_bias": False, "attention_dropout": 0.0, "block_size": 4, "bos_token_id": 151643, "eos_token_id": 151643,
    "fuse_cross_entropy": True, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 6144,
    "mask_token_id": 151669, "max_position_embeddings": 32768, "max_window_layers": 28, "model_type": "sdar",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": False,
    "use_cache": False, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
MASK = 293  # <|MASK|>, or the first number that no token has


def folder_of(path: Path, kind: str, more: dict | None = None, tokens: str = "qwen", **sizes):
    """A folder with random weights as transformers writes it, and its model; `more`: other entries of config.json; `sizes`: for
    those of SIZES."""
    sizes = SIZES[kind] | sizes
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": sizes.pop("rope_theta")}}
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**sizes, **rope)).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():  # nothing is one or zero, so that nothing can be left out
            p.copy_(torch.randn_like(p) * (0.3 if p.ndim == 1 else p.shape[-1] ** -0.5) + ("norm" in name))
    model.save_pretrained(path)
    if more:
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | more))
    large.tokenizer(path, tokens)
    return model


@pytest.fixture(scope="module")
def sdar(tmp_path_factory):
    """A small SDAR: its folder, transformers' Qwen3 with its weights, and ours."""
    folder = tmp_path_factory.mktemp("sdar") / "model"
    small = {"block_size": 4, "mask_token_id": MASK, "auto_map": SDAR["auto_map"]}
    theirs = folder_of(folder, "Qwen3", {"architectures": ["SDARForCausalLM"], "model_type": "sdar"} | small, "sdar")
    return folder, theirs, zellige.load(folder)


def block_causal(length: int, block: int) -> torch.Tensor:
    """The mask of SDAR's inference: (1, 1, L, L) bool."""
    order = torch.arange(length) // block
    return (order[None] <= order[:, None])[None, None]


@torch.no_grad()
def log_p(model, x: torch.Tensor, block: int, shift: bool = False) -> torch.Tensor:
    """log p of each token at each position of x, by hand from transformers' logits under a block-causal mask."""
    seen = block_causal(x.shape[1], block) if block else torch.ones(1, 1, x.shape[1], x.shape[1], dtype=torch.bool)
    logits = model(input_ids=x, attention_mask=seen.expand(len(x), -1, -1, -1)).logits.double()
    logits = torch.cat((logits[:, :1], logits[:, :-1]), 1) if shift else logits
    logits = logits[..., : MASK + 1]
    logits[..., MASK] = -torch.inf
    return logits.log_softmax(-1)


def noisy(length: int, rows: int = 2) -> torch.Tensor:
    """Tokens, the last block with masks."""
    x = torch.randint(256, (rows, length), generator=torch.Generator().manual_seed(0))
    x[:, -3:] = MASK
    return x


# ---------------------------------------------------------------------------------------------------- the network
def test_sdar_computes_what_qwen3_computes_under_its_mask(sdar):
    """Behind a cache, in two streams, and with the whole text in one stream."""
    _, theirs, model = sdar
    method, x = model.method, noisy(20)
    want, at = log_p(theirs, x, 4), x == MASK
    assert (model.config.method, method.block, method.process.mask, method.vocabulary) == ("bd3lm", 4, MASK, MASK)
    cache = method.extend(method.extend(None, x[:, :4]), x[:, 4:16])
    for mu in (
        method.predict(x, 0.5).mu[at],
        method.predict(x, 0.5, context=x).mu[at],  # noisy tokens of the last block alone: the others are clean
        method.predict(x[:, 16:], 0.5, context=cache).mu[at[:, 16:]],
    ):
        torch.testing.assert_close(mu.double().log(), want[at], atol=1e-5, rtol=1e-5)


def test_prompts_of_different_length_share_a_cache(sdar):
    *_, model = sdar
    method, x = model.method, noisy(12)
    valid = torch.tensor([[True] * 8, [False] * 4 + [True] * 4])
    together = method.predict(x[:, 8:], 0.5, context=method.extend(None, x[:, :8], valid)).mu
    alone = method.predict(x[1:, 8:], 0.5, context=method.extend(None, x[1:, 4:8])).mu
    torch.testing.assert_close(together[1:], alone, atol=1e-6, rtol=1e-5)


def test_likelihood_is_that_by_hand(sdar):
    """One token after another, the block's masks after it, is the chain rule of transformers' logits."""
    _, theirs, model = sdar
    x, want = torch.randint(256, (1, 8), generator=torch.Generator().manual_seed(1)), 0.0
    for i in range(8):
        seen = x[:, : i // 4 * 4 + 4].clone()
        seen[:, i:] = MASK
        want -= float(log_p(theirs, seen, 4)[0, i, x[0, i]])
    got = model.method.estimators()["forward"](Batch(x))
    torch.testing.assert_close(got, torch.tensor([want], dtype=torch.float64), atol=2e-5, rtol=1e-6)


def test_two_sides_of_its_likelihood_add_up_over_blocks(sdar, tmp_path):
    """-log p of blocks in any order: the mean over all 24 orders of each block, by hand, is between the two bounds' estimates."""
    folder, theirs, _ = sdar
    (tmp_path / "notes.txt").write_text(large.TEXT)
    data = zellige.Data("text", path=str(tmp_path / "notes.txt"))
    request = zellige.evaluations.EvaluateBracket(
        data=data, limit=2, numbers=(1, 32), own=None, orders=(), per_step=(1,)
    )
    model = zellige.load(folder, length=8)
    bracket = request.run(model)
    assert (bracket.rows[0].distribution.text, bracket.protocol["name"]) == (
        "any_order in each block of 4",
        "zellige-bracket-1",
    )
    (upper,), (lower,) = (
        [row for row in bracket.rows if (row.side, row.n) == (side, 32)] for side in ("bound", "lower")
    )
    want = []
    test = corpus_of(model, data).split("test")
    for x in test.collate([test[0], test[len(test) // 2]]).tokens:  # evenly spaced
        orders = torch.tensor(list(itertools.permutations(range(4))))
        for begin in (0, 4):
            turn = orders.argsort(-1)  # when each position of the block is revealed
            log_w = torch.zeros(24, dtype=torch.float64)
            for i in range(4):
                seen = x[: begin + 4].repeat(24, 1)
                seen[:, begin:][turn >= i] = MASK
                at = begin + orders[:, i]
                log_w += log_p(theirs, seen, 4)[torch.arange(24), at, x[at]]
            want.append(math.log(24) - log_w.logsumexp(0))
    exact = float(torch.stack(want).sum()) / 16  # nats/token
    assert lower.result.value - 0.005 < exact < upper.result.value + 0.005
    assert upper.result.value - lower.result.value < 0.05


def test_the_first_token_of_a_block_is_read_before_it(tmp_path):
    """Fast-dLLM v2: from the clean token before; the others are shifted inside the block; one stream, two, and a cache agree."""
    more = {"model_type": "Fast_dLLM_Qwen", "bd_size": 8, "mask_token_id": MASK}
    theirs = folder_of(tmp_path, "Qwen2", more, "sdar")
    method, x = zellige.load(tmp_path).method, noisy(24)
    x[:, 16:] = MASK
    want, at = log_p(theirs, x, 8, shift=True), x == MASK
    got = method.predict(x[:, 16:], 0.5, context=method.extend(None, x[:, :16])).mu[at[:, 16:]]
    two = method.predict(x, 0.5, context=x).mu[at]
    for mu in (got, two):
        torch.testing.assert_close(mu.double().log(), want[at], atol=1e-5, rtol=1e-5)
    all_masked = torch.full_like(x, MASK)  # then each block's first token still reads the clean one
    clean = x.clone()
    clean[:, 16:] = 7
    first = method.predict(all_masked, 0.5, context=clean).mu.view(2, 24, -1)[:, 8]
    torch.testing.assert_close(first.double().log(), log_p(theirs, clean, 8, shift=True)[:, 8], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("eps", [1e-5, 0.03])
@pytest.mark.parametrize("kind", SIZES)
def test_an_autoregressive_folder_is_an_ar(kind, eps, tmp_path):
    """With the config's eps in every norm, there and back: by transformers' logits."""
    theirs = folder_of(tmp_path / "theirs", kind, rms_norm_eps=eps)
    model = zellige.load(tmp_path / "theirs")
    x = torch.randint(256, (2, 9), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        begun = torch.cat((torch.full((2, 1), 290), x), 1)
        logits = theirs(input_ids=begun[:, :-1]).logits.double()[..., :293]
    want = -logits.log_softmax(-1).gather(-1, x[..., None])[..., 0].sum(-1)
    assert (model.config.method, model.method.shape) == ("ar", (64,))
    torch.testing.assert_close(model.method.bound(Batch(x)), want, atol=2e-5, rtol=1e-5)
    model.export(tmp_path / "back")
    back = getattr(transformers, f"{kind}ForCausalLM").from_pretrained(tmp_path / "back").eval()
    with torch.no_grad():
        again = back(input_ids=begun[:, :-1]).logits.double()[..., :293]
    torch.testing.assert_close(again, logits, atol=0, rtol=0)
    texts = zellige.sample(model, count=2, length=6, seed=3)
    assert texts == zellige.sample(model, count=2, length=6, seed=3)


def test_numbers_of_two_types_and_a_tied_head_written_twice(tmp_path):
    """bfloat16 matrices and float32 norms come out with the same bytes, also by way of Zellige's own format."""
    folder_of(tmp_path / "came", "Qwen3", tie_word_embeddings=True)
    file = tmp_path / "came/model.safetensors"
    said = {name: t + 0.001 if t.ndim == 1 else t.bfloat16() for name, t in load_file(file).items()}
    save_file(said | {"lm_head.weight": said["model.embed_tokens.weight"].clone()}, file, {"format": "pt"})
    model = zellige.load(zellige.load(tmp_path / "came").save(tmp_path / "own"))
    again = load_file(model.export(tmp_path / "back") / "model.safetensors")
    assert {name: t.dtype for name, t in again.items()} == {name: t.dtype for name, t in said.items()}
    assert all(again[name].equal(tensor) for name, tensor in said.items())


# ---------------------------------------------------------------------------------------------------- in and out
def test_import_evaluate_sample_export(sdar, tmp_path, capsys, monkeypatch):
    """The commands; what comes out has the same config.json and logits, and transformers' Qwen3 reads it."""
    folder, theirs, _ = sdar
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text(large.TEXT)
    assert cli.main(["import", str(folder), "--out", "ours", "--length", "32"]) == 0
    assert cli.main(["evaluate", "ours", "--data.path", "notes.txt", "--limit", "2"]) == 0
    assert cli.main(["sample", "ours", "--length", "10", "--prompt", "The", "--seed", "1"]) == 0
    assert cli.main(["export", "ours", "--out", "back"]) == 0
    assert "sdar, as it came" in capsys.readouterr().out
    assert json.loads(Path("back/config.json").read_text()) == json.loads((folder / "config.json").read_text())
    weights, again = load_file(folder / "model.safetensors"), load_file("back/model.safetensors")
    assert weights.keys() == again.keys()
    assert all(weights[name].equal(again[name]) for name in weights)
    config = json.loads(Path("back/config.json").read_text()) | {"model_type": "qwen3"}
    Path("back/config.json").write_text(json.dumps(config))  # the architecture's name is of remote code
    read = transformers.Qwen3ForCausalLM.from_pretrained("back").eval()
    x = noisy(8)
    torch.testing.assert_close(log_p(read, x, 4), log_p(theirs, x, 4), atol=0, rtol=0)


def test_a_prompt_of_part_of_a_block_and_a_text_beyond_the_window(sdar):
    """The text does not depend on the batch; one that passes the window sees its end."""
    *_, model = sdar
    prompts = ["The quick", "The lazy dog; it doesn't mind"]
    together = [zellige.sample(model, prompt=prompt, length=80, steps=4, seed=5)[0] for prompt in prompts]
    assert all(len(model.tokenizer.encode(text)) > 0 for text in together)
    alone = zellige.sample(model, count=3, prompt=prompts[0], length=24, steps=4, seed=5)
    assert alone[0] == zellige.sample(model, prompt=prompts[0], length=24, steps=4, seed=5)[0]
    with pytest.raises(InputError, match="right of a gap"):
        zellige.infill(model, "The @@ fox jumps over", mask_token="@")


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"block_sampler": "confidence", "per_step": 2, "temperature": 0}, "low_confidence_static"),
        ({"block_sampler": "confidence", "threshold": 0.9, "temperature": 0}, "low_confidence_dynamic"),
        ({"block_sampler": "fixed_order", "per_step": 2, "given": "counted", "temperature": 0}, "sequential"),
    ],
)
def test_the_rules_of_lmdeploy_are_options(options, rule, sdar):
    """Of a greedy text each block is that of the rule, played by hand on transformers' logits."""
    _, theirs, model = sdar
    got = zellige.Sample.of(prompt="The", length=12, seed=0, sampler="blockwise", **options).run(model).tokens[0]
    prompt = torch.tensor([model.tokenizer.encode("The")])
    x = torch.cat((prompt, torch.full((1, 12 - prompt.shape[1]), MASK)), 1)
    for end in (4, 8, 12):
        block = x[:, end - 4 : end]
        while (block == MASK).any():
            p, token = log_p(theirs, x[:, :end], 4)[0, -4:].exp().max(-1)
            masked = block[0] == MASK
            if rule == "sequential":
                at = masked.nonzero()[0, 0] + torch.arange(2)
                at = at[at < 4]
                at = at[masked[at]]
            else:
                ranked = torch.where(masked, p.round(decimals=5), -1.0).argsort(descending=True, stable=True)
                order = ranked[: int(masked.sum())]  # rounded, as `confidence` is: here many are nearly equal
                certain = order[p[order] >= 0.9] if rule == "low_confidence_dynamic" else order[:2]
                at = certain if len(certain) else order[:1]
            block[0, at] = token[at]
    assert got == x[0].tolist()


def test_a_mask_without_a_number(sdar, tmp_path):
    """Where neither config.json nor SDAR's own number says it, the mask is the token that the tokenizer names; its blocks are as
    long as config.json says, or as is chosen."""
    for file in sdar[0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    del config["mask_token_id"]
    (tmp_path / "config.json").write_text(json.dumps(config | {"block_size": 16}))
    for choices, block in (({}, 16), ({"block": 8}, 8)):
        model = zellige.load(tmp_path, **choices)
        assert (model.method.process.mask, model.tokenizer.size, model.method.block) == (MASK, MASK + 1, block)


# ---------------------------------------------------------------------------------------------------- starts
@pytest.mark.parametrize(
    ("kind", "method", "network"),
    [
        ("Qwen3", "bd3lm", "sdar"),
        ("Llama", "mdlm", "a2d"),
        pytest.param("Qwen2", "bd3lm", "fast-dllm-v2", marks=pytest.mark.long),
        pytest.param("Qwen3", "ar", "llama", marks=pytest.mark.long),
    ],
)
def test_a_training_begins_with_it(kind, method, network, tmp_path, monkeypatch):
    """Qwen3, Qwen2 and Llama begin block and masked models: their weights as they are, the mask a token more."""
    theirs = folder_of(tmp_path / "start", kind)
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text(large.TEXT)
    blocks = ["--block", "8"] if method == "bd3lm" else []
    words = ["train", method, "--train.start", "start", "--data.name", "text", "--data.path", "notes.txt"]
    words += [
        "--net.length",
        "32",
        "--train.steps",
        "1",
        "--train.batch",
        "2",
        "--train.samples",
        "0",
        "--train.lr",
        "1e-9",
    ]
    words += [
        "--train.validate-rows",
        "2",
        "--train.device",
        "cpu",
        "--run",
        "run",
        "--train.weight-decay",
        "0",
        *blocks,
    ]
    assert cli.main(words) == 0
    model = zellige.load("run")
    assert (model.config.network, model.method.block) == (network, {"bd3lm": 8, "mdlm": 0, "ar": 1}[method])
    x = noisy(16)
    if method == "ar":
        x[:, -3:] = 5
    else:
        assert model.method.process.mask == MASK
        with torch.no_grad():  # nobody has trained the mask: it is the mean of the others, or a row that no token had
            table = model.method.network.embedding.weight
            assert table.shape[0] == max(theirs.config.vocab_size, MASK + 1)
            if kind == "Llama":
                torch.testing.assert_close(table[MASK], theirs.model.embed_tokens.weight.mean(0), atol=1e-6, rtol=1e-5)
    cli.main(["export", "run", "--out", "out"])
    config = json.loads(Path("out/config.json").read_text())
    if network == "sdar":
        entries = config["model_type"], config["architectures"], config["block_size"], config["mask_token_id"]
        assert entries == ("sdar", ["SDARForCausalLM"], 8, MASK)
        Path("out/config.json").write_text(json.dumps(config | {"model_type": "qwen3"}))
        read = transformers.Qwen3ForCausalLM.from_pretrained("out").eval()
        at = x == MASK
        mu = model.method.predict(x, 0.5).mu[at].double().log()
        torch.testing.assert_close(mu, log_p(read, x, 8)[at], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(log_p(read, x, 8), log_p(theirs, x, 8), atol=1e-4, rtol=1e-4)


# ---------------------------------------------------------------------------------------------------- what does not fit
def test_the_published_sizes():
    """The tensors of SDAR-1.7B: 28 layers of 11 tensors, two tables and a norm; 2.03 billion weights."""
    layout = next(of for of in qwen.LAYOUTS if of.name == "sdar")
    network = layout.build(SDAR, layout.read(SDAR, {}))
    shapes = {layout.theirs(name): tuple(p.shape) for name, p in network.named_parameters()}
    assert len(shapes) == 28 * 11 + 3
    assert shapes["model.layers.27.self_attn.q_norm.weight"] == (128,)
    assert shapes["model.layers.0.self_attn.k_proj.weight"] == (8 * 128, 2048)
    assert sum(p.numel() for p in network.parameters()) == 2_031_739_904
    assert all(layout.ours(layout.theirs(name)) == name for name in network.state_dict())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "for 'rope_scaling'; SDAR is known with None only"),
        ({"attention_bias": True}, "says True for 'attention_bias'"),
        ({"use_sliding_window": True}, "says True for 'use_sliding_window'"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}}, "says 'yarn' for 'rope_type'"),
        ({"block_size": 0}, "has 0 as 'block_size'"),
        ({"mask_token_id": 400, "vocab_size": 280}, "has 294 tokens; the model's table has 281 rows"),
        ({"layer_types": ["sliding_attention", "full_attention"]}, "for 'layer_types'"),
    ],
)
def test_configs_that_mean_another_network_are_refused(more, said, sdar, tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    for file in sdar[0].iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | more))
    with pytest.raises(InputError) as caught:
        zellige.load(folder)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
