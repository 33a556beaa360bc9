"""Block after block: the distribution is the product of the inner sampler's, whatever the cache, the prompt, the window and the
batch."""

import itertools

import pytest
import torch
from torch import nn

from testing.growing import (
    Counting,
    Exact,
    L,
    Uncached,
    V,
    by_blocks,
    masked,
    remember,
    table,
    tokens,
    transformer,
)
from testing.pairs import close, generators
from testing.worlds import data_distribution
from zellige import exact
from zellige.base.errors import InputError
from zellige.samplers import (
    SAMPLERS,
    Ancestral,
    AnyOrder,
    Blockwise,
    Confidence,
    Euler,
    FirstHitting,
    Remasking,
    Uniformisation,
    run,
)
from zellige.samplers.pairing import of_length

INSIDE = {
    "ancestral": Ancestral(),
    "plain": Ancestral(choose=False, temperature=0.7),
    "euler": Euler(),
    "first_hitting": FirstHitting(),
    "any_order by two": AnyOrder(2),
    "confidence": Confidence(),
    "remasking": Remasking(eta=0.3),
}


def draw(method, sampler, shape, steps=3, seed=0, **how):
    """The last state; the rows have streams of their own."""
    (*_, state) = run(sampler, method, shape, steps, generator=generators(*range(seed, seed + shape[0])), **how)
    return state


# ---------------------------------------------------------------------------------- the distribution
def inside():
    """(inner sampler, block, time): told the time where that is enumerable; blocks of one token are the easier ones."""
    for name, block in itertools.product(INSIDE, (1, 2)):
        if (name, block) != ("remasking", 2):  # its outcomes are many
            for time in (False, True) if name in ("ancestral", "plain", "confidence") else (False,):
                short = block == 2 or name in ("ancestral", "remasking")
                yield pytest.param(name, block, time, marks=() if short else pytest.mark.long)


@pytest.mark.parametrize(("name", "block", "time"), inside())
@torch.no_grad()
def test_the_distribution_is_the_product_of_the_inner_distributions(name, block, time):
    """That of its code, with the cache, against transition matrices of the inner sampler, without; on any network."""
    inner, method = INSIDE[name], masked(table(block, time))
    distribution = exact.run_distribution(Blockwise(inner), method, L, 2)
    close(distribution, by_blocks(method, inner, block, 2), rtol=0, atol=1e-12)
    close(distribution.sum(), torch.ones((), dtype=torch.float64))


CUT = [(1, None, 4), (2, None, 4), (2, None, 3), (0, 1, 4), (0, 2, 3), (0, 2, 4)]  # block, stride, tokens of the text
LONG = [("", (1, None, 4)), ("", (0, 1, 4)), ("", (0, 2, 4)), ("", (2, None, 4)), ("0", (0, 1, 4)), ("0", (0, 2, 4))]
GIVEN = [
    pytest.param(*cut, given, marks=pytest.mark.long if (given, cut) in LONG else ())
    for given, cut in itertools.product(["", "0", "01", "_1", "010"], CUT)
    if given != "_1" or cut[0] != 1  # right of a gap in an earlier block
]


@pytest.mark.parametrize(("block", "stride", "length", "given"), GIVEN)
@torch.no_grad()
def test_expected_calls_are_the_expectation_of_the_calls(block, stride, length, given):
    """Over every outcome: of blocks from a cache, which is read before each, and of a network of 2 tokens without one."""
    method = masked(table(block)) if block else masked(table(0, length=2), 2)
    sampler, method = Blockwise("ancestral", stride=stride), of_length(method, length)
    fixed = torch.tensor([-1 if sign == "_" else int(sign) for sign in given.ljust(length, "_")])
    calls = sampler.expected_calls(method, sampler.times(method, 2), int((fixed < 0).sum()))
    assert calls == pytest.approx(exact.run_calls(sampler, method, length, 2, fixed), abs=1e-9)


def test_expected_calls_where_nobody_knows():
    method = masked(table(2))
    for sampler in (Blockwise("first_hitting"), Blockwise(INSIDE["plain"]), Blockwise(end=1), Blockwise(entropy=1.0)):
        assert sampler.expected_calls(method, sampler.times(method, 2), L) is None


@pytest.mark.parametrize("block", [1, 2])
@pytest.mark.parametrize("inner", [FirstHitting(), AnyOrder()])
@torch.no_grad()
def test_with_an_exact_sampler_inside_it_is_the_distribution_of_the_data(inner, block):
    distribution = data_distribution(V, L)
    close(exact.run_distribution(Blockwise(inner), Exact(distribution, L, block), L), distribution, rtol=0, atol=1e-12)


@torch.no_grad()
def test_the_last_block_is_drawn_whole():
    """A text of 3 tokens is the beginning of one of 4, though its blocks have 2."""
    method = masked(table(2))
    whole, short = (exact.run_distribution(Blockwise(FirstHitting()), method, n) for n in (4, 3))
    close(short, whole.reshape(8, 2).sum(-1), rtol=0, atol=1e-12)
    network = masked(transformer(4), 16, 5)
    long = draw(network, Blockwise(), (3, 30))
    for length in (29, 16, 3):
        assert torch.equal(draw(network, Blockwise(), (3, length)).x, long.x[:, :length])


# ---------------------------------------------------------------------------------- every sampler inside
WRITERS = (
    "ancestral", "any_order", "confidence", "euler", "first_hitting", "fixed_order", "informed", "klass", "p2", "psi",
    "remasking", "smc", "speculative", "tau_leaping", "uniformisation",
)  # fmt: skip


class Copying(nn.Module):
    """Says with certainty that a token is the one of three places before, and what `first` (K,) says of the first three."""

    block, time_conditioned = 3, False

    def __init__(self, first):
        super().__init__()
        self.first = first

    def features(self, x, time=None, *, cache=None, **more):
        whole = x if cache is None else torch.cat((tokens(cache), x), 1)
        before = torch.where(nn.functional.one_hot(whole[:, :-3], len(self.first)) > 0, 50.0, 0.0).double()
        first = self.first.expand(len(x), 3, -1)
        return torch.cat((first, before), 1)[:, whole.shape[1] - x.shape[1] : whole.shape[1]]

    def extend(self, cache, x, time=None, valid=None):
        return remember(cache, x)

    def head(self, h):
        return h


def copying(*first):
    """A method of 9 tokens of 4, in blocks of three; its head verifies with the same words."""
    method = masked(Copying(torch.tensor([*first, 0.0]).double()), 9, len(first))
    return method.verified_by(lambda h, x, turn: h)


def test_the_writers_are_all_that_can_write_a_block():
    inside = of_length(copying(0.0, 0.0, 0.0, 0.0), 3)
    able = [name for name, cls in SAMPLERS.items() if cls.reason_against(inside) is None and not cls.grows]
    assert sorted(able) == sorted(WRITERS)


@pytest.mark.parametrize("name", WRITERS)
@torch.no_grad()
def test_whatever_writes_a_block_sees_the_blocks_before(name):
    """Each is the same as the first one, which differs from row to row; some rows have theirs given."""
    fixed = torch.full((7, 9), -1)
    fixed[:3, :3] = torch.tensor([[0, 0, 0], [2, 1, 3], [3, 0, 1]])
    inner = SAMPLERS[name](**({"particles": 2} if name == "smc" else {}))
    x = draw(copying(0.0, 0.0, 0.0, 0.0), Blockwise(inner), (7, 9), 4, fixed=fixed).x
    assert torch.equal(x[:, 3:], x[:, :3].repeat(1, 2))
    assert len(x[3:].unique(dim=0)) > 1


@pytest.mark.parametrize("how", [{"temperature": 0.0}, {"top_k": 1}, {"top_p": 1e-3}], ids=["cold", "top_k", "top_p"])
@pytest.mark.parametrize("name", WRITERS)
@torch.no_grad()
def test_whatever_writes_a_block_is_truncated_from_outside(name, how):
    x = draw(copying(0.3, 0.9, 0.1, 0.5), Blockwise(SAMPLERS[name](), **how), (5, 9), 4).x
    assert (x == 1).all()


# ---------------------------------------------------------------------------------- prompts
@pytest.mark.parametrize("prompt", [[1], [0, 1], [1, 1, 0]])
@torch.no_grad()
def test_a_prompt_gives_the_conditional_distribution(prompt):
    distribution, given = data_distribution(V, L), torch.tensor([*prompt, *[-1] * (L - len(prompt))])
    conditional = distribution * ((given == exact.states(V, L)) | (given < 0)).all(-1)
    for block in (1, 2):
        ours = exact.run_distribution(Blockwise(FirstHitting()), Exact(distribution, L, block), L, fixed=given)
        close(ours, conditional / conditional.sum(), rtol=0, atol=1e-12)
        method = masked(table(block))
        close(
            exact.run_distribution(Blockwise(), method, L, 2, given), by_blocks(method, Ancestral(), block, 2, given),
            rtol=0, atol=1e-12,
        )  # fmt: skip


@torch.no_grad()
def test_a_gap_inside_a_block_is_filled_from_both_sides():
    distribution, given = data_distribution(V, L), torch.tensor([0, 1, -1, 1])
    conditional = distribution * ((given == exact.states(V, L)) | (given < 0)).all(-1)
    ours = exact.run_distribution(Blockwise(FirstHitting()), Exact(distribution, L, 2), L, fixed=given)
    close(ours, conditional / conditional.sum(), rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_prompt_is_read_once():
    """12 tokens, of which 2 are in the block that begins; then what a block costs, as long as the text is."""
    counting = Counting(transformer(4))
    fixed = torch.full((2, 40), -1)
    fixed[:, :10] = torch.arange(10) % 5
    state = draw(masked(counting, 16, 5), Blockwise(FirstHitting()), (2, 40), fixed=fixed)
    assert counting.asked[0] == 2 * 8
    assert sum(counting.asked) == 2 * (8 + 30 * 4 + 7 * 4)  # read, drawn, and each block but the last read in its turn
    assert state.calls.tolist() == [1 + 30 + 7] * 2
    assert torch.equal(state.x[:, :10], fixed[:, :10])


@torch.no_grad()
def test_nothing_is_read_that_nothing_follows():
    counting = Counting(transformer(4))
    fixed = torch.arange(14)[None] % 5
    assert int(draw(masked(counting, 16, 5), Blockwise(), (1, 14), fixed=fixed).calls) == 0
    assert counting.asked == []


# ---------------------------------------------------------------------------------- the cache
@pytest.mark.parametrize(("block", "time"), [(1, False), (2, True), (4, False), (8, True)])
@torch.no_grad()
def test_cached_is_uncached(block, time):
    """The same seeds give the same tokens, for prompts of different lengths, whole blocks or not."""
    network = transformer(block, time=time)
    fixed = torch.full((4, 16), -1)
    for row, length in enumerate((0, 3, 8, 13)):
        fixed[row, :length] = torch.arange(length) % 5
    for sampler in (Blockwise(Ancestral()), Blockwise(FirstHitting(temperature=0.8)), Blockwise(Confidence())):
        a, b = (draw(masked(n, 16, 5), sampler, (4, 16), fixed=fixed) for n in (network, Uncached(network)))
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.calls, b.calls)
        assert len(a.x.unique(dim=0)) == 4


# ---------------------------------------------------------------------------------- any length
@torch.no_grad()
def test_a_token_costs_the_same_wherever_it_stands():
    counting = Counting(transformer(4))
    method, cost = masked(counting, 16, 5), []
    for n in (32, 64, 128):
        counting.asked = []
        state = draw(method, Blockwise(FirstHitting()), (2, n))
        assert (state.x < 5).all()
        cost.append(sum(counting.asked))
    assert cost[1] - cost[0] == 32 * 2 * (4 + 1)  # a call about the block for each token, and one for the block itself
    assert cost[2] - cost[1] == 64 * 2 * (4 + 1)
    assert counting.sees == 16  # never more than it was built for


@torch.no_grad()
def test_a_window_slides_by_whole_blocks():
    """In one layer a block sees the window - 4 tokens before it, and nothing of what stands before those."""
    method = masked(transformer(4, layers=1, conv=0), 16, 5)
    texts = torch.randint(0, 5, (1, 28), generator=torch.Generator().manual_seed(1)).repeat(8, 1)
    given = torch.cat((texts, torch.full((8, 4), -1)), 1)
    for window in (4, 8, 16):
        sampler, edge = Blockwise(FirstHitting(), window=window), 28 - (window - 4)
        unseen, seen = given.clone(), given.clone()
        unseen[:, :edge] = (given[:, :edge] + 1) % 5
        seen[:, edge:28] = (given[:, edge:28] + 1) % 5
        a, b, c = (draw(method, sampler, (8, 32), fixed=fixed).x[:, 28:] for fixed in (given, unseen, seen))
        assert torch.equal(a, b)
        assert torch.equal(a, c) is (window == 4)


@torch.no_grad()
def test_a_text_does_not_depend_on_when_its_prompt_was_read():
    """Alone a prompt longer than the window is read at once where that gives the same, beside a shorter one block by block."""
    method = masked(transformer(2, length=8), 8, 5)
    fixed = torch.full((3, 30), -1)
    for row, length in enumerate((21, 3, 12)):
        fixed[row, :length] = torch.arange(length) * 3 % 5
    whole = draw(method, Blockwise(), (3, 30), fixed=fixed).x
    for row in range(3):
        assert torch.equal(draw(method, Blockwise(), (1, 30), seed=row, fixed=fixed[row : row + 1]).x[0], whole[row])


# ---------------------------------------------------------------------------------- networks of whole texts
@torch.no_grad()
def test_semi_autoregressive_is_sampling_given_the_window():
    """The same draws as those of the inner sampler by itself, with the last tokens given; and the same distribution."""
    method, inner = masked(transformer(0), 16, 5), Ancestral()
    ours = draw(method, Blockwise(inner, stride=6), (2, 28), 5).x
    streams = generators(0, 1)
    (*_, first) = run(inner, method, (2, 16), 5, generator=streams)
    x = first.x
    for _ in range(2):
        fixed = torch.cat((x[:, -10:], torch.full((2, 6), -1)), 1)
        (*_, state) = run(inner, method, (2, 16), 5, fixed=fixed, generator=streams)
        x = torch.cat((x, state.x[:, -6:]), 1)
    assert torch.equal(ours, x)

    method, inner, K = masked(table(0, length=2), 2), FirstHitting(), V + 1
    distribution = exact.run_distribution(Blockwise(inner, stride=1), method, 3, 2).reshape([V] * 3)
    start = exact.sample_distribution(inner, method, 2).reshape(K, K)[:V, :V]
    for b in range(V):
        then = exact.sample_distribution(inner, method, 2, torch.tensor([b, -1])).reshape(K, K)[b, :V]
        close(distribution[:, b], start[:, b, None] * then, rtol=0, atol=1e-12)


@torch.no_grad()
def test_in_one_window_it_is_the_inner_sampler():
    method = masked(transformer(0), 16, 5)
    for inner in (Ancestral(), FirstHitting(), Confidence(), Remasking(), Uniformisation()):
        a, b = (draw(method, sampler, (2, 16), 7) for sampler in (Blockwise(inner), inner))
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.calls, b.calls)
    counting = Counting(transformer(0))
    draw(masked(counting, 16, 5), Blockwise(FirstHitting()), (1, 64))
    assert set(counting.asked) == {16}
    assert len(counting.asked) == 64


# ---------------------------------------------------------------------------------- time
def test_its_time_is_blocks_left_and_the_inner_times():
    method = masked(transformer(4), 16, 5)
    grid = Ancestral().times(method, 3)
    times = Blockwise().times(method, 3)
    assert len(times) == 4 * 3 + 1  # blocks times inner steps, and the end
    assert times[:, 0].tolist() == [4] * 3 + [3] * 3 + [2] * 3 + [1] * 3 + [0]
    assert torch.equal(times[3:6, 1], grid[:-1])
    assert torch.equal(times[3:6, 2], grid[1:])
    assert len(Blockwise(FirstHitting()).times(method, None)) == 16 + 1


# ---------------------------------------------------------------------------------- where a text ends
@torch.no_grad()
def test_texts_end_at_their_token():
    """Each by itself; what follows is that token, nothing is asked about it, and the others do not notice."""
    method, plain = masked(transformer(4), 16, 5), Blockwise(FirstHitting())
    fixed = torch.full((6, 40), -1)
    fixed[:, :3] = torch.tensor([2, 2, 0])  # a given one ends nothing
    free = draw(method, plain, (6, 40), fixed=fixed)
    whole = draw(method, Blockwise(FirstHitting(), end=2), (6, 40), fixed=fixed)
    ends = whole.memory.ends.tolist()
    assert len(set(ends)) > 3
    for row, end in enumerate(ends):
        assert torch.equal(whole.x[row, :end], free.x[row, :end])
        assert (whole.x[row, end:] == 2).all()
        assert (whole.x[row, 3:end] != 2).all()
        alone = draw(method, Blockwise(FirstHitting(), end=2), (1, 40), seed=row, fixed=fixed[:1])
        assert torch.equal(alone.x[0], whole.x[row])
        blocks = -(-min(end + 1, 40) // 4)
        assert int(whole.calls[row]) == int(alone.calls) == blocks * 4 - 3 + blocks - 1
    assert (draw(method, Blockwise(end=-1), (6, 40), fixed=fixed).memory.ends == 40).all()


@torch.no_grad()
def test_texts_end_where_they_repeat_themselves(monkeypatch):
    """150 tokens at temperature 0, which go round in circles, and at 1."""
    monkeypatch.setattr("zellige.samplers.growing.SPAN", 64)
    method = masked(transformer(4), 16, 5)
    cold, warm = (
        draw(method, Blockwise(FirstHitting(temperature=heat), entropy=1.0), (2, 150)).memory.ends
        for heat in (0.0, 1.0)
    )
    assert (cold == 64).all()
    assert (warm == 150).all()


# ---------------------------------------------------------------------------------- what cannot be
@pytest.mark.parametrize(
    ("make", "how", "message"),
    [
        (
            lambda: Blockwise("blockwise"),
            {},
            "sampler 'blockwise' writes no block; inside use ancestral or first_hitting",
        ),
        (lambda: Blockwise(stride=0), {}, "`stride` is 0; it must be 1 or more"),
        (lambda: Blockwise(stride=2), {}, "`stride` is 2, this network has blocks of 4; leave it out"),
        (lambda: Blockwise(stride=17), {"block": 0}, "`stride` is 17, the window has 16 tokens; give 16 or less"),
        (lambda: Blockwise(window=17), {}, "`window` is 17, the model takes 16; give a number from 1 to 16"),
        (lambda: Blockwise(window=10), {}, "`window` 10 is not a multiple of block 4; nearest: 8 or 12"),
        (lambda: Blockwise(window=3), {}, "`window` 3 is not a multiple of block 4; nearest: 4"),
        (lambda: Blockwise(entropy=0), {}, "`entropy` is 0; it must be above 0, in nats per token"),
        (
            Ancestral,
            {},
            "sampler 'ancestral' samples a whole text at once, and this model block after block; with own use blockwise",
        ),
        (
            lambda: Blockwise("any_order"),
            {"time": True},
            "sampler 'any_order' needs a network without time conditioning; with own use ancestral, euler or first_hitting",
        ),
        (
            Blockwise,
            {"fixed": [0, -1, 1, 1, 2, -1]},
            "position 4 is given and lies right of a gap; own writes from left to right and cannot see "
            "it; use a model of mdlm, such as the included stories-mdlm, or infill with `best_of` 32, which chooses among "
            "candidates",
        ),
    ],
)
def test_one_line_each(make, how, message):
    how = {"block": 4, "fixed": None, "time": False} | how
    method = masked(transformer(how["block"], time=how["time"]), 16, 5)
    method.name, method.sampler = "own", "blockwise"
    fixed = None if how["fixed"] is None else torch.tensor([how["fixed"]])
    with pytest.raises(InputError) as error:
        list(run(make(), method, (1, 16 if fixed is None else 6), 2, fixed=fixed))
    assert str(error.value) == message
