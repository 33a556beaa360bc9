"""BERT, MosaicBERT and ModernBERT: what is published in their layout loads as a masked diffusion model that computes the same."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import zellige
from zellige import cli
from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.models.model import which_weights
from zellige.plugins.published import bert
from zellige.plugins.published.nn import BertNet

from . import encoders
from .encoders import MASK, SYSTEMS, WORDS


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """system -> (folder, config, weights)"""
    found = {}
    for system in SYSTEMS:
        folder = tmp_path_factory.mktemp(system) / "model"
        found[system] = folder, *encoders.published(folder, system)
    return found


@pytest.fixture(scope="module")
def models(folders):
    return {system: zellige.load(folder) for system, (folder, _, _) in folders.items()}


def tokens(length: int = 30) -> torch.Tensor:
    x = torch.randint(5, len(WORDS), (2, length), generator=torch.Generator().manual_seed(0))
    x[:, ::3] = MASK
    return x


def log_p(model, x: torch.Tensor) -> torch.Tensor:
    return model.method.predict(x, 0.5).mu.double().log()


@pytest.mark.parametrize(("system", "kind"), [("bert", "Bert"), ("modernbert", "ModernBert")])
def test_predictions_are_those_of_transformers(system, kind, folders, models):
    """Loaded by transformers' own reader from the same folder; the mask and the rows without a token have no probability."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model, x = models[system], tokens()
    theirs = getattr(transformers, f"{kind}ForMaskedLM").from_pretrained(
        folders[system][0], attn_implementation="eager"
    )
    with torch.no_grad():
        logits = theirs.eval()(input_ids=x).logits.double()[..., : len(WORDS)]
    logits[..., MASK] = -torch.inf
    masked = x == MASK
    torch.testing.assert_close(log_p(model, x)[masked], logits.log_softmax(-1)[masked], atol=1e-5, rtol=1e-5)
    assert (model.method.process.mask, model.method.vocabulary) == (MASK, len(WORDS) - 1)


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_network_is_the_one_that_the_config_says(system, models):
    """Entry by entry; the norm before MosaicBERT's logits has an eps of its own, which its config does not say."""
    sizes = {"layers": 3, "hidden": 32, "heads": 4, "inner": 48, "rows": len(WORDS) + 2, "length": 40}
    modern = {
        "positions": "rotary",
        "types": 0,
        "before": True,
        "bias": False,
        "norm_bias": False,
        "window": 3,
        "every": 2,
    }
    more = {
        "bert": {"types": 3, "eps": 0.03, "head_eps": 0.03, "dropout": 0.2, "attention_dropout": 0.3},
        "mosaicbert": {"positions": "linear", "gated": True, "types": 3, "eps": 0.02, "head_eps": 1e-12, "dropout": 0.2,
                       "attention_dropout": 0.4},
        "modernbert": modern | {"gated": True, "base": 2e4, "local_base": 3e3, "eps": 0.04, "head_eps": 0.04,
                                "attention_dropout": 0.3},
    }  # fmt: skip
    method = models[system].method
    assert method.network.net == BertNet(**sizes | more[system])
    assert method.shape == (40,)


def test_other_sizes():
    """The tensors of a second config are those of its numbers, as many as in transformers' own classes; those written down for
    MosaicBERT are, at its public sizes, as many as MDLM's paper says."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = {
        "hidden_size": 60,
        "num_hidden_layers": 5,
        "num_attention_heads": 6,
        "intermediate_size": 77,
        "vocab_size": 101,
    }
    sizes |= {"max_position_embeddings": 31, "local_attention": 14}
    for system, kind in (("bert", "Bert"), ("mosaicbert", ""), ("modernbert", "ModernBert")):
        said, layout = encoders.config(system, **sizes), zellige.plugins.published.LAYOUTS[system]
        tensors = dict(layout.build(said, layout.read(said, {})).named_parameters())
        found = layout.revert({layout.theirs(name): p for name, p in tensors.items()}, None)
        assert {name: tuple(p.shape) for name, p in found.items()} == encoders.shapes(system, said)
        if kind:
            with torch.device("meta"):
                theirs = getattr(transformers, f"{kind}ForMaskedLM")(getattr(transformers, f"{kind}Config")(**said))
            theirs.tie_weights()
            assert sum(p.numel() for p in tensors.values()) == sum(p.numel() for p in theirs.parameters())
    public = {"hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072, "vocab_size": 30528}
    public |= {"type_vocab_size": 2}
    shapes = encoders.shapes("mosaicbert", encoders.config("mosaicbert", **public))
    assert round(sum(map(math.prod, shapes.values())) / 1e6) == 137


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_tensor_has_its_place(system, folders, models):
    """Each published tensor is in the network, whole, under its name; the names go both ways."""
    _, _, weights = folders[system]
    layout = zellige.plugins.published.LAYOUTS[system]
    state = models[system].method.network.state_dict()
    ours = {name: layout.theirs(name) for name in state}
    assert all(layout.ours(theirs) == name for name, theirs in ours.items())
    back = layout.revert({ours[name]: tensor for name, tensor in state.items()}, None)
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[name], weights[name]) for name in weights)


@pytest.mark.parametrize("system", SYSTEMS)
def test_saved_exported_sampled_and_bounded(system, folders, models, tmp_path):
    model, x, (_, said, weights) = models[system], tokens(12), folders[system]
    again = zellige.load(model.save(tmp_path / "own"))
    model.export(tmp_path / "went")
    back = zellige.load(tmp_path / "went")
    for other in (again, back):
        torch.testing.assert_close(log_p(other, x), log_p(model, x), atol=0, rtol=0)
        assert other.tokenizer.mask == MASK
    assert load_file(tmp_path / "went" / "model.safetensors").keys() == weights.keys()
    assert json.loads((tmp_path / "went" / "config.json").read_text()) == said
    drawn = zellige.sample(model, count=2, length=8, steps=4, seed=1)
    assert len(drawn) == 2
    assert not any("·" in text or "[MASK]" in text for text in drawn)
    with torch.no_grad():
        assert model.method.bound(Batch(x.where(x != MASK, 7)), torch.Generator().manual_seed(0)).isfinite().all()


def test_what_old_and_new_files_say_otherwise(folders, tmp_path):
    """gamma and beta, tied tensors written twice, the pooler and the next sentence; layer types and bases as transformers 5."""
    _, _, weights = folders["bert"]
    old = {
        k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
        for k, v in weights.items()
    }
    old |= {
        "bert.pooler.dense.weight": torch.ones(32, 32), "bert.pooler.dense.bias": torch.ones(32),
        "cls.seq_relationship.weight": torch.ones(2, 32), "cls.seq_relationship.bias": torch.ones(2),
        "bert.embeddings.position_ids": torch.arange(40)[None],
        "cls.predictions.decoder.weight": weights["bert.embeddings.word_embeddings.weight"].clone(),
        "cls.predictions.decoder.bias": weights["cls.predictions.bias"].clone(),
    }  # fmt: skip
    encoders.published(tmp_path / "old", "bert", old)
    x = tokens()
    want = log_p(zellige.load(folders["bert"][0]), x)
    torch.testing.assert_close(log_p(zellige.load(tmp_path / "old"), x), want, atol=0, rtol=0)
    old["cls.predictions.decoder.weight"] += 1
    encoders.published(tmp_path / "untied", "bert", old)
    with pytest.raises(InputError, match=r"'cls\.predictions\.decoder\.weight' is another than"):
        zellige.load(tmp_path / "untied")

    said, _ = encoders.published(tmp_path / "new", "modernbert")
    for name in ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"):
        del said[name]
    kinds = ["full_attention", "sliding_attention", "full_attention"]
    bases = {"full_attention": 20000.0, "sliding_attention": 3000.0}
    said |= {
        "layer_types": kinds,
        "rope_parameters": {k: {"rope_type": "default", "rope_theta": b} for k, b in bases.items()},
    }
    (tmp_path / "new" / "config.json").write_text(json.dumps(said))
    want = log_p(zellige.load(folders["modernbert"][0]), x)
    torch.testing.assert_close(log_p(zellige.load(tmp_path / "new"), x), want, atol=0, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("system", SYSTEMS)
def test_bfloat16_rounds_the_matrices_and_leaves_the_table(system, folders, models):
    """The head reads the table, which keeps its precision, with a bias of its own; so its inputs take that."""
    model, x = models[system], torch.tensor([[3, 5, 7, 2, 9]])
    small = zellige.load(folders[system][0], precision="bfloat16").method
    h = [method.hidden(x, 0.5) for method in (small, model.method)]
    assert h[0].dtype == torch.bfloat16
    torch.testing.assert_close(small.logits(h[0]), model.method.logits(h[1]), atol=0.3, rtol=0.05)


def test_bases_that_a_modernbert_leaves_out():
    """As transformers has them: 160,000 and 10,000; an explicit null is the base of the other layers."""
    said = encoders.config("modernbert")
    none = {name: value for name, value in said.items() if not name.endswith("rope_theta")}
    for more, bases in (({}, (1.6e5, 1e4)), ({"global_rope_theta": 2e4, "local_rope_theta": None}, (2e4, 2e4))):
        net = bert.modern_net(none | more)
        assert (net.base, net.local_base) == bases


@pytest.mark.parametrize(
    ("system", "more", "said"),
    [
        ("bert", {"hidden_act": "relu"}, "says 'relu' for 'hidden_act'"),
        ("bert", {"position_embedding_type": "relative_key"}, "for 'position_embedding_type'"),
        ("bert", {"tie_word_embeddings": False}, "says False for 'tie_word_embeddings'"),
        ("mosaicbert", {"num_hidden_layers": None}, "has no entry 'num_hidden_layers'"),
        ("modernbert", {"norm_bias": True}, "says True for 'norm_bias'"),
        ("modernbert", {"layer_types": ["sliding_attention"] * 3}, "for 'layer_types'"),
        ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "says 'yarn' for 'rope_type'"),
    ],
)
def test_configs_that_mean_another_network_are_refused(system, more, said, tmp_path):
    config, _ = encoders.published(tmp_path / "m", system)
    (tmp_path / "m" / "config.json").write_text(json.dumps(config | more))
    with pytest.raises(InputError) as caught:
        zellige.load(tmp_path / "m")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pickle_is_not_opened(tmp_path):
    encoders.published(tmp_path / "m", "bert")
    (tmp_path / "m" / "model.safetensors").unlink()
    (tmp_path / "m" / "pytorch_model.bin").write_bytes(b"not read at all")
    with pytest.raises(
        InputError, match=r"pytorch_model\.bin' is a pickle, and a model of format bert is read from safe"
    ):
        zellige.load(tmp_path / "m")


def test_the_mask_is_that_of_the_tokenizer(tmp_path):
    """The declared one, else [MASK]; none, or more tokens than rows, is one line."""
    encoders.published(tmp_path / "m", "bert")
    (tmp_path / "m" / "tokenizer_config.json").write_text(json.dumps({"mask_token": {"content": "[UNK]"}}))
    assert zellige.load(tmp_path / "m").tokenizer.mask == 1
    (tmp_path / "m" / "tokenizer_config.json").unlink()
    encoders.tokenizer(tmp_path / "m", [word for word in WORDS if word != "[MASK]"])
    with pytest.raises(
        InputError, match=r"has no mask \(\[MASK\] or <mask>\); give the tokenizer that the model was trained"
    ):
        zellige.load(tmp_path / "m")
    encoders.tokenizer(tmp_path / "m", [*WORDS, "x1", "x2", "x3"])
    with pytest.raises(InputError, match=rf"has {len(WORDS) + 3} tokens; the model's table has {len(WORDS) + 2} rows"):
        zellige.load(tmp_path / "m")


def test_the_length_is_a_choice_up_to_the_positions_that_were_learnt(folders):
    assert zellige.load(folders["bert"][0], length=16).method.shape == (16,)
    assert zellige.load(folders["mosaicbert"][0], length=64).method.shape == (64,)
    with pytest.raises(InputError, match="the length is 64, and the model has 40 positions; choose fewer"):
        zellige.load(folders["bert"][0], length=64)


@pytest.mark.parametrize("choice", [{"heads": 3}, {"time": True}, {"begin": 3}])
def test_a_network_of_its_own_class_has_no_such_choice(folders, choice):
    with pytest.raises(InputError, match=rf"`{next(iter(choice))}` is no choice of bert; leave it out"):
        zellige.load(folders["bert"][0], **choice)


# ---------------------------------------------------------------------------------------------------- training
TINY = "--train.batch 2 --train.samples 0 --train.validate-rows 4 --train.device cpu --quiet"
NEW = f"--data.name text --data.path text.txt --net.length 16 --train.steps 1 --train.lr 1e-30 --train.weight-decay 0 {TINY}"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The command line in a folder with a text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZELLIGE_CACHE", str(tmp_path / "cache"))
    Path("text.txt").write_text("The cat saw a dog. It saw the cat, a dog, the dog.\n" * 60)
    return lambda words: cli.main(words.split())


def test_the_recipe_begins_with_an_encoder(run, capsys):
    """Its options are the recipe's, with the encoder's mask; its length the recipe's, dropout what is typed."""
    encoders.published(Path("bert"), "bert")
    recipe = NEW.replace("--train.weight-decay 0", "--train.warmup 0 --net.dropout 0.3")
    assert run(f"train --recipe mdlm-c4-bert --train.start bert --run runs/e {recipe}") == 0
    begun, source = zellige.load("runs/e"), zellige.load("bert")
    assert (begun.method.process.mask, begun.method.network.net.dropout) == (MASK, 0.3)
    assert torch.equal(begun.method.network.embedding.weight, source.method.network.embedding.weight)
    capsys.readouterr()
    assert (
        run(f"train --recipe mdlm-c4-bert --train.start bert --run runs/f {recipe.replace('--net.length 16', '')}") == 2
    )
    assert capsys.readouterr().err == "error: the length is 128, and the model has 40 positions; choose fewer\n"


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_encoder_is_trained_resumed_and_judged(system, run, capsys):
    """Begun with its weights bit for bit, in its tokens; saved with its network; gone on with; begun with in turn."""
    encoders.published(Path("bert"), system)
    assert run(f"train mdlm --train.start bert --run runs/b {NEW}") == 0
    source, begun = zellige.load("bert"), zellige.load("runs/b")
    assert (begun.config.network, begun.method.shape, begun.tokenizer.mask) == (system, (16,), MASK)
    for name, tensor in source.method.state_dict().items():
        assert torch.equal(tensor, begun.method.state_dict()[name]), name
    assert which_weights(begun) == "EMA"
    again = NEW.replace("steps 1 ", "steps 2 ").replace("1e-30", "1e-3")
    assert run(f"train mdlm --run runs/b --resume --train.start bert {again}") == 0
    assert not torch.equal(log_p(begun, tokens(16)), log_p(zellige.load("runs/b/checkpoints/last"), tokens(16)))
    assert run("evaluate runs/b --quiet --draws 2") == 0
    assert run("sample runs/b --steps 2 --count 1 --quiet") == 0
    assert run(f"train mdlm --train.start runs/b --run runs/c {NEW}") == 0
    assert run("export runs/c --out out") == 0
    assert run("import out --out own") == 0
    assert zellige.load("out").config.network == system
    capsys.readouterr()
    for words, said in (
        (f"train bd3lm --block 4 --train.start bert --run runs/d {NEW}",
         f"'bert' is a mdlm with a network of its own ({system}), and this is bd3lm; train mdlm"),
        (f"train mdlm --net.layers 2 --train.start bert --run runs/d {NEW}",
         "--net.layers is 2, and 'bert' has 3; leave it out"),
    ):  # fmt: skip
        assert run(words) == 2
        assert capsys.readouterr().err == f"error: {said}\n"
        assert not Path("runs/d").exists()
