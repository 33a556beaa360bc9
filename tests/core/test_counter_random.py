"""Random numbers that count, and positions in a fixed number of places."""

import math

import pytest
import torch

from zellige.base.errors import InputError
from zellige.core import counter_random, random
from zellige.core.counter_random import philox
from zellige.core.positions import positions
from zellige.core.random import Counter, Middle, Streams


def test_each_call_seed_and_step_has_numbers_of_its_own():
    whole = Counter(2**62 + 5, 3)
    drawn = random.uniform((12, 5), whole)
    assert not torch.equal(random.uniform((12, 5), whole), drawn)  # the next call draws anew
    for other in (Counter(2**62 + 6, 3), Counter(2**62 + 5, 4), Counter(5, 3)):
        assert not torch.isclose(random.uniform((12, 5), other), random.uniform((12, 5), Counter(2**62 + 5, 3))).any()


def test_every_way_to_multiply_gives_the_same_words():
    """NumPy's, a device's, whose products wrap around, and a compiler's, which may not: in the whole range of words."""
    g = torch.Generator().manual_seed(0)
    words = torch.randint(2**32, (6, 4096), generator=g)
    words[:, :4] = torch.tensor([0, 1, 2**31, 2**32 - 1])
    made = philox(tuple(words[:4]), tuple(words[4:]))
    few = [philox(tuple(part[:4]), tuple(part[4:])) for part in words[:, :20].split(counter_random.FEW, 1)]  # Python's
    assert all(torch.equal(torch.cat(parts), a[:20]) for parts, a in zip(zip(*few), made))
    for product in (counter_random._wrapped, counter_random._by_halves):
        assert all(torch.equal(a, b) for a, b in zip(made, counter_random._rounds(*words, product)))
    seeds, places = words[:, :64, None], torch.arange(50)[None]
    wide = philox((places, *seeds[1:4]), (seeds[4], seeds[5]))  # a key for each row, as `Streams` has
    assert all(
        torch.equal(a, b) for a, b in zip(wide, counter_random._rounds(places, *seeds[1:], counter_random._wrapped))
    )
    x = words[0]
    for number in counter_random._MULTIPLIERS:
        high, low = counter_random._by_halves(x, number)
        whole = [int(w) * number for w in x]
        assert high.tolist() == [w >> 32 for w in whole]
        assert low.tolist() == [w & (2**32 - 1) for w in whole]
        largest = (2**16 - 1) * number + (((2**16 - 1) * number) >> 16)
        assert largest < 2**63  # so that no compiler may take liberties


def test_times_in_the_middle_are_those_of_the_strata_placed():
    """Of rows, of groups of rows, and of rows one after another; what is no time is as it was."""
    n = torch.tensor([[4, 4, 0], [3, 0, 0]])
    for draw in (
        lambda source: random.stratified(2, source),
        lambda source: random.spread(n, source),
        lambda source: random.row_by_row(n, source),
    ):
        u, t = draw(Counter(7, 3, 1, 2)), draw(Middle(7, 3, 1, 2))
        assert torch.equal(t, Middle(7).place(u))
        assert not torch.equal(t, u)
    for draw in (lambda source: random.uniform((4, 5), source), random.shared):
        assert torch.equal(draw(Middle(7, 3, 1, 2)), draw(Counter(7, 3, 1, 2)))


@pytest.mark.compile
@pytest.mark.parametrize("seed", [3, 2**61 + 3, 2**62 + 2**31 + 5, 0x1CAF56E1A6917380])
def test_a_compiler_draws_the_same(seed):
    """With signed products that wrap around it drew other numbers for a whole batch: the strata's, which are one number."""

    def draws(step, part):
        source = Counter(seed, step, part, 2)
        return random.uniform((4, 16), source), random.stratified(4, source), random.uniform((4, 1), source)

    numbers = [torch.full((), number) for number in (3, 1)]
    for a, b in zip(torch.compile(draws)(*numbers), draws(*numbers)):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-15)


def test_a_stream_depends_on_its_seed_alone():
    """Not on the rows beside it, nor on which of them have drawn how often; only what is read is drawn."""
    seeds = [5, 2**62 + 1, 7]
    beside, alone = Streams(seeds), Streams(seeds[1:2])
    first = random.uniform((3, 4), beside)
    assert torch.equal(first[1:2], random.uniform((1, 4), alone))
    random.uniform((2, 9), random.of_rows(beside, torch.tensor([0, 2])))
    random.discard((3, 4), beside)
    random.discard((1, 4), alone)
    at = torch.tensor([[True, False, True], [False, True, True], [False, False, False]])
    p = torch.ones(4, 1000)
    drawn = random.categorical(p, beside, at)
    whole = random.categorical(torch.ones(1, 3, 1000), alone)[0]
    assert torch.equal(drawn[2:], whole[at[1]])
    last = random.of_rows(random.of_rows(beside, torch.tensor([2, 1])), torch.tensor([1]))
    assert torch.equal(random.uniform((1, 2), last), random.uniform((1, 2), alone))
    assert torch.equal(random.uniform((3, 4), beside)[1:2], random.uniform((1, 4), alone))
    assert beside.calls.tolist() == [5, 5, 5]
    with pytest.raises(InputError, match="3 streams for 2 rows"):
        random.uniform((2, 4), beside)


def test_streams_are_uniform_and_unlike():
    """Over their seeds, calls and positions; chi squared is beyond five deviations once in 10^6."""
    source = Streams(range(256))
    u = torch.stack([random.uniform((256, 64), source) for _ in range(16)])
    assert len(u.unique()) == u.numel()
    for pairs in ((u[:, :, ::2], u[:, :, 1::2]), (u[:, ::2], u[:, 1::2]), (u[::2], u[1::2])):
        low, high = ((part * 16).long() for part in pairs)
        count = torch.bincount((low * 16 + high).flatten(), minlength=256).double()
        expected = low.numel() / 256
        assert abs(float(((count - expected) ** 2 / expected).sum()) - 255) < 5 * math.sqrt(2 * 255)


def test_counted_draws_are_uniform():
    """In 256 bins and in pairs of neighbours of 16 x 16; chi squared is beyond five deviations once in 10^6."""
    u = random.uniform((64, 4096), Counter(11, 7))
    assert u.dtype == torch.float64
    assert len(u.unique()) == u.numel()
    assert u.min() >= 0
    assert u.max() < 1
    pairs = (u[:, ::2] * 16).long() * 16 + (u[:, 1::2] * 16).long()
    across = (u[::2] * 16).long() * 16 + (u[1::2] * 16).long()
    for bins in ((u * 256).long(), pairs, across):
        count = torch.bincount(bins.flatten(), minlength=256).double()
        expected = bins.numel() / 256
        chi = float(((count - expected) ** 2 / expected).sum())
        assert abs(chi - 255) < 5 * math.sqrt(2 * 255)
    strata = random.stratified(64, Counter(11, 7))
    assert torch.equal((strata * 64).long().sort().values, torch.arange(64))


# ---------------------------------------------------------------------------------- positions
def fixed(at, most, spare=0.5):
    """What a compiled step has; `spare` selects positions where there are too many."""
    compiled = torch.compile(lambda at, spare: positions(at, most, spare), fullgraph=True, backend="eager")
    return compiled(at, torch.tensor(spare))


@pytest.mark.parametrize("most", [None, 40, 23])
def test_a_fixed_number_of_places_holds_the_same_positions(most):
    at = torch.rand(5, 8, generator=torch.Generator().manual_seed(0)) < 0.4
    assert at.sum() <= 23
    values, weight = torch.randn(5, 8, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    plain, padded = positions(at), fixed(at, most)
    assert len(padded.index) == (most or 40)
    torch.testing.assert_close(padded.sum(padded.of(values)), (values * at).sum(-1))
    torch.testing.assert_close(plain.sum(plain.of(values)), (values * at).sum(-1))
    weights = padded.weights(weight)
    torch.testing.assert_close(padded.sum(weights * padded.of(values), weighted=True), weight * (values * at).sum(-1))
    x, new = torch.randint(9, (5, 8)), torch.randint(9, (5, 8))
    for chosen in (plain, padded):
        assert torch.equal(chosen.put(x, chosen.of(new)), torch.where(at, new, x))


def test_which_are_drawn_of_too_many_depends_on_the_spare_number_alone():
    at, spares = torch.ones(4, 50, dtype=torch.bool), (0.0, 0.3, 0.6, 0.9)
    first = [fixed(at, 7, spare).index.tolist() for spare in spares]
    torch.rand(5)
    assert [fixed(at, 7, spare).index.tolist() for spare in spares] == first
    assert len({*map(tuple, first)}) == len(spares)


def test_where_nothing_is_asked():
    at = torch.zeros(2, 3, dtype=torch.bool)
    chosen = fixed(at, 4)
    assert torch.equal(chosen.sum(chosen.of(torch.ones(2, 3))), torch.zeros(2))


def test_more_positions_than_places_are_drawn_evenly():
    """7 of 10 positions, each in 7 of 10 draws, and their sum in the mean that of all."""
    at = torch.ones(2, 6, dtype=torch.bool)
    at[0, :2] = False
    values, total, seen = torch.arange(12.0).double().view(2, 6), torch.zeros(2, dtype=torch.float64), torch.zeros(12)
    compiled = torch.compile(lambda at, spare: positions(at, 7, spare), fullgraph=True, backend="eager")
    n, generator = 2000, torch.Generator().manual_seed(0)
    for _ in range(n):
        chosen = compiled(at, torch.rand((), generator=generator))
        seen[chosen.index[chosen.share > 0]] += 1
        total += chosen.sum(chosen.of(values)) / n
    # the standard error of a share is 0.0102: five of it are missed once in 10^6
    assert (seen[at.flatten()] / n - 0.7).abs().max() < 0.052
    assert seen[~at.flatten()].sum() == 0
    torch.testing.assert_close(total, (values * at).sum(-1), rtol=0.03, atol=0.0)
