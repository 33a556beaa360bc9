"""Blocks inside a text, and caches; `zellige verify --only caches` has their distribution."""

from itertools import pairwise

import pytest
import torch

import zellige
from zellige.base.errors import InputError
from zellige.exact.script import Forced
from zellige.methods import BD3LM, MD4, MDLM, build
from zellige.nn import DiT, Net
from zellige.plugins.published.nn import Llama, LlamaNet
from zellige.samplers import Ancestral, AnyOrder, Confidence, Klass, SemiAutoregressive, run
from zellige.sampling.request import Sampling

K, L, S = 6, 12, 4
CACHES = [("none", None), ("prefix", None), ("dual", None), ("dual", 2)]


def networks():
    """A transformer with a convolution, and a Llama that reads a position from the one before."""
    torch.manual_seed(0)
    dit = DiT(Net(layers=2, hidden=16, heads=2, length=L, conv=5), K + 1)
    llama = Llama(LlamaNet(2, 16, 2, 1, 24, K + 1, L, shift=True), K + 1)
    for network in (dit, llama):
        with torch.no_grad():
            for p in network.parameters():
                p.copy_(1.5 * torch.randn_like(p) * (1 if p.ndim == 1 else p.shape[-1] ** -0.5) + (p.ndim == 1))
    return {"dit": dit, "llama": llama}


@pytest.fixture(scope="module")
def methods():
    return {name: MDLM(network, K, (L,)).double().eval() for name, network in networks().items()}


def last(method, sampler, fixed, seed=0, rows=None):
    """The samples of some rows; each row has a stream of its own."""
    rows = range(len(fixed)) if rows is None else rows
    streams = [torch.Generator().manual_seed(seed + row) for row in rows]
    *_, state = run(sampler, method, (len(streams), fixed.shape[1]), 4, fixed=fixed[list(rows)], generator=streams)
    return state


def given():
    """Prompts of different length, a text on both sides of a gap, and nothing at all."""
    fixed = torch.full((5, L), -1)
    fixed[0, :1], fixed[1, :5], fixed[2, :8] = 1, 2, 3
    fixed[3, :3], fixed[3, 9:] = 4, 5
    return fixed


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "cache", "refresh", "inner"),
    [
        ("dit", "dual", None, Klass(threshold=0.3)),
        ("dit", "prefix", 2, AnyOrder(1)),
        ("llama", "dual", 2, Ancestral()),
        ("llama", "none", None, Confidence(threshold=0.2)),
    ],
)
def test_a_row_does_not_depend_on_its_batch(kind, cache, refresh, inner, methods):
    """Rows of different length, with gaps, in any batch: equal tokens and evaluations; what is given stays."""
    sampler = SemiAutoregressive(inner, S, cache, refresh)
    together = last(methods[kind], sampler, given())
    for rows in ([0], [3, 1], [4, 2, 0]):
        alone = last(methods[kind], sampler, given(), rows=rows)
        assert alone.x.equal(together.x[rows])
        assert alone.calls.equal(together.calls[rows])
    fixed = given()
    assert together.x[fixed >= 0].equal(fixed[fixed >= 0])
    assert (together.x < K).all()


def log_chances(method, sampler, fixed, texts):
    """log of the chance of each block of the texts as samples, (blocks, B)."""
    state, chances = sampler.init(method, tuple(texts.shape), fixed=fixed), []
    for t, s in pairwise(sampler.times(method, None)):
        forced = Forced(texts[:, state.memory.begin : state.memory.begin + S])
        state = sampler.step(method, state, t, s, forced)
        chances.append(forced.probability.log())
    assert state.x.equal(texts)
    return torch.stack(chances)


@torch.no_grad()
@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
def test_in_single_precision_a_batch_changes_rounding_alone(cache, methods):
    """In float32 products are rounded as their sizes are: log of a chance within 2e-5 of that of a row alone, and no token of
    the samples is another; in float64 (above) both are the same tokens."""
    method = MDLM(networks()["dit"], K, (L,)).eval()
    sampler, fixed = SemiAutoregressive(AnyOrder(2), S, cache, None if cache == "none" else 2), given()
    together = last(method, sampler, fixed)
    alone = torch.cat([last(method, sampler, fixed, rows=[row]).x for row in range(len(fixed))])
    assert int((together.x != alone).sum()) == 0  # flips
    forced = SemiAutoregressive("fixed_order", S, cache, sampler.refresh)
    all_rows = log_chances(method, forced, fixed, together.x)
    each = [log_chances(method, forced, fixed[[row]], together.x[[row]]) for row in range(len(fixed))]
    torch.testing.assert_close(all_rows, torch.cat(each, 1), atol=2e-5, rtol=0)


@torch.no_grad()
def test_md4_without_a_time_input_keeps_the_same_cache(methods):
    """Its network is that of mdlm, and one token after the other is drawn from the network's own distribution."""
    md4 = build(MD4, K, networks()["dit"], MD4.Config(time=False), L).double().eval()
    sampler = SemiAutoregressive("fixed_order", S, "dual")
    assert last(md4, sampler, given()).x.equal(last(methods["dit"], sampler, given()).x)


@torch.no_grad()
def test_one_block_is_the_sampler_inside(methods):
    sampler = SemiAutoregressive("any_order", L)
    inside = last(methods["dit"], AnyOrder(), given())
    assert last(methods["dit"], sampler, given()).x.equal(inside.x)
    assert sampler.distribution(methods["dit"], 4) == AnyOrder().distribution(methods["dit"], 4)


@torch.no_grad()
def test_evaluations_that_read_the_whole_text(methods, monkeypatch):
    """Once in a block, or every second evaluation; the others read the block (dual) or up to the end (prefix)."""
    seen: list[tuple[str, int]] = []
    method = methods["dit"]
    for name in ("read", "reread"):
        inner = getattr(type(method.network), name)
        monkeypatch.setattr(
            type(method.network),
            name,
            lambda self, x, *more, name=name, inner=inner: (seen.append((name, x.shape[1])), inner(self, x, *more))[1],
        )
    expected = {
        ("dual", None): [("read", L), *[("reread", S)] * 3] * 3,
        ("dual", 2): [("read", L), ("reread", S)] * 6,
        ("prefix", None): [each for n in (L, L - S, S) for each in (("read", L), *[("reread", n)] * 3)],
    }
    for (cache, refresh), wanted in expected.items():
        sampler = SemiAutoregressive("any_order", S, cache, refresh)
        list(run(sampler, method, (1, L), None))
        assert seen[1:] == wanted  # the first asks whether it can
        seen.clear()


def test_the_distribution_says_that_it_is_an_approximation(methods):
    method = methods["dit"]
    of = {
        (cache, refresh): SemiAutoregressive("any_order", S, cache, refresh).distribution(method, None).text
        for cache, refresh in [*CACHES, ("dual", 1)]
    }
    assert "out of date (cache dual)" in of["dual", None]
    assert of["none", None] == of["dual", 1]
    assert all(SemiAutoregressive("any_order", S, c, r).distribution(method, None).number is None for c, r in CACHES)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SemiAutoregressive(refresh=2), "`refresh` says how long a cache is kept"),
        (lambda: SemiAutoregressive("remasking"), "sampler 'remasking' writes no block of a text"),
        (lambda: SemiAutoregressive(cache="all"), "cache"),
    ],
)
def test_options_that_mean_nothing(make, said):
    with pytest.raises(InputError, match=said):
        make()


def test_what_keeps_no_cache_is_said():
    net = {"layers": 1, "hidden": 8, "heads": 2, "length": L}
    sampler = SemiAutoregressive("any_order", S, "dual")
    for method, said in (
        (build("bd3lm", K, Net(**net), BD3LM.Config(block=4)), "networks that see whole texts"),
        (build("mdlm", K, Net(**net), MDLM.Config(time=True)), "would be those of other times"),
        (build("md4", K, Net(**net)), "would be those of other times"),
        (build("mdlm", K, Net(**net, self_condition=True)), "without self-conditioning, is read in parts"),
        (build("mdlm", K, Net(**net | {"kind": "conv"})), "only a bidirectional transformer of texts"),
        (build("mdlm", K, Net(**net, grid=(3, 4))), "only a bidirectional transformer of texts"),
        (zellige.samplers.Rewarded, "must be"),
    ):
        with pytest.raises(InputError, match=said):
            list(run(sampler, method, (1, L), None))


def test_the_command_and_the_request(capsys):
    """A flag of `sample` and `infill`, and a default of a model, which `serve` and the harness take."""
    how = [
        "--sampler",
        "semi_autoregressive",
        "--block-sampler",
        "confidence",
        "--block-length",
        "16",
        "--cache",
        "dual",
    ]
    from zellige import cli

    text = "Once upon a time an old man lived in a great_, and he had three_."
    assert cli.main(["infill", "stories-mdlm", text, *how, "--per-step", "1", "--temperature", "0"]) == 0
    out = capsys.readouterr().out
    assert ", and he had three" in out
    options = {"block_sampler": "confidence", "block_length": 16, "cache": "dual", "per_step": 4}
    model = zellige.load("stories-mdlm")
    model.defaults = {"sampler": "semi_autoregressive", **options}
    made = Sampling.of(steps=8).with_defaults(model).sampler_for(model.method)
    assert (made.name, made.cache, made.block_length, made.inner.per_step) == ("semi_autoregressive", "dual", 16, 4)


@torch.no_grad()
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_cache_keeps_what_the_network_computes_in_its_precision(precision):
    torch.manual_seed(0)
    method = build("mdlm", K, Net(2, 16, 2, L)).eval().compute_in(precision)
    x = torch.randint(K, (2, L))
    h, reading = method.read_whole(x)
    assert torch.equal(h, method.hidden(x, None))
    part = method.reread(x[:, 4:8], 4, reading)
    assert part.dtype == h.dtype
    torch.testing.assert_close(part, h[:, 4:8], rtol=0.05, atol=0.05)
    *_, state = run(SemiAutoregressive(AnyOrder(2), S, cache="dual"), method, (2, L), None)
    assert int(state.x.max()) < K
