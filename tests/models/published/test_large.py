"""LLaDA and Dream: what is published in their layout loads as a masked diffusion model that computes what they compute."""

import itertools
import json
import math
import unicodedata
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import zellige
from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.plugins.published import dream, llada

from . import large

SYSTEMS = ["llada", "dream"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """system -> (folder, config, weights)"""
    found = {}
    for system in SYSTEMS:
        folder = tmp_path_factory.mktemp(system) / "model"
        found[system] = folder, *large.published(folder, system)
    return found


@pytest.fixture(scope="module")
def models(folders):
    return {system: zellige.load(folder) for system, (folder, _, _) in folders.items()}


def theirs(system: str, config: dict, weights: dict) -> torch.nn.Module:
    """transformers' own code for these weights: Qwen2 as it is, LLaDA as a Llama."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    if system == "dream":
        named = ("architectures", "auto_map", "model_type", "rope_theta", "pad_token_id", "mask_token_id")
        take = {k: v for k, v in config.items() if k not in named}
        made = transformers.Qwen2ForCausalLM(
            transformers.Qwen2Config(
                **take, rope_parameters={"rope_type": "default", "rope_theta": config["rope_theta"]}
            )
        )
        made.load_state_dict(weights)
        return made.eval()
    made = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=config["embedding_size"], hidden_size=config["d_model"], num_hidden_layers=config["n_layers"],
            num_attention_heads=config["n_heads"], num_key_value_heads=config["n_kv_heads"],
            intermediate_size=config["mlp_hidden_size"], rms_norm_eps=config["rms_norm_eps"], tie_word_embeddings=False,
            rope_parameters={"rope_type": "default", "rope_theta": config["rope_theta"]},
        )
    )  # fmt: skip
    names = {
        "model.transformer.blocks": "model.layers", "attn_norm": "input_layernorm", "ff_norm": "post_attention_layernorm",
        "q_proj": "self_attn.q_proj", "k_proj": "self_attn.k_proj", "v_proj": "self_attn.v_proj",
        "attn_out": "self_attn.o_proj", "ff_proj": "mlp.gate_proj", "up_proj": "mlp.up_proj", "ff_out": "mlp.down_proj",
        "model.transformer.wte": "model.embed_tokens", "model.transformer.ln_f": "model.norm",
    }  # fmt: skip
    renamed = {}
    for key, value in weights.items():
        key = key.replace("model.transformer.ff_out", "lm_head")
        for a, b in names.items():
            key = key.replace(a, b)
        renamed[key] = value
    made.load_state_dict(renamed)
    return made.eval()


@torch.no_grad()
def log_distribution(system: str, folders, x: torch.Tensor) -> torch.Tensor:
    """log p of each token at each position of x (B, L), by hand from transformers' logits: (B, L, tokens)."""
    _, config, weights = folders[system]
    seen = torch.ones(len(x), 1, x.shape[1], x.shape[1], dtype=torch.bool)
    logits = theirs(system, config, weights)(input_ids=x, attention_mask=seen).logits.double()
    if system == "dream":
        logits = torch.cat((logits[:, :1], logits[:, :-1]), 1)
    tokens = 290 + len(large.SPECIAL[system])
    logits = logits[..., :tokens]
    logits[..., config["mask_token_id"]] = -torch.inf
    return logits.log_softmax(-1)


# ---------------------------------------------------------------------------------------------------- the network
@pytest.mark.parametrize("system", SYSTEMS)
def test_logits_are_those_of_transformers(system, folders, models):
    method, mask = models[system].method, folders[system][1]["mask_token_id"]
    x = torch.randint(256, (2, 20), generator=torch.Generator().manual_seed(0))
    x[:, ::3] = mask
    got = method.predict(x, 0.5).mu.double().log()
    want = log_distribution(system, folders, x)
    at = x == mask
    torch.testing.assert_close(got[at], want[at], atol=1e-5, rtol=1e-5)
    assert (method.process.mask, method.vocabulary, method.shape) == (mask, want.shape[-1] - 1, (40,))


@pytest.mark.parametrize(
    ("system", "read", "keys", "size"), [("llada", llada, 291, 16_031_162_368), ("dream", dream, 339, 15_231_233_024)]
)
def test_the_published_sizes(system, read, keys, size):
    """As many tensors and bytes in bfloat16 as LLaDA's index file says, and as Qwen2.5-7B has, from which Dream begins."""
    config = {"llada": large.LLADA, "dream": large.DREAM}[system]
    network = read.LAYOUT.build(config, read.LAYOUT.read(config, {}))
    tensors = {read.LAYOUT.theirs(name): p for name, p in network.named_parameters()}
    assert {name: tuple(p.shape) for name, p in tensors.items()} == large.shapes(system, config)
    assert (len(tensors), 2 * sum(p.numel() for p in tensors.values())) == (keys, size)
    assert all(read.LAYOUT.ours(read.LAYOUT.theirs(name)) == name for name in network.state_dict())


# ---------------------------------------------------------------------------------------------------- the method
@pytest.mark.parametrize("system", SYSTEMS)
def test_likelihood_in_an_order_is_that_by_hand(system, folders, models):
    method, mask = models[system].method, folders[system][1]["mask_token_id"]
    x = torch.randint(256, (1, 6), generator=torch.Generator().manual_seed(1))
    for name, order in {"forward": range(6), "backward": range(5, -1, -1)}.items():
        want, seen = 0.0, torch.full_like(x, mask)
        for i in order:
            want -= float(log_distribution(system, folders, seen)[0, i, x[0, i]])
            seen[0, i] = x[0, i]
        got = method.estimators()[name](Batch(x))
        torch.testing.assert_close(got, torch.tensor([want], dtype=torch.float64), atol=2e-5, rtol=1e-6)


@pytest.mark.parametrize("system", SYSTEMS)
def test_any_order_is_the_estimate_of_llada_by_enumeration(system, folders, models):
    """E_k E_(k masks) [ L/k sum over the masks of -log p ], all subsets enumerated; the draws' mean agrees."""
    method, mask, L = models[system].method, folders[system][1]["mask_token_id"], 3
    x = torch.randint(256, (1, L), generator=torch.Generator().manual_seed(2))
    want = 0.0
    for k in range(1, L + 1):
        for at in itertools.combinations(range(L), k):
            x_t = x.clone()
            x_t[0, list(at)] = mask
            law = log_distribution(system, folders, x_t)[0]
            want -= sum(float(law[i, x[0, i]]) for i in at) / k / math.comb(L, k)
    with torch.no_grad():
        draws = method.estimators()["any_order"](Batch(x.expand(6000, L)), torch.Generator().manual_seed(0))
        bound = method.bound(Batch(x.expand(600, L)), torch.Generator().manual_seed(0))
    assert abs(float(draws.mean()) - want) < 4 * float(draws.std()) / 6000**0.5
    assert bound.isfinite().all()


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("sampler", ["ancestral", "confidence", "any_order", "first_hitting"])
def test_samplers_leave_no_mask_and_nothing_that_is_no_token(system, sampler, folders, models):
    model, mask = models[system], folders[system][1]["mask_token_id"]
    drawn = zellige.sample(model, count=2, length=12, steps=12, sampler=sampler, seed=1)
    assert len(drawn) == 2
    assert all("·" not in text for text in drawn)
    again = zellige.sample(model, count=2, length=12, steps=12, sampler=sampler, seed=1)
    assert list(drawn) == list(again)
    assert all(large.MASKS[system] not in text for text in drawn)
    assert model.text(torch.tensor([mask, 65]))[0][0] == "·"


@pytest.mark.parametrize("system", SYSTEMS)
def test_infilling_keeps_the_text(system, models):
    text = "The quick ___ fox didn't"
    (filled,) = zellige.infill(models[system], text, mask_token="_", steps=3, length=24)
    assert filled.startswith("The quick ")
    assert filled.endswith(" fox didn't")


# ---------------------------------------------------------------------------------------------------- the text
@pytest.mark.parametrize("system", SYSTEMS)
def test_texts_are_tokens_as_transformers_has_them(system, folders, models):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    folder = folders[system][0]
    if system == "dream":
        theirs = transformers.Qwen2Tokenizer.from_pretrained(folder)
    else:
        theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    ours = models[system].tokenizer
    special = large.SPECIAL[system][0] + large.SPECIAL[system][-2 if system == "dream" else -1]
    for text in (large.TEXT[:200], f"Don't  cafe\u0301\t\t 12345 \n\n\n x{special}user\n 漢字 🙂   end ", ""):
        ids = ours.encode(text)
        assert ids == theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.decode(ids) == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_mask_is_no_text(system, folders, models):
    sign, mask = large.MASKS[system], folders[system][1]["mask_token_id"]
    with pytest.raises(InputError, match=r"the prompt holds '<\|\w+\|>', the model's mask, which is no text"):
        models[system].tokenizer.encode(f"a {sign} b")
    with pytest.raises(InputError, match=f"`fixed` holds {mask}, the mask; give -1"):
        zellige.infill(models[system], fixed=[1, mask, 2])


# ---------------------------------------------------------------------------------------------------- the files
@pytest.mark.parametrize("system", SYSTEMS)
def test_wrong_missing_and_extra_keys_are_named(system, tmp_path):
    said, weights = large.published(tmp_path / "good", system)
    first = sorted(weights)[0]
    cases = {
        "missing": ({k: v for k, v in weights.items() if k != first}, first),
        "extra": (weights | {"lm_head.scale": torch.ones(1)}, "lm_head.scale"),
        "shape": (weights | {first: torch.ones(3, 5)}, first),
    }
    for name, (tensors, key) in cases.items():
        folder = tmp_path / name
        folder.mkdir()
        large.tokenizer(folder, system)
        large.write(folder, said, tensors)
        with pytest.raises(InputError) as caught:
            zellige.load(folder)
        assert key in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("system", SYSTEMS)
def test_export_gives_the_published_tensors_back(system, tmp_path):
    config, weights = large.published(tmp_path / "came", system, torch.bfloat16)
    model = zellige.load(tmp_path / "came")
    model.export(tmp_path / "went")
    back = load_file(tmp_path / "went" / "model.safetensors")
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[k].view(torch.int16), weights[k].view(torch.int16)) for k in weights)
    assert json.loads((tmp_path / "went" / "config.json").read_text()) == config
    again = zellige.load(tmp_path / "went")
    x = torch.tensor([[1, 2, config["mask_token_id"], 4]])
    torch.testing.assert_close(again.method.predict(x, 0.5).mu, model.method.predict(x, 0.5).mu, atol=0, rtol=0)
    assert again.tokenizer.fingerprint == model.tokenizer.fingerprint
    assert again.tokenizer.mask == model.tokenizer.mask


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_saved_model_comes_back(system, models, tmp_path):
    """In Zellige's own format too, without the network being handed over."""
    model = models[system]
    again = zellige.load(model.save(tmp_path / "own"))
    x = torch.tensor([[1, 2, model.tokenizer.mask, 4]])
    torch.testing.assert_close(again.method.predict(x, 0.5).mu, model.method.predict(x, 0.5).mu, atol=0, rtol=0)
    assert again.text(x) == model.text(x)
    assert again.method.process.mask == model.tokenizer.mask


def test_files_that_the_index_names_must_be_there(tmp_path):
    large.published(tmp_path / "m", "llada")
    (tmp_path / "m" / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(InputError, match=r"model-00002-of-00003\.safetensors"):
        zellige.load(tmp_path / "m")


def test_tokens_of_the_configuration_are_tokens(folders, tmp_path):
    """A tokenizer.json without its added tokens, which stand in tokenizer_config.json: as AutoTokenizer reads it."""
    large.published(tmp_path / "m", "llada")
    whole = json.loads((tmp_path / "m" / "tokenizer.json").read_text())
    (tmp_path / "m" / "tokenizer.json").write_text(json.dumps(whole | {"added_tokens": []}))
    added = {str(entry["id"]): {"content": entry["content"], "special": True} for entry in whole["added_tokens"]}
    (tmp_path / "m" / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    got, want = (zellige.load(folder).tokenizer for folder in (tmp_path / "m", folders["llada"][0]))
    text = "".join(large.SPECIAL["llada"][:2]) + large.TEXT[:100]
    assert (got.size, got.encode(text)) == (want.size, want.encode(text))
    gap = {"400": {"content": "<far>"}}
    (tmp_path / "m" / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added | gap}))
    with pytest.raises(InputError, match=r"'<far>' is to be token 400, and its vocabulary ends elsewhere"):
        zellige.load(tmp_path / "m")


def test_another_models_tokenizer_is_refused(folders, tmp_path):
    """Too few tokens for the mask, or more than the table has rows; the right one may be given."""
    large.published(tmp_path / "m", "llada")
    words = json.loads((tmp_path / "m" / "tokenizer.json").read_text())
    few = words | {"added_tokens": []}
    (tmp_path / "m" / "tokenizer.json").write_text(json.dumps(few))
    with pytest.raises(InputError, match=r"has 290 tokens; the model's table has 320 rows, its mask is 292: give"):
        zellige.load(tmp_path / "m")
    right = zellige.load(tmp_path / "m", tokenizer=str(folders["llada"][0]))
    assert right.tokenizer.mask == 292
    (tmp_path / "m" / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"no tokenizer\.json in"):
        zellige.load(tmp_path / "m")
    large.published(tmp_path / "d", "dream")
    (tmp_path / "d" / "merges.txt").unlink()
    with pytest.raises(InputError, match=r"has no merges\.txt and no tokenizer\.json"):
        zellige.load(tmp_path / "d")


@pytest.mark.parametrize(
    ("system", "more", "said"),
    [
        ("llada", {"activation_type": "swiglu"}, "says 'swiglu' for 'activation_type'"),
        ("llada", {"rope": None}, "says nothing of 'rope'"),
        ("llada", {"weight_tying": True}, "says True for 'weight_tying'"),
        ("llada", {"n_layers": None}, "has no entry 'n_layers'"),
        ("dream", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "for 'rope_scaling'"),
        ("dream", {"hidden_size": "32"}, "has '32' as 'hidden_size'"),
    ],
)
def test_configs_that_mean_another_network_are_refused(system, more, said, tmp_path):
    config, _ = large.published(tmp_path / "m", system)
    (tmp_path / "m" / "config.json").write_text(json.dumps(config | more))
    with pytest.raises(InputError) as caught:
        zellige.load(tmp_path / "m")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_weights_stay_in_bfloat16_and_in_their_files(tmp_path):
    """Loading maps the files: 150 MB of weights take no memory of the process's own."""
    more = {"mlp_hidden_size": 1 << 14, "d_model": 512, "n_layers": 3}
    said = large.config("llada", large.tokenizer(tmp_path, "llada"), **more)
    weights = large.weights("llada", said, torch.bfloat16)
    size = sum(2 * t.numel() for t in weights.values())
    large.write(tmp_path, said, weights)
    del weights

    def own() -> int:
        try:
            status = Path("/proc/self/status").read_text()
        except OSError:
            pytest.skip("no /proc: the memory of a process is not to be read")
        return 1024 * int(status.split("RssAnon:")[1].split()[0])

    before = own()
    model = zellige.load(tmp_path)
    assert size > 150e6
    assert own() - before < 0.2 * size
    assert {p.dtype for p in model.method.parameters()} == {torch.bfloat16}
    assert torch.isfinite(model.method.bound(Batch(torch.tensor([[1, 2, 3]])))).all()
