"""Networks of blocks: who sees whom, two streams in one pass, and what is remembered is what would be read again."""

import itertools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.methods import MDLM
from zellige.methods.diffusion import summed
from zellige.nn import DiT, Net, attention
from zellige.nn.block import ShortConv

K, L = 5, 12
KINDS = [(0, False), (0, True), (3, False), (7, True)]  # kernel of the convolution, whether the network has a time


def network(block, conv=0, time=False, length=L, layers=2, seed=0, **more):
    torch.manual_seed(seed)
    size = Net(layers=layers, hidden=32, heads=2, length=length, conv=conv, condition=16, **more)
    net = DiT(size, K, time=time, block=block)
    with torch.no_grad():
        for p in net.parameters():  # what starts at zero, too
            p += 0.1 * torch.randn_like(p)
    return net.double().eval()


def tokens(*shape, seed=1):
    return torch.randint(K, shape, generator=torch.Generator().manual_seed(seed))


def times(time, rows):
    return torch.linspace(0.2, 0.9, rows, dtype=torch.float64) if time else None


def near(a, b, tolerance=1e-10):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------------------------- who sees whom
def seen(i, j, block, document, streams):
    """The definition. Positions of two streams are 0 .. L - 1, noisy, and L .. 2L - 1, clean."""
    n = len(document)
    start = [document.index(d) for d in document]
    block_of = [(p - start[p]) // block for p in range(n)]
    (query_clean, q), (key_clean, k) = divmod(i, n), divmod(j, n)
    if streams == 1:
        query_clean = key_clean = 1
    if document[q] != document[k]:
        return False
    if not query_clean:
        return block_of[k] < block_of[q] if key_clean else block_of[k] == block_of[q]
    return bool(key_clean) and block_of[k] <= block_of[q]


def mask(block, document, streams):
    n = streams * len(document)
    return torch.tensor([[seen(i, j, block, document, streams) for j in range(n)] for i in range(n)])


DOCUMENTS = [[0] * L, [0] * 5 + [1] * 6 + [2], [0] * 3 + [1] * 9]


@pytest.mark.parametrize("conv", [0, 5])
@pytest.mark.parametrize("block", [1, 2, 3, 5])
def test_a_position_depends_on_what_it_sees_and_on_nothing_else(block, conv):
    """The gradient by the embedding of what is not seen is exactly zero; by all else it is not."""
    net = network(block, conv)
    inputs = []
    net.embedding.register_forward_hook(lambda m, i, out: inputs.append(out.requires_grad_()))
    for document, streams in itertools.product(DOCUMENTS, (1, 2)):
        segments = None if document is DOCUMENTS[0] else torch.tensor([document])
        out = net(tokens(1, L), segments=segments, clean=tokens(1, L, seed=2) if streams == 2 else None)
        rows = [torch.autograd.grad(out[0, i].sum(), inputs[-1], retain_graph=True)[0] for i in range(L)]
        depends = torch.stack([(row != 0).any(-1).flatten() for row in rows])
        assert torch.equal(depends, mask(block, document, streams)[:L]), (document, streams)


@pytest.mark.parametrize("way", ["kernels", "products", "loop"])
@pytest.mark.parametrize("chunk", [2, 4, 128])
@pytest.mark.parametrize("block", [0, 1, 3, 4, 7])
def test_attention_in_chunks_equals_the_dense_mask(block, chunk, way, monkeypatch):
    """Value and gradient, however it is cut, by a CPU's kernels, by matrix products or the plain loop."""
    monkeypatch.setattr(attention, "CHUNK", chunk)
    if way == "products":
        monkeypatch.setattr(attention, "PRODUCTS", (torch.float64,))
        monkeypatch.setattr(attention, "SCORES", 40)
    elif way == "loop":
        monkeypatch.setattr(attention, "FORWARD", None)
    generator = torch.Generator().manual_seed(0)
    for streams, documents in itertools.product((1, 2) if block else (1,), (DOCUMENTS[:1] * 2, DOCUMENTS[1:])):
        q, k, v = (torch.randn(2 * streams, 3, L, 8, generator=generator).double().requires_grad_() for _ in range(3))
        segments = None if documents[0] == documents[1] else torch.tensor(documents)
        plan = attention.sight(block, streams, tokens(2, L), segments).plan
        fast = attention.attend(q, k, v, plan)
        dense = torch.stack([mask(block or L, document, streams) for document in documents])[:, None]
        one = [torch.cat(y.split(2), 2) for y in (q, k, v)]
        slow = torch.cat(F.scaled_dot_product_attention(*one, attn_mask=dense).split(L, 2))
        near(fast, slow, 1e-12)
        weight = torch.randn(fast.shape, generator=generator).double()
        for a, b in zip(*(torch.autograd.grad((y * weight).sum(), (q, k, v)) for y in (fast, slow))):
            near(a, b, 1e-12)


@pytest.mark.parametrize("L", [5, 130])
def test_attention_in_bfloat16_rounds_little_more_than_the_kernel(L):
    """By matrix products, whose scores are rounded too: the error of values and gradients is at most 2.5 times that of
    PyTorch's kernel, by the root of the mean square. After 3 remembered positions."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, n, 16, generator=generator).bfloat16().requires_grad_() for n in (L, L + 3, L + 3))
    weight = torch.randn(q.shape, generator=generator)

    def of(attend, *inputs):
        out = attend(*inputs)
        return [out, *torch.autograd.grad((out * weight.to(out.dtype)).sum(), inputs)]

    products = of(lambda *inputs: attention.attend(*inputs, None), q, k, v)
    kernel = of(F.scaled_dot_product_attention, q, k, v)
    exact = of(F.scaled_dot_product_attention, *(y.detach().double().requires_grad_() for y in (q, k, v)))
    for a, b, c in zip(products, kernel, exact):
        assert a.dtype == torch.bfloat16
        assert (a - c).square().mean() < 2.5**2 * (b - c).square().mean()


@pytest.mark.parametrize("block", [0, 2])
def test_no_row_of_documents_is_attended_by_nobody(block):
    """As in a batch of packed rows of which none is left."""
    plan = attention.sight(block, 1, tokens(0, L), torch.zeros(0, L, dtype=torch.long)).plan
    q = torch.zeros(0, 3, L, 8)
    assert attention.attend(q, q, q, plan).shape == q.shape


@pytest.mark.parametrize("L", [5, 130])
def test_attention_in_bfloat16_is_that_of_float32_but_for_rounding(L):
    """By matrix products, after 3 remembered positions; three significant digits, also of the gradients."""
    q, k, v = (torch.randn(2, 3, n, 16).to(torch.bfloat16).requires_grad_() for n in (L, L + 3, L + 3))
    low = attention.attend(q, k, v, None)
    high = F.scaled_dot_product_attention(*(y.float() for y in (q, k, v)))
    assert low.dtype == torch.bfloat16
    near(low.float(), high, 0.02)
    for a, b in zip(*(torch.autograd.grad(y.float().square().sum(), (q, k, v)) for y in (low, high))):
        near(a.float(), b.float(), 0.02 * max(1, float(b.abs().max())))


@pytest.mark.parametrize("length", [L, 126, 128, 300])
@pytest.mark.parametrize("block", [1, 3, 4, 7])
def test_the_mask_of_a_gpu_is_the_dense_mask(block, length):
    """Between positions that are there; no position sees one that only fills up a tile, and each sees something."""
    for streams in (1, 2):
        made, padded = attention.tiles(length, block, streams, torch.device("cpu"))
        at = torch.arange(padded * streams)
        found = made.mask_mod(0, 0, at[:, None], at).view(streams, padded, streams, padded)
        fine = torch.arange(length) // block
        clean = fine <= fine[:, None]
        noisy = torch.cat((fine == fine[:, None], fine < fine[:, None]), 1)
        expected = clean if streams == 1 else torch.cat((noisy, torch.cat((torch.zeros_like(clean), clean), 1)))
        assert torch.equal(found[:, :length, :, :length].reshape(expected.shape), expected)
        if length == L:
            assert torch.equal(expected, mask(block, DOCUMENTS[0], streams))
        assert not found[..., length:].any()
        assert found.any(-1).any(-1).all()


@pytest.mark.parametrize("block", [2, 5])
def test_attention_after_remembered_places_equals_the_dense_mask(block, monkeypatch):
    monkeypatch.setattr(attention, "CHUNK", 4)
    valid = torch.tensor([[False] * 3 + [True] * 3, [True] * 6])
    q, k, v = (torch.randn(2, 3, n, 8).double() for n in (L, L + 6, L + 6))
    for able in (valid, torch.ones_like(valid)):
        own = mask(block, DOCUMENTS[0], 1).expand(2, L, L)
        dense = torch.cat((able[:, None].expand(2, L, 6), own), -1)[:, None]
        fast = attention.attend(q, k, v, attention.sight(block, 1, tokens(2, L), None, able.shape[1], able).plan)
        near(fast, F.scaled_dot_product_attention(q, k, v, attn_mask=dense), 1e-12)


@pytest.mark.parametrize("kernel", [1, 3, 7])
@pytest.mark.parametrize("block", [1, 2, 4, 5, 20])
def test_the_convolution_reads_what_may_be_seen(block, kernel):
    """Value and gradient, against a loop over what is seen; in documents too."""
    D, generator = 4, torch.Generator().manual_seed(0)
    conv = ShortConv(D, kernel).double()
    nn.init.normal_(conv.weight, generator=generator)
    for document, streams in itertools.product(DOCUMENTS, (1, 2)):
        x = torch.randn(streams, L, D, generator=generator).double().requires_grad_()
        segments = None if document is DOCUMENTS[0] else torch.tensor([document])
        out, expected = conv(x, attention.sight(block, streams, tokens(1, L), segments)), torch.zeros(streams * L, D)
        visible, flat, expected = mask(block, document, streams), x.flatten(0, 1), [0.0] * (streams * L)
        for i, j in visible.nonzero().tolist():
            if abs(tap := j % L - i % L) <= kernel // 2:
                expected[i] = expected[i] + conv.weight[tap + kernel // 2] * flat[j]
        expected = torch.stack(expected).view_as(out)  # pyright: ignore
        near(out, expected, 1e-12)
        weight = torch.randn(out.shape, generator=generator).double()
        for a, b in zip(*(torch.autograd.grad((y * weight).sum(), (x, conv.weight)) for y in (out, expected))):
            near(a, b, 1e-12)


# ---------------------------------------------------------------------------------- the same in other ways
@pytest.mark.parametrize(("conv", "time"), KINDS)
@pytest.mark.parametrize("block", [1, 2, 3, 5, 8])
def test_two_streams_equal_block_after_block(block, conv, time):
    """One pass over [x_t; x_0] gives each block what a pass over the clean blocks before it and itself gives, with a cache
    or without; the clean stream is what a pass over x_0 gives."""
    net, x_0, x_t, t = network(block, conv, time), tokens(3, L), tokens(3, L, seed=2), times(time, 3)
    two, clean, cache = net(x_t, t, clean=x_0), net(x_0, t), None
    told, given = network(block, conv, time, given=True), tokens(3, L, seed=4) > 2  # which noisy tokens are given
    shown, read = told(x_t, t, clean=x_0, given=given), None
    for i in range(0, L, block):
        here = slice(i, min(i + block, L))
        near(net(torch.cat((x_0[:, :i], x_t[:, here]), 1), t)[:, here], two[:, here])
        near(net(x_t[:, here], t, cache=cache), two[:, here])
        near(told(x_t[:, here], t, cache=read, given=given[:, here]), shown[:, here])
        if i + block <= L:
            hidden, cache = net.advance(cache, x_0[:, here], t)
            near(net.head(hidden), clean[:, here])
            read = told.extend(read, x_0[:, here], t)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("conv", "time"), KINDS)
@pytest.mark.parametrize("block", [1, 2, 3, 5, 8])
def test_cached_equals_uncached(block, conv, time, dtype, tolerance):
    """Prompts of any lengths in one batch; what follows is read one block or several at a time."""
    net, t = network(block, conv, time, length=64).to(dtype), times(time, 4)
    lengths = torch.tensor([3, 0, 1, 2]) * block
    n = int(lengths.max())
    prompt, later, x = tokens(4, n), tokens(4, 2 * block, seed=2), tokens(4, block, seed=3)
    valid = torch.arange(n) >= n - lengths[:, None]
    first = net.extend(None, prompt, t, valid)
    assert (len(first), first.place.tolist()) == (n, lengths.tolist())
    at_once = net.extend(first, later, t)
    by_one = net.extend(net.extend(first, later[:, :block], t), later[:, block:], t)
    for row, length in enumerate(lengths.tolist()):
        own, told = prompt[row, n - length :][None], None if t is None else t[row : row + 1]
        alone = net(torch.cat((own, later[row][None], x[row][None]), 1), told)[0]
        for cache in (at_once, by_one):
            near(net(x, t, cache=cache)[row], alone[-block:], tolerance)
        near(net(later, t, cache=first)[row], alone[length:-block], tolerance)
        near(net(later[:, :block], t, cache=first)[row], alone[length : length + block], tolerance)
        some = at_once.take(torch.tensor([row, 0]))
        two = None if t is None else t[[row, 0]]
        near(net(x[[row, 0]], two, cache=some)[0], alone[-block:], tolerance)


def test_dilated_convolutions_read_no_more_of_a_cache_than_they_reach():
    net, x, seen = DiT(Net(3, 8, 2, 40, kind="conv", conv=5), K, block=1).double(), tokens(2, 33), []
    for p in net.parameters():
        nn.init.normal_(p, std=0.4)
    whole, (_, cache) = net.features(x), net.advance(None, x[:, :30])
    for block in net.blocks:
        block.dilated.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0].shape[1]))
    near(net.features(x[:, 30:], cache=cache), whole[:, 30:])
    assert seen == [3 + 4 * 2**i for i in range(3)]


@pytest.mark.parametrize(("conv", "time"), KINDS)
def test_one_block_is_the_bidirectional_network(conv, time):
    """Value and gradient; the parameters have the same names, so one network's weights are the other's."""
    x, t = tokens(3, L), times(time, 3)
    free = network(0, conv, time)
    found = []
    for block in (0, L, 2 * L):
        net = DiT(free.net, K, time=time, block=block).double()
        net.load_state_dict(free.state_dict())
        out = net(x, t, **({"clean": tokens(3, L, seed=2)} if block else {}))
        out.square().sum().backward()
        found.append([out.detach(), *(p.grad for p in net.parameters())])
    for other in found[1:]:
        for a, b in zip(found[0], other):
            near(a, b)


@pytest.mark.parametrize(("conv", "time"), KINDS)
@pytest.mark.parametrize("block", [1, 2, 4])
def test_packed_documents_equal_each_alone(block, conv, time):
    net, cuts, t = network(block, conv, time), [5, 6, 1], times(time, 1)
    x_t, x_0 = tokens(1, L), tokens(1, L, seed=2)
    segments = torch.repeat_interleave(torch.tensor([3, 0, 7]), torch.tensor(cuts))[None]
    two, one = net(x_t, t, segments=segments, clean=x_0), net(x_t, t, segments=segments)
    for noisy, clean, a, b in zip(*(y.split(cuts, 1) for y in (x_t, x_0, two, one))):
        near(net(noisy, t, clean=clean), a, 1e-6)  # rotary angles are float32 numbers
        near(net(noisy, t), b, 1e-6)
    padded = torch.tensor([[0] * 7 + [1] * 5])
    near(net(x_t, t, segments=padded, clean=x_0)[:, :7], net(x_t[:, :7], t, clean=x_0[:, :7]))  # which begin alike


@pytest.mark.parametrize("conv", [0, 3])
def test_text_may_pass_the_length(conv):
    short, long = network(2, conv, length=4), network(2, conv, length=40)
    long.load_state_dict(short.state_dict())
    x, cache = tokens(2, 20), None
    for i in range(0, 18, 2):
        cache = short.extend(cache, x[:, i : i + 2])
    near(short(x[:, 18:], cache=cache), long(x)[:, 18:])


def test_a_window_of_one_layer_is_the_end_of_the_text():
    """A layer's keys depend on nothing but their token, and its sight on differences of positions."""
    net, x = network(2, layers=1, length=40), tokens(2, 20)
    cache = net.extend(None, x[:, :18])
    window = cache.last(6)
    assert (len(window), len(cache.last(0)), len(cache.last(99))) == (6, 0, 18)
    near(net(x[:, 18:], cache=window), net(x[:, 12:])[:, 6:], 1e-6)
    near(net(x[:, 18:], cache=cache.last(0)), net(x[:, 18:]), 1e-6)
    assert (net(x[:, 18:], cache=window) - net(x[:, 18:], cache=cache)).abs().max() > 1e-3


def test_a_cache_is_a_value():
    net, x = network(3, conv=3), tokens(4, 9)
    cache = net.extend(None, x[:, :6], valid=torch.tensor([[False] * 3 + [True] * 3] * 4))
    before = [y.clone() for y in (*cache.keys, *cache.values, *cache.tails, cache.valid, cache.place)]
    net(x[:, 6:], cache=cache)
    longer = net.extend(cache, x[:, 6:])
    assert all(map(torch.equal, before, (*cache.keys, *cache.values, *cache.tails, cache.valid, cache.place)))
    assert (len(longer), longer.place.tolist()) == (9, [6] * 4)
    assert cache.take(torch.arange(4)) is cache
    assert [cache.empty, net.extend(None, x[:, :3], valid=x[:, :3] < 0).empty] == [False, True]


@torch.no_grad()
def test_what_comes_next_is_written_behind_what_is_there():
    """Nothing that was read is copied, until a text passes the room; what one cache writes no other sees."""
    net, x = network(2, conv=3), tokens(3, L)
    caches = [net.extend(None, x[:, :4])]
    for i in range(4, L - 2, 2):
        caches.append(net.extend(caches[-1], x[:, i : i + 2]))
    assert len({keys.data_ptr() for cache in caches for keys in cache.keys}) == len(net.blocks)
    before = [keys.clone() for keys in caches[-1].keys]
    scratch = net(x[:, L - 2 :], cache=caches[-1])  # in the room too, and nobody's
    near(scratch, net(x)[:, L - 2 :])
    y = x.flip(1)
    twice = [net.extend(caches[-1], of[:, :2]) for of in (x, y)]  # the second finds the room taken, and goes elsewhere
    for of, cache in zip((x, y), twice):
        whole = torch.cat((x[:, : L - 2], of[:, :2]), 1)
        for ours, alone in zip(cache.keys, net.extend(None, whole).keys):
            near(ours, alone)
    old = net.extend(caches[0], y[:, :2])
    near(old.keys[-1], net.extend(None, torch.cat((x[:, :4], y[:, :2]), 1)).keys[-1])
    assert all(map(torch.equal, before, caches[-1].keys))
    window, plain = twice[0].last(4), None
    for i in range(0, 3 * L, 2):  # through the end of the room, and of the next
        window = net.extend(window, x[:, i % L : i % L + 2]).last(4)
        with torch.enable_grad():  # without room
            plain = net.extend(plain or without_room(twice[0]).last(4), x[:, i % L : i % L + 2]).last(4)
        near(window.keys[-1], plain.keys[-1].detach())
        near(window.values[0], plain.values[0].detach())
        assert window.rooms
        assert not plain.rooms


def without_room(cache):
    return replace(cache, rooms=(), end=0)


def test_the_clean_stream_may_have_a_time_of_its_own():
    """As a cache does that was made at that time; and each position of x_t may have one."""
    net, x_0, x_t = network(4, conv=3, time=True), tokens(2, L), tokens(2, L, seed=2)
    t, s = times(True, 2), torch.tensor([0.0, 0.4], dtype=torch.float64)
    cache = net.extend(None, x_0[:, :8], s)
    two = net(x_t, t, clean=x_0, clean_time=s)
    near(net(x_t[:, 8:], t, cache=cache), two[:, 8:])
    each = torch.stack([t, t / 2, t], 1).repeat_interleave(4, 1)
    mixed = net(x_t, each, clean=x_0, clean_time=s)
    near(mixed[:, 8:], two[:, 8:])
    near(mixed[:, 4:8], net(x_t, t / 2, clean=x_0, clean_time=s)[:, 4:8])
    assert (mixed - two)[:, 4:8].abs().min() > 1e-6


def test_a_method_tells_each_block_the_time_of_its_noise():
    """Given positions carry none, so they do not count; in a network without blocks the whole row is one block."""
    t = torch.tensor([[0.2, -1.0, 0.5, 0.5, 0.9, -1.0]], dtype=torch.float64).expand(2, 6)
    for block, told in ((2, [0.2, 0.2, 0.5, 0.5, 0.9, 0.9]), (4, [0.5] * 4 + [0.9] * 2), (6, 0.9), (0, 0.9)):
        method = MDLM(network(block, time=True, length=6), K - 1, (6,), MDLM.Config(time=True))
        expected = method.network_time(torch.tensor(told, dtype=torch.float64))
        torch.testing.assert_close(
            method.input_times(tokens(2, 6), t, None), expected.expand(2, *[6] * (block in (2, 4)))
        )


def test_a_method_takes_a_time_for_each_position():
    """With the time of the row at every position, the bound is that of the row's time."""
    net = network(0, time=True, length=6)
    method, batch, t = MDLM(net, K - 1, (6,), MDLM.Config(time=True)), Batch(tokens(3, 6) % 4), times(True, 3)
    x_t, s = method.corrupt(batch, t[:, None], torch.Generator().manual_seed(0)), t / 2
    wide = [y[:, None].expand(3, 6) for y in (t, s)]
    for bound in (method, super(MDLM, method)):
        near(bound.continuous_bound(batch, x_t, t), bound.continuous_bound(batch, x_t, wide[0]))
        near(bound.discrete_bound(batch, x_t, t, s), bound.discrete_bound(batch, x_t, *wide))
    near(summed(method, method.cost, batch, x_t, t, s), summed(method, method.cost, batch, x_t, *wide))


@pytest.mark.parametrize("time", [False, True])
def test_blocks_in_training(time):
    """Recomputing layers changes no gradient, compiling no value, and in bfloat16 the residual stream stays float32."""
    x_0, x_t, t = tokens(2, L), tokens(2, L, seed=2), times(time, 2)
    found = []
    for again in (False, True):
        net = network(4, 3, time, checkpoint=again).train()
        net(x_t, t, clean=x_0).square().sum().backward()
        found.append([p.grad for p in net.parameters()])
    torch.testing.assert_close(*found)
    net, t = network(4, 3, time).float(), None if t is None else t.float()
    exact = net.features(x_t, t, clean=x_0)
    whole = torch.compile(net.features, backend="eager", fullgraph=True)
    torch.testing.assert_close(whole(x_t, t, clean=x_0), exact)
    with torch.autocast("cpu", torch.bfloat16):
        low = net.features(x_t, t, clean=x_0)
        cached = net.features(x_t[:, 8:], t, cache=net.extend(None, x_0[:, :8], t))
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, exact, atol=0.2, rtol=0.1)
    torch.testing.assert_close(cached, exact[:, 8:], atol=0.2, rtol=0.1)


# ---------------------------------------------------------------------------------- what is said
@pytest.mark.parametrize(
    ("block", "call", "said"),
    [
        (0, lambda net, x: net(x, clean=x), "no blocks, so it reads nothing but x"),
        (0, lambda net, x: net.extend(None, x), "no blocks, so it remembers nothing"),
        (4, lambda net, x: net(x, clean=x[:, :4]), r"clean tokens are \(2, 4\), the noisy ones \(2, 12\)"),
        (4, lambda net, x: net.extend(None, x[:, :6]), "6 tokens are not whole blocks of 4"),
        (4, lambda net, x: net(x[:1, :4], cache=net.extend(None, x[:, :4])), "cache is of 2 rows and the input of 1"),
        (4, lambda net, x: net.extend(net.extend(None, x[:, :4]), x[:1, :4]), "cache is of 2 rows"),
        (4, lambda net, x: net(x[:, :4], clean=x[:, :4], cache=net.extend(None, x[:, :4])), "without clean tokens"),
        (4, lambda net, x: net(x[:, :4], segments=x[:, :4], cache=net.extend(None, x[:, :4])), "without segments"),
        (4, lambda net, x: net.extend(None, x, valid=(x >= 0) & (torch.arange(L) < 8)), "shorter rows begin"),
        (4, lambda net, x: net.extend(None, x, valid=(x >= 0) & (torch.arange(L) > 1)), "10 tokens are not whole"),
    ],
)
def test_what_does_not_fit_is_said(block, call, said):
    with pytest.raises(InputError, match=said):
        call(network(block), tokens(2, L))


@pytest.mark.parametrize(("size", "block"), [({"grid": (3, 4)}, 4), ({}, -1)])
def test_impossible_blocks_are_said(size, block):
    with pytest.raises(InputError, match="block"):
        DiT(Net(layers=1, hidden=32, heads=2, length=L, **size), K, block=block)
