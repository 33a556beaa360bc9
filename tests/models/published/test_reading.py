"""Files as they are found: prefixes, averages, training checkpoints, bare weights; and all that is wrong with them, by name."""

import collections
import json
import lzma
import pickle
import sys
import types

import pytest
import torch
from safetensors.torch import load_file, save_file

import zellige
from zellige.core.batch import Batch
from zellige.data.tokenizer import Integers
from zellige.models.checkpoint.read import place
from zellige.models.checkpoint.write import write_checksums
from zellige.nn import DiT, Net
from zellige.plugins import published
from zellige.plugins.published import ddit, layouts

from . import hub

X = torch.randint(0, 54, (2, 24), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def mdlm(golden_folder):
    return hub.weights(golden_folder, "mdlm__weights")


CONFIG = hub.FLAT | hub.CONFIGS["mdlm"]


def tensors(model):
    """All numbers of its network; its logits may round otherwise where tensors are views of a file, by their alignment."""
    return torch.cat([p.detach().reshape(-1) for p in model.method.network.parameters()])


def fails(source, **choices) -> str:
    with pytest.raises(zellige.InputError) as caught:
        zellige.load(source, **choices)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---------------------------------------------------------------------------------- the same weights, found in many ways
def test_names_have_one_table(golden_folder):
    """Each way back, for every recorded model; the order is the published one, which the index of the recordings has kept."""
    index = json.loads((golden_folder / "torch" / "index.json").read_text())["cases"]
    for case in index:
        if (
            case["name"].endswith(("_weights", "weights_absorb", "weights_uniform"))
            and "classifier" not in case["name"]
        ):
            keys = [name for name in case["tensors"] if name not in ddit.BUFFERS]
            assert [ddit.theirs(ddit.ours(name)) for name in keys] == keys
            assert len({ddit.ours(name) for name in keys}) == len(keys)
            assert ddit.order(sorted(keys)) == keys, case["name"]


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin", "weights.pt"])
@pytest.mark.parametrize("prefix", ["", "backbone.", "backbone._orig_mod.", "module.", "_orig_mod.model.backbone."])
def test_prefixes_and_files(mdlm, tmp_path, prefix, file):
    base = tensors(zellige.load(hub.folder(tmp_path / "a", mdlm, CONFIG)))
    model = zellige.load(hub.folder(tmp_path / "b", mdlm, CONFIG, prefix, file=file))
    assert torch.equal(tensors(model), base)
    model.export(tmp_path / "back")
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert back.keys() == {prefix + name for name in mdlm}


def test_shards(mdlm, tmp_path):
    keys, folder = list(mdlm), hub.folder(tmp_path / "m", {}, CONFIG)
    (folder / "model.safetensors").unlink()
    parts = {"one.safetensors": keys[:9], "two.safetensors": keys[9:]}
    for file, part in parts.items():
        save_file({n: mdlm[n] for n in part}, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {n: file for file, part in parts.items() for n in part}}))
    assert torch.equal(tensors(zellige.load(folder)), tensors(zellige.load(hub.folder(tmp_path / "w", mdlm, CONFIG))))
    write_checksums(folder)
    raw = (folder / "two.safetensors").read_bytes()
    (folder / "two.safetensors").write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    assert "two.safetensors' has changed since it was written" in fails(folder)
    (folder / "SHA256SUMS").unlink()
    index.write_text(json.dumps({"weight_map": {"a": "../one.safetensors"}}))
    assert "names files outside its folder" in fails(folder)
    index.write_text(json.dumps({"weight_map": {"a": 1}}))
    assert "weight_map" in fails(folder)
    assert "is 1; it must be a text" in fails(folder)


def test_half_precision_comes_back(mdlm, tmp_path):
    half = {name: tensor.half() for name, tensor in mdlm.items()}
    model = zellige.load(hub.folder(tmp_path / "m", half, CONFIG))
    assert {p.dtype for p in model.method.parameters()} == {torch.float32}
    model.export(tmp_path / "back")
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert all(torch.equal(back[name], half[name]) for name in half)


def _fake(monkeypatch, where: str) -> type:
    """A class of a library that is not here, as it is pickled."""
    module, _, name = where.rpartition(".")
    for i, part in enumerate(parts := module.split(".")):
        path = ".".join(parts[: i + 1])
        if path not in sys.modules:
            monkeypatch.setitem(sys.modules, path, types.ModuleType(path))
        if i:
            setattr(sys.modules[".".join(parts[:i])], part, sys.modules[path])
    made = type(name, (), {"__module__": module})
    monkeypatch.setattr(sys.modules[module], name, made, raising=False)
    return made


def _omega(monkeypatch, value):
    """Nested values as omegaconf pickles them."""
    named = "dictconfig.DictConfig listconfig.ListConfig nodes.AnyNode base.ContainerMetadata base.Metadata"
    kinds = {name: _fake(monkeypatch, f"omegaconf.{name}") for name in named.split()}

    def node(v, parent):
        kind = {dict: "dictconfig.DictConfig", list: "listconfig.ListConfig"}.get(type(v), "nodes.AnyNode")
        made = kinds[kind]()
        about = kinds["base.Metadata" if kind.startswith("nodes") else "base.ContainerMetadata"]()
        about.__dict__ |= {
            "ref_type": types.SimpleNamespace and int,
            "object_type": dict,
            "flags": collections.defaultdict(int),
        }
        inside = {k: node(w, made) for k, w in v.items()} if isinstance(v, dict) else None
        inside = [node(w, made) for w in v] if isinstance(v, list) else inside
        key = "_val" if kind.startswith("nodes") else "_content"
        made.__dict__ |= {"_metadata": about, "_parent": parent, key: v if inside is None else inside}
        return made

    return node(value, None)


HYDRA = {
    "parameterization": "subs", "time_conditioning": False, "T": 0, "noise": {"type": "loglinear"}, "seeds": [1, 2],
    "model": {"hidden_size": 64, "cond_dim": 32, "length": 24, "n_blocks": 2, "n_heads": 4, "dropout": 0.1},
}  # fmt: skip


def test_lightning_checkpoint(mdlm, tmp_path, monkeypatch):
    """The averaged weights, a list in the order of the published class's parameters, with the config that is inside."""
    average = {n: t + 0.01 for n, t in mdlm.items() if n != "rotary_emb.inv_freq"}
    tokenizer = _fake(monkeypatch, "transformers.models.gpt2.tokenization_gpt2_fast.GPT2TokenizerFast")()
    held = {
        "state_dict": collections.OrderedDict(("backbone." + n, t) for n, t in mdlm.items()),
        "ema": {"decay": 0.9999, "num_updates": 7, "shadow_params": [average[n] for n in ddit.order(list(average))]},
        "global_step": 1000, "epoch": 1, "callbacks": {"best": "x"},
        "hyper_parameters": {"config": _omega(monkeypatch, HYDRA), "tokenizer": tokenizer},
    }  # fmt: skip
    torch.save(held, tmp_path / "last.ckpt")
    model = zellige.load(tmp_path / "last.ckpt", tokenizer="integers")
    base = hub.folder(tmp_path / "base", average | {"rotary_emb.inv_freq": mdlm["rotary_emb.inv_freq"]}, CONFIG)
    assert torch.equal(tensors(model), tensors(zellige.load(base)))
    assert model.about["step"] == 1000
    assert model.about["published"]["weights"] == "ema"
    assert model.config.net == zellige.load(base).config.net
    raw = zellige.load(tmp_path / "last.ckpt", tokenizer="integers", weights="raw")
    assert torch.equal(tensors(raw), tensors(zellige.load(hub.folder(tmp_path / "raw", mdlm, CONFIG))))
    held["ema"]["shadow_params"].pop()
    torch.save(held, tmp_path / "last.ckpt")
    said = fails(tmp_path / "last.ckpt", tokenizer="integers")
    assert said == "the averaged weights are 30 tensors, the model has 31; take the others with `weights` raw".replace(
        "30", str(len(average) - 1)
    ).replace("31", str(len(average)))


def test_average_by_name_and_seds_own_checkpoint(mdlm, tmp_path):
    average = {n: t + 0.01 for n, t in mdlm.items() if n != "rotary_emb.inv_freq"}
    said = {"system": "mdlm", "length": 24, "tokenizer": "integers"}
    ordered = [average[n] for n in ddit.order(list(average))]
    found = []
    for i, ema in enumerate(({f"module.{n}": t for n, t in average.items()}, {"shadow_params": ordered, "decay": 0.9})):
        torch.save({"model": {f"module.{n}": t for n, t in mdlm.items()}, "ema": ema, "step": 5}, tmp_path / f"{i}.pth")
        found.append(tensors(zellige.load(tmp_path / f"{i}.pth", **said)))
    assert torch.equal(*found)
    assert not torch.equal(found[0], tensors(zellige.load(tmp_path / "0.pth", weights="raw", **said)))


def test_bare_weights_take_their_sizes_from_the_tensors(golden_folder, tmp_path):
    for kind, more in (
        ("sedd_uniform_geometric", {"system": "sedd", "process": "uniform", "schedule": "geometric"}),
        ("radd", {"system": "radd"}),
        ("udlm", {"system": "udlm"}),
        ("bd3lm", {"system": "bd3lm", "block": 4}),
    ):
        source = hub.of(golden_folder, tmp_path / kind, kind)
        whole = zellige.load(source)
        (source / "config.json").unlink()
        model = zellige.load(source, length=24, **more)
        assert torch.equal(*(m.method.network(X[:, :4], **({"time": torch.zeros(2)} if m.method.time_conditioned else {}))
                             for m in (whole, model)))  # fmt: skip
        assert model.config.net == zellige.Net(2, 64, 4, 24, condition=model.config.net.condition,
                                                constant=whole.config.net.constant, classes=whole.config.net.classes)  # fmt: skip


def test_by_hub_id(golden_folder, mdlm, tmp_path, monkeypatch):
    """A known id says its layout, where the config.json does not; weights come as safetensors, or else as a pickle of tensors."""
    import huggingface_hub

    asked = []
    folder = hub.folder(
        tmp_path / "m", mdlm, CONFIG | {"time_conditioning": True}, "backbone.", file="pytorch_model.bin"
    )

    def download(name, allow_patterns):
        asked.append((name, allow_patterns))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    model = zellige.load("kuleshov-group/sedd-noeos-owt")
    assert model.config.method == "sedd"
    assert model.about["published"]["source"] == "kuleshov-group/sedd-noeos-owt"
    assert zellige.load("somebody/else").config.method == "mdlm"
    assert [("*.safetensors" in patterns, "*.bin" in patterns) for _, patterns in asked[:2]] == [
        (True, False),
        (False, True),
    ]


def test_wrapped_config(golden_folder, tmp_path):
    plain = hub.of(golden_folder, tmp_path / "plain", "sedd_absorb_loglinear")
    config = {"config": json.loads((plain / "config.json").read_text())}
    wrapped = hub.folder(tmp_path / "w", hub.weights(golden_folder, "sedd__weights_absorb"), config)
    model = zellige.load(wrapped)
    assert model.config == zellige.load(plain).config
    model.export(tmp_path / "back")
    assert json.loads((tmp_path / "back" / "config.json").read_text()) == config


def test_every_layout_reads_what_it_writes():
    for layout in layouts.LAYOUTS.values():
        if layout.build is None and layout.convert is None:
            net = Net(3, 32, 2, 48, dropout=0.25, condition=16, constant=layout.name in ("mdlm", "bd3lm"))
            said = layout.read(layout.write(published.Description(net, 100)), {})
            shown = (
                said.net if layout.name not in ("radd", "ar") else zellige.Net(3, 32, 2, 48, dropout=0.25, condition=16)
            )
            assert (shown, said.rows) == (net, 100), layout.name


# ---------------------------------------------------------------------------------- what is wrong
def test_keys_are_named(mdlm, tmp_path):
    few = {n: t for n, t in mdlm.items() if "norm1" not in n} | {"blocks.0.extra": torch.zeros(2)}
    assert fails(hub.folder(tmp_path / "a", few, CONFIG, "backbone.")) == (
        "checkpoint does not fit: 2 keys missing (blocks.0.norm1.weight, blocks.1.norm1.weight), "
        "1 unexpected (blocks.0.extra); the format is mdlm, of 2 layers"
    )
    assert fails(hub.folder(tmp_path / "b", mdlm, CONFIG | {"n_blocks": 1})).startswith(
        "checkpoint does not fit: 0 keys missing, 10 unexpected (blocks.1."
    )
    wide = mdlm | {"output_layer.linear.weight": torch.zeros(54, 32)}
    assert fails(hub.folder(tmp_path / "c", wide, CONFIG)) == (
        "checkpoint does not fit: output_layer.linear.weight is 54 x 32, the model has 54 x 64; the format is mdlm, of 2 layers"
    )
    twice = mdlm | {"backbone.output_layer.linear.bias": torch.zeros(54)}
    assert "two tensors are called 'output_layer.linear.bias'" in fails(hub.folder(tmp_path / "d", twice, CONFIG))


def test_tokenizer_and_vocabulary(mdlm, tmp_path):
    assert fails(hub.folder(tmp_path / "a", mdlm, CONFIG, tokens=60)) == (
        "the model is for 53 tokens (54 rows, format mdlm) and the tokenizer 'integers' has 60; "
        "give the one that it was trained with (`tokenizer`)"
    )
    assert "says 61 rows, the table of embeddings has 54" in fails(
        hub.folder(tmp_path / "b", mdlm, CONFIG | {"vocab_size": 61}, tokens=60)
    )
    assert fails(hub.folder(tmp_path / "d", mdlm, CONFIG, tokens=None)) == (
        "nothing says its tokenizer, which has 53 tokens (54 rows, format mdlm); give `tokenizer`, e.g. a tokenizer.json"
    )
    assert "the tokenizer 'bytes' has 256" in fails(hub.folder(tmp_path / "c", mdlm, CONFIG), tokenizer="bytes")


def test_configs(mdlm, tmp_path):
    assert "no format is known for the config.json" in fails(hub.folder(tmp_path / "a", mdlm, {"model_type": "gemma"}))
    gemma = fails(hub.folder(tmp_path / "g", mdlm, {"model_type": "diffusion_gemma"}))
    assert "DiffusionGemmaForBlockDiffusion" in gemma
    assert "(model_type moe), and code that comes with a model is never run; choose with `system`" in fails(
        hub.folder(tmp_path / "e", mdlm, {"model_type": "moe", "auto_map": {"AutoModel": "modeling.Moe"}})
    )
    assert "has no entry 'n_heads'" in fails(
        hub.folder(tmp_path / "b", mdlm, {n: v for n, v in CONFIG.items() if n != "n_heads"})
    )
    bare = hub.folder(tmp_path / "c", mdlm, None)
    assert "comes without a config.json; choose with `system`: sedd, radd, mdlm" in fails(bare)
    assert "nothing says how long a text is; give `length`" in fails(bare, system="mdlm")
    assert fails(bare, system="mdml", length=24) == (
        "unknown system 'mdml'; did you mean 'mdlm'? (all: zellige import --help)"
    )
    assert "`block` is no choice of mdlm" in fails(bare, system="mdlm", length=24, block=4)
    for choices, said in (
        ({"begin": 3}, "`begin` is no choice of mdlm; leave it out"),
        ({"heads": 2}, "its rotary frequencies are those of 4 heads, not of 2; give `heads` 4"),
        ({"heads": 0}, "`heads` is 0; it must be 1 or more"),
        ({"schedule": "cosin"}, "unknown schedule 'cosin'; did you mean 'cosine'?"),
        ({"system": "sedd", "process": "nonsense"}, "unknown process 'nonsense'; all of them: absorbing, uniform"),
    ):
        assert fails(bare, **{"system": "mdlm", "length": 24} | choices).startswith(said)
    assert "those of 4 heads, not of 8" in fails(hub.folder(tmp_path / "h", mdlm, CONFIG | {"n_heads": 8}))
    assert "unknown choice 'lenght'; did you mean 'length'?" in fails(bare, system="mdlm", lenght=24)
    (bare / "other.pt").write_bytes(b"")
    (bare / "model.safetensors").rename(bare / "one.safetensors")
    assert "holds 2 files of weights (one.safetensors, other.pt); give one of them" in fails(bare)


def test_truncated(mdlm, tmp_path):
    for file in ("model.safetensors", "pytorch_model.bin"):
        made = hub.folder(tmp_path / file, mdlm, CONFIG, file=file)
        whole = (made / file).read_bytes()
        for share in (0.0, 0.001, 0.5, 0.99):
            (made / file).write_bytes(whole[: int(share * len(whole))])
            said = fails(made)
            assert file in said
            assert "copy or download it again" in said


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        import posix

        return posix.system, (f"touch {self.path}",)


class Sly:
    """As an allowed name, with a harmful state."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return sys.modules["omegaconf.dictconfig"].DictConfig, (), {"_content": Evil(self.path)}


@pytest.mark.parametrize("file", ["last.ckpt", "pytorch_model.bin", "w.pt"])
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("sly", [True, False])
def test_malicious_pickles(mdlm, tmp_path, monkeypatch, file, zipped, sly):
    _fake(monkeypatch, "omegaconf.dictconfig.DictConfig")
    held = {"state_dict": mdlm, "hyper_parameters": (Sly if sly else Evil)(tmp_path / "ran")}
    folder = hub.folder(tmp_path / "m", {}, CONFIG)
    (folder / "model.safetensors").unlink()
    torch.save(held, folder / file, _use_new_zipfile_serialization=zipped)
    for source in (folder, folder / file):
        assert "asks to run 'posix.system' when loaded; refused, nothing was run" in fails(source)
    assert not (tmp_path / "ran").exists()


def test_second_gate_refuses_alone(mdlm, tmp_path, monkeypatch):
    """Should the names be read wrongly, torch's own unpickler still knows nothing but tensors and stand-ins."""
    from zellige.plugins.published import opening

    monkeypatch.setattr(opening, "refuse_code", lambda *_: None)
    torch.save({"state_dict": mdlm, "x": Evil(tmp_path / "ran")}, tmp_path / "last.ckpt")
    assert "holds more than tensors; refused, nothing was run" in fails(tmp_path / "last.ckpt", system="mdlm")
    (tmp_path / "old.pt").write_bytes(pickle.dumps({"x": Evil(tmp_path / "ran")}))
    fails(tmp_path / "old.pt", system="mdlm")
    assert not (tmp_path / "ran").exists()


def test_stand_ins_run_nothing_of_their_libraries(tmp_path, monkeypatch, mdlm):
    """A name on the list is never looked up: what the library calls so does not run."""
    made = _fake(monkeypatch, "omegaconf.dictconfig.DictConfig")
    made.__setstate__ = lambda self, state: (tmp_path / "ran").touch()
    held = made()
    held.__dict__["_content"] = {}
    torch.save({"state_dict": mdlm, "hyper_parameters": held}, tmp_path / "last.ckpt")
    zellige.load(tmp_path / "last.ckpt", system="mdlm", length=24, tokenizer="integers")
    assert not (tmp_path / "ran").exists()


# ---------------------------------------------------------------------------------- how weights are taken
def test_weights_are_taken_not_copied(mdlm, tmp_path):
    """Changing one writes nothing into the file that it is a view of, and the global random numbers stay."""
    network = DiT(Net(1, 8, 2, 4), 5)
    given = {name: torch.randn_like(tensor) for name, tensor in network.state_dict().items()}
    place(network, given, "a test", take=True)
    assert all(p.data_ptr() == given[name].data_ptr() for name, p in network.named_parameters())
    source = hub.folder(tmp_path / "m", mdlm, CONFIG)
    state, before = torch.get_rng_state(), (source / "model.safetensors").read_bytes()
    model = zellige.load(source)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        for p in model.method.parameters():
            p.add_(1)
    assert (source / "model.safetensors").read_bytes() == before
    assert torch.equal(zellige.load(source).method.network.embedding.weight, mdlm["vocab_embed.embedding"])


def test_unfilled():
    from zellige.nn.network import unfilled

    with unfilled():
        network = DiT(Net(2, 64, 4, 24), 500, time=True)
    assert torch.equal(network.rotary, DiT(Net(2, 64, 4, 24), 500, time=True).rotary)  # buffers are made all the same
    with unfilled():
        weight = torch.nn.Parameter(torch.full((3,), 7.0))
        torch.nn.init.zeros_(weight)
        torch.nn.init.normal_(weight)
        torch.nn.init.uniform_(tensor=weight)
        with torch.no_grad():
            weight.fill_(1.0)
        assert torch.equal(weight.detach(), torch.full((3,), 7.0))
        assert torch.zeros(2).fill_(3.0).sum() == 6.0
    assert torch.nn.init.zeros_(weight).sum() == 0.0


def test_padded_tokenizer(tmp_path):
    """A row that is no token: drawn as a mask, the same text gives the same integers, and the folder remembers it."""
    from zellige.data import load
    from zellige.data.tokenizer import Tokens
    from zellige.data.tokenizer_by_name import train_bpe

    bpe = train_bpe(300, ["the value of the object is returned"])
    padded = Tokens(bpe.inner, bpe.name, bpe.size + 2)
    assert padded.fingerprint == bpe.fingerprint
    padded.save(tmp_path)
    again = load(tmp_path)
    assert again.size == bpe.size + 2
    assert again.decode([bpe.size, *again.encode("the"), bpe.size + 1]) == "·the·"
    assert Integers(5).decode([4, 5]) == "4 ·"


@torch.no_grad()
def test_a_small_published_llama_by_its_real_weights(shared):
    """0.264M parameters trained on TinyStories: the loss of 150 stories that transformers has, and samples that end."""
    folder = shared / "data"
    model = zellige.load(folder / "tinyllamas-260k")
    text = lzma.decompress((folder / "simple-stories" / "tinystories-validation.txt.xz").read_bytes()).decode()
    rows = [model.tokenizer.encode(story)[:511] for story in text.split("\n\n")[:150]]  # of 512 <s> is the first
    nats = sum(float(model.method.bound(Batch(torch.tensor([row])))) for row in rows)
    assert sum(map(len, rows)) == 52_961
    assert nats / 52_961 == pytest.approx(1.3040, abs=6e-5)
    for sample in zellige.sample(model, count=3, seed=2, temperature=0.8):
        assert sample.startswith("Once upon a time")
        assert "<s>" not in sample
        assert len(sample) < 1500
