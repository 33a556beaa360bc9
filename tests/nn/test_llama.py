"""The llama-like network is transformers' own Llama and Qwen2 with nothing hidden, and what it adds is exact."""

import sys

import pytest
import torch
from torch import nn

from zellige.base.errors import InputError
from zellige.nn import cross_entropy
from zellige.plugins.published.nn import Llama, LlamaNet

SIZES = {"layers": 3, "hidden": 48, "heads": 6, "shared": 2, "inner": 80, "rows": 40, "length": 64}


def network(states: int = 37, **more) -> Llama:
    torch.manual_seed(0)
    made = Llama(LlamaNet(**SIZES | more), states)
    with torch.no_grad():  # nothing is one or zero, so that nothing can be left out
        for p in made.parameters():
            p.copy_(torch.randn_like(p) * (0.3 if p.ndim == 1 else p.shape[-1] ** -0.5) + (p.ndim == 1))
    return made.eval()


def tokens(rows: int = 2, length: int = 23) -> torch.Tensor:
    return torch.randint(37, (rows, length), generator=torch.Generator().manual_seed(1))


def theirs(kind: str, ours: Llama) -> nn.Module:
    """transformers' causal model of the same sizes with the same weights."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    net = ours.net
    same = {
        "vocab_size": net.rows, "hidden_size": net.hidden, "intermediate_size": net.inner, "num_hidden_layers": net.layers,
        "num_attention_heads": net.heads, "num_key_value_heads": net.shared, "rms_norm_eps": net.eps,
        "max_position_embeddings": net.length, "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": net.base},
    }  # fmt: skip
    config = getattr(transformers, f"{kind}Config")(**same)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    names = {
        "embedding": "model.embed_tokens", "layers.": "model.layers.", "norm1": "input_layernorm", "query": "self_attn.q_proj",
        "key": "self_attn.k_proj", "value": "self_attn.v_proj", "out": "self_attn.o_proj", "norm2": "post_attention_layernorm",
        "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
    }  # fmt: skip
    weights = {}
    for key, value in ours.state_dict().items():
        for a, b in names.items():
            key = key.replace(f".{a}.", f".{b}.") if not a.endswith(".") else key.replace(a, b)
        key = key.replace("embedding.", "model.embed_tokens.").replace("head.rows", "lm_head.weight")
        weights["model." + key if key.startswith("norm.") else key] = value
    model.load_state_dict(weights)
    return model


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("Llama", {"shared": 6, "base": 500000.0, "eps": 1e-5}),  # as LLaDA: all heads have their own keys
        ("Llama", {"base": 20000.0, "eps": 0.03}),
        ("Qwen2", {"bias": True, "base": 1000000.0, "eps": 0.02}),  # as Dream
    ],
)
def test_equals_transformers_reading_in_both_directions(kind, more):
    ours, x = network(**more), tokens(length=64)
    seen = torch.ones(len(x), 1, 64, 64, dtype=torch.bool)
    with torch.no_grad():
        want = theirs(kind, ours)(input_ids=x, attention_mask=seen).logits
        torch.testing.assert_close(ours(x), want[..., :37], atol=1e-5, rtol=1e-5)


def test_equals_transformers_in_bfloat16_to_its_rounding():
    ours = network(bias=True)
    model, x = theirs("Qwen2", ours).bfloat16(), tokens()
    with torch.no_grad():
        exact, got = ours(x), ours.bfloat16()(x)
        want = model(input_ids=x, attention_mask=torch.ones(2, 1, 23, 23, dtype=torch.bool)).logits[..., :37]
    assert got.dtype == torch.bfloat16
    rounding = (want - exact).abs().mean()  # of the published arithmetic, and ours has no more
    assert (got - exact).abs().mean() < 1.1 * rounding


def test_shift_reads_a_position_from_the_one_before():
    plain, shifted, x = network(), network(shift=True), tokens()
    logits, got = plain(x), shifted(x)
    torch.testing.assert_close(got[:, 1:], logits[:, :-1], atol=0, rtol=0)
    torch.testing.assert_close(got[:, 0], logits[:, 0], atol=0, rtol=0)


@pytest.mark.parametrize("shift", [False, True])
def test_packed_documents_are_read_as_if_alone(shift):
    ours, x = network(shift=shift), tokens(1, 20)
    segments = torch.tensor([[0] * 7 + [1] * 13])
    apart = torch.cat((ours(x[:, :7]), ours(x[:, 7:])), 1)
    torch.testing.assert_close(ours(x, segments=segments), apart, atol=2e-6, rtol=1e-5)


def test_rows_beyond_the_states_have_no_logits_and_no_gradient(monkeypatch):
    """The cross-entropy in chunks, through the head's view of its table, has the gradients of the plain one."""
    ours, h = network(), torch.randn(50, 48, generator=torch.Generator().manual_seed(2))
    target = torch.randint(36, (50,), generator=torch.Generator().manual_seed(3))
    logits = h @ ours.head.rows[:37].T
    logits[:, 20] = -torch.inf
    want = torch.nn.functional.cross_entropy(logits, target.where(target != 20, 0), reduction="sum")
    (gradient,) = torch.autograd.grad(want, ours.head.rows)
    monkeypatch.setattr(sys.modules["zellige.nn.cross_entropy"], "LARGE", 1)
    got = cross_entropy(ours, h, target.where(target != 20, 0), exclude=20).sum()
    (ours_gradient,) = torch.autograd.grad(got, ours.head.rows)
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(ours_gradient, gradient, rtol=1e-4, atol=1e-6)
    assert (ours_gradient[37:] == 0).all()


def test_refusals():
    ours, x = network(), tokens()
    with pytest.raises(InputError, match="the input has 65 positions; the network was built for 64"):
        ours(tokens(1, 65))
    with pytest.raises(InputError, match="takes no time"):
        ours(x, time=torch.zeros(2))
    with pytest.raises(InputError, match="41 states do not fit tables of 40 rows"):
        network(41)
    with pytest.raises(InputError, match="6 heads do not share 4 keys and values evenly"):
        network(shared=4)
    with pytest.raises(InputError, match="hidden 50 does not split into 6 heads"):
        network(hidden=50)
