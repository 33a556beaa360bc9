"""Left to right: the distribution is the model's own, with or without the cache; one call a token, whatever the prompt and the
length."""

import pytest
import torch

from testing.growing import Counting, L, Uncached, V, ar, table, transformer
from testing.pairs import close, generators, mdlm
from zellige import exact
from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.methods import AR
from zellige.samplers import LeftToRight, run


def draw(method, sampler, shape, seed=0, **how):
    (*_, state) = run(sampler, method, shape, generator=generators(*range(seed, seed + shape[0])), **how)
    return state


def over(network, length=16, vocabulary=5):
    return AR(network, vocabulary, (length,))


# ---------------------------------------------------------------------------------- the distribution
@torch.no_grad()
def test_the_distribution_is_that_of_the_model():
    method, X = AR(table(1, outputs=V), V, (L,)), exact.states(V, L)
    distribution = (-method.bound(Batch(X))).exp()
    close(distribution.sum(), torch.ones((), dtype=torch.float64))
    close(exact.run_distribution(LeftToRight(), method, L), distribution, rtol=0, atol=1e-12)
    for prompt in ([1], [0, 1], [1, 0, 0]):
        given = torch.tensor([*prompt, *[-1] * (L - len(prompt))])
        conditional = distribution * ((given == X) | (given < 0)).all(-1)
        ours = exact.run_distribution(LeftToRight(), method, L, fixed=given)
        close(ours, conditional / conditional.sum(), rtol=0, atol=1e-12)
    close(exact.run_distribution(LeftToRight(), method, 2), distribution.reshape(4, 4).sum(-1), rtol=0, atol=1e-12)


@torch.no_grad()
def test_temperature_top_k_and_top_p():
    method = ar(vocabulary=5)
    p = method.next(method.network.features(torch.full((1, 1), 5)))[0, 0]
    order = p.argsort(descending=True)

    def distribution(**how):
        return exact.run_distribution(LeftToRight(**how), method, 1)

    def kept(n, q=p):
        cut = torch.zeros_like(q).index_copy(0, order[:n], q[order[:n]])
        return cut / cut.sum()

    close(distribution(), p)
    close(distribution(top_k=2), kept(2))
    close(distribution(top_k=9), p)
    close(distribution(top_p=float(p[order[:2]].sum()) + 1e-6), kept(3))
    close(distribution(temperature=0.5), kept(5, p**2))
    close(distribution(temperature=0.0), kept(1))
    cold = kept(5, p**2)  # the temperature first, then top_k, then top_p of what is left
    share = float(cold[order[0]] / cold[order[:3]].sum())
    close(distribution(temperature=0.5, top_k=3, top_p=share + 1e-6), kept(2, p**2))


# ---------------------------------------------------------------------------------- the cache
@torch.no_grad()
def test_cached_is_uncached():
    method, fixed = ar(), torch.full((4, 16), -1)
    for row, length in enumerate((0, 1, 7, 15)):
        fixed[row, :length] = torch.arange(length) % 5
    a, b = (draw(m, LeftToRight(), (4, 16), fixed=fixed) for m in (method, over(Uncached(method.network))))
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.x[fixed >= 0], fixed[fixed >= 0])
    for row in range(4):
        alone = draw(method, LeftToRight(), (1, 16), seed=row, fixed=fixed[row : row + 1])
        assert torch.equal(alone.x[0], a.x[row])
        assert int(alone.calls) == int(a.calls[row]) == int((fixed[row] < 0).sum())  # a prompt and a token: one call


@torch.no_grad()
def test_a_token_costs_one_position():
    counting = Counting(ar().network)
    fixed = torch.full((2, 300), -1)
    fixed[:, :11] = torch.arange(11) % 5
    draw(over(counting), LeftToRight(), (2, 300), fixed=fixed)
    assert counting.asked == [2 * 12] + [2] * 288  # the token that begins a text and the prompt, then one by one
    assert counting.sees == 16


@torch.no_grad()
def test_a_long_prompt_beside_a_short_one():
    """What is remembered does not depend on when it was read, also where the window slides."""
    method, fixed = ar(length=8), torch.full((3, 30), -1)
    for row, length in enumerate((21, 3, 9)):
        fixed[row, :length] = torch.arange(length) * 3 % 5
    whole = draw(method, LeftToRight(), (3, 30), fixed=fixed)
    for row in range(3):
        alone = draw(method, LeftToRight(), (1, 30), seed=row, fixed=fixed[row : row + 1])
        assert torch.equal(alone.x[0], whole.x[row])
        assert int(alone.calls) == int(whole.calls[row])
    assert not torch.equal(draw(method, LeftToRight(window=3), (3, 30), fixed=fixed).x, whole.x)


# ---------------------------------------------------------------------------------- where a text ends
@torch.no_grad()
def test_texts_end_at_their_token():
    method = ar()
    free = draw(method, LeftToRight(), (6, 40))
    whole = draw(method, LeftToRight(end=2), (6, 40))
    ends = whole.memory.ends.tolist()
    assert len(set(ends)) > 3
    for row, end in enumerate(ends):
        assert torch.equal(whole.x[row, :end], free.x[row, :end])
        assert (whole.x[row, end:] == 2).all()
        assert (whole.x[row, :end] != 2).all()
        assert int(whole.calls[row]) == min(end + 1, 40)


@torch.no_grad()
def test_a_text_ends_where_the_next_one_begins():
    """Of a model whose texts begin with a token of its own: that token ends a text, as the one that ends texts does."""
    method = AR(transformer(1, vocabulary=24, outputs=25), 24, (16,), AR.Config(begin=3))
    free, whole = (draw(method, LeftToRight(end=end), (9, 40)) for end in (-1, 2))
    ends = whole.memory.ends.tolist()
    marks = [{2, 3} & {*row.tolist()} for row in free.x]
    assert len({*ends}) > 3
    assert {free.x[row, end].item() for row, end in enumerate(ends) if end < 40} == {2, 3}
    for row, end in enumerate(ends):
        assert torch.equal(whole.x[row, :end], free.x[row, :end])
        assert not {2, 3} & {*whole.x[row, :end].tolist()}
        assert (whole.x[row, end:] == 2).all()
        assert bool(marks[row]) == (end < 40)


# ---------------------------------------------------------------------------------- what cannot be
@pytest.mark.parametrize(
    ("make", "fixed", "message"),
    [
        (lambda: LeftToRight(top_k=0), None, "`top_k` is 0; it must be 1 or more"),
        (lambda: LeftToRight(window=17), None, "`window` is 17, the model takes 16; give a number from 1 to 16"),
        (
            LeftToRight,
            [0, -1, 1],
            "position 2 is given and lies right of a gap; ar writes from left to right and cannot see "
            "it; use a model of mdlm, such as the included stories-mdlm, or infill with `best_of` 32, which chooses among "
            "candidates",
        ),
    ],
)
def test_one_line_each(make, fixed, message):
    fixed = None if fixed is None else torch.tensor([fixed])
    with pytest.raises(InputError) as error:
        list(run(make(), ar(), (1, 3), fixed=fixed))
    assert str(error.value) == message


def test_it_needs_the_next_token():
    with pytest.raises(InputError) as error:
        LeftToRight().init(mdlm(), (1, 2))
    assert str(error.value) == (
        "sampler 'left_to_right' needs a network that says the next token; with mdlm use ancestral, euler or first_hitting"
    )
