"""Methods of blocks small enough to be enumerated, and networks that count what they are asked or that remember only tokens."""

import torch
from torch import nn

from testing.worlds import numbers
from zellige import exact
from zellige.core.curves import Linear
from zellige.core.process import absorbing
from zellige.core.schedule import CLEAN
from zellige.methods import AR
from zellige.methods.absorbing import Masked
from zellige.nn import DiT, Net, Table
from zellige.nn.attention import Cache
from zellige.samplers.pairing import of_length

V, L = 2, 4


def table(block, time=False, length=L, **more):
    network = Table(V + 1, length, time=time, block=block, **more).double()
    with torch.no_grad():
        network.logits.copy_(3 * numbers(*network.logits.shape, seed=block) - 1.5)
    return network


class Timed(Masked):
    name = "timed"

    def network_time(self, t):
        return 2 * t


def masked(network, length=L, vocabulary=V):
    return Timed(network, vocabulary, (length,), None, Linear(1e-2), network.time_conditioned)


def transformer(block, length=16, vocabulary=5, time=False, layers=2, conv=3, **more):
    """In float64, with weights large enough that contexts matter."""
    torch.manual_seed(3)
    net = Net(layers=layers, hidden=16, heads=2, length=length, conv=conv)
    network = DiT(net, vocabulary + 1, time, block=block, **more).double()
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return network.eval()


def ar(length=16, vocabulary=5):
    return AR(transformer(1, length, vocabulary, outputs=vocabulary), vocabulary, (length,))


def tokens(cache):
    return cache.keys[0][:, 0, :, 0]


def remember(cache, x):
    """A cache of the tokens themselves."""
    x, place = (x, 0) if cache is None else (torch.cat((tokens(cache), x), 1), cache.place)
    n = x.shape[1] if cache is None else x.shape[1] - len(cache)
    return Cache((x[:, None, :, None],), (), (), torch.ones_like(x, dtype=torch.bool), place + x.new_full((len(x),), n))


class Uncached(nn.Module):
    """The same network, asked about the whole text each time: what it would say had it no cache."""

    def __init__(self, network):
        super().__init__()
        self.network, self.block, self.time_conditioned = network, network.block, network.time_conditioned

    def features(self, x, time=None, *, cache=None, **more):
        before = x[:, :0] if cache is None else tokens(cache)
        if time is not None:
            time = torch.cat((torch.zeros_like(before) * 1.0, time[:, None].expand(x.shape)), 1)
        return self.network.features(torch.cat((before, x), 1), time, **more)[:, before.shape[1] :]

    def extend(self, cache, x, time=None, valid=None):
        return remember(cache, x)

    def advance(self, cache, x, time=None, valid=None):
        return self.features(x, time, cache=cache), remember(cache, x)

    def head(self, h):
        return self.network.head(h)


class Counting(nn.Module):
    """Counts the positions that the network works on, and how many it sees at most."""

    def __init__(self, network):
        super().__init__()
        self.network, self.block, self.time_conditioned = network, network.block, network.time_conditioned
        self.asked, self.sees = [], 0

    def _count(self, x, cache):
        self.asked.append(x.numel())
        self.sees = max(self.sees, x.shape[1] + (0 if cache is None else len(cache)))

    def features(self, x, time=None, *, cache=None, **more):
        self._count(x, cache)
        return self.network.features(x, time, **({} if cache is None else {"cache": cache}), **more)

    def advance(self, cache, x, time=None, valid=None):
        self._count(x, cache)
        return self.network.advance(cache, x, time, valid)

    def extend(self, cache, x, time=None, valid=None):
        return self.advance(cache, x, time, valid)[1]

    def head(self, h):
        return self.network.head(h)


class Exact(exact.Denoiser):
    """The truth about a block given the blocks before, for a known distribution of the data; later blocks are masked."""

    block = 0

    def __init__(self, distribution, length, block):
        super().__init__(absorbing(V + 1, Linear()), distribution, length)
        self.block = block

    def predict(self, x_t, t, *, at=None, condition=None, context=None, segments=None):
        P = 0 if context is None else len(context)
        x, place = torch.full((len(x_t), self.window), V), slice(P, P + x_t.shape[1])
        time, where = torch.ones(x.shape, dtype=torch.float64), torch.zeros_like(x, dtype=torch.bool)
        if context is not None:
            x[:, :P], time[:, :P] = tokens(context), CLEAN
        x[:, place], time[:, place], where[:, place] = x_t, t, at
        return super().predict(x, time, at=where)

    def extend(self, cache, x, valid=None):
        return remember(cache, x)


def after(method, prefix, length):
    """The method of the next `length` tokens, whose network is asked about `prefix` (P,) and them in one stream."""
    inside, P = of_length(method, length), len(prefix)

    def predict(x_t, t, *, at, **_):
        whole = torch.cat((prefix.expand(len(x_t), -1), x_t), 1)
        time = torch.cat(
            (torch.full((len(x_t), P), CLEAN, dtype=torch.float64), torch.as_tensor(t).expand(x_t.shape)), 1
        )
        return method.predict(whole, time, at=nn.functional.pad(at, (P, 0), value=False))

    inside.predict = predict
    return inside


def by_blocks(method, inner, block, steps, fixed=None):
    """The product over blocks of the distribution of `inner`, (V^L,): each from transition matrices, the network without a
    cache."""
    distribution, fixed = torch.ones(1, dtype=torch.float64), torch.full((L,), -1) if fixed is None else fixed
    clean = (exact.states(V + 1, block) < V).all(-1)
    for start in range(0, L, block):
        here = fixed[start : start + block]
        distributions = [
            exact.sample_distribution(inner, after(method, prefix, block), steps, here)[clean]
            for prefix in exact.states(V, start)
        ]
        distribution = (distribution[:, None] * torch.stack(distributions)).reshape(-1)
    return distribution
