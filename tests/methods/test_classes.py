"""Networks that are told a class: every method and sampler is then exactly that of a network which knows that class alone."""

import pytest
import torch
from torch import nn

from testing import small
from testing.worlds import L, V, data_distribution
from zellige import exact
from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.methods import MDLM, METHODS, UDLM
from zellige.samplers import SAMPLERS, choose_sampler, run
from zellige.samplers.pairing import of_length

CLASSES = 3
close = torch.testing.assert_close


class Fixed(nn.Module):
    """A network with classes as one without, that always says what the other says of `label`."""

    def __init__(self, network, label):
        super().__init__()
        self.network, self.label = network, label

    def __getattr__(self, name):
        return super().__getattr__(name) if name in ("network", "label") else getattr(self.network, name)

    def _all(self, x):
        return torch.full((len(x),), self.label)

    def features(self, x, time=None, *, condition=None, **more):
        assert condition is None
        return self.network.features(x, time, condition=self._all(x), **more)

    def head(self, h):
        return self.network.head(h)

    def advance(self, cache, x, time=None, valid=None):
        return self.network.advance(cache, x, time, valid, self._all(x))

    def extend(self, cache, x, time=None, valid=None):
        return self.network.extend(cache, x, time, valid, self._all(x))


def conditional(name, choices=None):
    return small.make(name, choices, classes=CLASSES)


def knows(name, label, choices=None):
    method = conditional(name, choices)
    method.network = Fixed(method.network, label)
    return method


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


VARIANTS = [
    pytest.param(name, choices, marks=pytest.mark.long if name == "d3pm" and len(choices) > 1 else [])
    for name, cls in METHODS.items()
    for choices in cls.variants
]


@pytest.mark.parametrize(("name", "choices"), VARIANTS, ids=lambda value: str(value))
def test_bound_and_loss_given_the_class(name, choices):
    """Row by row those of the network that knows only the row's class, and -1 is the last class: none."""
    x = torch.randint(0, small.V, (12, small.LENGTH), generator=generator(5))
    condition = torch.arange(12) % (CLASSES + 1)
    method = conditional(name, choices)
    draws = ["loss", *(["bound"] if method.bounded else [])]
    for what in draws:
        told = Batch(x, condition=condition)
        ours = getattr(method, what)(told, generator())
        none = getattr(method, what)(Batch(x, condition=torch.where(condition == CLASSES, -1, condition)), generator())
        assert torch.equal(ours, none)
        for label in range(CLASSES + 1):
            theirs = getattr(knows(name, label, choices), what)(Batch(x), generator())
            close(ours[condition == label], theirs[condition == label], rtol=1e-9, atol=1e-9)
    for key, estimator in method.estimators().items():
        ours = estimator(Batch(x[:4], condition=condition[:4]), generator())
        for label in range(4):
            theirs = knows(name, label, choices).estimators()[key](Batch(x[:4]), generator())
            close(ours[label], theirs[label], rtol=1e-9, atol=1e-9)
    other = method.loss(Batch(x, condition=(condition + 1) % (CLASSES + 1)), generator())
    assert not torch.allclose(other, method.loss(Batch(x, condition=condition), generator()))


MANY = ("tauldr", "udlm", "bd3lm", "md4")  # network evaluations, or as those of another
PAIRS = [
    pytest.param(sampler, name, marks=[pytest.mark.long] if sampler == "uniformisation" and name in MANY else [])
    for sampler, cls in SAMPLERS.items()
    for name in METHODS
    if cls.reason_against(conditional(name)) is None
]


@pytest.mark.parametrize(("sampler", "name"), PAIRS)
def test_samples_given_the_class(sampler, name):
    """Each row is the one that the network which knows its class draws from the same random numbers, bit for bit."""
    method, rows = conditional(name), 8
    how = choose_sampler(sampler, method)
    condition = torch.arange(rows) % (CLASSES + 1)
    streams = lambda: [generator(100 + i) for i in range(rows)]  # noqa: E731
    length = method.shape[0]
    fixed = torch.full((rows, length), -1)
    fixed[:, :2] = torch.arange(rows)[:, None] % small.V
    try:
        how.admit(method, fixed)
    except InputError:
        fixed = None
    *_, ours = run(how, method, (rows, length), 4, generator=streams(), condition=condition, fixed=fixed)
    for label in range(CLASSES + 1):
        one = knows(name, label)
        *_, theirs = run(choose_sampler(sampler, one), one, (rows, length), 4, generator=streams(), fixed=fixed)
        assert torch.equal(ours.x[condition == label], theirs.x[condition == label])
    assert ours.condition.tolist() == condition.tolist()


def test_a_longer_text_keeps_its_class():
    """Blocks and windows: what is read again and remembered is read with the class of its row, also where rows have ended."""
    for name, sampler in (("bd3lm", "blockwise"), ("ar", "left_to_right")):
        method, streams = conditional(name), lambda: [generator(i) for i in range(6)]
        length = 2 * method.shape[0]
        end = {"end": 1}
        condition = torch.tensor([0, 1, 2, 3, 0, 1])
        how = choose_sampler(sampler, method, options=dict(end))
        *_, ours = run(how, of_length(method, length), (6, length), 4, generator=streams(), condition=condition)
        for label in range(CLASSES + 1):
            one = knows(name, label)
            *_, theirs = run(
                choose_sampler(sampler, one, options=dict(end)),
                of_length(one, length),
                (6, length),
                4,
                generator=streams(),
            )
            assert torch.equal(ours.x[condition == label], theirs.x[condition == label])


# ---------------------------------------------------------------------------------------------------- by enumeration
class Posterior(nn.Module):
    """The exact network of several data distributions (C, V^L), one for each class: log p(x_0^i | x_t at the other places,
    class)."""

    block = 0

    def __init__(self, distributions, states):
        super().__init__()
        self.distributions, self.states, self.X = distributions, states, exact.states(V, L)

    def features(self, x, time=None, *, segments=None, condition=None):
        distribution = self.distributions[torch.full((len(x),), -1) if condition is None else condition]  # (B, M)
        same = (x[:, :, None] == self.X.T).double()  # (B, L, M)
        if time is None:
            each = torch.where(x[:, :, None] == V, 1.0, same)
        else:
            alpha = torch.exp(-time.double()).reshape(len(x), -1, 1)
            each = alpha * same + (1 - alpha) / V
        joint = distribution[:, None] * torch.stack([each[:, 1], each[:, 0]], 1)  # L = 2: the other place
        mass = torch.stack([(joint * self.X.T.eq(k)).sum(-1) for k in range(V)], -1)
        logits = (mass / mass.sum(-1, keepdim=True)).log()
        return torch.nn.functional.pad(logits, (0, self.states - V), value=-1e9)

    def head(self, h):
        return h


@pytest.mark.parametrize("name", ["mdlm", "udlm"])
def test_the_bound_given_the_class_is_minus_log_p_given_the_class(name):
    """Two classes that decide the distribution, the exact network: the bound, enumerated, is -log p(x | c), and of none -log
    p(x).

    With a mask the orders are averaged over, and each gives p itself; uniform noise is undone by its exact reverse process, so
    that the bound is tight too. The tolerance is what the log-linear schedule, which ends at alpha = 1e-3, leaves at the ends.
    """
    first, second = data_distribution(seed=1), data_distribution(seed=2)
    assert float((first - second).abs().sum()) > 0.3
    distributions = torch.stack([first, second, (first + second) / 2])
    x = exact.states(V, L)
    for label, distribution in ((0, first), (1, second), (-1, distributions[2])):
        network = Posterior(distributions, V + 1 if name == "mdlm" else V)
        method = MDLM(network, V, (L,)) if name == "mdlm" else UDLM(network, V, (L,))

        def draw(batch, script, method=method, label=label):
            return method.bound(Batch(batch.tokens, condition=torch.full((len(batch),), label)), script)

        bound = exact.expectation(draw, x)
        tolerance = 1e-5 if name == "mdlm" else 5e-3
        close(bound, -distribution.log(), rtol=0, atol=tolerance)
        other = distributions[1 - label if label >= 0 else 0]
        assert float((bound + other.log()).abs().max()) > 0.1  # and not that of the other class
    with pytest.raises(InputError, match="condition must say a class of 0 to 2 for each of 2 rows, or -1 for none"):
        conditional("mdlm").bound(Batch(torch.zeros(2, small.LENGTH, dtype=torch.long), condition=torch.tensor([0, 4])))
