"""The encoder is transformers' own BERT and ModernBERT, and MosaicBERT by hand; what it adds is exact."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from zellige.base.errors import InputError
from zellige.nn import cross_entropy
from zellige.plugins.published.nn import Bert, BertNet

SIZES = {"layers": 4, "hidden": 24, "heads": 3, "inner": 40, "rows": 30, "length": 48}
MODERN = {
    "positions": "rotary", "types": 0, "before": True, "gated": True, "bias": False, "norm_bias": False, "window": 4,
    "every": 3, "base": 2e4, "local_base": 3e3, "eps": 0.04, "head_eps": 0.04,
}  # fmt: skip
MOSAIC = {"positions": "linear", "gated": True, "eps": 0.02, "head_eps": 0.05}


def network(states: int = 27, **more) -> Any:
    sizes: dict[str, Any] = SIZES | more
    made = Bert(BertNet(**sizes), states).double()
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():  # nothing is one or zero, so that nothing can be left out
        for p in made.parameters():
            noise = torch.randn(p.shape, generator=g, dtype=p.dtype)
            p.copy_(noise * (0.3 if p.ndim == 1 else 1.5 * p.shape[-1] ** -0.5) + (p.ndim == 1))
    return made.eval()


def tokens(rows: int = 2, length: int = 37) -> torch.Tensor:
    return torch.randint(27, (rows, length), generator=torch.Generator().manual_seed(1))


def theirs(kind: str, ours: Any) -> Any:
    """transformers' model of the same sizes with the same weights."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    net, state = ours.net, ours.state_dict()
    same = {
        "vocab_size": net.rows, "hidden_size": net.hidden, "num_hidden_layers": net.layers, "pad_token_id": 0,
        "num_attention_heads": net.heads, "intermediate_size": net.inner, "max_position_embeddings": net.length,
        "attn_implementation": "eager",
    }  # fmt: skip
    parts = {
        "norm1": "attn_norm",
        "qkv": "attn.Wqkv",
        "out": "attn.Wo",
        "norm2": "mlp_norm",
        "up": "mlp.Wi",
        "down": "mlp.Wo",
    }
    if kind == "ModernBert":
        more = {"norm_eps": net.eps, "global_attn_every_n_layers": net.every, "local_attention": 2 * net.window}
        bases = {"global_rope_theta": net.base, "local_rope_theta": net.local_base}
        config = transformers.ModernBertConfig(**same, **more, **bases)
        model = transformers.ModernBertForMaskedLM(config)
        names = {
            "embedding": "model.embeddings.tok_embeddings", "norm": "model.embeddings.norm", "last": "model.final_norm",
            "transform": "head.dense", "transform_norm": "head.norm",
        }  # fmt: skip
    else:
        model = transformers.BertForMaskedLM(transformers.BertConfig(**same, layer_norm_eps=net.eps))
        parts = {
            "norm1": "attention.output.LayerNorm", "out": "attention.output.dense", "norm2": "output.LayerNorm",
            "up": "intermediate.dense", "down": "output.dense",
        }  # fmt: skip
        head = "cls.predictions.transform"
        names = {
            "embedding": "bert.embeddings.word_embeddings", "positions": "bert.embeddings.position_embeddings",
            "types": "bert.embeddings.token_type_embeddings", "norm": "bert.embeddings.LayerNorm",
            "transform": f"{head}.dense", "transform_norm": f"{head}.LayerNorm",
        }  # fmt: skip
    at, bias = (
        ("model.layers", "decoder.bias") if kind == "ModernBert" else ("bert.encoder.layer", "cls.predictions.bias")
    )
    named = {}
    for key, value in state.items():
        first, *rest = key.split(".")
        if first != "layers":
            named[bias if key == "head.rows" else ".".join((names[first], *rest))] = value
        elif rest[1] in parts:
            named[f"{at}.{rest[0]}.{parts[rest[1]]}.{rest[2]}"] = value
        else:
            for name, part in zip(("query", "key", "value"), value.chunk(3)):
                named[f"{at}.{rest[0]}.attention.self.{name}.{rest[2]}"] = part
    missing, over = model.double().load_state_dict(named, strict=False)
    assert not over
    assert all("decoder" in name for name in missing), missing  # tied
    model.tie_weights()
    return model.eval()


@pytest.mark.parametrize(("kind", "more"), [("Bert", {"eps": 0.03, "head_eps": 0.03}), ("ModernBert", MODERN)])
def test_equals_transformers(kind, more):
    ours, x = network(**more), tokens()
    with torch.no_grad():
        want = theirs(kind, ours)(input_ids=x).logits[..., :27]
        torch.testing.assert_close(ours(x), want, atol=1e-5, rtol=1e-5)  # angles are float32 in both


def test_equals_mosaicbert_by_hand():
    """Slope times distance off the scores, norms after the sums, GELU of the first half times the second, head by head."""
    ours, x = network(**MOSAIC, heads=6), tokens(1, 11)
    L, W, D = 11, 4, 24
    gelu = lambda h: h * (1 + torch.erf(h / math.sqrt(2))) / 2  # noqa: E731
    apart = (torch.arange(L)[:, None] - torch.arange(L)).abs()

    def norm(h, of, eps=0.02):
        variance, mean = torch.var_mean(h, -1, correction=0, keepdim=True)
        return (h - mean) / (variance + eps).sqrt() * of.weight + of.bias

    with torch.no_grad():
        h = norm(ours.embedding.weight[x[0]] + ours.types.weight[0], ours.norm)
        for layer in ours.layers:
            q, k, v = (h @ layer.qkv.weight.T + layer.qkv.bias).split(D, -1)
            heads = []
            for i, slope in enumerate((2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3)):  # four, every second of eight
                at = slice(i * W, (i + 1) * W)
                heads.append((q[:, at] @ k[:, at].T / W**0.5 - slope * apart).softmax(-1) @ v[:, at])
            h = norm(h + torch.cat(heads, -1) @ layer.out.weight.T + layer.out.bias, layer.norm1)
            a, b = (h @ layer.up.weight.T).split(40, -1)
            h = norm(h + (gelu(a) * b) @ layer.down.weight.T + layer.down.bias, layer.norm2)
        h = norm(gelu(h @ ours.transform.weight.T + ours.transform.bias), ours.transform_norm, 0.05)
        want = h @ ours.embedding.weight[:27].T + ours.head.rows[:27]
        torch.testing.assert_close(ours(x)[0], want)
    assert all(layer.up.bias is None for layer in ours.layers)


@pytest.mark.parametrize("more", [{}, MODERN, MOSAIC], ids=["bert", "modernbert", "mosaicbert"])
def test_packed_documents_are_read_as_if_alone(more):
    ours, x = network(**more), tokens(1, 20)
    segments = torch.tensor([[0] * 7 + [1] * 13])
    apart = torch.cat((ours(x[:, :7]), ours(x[:, 7:])), 1)
    torch.testing.assert_close(ours(x, segments=segments), apart, atol=1e-5, rtol=1e-5)


def test_the_head_is_the_table_of_embeddings():
    """One weight for both, which the head's gradient reaches; rows beyond the states have none."""
    ours, target = network(), tokens()[0] % 26
    assert not any(name.startswith("head.") and name != "head.rows" for name in ours.state_dict())
    h = ours.features(tokens())[0].detach()
    loss = cross_entropy(ours, h, target, exclude=26).sum()
    gradient, bias = torch.autograd.grad(loss, (ours.embedding.weight, ours.head.rows))
    p = (h @ ours.embedding.weight[:26].T + ours.head.rows[:26]).softmax(-1) - nn.functional.one_hot(target, 26)
    torch.testing.assert_close(gradient[:26], p.T @ h)
    assert (gradient[27:] == 0).all()
    assert (bias[27:] == 0).all()
    ours.initialise()
    ours.head.reset_parameters()
    assert (ours.head.rows == 0).all()
    assert 0.01 < float(ours.embedding.weight.detach().std()) < 0.03


def test_dropout_is_for_training_only():
    ours, x = network(dropout=0.5, attention_dropout=0.5), tokens()
    torch.testing.assert_close(ours(x), network()(x))
    assert not torch.allclose(ours.train()(x), ours(x))


def test_refusals():
    ours, x = network(), tokens()
    with pytest.raises(InputError, match="the input has 49 positions; the network was built for 48"):
        ours(tokens(1, 49))
    with pytest.raises(InputError, match="takes no time"):
        ours(x, time=torch.zeros(2))
    with pytest.raises(InputError, match="31 states do not fit tables of 30 rows"):
        network(31)
    with pytest.raises(InputError, match="hidden 25 does not split into 3 heads"):
        network(hidden=25)
    with pytest.raises(InputError, match="positions is 'sines'; it must be one of learnt, linear, rotary"):
        network(positions="sines")
